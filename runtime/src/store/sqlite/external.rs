//! External operations in the ledger: reading a record, and writing what was decided of it.
//!
//! The statements are prepared anew each time: a handler that caches one of the same text
//! then never gets one that was prepared without its restrictions.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, named_params};
use serde_json::value::RawValue;

use crate::{
    clock::Timestamp,
    effect::{failure::Failure, tx::Transaction},
    operation::{
        id::{AttemptId, OperationId},
        identity::Identity,
        record::{
            AttemptOutcome, AttemptRecord, Called, Ends, Lease, NewOperation, Record, RecordedError,
        },
        state::{Operation, Origin, State},
        stored::Stored,
    },
    request::{arguments::fingerprint::Fingerprint, tags::Tags},
    store::{
        Due, DuePlace, StoreError,
        sqlite::{
            call::{forget_changes, unreadable},
            ffi,
            key::LedgerKey,
            provider_key::provider_key,
            register,
            statements::INSERT_SCOPE,
            writer::read_stored,
        },
    },
};

/// When an operation ends that has not ended: after all that is ever pruned.
const NEVER: i64 = i64::MAX;

const FIND_IDENTITY: &str = "SELECT operation_id, version, fingerprint, expires_at, result \
     FROM idempotent_receipts WHERE key = ?1 \
     AND tool = (SELECT id FROM idempotent_tools WHERE name = ?3) \
     AND scope = (SELECT id FROM idempotent_scopes WHERE scope = ?2)";

/// The unique index of the identity refuses a second operation of one key.
const INSERT_OPERATION: &str = "INSERT INTO idempotent_receipts \
     (operation_id, key, scope, tool, version, fingerprint, expires_at, forget_at, result) \
     VALUES (:id, :key, (SELECT id FROM idempotent_scopes WHERE scope = :scope), \
     (SELECT id FROM idempotent_tools WHERE name = :tool), \
     :version, :fingerprint, :expires_at, :forget_at, NULL)";

const SECRET: &str = "SELECT secret FROM idempotent_secret";

const INSERT_EXTERNAL: &str = "INSERT INTO idempotent_external (seq, operation_id, state, \
     origin, cancel, attempts, latest_at, run_until, due_at, checks, request, tags, \
     provider_key) VALUES (:seq, :id, :state, :origin, 0, 0, :now, :run_until, :due_at, 0, \
     :request, :tags, :provider_key)";

const LOAD: &str = "SELECT e.seq, s.scope, t.name, o.version, o.fingerprint, o.expires_at, \
     o.forget_at, o.result, e.state, e.origin, e.cancel, e.attempts, e.not_before, \
     e.latest_at, e.lease_owner, e.lease_began, e.lease_until, e.run_until, e.due_at, e.checks, \
     e.error_code, e.error_message, e.resolved_by, e.resolved_why, e.request, e.tags, \
     e.provider_key, (SELECT schema_version FROM pragma_schema_version) AS era \
     FROM idempotent_external AS e \
     JOIN idempotent_receipts AS o ON o.seq = e.seq AND o.operation_id = e.operation_id \
     JOIN idempotent_scopes AS s ON s.id = o.scope \
     JOIN idempotent_tools AS t ON t.id = o.tool \
     WHERE e.operation_id = ?1";

const LOAD_ATTEMPTS: &str = "SELECT number, attempt_id, started_at, outcome, in_doubt, \
     coalesce(started_wall, started_at), called \
     FROM idempotent_attempts WHERE seq = ?1 ORDER BY number";

/// Fenced by state and attempts, though it runs in the transaction that read them.
const SAVE_EXTERNAL: &str = "UPDATE idempotent_external SET state = :state, cancel = :cancel, \
     attempts = :attempts, not_before = :not_before, latest_at = :latest_at, \
     lease_owner = :lease_owner, lease_began = :lease_began, lease_until = :lease_until, \
     run_until = :run_until, due_at = :due_at, checks = :checks, error_code = :error_code, \
     error_message = :error_message, resolved_by = :resolved_by, resolved_why = :resolved_why, \
     request = :request \
     WHERE operation_id = :id AND state = :old_state AND attempts = :old_attempts";

