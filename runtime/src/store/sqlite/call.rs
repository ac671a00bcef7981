//! One call inside the open transaction: look-up, handler, receipt.

use std::time::Duration;

use rusqlite::{ErrorCode, OptionalExtension};
use serde_json::value::RawValue;

use crate::{
    effect::{
        failure::Failure,
        transactional::{Executed, RunError},
        tx::{Transaction, Tx},
    },
    operation::{
        id::AttemptId,
        stored::{Receipt, Stored},
    },
    panics::{Panicked, caught},
    store::{
        StoreError,
        sqlite::{
            Core,
            connection::{is_busy, temporary_objects},
            ffi,
            guard::Denied,
            key::LedgerKey,
            own::Own,
            queue::CallJob,
            reentry::InHandler,
            register::gave_an_id,
            statements::LEDGER_OBJECTS,
            watch::Before,
            writer::{Memo, read_stored},
        },
    },
    tool::TransactionalEffect,
};

/// From how long on a handler is named in a warning: it holds everybody's transaction.
const SLOW_HANDLER: Duration = Duration::from_millis(250);

/// How a call ended inside the transaction.
#[derive(Debug)]
pub(super) enum End {
    /// Its effect and receipt are in the transaction.
    Sealed(Receipt),
    /// Its identity was recorded already.
    Found(Stored),
    /// It is undone, and the transaction as it was before.
    Undone(Executed),
    /// It is undone with the whole transaction, which nothing else was in.
    RolledBack(Executed),
    /// Its caller has left, or was answered.
    Skipped,
    /// The ledger is none that may be written to: the same for all calls.
    Refused(StoreError),
    /// It is to be undone, or what it left open would let a later one undo it, and nothing
    /// protects the calls beside it.
    Unprotected,
    /// Another process wrote meanwhile: nothing of the transaction can stay.
    Locked,
    /// The transaction is lost with everything in it. What to say of this call, unless it
    /// runs again.
    Lost(Executed),
}

/// How one call is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Undo {
    /// With the transaction, which nothing else is in.
    Transaction,
    /// By a savepoint around each call.
    Call,
    /// By repeating the transaction with savepoints: most calls are not undone, and a
    /// savepoint costs a fifth of a call. Not once a handler has made a savepoint: only the
    /// release of an outer one is sure to end it.
    Repeat,
}

/// What a transaction carries from call to call.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) undo: Undo,
    /// Whether the transaction has the write lock.
    pub(super) locked: bool,
    /// Until what is remembered is compared with the snapshot, which the first read takes:
    /// see [`Memo::confirm`].
    pub(super) unconfirmed: Option<Before>,
}

/// Runs one call. `tx` is the call's.
pub(super) fn run(
    core: &Core,
    memo: &mut Memo,
    tx: &mut Tx,
    job: &CallJob,
    progress: &mut Progress,
) -> End {
    if let Some(outcome) = job.ticket.expire(core.clock.monotonic()) {
        return job.end_early(outcome);
    }
    if !job.ticket.is_live() {
        return End::Skipped;
    }
    let mark = memo.mark();
    let looked = match look_confirmed(core, memo, tx, progress) {
        Ok(looked) => looked,
        Err(end) => return end,
    };
    let mut place = match looked {
        Ok(Ok((_, Some(stored)))) => return End::Found(stored),
        Ok(Ok((place, None))) => place,
        Ok(Err(unreadable)) => {
            return End::Undone(Executed::Storage(unreadable.before_look_up()));
        }
        Err(error) => return unread(tx, error),
    };
    if !progress.locked {
        if let Err(error) = tx.command(Own::Upgrade) {
            return failed(tx, error);
        }
        progress.locked = true;
    }
    if !place.is_covered {
        match memo.ensure_tool(tx, &tx.call.tool.contract) {
            Ok(Ok(tool)) => (place.tool, place.is_covered) = (Some(tool), true),
            Ok(Err(differs)) => return End::Undone(Executed::Storage(differs)),
            Err(error) => return failed(tx, error),
        }
    }
    if !job.ticket.begin() {
        return End::Skipped;
    }
    if progress.undo == Undo::Call
        && let Err(error) = tx.command(Own::Savepoint)
    {
        return failed(tx, error);
    }
    if let Err(error) = forget_changes(tx) {
        return failed(tx, error);
    }
    let outcome = handle(core, tx);
    let verdict = inspect(memo, tx, outcome);
    if is_lost(tx) {
        return End::Lost(match verdict {
            Err(refused) => refused,
            Ok(_) => refusal(
                "transaction_lost",
                "a statement of the tool made SQLite roll the whole transaction back; use \
                 `ABORT` in place of `ROLLBACK` as its conflict resolution",
            ),
        });
    }
    let result = match verdict {
        Ok(result) => result,
        Err(outcome) => return undo(memo, tx, progress, mark, outcome),
    };
    if progress.undo == Undo::Repeat && tx.guard().made_savepoint() {
        return End::Unprotected;
    }
    let receipt = match record(core, memo, tx, &place, result) {
        Ok(receipt) => receipt,
        Err(error) => return failed(tx, error),
    };
    if !job.ticket.seal() {
        return undo(memo, tx, progress, mark, Executed::DeadlineExceeded);
    }
    if progress.undo == Undo::Call
        && let Err(error) = tx.command(Own::Release)
    {
        return failed(tx, error);
    }
    memo.kept_a_call();
    End::Sealed(receipt)
}

