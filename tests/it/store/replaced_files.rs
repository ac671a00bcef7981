//! Files that are moved, removed or replaced under an open store: no answer is given that a
//! restart would not confirm.
#![cfg(unix)]

use std::{fs, path::Path};

use idempotent_tool::{Failure, Reply, SqliteStore, Status, Toolbox};
use idempotent_tool_tests::{create_notes, toolbox};
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    common::{assert_code, assert_succeeded, caller, key, watch_logs},
    pace::alone,
    provider::{BY_KEY, Lab},
};

fn note(name: &str) -> Value {
    json!({ "idempotency_key": key(name), "body": "milk" })
}

fn write(tools: &Toolbox, name: &str) -> Reply {
    tools.call_blocking(&caller("ada"), "write_note", note(name))
}

fn beside(path: &Path, suffix: &str) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn remove_all(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(beside(path, suffix)).unwrap();
    }
}

fn move_all(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        fs::rename(beside(path, suffix), beside(path, &format!(".old{suffix}"))).unwrap();
    }
}

/// What is done to the files.
type Disturb = fn(&Path);

const WAYS: [(&str, Disturb); 8] = [
    ("removed", remove_all),
    ("moved", move_all),
    ("database removed", |path| fs::remove_file(path).unwrap()),
    ("log removed", |path| {
        fs::remove_file(beside(path, "-wal")).unwrap();
    }),
    ("index removed", |path| {
        fs::remove_file(beside(path, "-shm")).unwrap();
    }),
    ("replaced by an empty one", |path| {
        remove_all(path);
        create_notes(&SqliteStore::open(path).unwrap()).unwrap();
    }),
    ("replaced by a copy", |path| {
        let copy = beside(path, ".copy");
        let own = Connection::open(path).unwrap();
        own.execute("VACUUM INTO ?1", [copy.to_str().unwrap()])
            .unwrap();
        drop(own);
        fs::rename(copy, path).unwrap();
    }),
    ("folder moved", |path| {
        let folder = path.parent().unwrap();
        fs::rename(folder, beside(folder, ".old")).unwrap();
    }),
];

struct Opened {
    _folder: TempDir,
    path: std::path::PathBuf,
    store: SqliteStore,
    tools: Toolbox,
}

fn open() -> Opened {
    watch_logs();
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("data")).unwrap();
    let path = folder.path().join("data/db");
    let store = SqliteStore::options()
        .background_pruning(false)
        .open(&path)
        .unwrap();
    create_notes(&store).unwrap();
    let tools = toolbox(&store).unwrap();
    Opened {
        _folder: folder,
        path,
        store,
        tools,
    }
}

#[test]
fn no_call_is_answered_from_files_that_nobody_else_finds() {
    for (way, disturb) in WAYS {
        let opened = open();
        assert_succeeded(&write(&opened.tools, "before"), false);
        assert_succeeded(&write(&opened.tools, "before"), true);
        disturb(&opened.path);
        for name in ["before", "after", "before", "after"] {
            let reply = write(&opened.tools, name);
            assert_eq!(
                reply.error_code(),
                Some("storage"),
                "{way}: {}",
                reply.to_json()
            );
            assert!(!reply.is_retryable(), "{way}: {}", reply.to_json());
        }
        let said = opened
            .store
            .transact_blocking(|_| Ok::<_, Failure>(()))
            .unwrap_err()
            .to_string();
        assert!(said.contains("moved, removed or replaced"), "{way}: {said}");
        let read = opened
            .store
            .read(|connection| connection.query_row("SELECT 1", (), |row| row.get::<_, i64>(0)));
        assert!(read.is_err(), "{way}");
        assert!(toolbox(&opened.store).is_err(), "{way}");
    }
}

