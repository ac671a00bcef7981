//! Calls that share one commit: one that goes wrong takes no other down.

use std::{
    sync::{Arc, Mutex, mpsc},
    time::SystemTime,
};

use idempotent_tool::{
    Failure, ManualClock, Reply, SqliteStore, Toolbox, Tx, failpoints::Failpoints, idempotent_tool,
};
use idempotent_tool_tests::{caller, create_notes, write_note};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{self, Ledger, assert_succeeded, key, watch_logs};

/// Goes wrong in the way that it is told.
#[idempotent_tool(operation = "go_wrong:v1", max_result = "1KiB")]
fn go_wrong(tx: &Tx, how: String) -> Result<String, Failure> {
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, 'poison')",
        [tx.scope()],
    )?;
    match how.as_str() {
        "error" => return Err(Failure::new("refused", "no")),
        "panic" => panic!("poison"),
        "oversized" => return Ok("x".repeat(2_000)),
        "constraint" => {
            tx.execute("INSERT INTO numbered VALUES (1)", ())?;
        }
        "or rollback" => {
            tx.execute("INSERT OR ROLLBACK INTO numbered VALUES (1)", ())?;
        }
        "or rollback, swallowed" => {
            let _ = tx.execute("INSERT OR ROLLBACK INTO numbered VALUES (1)", ());
        }
        "or rollback, then more" => {
            let _ = tx.execute("INSERT OR ROLLBACK INTO numbered VALUES (1)", ());
            let _ = tx.execute("INSERT INTO notes (scope, body) VALUES ('x', 'after')", ());
        }
        "or rollback, then a savepoint" => {
            let _ = tx.execute("INSERT OR ROLLBACK INTO numbered VALUES (1)", ());
            let _ = tx.execute_batch("SAVEPOINT a");
            let _ = tx.execute("INSERT INTO notes (scope, body) VALUES ('x', 'after')", ());
        }
        "raise" => {
            tx.execute("INSERT INTO raising VALUES (1)", ())?;
        }
        "deferred" => {
            tx.execute("INSERT INTO children VALUES (99)", ())?;
        }
        "commit" => {
            let _ = tx.execute_batch("COMMIT");
        }
        "open statement" => {
            let mut statement = tx.prepare("SELECT body FROM notes")?;
            let mut rows = statement.query(())?;
            rows.next()?;
            std::mem::forget(rows);
            std::mem::forget(statement);
        }
        "open insert" => {
            let mut statement = tx.prepare(
                "INSERT INTO notes (scope, body) VALUES ('x', 'y'), ('x', 'z') RETURNING id",
            )?;
            let mut rows = statement.query(())?;
            rows.next()?;
            std::mem::forget(rows);
            std::mem::forget(statement);
        }
        _ => return Err(Failure::new("unknown", "no such way")),
    }
    Ok(String::new())
}

const WAYS: [(&str, &str); 13] = [
    ("error", "refused"),
    ("panic", "handler_panicked"),
    ("oversized", "result_too_large"),
    ("constraint", "constraint_violated"),
    ("or rollback", "constraint_violated"),
    ("or rollback, swallowed", "transaction_lost"),
    ("or rollback, then more", "transaction_lost"),
    ("or rollback, then a savepoint", "transaction_lost"),
    ("raise", "constraint_violated"),
    ("deferred", "constraint_violated"),
    ("commit", "not_allowed"),
    ("open statement", "statement_left_open"),
    ("open insert", "statement_left_open"),
];

fn tools(store: &SqliteStore) -> Toolbox {
    store
        .transact_blocking(|tx| {
            tx.execute_batch(
                "CREATE TABLE numbered (number INTEGER PRIMARY KEY);
                 INSERT INTO numbered VALUES (1);
                 CREATE TABLE parents (id INTEGER PRIMARY KEY);
                 CREATE TABLE children (parent REFERENCES parents DEFERRABLE INITIALLY DEFERRED);
                 CREATE TABLE raising (x);
                 CREATE TRIGGER no_row BEFORE INSERT ON raising
                 BEGIN SELECT RAISE(ROLLBACK, 'never'); END;",
            )
        })
        .unwrap();
    Toolbox::builder(store.clone())
        .without_authorization()
        .tool::<go_wrong>()
        .tool::<write_note>()
        .build()
        .unwrap()
}

