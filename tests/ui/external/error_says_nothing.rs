use idempotent_tool::{Attempt, Failure, idempotent_tool};

#[idempotent_tool(operation = "send:v1", inspect = "look")]
async fn send(_attempt: &Attempt) -> Result<u64, Failure> {
    Ok(1)
}

fn main() {}
