use idempotent_tool::{Failure, Handler, Tx, idempotent_tool};
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

#[derive(Serialize, JsonSchema)]
struct Note {
    note_id: String,
}

/// Create a note in the caller's project.
#[idempotent_tool(operation = "create_note:v1", retention = "30d")]
fn create_note(
    _tx: &Tx,
    /// The text of the note.
    #[schemars(length(min = 1, max = 10_000))]
    body: String,
) -> Result<Note, Failure> {
    Ok(Note { note_id: format!("{}-{}", Uuid::now_v7(), body.len()) })
}

fn is_tool<T: Handler>() {}

fn main() {
    is_tool::<create_note>();
}
