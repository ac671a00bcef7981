//! The hand-written side: what a user would write. One connection per thread, cached
//! statements, and `BEGIN IMMEDIATE` around look-up, effect and receipt.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OptionalExtension, config::DbConfig};
use serde_json::json;
use uuid::Uuid;

use crate::load::{Keys, Load, Measured, threads};

/// The application's own table, the same on all sides.
pub(crate) const NOTES: &str = "CREATE TABLE IF NOT EXISTS notes (id TEXT PRIMARY KEY, scope TEXT NOT NULL, body TEXT NOT NULL)";

pub(crate) const INSERT_NOTE: &str = "INSERT INTO notes (id, scope, body) VALUES (?1, ?2, ?3)";

pub(crate) const BODY: &str = "Investigate the failing parser fixture.";

pub(crate) const SCOPE: &str = r#"["account-17","user-42","project-9"]"#;

const OPERATION: &str = "create_note:v1";

/// How many milliseconds SQLite's busy handler waits: as in the article, if nobody is in a
/// hurry.
static PATIENCE: AtomicU64 = AtomicU64::new(5_000);

/// Has the busy handler give up after a quarter of a second: whoever waits when a load is over keeps the
/// bench waiting for as long.
pub(crate) fn hurry() {
    PATIENCE.store(250, Ordering::Relaxed);
}

/// Whose layout and settings the hand-written code has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// The article's table, SQLite's defaults with a write-ahead log.
    Article,
    /// Our table and settings.
    Ours,
}

impl Layout {
    fn schema(self) -> &'static str {
        match self {
            Self::Article => {
                "CREATE TABLE IF NOT EXISTS receipts (
                     scope TEXT NOT NULL,
                     operation TEXT NOT NULL,
                     request_key TEXT NOT NULL,
                     request_json TEXT NOT NULL,
                     result_json TEXT NOT NULL,
                     PRIMARY KEY (scope, operation, request_key)
                 )"
            }
            Self::Ours => {
                "CREATE TABLE IF NOT EXISTS receipts (
                     seq INTEGER PRIMARY KEY,
                     operation TEXT NOT NULL,
                     request_key TEXT NOT NULL,
                     scope TEXT NOT NULL,
                     request_json TEXT NOT NULL,
                     result_json TEXT NOT NULL
                 ) STRICT;
                 CREATE UNIQUE INDEX IF NOT EXISTS identity
                     ON receipts (request_key, scope, operation)"
            }
        }
    }

    pub(crate) fn open(self, path: &Path) -> Connection {
        let connection = Connection::open(path).expect("a database");
        let patience = Duration::from_millis(PATIENCE.load(Ordering::Relaxed));
        connection.busy_timeout(patience).expect("a time-out");
        connection
            .pragma_update(None, "journal_mode", "WAL")
            .expect("a write-ahead log");
        connection
            .pragma_update(None, "synchronous", "FULL")
            .expect("syncs");
        if self == Self::Ours {
            tune(&connection);
        }
        connection
    }

    pub(crate) fn create(self, path: &Path) {
        let connection = self.open(path);
        connection.execute_batch(NOTES).expect("the notes");
        connection
            .execute_batch(self.schema())
            .expect("the receipts");
    }
}

/// Our settings.
pub(crate) fn tune(connection: &Connection) {
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .expect("stable plans");
    connection
        .pragma_update(None, "wal_autocheckpoint", 4_000)
        .expect("later checkpoints");
}

/// One call: look-up, note, receipt, commit. Returns how often the lock had to be asked for
/// again.
pub(crate) fn create_note(connection: &Connection, key: &str, body: &str) -> u64 {
    for repeated in 0.. {
        match try_create_note(connection, key, body) {
            Ok(()) => return repeated,
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                if !connection.is_autocommit() {
                    connection.execute_batch("ROLLBACK").expect("a rollback");
                }
            }
            Err(error) => panic!("the hand-written side failed: {error}"),
        }
    }
    unreachable!("a loop without an end")
}

fn try_create_note(connection: &Connection, key: &str, body: &str) -> rusqlite::Result<()> {
    let request = json!({ "body": body }).to_string();
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let previous = find(connection, key)?;
    let _result = if let Some((previous, result)) = previous {
        assert_eq!(previous, request, "payload conflict");
        result
    } else {
        let note_id = Uuid::now_v7().to_string();
        connection
            .prepare_cached(INSERT_NOTE)?
            .execute((&note_id, SCOPE, body))?;
        let result = json!({ "note_id": note_id }).to_string();
        connection
            .prepare_cached(
                "INSERT INTO receipts (scope, operation, request_key, request_json, result_json)
                     VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute((SCOPE, OPERATION, key, &request, &result))?;
        result
    };
    connection.prepare_cached("COMMIT")?.execute([])?;
    Ok(())
}

/// The receipt's request and result.
pub(crate) fn find(
    connection: &Connection,
    key: &str,
) -> rusqlite::Result<Option<(String, String)>> {
    connection
        .prepare_cached(
            "SELECT request_json, result_json FROM receipts
             WHERE scope = ?1 AND operation = ?2 AND request_key = ?3",
        )?
        .query_row((SCOPE, OPERATION, key), |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()
}

/// New keys from all callers, in the database at `path`.
pub(crate) fn new_keys(path: &Path, layout: Layout, load: Load) -> Measured {
    layout.create(path);
    threads(load, |_| {
        let connection = layout.open(path);
        move || create_note(&connection, &load.keys.next(), BODY)
    })
}

/// One caller that asks for receipts that are there, under the write lock.
pub(crate) fn locked_replay(connection: &Connection, key: &str) -> u64 {
    for repeated in 0.. {
        let replay = connection
            .prepare_cached("BEGIN IMMEDIATE")
            .and_then(|mut begin| begin.execute([]))
            .and_then(|_| find(connection, key))
            .and_then(|found| {
                connection.prepare_cached("COMMIT")?.execute([])?;
                Ok(found)
            });
        match replay {
            Ok(found) => {
                assert!(found.is_some(), "a receipt is missing");
                return repeated;
            }
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {}
            Err(error) => panic!("the hand-written side failed: {error}"),
        }
    }
    unreachable!("a loop without an end")
}

/// Receipts to ask for; returns their keys.
pub(crate) fn fill(path: &Path, layout: Layout, count: usize) -> Vec<String> {
    layout.create(path);
    let connection = layout.open(path);
    (0..count)
        .map(|_| {
            let key = Keys::Random.next();
            create_note(&connection, &key, BODY);
            key
        })
        .collect()
}