/// What the first store answered before is lost with its file. It says nothing any more that
/// the second one would contradict.
#[test]
fn a_second_store_on_the_path_is_not_contradicted() {
    for (way, disturb) in [("removed", remove_all as Disturb), ("moved", move_all)] {
        let opened = open();
        assert_succeeded(&write(&opened.tools, "one"), false);
        disturb(&opened.path);
        let second = SqliteStore::open(&opened.path).unwrap();
        create_notes(&second).unwrap();
        let second = toolbox(&second).unwrap();
        for _ in 0..2 {
            assert_code(&write(&opened.tools, "one"), "storage");
            assert_code(&write(&opened.tools, "two"), "storage");
        }
        assert_succeeded(&write(&second, "one"), false);
        assert_succeeded(&write(&second, "two"), false);
        assert_succeeded(&write(&second, "one"), true);
        let own = Connection::open(&opened.path).unwrap();
        let notes: i64 = own
            .query_row("SELECT count(*) FROM notes", (), |row| row.get(0))
            .unwrap();
        assert_eq!(notes, 2, "{way}");
    }
}

#[test]
fn files_that_are_put_back_are_the_stores_again() {
    let opened = open();
    assert_succeeded(&write(&opened.tools, "one"), false);
    move_all(&opened.path);
    assert_code(&write(&opened.tools, "two"), "storage");
    for suffix in ["", "-wal", "-shm"] {
        let old = beside(&opened.path, &format!(".old{suffix}"));
        fs::rename(old, beside(&opened.path, suffix)).unwrap();
    }
    assert_succeeded(&write(&opened.tools, "one"), true);
    assert_succeeded(&write(&opened.tools, "two"), false);
}

/// The disturbance comes while the handler runs.
#[test]
fn a_move_under_a_running_call_is_found_before_its_answer() {
    let opened = open();
    let path = opened.path.clone();
    let outcome = opened.store.transact_blocking(move |tx| {
        tx.execute("INSERT INTO notes (scope, body) VALUES ('', '')", ())?;
        move_all(&path);
        Ok::<_, rusqlite::Error>(())
    });
    assert!(outcome.is_err());
    let old = Connection::open(beside(&opened.path, ".old")).unwrap();
    let notes: i64 = old
        .query_row("SELECT count(*) FROM notes", (), |row| row.get(0))
        .unwrap();
    assert_eq!(notes, 0);
}

#[test]
fn no_external_operation_begins_in_files_that_nobody_else_finds() {
    alone(async {
        let lab = Lab::new([]);
        assert_succeeded(&lab.call(BY_KEY, "before").await, false);
        remove_all(&lab.ledger.path());
        for name in ["before", "after"] {
            let reply = lab.call(BY_KEY, name).await;
            assert_code(&reply, "storage");
            assert_ne!(reply.status(), Status::Succeeded);
        }
        assert_eq!(lab.provider.requests(), 1);
    });
}

#[test]
fn a_link_that_is_turned_elsewhere_is_a_replaced_file() {
    watch_logs();
    let folder = TempDir::new().unwrap();
    let link = folder.path().join("current");
    std::os::unix::fs::symlink(folder.path().join("one"), &link).unwrap();
    let store = SqliteStore::open(&link).unwrap();
    create_notes(&store).unwrap();
    let tools = toolbox(&store).unwrap();
    assert_succeeded(&write(&tools, "before"), false);
    fs::remove_file(&link).unwrap();
    create_notes(&SqliteStore::open(folder.path().join("two")).unwrap()).unwrap();
    std::os::unix::fs::symlink(folder.path().join("two"), &link).unwrap();
    assert_code(&write(&tools, "before"), "storage");
    assert_code(&write(&tools, "after"), "storage");
}

/// Nothing would tell it later that it is in files that nobody finds.
#[test]
fn a_file_that_is_removed_while_it_is_opened_is_not_opened() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("db");
    drop(SqliteStore::open(&path).unwrap());
    let gone = path.clone();
    let opened = SqliteStore::options()
        .on_connection(move |_| {
            let _ = fs::remove_file(&gone);
            Ok(())
        })
        .open(&path);
    let error = opened.unwrap_err();
    let source = std::error::Error::source(&error).map(ToString::to_string);
    assert!(
        format!("{error} {source:?}").contains("replaced"),
        "{error:?}"
    );
}
