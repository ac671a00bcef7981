use idempotent_tool::{Failure, Tx, idempotent_tool};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Note {
    body: String,
}

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx, #[arguments] #[serde(rename = "x")] note: Note) -> Result<u64, Failure> {
    Ok(note.body.len() as u64)
}

fn main() {}
