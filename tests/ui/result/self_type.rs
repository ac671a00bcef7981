use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx) -> Result<Self, Failure> {
    loop {}
}

fn main() {}
