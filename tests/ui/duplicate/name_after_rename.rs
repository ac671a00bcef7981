use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx, first: u8, #[serde(rename = "first")] second: u8) -> Result<u64, Failure> {
    Ok(u64::from(first + second))
}

fn main() {}
