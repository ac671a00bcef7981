//! Locks and disk failures at each statement of a call.

use std::{sync::Arc, time::Duration};

use idempotent_tool::{
    Reply, SqliteStore, Status,
    failpoints::{Failpoint, Failpoints},
};
use idempotent_tool_tests::{caller, create_notes, toolbox};
use rusqlite::Connection;
use serde_json::{Value, json};

use super::waiting::block_on;
use crate::common::{self, assert_succeeded, key, watch_logs};

struct Faulty {
    _folder: tempfile::TempDir,
    path: std::path::PathBuf,
    store: SqliteStore,
    failpoints: Failpoints,
}

impl Faulty {
    fn new() -> Self {
        watch_logs();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        let failpoints = Failpoints::new();
        let store = SqliteStore::options()
            .failpoints(failpoints.clone())
            .open(&path)
            .unwrap();
        create_notes(&store).unwrap();
        Self {
            _folder: folder,
            path,
            store,
            failpoints,
        }
    }

    fn rows(&self) -> (i64, i64) {
        let count = "SELECT (SELECT count(*) FROM notes), \
                     (SELECT count(*) FROM idempotent_receipts)";
        let connection = Connection::open(&self.path).unwrap();
        connection
            .query_row(count, (), |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
    }
}

fn note(name: &str) -> Value {
    json!({ "idempotency_key": key(name), "body": "milk" })
}

/// How many requests one call makes.
fn requests() -> u64 {
    let faulty = Faulty::new();
    let tools = toolbox(&faulty.store).unwrap();
    faulty.failpoints.reset();
    assert_succeeded(
        &tools.call_blocking(&caller().unwrap(), "write_note", note("count")),
        false,
    );
    faulty.failpoints.requests()
}

/// Trap 23: a lock met where none should be is waited for, and no failure is recorded.
#[test]
fn a_lock_at_any_statement_is_waited_for() {
    let requests = requests();
    assert!(7 <= requests, "{requests}");
    for wait in ["blocking", "async"] {
        let mut refused = 0;
        for number in 1..=requests {
            let faulty = Faulty::new();
            let tools = toolbox(&faulty.store).unwrap();
            let ada = caller().unwrap();
            faulty.failpoints.arm(Failpoint::Busy, number);
            let reply = match wait {
                "blocking" => tools.call_blocking(&ada, "write_note", note("busy")),
                _ => block_on(tools.call(&ada, "write_note", note("busy"))),
            };
            if reply.error_code() == Some("database_busy") {
                // The handler's own statement: its error is what the tool says.
                assert!(reply.is_retryable());
                assert_eq!(faulty.rows(), (0, 0));
                refused += 1;
            } else {
                assert_succeeded(&reply, false);
                assert_eq!(faulty.rows(), (1, 1));
            }
            faulty.failpoints.reset();
            let again = tools.call_blocking(&ada, "write_note", note("busy"));
            assert!(again.result().is_some(), "{number}: {}", again.to_json());
            assert_eq!(faulty.rows(), (1, 1));
        }
        assert_eq!(refused, 1);
    }
}

/// A failing disk undoes the call, says so, and the next call is clean.
#[test]
fn a_disk_failure_at_any_statement_leaves_nothing() {
    for number in 1..=requests() {
        let faulty = Faulty::new();
        let tools = toolbox(&faulty.store).unwrap();
        let ada = caller().unwrap();
        faulty.failpoints.arm(Failpoint::Io, number);
        let reply = tools.call_blocking(&ada, "write_note", note("io"));
        let code = reply.error_code();
        assert!(
            matches!(code, Some("storage" | "database_unavailable")),
            "{}",
            reply.to_json()
        );
        assert!(reply.is_retryable());
        assert_eq!(faulty.rows(), (0, 0), "{number}");
        assert_succeeded(&tools.call_blocking(&ada, "write_note", note("io")), false);
        assert_eq!(faulty.rows(), (1, 1));
    }
}

/// The last request is the commit. Its answer is lost; the receipt is looked up.
#[test]
fn a_commit_whose_answer_is_lost_is_looked_up() {
    let requests = requests();
    let faulty = Faulty::new();
    let tools = toolbox(&faulty.store).unwrap();
    let ada = caller().unwrap();
    faulty.failpoints.arm(Failpoint::IoAfter, requests);
    assert_succeeded(
        &tools.call_blocking(&ada, "write_note", note("lost")),
        false,
    );
    assert_eq!(faulty.rows(), (1, 1));
    assert_succeeded(&tools.call_blocking(&ada, "write_note", note("lost")), true);
}

/// Nor is a commit that SQLite rolled back taken for one that happened.
#[test]
fn a_transaction_that_fails_and_ends_at_any_statement_leaves_nothing() {
    for number in 2..=requests() {
        let faulty = Faulty::new();
        let tools = toolbox(&faulty.store).unwrap();
        let ada = caller().unwrap();
        faulty.failpoints.arm(Failpoint::IoAndRollback, number);
        let reply = tools.call_blocking(&ada, "write_note", note("ended"));
        let code = reply.error_code();
        assert!(
            matches!(
                code,
                Some("storage" | "database_unavailable" | "not_allowed")
            ),
            "{number}: {}",
            reply.to_json()
        );
        assert_eq!(faulty.rows(), (0, 0), "{number}");
        assert_succeeded(
            &tools.call_blocking(&ada, "write_note", note("ended")),
            false,
        );
        assert_eq!(faulty.rows(), (1, 1), "{number}");
    }
}

#[test]
fn a_commit_that_can_not_be_looked_up_is_unknown_and_then_replayed() {
    let requests = requests();
    let faulty = Faulty::new();
    let tools = toolbox(&faulty.store).unwrap();
    let ada = caller().unwrap();
    faulty.failpoints.arm(Failpoint::IoAfterAndHidden, requests);
    let reply = common::json(&tools.call_blocking(&ada, "write_note", note("unknown")));
    assert_eq!(reply["status"], "outcome_unknown", "{reply}");
    assert_eq!(reply["retryable"], true);
    let id = reply["operation_id"].as_str().unwrap().to_owned();
    let again = tools.call_blocking(&ada, "write_note", note("unknown"));
    assert_succeeded(&again, true);
    assert_eq!(again.operation_id().unwrap().to_string(), id);
    assert_eq!(faulty.rows(), (1, 1));
}

/// A failure between the note and the receipt takes the note with it.
#[test]
fn a_failure_between_effect_and_receipt_leaves_neither() {
    let requests = requests();
    let faulty = Faulty::new();
    let tools = toolbox(&faulty.store).unwrap();
    let ada = caller().unwrap();
    // The receipt is the last but the commit.
    faulty.failpoints.arm(Failpoint::Io, requests - 1);
    let reply = tools.call_blocking(&ada, "write_note", note("between"));
    assert_eq!(reply.error_code(), Some("storage"));
    assert_eq!(faulty.rows(), (0, 0));
    assert_succeeded(
        &tools.call_blocking(&ada, "write_note", note("between")),
        false,
    );
}

/// A connection whose rollback fails is closed inside its transaction, hooks and all.
#[test]
fn a_connection_that_can_not_be_rolled_back_is_opened_anew() {
    for _ in 0..20 {
        let faulty = Faulty::new();
        // To begin, to write, to roll back.
        faulty.failpoints.count_all();
        faulty.failpoints.arm(Failpoint::Io, 3);
        let refused = faulty.store.transact_blocking(|tx| {
            tx.execute("INSERT INTO notes (scope, body) VALUES ('', '')", ())?;
            Err::<(), _>(rusqlite::Error::QueryReturnedNoRows)
        });
        assert!(refused.is_err());
        assert_eq!(faulty.failpoints.failures(), 1);
        assert_eq!(faulty.rows(), (0, 0));
        let tools = toolbox(&faulty.store).unwrap();
        assert_succeeded(
            &tools.call_blocking(&caller().unwrap(), "write_note", note("anew")),
            false,
        );
    }
}

/// Calls that queue behind one piece of work, and so share a batch, with a fault in it.
fn faulty_batch(faulty: &Faulty, action: Failpoint, number: u64, keys: [&str; 4]) -> Vec<Reply> {
    let tools = Arc::new(toolbox(&faulty.store).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let replies = runtime.block_on(async {
        let (started, wait) = std::sync::mpsc::channel::<()>();
        let store = faulty.store.clone();
        let first =
            tokio::spawn(async move { store.transact(move |_| wait.recv().map_err(|_| ())).await });
        tokio::task::yield_now().await;
        let calls = keys.map(|key| {
            let (tools, arguments) = (Arc::clone(&tools), note(key));
            let ada = caller().unwrap();
            tokio::spawn(async move { tools.call(&ada, "write_note", arguments).await })
        });
        tokio::task::yield_now().await;
        faulty.failpoints.arm(action, number);
        started.send(()).unwrap();
        first.await.unwrap().unwrap();
        let mut replies = Vec::new();
        for call in calls {
            replies.push(call.await.unwrap());
        }
        replies
    });
    faulty.failpoints.reset();
    replies
}

/// Two calls with one key in a batch: the second read what the first wrote. If that can't
/// be established, neither is told that it can.
#[test]
fn what_a_batch_read_of_itself_is_as_unknown_as_its_commit() {
    let mut unknown = 0;
    for number in 1..40 {
        let faulty = Faulty::new();
        let keys = ["same", "same", "same", "other"];
        let replies = faulty_batch(&faulty, Failpoint::IoAfterAndHidden, number, keys);
        let is_unknown = |reply: &&Reply| reply.status() == Status::OutcomeUnknown;
        let of_one_key = replies.iter().take(3).filter(is_unknown).count();
        assert!(of_one_key == 0 || of_one_key == 3, "{number}: {replies:?}");
        unknown += of_one_key;
    }
    assert!(unknown > 0);
}

/// In a batch, a failure at any statement harms no call: they run again.
#[test]
fn a_fault_anywhere_in_a_batch_harms_no_call() {
    for action in [Failpoint::Busy, Failpoint::Io, Failpoint::IoAfter] {
        // Numbers past the batch's own hit nothing.
        for number in 1..40 {
            let faulty = Faulty::new();
            let replies = faulty_batch(&faulty, action, number, ["0", "1", "2", "3"]);
            let tools = toolbox(&faulty.store).unwrap();
            let mut written = 0;
            for (call, reply) in replies.iter().enumerate() {
                if reply.result().is_some() {
                    written += 1;
                } else {
                    // The handler's own statement failed, or its lone second run did.
                    assert!(
                        reply.is_retryable(),
                        "{action:?} {number}: {}",
                        reply.to_json()
                    );
                }
                let again =
                    tools.call_blocking(&caller().unwrap(), "write_note", note(&call.to_string()));
                assert_succeeded(&again, reply.result().is_some());
            }
            assert!(3 <= written, "{action:?} at {number}: {written}");
            assert_eq!(faulty.rows(), (4, 4), "{action:?} at {number}");
        }
    }
}

#[test]
fn pruning_waits_for_no_lock_for_ever() {
    let faulty = Faulty::new();
    let other = Connection::open(&faulty.path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // Nothing is due, so nothing is locked.
    assert_eq!(faulty.store.prune(10).unwrap().looked_at, 0);
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    let hasty = SqliteStore::options()
        .budget(Duration::from_millis(50))
        .open(&faulty.path)
        .unwrap();
    let other = Connection::open(&faulty.path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = hasty
        .transact_blocking(|_| Ok::<_, rusqlite::Error>(()))
        .unwrap_err();
    assert!(
        matches!(refused, idempotent_tool::TransactError::Busy),
        "{refused:?}"
    );
}
