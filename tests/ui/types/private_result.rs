use idempotent_tool::{Failure, Tx, idempotent_tool};

#[derive(serde::Serialize, schemars::JsonSchema)]
struct Note {
    id: u64,
}

#[idempotent_tool(operation = "create:v1")]
pub fn create(_tx: &Tx) -> Result<Note, Failure> {
    Ok(Note { id: 1 })
}

fn main() {}
