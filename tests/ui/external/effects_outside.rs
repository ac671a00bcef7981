use idempotent_tool::{Attempt, AttemptError, idempotent_tool};

#[idempotent_tool(operation = "send:v1", inspect = "Look it up", effects_outside = true)]
async fn send(_attempt: &Attempt) -> Result<u64, AttemptError> {
    Ok(1)
}

fn main() {}
