use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx, (left, right): (u64, u64)) -> Result<u64, Failure> {
    Ok(left + right)
}

fn main() {}
