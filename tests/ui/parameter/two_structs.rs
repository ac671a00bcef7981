use idempotent_tool::{Failure, Tx, idempotent_tool};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Note {
    body: String,
}

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx, #[arguments] note: Note, #[arguments] other: Note) -> Result<u64, Failure> {
    Ok(note.body.len() as u64 + other.body.len() as u64)
}

fn main() {}
