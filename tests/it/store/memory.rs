//! What is remembered of the ledger is a hint: the ledger answers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    time::Duration,
};

use idempotent_tool::{
    Failure, Reply, SqliteStore, Status, Toolbox, Tx,
    failpoints::{Failpoint, Failpoints},
    idempotent_tool,
};
use idempotent_tool_tests::{create_notes, toolbox, write_note};
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Driver;
use crate::{
    common::{Ledger, assert_code, assert_succeeded, caller, key, watch_logs},
    pace::alone,
    provider::{BY_KEY, Lab, Takes},
};

fn note(name: &str) -> Value {
    json!({ "idempotency_key": key(name), "body": "milk" })
}

fn write(tools: &Toolbox, who: &str, name: &str) -> Reply {
    tools.call_blocking(&caller(who), "write_note", note(name))
}

/// How often a handler has run.
#[derive(Default)]
struct Runs(AtomicU32);

/// Loses the transaction when it first runs, and writes afterwards.
#[idempotent_tool(operation = "lose_it_once:v1", deadline = "60s")]
fn lose_it_once(tx: &Tx, body: String, #[state] runs: &Arc<Runs>) -> Result<String, Failure> {
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, ?2)",
        (tx.scope(), &body),
    )?;
    if runs.0.fetch_add(1, Ordering::SeqCst) == 0 {
        tx.execute("INSERT OR ROLLBACK INTO numbered VALUES (1)", ())?;
    }
    Ok(tx.scope().to_owned())
}

/// Writes a note and returns whose it is.
#[idempotent_tool(operation = "whose_note:v1", deadline = "60s")]
fn whose_note(tx: &Tx, body: String) -> Result<String, Failure> {
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, ?2)",
        (tx.scope(), &body),
    )?;
    Ok(tx.scope().to_owned())
}

/// Two calls of two new callers in one batch.
fn in_one_batch(store: &SqliteStore, tools: &Toolbox, calls: [(&str, &str); 2]) -> Vec<Reply> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (leave, wait) = mpsc::channel::<()>();
        let held = store.clone();
        let first =
            tokio::spawn(async move { held.transact(move |_| wait.recv().map_err(|_| ())).await });
        tokio::task::yield_now().await;
        let calls: Vec<_> = calls
            .map(|(who, tool)| {
                let (tools, who, tool) = (tools.clone(), caller(who), tool.to_owned());
                tokio::spawn(async move { tools.call(&who, &tool, note("same")).await })
            })
            .into_iter()
            .collect();
        tokio::task::yield_now().await;
        leave.send(()).unwrap();
        first.await.unwrap().unwrap();
        let mut replies = Vec::new();
        for call in calls {
            replies.push(call.await.unwrap());
        }
        replies
    })
}

