use idempotent_tool::{Failure, Handler, Tx, idempotent_tool};

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewNote {
    body: String,
    #[serde(default)]
    pinned: bool,
}

#[idempotent_tool(operation = "create:v1")]
fn create(
    _tx: &Tx,
    #[state] table: &String,
    #[arguments] NewNote { mut body, pinned }: NewNote,
) -> Result<String, Failure> {
    if pinned {
        body.push_str(table);
    }
    Ok(body)
}

fn is_tool<T: Handler<Arguments = NewNote>>() {}

fn main() {
    is_tool::<create>();
}
