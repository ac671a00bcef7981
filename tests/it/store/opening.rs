//! Files that are opened: new, older, newer, and none of ours.

use std::{fs, thread, time::Duration};

use idempotent_tool::{OpenError, SqliteStore, Synchronous};
use idempotent_tool_tests::{caller, create_notes, toolbox};
use rusqlite::Connection;
use serde_json::json;

use crate::common::{Ledger, assert_succeeded, key, watch_logs};

#[test]
fn the_applications_version_and_id_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let own = Connection::open(&path).unwrap();
    own.execute_batch("PRAGMA user_version = 41; PRAGMA application_id = 1234")
        .unwrap();
    let store = SqliteStore::open(&path).unwrap();
    create_notes(&store).unwrap();
    let read = |pragma: &str| {
        own.query_row(pragma, (), |row| row.get::<_, i64>(0))
            .unwrap()
    };
    assert_eq!(read("PRAGMA user_version"), 41);
    assert_eq!(read("PRAGMA application_id"), 1234);
}

#[test]
fn a_newer_ledger_is_refused_and_not_changed() {
    let ledger = Ledger::new();
    let path = ledger.path();
    let own = Connection::open(&path).unwrap();
    own.execute(
        "UPDATE idempotent_ledger SET value = 99 WHERE name = 'schema'",
        (),
    )
    .unwrap();
    let refused = SqliteStore::open(&path).unwrap_err();
    assert!(
        matches!(refused, OpenError::NewerLedger { found: 99, .. }),
        "{refused:?}"
    );
    assert!(
        refused.to_string().contains("upgrade idempotent-tool"),
        "{refused}"
    );
}

#[test]
fn what_is_no_database_is_refused_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letter.txt");
    let text = "Dear Ada, this is a letter and no database. ".repeat(100);
    fs::write(&path, &text).unwrap();
    let refused = SqliteStore::open(&path).unwrap_err();
    assert!(matches!(refused, OpenError::NotADatabase(_)), "{refused:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    let refused = SqliteStore::open(folder.path().join("no/such/folder")).unwrap_err();
    assert!(matches!(refused, OpenError::CannotOpen(_)), "{refused:?}");
}

#[test]
fn sixteen_threads_open_one_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    thread::scope(|scope| {
        for number in 0..16 {
            let path = &path;
            scope.spawn(move || {
                let store = SqliteStore::open(path).unwrap();
                create_notes(&store).unwrap();
                let tools = toolbox(&store).unwrap();
                let arguments =
                    json!({ "idempotency_key": key(&number.to_string()), "body": "milk" });
                let reply = tools.call_blocking(&caller().unwrap(), "write_note", arguments);
                assert_succeeded(&reply, false);
            });
        }
    });
}

#[test]
fn the_hook_runs_on_every_connection() {
    watch_logs();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let store = SqliteStore::options()
        .synchronous(Synchronous::Normal)
        .on_connection(|connection| {
            connection.execute_batch("CREATE TEMP TABLE settings AS SELECT 'tea' AS drink")
        })
        .readers(1)
        .open(&path)
        .unwrap();
    let drink = "SELECT drink FROM temp.settings";
    let read = |connection: &Connection| connection.query_row(drink, (), |row| row.get(0));
    assert_eq!(store.read::<String, rusqlite::Error>(read).unwrap(), "tea");
    for _ in 0..2 {
        // What the hook made stays, what a closure made goes.
        let written = store.transact_blocking(|tx| {
            tx.execute_batch("CREATE TEMP TABLE scratch (x)")?;
            tx.query_row(drink, (), |row| row.get::<_, String>(0))
        });
        assert_eq!(written.unwrap(), "tea");
    }
    let failing = SqliteStore::options()
        .on_connection(|connection| connection.execute_batch("no sql"))
        .open(&path);
    assert!(matches!(failing, Err(OpenError::Hook(_))), "{failing:?}");
}

/// Without a journal nothing can be undone.
#[test]
fn a_hook_can_not_take_the_log_away() {
    watch_logs();
    for mode in ["DELETE", "MEMORY", "OFF"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        let options = SqliteStore::options().on_connection(move |connection| {
            connection.query_row(&format!("PRAGMA journal_mode = {mode}"), (), |_| Ok(()))
        });
        let opened = options.open(&path);
        let mode: String = Connection::open(&path)
            .unwrap()
            .query_row("PRAGMA journal_mode", (), |row| row.get(0))
            .unwrap();
        assert_eq!(mode, "wal");
        drop(opened.unwrap());
    }
}

#[test]
fn opening_waits_for_a_lock_only_if_it_must_write() {
    let ledger = Ledger::new();
    let own = Connection::open(ledger.path()).unwrap();
    own.busy_timeout(Duration::ZERO).unwrap();
    own.execute_batch("BEGIN IMMEDIATE").unwrap();
    SqliteStore::open(ledger.path()).unwrap();
}
