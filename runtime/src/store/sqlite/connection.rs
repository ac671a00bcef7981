//! Opening connections, and bringing the ledger to this version.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, config::DbConfig};

use crate::{
    ledger_time::Reading,
    store::sqlite::{
        ffi,
        files::Files,
        gather,
        guard::Guard,
        options::{OpenError, SqliteOptions, Synchronous},
        statements::{
            HAS_LEDGER, LEDGER_VERSIONS, MAKE_SECRET, SET_SCHEMA_VERSION, TEMPORARY_OBJECTS,
        },
        time,
        watch::Watch,
    },
};

/// One step of the ledger.
#[derive(Debug, Clone, Copy)]
struct Migration {
    sql: &'static str,
    /// The oldest version that may still write to a ledger that this has changed.
    oldest_writer: i64,
}

/// Each takes the ledger to the next version; the first one makes it.
const MIGRATIONS: [Migration; 4] = [
    Migration {
        sql: include_str!("schema.sql"),
        oldest_writer: 1,
    },
    Migration {
        sql: include_str!("external.sql"),
        oldest_writer: 2,
    },
    Migration {
        sql: include_str!("ids_and_clock.sql"),
        oldest_writer: 3,
    },
    Migration {
        sql: include_str!("proof.sql"),
        oldest_writer: 4,
    },
];

/// The version of this crate's ledger.
#[allow(clippy::cast_possible_wrap, reason = "they are a handful")]
pub(super) const KNOWN_VERSION: i64 = MIGRATIONS.len() as i64;

/// The version that brought the ledger's own time.
const CLOCK_VERSION: i64 = 3;

/// The version that brought the secret of the provider keys.
const SECRET_VERSION: i64 = 4;

/// How many pages the log may have before a commit itself copies them into the file, as
/// when the thread for it fails: 29 MB.
const CHECKPOINT_PAGES: i64 = 7_000;

/// Statements that are kept prepared, the runtime's dozen and the handlers'.
const CACHED_STATEMENTS: usize = 256;

/// How long opening waits for other connections that hold the file.
const OPEN_PATIENCE: Duration = Duration::from_secs(30);

/// How long the settling of a lost commit waits for the write lock. Until then nobody knows.
const SETTLE_PATIENCE: Duration = Duration::from_secs(5);

/// How long a reader waits while another process recovers the log.
const READER_PATIENCE: Duration = Duration::from_secs(1);

/// How connections are opened that can't write; each is one thread's at a time.
const READING: OpenFlags = OpenFlags::SQLITE_OPEN_READ_ONLY
    .union(OpenFlags::SQLITE_OPEN_NO_MUTEX)
    .union(OpenFlags::SQLITE_OPEN_URI);

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
            // What a migration makes up must be on the disk before anything depends on it.
            connection.pragma_update(None, "synchronous", Synchronous::Full.pragma())?;
            connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)
        })
        .map_err(classify)?;
        let reading = guard.time().reading();
        insist(patience, || migrate(&mut connection, &MIGRATIONS, &reading))?;
        insist(patience, || guard.time().opened(&connection)).map_err(classify)?;
        insist(patience, || {
            connection.pragma_update(None, "synchronous", self.options.synchronous.pragma())
        })
        .map_err(classify)?;
        let temporary = insist(patience, || temporary_objects(&connection)).map_err(classify)?;
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
            temporary,
        })
    }

    /// A connection that can't write, to the file at `path`.
    pub(super) fn reader(&self, path: &Path) -> Result<Connection, OpenError> {
        let connection = Connection::open_with_flags(path, READING).map_err(classify)?;
        self.run_hook(&connection)?;
        prepare(&connection).map_err(OpenError::Sqlite)?;
        connection
            .busy_timeout(READER_PATIENCE)
            .map_err(OpenError::Sqlite)?;
        Ok(connection)
    }

    /// What tells of commits that others make, and where the files are that `writer` has open.
    pub(super) fn watch(&self, writer: &Connection) -> (Watch, Option<Files>) {
        let Some(path) = &self.path else {
            return (Watch::alone(), None);
        };
        let keeper = match gather::name() {
            Some(files) => Connection::open_with_flags_and_vfs(path, READING, files),
            None => Connection::open_with_flags(path, READING),
        };
        // Its first read has the log's index mapped.
        let keeper = keeper.and_then(|keeper| {
            keeper.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
            Ok(keeper)
        });
        match keeper {
            Ok(keeper) => {
                let files = Files::of(writer, path);
                // Not if another file has come to the path meanwhile.
                let files = files.filter(|_| !ffi::has_moved(writer));
                (Watch::by(keeper), files)
            }
            Err(error) => {
                tracing::warn!(
                    code = error.sqlite_error().map_or(0, |error| error.extended_code),
                    "other processes' commits can't be watched; every call looks into the ledger"
                );
                (Watch::blind(), None)
            }
        }
    }

    /// A second write connection to settle a lost commit. Its own commits sync at any level.
    pub(super) fn settling(&self, path: &Path) -> rusqlite::Result<Connection> {
        let connection = self.bare(path)?;
        if !self.options.synchronous.syncs_commits() {
            connection.pragma_update(None, "synchronous", Synchronous::Full.pragma())?;
        }
        connection.busy_timeout(SETTLE_PATIENCE)?;
        Ok(connection)
    }

    /// A second write connection without the application's hook, to copy the log.
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
///
/// A newer ledger is left as it is, and may be written to if it says so.
fn migrate(
    connection: &mut Connection,
    migrations: &[Migration],
    reading: &Reading,
) -> Result<(), OpenError> {
    let known = i64::try_from(migrations.len()).unwrap_or(i64::MAX);
    // A ledger of this version is opened without the write lock.
    if versions(connection).map_err(classify)?.lacks(known)? == 0 {
        return Ok(());
    }
    // The application's views and triggers are its own: a broken one stops no migration.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_LEGACY_ALTER_TABLE, true)
        .map_err(classify)?;
    let migrated = migrate_under_lock(connection, migrations, known, reading);
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_LEGACY_ALTER_TABLE, false)
        .map_err(classify)
        .and(migrated)
}

