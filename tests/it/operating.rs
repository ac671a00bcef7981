//! The functions of the page on operating a ledger, as it shows them, on a ledger in use.

use std::{path::Path, time::Duration};

use idempotent_tool_tests::toolbox;
use rusqlite::{Connection, backup::Backup};
use serde_json::json;

use crate::common::{Ledger, ada, assert_succeeded, key};

const PAGE: &str = include_str!("../../docs/guide/operating.md");

/// Copies the database into a file that doesn't exist yet.
fn back_up(database: &Path, copy: &str) -> rusqlite::Result<()> {
    let connection = Connection::open(database)?;
    connection.execute("VACUUM INTO ?1", [copy])?;
    Ok(())
}

/// Puts a copy back into a database, which servers may have open.
fn restore(copy: &Path, database: &Path) -> rusqlite::Result<()> {
    let copy = Connection::open(copy)?;
    let mut database = Connection::open(database)?;
    let backup = Backup::new(&copy, &mut database)?;
    // All pages at once: nobody writes between them.
    backup.run_to_completion(i32::MAX, Duration::from_millis(10), None)
}

#[test]
fn the_page_shows_the_functions_that_are_tested_here() {
    let here = include_str!("operating.rs");
    let mut shown = 0;
    for block in PAGE.split("```rust,ignore\n").skip(1) {
        let (block, _) = block.split_once("```").unwrap();
        assert!(here.contains(block), "{block}");
        shown += 1;
    }
    assert_eq!(shown, 2);
}

#[test]
fn a_copy_is_taken_and_put_back_while_a_server_runs() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger.store).unwrap();
    let write = |name: &str| {
        let arguments = json!({ "idempotency_key": key(name), "body": "milk" });
        tools.call_blocking(&ada(), "write_note", arguments)
    };
    assert_succeeded(&write("before"), false);
    let copy = ledger.folder.path().join("copy");
    back_up(&ledger.path(), copy.to_str().unwrap()).unwrap();
    assert_succeeded(&write("after"), false);
    restore(&copy, &ledger.path()).unwrap();
    assert_eq!(ledger.rows(), (1, 1));
    assert_succeeded(&write("before"), true);
    assert_succeeded(&write("after"), false);
    assert_eq!(ledger.rows(), (2, 2));
}

#[test]
fn the_versions_are_where_the_page_says() {
    let ledger = Ledger::new();
    let (_, sql) = PAGE.split_once("```sql\n").unwrap();
    let (sql, _) = sql.split_once("```").unwrap();
    let connection = Connection::open(ledger.path()).unwrap();
    let mut versions = connection.prepare(sql.trim()).unwrap();
    let rows = versions.query_map((), |row| Ok((row.get(0)?, row.get(1)?)));
    let mut rows: Vec<(String, i64)> = rows.unwrap().map(Result::unwrap).collect();
    rows.sort();
    let [(oldest, from), (schema, to)] = &rows[..] else {
        panic!("{rows:?}")
    };
    assert_eq!(
        (oldest.as_str(), schema.as_str()),
        ("oldest_writer", "schema")
    );
    assert!(from <= to);
}
