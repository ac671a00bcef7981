#![deny(warnings)]

use idempotent_tool::{Failure, Handler, Tx, idempotent_tool};

fn is_tool<T: Handler>() {}

fn main() {
    #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    struct Local {
        id: u64,
    }

    fn two() -> u64 {
        2
    }

    #[idempotent_tool(operation = "nested:v1")]
    fn nested(
        _tx: &Tx,
        local: Local,
        #[serde(default = "two")] count: u64,
    ) -> Result<Local, Failure> {
        Ok(Local { id: local.id + count })
    }

    is_tool::<nested>();
}
