//! Tools of a crate whose edition is not ours: each token keeps its own.

use idempotent_tool::{idempotent_tool, Failure, Tx};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A note.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Note {
    /// The text.
    pub body: String,
}

fn one() -> u8 {
    1
}

macro_rules! tool {
    ($name:ident, $operation:literal, $ty:ty) => {
        /// Made by a macro of this edition.
        ///
        /// # Errors
        ///
        /// None.
        #[idempotent_tool(operation = $operation)]
        pub fn $name(_tx: &Tx, r#gen: $ty) -> Result<$ty, Failure> {
            Ok(r#gen)
        }
    };
}

tool!(echo, "echo:v1", Note);

/// Numbers of every kind, one named by a keyword of the later edition.
///
/// # Errors
///
/// None.
#[idempotent_tool(operation = "count:v1")]
pub fn count(
    _tx: &Tx,
    #[serde(default)] r#gen: u8,
    #[serde(default = "one")] step: u8,
    more: Option<u8>,
) -> Result<u8, Failure> {
    Ok(r#gen + step + more.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use idempotent_tool::{Caller, Reply, Scope, SqliteStore, Toolbox};
    use serde_json::{json, Value};

    use super::*;

    fn json_of(reply: &Reply) -> Value {
        serde_json::from_str(&reply.to_json()).unwrap()
    }

    #[test]
    fn both_are_called() {
        let tools = Toolbox::builder(SqliteStore::options().open_in_memory().unwrap())
            .without_authorization()
            .tool::<echo>()
            .tool::<count>()
            .build()
            .unwrap();
        let caller = Caller::new(Scope::builder().account("a").build().unwrap());
        let arguments = json!({ "idempotency_key": "k", "gen": { "body": "b" } });
        let reply = json_of(&tools.call_blocking(&caller, "echo", arguments));
        assert_eq!(reply["result"], json!({ "body": "b" }));
        let arguments = json!({ "idempotency_key": "k", "gen": 2 });
        let reply = json_of(&tools.call_blocking(&caller, "count", arguments));
        assert_eq!(reply["result"], 3);
    }
}