/// Queues the calls behind one piece of work, so that they share a batch, and answers in order.
fn in_one_batch(store: &SqliteStore, tools: &Toolbox, calls: Vec<(&str, Value)>) -> Vec<Reply> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let tools = Arc::new(tools.clone());
    let store = store.clone();
    runtime.block_on(async {
        let (leave, wait) = mpsc::channel::<()>();
        let first =
            tokio::spawn(async move { store.transact(move |_| wait.recv().map_err(|_| ())).await });
        tokio::task::yield_now().await;
        let calls: Vec<_> = calls
            .into_iter()
            .map(|(tool, arguments)| {
                let (tools, tool) = (Arc::clone(&tools), tool.to_owned());
                tokio::spawn(async move { tools.call(&caller().unwrap(), &tool, arguments).await })
            })
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

fn note(name: &str) -> (&'static str, Value) {
    (
        "write_note",
        json!({ "idempotency_key": key(name), "body": "milk" }),
    )
}

fn wrong(how: &str) -> (&'static str, Value) {
    (
        "go_wrong",
        json!({ "idempotency_key": key(how), "how": how }),
    )
}

#[test]
fn one_poisoned_call_of_each_kind_hurts_nobody_else() {
    for (how, code) in WAYS {
        for position in [0, 15, 31] {
            let ledger = Ledger::new();
            let tools = tools(&ledger.store);
            let mut calls: Vec<_> = (0..31).map(|call| note(&call.to_string())).collect();
            calls.insert(position, wrong(how));
            let replies = in_one_batch(&ledger.store, &tools, calls);
            for (place, reply) in replies.iter().enumerate() {
                if place == position {
                    assert_eq!(reply.error_code(), Some(code), "{how}: {}", reply.to_json());
                } else {
                    assert_succeeded(reply, false);
                }
            }
            assert_eq!(ledger.rows(), (31, 31), "{how} at {position}");
        }
    }
}

#[test]
fn the_same_alone_leaves_a_clean_connection() {
    let ledger = Ledger::new();
    let tools = tools(&ledger.store);
    let ada = caller().unwrap();
    for (written, (how, code)) in (1..).zip(WAYS) {
        let (tool, arguments) = wrong(how);
        let reply = tools.call_blocking(&ada, tool, arguments);
        assert_eq!(reply.error_code(), Some(code), "{how}: {}", reply.to_json());
        if code == "transaction_lost" {
            // It names what did it, and what to write instead.
            let message = reply.error_message().unwrap();
            assert!(
                message.contains("`ABORT` in place of `ROLLBACK`"),
                "{message}"
            );
        }
        assert!(
            !reply.to_json().contains("poison"),
            "{how}: {}",
            reply.to_json()
        );
        let (tool, arguments) = note(how);
        assert_succeeded(&tools.call_blocking(&ada, tool, arguments), false);
        assert_eq!(ledger.rows(), (written, written), "{how}");
    }
}

#[test]
fn a_batch_of_nothing_but_poison_answers_each() {
    let ledger = Ledger::new();
    let tools = tools(&ledger.store);
    let replies = in_one_batch(
        &ledger.store,
        &tools,
        WAYS.iter().map(|(how, _)| wrong(how)).collect(),
    );
    for ((how, code), reply) in WAYS.iter().zip(&replies) {
        assert_eq!(
            reply.error_code(),
            Some(*code),
            "{how}: {}",
            reply.to_json()
        );
    }
    assert_eq!(ledger.rows(), (0, 0));
}

/// Trap 30.
#[test]
fn a_key_twice_in_one_batch_is_written_once() {
    let ledger = Ledger::new();
    let tools = tools(&ledger.store);
    let mut calls: Vec<_> = (0..8).map(|call| note(&(call % 2).to_string())).collect();
    calls.push((
        "write_note",
        json!({ "idempotency_key": key("0"), "body": "honey" }),
    ));
    let replies = in_one_batch(&ledger.store, &tools, calls);
    let replies: Vec<Value> = replies.iter().map(common::json).collect();
    for (place, reply) in replies[..8].iter().enumerate() {
        assert_eq!(reply["status"], "succeeded", "{reply}");
        assert_eq!(reply["replayed"], 2 <= place, "{reply}");
        assert_eq!(reply["operation_id"], replies[place % 2]["operation_id"]);
        assert_eq!(reply["result"], replies[place % 2]["result"]);
    }
    assert_eq!(replies[8]["error"]["code"], "payload_conflict");
    assert_eq!(ledger.rows(), (2, 2));
}

/// A call that was undone in a batch leaves no scope behind that a later one would use.
#[test]
fn a_scope_that_came_with_an_undone_call_is_made_again() {
    let ledger = Ledger::new();
    let tools = tools(&ledger.store);
    let replies = in_one_batch(
        &ledger.store,
        &tools,
        vec![
            wrong("oversized"),
            wrong("deferred"),
            note("first"),
            note("second"),
        ],
    );
    assert_succeeded(&replies[2], false);
    assert_succeeded(&replies[3], false);
    let (tool, arguments) = note("first");
    assert_succeeded(
        &tools.call_blocking(&caller().unwrap(), tool, arguments),
        true,
    );
    let orphans: i64 = ledger
        .store
        .read(|connection| {
            connection.query_row(
                "SELECT count(*) FROM idempotent_receipts
                 WHERE scope NOT IN (SELECT id FROM idempotent_scopes)",
                (),
                |row| row.get(0),
            )
        })
        .map_err(|error: rusqlite::Error| error)
        .unwrap();
    assert_eq!(orphans, 0);
}

/// A store that counts what SQLite runs. Its clock stands still, so that no batch ends
/// because it took long.
fn counted(folder: &TempDir) -> (SqliteStore, Toolbox, Failpoints) {
    watch_logs();
    let failpoints = Failpoints::new();
    let store = SqliteStore::options()
        .clock(ManualClock::new(SystemTime::now()))
        .failpoints(failpoints.clone())
        .open(folder.path().join("db"))
        .unwrap();
    create_notes(&store).unwrap();
    let tools = tools(&store);
    failpoints.reset();
    (store, tools, failpoints)
}

/// A savepoint and its release are two statements more for each call.
#[test]
fn a_batch_does_without_savepoints_until_a_call_fails() {
    let folder = TempDir::new().unwrap();
    let (store, tools, failpoints) = counted(&folder);
    let mut number = 0;
    let mut statements_of = |calls: u64| {
        failpoints.reset();
        let calls = (0..calls).map(|_| {
            number += 1;
            note(&number.to_string())
        });
        for reply in in_one_batch(&store, &tools, calls.collect()) {
            assert_succeeded(&reply, false);
        }
        assert_eq!(failpoints.commits(), 1);
        failpoints.statements()
    };
    statements_of(1); // It brings the scope.
    let without = statements_of(8);
    let (tool, arguments) = wrong("error");
    let failed = tools.call_blocking(&caller().unwrap(), tool, arguments);
    assert_eq!(failed.error_code(), Some("refused"));
    for _ in 0..1_024 / 8 {
        assert_eq!(statements_of(8), without + 2 * 8);
    }
    assert_eq!(statements_of(8), without);
}

/// What queued while the writer was busy is one batch, with one commit.
#[test]
fn calls_that_wait_together_share_one_commit() {
    let folder = TempDir::new().unwrap();
    let (store, tools, failpoints) = counted(&folder);
    let calls = (0..32).map(|call| note(&call.to_string())).collect();
    for reply in in_one_batch(&store, &tools, calls) {
        assert_succeeded(&reply, false);
    }
    assert_eq!(failpoints.commits(), 1);
}

#[idempotent_tool(operation = "write_forever:v1", deadline = "300ms")]
fn write_forever(tx: &Tx) -> Result<(), Failure> {
    let endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                   INSERT INTO notes (scope, body) SELECT 'x', i FROM n";
    tx.execute(endless, ())?;
    Ok(())
}

#[idempotent_tool(operation = "fill_the_disk:v1")]
fn fill_the_disk(tx: &Tx) -> Result<(), Failure> {
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES ('x', hex(zeroblob(8000000)))",
        (),
    )?;
    Ok(())
}

/// An interrupted write and a full disk roll back the whole transaction: the others run again.
#[test]
fn an_interrupt_and_a_full_disk_take_no_other_call_down() {
    watch_logs();
    for (tool, code) in [
        ("write_forever", "deadline_exceeded"),
        ("fill_the_disk", "database_unavailable"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let pages = if tool == "fill_the_disk" {
            1_000
        } else {
            1_000_000
        };
        let store = SqliteStore::options()
            .on_connection(move |connection| {
                connection.query_row(&format!("PRAGMA max_page_count = {pages}"), (), |_| Ok(()))
            })
            .open(folder.path().join("db"))
            .unwrap();
        create_notes(&store).unwrap();
        let tools = Toolbox::builder(store.clone())
            .without_authorization()
            .tool::<write_forever>()
            .tool::<fill_the_disk>()
            .tool::<write_note>()
            .build()
            .unwrap();
        let poison = (tool, json!({ "idempotency_key": key("poison") }));
        let calls = vec![note("before"), note("just before"), poison, note("after")];
        let replies = in_one_batch(&store, &tools, calls);
        assert_eq!(
            replies[2].error_code(),
            Some(code),
            "{}",
            replies[2].to_json()
        );
        for place in [0, 1, 3] {
            assert_succeeded(&replies[place], false);
        }
        let notes: i64 = store
            .read(|connection| {
                connection.query_row("SELECT count(*) FROM notes", (), |row| row.get(0))
            })
            .map_err(|error: rusqlite::Error| error)
            .unwrap();
        assert_eq!(notes, 3);
    }
}

/// Runs SQL before it writes a note; says whether the SQL succeeded.
#[idempotent_tool(operation = "run_before:v1")]
fn run_before(tx: &Tx, sql: String) -> Result<bool, Failure> {
    let outcome = tx.execute_batch(&sql);
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, 'kept')",
        [tx.scope()],
    )?;
    Ok(outcome.is_ok())
}

