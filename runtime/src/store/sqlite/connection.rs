//! Opening connections, and bringing the ledger to this version.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, config::DbConfig};

use crate::store::sqlite::{
    gather,
    guard::Guard,
    options::{OpenError, SqliteOptions},
    statements::{
        HAS_LEDGER, LEDGER_OBJECTS, SCHEMA_VERSION, SET_SCHEMA_VERSION, TEMPORARY_OBJECTS,
    },
};

/// Each takes the ledger to the next version; the first one makes it.
const MIGRATIONS: [&str; 2] = [include_str!("schema.sql"), include_str!("external.sql")];

/// How many pages the log may have before a commit itself copies them into the file, as
/// when the thread for it fails: 29 MB.
const CHECKPOINT_PAGES: i64 = 7_000;

/// Statements that are kept prepared, the runtime's dozen and the handlers'.
const CACHED_STATEMENTS: usize = 256;

/// How long opening waits for other connections that hold the file.
const OPEN_PATIENCE: Duration = Duration::from_secs(30);

/// How long a reader waits while another process recovers the log.
const READER_PATIENCE: Duration = Duration::from_secs(1);

/// Where connections come from.
#[derive(Debug, Clone)]
pub(super) struct Opener {
    /// `None` is in memory.
    pub(super) path: Option<PathBuf>,
    pub(super) options: SqliteOptions,
}

/// The write connection as it was made, before any handler.
#[derive(Debug)]
pub(super) struct WriteConnection {
    pub(super) connection: Connection,
    /// How many objects the ledger has.
    pub(super) ledger_objects: i64,
    /// Temporary objects that the application's hook made; handlers' are dropped.
    pub(super) temporary: BTreeSet<(String, String)>,
}

impl Opener {
    /// The write connection, its ledger up to date, with the `guard`'s hooks.
    pub(super) fn writer(&self, guard: &Arc<Guard>) -> Result<WriteConnection, OpenError> {
        let mut connection = match (&self.path, gather::name()) {
            (Some(path), Some(files)) => {
                Connection::open_with_flags_and_vfs(path, OpenFlags::default(), files)
            }
            (Some(path), None) => Connection::open(path),
            (None, _) => Connection::open_in_memory(),
        }
        .map_err(classify)?;
        let patience = Instant::now() + OPEN_PATIENCE;
        // The file's mode first: a hook may write. And last: it may change the mode.
        if self.path.is_some() {
            insist(patience, || use_write_ahead_log(&connection))?;
        }
        self.run_hook(&connection)?;
        if self.path.is_some() {
            insist(patience, || use_write_ahead_log(&connection))?;
        }
        insist(patience, || {
            connection.pragma_update(None, "synchronous", self.options.synchronous.pragma())?;
            connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)
        })
        .map_err(classify)?;
        insist(patience, || migrate(&mut connection, &MIGRATIONS))?;
        let (ledger_objects, temporary) = insist(patience, || {
            let objects = connection.query_row(LEDGER_OBJECTS, [], |row| row.get(0))?;
            Ok::<_, rusqlite::Error>((objects, temporary_objects(&connection)?))
        })
        .map_err(classify)?;
        if self.options.synchronous.syncs_commits() {
            gather::start(&connection);
        }
        prepare(&connection).map_err(OpenError::Sqlite)?;
        // Waiting is the writer's own: it knows its calls' deadlines.
        connection
            .busy_timeout(Duration::ZERO)
            .map_err(OpenError::Sqlite)?;
        guard.install(&mut connection).map_err(OpenError::Sqlite)?;
        #[cfg(feature = "failpoints")]
        if let Some(failpoints) = &guard.failpoints {
            failpoints
                .install(&mut connection)
                .map_err(OpenError::Sqlite)?;
        }
        Ok(WriteConnection {
            connection,
            ledger_objects,
            temporary,
        })
    }

    /// A connection that can't write, to the file at `path`.
    pub(super) fn reader(&self, path: &Path) -> Result<Connection, OpenError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(path, flags).map_err(classify)?;
        self.run_hook(&connection)?;
        prepare(&connection).map_err(OpenError::Sqlite)?;
        connection
            .busy_timeout(READER_PATIENCE)
            .map_err(OpenError::Sqlite)?;
        Ok(connection)
    }

    /// A second write connection without the application's hook, to settle a lost commit.
    pub(super) fn bare(&self, path: &Path) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::default() & !OpenFlags::SQLITE_OPEN_CREATE;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.pragma_update(None, "synchronous", self.options.synchronous.pragma())?;
        connection.busy_timeout(READER_PATIENCE)?;
        Ok(connection)
    }

    fn run_hook(&self, connection: &Connection) -> Result<(), OpenError> {
        match &self.options.on_connection {
            Some(hook) => hook(connection).map_err(OpenError::Hook),
            None => Ok(()),
        }
    }
}

