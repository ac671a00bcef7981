use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "send:v1", provider_key(window = "24h"), wait = "1s")]
fn send(_tx: &Tx) -> Result<u64, Failure> {
    Ok(1)
}

fn main() {}
