//! What a handler may not do, and what it may.

use idempotent_tool::{Failure, SqliteStore, Toolbox, TransactError, Tx, idempotent_tool};
use idempotent_tool_tests::{caller, write_note};
use rusqlite::Connection;
use serde_json::json;

use crate::common::{Ledger, assert_succeeded, key, marked};

/// Runs SQL after a note, in one of several ways, and swallows the error.
#[idempotent_tool(operation = "run_sql:v1")]
fn run_sql(tx: &Tx, sql: String, how: String) -> Result<bool, Failure> {
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, 'kept?')",
        [tx.scope()],
    )?;
    let outcome = match how.as_str() {
        "batch" => tx.execute_batch(&sql),
        "cached" => tx
            .prepare_cached(&sql)
            .and_then(|mut sql| sql.raw_execute())
            .map(|_| ()),
        "prepared" => tx
            .prepare(&sql)
            .and_then(|mut sql| sql.raw_execute())
            .map(|_| ()),
        "query" => tx.query_row(&sql, (), |_| Ok(())),
        _ => tx.execute(&sql, ()).map(|_| ()),
    };
    Ok(outcome.is_ok())
}

fn tools(ledger: &Ledger) -> Toolbox {
    Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<run_sql>()
        .tool::<write_note>()
        .build()
        .unwrap()
}

const REFUSED: [(&str, &str); 40] = [
    ("BEGIN", "`BEGIN`"),
    ("COMMIT", "`COMMIT`"),
    ("commit;", "`COMMIT`"),
    ("END", "`COMMIT`"),
    ("/* a comment */ COMMIT -- and another", "`COMMIT`"),
    ("ROLLBACK", "`ROLLBACK`"),
    ("SAVEPOINT idempotent_call", "savepoint"),
    ("RELEASE idempotent_call", "savepoint"),
    ("ROLLBACK TO IDEMPOTENT_CALL", "savepoint"),
    ("ATTACH ':memory:' AS other", "`ATTACH`"),
    ("DETACH main", "`ATTACH`"),
    ("PRAGMA user_version = 7", "pragma"),
    ("PRAGMA foreign_keys = OFF", "pragma"),
    ("PRAGMA synchronous = OFF", "pragma"),
    ("PRAGMA journal_mode = DELETE", "pragma"),
    ("PRAGMA writable_schema = ON", "pragma"),
    ("PRAGMA wal_checkpoint(TRUNCATE)", "pragma"),
    ("PRAGMA defer_foreign_keys = ON", "pragma"),
    ("PRAGMA query_only = ON", "pragma"),
    ("DELETE FROM idempotent_receipts", "ledger"),
    ("DELETE FROM IDEMPOTENT_receipts WHERE 0", "ledger"),
    ("UPDATE idempotent_receipts SET expires_at = 0", "ledger"),
    (
        "INSERT INTO idempotent_scopes (scope) VALUES ('x')",
        "ledger",
    ),
    (
        "REPLACE INTO idempotent_ledger VALUES ('schema', 9)",
        "ledger",
    ),
    (
        "WITH x AS (SELECT 1) DELETE FROM idempotent_receipts",
        "ledger",
    ),
    (
        "CREATE TABLE copied AS SELECT * FROM idempotent_receipts",
        "ledger",
    ),
    ("DROP TABLE idempotent_receipts", "ledger"),
    ("DROP INDEX idempotent_identity", "ledger"),
    ("ALTER TABLE idempotent_receipts RENAME TO mine", "ledger"),
    ("ALTER TABLE idempotent_receipts ADD COLUMN mine", "ledger"),
    ("ALTER TABLE spare RENAME TO idempotent_mine", "ledger"),
    ("CREATE TABLE idempotent_mine (x)", "ledger"),
    ("CREATE VIEW idempotent_mine AS SELECT 1", "ledger"),
    ("CREATE TEMP TABLE idempotent_receipts (x)", "ledger"),
    ("CREATE INDEX mine ON idempotent_receipts (seq)", "ledger"),
    (
        "CREATE TRIGGER mine AFTER INSERT ON idempotent_receipts BEGIN SELECT 1; END",
        "ledger",
    ),
    (
        "CREATE TEMP TRIGGER mine AFTER INSERT ON main.idempotent_receipts BEGIN SELECT 1; END",
        "ledger",
    ),
    ("REINDEX idempotent_identity", "ledger"),
    ("ANALYZE idempotent_receipts", "ledger"),
    (
        "CREATE VIRTUAL TABLE idempotent_mine USING fts5(x)",
        "ledger",
    ),
];

