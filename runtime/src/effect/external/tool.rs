//! An external tool as `build()` compiles it.

use std::{sync::Arc, time::Duration};

use serde_json::value::RawValue;

use crate::{
    effect::{
        external::{
            attempt::AttemptHandler,
            decided::recorded_arguments,
            instruction::Instruction,
            recovery::{ExternalDeclaration, Recovery},
        },
        failure::Failure,
    },
    operation::record::Record,
    reply::validate::ResultValidator,
    request::{arguments::CompiledArguments, registered::Registered},
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
    pub(crate) arguments: Arc<CompiledArguments>,
    pub(crate) result: ResultValidator,
    pub(crate) declared: ExternalDeclaration,
    /// What to check while the outcome is unknown.
    pub(crate) instruction: Option<Instruction>,
}

impl ExternalTool {
    pub(crate) fn recovery(&self) -> Recovery {
        self.declared.recovery.recovery()
    }

    /// Whether this build can run the operation on what is recorded of it alone. A newer build
    /// may have recorded arguments that this one doesn't know.
    pub(crate) fn knows_arguments_of(&self, record: &Record) -> bool {
        recorded_arguments(record).is_none_or(|recorded| self.arguments.accepts(&recorded))
    }

    /// Checks a serialized result: the limit, then the schema.
    pub(crate) fn check_result(&self, result: &RawValue) -> Result<(), Failure> {
        self.result.check_within(self.max_result, result)
    }
}
