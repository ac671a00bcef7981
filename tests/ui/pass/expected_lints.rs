#![deny(warnings)]

use idempotent_tool::{Failure, Tx, idempotent_tool};

#[expect(dead_code)]
#[idempotent_tool(operation = "unused:v1")]
fn unused(_tx: &Tx, body: String) -> Result<usize, Failure> {
    Ok(body.len())
}

#[idempotent_tool(operation = "also_unused:v1")]
#[expect(dead_code, reason = "registered elsewhere")]
fn also_unused(_tx: &Tx, body: String) -> Result<usize, Failure> {
    Ok(body.len())
}

#[allow(dead_code)]
#[idempotent_tool(operation = "allowed:v1")]
#[expect(unused_variables, unreachable_code)]
fn allowed(_tx: &Tx, body: String) -> Result<usize, Failure> {
    return Ok(1);
    Ok(2)
}

fn main() {}
