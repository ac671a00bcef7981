use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx, body: String) -> Result<u64, Failure> {
    let count: u64 = body;
    Ok(count)
}

fn main() {}
