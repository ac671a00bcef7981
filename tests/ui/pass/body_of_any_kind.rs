#![deny(warnings)]

use idempotent_tool::{Failure, Handler, Tx, idempotent_tool};

#[idempotent_tool(operation = "any_kind:v1")]
fn any_kind(tx: &Tx, body: String) -> Result<usize, Failure> {
    #![allow(unused_variables)]
    macro_rules! length {
        ($of:ident) => {
            $of.len()
        };
    }
    fn inner(tx: usize) -> usize {
        tx
    }
    let call = |context: usize| context + 1;
    let unused = 1;
    if body.is_empty() {
        return Ok(inner(call(0)));
    }
    Ok(length!(body))
}

fn is_tool<T: Handler>() {}

fn main() {
    is_tool::<any_kind>();
}
