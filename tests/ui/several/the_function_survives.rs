use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "create")]
fn create(_tx: &Tx, #[schemars(length(min = 1))] body: String) -> Result<u64, Failure> {
    Ok(body.len() as u64)
}

/// Finds the function, although it is no tool.
fn again(tx: &Tx) -> Result<u64, Failure> {
    create(tx, String::new())
}

fn main() {
    let _ = again;
}
