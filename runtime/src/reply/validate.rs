//! The check of a result against its advertised schema.

use serde_json::value::RawValue;

use crate::effect::failure::Failure;

/// The compiled schema of a tool's result.
#[derive(Debug)]
pub(crate) struct ResultValidator {}

impl ResultValidator {
    /// Refuses a result that a strict client would refuse.
    pub(crate) fn check(&self, _result: &RawValue) -> Result<(), Failure> {
        todo!()
    }
}
