use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v0")]
fn create(_tx: &Tx) -> Result<u64, Failure> {
    Ok(1)
}

fn main() {}
