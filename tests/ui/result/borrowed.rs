use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
fn create(tx: &Tx) -> Result<&Tx, Failure> {
    Ok(tx)
}

fn main() {}