/// A full disk at each request in turn, the commits among them, in a batch whose other call
/// loses the transaction: nobody is answered with another's result, and no receipt is lost.
#[test]
fn nothing_of_a_commit_that_came_to_nothing_is_remembered() {
    watch_logs();
    let mut unknown = 0;
    for number in 1..60 {
        let folder = TempDir::new().unwrap();
        let failpoints = Failpoints::new();
        let open = |failpoints: &Failpoints| {
            let store = SqliteStore::options()
                .failpoints(failpoints.clone())
                .background_pruning(false)
                .open(folder.path().join("db"))
                .unwrap();
            create_notes(&store).unwrap();
            let tools = Toolbox::builder(store.clone())
                .without_authorization()
                .state(Arc::new(Runs::default()))
                .tool::<lose_it_once>()
                .tool::<whose_note>()
                .build()
                .unwrap();
            (store, tools)
        };
        let (store, tools) = open(&failpoints);
        store
            .transact_blocking(|tx| {
                tx.execute_batch(
                    "CREATE TABLE numbered (number INTEGER PRIMARY KEY);
                     INSERT INTO numbered VALUES (1)",
                )
            })
            .unwrap();
        failpoints.arm(Failpoint::FullAndHidden, number);
        let calls = [("ada", "lose_it_once"), ("bob", "whose_note")];
        let replies = in_one_batch(&store, &tools, calls);
        failpoints.reset();
        unknown += replies
            .iter()
            .filter(|reply| reply.status() == Status::OutcomeUnknown)
            .count();
        let check = |tools: &Toolbox, what: &str| {
            for who in ["carol", "bob", "ada"] {
                for tool in ["whose_note", "lose_it_once"] {
                    let reply = tools.call_blocking(&caller(who), tool, note("same"));
                    let whose = reply.result().map(|result| result.get().to_owned());
                    assert!(
                        whose.is_some_and(|whose| whose.contains(who)),
                        "{what}, failure {number}: {who} got {}",
                        reply.to_json()
                    );
                }
            }
        };
        check(&tools, "running");
        for ((who, tool), reply) in calls.iter().zip(&replies) {
            if reply.status() == Status::Succeeded {
                let again = tools.call_blocking(&caller(who), tool, note("same"));
                assert_eq!(again.operation_id(), reply.operation_id(), "{number}");
            }
        }
        drop((store, tools));
        let (_store, tools) = open(&Failpoints::new());
        check(&tools, "restarted");
        let own = Connection::open(folder.path().join("db")).unwrap();
        let (receipts, notes, lost): (i64, i64, i64) = own
            .query_row(
                "SELECT (SELECT count(*) FROM idempotent_receipts),
                    (SELECT count(*) FROM notes),
                    (SELECT count(*) FROM idempotent_receipts
                     WHERE scope NOT IN (SELECT id FROM idempotent_scopes))",
                (),
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .unwrap();
        assert_eq!((receipts, notes, lost), (6, 6, 0), "{number}");
    }
    assert!(1 < unknown, "no commit was lost");
}

#[test]
fn a_receipt_that_an_operator_has_deleted_is_not_replayed() {
    for restarts in [false, true] {
        let ledger = Ledger::new();
        let mut tools = toolbox(&ledger.store).unwrap();
        let first = write(&tools, "ada", "one");
        assert_succeeded(&first, false);
        assert_succeeded(&write(&tools, "ada", "one"), true);
        let own = Connection::open(ledger.path()).unwrap();
        own.execute_batch("DELETE FROM idempotent_receipts; DELETE FROM notes")
            .unwrap();
        if restarts {
            tools = toolbox(&ledger.reopen()).unwrap();
        }
        let again = write(&tools, "ada", "one");
        assert_succeeded(&again, false);
        assert_ne!(again.operation_id(), first.operation_id());
        assert_succeeded(&write(&tools, "ada", "one"), true);
        assert_eq!(ledger.rows(), (1, 1));
    }
}

/// Our own next commit makes the log ours again, and what was remembered before it stays
/// forgotten.
#[test]
fn what_others_took_away_is_not_believed_again_after_our_own_commit() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger.store).unwrap();
    let names: Vec<String> = (0..8).map(|number| number.to_string()).collect();
    for name in &names {
        assert_succeeded(&write(&tools, "ada", name), false);
        assert_succeeded(&write(&tools, "ada", name), true);
    }
    let own = Connection::open(ledger.path()).unwrap();
    own.execute_batch("DELETE FROM idempotent_receipts; DELETE FROM notes")
        .unwrap();
    assert_succeeded(&write(&tools, "bob", "new"), false);
    for name in &names {
        assert_succeeded(&write(&tools, "ada", name), false);
        assert_succeeded(&write(&tools, "ada", name), true);
    }
    assert_eq!(ledger.rows(), (9, 9));
}

/// The deletion that gave the next new caller another's results is refused.
#[test]
fn a_scope_can_not_be_deleted_under_its_receipts() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger.store).unwrap();
    assert_succeeded(&write(&tools, "ada", "one"), false);
    let bobs = write(&tools, "bob", "one");
    let own = Connection::open(ledger.path()).unwrap();
    own.execute(
        "DELETE FROM idempotent_scopes WHERE id = (SELECT max(id) FROM idempotent_scopes)",
        (),
    )
    .unwrap_err();
    assert_succeeded(&write(&tools, "carol", "two"), false);
    let carols = write(&tools, "carol", "one");
    assert_succeeded(&carols, false);
    assert_ne!(carols.operation_id(), bobs.operation_id());
}

#[test]
fn two_stores_on_one_file_agree_whoever_writes() {
    let ledger = Ledger::new();
    let here = toolbox(&ledger.store).unwrap();
    let there = toolbox(&ledger.reopen()).unwrap();
    for round in 0..3 {
        let name = round.to_string();
        let first = write(&here, "ada", &name);
        assert_succeeded(&first, false);
        let again = write(&there, "ada", &name);
        assert_succeeded(&again, true);
        assert_eq!(again.operation_id(), first.operation_id());
        assert_succeeded(&write(&there, "bob", &name), false);
        assert_succeeded(&write(&here, "bob", &name), true);
        assert_succeeded(&write(&here, "ada", &name), true);
    }
    assert_eq!(ledger.rows(), (6, 6));
}

