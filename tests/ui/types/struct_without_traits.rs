use idempotent_tool::{Failure, Tx, idempotent_tool};

struct Bare;

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx, #[arguments] _bare: Bare) -> Result<u64, Failure> {
    Ok(1)
}

fn main() {}
