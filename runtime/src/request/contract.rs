//! The contract of one version as the ledger keeps it, and what may change in place.

use serde_json::{Map, Value};

/// What a version promised: its arguments' schema and its result's, without texts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Contract {
    pub(crate) tool: String,
    pub(crate) version: u32,
    /// The form that is stored: members sorted, descriptions and titles removed.
    pub(crate) json: Value,
}

impl Contract {
    /// The contract of `tool:vVERSION` with these schemas.
    pub(crate) fn new(
        _tool: &str,
        _version: u32,
        _arguments: &Map<String, Value>,
        _result: &Value,
    ) -> Self {
        todo!()
    }
}

/// What changed between the `stored` contract and the `current` one that a version may
/// not change in place, one sentence each; empty if only optional arguments were added.
pub(crate) fn breaking_changes(_stored: &Value, _current: &Value) -> Vec<String> {
    todo!()
}
