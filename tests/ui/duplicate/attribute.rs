use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
#[idempotent_tool(operation = "create:v2")]
fn create(_tx: &Tx) -> Result<u64, Failure> {
    Ok(1)
}

fn main() {}
