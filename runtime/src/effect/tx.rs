//! What a transactional handler writes through.

use std::{ops::Deref, sync::Arc, time::Duration};

use rusqlite::{CachedStatement, Connection, Params, Row, Statement};
use serde_json::{Value, value::RawValue};

use crate::{
    effect::{
        external::{attempt::Attempt, outbox::Enqueuer},
        failure::Failure,
        transactional::{RunError, TransactionalCall},
    },
    operation::id::OperationId,
    request::caller::Caller,
    store::sqlite::{Guard, OwnConnection, SqliteStore},
    tool::{
        Context, Effect, Handler, RunsOn, State, SyncContext, Tool, ToolArguments, ToolOutput,
        TransactionalEffect,
    },
};

/// The open transaction of one call: the first parameter of a transactional tool.
///
/// Everything written through it commits together with the call's receipt, or not at all.
/// It has the query methods of [`Transaction`], and knows who calls.
///
/// Only the runtime makes one. A tool may run twice for one call, each time from a clean
/// rollback: when a call failed that shared its transaction, unless the tool is declared with
/// `effects_outside = true`, and when the transaction itself was lost. So it should have no
/// effect but through this transaction, and do nothing slow: while it runs, no other call
/// writes.
#[derive(Debug)]
pub struct Tx {
    transaction: Transaction,
    pub(crate) call: Arc<TransactionalCall>,
}

/// An open transaction that commits and rolls back only when the runtime does.
///
/// The methods are rusqlite's. What would end the transaction or reach beyond it is
/// refused, and fails the call even if the error is swallowed: `BEGIN`, `COMMIT`,
/// `ROLLBACK`, `ATTACH`, `DETACH`, pragmas that change something, and the ledger's tables.
/// Savepoints are allowed, and temporary objects until the call ends.
#[derive(Debug)]
pub struct Transaction {
    connection: OwnConnection,
    guard: Arc<Guard>,
}

impl Tx {
    pub(crate) fn new(transaction: Transaction, call: Arc<TransactionalCall>) -> Self {
        Self { transaction, call }
    }

    /// The transaction goes on with another call.
    pub(crate) fn begin_call(&mut self, call: Arc<TransactionalCall>) {
        self.call = call;
    }

    pub(crate) fn into_transaction(self) -> Transaction {
        self.transaction
    }

    /// The caller's scope in the text form for the application's own tables.
    #[must_use]
    pub fn scope(&self) -> &str {
        &self.call.identity.scope
    }

    /// Who calls.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.call.caller
    }

    /// The operation that this call is to become.
    ///
    /// A retry after a rollback has another one, since nothing of this one was retained.
    #[must_use]
    pub fn operation_id(&self) -> OperationId {
        self.call.operation_id
    }

    /// Enqueues a call of the external tool `T`: it commits together with this call, and the
    /// worker has it carried out afterwards, under its own identity. A replay of this call
    /// enqueues nothing.
    ///
    /// The authorizer of `T`'s own version is asked now, for this caller; if the `key` belongs
    /// to another version, that one's as well. A `key` that is recorded for the same arguments
    /// is left as it is; the operation's id is returned in both cases.
    ///
    /// # Errors
    ///
    /// When `T` is not registered in the toolbox, an authorizer denies or can't tell, the arguments don't
    /// fit, or the key belongs to other arguments, is expired, or names an operation that has
    /// failed or was cancelled: nothing would be dispatched for it.
    pub fn enqueue<T: Tool<Context = Attempt>>(
        &self,
        key: &str,
        arguments: &impl serde::Serialize,
    ) -> Result<OperationId, Failure> {
        let declaration = T::declaration();
        let outbox = &self.call.outbox;
        let by = Enqueuer {
            caller: &self.call.caller,
            clock: &**self.transaction.guard.clock(),
            now: self.transaction.guard.time().now(),
            deadline: self.call.deadline,
        };
        let operation = (declaration.name, declaration.version);
        let mut enqueued = outbox.prepare(by, operation, key, arguments)?;
        let unreadable = enqueued.unreadable.take();
        crate::store::sqlite::enqueue(&self.transaction, &enqueued.new, unreadable, |recorded| {
            outbox.may_learn(by, &enqueued, recorded)
        })
    }

    /// What is left of the call's budget. A statement that runs past it is stopped.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.call
            .deadline
            .saturating_sub(self.transaction.guard.now())
    }
}

impl Deref for Tx {
    type Target = Transaction;

    fn deref(&self) -> &Transaction {
        &self.transaction
    }
}

impl Transaction {
    pub(crate) fn new(connection: OwnConnection, guard: Arc<Guard>) -> Self {
        Self { connection, guard }
    }

