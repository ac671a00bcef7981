//! Tools and parameters that have the names that an expansion could use itself.

use idempotent_tool::{Failure, Tx, idempotent_tool};

#[idempotent_tool(operation = "tx:v1")]
fn tx(tx: &Tx, input: String, result: u8, context: u8) -> Result<String, Failure> {
    Ok(format!("{input}{result}{context}{}", tx.changes()))
}

#[idempotent_tool(operation = "input:v1")]
fn input(state: &Tx, arguments: u8, handler: u8) -> Result<u64, Failure> {
    Ok(state.changes() + u64::from(arguments) + u64::from(handler))
}

#[idempotent_tool(operation = "result:v1")]
fn result(context: &Tx, key: String, operation: String) -> Result<String, Failure> {
    let _ = context;
    Ok(key + &operation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[idempotent_tool(operation = "only_in_tests:v1")]
    fn only_in_tests(_tx: &Tx) -> Result<(), Failure> {
        Ok(())
    }
}

fn main() {
    let _ = (tx as fn(&_, _, _, _) -> _, input as fn(&_, _, _) -> _, result as fn(&_, _, _) -> _);
}
