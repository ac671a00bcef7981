use idempotent_tool::{Failure, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &impl Sized) -> Result<u64, Failure> {
    Ok(1)
}

fn main() {}
