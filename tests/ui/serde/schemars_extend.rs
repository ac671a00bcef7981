use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "create:v1")]
fn create(
    _tx: &Tx,
    #[schemars(extend("uniqueItems" = true))] steps: Vec<String>,
) -> Result<usize, Failure> {
    Ok(steps.len())
}

fn main() {}
