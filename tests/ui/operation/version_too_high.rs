use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v1000000000")]
fn create(_tx: &Tx) -> Result<u64, Failure> {
    Ok(1)
}

fn main() {}
