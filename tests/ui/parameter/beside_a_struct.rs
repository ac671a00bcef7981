use idempotent_tool::{Failure, Tx, idempotent_tool};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Note {
    body: String,
}

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx, #[arguments] note: Note, pinned: bool) -> Result<u64, Failure> {
    Ok(note.body.len() as u64 + u64::from(pinned))
}

fn main() {}
