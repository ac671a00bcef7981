use idempotent_tool::{Failure, Tx, idempotent_tool};

/// Stands for the `indexmap` crate.
mod indexmap {
    pub type IndexSet<T> = std::collections::BTreeSet<T>;
}

#[idempotent_tool(operation = "create:v1")]
fn create(_tx: &Tx, tags: Option<indexmap::IndexSet<String>>) -> Result<u64, Failure> {
    Ok(tags.map_or(0, |tags| tags.len() as u64))
}

fn main() {}
