use idempotent_tool::{Failure, Handler, Tx, idempotent_tool};

/// The generated structs of both have the same name, and nobody sees it.
#[idempotent_tool(operation = "create_note:v1")]
fn create_note(_tx: &Tx, body: String) -> Result<usize, Failure> {
    Ok(body.len())
}

#[idempotent_tool(operation = "create_note:v2")]
fn create_note_v2(_tx: &Tx, body: String, #[serde(default)] pinned: bool) -> Result<usize, Failure> {
    Ok(body.len() + usize::from(pinned))
}

fn name_and_version<T: Handler>() -> (&'static str, u32) {
    (T::declaration().name, T::declaration().version)
}

fn main() {
    assert_eq!(name_and_version::<create_note>(), ("create_note", 1));
    assert_eq!(name_and_version::<create_note_v2>(), ("create_note", 2));
}