const SAVE_OPERATION: &str = "UPDATE idempotent_receipts \
     SET result = ?2, expires_at = ?3, forget_at = ?4 \
     WHERE seq = (SELECT seq FROM idempotent_external WHERE operation_id = ?1)";

const SAVE_ATTEMPT: &str = "INSERT INTO idempotent_attempts \
     (seq, number, attempt_id, started_at, started_wall, outcome, in_doubt, called) \
     VALUES ((SELECT seq FROM idempotent_external WHERE operation_id = ?1), ?2, ?3, ?4, ?5, ?6, \
     ?7, ?8) ON CONFLICT (seq, number) DO UPDATE SET outcome = excluded.outcome, \
     in_doubt = excluded.in_doubt, called = excluded.called";

const DUE: &str = "SELECT e.operation_id, e.due_at, e.seq, t.name, o.version \
     FROM idempotent_external AS e \
     JOIN idempotent_receipts AS o ON o.seq = e.seq AND o.operation_id = e.operation_id \
     JOIN idempotent_tools AS t ON t.id = o.tool \
     WHERE e.due_at IS NOT NULL AND e.due_at <= ?1 AND (e.due_at, e.seq) > (?2, ?3) \
     ORDER BY e.due_at, e.seq LIMIT ?4";

/// What is left of a pruned operation is its tombstone; of a deleted one, nothing.
pub(super) const DROP_EXTERNAL: [&str; 2] = [
    "DELETE FROM idempotent_external WHERE seq = ?1",
    "DELETE FROM idempotent_attempts WHERE seq = ?1",
];

/// Records an operation, or finds what is recorded of its identity. The write lock is held,
/// and the ledger has the tool's contract.
pub(super) fn accept(
    connection: &Connection,
    new: &NewOperation,
) -> Result<Option<Stored>, StoreError> {
    if let Some(found) = find(connection, &new.identity)? {
        return Ok(Some(found));
    }
    insert(connection, new).map_err(unreadable)?;
    Ok(None)
}

/// Records what a handler enqueues, in the handler's own transaction.
///
/// `refused` is what the tool's own type says of the arguments: it keeps them from being
/// recorded, and says nothing of what is recorded already. `may_learn` says whether the
/// caller may be told of an operation of the recorded version.
pub(crate) fn enqueue(
    transaction: &Transaction,
    new: &NewOperation,
    refused: Option<Failure>,
    may_learn: impl FnOnce(u32) -> Result<(), Failure>,
) -> Result<OperationId, Failure> {
    let connection = transaction.connection();
    let rowid = connection.last_insert_rowid();
    let found = transaction.guard().outside(|| {
        // A handler's: what it registers may be rolled back, so it is not remembered.
        if new
            .contract
            .tool(transaction.guard().generation())
            .is_none()
        {
            register::ensure(transaction, &new.contract)
                .map_err(|refused| refused.again().unwrap_or_else(unreadable))?;
        }
        let found = match &refused {
            None => accept(connection, new)?,
            Some(_) => find(connection, &new.identity)?,
        };
        forget_changes(transaction).map_err(unreadable)?;
        Ok(match found {
            None => Found::Nothing,
            Some(Stored::Tombstone(version)) => Found::Tombstone(version),
            Some(Stored::Receipt(receipt)) => Found::Known(Known {
                operation_id: receipt.operation_id,
                version: receipt.version,
                has_expired: receipt.expires_at <= new.accepted_at,
                is_same: receipt.version == new.version
                    && receipt.fingerprint.is_of(&new.fingerprint),
                ended_without_effect: false,
            }),
            Some(Stored::External(id)) => match load(connection, id)? {
                Some(record) => Found::Known(Known::of(&record, new)),
                None => Found::Tombstone(new.version), // It was pruned just now.
            },
        })
    });
    ffi::set_last_insert(connection, rowid);
    let tool = &new.identity.tool;
    let known = match found {
        Ok(Found::Nothing) => return refused.map_or(Ok(new.operation_id), Err),
        Ok(Found::Tombstone(version)) => {
            may_learn(version)?;
            return Err(expired(tool));
        }
        Ok(Found::Known(known)) => known,
        Err(error) => {
            let failure = Failure::new("database_error", "the ledger can't be read or written");
            let error: StoreError = error;
            return Err(failure.with_source(error));
        }
    };
    may_learn(known.version)?;
    if known.has_expired {
        return Err(expired(tool));
    }
    if !known.is_same {
        return Err(Failure::new(
            "enqueue_conflict",
            format!("the key was used before for another call of `{tool}`"),
        ));
    }
    // The worker takes up what was enqueued, not what has ended.
    if known.ended_without_effect {
        return Err(Failure::new(
            "operation_ended",
            format!(
                "the key was used before for a call of `{tool}` that ended without effect; a new \
                 attempt is a new action with a new key"
            ),
        ));
    }
    Ok(known.operation_id)
}

