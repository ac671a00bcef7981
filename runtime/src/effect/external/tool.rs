//! An external tool as `build()` compiles it.

use std::{sync::Arc, time::Duration};

use serde_json::value::RawValue;

use crate::{
    effect::{
        external::{
            attempt::AttemptHandler,
            instruction::Instruction,
            recovery::{ExternalDeclaration, Recovery},
        },
        failure::Failure,
    },
    reply::validate::ResultValidator,
    request::registered::Registered,
};

/// What one version of an external tool needs to run.
#[derive(Debug)]
pub(crate) struct ExternalTool {
    pub(crate) name: Arc<str>,
    pub(crate) version: u32,
    pub(crate) contract: Arc<Registered>,
    pub(crate) retention: Duration,
    pub(crate) tombstone: Duration,
    pub(crate) deadline: Duration,
    pub(crate) max_result: usize,
    pub(crate) handler: AttemptHandler,
    pub(crate) result: ResultValidator,
    pub(crate) declared: ExternalDeclaration,
    /// What to check while the outcome is unknown.
    pub(crate) instruction: Option<Instruction>,
}

impl ExternalTool {
    pub(crate) fn recovery(&self) -> Recovery {
        self.declared.recovery.recovery()
    }

    /// Checks a serialized result: the limit, then the schema.
    pub(crate) fn check_result(&self, result: &RawValue) -> Result<(), Failure> {
        self.result.check_within(self.max_result, result)
    }
}
