use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx, body: impl ToString) -> Result<u64, Failure> {
    Ok(body.to_string().len() as u64)
}

fn main() {}
