use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
fn create<T>(_tx: &Tx, body: Vec<T>) -> Result<u64, Failure> {
    Ok(body.len() as u64)
}

fn main() {}