/// A handler that goes back to a savepoint it has not made would undo others' calls, after
/// which their callers are told of success.
#[test]
fn a_savepoint_that_is_left_open_ends_with_its_call() {
    let ledger = Ledger::new();
    let tools = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<run_before>()
        .tool::<write_note>()
        .build()
        .unwrap();
    // Twice: SQLite asks nobody about a statement that it has prepared before.
    for round in 1..=2 {
        let run = |sql: &str| {
            let arguments =
                json!({ "idempotency_key": key(&format!("{round} {sql}")), "sql": sql });
            ("run_before", arguments)
        };
        let calls = vec![
            run("SAVEPOINT a"),
            note(&format!("{round}")),
            run("ROLLBACK TO a"),
        ];
        let replies = in_one_batch(&ledger.store, &tools, calls);
        for reply in &replies {
            assert_succeeded(reply, false);
        }
        assert_eq!(ledger.rows(), (3 * round, 3 * round));
        assert_eq!(replies[2].result().unwrap().get(), "false");
    }
}

/// What a handler told outside of its transaction, and would tell again.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Told {
    fn times(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Tells its operation's id outside, and says that it does.
#[idempotent_tool(operation = "tell:v1", effects_outside = true)]
fn tell(tx: &Tx, #[state] told: &Arc<Told>) -> Result<String, Failure> {
    let id = tx.operation_id().to_string();
    told.0.lock().unwrap().push(id.clone());
    Ok(id)
}

/// Tells it as well, and doesn't say so.
#[idempotent_tool(operation = "blurt:v1")]
fn blurt(tx: &Tx, #[state] told: &Arc<Told>) -> Result<String, Failure> {
    tell(tx, told)
}

/// The tools on a store of their own, which no call has made cautious yet.
fn telling() -> (Ledger, Toolbox, Arc<Told>) {
    let ledger = Ledger::new();
    create_notes(&ledger.store).unwrap();
    let told = Arc::new(Told::default());
    ledger
        .store
        .transact_blocking(|tx| {
            tx.execute_batch(
                "CREATE TABLE numbered (number INTEGER PRIMARY KEY);
                 INSERT INTO numbered VALUES (1);",
            )
        })
        .unwrap();
    let tools = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .state(Arc::clone(&told))
        .tool::<go_wrong>()
        .tool::<write_note>()
        .tool::<tell>()
        .tool::<blurt>()
        .build()
        .unwrap();
    (ledger, tools, told)
}

fn call(tool: &'static str, name: &str) -> (&'static str, Value) {
    (tool, json!({ "idempotency_key": key(name) }))
}

/// Wherever in the batch the call that fails is, and however it fails on its own.
#[test]
fn a_handler_that_tells_something_outside_runs_once_beside_calls_that_fail() {
    for (how, code) in [
        ("error", "refused"),
        ("panic", "handler_panicked"),
        ("oversized", "result_too_large"),
        ("constraint", "constraint_violated"),
        ("commit", "not_allowed"),
        ("open statement", "statement_left_open"),
    ] {
        for place in 0..4 {
            let (ledger, tools, told) = telling();
            let mut calls = vec![call("tell", "one"), note("between"), call("tell", "two")];
            calls.insert(place, wrong(how));
            let replies = in_one_batch(&ledger.store, &tools, calls);
            assert_eq!(told.times(), 2, "{how} at {place}");
            let told = told.0.lock().unwrap().clone();
            for (position, reply) in replies.iter().enumerate() {
                if position == place {
                    assert_eq!(reply.error_code(), Some(code), "{}", reply.to_json());
                } else {
                    assert_succeeded(reply, false);
                }
            }
            let made: Vec<_> = replies
                .iter()
                .filter_map(|reply| serde_json::from_str::<String>(reply.result()?.get()).ok())
                .collect();
            assert_eq!(told, made, "no id was told that never existed");
        }
    }
}

/// What the declaration is for: without it, and where it can't help, a handler runs again.
#[test]
fn a_handler_runs_again_that_does_not_say_so_and_for_a_transaction_that_is_lost() {
    for (tool, how, times) in [("blurt", "error", 2), ("tell", "or rollback", 2)] {
        let (ledger, tools, told) = telling();
        let calls = vec![call(tool, "one"), wrong(how)];
        let replies = in_one_batch(&ledger.store, &tools, calls);
        assert_succeeded(&replies[0], false);
        assert_eq!(told.times(), times, "{tool} beside {how}");
    }
}

/// What the last statement changed, by the method and in SQL, before and after a write.
#[idempotent_tool(operation = "count_changes:v1")]
fn count_changes(tx: &Tx) -> Result<[i64; 4], Failure> {
    let in_sql = || tx.query_row("SELECT changes()", (), |row| row.get(0));
    let changes = || i64::try_from(tx.changes()).unwrap();
    let before = [changes(), in_sql()?];
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, 'a'), (?1, 'b'), (?1, 'c')",
        [tx.scope()],
    )?;
    Ok([before[0], before[1], changes(), in_sql()?])
}