fn expired(tool: &str) -> Failure {
    Failure::new(
        "key_expired",
        format!("the key was used for an earlier call of `{tool}`, which is no longer kept"),
    )
}

/// What is recorded under a key that is enqueued.
enum Found {
    Nothing,
    Known(Known),
    Tombstone(u32),
}

/// What is known of an operation whose key is enqueued again.
struct Known {
    operation_id: OperationId,
    version: u32,
    has_expired: bool,
    is_same: bool,
    ended_without_effect: bool,
}

impl Known {
    fn of(record: &Record, new: &NewOperation) -> Self {
        Self {
            operation_id: record.operation_id,
            version: record.version,
            has_expired: record
                .ends
                .is_some_and(|ends| ends.expires_at <= new.accepted_at),
            is_same: record.version == new.version && record.fingerprint.is_of(&new.fingerprint),
            ended_without_effect: matches!(
                record.operation.state,
                State::Failed(_) | State::Cancelled
            ),
        }
    }
}

fn find(connection: &Connection, identity: &Identity) -> Result<Option<Stored>, StoreError> {
    connection
        .query_row(
            FIND_IDENTITY,
            (
                LedgerKey::from(&identity.key),
                &*identity.scope,
                &*identity.tool,
            ),
            read_stored,
        )
        .optional()
        .map_err(unreadable)?
        .transpose()
}

fn insert(connection: &Connection, new: &NewOperation) -> rusqlite::Result<()> {
    let identity = &new.identity;
    let secret: [u8; 32] = connection.query_row(SECRET, [], |row| row.get(0))?;
    connection.execute(INSERT_SCOPE, [&*identity.scope])?;
    connection.execute(
        INSERT_OPERATION,
        named_params! {
            ":id": new.operation_id.as_bytes(),
            ":key": LedgerKey::from(&identity.key),
            ":scope": &*identity.scope,
            ":tool": &*identity.tool,
            ":version": new.version,
            ":fingerprint": new.fingerprint.as_bytes(),
            ":expires_at": new.ends.expires_at.0,
            ":forget_at": new.ends.forget_at.0,
        },
    )?;
    let seq = connection.last_insert_rowid();
    // A receipt that was deleted from outside may have left them behind, under its number.
    for sql in DROP_EXTERNAL {
        connection.execute(sql, [seq])?;
    }
    connection.execute(
        INSERT_EXTERNAL,
        named_params! {
            ":seq": seq,
            ":id": new.operation_id.as_bytes(),
            ":state": new.operation.state.as_str(),
            ":origin": new.operation.origin.as_str(),
            ":now": new.accepted_at.0,
            ":run_until": new.run_until.0,
            ":due_at": new.due_at.map(|at| at.0),
            ":request": &*new.request,
            ":provider_key": provider_key(&secret, identity),
            ":tags": new.tags.to_json(),
        },
    )?;
    Ok(())
}

