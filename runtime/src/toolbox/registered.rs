//! Tools as `build()` compiles them.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    effect::transactional::TransactionalTool,
    request::{arguments::CompiledArguments, authorize::Authorizer},
};

/// All registered versions of one operation.
pub(super) struct Group {
    pub(super) name: Arc<str>,
    pub(super) authorizer: Authorizer,
    /// Ascending by number; never empty.
    older: Vec<Version>,
    highest: Version,
}

/// One version: `name:vNUMBER`.
pub(super) struct Version {
    pub(super) number: u32,
    pub(super) arguments: CompiledArguments,
    pub(super) deadline: Duration,
    pub(super) tool: Arc<TransactionalTool>,
}

impl Group {
    pub(super) fn highest(&self) -> &Version {
        &self.highest
    }

    pub(super) fn version(&self, number: u32) -> Option<&Version> {
        std::iter::once(&self.highest).chain(&self.older).find(|version| version.number == number)
    }
}
