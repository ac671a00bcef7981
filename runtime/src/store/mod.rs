//! Where operations are kept. A store persists what the core decides; it decides nothing.

use std::{error::Error, fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use crate::{
    clock::{Clock, Moment, Timestamp},
    effect::transactional::{Executed, TransactionalCall},
    operation::{
        id::OperationId,
        identity::Identity,
        record::{NewOperation, Record},
        state::Refusal,
        stored::Stored,
    },
    request::{
        contract::Contract,
        registered::{CheckContract, Registered},
    },
};

#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;

/// A place that keeps operations: [`SqliteStore`](crate::SqliteStore).
///
/// Sealed: the runtime and its stores change together.
pub trait Store: Clone + Send + Sync + 'static {
    /// The store as the toolbox drives it.
    #[doc(hidden)]
    fn handle(&self) -> StoreHandle;
}

/// A store with its type erased.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct StoreHandle(pub(crate) Arc<dyn Backend>);

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How a caller waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// In its task: the future may be pending, and may be dropped.
    Async,
    /// In its thread: the future is ready when it is first polled.
    Blocking,
}

/// A store as the toolbox drives it.
pub(crate) trait Backend: ExternalBackend + fmt::Debug + Send + Sync {
    /// The clock that the store was opened with.
    fn clock(&self) -> &Arc<dyn Clock>;

    /// The ledger's own time, which everything that it keeps is stamped with.
    fn now(&self) -> Timestamp;

    /// The ledger's own time and the wall clock's.
    fn moment(&self) -> Moment;

    /// Records the contracts in one transaction and returns them in order. A store registers
    /// one again that its ledger has lost.
    ///
    /// `check` is asked about each contract that the ledger knows already; its error leaves
    /// the ledger as it was.
    fn register(
        &self,
        contracts: Vec<Contract>,
        check: CheckContract,
    ) -> Result<Vec<Arc<Registered>>, crate::BuildError>;

    /// Refuses a call that this thread makes from inside a handler: it would wait for itself.
    fn refuse_reentry(&self) -> Result<(), StoreError>;

    /// Whether a retry is likely, from memory alone: `false` proves nothing.
    fn may_know(&self, identity: &Identity) -> bool;

    /// What is recorded of `identity`, without the write lock. `None` proves nothing
    /// about the next moment.
    fn find<'a>(
        &'a self,
        identity: &'a Identity,
        wait: Wait,
    ) -> BoxFuture<'a, Result<Option<Stored>, StoreError>>;

    /// Runs a call: look-up, handler, receipt and commit in one transaction.
    fn execute(&self, call: TransactionalCall, wait: Wait) -> BoxFuture<'_, Executed>;
}

/// A decision about an operation: changes its record, or says why it doesn't.
///
/// It may be asked again after a commit whose answer was lost, and finds then what it did.
pub(crate) type Decide = Box<dyn Fn(&mut Record) -> Result<(), Refusal> + Send + Sync>;

/// What became of a decision: the record after it, or why it changed nothing and the record
/// as it is.
pub(crate) type Decided = Result<Record, (Refusal, Record)>;

/// An operation that a worker has to look at.
#[derive(Debug, Clone)]
pub(crate) struct Due {
    pub(crate) operation_id: OperationId,
    pub(crate) tool: Box<str>,
    pub(crate) version: u32,
    pub(crate) place: DuePlace,
}

/// A place in the order in which operations are due: the time, and the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DuePlace(pub(crate) Timestamp, pub(crate) i64);

/// A store of external operations. Each method is one short transaction.
pub(crate) trait ExternalBackend {
    /// Records an operation, or finds what is recorded of its identity.
    fn accept(
        &self,
        new: NewOperation,
        deadline: Duration,
    ) -> BoxFuture<'_, Result<Option<Stored>, WriteError>>;

    /// The record of an external operation, without the write lock.
    fn load(&self, id: OperationId) -> BoxFuture<'_, Result<Option<Record>, StoreError>>;

    /// Up to `limit` operations that a worker has to look at, longest overdue first, from
    /// behind a place on, without the write lock.
    fn due(
        &self,
        now: Timestamp,
        after: Option<DuePlace>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Due>, StoreError>>;

    /// Reads a record, has it decided upon, and writes what was decided, in one
    /// transaction. `None` if there is no such operation.
    fn decide(
        &self,
        id: OperationId,
        decide: Decide,
    ) -> BoxFuture<'_, Result<Option<Decided>, WriteError>>;
}

/// What may be expected of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prospect {
    /// It stays until somebody acts.
    Stays,
    /// It may pass by itself.
    MayPass,
    /// Nothing failed: the store had no time, and wrote nothing.
    Busy,
}

/// Why a write has not happened, or may have.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// Nothing was written, and nothing will be.
    Nothing(StoreError),
    /// It failed at the commit, and whether that happened can't be established.
    Unknown(StoreError),
}

/// What went wrong in a store. The source stays on the server.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct StoreError {
    /// Without a value of a caller: it is logged.
    pub(crate) what: &'static str,
    pub(crate) prospect: Prospect,
    /// The ledger could not be read, so nothing is known of what it holds of the call.
    pub(crate) unread: bool,
    #[source]
    pub(crate) source: Option<Box<dyn Error + Send + Sync>>,
}

impl StoreError {
    /// A failure that stays until somebody acts.
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            what,
            prospect: Prospect::Stays,
            unread: false,
            source: None,
        }
    }

    /// Says that the cause may pass by itself.
    pub(crate) fn retryable(mut self) -> Self {
        self.prospect = Prospect::MayPass;
        self
    }

    /// Says that nothing failed but the time to wait for one's turn.
    pub(crate) fn busy(mut self) -> Self {
        self.prospect = Prospect::Busy;
        self
    }

    /// Says that it came before anything was known of an earlier call with the key.
    pub(crate) fn before_look_up(mut self) -> Self {
        self.unread = true;
        self
    }

    /// Keeps the cause.
    pub(crate) fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}