#[test]
fn a_call_reads_nothing_of_what_others_have_changed() {
    let ledger = Ledger::new();
    create_notes(&ledger.store).unwrap();
    let tools = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<count_changes>()
        .tool::<write_note>()
        .tool::<go_wrong>()
        .build()
        .unwrap();
    let counted = |name: &str| call("count_changes", name);
    let calls = vec![counted("a"), note("b"), counted("c"), counted("d")];
    let mut replies = in_one_batch(&ledger.store, &tools, calls);
    // In savepoints, after one that failed; and alone.
    let calls = vec![note("e"), wrong("error"), counted("f"), counted("g")];
    replies.extend(in_one_batch(&ledger.store, &tools, calls));
    let (tool, arguments) = counted("h");
    replies.push(tools.call_blocking(&common::ada(), tool, arguments));
    let results: Vec<_> = replies
        .iter()
        .filter_map(|reply| serde_json::from_str::<[i64; 4]>(reply.result()?.get()).ok())
        .collect();
    assert_eq!(results, [[0, 0, 3, 3]; 6]);
    // Nor does the application's own transaction.
    let before = ledger.store.transact_blocking(|tx| {
        Ok::<_, rusqlite::Error>((
            tx.changes(),
            tx.query_row("SELECT changes()", (), |row| row.get::<_, i64>(0))?,
        ))
    });
    assert_eq!(before.unwrap(), (0, 0));
}