    /// Runs one statement and returns how many rows it changed.
    ///
    /// # Errors
    ///
    /// When SQLite refuses the statement, or it returns rows.
    pub fn execute<P: Params>(&self, sql: &str, params: P) -> rusqlite::Result<usize> {
        self.run(|connection| connection.prepare_cached(sql)?.execute(params))
    }

    /// Runs several statements without parameters, up to the first that fails.
    ///
    /// # Errors
    ///
    /// When SQLite refuses one of them.
    pub fn execute_batch(&self, sql: &str) -> rusqlite::Result<()> {
        self.run(|connection| connection.execute_batch(sql))
    }

    /// Runs a query and maps its first row.
    ///
    /// # Errors
    ///
    /// When SQLite refuses the query, when it has no row
    /// ([`QueryReturnedNoRows`](rusqlite::Error::QueryReturnedNoRows)), or what `map` returns.
    pub fn query_row<T, P, F>(&self, sql: &str, params: P, map: F) -> rusqlite::Result<T>
    where
        P: Params,
        F: FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    {
        self.run(|connection| connection.prepare_cached(sql)?.query_row(params, map))
    }

    /// Runs a query and maps its only row.
    ///
    /// # Errors
    ///
    /// As [`query_row`](Self::query_row), and when there is a second row
    /// ([`QueryReturnedMoreThanOneRow`](rusqlite::Error::QueryReturnedMoreThanOneRow)).
    pub fn query_one<T, P, F>(&self, sql: &str, params: P, map: F) -> rusqlite::Result<T>
    where
        P: Params,
        F: FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    {
        self.run(|connection| connection.prepare_cached(sql)?.query_one(params, map))
    }

    /// Runs a query and maps all its rows.
    ///
    /// # Errors
    ///
    /// When SQLite refuses the query, or what `map` returns.
    pub fn query_all<T, P, F>(&self, sql: &str, params: P, map: F) -> rusqlite::Result<Vec<T>>
    where
        P: Params,
        F: FnMut(&Row<'_>) -> rusqlite::Result<T>,
    {
        self.run(|connection| {
            connection
                .prepare_cached(sql)?
                .query_map(params, map)?
                .collect()
        })
    }

    /// Prepares a statement.
    ///
    /// # Errors
    ///
    /// When SQLite refuses the statement.
    pub fn prepare(&self, sql: &str) -> rusqlite::Result<Statement<'_>> {
        self.connection().prepare(sql)
    }

    /// Prepares a statement, or takes it from the connection's cache.
    ///
    /// The methods that take a statement's text use the cache as well.
    ///
    /// # Errors
    ///
    /// When SQLite refuses the statement.
    pub fn prepare_cached(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>> {
        self.connection().prepare_cached(sql)
    }

    /// The row id of this transaction's last insertion; zero before the first.
    #[must_use]
    pub fn last_insert_rowid(&self) -> i64 {
        self.connection().last_insert_rowid()
    }

    /// How many rows the last statement of this call changed; zero before the first, and
    /// after [`enqueue`](Tx::enqueue). SQL's `changes()` says the same.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.connection().changes()
    }

    /// Runs a piece of work on the connection, where a failpoint can hit it.
    pub(crate) fn run<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        #[cfg(feature = "failpoints")]
        if let Some(failpoints) = &self.guard.failpoints {
            return failpoints.around(self.connection(), work);
        }
        work(self.connection())
    }

    pub(crate) fn is_autocommit(&self) -> bool {
        self.connection().is_autocommit()
    }

    pub(crate) fn connection(&self) -> &Connection {
        self.connection.connection()
    }

    pub(crate) fn statements(&self) -> &OwnConnection {
        &self.connection
    }

    pub(crate) fn guard(&self) -> &Arc<Guard> {
        &self.guard
    }
}

/// A handler on [`Tx`] with its types erased.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct TxHandler(pub(crate) fn(&Tx, &State, &Value) -> Result<Box<RawValue>, RunError>);

impl Context for Tx {
    type Handler = TxHandler;
}

impl SyncContext for Tx {
    fn erase<T: Handler<Context = Self>>() -> TxHandler {
        TxHandler(|tx, state, arguments| {
            let arguments = T::Arguments::from_json(arguments).map_err(RunError::refused)?;
            let output = T::call(tx, state, arguments).map_err(RunError::Failed)?;
            output.to_json().map_err(RunError::unwritable)
        })
    }
}

impl RunsOn<SqliteStore> for Tx {
    fn effect(handler: TxHandler) -> Effect {
        Effect::Transactional(TransactionalEffect::Sqlite(handler))
    }
}
