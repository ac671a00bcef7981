#![allow(unused_imports)]

use idempotent_tool::idempotent_tool;

#[idempotent_tool(operation = "off:v1")]
#[cfg(any())]
fn off(_tx: &Nowhere, body: Nowhere) -> Result<Nowhere, Nowhere> {
    nothing
}

#[cfg(any())]
#[idempotent_tool(operation = "off:v1")]
fn off(_tx: &Nowhere, #[serde(default)] body: Nowhere) -> Result<Nowhere, Nowhere> {
    nothing
}

fn off() {}

fn main() {
    off();
}