impl CallJob {
    fn end_early(&self, outcome: Executed) -> End {
        self.ticket.answer(super::ticket::Answer::Executed(outcome));
        End::Skipped
    }
}

/// The call's identity as the ledger has it.
struct Place<'a> {
    key: LedgerKey<'a>,
    /// `None` if no operation was ever recorded in the scope.
    scope: Option<i64>,
    /// `None` if the ledger hasn't the tool.
    tool: Option<i64>,
    /// Else the tool's contract is to be registered again.
    is_covered: bool,
}

impl<'a> Place<'a> {
    fn of(memo: &mut Memo, tx: &'a Tx) -> rusqlite::Result<Result<Self, StoreError>> {
        let identity = &tx.call.identity;
        let scope = memo.find_scope(tx, &identity.scope)?;
        Ok(memo
            .find_tool(tx, &tx.call.tool.contract)?
            .map(|located| Self {
                key: LedgerKey::from(&identity.key),
                scope,
                tool: located.tool,
                is_covered: located.is_covered,
            }))
    }
}

/// Where a call's identity is to be, and what is there.
type Looked<'a> = rusqlite::Result<Result<(Place<'a>, Option<Stored>), StoreError>>;

/// Looks by what is remembered; again without, if that doesn't hold in this snapshot.
fn look_confirmed<'a>(
    core: &Core,
    memo: &mut Memo,
    tx: &'a Tx,
    progress: &mut Progress,
) -> Result<Looked<'a>, End> {
    let looked = look(memo, tx);
    let Some(before) = progress.unconfirmed else {
        return Ok(looked);
    };
    if let Err(error) = &looked
        && is_busy(error)
    {
        return Ok(looked);
    }
    match memo.confirm(core, tx, before) {
        Ok(Ok(holds)) => {
            progress.unconfirmed = None;
            Ok(if holds { looked } else { look(memo, tx) })
        }
        Ok(Err(refused)) => Err(End::Refused(refused.before_look_up())),
        Err(error) => Err(unread(tx, error)),
    }
}

fn look<'a>(memo: &mut Memo, tx: &'a Tx) -> Looked<'a> {
    let place = match Place::of(memo, tx)? {
        Ok(place) => place,
        Err(error) => return Ok(Err(error)),
    };
    let (Some(scope), Some(tool)) = (place.scope, place.tool) else {
        return Ok(Ok((place, None)));
    };
    let found = tx.own(Own::Find, |find| {
        find.query_row((place.key, scope, tool), read_stored)
            .optional()
    })?;
    Ok(found.transpose().map(|found| (place, found)))
}

