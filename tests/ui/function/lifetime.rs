use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
fn create<'a>(_tx: &'a Tx) -> Result<u64, Failure> {
    Ok(1)
}

fn main() {}