fn migrate_under_lock(
    connection: &mut Connection,
    migrations: &[Migration],
    known: i64,
    reading: &Reading,
) -> Result<(), OpenError> {
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(classify)?;
    let lacks = versions(&transaction).map_err(classify)?.lacks(known)?;
    for (version, migration) in (1_i64..).zip(migrations).skip(migrations.len() - lacks) {
        transaction.execute_batch(migration.sql).map_err(classify)?;
        if version == CLOCK_VERSION {
            time::begin(&transaction, reading).map_err(classify)?;
        }
        if version == SECRET_VERSION {
            let mut secret = [0; 32];
            getrandom::fill(&mut secret).map_err(|error| OpenError::NoRandomness(error.into()))?;
            transaction
                .execute(MAKE_SECRET, (secret, reading.wall.0))
                .map_err(classify)?;
        }
        transaction
            .execute(SET_SCHEMA_VERSION, (version, migration.oldest_writer))
            .map_err(classify)?;
    }
    transaction.commit().map_err(classify)
}

/// The versions that a ledger bears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Versions {
    /// The ledger's own; zero if there is none.
    pub(super) schema: i64,
    /// The oldest that may still write to it.
    pub(super) oldest_writer: i64,
}

impl Versions {
    /// How many of the `known` migrations are to be run.
    fn lacks(self, known: i64) -> Result<usize, OpenError> {
        if known < self.oldest_writer {
            return Err(OpenError::NewerLedger {
                found: self.schema,
                known,
            });
        }
        Ok(usize::try_from(known - self.schema).unwrap_or(0)) // A newer one lacks none.
    }
}

