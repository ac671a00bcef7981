use idempotent_tool::{Failure, Tx, idempotent_tool};

struct Bare;

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx) -> Result<Bare, Failure> {
    Ok(Bare)
}

fn main() {}
