#![deny(warnings)]

use idempotent_tool::{Failure, Handler, Tx, idempotent_tool};

#[expect(clippy::too_many_lines, reason = "a lint that nobody checks here is not missed")]
#[idempotent_tool(operation = "above:v1")]
fn above(_tx: &Tx, #[expect(unused_variables)] body: String) -> Result<usize, Failure> {
    Ok(1)
}

#[idempotent_tool(operation = "below:v1")]
#[expect(unused_variables, unreachable_code)]
fn below(_tx: &Tx, body: String) -> Result<usize, Failure> {
    return Ok(1);
    Ok(2)
}

fn is_tool<T: Handler>() {}

fn main() {
    is_tool::<above>();
    is_tool::<below>();
}
