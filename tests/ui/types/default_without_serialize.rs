use idempotent_tool::{Failure, Tx, idempotent_tool};

#[derive(Default, serde::Deserialize, schemars::JsonSchema)]
struct Note {
    body: String,
}

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx, #[serde(default)] note: Note) -> Result<u64, Failure> {
    Ok(note.body.len() as u64)
}

fn main() {}