#[test]
fn what_ends_the_transaction_or_reaches_beyond_it_is_refused_by_name() {
    let ledger = Ledger::new();
    let spare = |tx: &idempotent_tool::Transaction| tx.execute_batch("CREATE TABLE spare (x)");
    ledger.store.transact_blocking(spare).unwrap();
    let tools = tools(&ledger);
    let ada = caller().unwrap();
    let mut clean = 0;
    for (sql, named) in REFUSED {
        for how in ["execute", "batch", "cached", "prepared"] {
            let arguments = json!({ "idempotency_key": key(&format!("{how} {clean}")), "sql": sql, "how": how });
            let reply = tools.call_blocking(&ada, "run_sql", arguments);
            assert_eq!(
                reply.error_code(),
                Some("not_allowed"),
                "{how} {sql}: {}",
                reply.to_json()
            );
            let message = reply.error_message().unwrap();
            assert!(message.contains(named), "{how} {sql}: {message}");
            let next =
                json!({ "idempotency_key": key(&format!("next {clean}")), "body": marked("x") });
            assert_succeeded(&tools.call_blocking(&ada, "write_note", next), false);
            clean += 1;
            assert_eq!(ledger.rows(), (clean, clean), "{how} {sql}");
        }
    }
}

#[test]
fn a_commit_in_the_middle_of_a_batch_of_statements_is_refused() {
    let ledger = Ledger::new();
    let tools = tools(&ledger);
    let sql = "INSERT INTO notes (scope, body) VALUES ('x', 'y'); COMMIT; BEGIN;";
    let arguments = json!({ "idempotency_key": key("middle"), "sql": sql, "how": "batch" });
    let reply = tools.call_blocking(&caller().unwrap(), "run_sql", arguments);
    assert_eq!(
        reply.error_code(),
        Some("not_allowed"),
        "{}",
        reply.to_json()
    );
    assert_eq!(ledger.rows(), (0, 0));
}

/// A trigger of the application that reaches into the ledger is refused when it fires.
#[test]
fn a_trigger_that_writes_the_ledger_is_refused_when_it_fires() {
    let ledger = Ledger::new();
    let tools = tools(&ledger);
    Connection::open(ledger.path())
        .unwrap()
        .execute_batch(
            "CREATE TRIGGER sly AFTER INSERT ON notes
             BEGIN DELETE FROM idempotent_receipts; END",
        )
        .unwrap();
    let arguments = json!({ "idempotency_key": key("sly"), "body": marked("x") });
    let reply = tools.call_blocking(&caller().unwrap(), "write_note", arguments);
    assert_eq!(
        reply.error_code(),
        Some("not_allowed"),
        "{}",
        reply.to_json()
    );
    assert_eq!(ledger.rows(), (0, 0));
}

const ALLOWED: [&str; 16] = [
    "CREATE VIRTUAL TABLE words USING fts5(body); INSERT INTO words VALUES ('milk and honey');
     UPDATE words SET body = 'tea' WHERE words MATCH 'honey'; DROP TABLE words",
    "SAVEPOINT a; INSERT INTO notes (scope, body) VALUES ('x', 'y'); ROLLBACK TO a; RELEASE a",
    "SAVEPOINT a; SAVEPOINT b; SELECT 1",
    "CREATE TEMP TABLE scratch (x); INSERT INTO scratch VALUES (1)",
    "CREATE TEMP TABLE scratch (x); CREATE TEMP VIEW v AS SELECT * FROM scratch;
     CREATE TEMP TRIGGER t AFTER INSERT ON scratch BEGIN SELECT 1; END;
     CREATE INDEX temp.i ON scratch (x)",
    "CREATE VIRTUAL TABLE temp.scratch USING fts5(x); INSERT INTO temp.scratch VALUES ('y')",
    "CREATE TABLE scratch (x); CREATE INDEX i ON scratch (x); ALTER TABLE scratch ADD COLUMN y;
     ALTER TABLE scratch RENAME TO scratched; DROP TABLE scratched",
    "CREATE TABLE s (x INTEGER PRIMARY KEY AUTOINCREMENT); INSERT INTO s VALUES (NULL); DROP TABLE s",
    "PRAGMA table_info(notes)",
    "PRAGMA user_version",
    "PRAGMA foreign_key_check",
    "SELECT count(*) FROM sqlite_schema",
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10)
     INSERT INTO notes (scope, body) SELECT 'x', i FROM n; DELETE FROM notes WHERE scope = 'x'",
    "REINDEX notes",
    "ANALYZE notes",
    "SELECT json_extract('{}', '$')",
];

