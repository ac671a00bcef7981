#![deny(warnings)]

use idempotent_tool::{Failure, Handler, Tx, idempotent_tool};

#[tracing::instrument(skip_all)]
#[idempotent_tool(operation = "above:v1")]
fn above(_tx: &Tx, #[serde(default)] count: u8) -> Result<u8, Failure> {
    Ok(count)
}

#[idempotent_tool(operation = "below:v1")]
#[tracing::instrument(skip_all)]
#[must_use]
#[inline]
#[cfg(not(any()))]
fn below(_tx: &Tx, count: u8) -> Result<u8, Failure> {
    Ok(count)
}

#[deprecated]
#[idempotent_tool(operation = "old:v1")]
fn old(_tx: &Tx) -> Result<u8, Failure> {
    Ok(1)
}

#[idempotent_tool(operation = "older:v1")]
#[deprecated(note = "use another")]
fn older(_tx: &Tx) -> Result<u8, Failure> {
    Ok(1)
}

#[cfg_attr(all(), idempotent_tool(operation = "conditional:v1"))]
fn conditional(_tx: &Tx, #[allow(unused_variables)] body: String) -> Result<u8, Failure> {
    Ok(1)
}

fn is_tool<T: Handler>() {}

fn main() {
    is_tool::<above>();
    is_tool::<below>();
    is_tool::<old>();
    is_tool::<older>();
    is_tool::<conditional>();
}
