use idempotent_tool::{Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
extern "C" fn create(_tx: &Tx) -> u64 {
    1
}

fn main() {}