#[test]
fn what_stays_inside_the_transaction_is_allowed() {
    let ledger = Ledger::new();
    let tools = tools(&ledger);
    let ada = caller().unwrap();
    // Twice, since what a call leaves on the connection would meet the second.
    for round in 0..2 {
        for (number, sql) in ALLOWED.iter().enumerate() {
            let name = key(&format!("{round} {number}"));
            let arguments = json!({ "idempotency_key": name, "sql": sql, "how": "batch" });
            let reply = tools.call_blocking(&ada, "run_sql", arguments);
            assert_succeeded(&reply, false);
            assert_eq!(reply.result().unwrap().get(), "true", "{sql}");
        }
    }
}

#[test]
fn temporary_objects_end_with_their_call() {
    let ledger = Ledger::new();
    let tools = tools(&ledger);
    let ada = caller().unwrap();
    for (number, how) in ["batch", "cached", "execute", "cached"].iter().enumerate() {
        let sql = "CREATE TEMP TABLE scratch (x)";
        let arguments =
            json!({ "idempotency_key": key(&number.to_string()), "sql": sql, "how": how });
        let reply = tools.call_blocking(&ada, "run_sql", arguments);
        assert_succeeded(&reply, false);
        assert_eq!(reply.result().unwrap().get(), "true", "{how}");
    }
}

/// In WAL mode a commit over several files is not one: a receipt could outlive its effect.
#[test]
fn an_attached_database_is_read_and_not_written() {
    let ledger = Ledger::new();
    let other = ledger.folder.path().join("other.db");
    Connection::open(&other)
        .unwrap()
        .execute_batch("CREATE TABLE prices (price INTEGER); INSERT INTO prices VALUES (7)")
        .unwrap();
    let store = SqliteStore::options()
        .on_connection(move |connection| {
            connection
                .execute("ATTACH ?1 AS other", [other.to_str().unwrap_or_default()])
                .map(|_| ())
        })
        .open(ledger.path())
        .unwrap();
    let tools = Toolbox::builder(store)
        .without_authorization()
        .tool::<run_sql>()
        .build()
        .unwrap();
    let ada = caller().unwrap();
    let run = |sql: &str, how: &str| {
        let arguments =
            json!({ "idempotency_key": key(&format!("{sql} {how}")), "sql": sql, "how": how });
        tools.call_blocking(&ada, "run_sql", arguments)
    };
    let read = "INSERT INTO notes (scope, body) SELECT price, price FROM other.prices";
    assert_succeeded(&run(read, "execute"), false);
    assert_succeeded(&run("SELECT price FROM other.prices", "query"), false);
    assert_eq!(ledger.rows(), (3, 2));
    for sql in [
        "INSERT INTO other.prices VALUES (8)",
        "UPDATE other.prices SET price = 8",
        "DELETE FROM other.prices",
        "CREATE TABLE other.more (x)",
        "DROP TABLE other.prices",
    ] {
        let refused = run(sql, "batch");
        let message = refused.error_message().unwrap_or_default();
        assert!(
            message.contains("attached database"),
            "{sql}: {}",
            refused.to_json()
        );
    }
    assert_eq!(ledger.rows(), (3, 2));
}

#[test]
fn a_closure_is_restricted_as_a_handler_is() {
    let ledger = Ledger::new();
    let refused = ledger
        .store
        .transact_blocking(|tx| {
            tx.execute("INSERT INTO notes (scope, body) VALUES ('x', 'y')", ())?;
            let _ = tx.execute_batch("COMMIT");
            Ok::<_, rusqlite::Error>(())
        })
        .unwrap_err();
    assert!(
        matches!(refused, TransactError::NotAllowed(_)),
        "{refused:?}"
    );
    let panicked = ledger.store.transact_blocking(|tx| {
        tx.execute("INSERT INTO notes (scope, body) VALUES ('x', 'y')", ())?;
        assert_eq!(tx.last_insert_rowid(), 0, "on purpose");
        Ok::<_, rusqlite::Error>(())
    });
    assert!(
        matches!(panicked, Err(TransactError::Panicked)),
        "{panicked:?}"
    );
    assert_eq!(ledger.rows(), (0, 0));
}

/// A read sees no half of a call, and can't write.
#[test]
fn the_applications_reads_can_not_write() {
    let ledger = Ledger::new();
    let memory = SqliteStore::in_memory().unwrap();
    crate::common::create_notes(&memory);
    for store in [&ledger.store, &memory] {
        let written = store.read(|connection| connection.execute("DELETE FROM notes", ()));
        assert!(written.is_err());
        store
            .transact_blocking(|tx| tx.execute("DELETE FROM notes", ()))
            .unwrap();
        // A transaction that is left open is ended.
        store
            .read(|connection| connection.execute_batch("BEGIN; SELECT 1 FROM notes"))
            .unwrap();
        store
            .transact_blocking(|tx| tx.execute("DELETE FROM notes", ()))
            .unwrap();
    }
}
