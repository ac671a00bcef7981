use idempotent_tool::{Failure, Tx, idempotent_tool};

fn text() -> String {
    String::new()
}

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx, #[serde(default = "text")] count: u8) -> Result<u64, Failure> {
    Ok(u64::from(count))
}

fn main() {}
