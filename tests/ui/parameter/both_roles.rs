use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx, #[arguments] #[state] table: &String) -> Result<u64, Failure> {
    Ok(table.len() as u64)
}

fn main() {}
