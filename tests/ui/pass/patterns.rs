#![deny(warnings)]

use idempotent_tool::{Failure, Handler, Tx, idempotent_tool};

#[derive(Debug, Clone, Copy)]
struct Limit(usize);

#[idempotent_tool(operation = "patterns:v1")]
fn patterns(
    _: &Tx,
    mut body: String,
    whole @ _: Vec<u8>,
    ref by_reference: String,
    #[state] &Limit(limit): &Limit,
    #[state] _: &String,
) -> Result<String, Failure> {
    body.truncate(limit + whole.len() + by_reference.len());
    Ok(body)
}

fn is_tool<T: Handler>() {}

fn main() {
    is_tool::<patterns>();
}
