use idempotent_tool::{Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx) {
    let _ = 1;
}

fn main() {}
