use idempotent_tool::{Failure, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
fn create() -> Result<u64, Failure> {
    Ok(1)
}

fn main() {}
