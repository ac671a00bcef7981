use idempotent_tool::{Failure, Tx, idempotent_tool};

fn read<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u8, D::Error> {
    serde::Deserialize::deserialize(from)
}

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx, #[serde(default, deserialize_with = "read")] count: u8) -> Result<u64, Failure> {
    Ok(u64::from(count))
}

fn main() {}
