use idempotent_tool::{Failure, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
fn create(body: String) -> Result<u64, Failure> {
    Ok(body.len() as u64)
}

fn main() {}