/// Runs the handler, restricted, in the caller's span; a panic is a failure.
fn handle(core: &Core, tx: &Tx) -> Result<Box<RawValue>, RunError> {
    let call = &tx.call;
    let TransactionalEffect::Sqlite(handler) = &call.tool.effect;
    let span = tracing::info_span!(
        parent: &call.span,
        "attempt",
        tool = %call.identity.tool,
        operation_id = %tx.operation_id(),
        attempt_id = %AttemptId::generate(),
    );
    let began = core.clock.monotonic();
    let outcome = span.in_scope(|| {
        restricted(tx, call.deadline, || {
            (handler.0)(tx, &call.state, &call.arguments)
        })
    });
    let took = core.clock.monotonic().saturating_sub(began);
    if SLOW_HANDLER <= took {
        span.in_scope(|| {
            tracing::warn!(
                tool = %call.identity.tool,
                took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
                "a handler held the write transaction long; move slow work out of it"
            );
        });
    }
    outcome.unwrap_or_else(|Panicked| {
        Err(RunError::Failed(Failure::new(
            "handler_panicked",
            "the tool failed unexpectedly; nothing was written",
        )))
    })
}

/// Runs application code inside the transaction, with everything refused that would end
/// it or reach beyond it.
pub(super) fn restricted<T>(
    transaction: &Transaction,
    deadline: Duration,
    run: impl FnOnce() -> T,
) -> Result<T, Panicked> {
    let guard = transaction.guard();
    ffi::set_last_insert(transaction.connection(), 0);
    guard.enter(deadline);
    let outcome = {
        let _inside = InHandler::enter();
        caught(run)
    };
    guard.leave();
    outcome
}

/// Has `changes()` start at zero, so that application code doesn't read what another's
/// statement, or one of the runtime's own, has changed. The write lock is held.
///
/// SQLite has no other way to set it than a statement that changes nothing.
pub(super) fn forget_changes(transaction: &Transaction) -> rusqlite::Result<()> {
    if transaction.changes() == 0 {
        return Ok(());
    }
    transaction.command(Own::Upgrade)
}

/// Whether SQLite has rolled the transaction back, or the handler began one of its own
/// after that.
pub(super) fn is_lost(transaction: &Transaction) -> bool {
    transaction.is_autocommit() || transaction.guard().rolled_back()
}

/// What the handler's run comes to, by its outcome and by what it left behind.
fn inspect(
    memo: &Memo,
    tx: &Tx,
    outcome: Result<Box<RawValue>, RunError>,
) -> Result<Box<RawValue>, Executed> {
    let left_behind = tidy(memo, tx);
    if tx.call.deadline <= tx.guard().now() {
        return Err(Executed::DeadlineExceeded);
    }
    if let Some(denied) = tx.guard().denied() {
        return Err(failure(denied.failure()));
    }
    let result = outcome.map_err(Executed::RolledBack)?;
    left_behind?;
    tx.call.check_result(&result).map_err(failure)?;
    Ok(result)
}

/// Leaves the connection as the application code found it, but for what it wrote; an error
/// says why that can't be committed.
pub(super) fn tidy(memo: &Memo, transaction: &Transaction) -> Result<(), Executed> {
    let connection = transaction.connection();
    if connection.is_busy() {
        ffi::reset_statements(connection);
        return Err(refusal(
            "statement_left_open",
            "the tool left a statement half-way; drop its rows before it returns",
        ));
    }
    if is_lost(transaction) {
        return Ok(()); // There is nothing to look at.
    }
    if ffi::has_deferred_violations(connection) {
        return Err(refusal(
            "constraint_violated",
            "the tool's writes violate a foreign key of the database",
        ));
    }
    if transaction.guard().changed_schema() {
        let objects: i64 = connection
            .query_row(LEDGER_OBJECTS, [], |row| row.get(0))
            .map_err(|error| Executed::Storage(unreadable(error)))?;
        if objects != memo.ledger_objects {
            return Err(failure(Denied::Ledger.failure()));
        }
    }
    if transaction.guard().made_temporary() {
        drop_temporary(memo, connection).map_err(|error| Executed::Storage(unreadable(error)))?;
    }
    Ok(())
}