/// The path that later connections are opened at, wherever the process has moved to.
pub(super) fn settle_path(path: PathBuf) -> PathBuf {
    // SQLite takes a URI for one; a path that can't be made absolute fails when it is opened.
    if path.as_os_str().as_encoded_bytes().starts_with(b"file:") {
        return path;
    }
    std::path::absolute(&path).unwrap_or(path)
}

/// The names of the temporary objects, those first that others can depend on.
pub(super) fn temporary_objects(
    connection: &Connection,
) -> rusqlite::Result<BTreeSet<(String, String)>> {
    connection
        .prepare(TEMPORARY_OBJECTS)?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

/// Settings of every connection; statements that the hook left cached are dropped, since
/// they were prepared without restrictions.
fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    // Without it the bundled SQLite plans a statement anew whenever bound values change.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.flush_prepared_statement_cache();
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    Ok(())
}

fn use_write_ahead_log(connection: &Connection) -> Result<(), OpenError> {
    let mode: String = connection
        .query_row("PRAGMA main.journal_mode = WAL", [], |row| row.get(0))
        .map_err(classify)?;
    if mode.eq_ignore_ascii_case("wal") {
        return Ok(());
    }
    Err(OpenError::NoWriteAheadLog { found: mode })
}

/// Takes the ledger through the migrations that it lacks, in one transaction.
fn migrate(connection: &mut Connection, migrations: &[&str]) -> Result<(), OpenError> {
    let known = i64::try_from(migrations.len()).unwrap_or(i64::MAX);
    // A ledger of this version is opened without the write lock.
    let found = version(connection).map_err(classify)?;
    if found == known {
        return Ok(());
    }
    if known < found {
        return Err(OpenError::NewerLedger { found, known });
    }
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(classify)?;
    let found = version(&transaction).map_err(classify)?;
    if known < found {
        return Err(OpenError::NewerLedger { found, known });
    }
    for (from, migration) in (0_i64..).zip(migrations) {
        if found <= from {
            transaction.execute_batch(migration).map_err(classify)?;
            transaction
                .execute(SET_SCHEMA_VERSION, [from + 1])
                .map_err(classify)?;
        }
    }
    transaction.commit().map_err(classify)
}

/// The ledger's version; zero if there is none.
fn version(connection: &Connection) -> rusqlite::Result<i64> {
    let exists = connection
        .query_row(HAS_LEDGER, [], |_| Ok(()))
        .optional()?
        .is_some();
    if exists {
        connection.query_row(SCHEMA_VERSION, [], |row| row.get(0))
    } else {
        Ok(0)
    }
}

/// Repeats `attempt` while another connection is in its way, within the patience.
fn insist<T, E: Contended>(
    until: Instant,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    loop {
        match attempt() {
            Err(error) if error.is_contended() && Instant::now() < until => {
                thread::sleep(Duration::from_millis(2));
            }
            outcome => return outcome,
        }
    }
}

/// An error that says whether waiting can help.
trait Contended {
    fn is_contended(&self) -> bool;
}

impl Contended for rusqlite::Error {
    fn is_contended(&self) -> bool {
        is_busy(self)
    }
}

impl Contended for OpenError {
    fn is_contended(&self) -> bool {
        matches!(self, Self::Locked(_))
    }
}

/// Whether another connection is in the way.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

fn classify(error: rusqlite::Error) -> OpenError {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::NotADatabase(error),
        Some(ErrorCode::CannotOpen) => OpenError::CannotOpen(error),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OpenError::Locked(error),
        _ => OpenError::Sqlite(error), // Every other code is SQLite's own, with its source.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: &str = "CREATE TABLE idempotent_next (x)";

    /// The version of this ledger.
    const KNOWN: i64 = 2;

    fn with_next() -> Vec<&'static str> {
        MIGRATIONS.into_iter().chain([NEXT]).collect()
    }

    fn has_next(connection: &Connection) -> bool {
        connection
            .query_row("SELECT 1 FROM idempotent_next", [], |_| Ok(()))
            .optional()
            .is_ok()
    }

    #[test]
    fn an_older_ledger_is_migrated_once() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, &MIGRATIONS).unwrap();
        for _ in 0..2 {
            migrate(&mut connection, &with_next()).unwrap();
            assert_eq!(version(&connection).unwrap(), KNOWN + 1);
            assert!(has_next(&connection));
        }
        let refused = migrate(&mut connection, &MIGRATIONS).unwrap_err();
        assert!(matches!(
            refused,
            OpenError::NewerLedger { found, known: KNOWN } if found == KNOWN + 1
        ));
    }

    #[test]
    fn a_migration_that_fails_changes_nothing() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, &MIGRATIONS).unwrap();
        let broken = [&with_next()[..], &["nonsense"]].concat();
        assert!(matches!(
            migrate(&mut connection, &broken),
            Err(OpenError::Sqlite(_))
        ));
        assert_eq!(version(&connection).unwrap(), KNOWN);
        assert!(!has_next(&connection));
    }
}
