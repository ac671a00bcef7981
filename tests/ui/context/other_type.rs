use idempotent_tool::{Failure, idempotent_tool};

/// Another crate's transaction.
struct Transaction;

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Transaction) -> Result<u64, Failure> {
    Ok(1)
}

fn main() {}
