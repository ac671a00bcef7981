use idempotent_tool::{Failure, Handler, Tx, idempotent_tool};

#[idempotent_tool(operation = "context:v1")]
fn context(value: &Tx, state: u8, arguments: u8, context: u8, name: u8) -> Result<u8, Failure> {
    let _ = value;
    Ok(state + arguments + context + name)
}

#[idempotent_tool(operation = "state:v1")]
fn state(state: &Tx, tx: u8, #[state] arguments: &u8) -> Result<u8, Failure> {
    let _ = state;
    Ok(tx + arguments)
}

#[idempotent_tool(operation = "arguments:v1")]
fn arguments(arguments: &Tx, value: u8) -> Result<u8, Failure> {
    let _ = arguments;
    Ok(value)
}

#[idempotent_tool(operation = "value:v1")]
fn value(_: &Tx, value: u8, result: u8, call: u8, declaration: u8) -> Result<u8, Failure> {
    Ok(value + result + call + declaration)
}

/// Methods named like those of the traits that the expansion calls.
#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Note;

#[allow(dead_code)]
impl Note {
    fn read() {}
    fn from_json() {}
    fn json_schema() {}
    fn to_json() {}
    fn default() -> u8 {
        0
    }
    fn into_result() {}
}

impl Default for Note {
    fn default() -> Self {
        Note
    }
}

#[idempotent_tool(operation = "note:v1")]
fn note(_tx: &Tx, #[serde(default)] note: Note) -> Result<Note, Failure> {
    Ok(note)
}

fn is_tool<T: Handler>() {}

fn main() {
    is_tool::<context>();
    is_tool::<state>();
    is_tool::<arguments>();
    is_tool::<value>();
    is_tool::<note>();
}
