use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx, #[state] cell: &std::cell::Cell<u64>) -> Result<u64, Failure> {
    Ok(cell.get())
}

fn main() {}
