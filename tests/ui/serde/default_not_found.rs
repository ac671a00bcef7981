use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx, #[serde(default = "nowhere")] count: u8) -> Result<u64, Failure> {
    Ok(u64::from(count))
}

fn main() {}