/// The record of an external operation.
pub(super) fn load(
    connection: &Connection,
    operation_id: OperationId,
) -> Result<Option<Record>, StoreError> {
    let loaded = connection
        .prepare(LOAD)
        .and_then(|mut statement| {
            statement
                .query_row([operation_id.as_bytes()], |row| {
                    Ok((row.get::<_, i64>(0)?, read_record(row, operation_id)?))
                })
                .optional()
        })
        .map_err(unreadable)?;
    let Some((seq, record)) = loaded else {
        return Ok(None);
    };
    let mut record = record?;
    let rows: Vec<_> = connection
        .prepare(LOAD_ATTEMPTS)
        .and_then(|mut statement| statement.query_map([seq], read_attempt)?.collect())
        .map_err(unreadable)?;
    for row in rows {
        let (attempt, in_doubt) = row?;
        if in_doubt {
            record.operation.in_doubt.insert(attempt.number);
        }
        record.attempts.push(attempt);
    }
    Ok(Some(record))
}

fn read_record(row: &Row<'_>, id: OperationId) -> rusqlite::Result<Result<Record, StoreError>> {
    let time = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(Timestamp));
    let state = State::from_name(row.get_ref(8)?.as_str()?);
    let origin = Origin::from_name(row.get_ref(9)?.as_str()?);
    let fingerprint = Fingerprint::from_stored(row.get_ref(4)?.as_blob()?);
    let result: Option<String> = row.get(7)?;
    let (Some(state), Some(origin), Ok(fingerprint)) = (state, origin, fingerprint) else {
        return Ok(Err(StoreError::new(
            "an operation is recorded in a form that is not known; open the ledger with the \
             version of idempotent-tool that wrote it",
        )));
    };
    let Ok(result) = result.map(RawValue::from_string).transpose() else {
        // The parser's error may quote the result.
        return Ok(Err(not_json()));
    };
    let tags: Option<String> = row.get(25)?;
    // What can't be read is not known: an authorizer denies then.
    let tags = tags.as_deref().and_then(Tags::from_json);
    let lease = match (row.get(14)?, time(15)?, time(16)?) {
        (Some(owner), Some(began), Some(until)) => Some(Lease {
            owner,
            began,
            until,
        }),
        _ => None, // The three are written together.
    };
    let error = match (row.get(20)?, row.get(21)?) {
        (Some(code), Some(message)) => Some(RecordedError { code, message }),
        _ => None, // The two are written together.
    };
    let (expires_at, forget_at): (i64, i64) = (row.get(5)?, row.get(6)?);
    Ok(Ok(Record {
        operation_id: id,
        era: row.get("era")?,
        scope: Arc::from(row.get_ref(1)?.as_str()?),
        tool: Arc::from(row.get_ref(2)?.as_str()?),
        version: row.get(3)?,
        fingerprint,
        operation: Operation {
            origin,
            state,
            attempts: row.get(11)?,
            in_doubt: std::collections::BTreeSet::new(),
            cancel: row.get(10)?,
        },
        request: row.get(24)?,
        tags,
        provider_key: row.get(26)?,
        not_before: time(12)?,
        latest_at: Timestamp(row.get(13)?),
        lease,
        run_until: Timestamp(row.get(17)?),
        due_at: time(18)?,
        checks: row.get(19)?,
        attempts: Vec::new(),
        result,
        error,
        resolved: row
            .get::<_, Option<Box<str>>>(22)?
            .zip(row.get::<_, Option<Box<str>>>(23)?),
        ends: (expires_at != NEVER).then_some(Ends {
            expires_at: Timestamp(expires_at),
            forget_at: Timestamp(forget_at),
        }),
    }))
}

fn read_attempt(row: &Row<'_>) -> rusqlite::Result<Result<(AttemptRecord, bool), StoreError>> {
    let outcome = AttemptOutcome::from_name(row.get_ref(3)?.as_str()?);
    let called = Called::from_number(row.get(6)?);
    let (Some(outcome), Some(called)) = (outcome, called) else {
        return Ok(Err(StoreError::new(
            "an attempt is recorded in a form that is not known; open the ledger with the \
             version of idempotent-tool that wrote it",
        )));
    };
    let attempt = AttemptRecord {
        number: row.get(0)?,
        attempt_id: AttemptId::from_bytes(row.get(1)?),
        started_at: Timestamp(row.get(2)?),
        started_wall: Timestamp(row.get(5)?),
        outcome,
        called,
    };
    Ok(Ok((attempt, row.get(4)?)))
}

