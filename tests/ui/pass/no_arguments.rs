use idempotent_tool::{Failure, Handler, Tx, idempotent_tool};

/// Does one thing.
#[idempotent_tool(operation = "once:v1")]
fn once(_tx: &Tx) -> Result<(), Failure> {
    Ok(())
}

fn is_tool<T: Handler>() {}

fn main() {
    is_tool::<once>();
}
