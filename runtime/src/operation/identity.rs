//! What makes two calls one operation.

use std::{fmt, sync::Arc};

use crate::request::{key::IdempotencyKey, scope::Scope};

/// (scope, operation name, key). Everything in it is stored, and compared whole.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    /// The scope's text form.
    pub(crate) scope: Arc<str>,
    /// The operation's name, without its version.
    pub(crate) tool: Arc<str>,
    /// The caller's key.
    pub(crate) key: IdempotencyKey,
}

impl Identity {
    pub(crate) fn new(scope: &Scope, tool: &Arc<str>, key: IdempotencyKey) -> Self {
        Self {
            scope: Arc::clone(scope.text()),
            tool: Arc::clone(tool),
            key,
        }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("tool", &self.tool)
            .finish_non_exhaustive()
    }
}
