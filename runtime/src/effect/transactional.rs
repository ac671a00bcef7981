//! One call of a transactional tool, as a store's transaction runs it.

use std::{fmt, sync::Arc, time::Duration};

use serde_json::{Value, value::RawValue};

use crate::{
    effect::{external::outbox::Outbox, failure::Failure},
    finite::Unwritable,
    operation::{
        id::OperationId,
        identity::Identity,
        stored::{Receipt, Stored},
    },
    reading::Unreadable,
    reply::validate::ResultValidator,
    request::{
        arguments::InvalidArguments, arguments::fingerprint::Fingerprint, caller::Caller,
        registered::Registered,
    },
    store::StoreError,
    tool::{State, TransactionalEffect},
};

/// What one version of a transactional tool needs to run, compiled at `build()`.
#[derive(Debug)]
pub(crate) struct TransactionalTool {
    pub(crate) version: u32,
    pub(crate) contract: Arc<Registered>,
    pub(crate) retention: Duration,
    pub(crate) tombstone: Duration,
    pub(crate) max_result: usize,
    /// Whether the handler tells something outside the database.
    pub(crate) effects_outside: bool,
    pub(crate) effect: TransactionalEffect,
    pub(crate) result: ResultValidator,
}

/// One call: owned whole, since the caller may leave before it begins.
///
/// The handler may run twice, each time from a clean rollback, so nothing here is consumed.
pub(crate) struct TransactionalCall {
    pub(crate) identity: Identity,
    pub(crate) caller: Caller,
    /// What the call becomes if it is executed.
    pub(crate) operation_id: OperationId,
    pub(crate) tool: Arc<TransactionalTool>,
    pub(crate) arguments: Value,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) state: Arc<State>,
    /// Where the handler's `enqueue` finds external tools.
    pub(crate) outbox: Arc<Outbox>,
    /// When the budget ends, on the clock's monotonic axis.
    pub(crate) deadline: Duration,
    /// The caller's span; the handler runs in a child of it.
    pub(crate) span: tracing::Span,
}

/// Why a handler's run came to nothing. All of it is rolled back.
#[derive(Debug)]
pub(crate) enum RunError {
    /// The arguments' type refuses what its schema allows.
    InvalidArguments(InvalidArguments),
    /// The handler failed, or its result can't be retained.
    Failed(Failure),
}

/// What became of a [`TransactionalCall`].
#[derive(Debug)]
pub(crate) enum Executed {
    /// This call's effect and receipt are committed.
    Committed(Receipt),
    /// The identity was recorded already; nothing was executed.
    Found(Stored),
    /// The handler ran and was rolled back.
    RolledBack(RunError),
    /// The budget ended before the handler began; nothing was written.
    Busy,
    /// The budget ended while the handler ran; it was rolled back.
    DeadlineExceeded,
    /// The store failed; nothing was written.
    Storage(StoreError),
    /// The store failed at the commit, and whether it happened can't be established.
    Unknown(OperationId, StoreError),
}

impl Executed {
    /// The receipt that is recorded of the call, now or earlier.
    pub(crate) fn receipt(&self) -> Option<&Receipt> {
        match self {
            Self::Committed(receipt) | Self::Found(Stored::Receipt(receipt)) => Some(receipt),
            _ => None, // No other outcome carries one.
        }
    }
}

/// Without the arguments: a handler's `Tx` has this in its own `Debug`, and may be logged.
impl fmt::Debug for TransactionalCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionalCall")
            .field("identity", &self.identity)
            .field("version", &self.tool.version)
            .finish_non_exhaustive()
    }
}

impl TransactionalCall {
    /// Checks a handler's serialized result: the limit, then the schema.
    pub(crate) fn check_result(&self, result: &RawValue) -> Result<(), Failure> {
        self.tool.result.check_within(self.tool.max_result, result)
    }
}

impl RunError {
    /// The arguments' own type refused them.
    pub(crate) fn refused(unreadable: Unreadable) -> Self {
        Self::InvalidArguments(unreadable.into())
    }

    /// The result can't be written as JSON.
    pub(crate) fn unwritable(error: Unwritable) -> Self {
        Self::Failed(Failure::unwritable_result(error))
    }
}
