#![forbid(unsafe_code)]

use idempotent_tool::Handler;

mod tools {
    pub mod notes {
        use idempotent_tool::{Failure, Tx, idempotent_tool};

        #[derive(serde::Serialize, schemars::JsonSchema)]
        pub struct Note {
            id: u64,
        }

        #[idempotent_tool(operation = "create:v1")]
        pub(in crate::tools) fn create(_tx: &Tx) -> Result<Note, Failure> {
            Ok(Note { id: 1 })
        }

        #[idempotent_tool(operation = "remove:v1")]
        pub fn remove(_tx: &Tx) -> Result<Note, Failure> {
            Ok(Note { id: 1 })
        }
    }

    pub fn check() {
        super::is_tool::<notes::create>();
    }
}

use tools::notes::remove;

fn is_tool<T: Handler>() {}

fn main() {
    tools::check();
    is_tool::<remove>();
    // The function is still one.
    let _ = remove;
}