pub(super) fn versions(connection: &Connection) -> rusqlite::Result<Versions> {
    let exists = connection
        .query_row(HAS_LEDGER, [], |_| Ok(()))
        .optional()?
        .is_some();
    if !exists {
        return Ok(Versions {
            schema: 0,
            oldest_writer: 0,
        });
    }
    connection.query_row(LEDGER_VERSIONS, [], |row| {
        Ok(Versions {
            schema: row.get(0)?,
            oldest_writer: row.get(1)?,
        })
    })
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
    use crate::clock::Timestamp;

    const NEXT: Migration = Migration {
        sql: "CREATE TABLE idempotent_next (x)",
        oldest_writer: 4,
    };
    const NOW: Reading = Reading {
        wall: Timestamp(43_200_000),
        monotonic: 7,
        boot: None,
    };

    /// The version of this ledger.
    const KNOWN: i64 = 4;

    fn with_next() -> Vec<Migration> {
        MIGRATIONS.into_iter().chain([NEXT]).collect()
    }

    fn has_next(connection: &Connection) -> bool {
        connection
            .query_row("SELECT 1 FROM idempotent_next", [], |_| Ok(()))
            .optional()
            .is_ok()
    }

    fn ledger(migrations: &[Migration]) -> Connection {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, migrations, &NOW).unwrap();
        connection
    }

    fn schema(connection: &Connection) -> i64 {
        versions(connection).unwrap().schema
    }

    #[test]
    fn an_older_ledger_is_migrated_once() {
        let mut connection = ledger(&MIGRATIONS);
        for _ in 0..2 {
            migrate(&mut connection, &with_next(), &NOW).unwrap();
            assert_eq!(schema(&connection), KNOWN + 1);
            assert!(has_next(&connection));
        }
    }

    #[test]
    fn a_newer_ledger_is_opened_by_the_versions_that_may_write_to_it() {
        let mut connection = ledger(&with_next());
        migrate(&mut connection, &MIGRATIONS, &NOW).unwrap();
        assert_eq!(schema(&connection), KNOWN + 1, "it is left as it is");
        for (name, value) in [("oldest_writer", KNOWN + 1), ("writers_of", KNOWN)] {
            let mut connection = ledger(&with_next());
            connection
                .execute(
                    "UPDATE idempotent_ledger SET value = ?2 WHERE name = ?1",
                    (name, value),
                )
                .unwrap();
            let refused = migrate(&mut connection, &MIGRATIONS, &NOW).unwrap_err();
            assert!(
                matches!(
                    refused,
                    OpenError::NewerLedger { found, known: KNOWN } if found == KNOWN + 1
                ),
                "{name}: {refused:?}"
            );
        }
    }

    #[test]
    fn a_migration_that_fails_changes_nothing() {
        let mut connection = ledger(&MIGRATIONS);
        let broken_step = Migration {
            sql: "nonsense",
            ..NEXT
        };
        let broken = [&with_next()[..], &[broken_step]].concat();
        assert!(matches!(
            migrate(&mut connection, &broken, &NOW),
            Err(OpenError::Sqlite(_))
        ));
        assert_eq!(schema(&connection), KNOWN);
        assert!(!has_next(&connection));
    }

    #[test]
    fn an_older_ledger_is_migrated_beside_broken_views_and_triggers() {
        let mut connection = ledger(&MIGRATIONS[..2]);
        connection
            .execute_batch(
                "CREATE TABLE notes (id); CREATE VIEW broken AS SELECT gone FROM notes;
                 CREATE TRIGGER broken_too AFTER INSERT ON notes
                 BEGIN INSERT INTO nowhere VALUES (1); END",
            )
            .unwrap();
        migrate(&mut connection, &MIGRATIONS, &NOW).unwrap();
        assert_eq!(schema(&connection), KNOWN);
    }

    /// Not as a receipt's, which a clock that was wrong may have stamped.
    #[test]
    fn the_time_of_a_ledger_that_is_migrated_begins_as_the_wall_clocks() {
        let mut connection = ledger(&MIGRATIONS[..2]);
        connection
            .execute_batch(
                "INSERT INTO idempotent_operations VALUES
                 (NULL, x'00', 'k', 1, 1, 1, x'00', 97000000000, 98000000000, '1')",
            )
            .unwrap();
        migrate(&mut connection, &MIGRATIONS, &NOW).unwrap();
        let read = |sql| -> (i64, i64) {
            let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            connection.query_row(sql, (), row).unwrap()
        };
        assert_eq!(
            read("SELECT ledger_time, wall_time FROM idempotent_clock"),
            (NOW.wall.0, NOW.wall.0)
        );
        assert_eq!(
            read("SELECT expires_at, forget_at FROM idempotent_receipts"),
            (97_000_000_000, 98_000_000_000)
        );
    }

    /// Ids that a receipt refers to are given to nobody else, whoever lost their rows.
    #[test]
    fn a_migration_gives_no_id_again_that_a_receipt_refers_to() {
        let mut connection = ledger(&MIGRATIONS[..2]);
        connection
            .execute_batch(
                "INSERT INTO idempotent_operations VALUES
                 (NULL, x'00', 'k', 7, 9, 1, x'00', 1, 2, '1')",
            )
            .unwrap();
        migrate(&mut connection, &MIGRATIONS, &NOW).unwrap();
        for (insert, last) in [
            (crate::store::sqlite::statements::INSERT_SCOPE, 8),
            (crate::store::sqlite::statements::INSERT_TOOL, 10),
        ] {
            connection.execute(insert, ["new"]).unwrap();
            assert_eq!(connection.last_insert_rowid(), last);
        }
    }

    /// Of what was recorded before, only what was never sent gets an end.
    #[test]
    fn a_migration_ends_what_was_never_sent_and_leaves_the_rest() {
        let mut connection = ledger(&MIGRATIONS[..2]);
        for (row, state) in [(1, "accepted"), (2, "outcome_unknown")] {
            connection
                .execute(
                    "INSERT INTO idempotent_operations VALUES
                     (?1, CAST(?1 AS BLOB), ?1, 1, 1, 1, x'00', ?2, ?2, NULL)",
                    (row, i64::MAX),
                )
                .unwrap();
            connection
                .execute(
                    "INSERT INTO idempotent_external (seq, operation_id, state, origin, cancel,
                     attempts, latest_at, run_until, checks)
                     VALUES (?1, CAST(?1 AS BLOB), ?2, 'call', 0, 0, 50000000, 0, 0)",
                    (row, state),
                )
                .unwrap();
        }
        migrate(&mut connection, &MIGRATIONS, &NOW).unwrap();
        let ends: Vec<(i64, i64, Option<i64>)> = connection
            .prepare(
                "SELECT expires_at, forget_at, due_at FROM idempotent_receipts JOIN
                 idempotent_external USING (seq) ORDER BY seq",
            )
            .unwrap()
            .query_map((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        let expires = 50_000_000 + 30 * 86_400_000;
        assert_eq!(
            ends,
            [
                (expires, expires + 365 * 86_400_000, Some(50_000_000)),
                (i64::MAX, i64::MAX, None)
            ]
        );
    }

    #[test]
    fn the_secret_is_made_once_and_kept() {
        let mut connection = ledger(&MIGRATIONS[..3]);
        migrate(&mut connection, &MIGRATIONS, &NOW).unwrap();
        let secret = |connection: &Connection| -> [u8; 32] {
            let secret = "SELECT secret FROM idempotent_secret";
            connection.query_row(secret, [], |row| row.get(0)).unwrap()
        };
        let first = secret(&connection);
        migrate(&mut connection, &MIGRATIONS, &NOW).unwrap();
        for text in [
            "DELETE FROM idempotent_secret",
            "UPDATE idempotent_secret SET secret = zeroblob(32)",
            "REPLACE INTO idempotent_secret VALUES (1, zeroblob(32), 1)",
            "INSERT OR REPLACE INTO idempotent_secret VALUES (1, zeroblob(32), 1)",
        ] {
            let error = connection.execute_batch(text).unwrap_err();
            assert!(
                error.to_string().contains("secret of the ledger"),
                "{error}"
            );
        }
        assert_eq!(secret(&connection), first);
        assert_ne!(secret(&ledger(&MIGRATIONS)), first);
    }

    #[test]
    fn ids_of_scopes_and_tools_are_refused_to_every_connection() {
        let connection = ledger(&MIGRATIONS);
        connection
            .execute_batch(
                "INSERT INTO idempotent_scopes VALUES (1, 'ada'), (2, 'bob');
                 INSERT INTO idempotent_tools VALUES (1, 'pay'), (2, 'note')",
            )
            .unwrap();
        for (table, name) in [("scopes", "scope"), ("tools", "name")] {
            for text in [
                "DELETE FROM idempotent_#",
                "DELETE FROM idempotent_# WHERE id = 2",
                "UPDATE idempotent_# SET id = 3 WHERE id = 2",
                "UPDATE idempotent_# SET id = id + 1",
                "UPDATE idempotent_# SET $ = 'carol' WHERE id = 2",
                "UPDATE OR REPLACE idempotent_# SET $ = 'ada' WHERE id = 2",
                "INSERT INTO idempotent_# VALUES (2, 'carol')",
                "INSERT OR REPLACE INTO idempotent_# VALUES (2, 'carol')",
                "INSERT OR REPLACE INTO idempotent_# ($) SELECT $ FROM idempotent_#",
                "REPLACE INTO idempotent_# SELECT id + 7, $ FROM idempotent_#",
                "INSERT INTO idempotent_# VALUES (-5, 'carol')",
                "INSERT INTO idempotent_# VALUES (0, 'carol')",
            ] {
                let text = text.replace('#', table).replace('$', name);
                let error = connection.execute_batch(&text).unwrap_err();
                assert!(
                    error.to_string().contains("of the ledger"),
                    "{text}: {error}"
                );
            }
            let rows: String = connection
                .query_row(
                    &format!("SELECT group_concat(id || $, ' ') FROM idempotent_{table}")
                        .replace('$', name),
                    (),
                    |row| row.get(0),
                )
                .unwrap();
            assert!(rows == "1ada 2bob" || rows == "1pay 2note", "{rows}");
        }
        connection
            .execute_batch("UPDATE idempotent_scopes SET scope = 'forgotten:x' WHERE id = 2")
            .unwrap();
    }
}
