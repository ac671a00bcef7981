//! What makes two calls one operation.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{Arc, LazyLock},
};

use crate::request::{key::IdempotencyKey, scope::Scope};

/// Seeded anew in each process, so that nobody can choose keys whose hashes collide.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// (scope, operation name, key). Everything in it is stored, and compared whole.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Of the three, computed once: a call looks in several tables of this process.
    hash: u64,
    /// The scope's text form.
    pub(crate) scope: Arc<str>,
    /// The operation's name, without its version.
    pub(crate) tool: Arc<str>,
    /// The caller's key.
    pub(crate) key: IdempotencyKey,
}

impl Identity {
    pub(crate) fn new(scope: &Scope, tool: &Arc<str>, key: IdempotencyKey) -> Self {
        let scope = Arc::clone(scope.text());
        Self {
            hash: HASHER.hash_one((&*scope, &**tool, key.as_str())),
            scope,
            tool: Arc::clone(tool),
            key,
        }
    }

    /// For tables of this process alone.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("tool", &self.tool)
            .finish_non_exhaustive()
    }
}
