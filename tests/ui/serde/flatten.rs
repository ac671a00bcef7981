use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx, #[serde(flatten)] rest: std::collections::BTreeMap<String, u8>) -> Result<u64, Failure> {
    Ok(rest.len() as u64)
}

fn main() {}
