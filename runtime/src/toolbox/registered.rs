//! Tools as `build()` compiles them.

use std::{sync::Arc, time::Duration};

use crate::{
    effect::transactional::TransactionalTool,
    reply::{describe::ToolDescription, validate::ReplyCheck},
    request::{arguments::CompiledArguments, authorize::Authorizer},
};

/// All registered versions of one operation.
pub(super) struct Group {
    pub(super) name: Arc<str>,
    /// The highest version's own, or the toolbox's: a call names no version.
    pub(super) authorizer: Authorizer,
    pub(super) description: ToolDescription,
    pub(super) reply: ReplyCheck,
    pub(super) highest: Version,
    pub(super) older: Vec<Version>,
}

/// One version: `name:vNUMBER`.
pub(super) struct Version {
    pub(super) number: u32,
    pub(super) arguments: CompiledArguments,
    pub(super) deadline: Duration,
    pub(super) tool: Arc<TransactionalTool>,
}

impl Group {
    pub(super) fn version(&self, number: u32) -> Option<&Version> {
        std::iter::once(&self.highest)
            .chain(&self.older)
            .find(|version| version.number == number)
    }
}
