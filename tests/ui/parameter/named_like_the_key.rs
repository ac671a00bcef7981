use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx, idempotency_key: String) -> Result<u64, Failure> {
    Ok(idempotency_key.len() as u64)
}

fn main() {}