#[test]
fn another_process_writes_between_the_calls() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger.store).unwrap();
    let path = ledger.path();
    for round in 0..3 {
        let name = key(&round.to_string());
        assert_succeeded(&write(&tools, "ada", &name), false);
        let mut driver = Driver::start(&["call", path.to_str().unwrap(), &name], None);
        driver.go();
        let (replies, status) = driver.end();
        assert!(status.success());
        assert_eq!(replies[0]["replayed"], false, "{}", replies[0]);
        assert_succeeded(&write(&tools, "ada", &name), true);
    }
    assert_eq!(ledger.rows(), (6, 6));
}

#[test]
fn others_change_the_schema_and_no_call_breaks() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger.store).unwrap();
    assert_succeeded(&write(&tools, "ada", "0"), false);
    let own = Connection::open(ledger.path()).unwrap();
    for (round, sql) in [
        "CREATE TABLE letters (id INTEGER PRIMARY KEY, body TEXT)",
        "ALTER TABLE notes ADD COLUMN seen INTEGER",
        "CREATE INDEX by_body ON notes (body)",
        "DROP TABLE letters",
        "VACUUM",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "PRAGMA user_version = 7",
    ]
    .into_iter()
    .enumerate()
    {
        own.execute_batch(sql).unwrap();
        assert_succeeded(&write(&tools, "ada", &round.to_string()), true);
        assert_succeeded(&write(&tools, "bob", &round.to_string()), false);
        assert_succeeded(&write(&tools, "ada", &format!("{}", round + 1)), false);
        assert_succeeded(&write(&tools, "ada", &round.to_string()), true);
    }
}

/// The count of the ledger's objects is what another process left, not what was found once.
#[test]
fn an_object_that_another_process_adds_to_the_ledger_is_nobodys_fault() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger.store).unwrap();
    ledger
        .store
        .transact_blocking(|tx| tx.execute_batch("ALTER TABLE notes ADD COLUMN seen INTEGER"))
        .unwrap();
    assert_succeeded(&write(&tools, "ada", "one"), false);
    let own = Connection::open(ledger.path()).unwrap();
    own.execute_batch("CREATE INDEX idempotent_by_operator ON idempotent_receipts (version)")
        .unwrap();
    assert_succeeded(&write(&tools, "ada", "two"), false);
    ledger
        .store
        .transact_blocking(|tx| tx.execute_batch("ALTER TABLE notes ADD COLUMN read INTEGER"))
        .unwrap();
    own.execute_batch("DROP INDEX idempotent_by_operator")
        .unwrap();
    assert_succeeded(&write(&tools, "ada", "three"), false);
    // A handler's own is still its fault.
    let refused = ledger
        .store
        .transact_blocking(|tx| tx.execute_batch("ALTER TABLE notes RENAME TO idempotent_notes"));
    assert!(refused.is_err());
}

fn set_version(path: &std::path::Path, schema: i64, oldest_writer: i64) {
    let own = Connection::open(path).unwrap();
    own.execute(
        "UPDATE idempotent_ledger SET value = CASE name WHEN 'oldest_writer' THEN ?2 ELSE ?1 END
         WHERE name IN ('schema', 'oldest_writer', 'writers_of')",
        (schema, oldest_writer),
    )
    .unwrap();
}

fn version(path: &std::path::Path) -> i64 {
    let own = Connection::open(path).unwrap();
    let sql = "SELECT value FROM idempotent_ledger WHERE name = 'schema'";
    own.query_row(sql, (), |row| row.get(0)).unwrap()
}

#[test]
fn a_ledger_that_a_newer_version_migrates_is_left_alone() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger.store).unwrap();
    assert_succeeded(&write(&tools, "ada", "before"), false);
    let known = version(&ledger.path());
    // It says that this version may go on.
    set_version(&ledger.path(), 99, known);
    assert_succeeded(&write(&tools, "ada", "before"), true);
    assert_succeeded(&write(&tools, "ada", "beside"), false);
    toolbox(&ledger.store).unwrap();
    // It doesn't.
    set_version(&ledger.path(), 99, 99);
    for name in ["before", "after"] {
        let refused = write(&tools, "ada", name);
        assert_code(&refused, "storage");
        assert!(!refused.is_retryable(), "{}", refused.to_json());
    }
    let transact = ledger
        .store
        .transact_blocking(|tx| tx.execute("INSERT INTO notes (scope, body) VALUES ('', '')", ()));
    let said = transact.unwrap_err().to_string();
    assert!(said.contains("upgrade idempotent-tool"), "{said}");
    let said = toolbox(&ledger.store).unwrap_err().to_string();
    assert!(said.contains("upgrade idempotent-tool"), "{said}");
    assert_eq!(ledger.rows(), (2, 2));
    // Whatever was the matter, it is over.
    set_version(&ledger.path(), known, known);
    assert_succeeded(&write(&tools, "ada", "after"), false);
    assert_succeeded(&write(&tools, "ada", "before"), true);
}

