use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx, body: String) -> Result<u64, Failure>
where
    String: Clone,
{
    Ok(body.len() as u64)
}

fn main() {}
