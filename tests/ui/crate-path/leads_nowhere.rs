use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v1", crate = ::nowhere)]
fn create(_tx: &Tx, #[serde(default)] _body: String) -> Result<u64, Failure> {
    Ok(1)
}

fn main() {}