fn drop_temporary(memo: &Memo, connection: &rusqlite::Connection) -> rusqlite::Result<()> {
    for object in temporary_objects(connection)? {
        if memo.temporary.contains(&object) {
            continue;
        }
        let (kind, name) = object;
        let name = name.replace('"', "\"\"");
        connection.execute_batch(&format!("DROP {kind} IF EXISTS temp.\"{name}\""))?;
    }
    Ok(())
}

fn record(
    core: &Core,
    memo: &mut Memo,
    tx: &Tx,
    place: &Place<'_>,
    result: Box<RawValue>,
) -> rusqlite::Result<Receipt> {
    let call = &tx.call;
    let scope = match place.scope {
        Some(scope) => scope,
        None => record_scope(memo, tx)?,
    };
    let expires_at = core.time.now().plus(call.tool.retention);
    let forget_at = expires_at.plus(call.tool.tombstone);
    tx.own(Own::InsertReceipt, |insert| {
        insert.execute((
            tx.operation_id().as_bytes(),
            place.key,
            scope,
            place.tool,
            call.tool.version,
            call.fingerprint.as_bytes(),
            expires_at.0,
            forget_at.0,
            result.get(),
        ))
    })?;
    Ok(Receipt {
        operation_id: tx.operation_id(),
        version: call.tool.version,
        fingerprint: call.fingerprint,
        result,
        expires_at,
    })
}

fn record_scope(memo: &mut Memo, tx: &Tx) -> rusqlite::Result<i64> {
    let scope = &tx.call.identity.scope;
    // What the handler enqueued may have brought it.
    if let Some(id) = memo.find_scope(tx, scope)? {
        return Ok(id);
    }
    let rows = tx.own(Own::InsertScope, |insert| insert.execute([&**scope]))?;
    gave_an_id(rows)?;
    let id = tx.last_insert_rowid();
    memo.wrote_scope(scope, id);
    Ok(id)
}

/// Takes back what one call wrote.
fn undo(memo: &mut Memo, tx: &Tx, progress: &Progress, mark: usize, outcome: Executed) -> End {
    memo.undid_a_call();
    memo.forget_since(mark);
    let undone = match progress.undo {
        Undo::Repeat => return End::Unprotected,
        Undo::Transaction => tx.command(Own::Rollback),
        Undo::Call => tx
            .command(Own::RollbackTo)
            .and_then(|()| tx.command(Own::Release)),
    };
    match undone {
        Ok(()) if progress.undo == Undo::Transaction => End::RolledBack(outcome),
        Ok(()) => End::Undone(outcome),
        Err(_) => End::Lost(outcome), // The whole transaction is rolled back next.
    }
}

/// One of the runtime's own statements failed: nothing of the transaction is trusted.
fn failed(tx: &Tx, error: rusqlite::Error) -> End {
    if is_busy(&error) && !is_lost(tx) {
        return End::Locked;
    }
    End::Lost(Executed::Storage(unreadable(error)))
}

/// The look-up failed, so nothing is known of an earlier call with the key.
fn unread(tx: &Tx, error: rusqlite::Error) -> End {
    match failed(tx, error) {
        End::Lost(Executed::Storage(error)) => End::Lost(Executed::Storage(error.before_look_up())),
        end => end,
    }
}

/// What to say of a database error.
pub(super) fn unreadable(error: rusqlite::Error) -> StoreError {
    let told = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            StoreError::new("the disk is full; free some space, then ask again").retryable()
        }
        Some(ErrorCode::SystemIoFailure) => {
            StoreError::new("the disk failed; check it, then ask again").retryable()
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::new("the database is locked by another process; ask again").retryable()
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::new("the database file is damaged; restore it from a backup")
        }
        Some(ErrorCode::ReadOnly) => {
            StoreError::new("the database file can't be written; check its permissions")
        }
        _ => StoreError::new("the ledger can't be read or written"), // The source tells why.
    };
    told.caused_by(error)
}

fn failure(failure: Failure) -> Executed {
    Executed::RolledBack(RunError::Failed(failure))
}

fn refusal(code: &'static str, message: &'static str) -> Executed {
    failure(Failure::new(code, message))
}