#[test]
fn an_external_operation_goes_by_the_ledgers_version_too() {
    alone(async {
        let lab = Lab::new([]);
        assert_succeeded(&lab.call(BY_KEY, "before").await, false);
        set_version(&lab.ledger.path(), 99, 99);
        for name in ["before", "after"] {
            assert_code(&lab.call(BY_KEY, name).await, "storage");
        }
        assert_eq!(lab.provider.requests(), 1);
    });
}

#[test]
fn a_receipt_that_is_pruned_elsewhere_is_not_answered_from_memory() {
    let ledger = Ledger::new();
    let here = toolbox(&ledger.store).unwrap();
    let other = SqliteStore::options()
        .clock(ledger.clock.clone())
        .background_pruning(false)
        .open(ledger.path())
        .unwrap();
    assert_succeeded(&write(&here, "ada", "one"), false);
    ledger
        .clock
        .advance(Duration::from_hours(24 * 30) + Duration::from_mins(1));
    assert_eq!(other.prune(100).unwrap().expired, 1);
    assert_code(&write(&here, "ada", "one"), "key_expired");
}

#[test]
fn a_store_in_memory_remembers_its_own() {
    let store = SqliteStore::in_memory().unwrap();
    create_notes(&store).unwrap();
    let tools = Toolbox::builder(store.clone())
        .without_authorization()
        .tool::<write_note>()
        .build()
        .unwrap();
    assert_succeeded(&write(&tools, "ada", "one"), false);
    assert_succeeded(&write(&tools, "ada", "one"), true);
    store.prune(100).unwrap();
    assert_succeeded(&write(&tools, "ada", "one"), true);
    assert_succeeded(&write(&tools, "bob", "one"), false);
}

/// Without the count the insertion of a new scope or tool inserts nothing, and the id of the
/// last row is the application's own.
#[test]
fn no_id_is_given_once_the_count_of_ids_is_gone() {
    for (restarts, count) in [
        (false, "last_scope"),
        (true, "last_scope"),
        (false, "last_tool"),
        (true, "last_tool"),
    ] {
        let ledger = Ledger::new();
        let mut tools = toolbox(&ledger.store).unwrap();
        assert_succeeded(&write(&tools, "ada", "one"), false);
        assert_succeeded(&write(&tools, "bob", "two"), false);
        let own = Connection::open(ledger.path()).unwrap();
        own.execute("DELETE FROM idempotent_ledger WHERE name = ?1", [count])
            .unwrap();
        own.execute_batch("DELETE FROM notes").unwrap();
        if restarts {
            tools = toolbox(&ledger.reopen()).unwrap();
        }
        if count == "last_scope" {
            assert_code(&write(&tools, "carol", "hers"), "storage");
        } else {
            let build = Toolbox::builder(ledger.store.clone())
                .without_authorization()
                .tool::<whose_note>()
                .build();
            assert!(build.is_err());
        }
        for who in ["ada", "bob"] {
            assert_succeeded(&write(&tools, who, "hers"), false);
        }
        let whole: (i64, i64) = own
            .query_row(
                "SELECT (SELECT count(*) FROM idempotent_contracts),
                     (SELECT count(DISTINCT tool) FROM idempotent_contracts)",
                (),
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .unwrap();
        assert_eq!(whole.0, whole.1, "a contract is another tool's");
    }
}

/// The number of a deleted row is given again; what belonged to it is nobody else's.
#[test]
fn what_a_deleted_external_receipt_leaves_behind_is_no_later_operations() {
    for what in [
        "DELETE FROM idempotent_receipts",
        "DELETE FROM idempotent_receipts; DELETE FROM idempotent_external",
    ] {
        alone(async {
            let lab = Lab::new([Takes::Refuses]);
            assert_eq!(lab.call(BY_KEY, "one").await.status(), Status::Failed);
            let own = Connection::open(lab.ledger.path()).unwrap();
            own.execute_batch(what).unwrap();
            for name in ["two", "one", "three"] {
                let reply = lab.call(BY_KEY, name).await;
                assert_succeeded(&reply, false);
                let told = lab.get(&reply).await;
                let attempts = told["attempts"].as_array().unwrap();
                assert_eq!(attempts.len(), 1, "{what}: {told}");
                assert_eq!(attempts[0]["outcome"], "succeeded", "{what}: {told}");
            }
            assert_eq!(lab.provider.requests(), 4);
        });
    }
}