fn not_json() -> StoreError {
    StoreError::new("a receipt's result is not JSON; the ledger was changed from outside")
}

/// Writes what has changed from `old` to `new`. The write lock is held since `old` was read.
pub(super) fn save(connection: &Connection, old: &Record, new: &Record) -> Result<(), StoreError> {
    let changed = connection
        .execute(
            SAVE_EXTERNAL,
            named_params! {
                ":id": new.operation_id.as_bytes(),
                ":state": new.operation.state.as_str(),
                ":cancel": new.operation.cancel,
                ":attempts": new.operation.attempts,
                ":not_before": new.not_before.map(|at| at.0),
                ":latest_at": new.latest_at.0,
                ":lease_owner": new.lease.map(|lease| lease.owner),
                ":lease_began": new.lease.map(|lease| lease.began.0),
                ":lease_until": new.lease.map(|lease| lease.until.0),
                ":run_until": new.run_until.0,
                ":due_at": new.due_at.map(|at| at.0),
                ":checks": new.checks,
                ":error_code": new.error.as_ref().map(|error| &*error.code),
                ":error_message": new.error.as_ref().map(|error| &*error.message),
                ":resolved_by": new.resolved.as_ref().map(|(by, _)| &**by),
                ":resolved_why": new.resolved.as_ref().map(|(_, why)| &**why),
                ":request": new.request.as_deref(),
                ":old_state": old.operation.state.as_str(),
                ":old_attempts": old.operation.attempts,
            },
        )
        .map_err(unreadable)?;
    if changed != 1 {
        return Err(StoreError::new(
            "an operation changed while it was written; the ledger was changed from outside",
        ));
    }
    save_changes(connection, old, new).map_err(unreadable)
}

fn save_changes(connection: &Connection, old: &Record, new: &Record) -> rusqlite::Result<()> {
    let id = new.operation_id.as_bytes();
    let (expires_at, forget_at) = new
        .ends
        .map_or((NEVER, NEVER), |ends| (ends.expires_at.0, ends.forget_at.0));
    if old.ends != new.ends || old.result.is_some() != new.result.is_some() {
        let result = new.result.as_deref().map(RawValue::get);
        connection.execute(SAVE_OPERATION, (id, result, expires_at, forget_at))?;
    }
    for attempt in &new.attempts {
        let in_doubt = new.operation.in_doubt.contains(&attempt.number);
        let known = old
            .attempts
            .iter()
            .any(|old_attempt| old_attempt == attempt)
            && old.operation.in_doubt.contains(&attempt.number) == in_doubt;
        if !known {
            connection.execute(
                SAVE_ATTEMPT,
                (
                    id,
                    attempt.number,
                    attempt.attempt_id.as_bytes(),
                    attempt.started_at.0,
                    attempt.started_wall.0,
                    attempt.outcome.as_str(),
                    in_doubt,
                    attempt.called.as_number(),
                ),
            )?;
        }
    }
    Ok(())
}

/// What is due, longest overdue first.
pub(super) fn due(
    connection: &Connection,
    now: Timestamp,
    after: Option<DuePlace>,
    limit: usize,
) -> Result<Vec<Due>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let DuePlace(after, row) = after.unwrap_or(DuePlace(Timestamp(i64::MIN), i64::MIN));
    connection
        .prepare(DUE)
        .and_then(|mut statement| {
            statement
                .query_map((now.0, after.0, row, limit), read_due)?
                .collect()
        })
        .map_err(unreadable)
}

fn read_due(row: &Row<'_>) -> rusqlite::Result<Due> {
    Ok(Due {
        operation_id: OperationId::from_bytes(row.get(0)?),
        tool: row.get(3)?,
        version: row.get(4)?,
        place: DuePlace(Timestamp(row.get(1)?), row.get(2)?),
    })
}
