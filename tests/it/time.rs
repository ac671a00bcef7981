//! Retention, tombstones, forgetting, and clocks that go wrong.

use std::time::{Duration, SystemTime};

use idempotent_tool::{Clock, Failure, Toolbox, Tx, idempotent_tool};
use serde_json::json;

use crate::common::{Ledger, ada, assert_code, assert_succeeded, key, marked};

const DAY: Duration = Duration::from_hours(24);

/// By how much later pruning takes what is past its time.
const MARGIN: Duration = Duration::from_mins(1);

/// Kept for ten days, refused for a hundred more.
#[idempotent_tool(operation = "create_note:v1", retention = "10d", tombstone = "100d")]
fn create_note(tx: &Tx, body: String) -> Result<i64, Failure> {
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, ?2)",
        (tx.scope(), &body),
    )?;
    Ok(tx.last_insert_rowid())
}

/// The same version with a shorter retention.
#[idempotent_tool(operation = "create_note:v1", retention = "1d", tombstone = "1d")]
fn create_note_shortly(tx: &Tx, body: String) -> Result<i64, Failure> {
    create_note(tx, body)
}

fn toolbox(ledger: &Ledger) -> Toolbox {
    Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<create_note>()
        .build()
        .unwrap()
}

fn call(tools: &Toolbox, name: &str) -> idempotent_tool::Reply {
    let arguments = json!({ "idempotency_key": key(name), "body": marked("milk") });
    tools.call_blocking(&ada(), "create_note", arguments)
}

#[test]
fn a_receipt_is_replayed_until_its_retention_ends_and_then_refused() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    assert_succeeded(&call(&tools, "kept"), false);
    ledger.clock.advance(9 * DAY);
    ledger
        .clock
        .advance(DAY.saturating_sub(Duration::from_millis(1)));
    assert_succeeded(&call(&tools, "kept"), true);
    ledger.clock.advance(Duration::from_millis(1));
    assert_code(&call(&tools, "kept"), "key_expired");
    ledger.store.prune(100).unwrap();
    assert_code(&call(&tools, "kept"), "key_expired");
    assert_eq!(ledger.rows(), (1, 1));
}

#[test]
fn a_key_is_free_only_once_its_tombstone_is_pruned() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    assert_succeeded(&call(&tools, "forgotten"), false);
    ledger.clock.advance(10 * DAY + MARGIN);
    ledger.store.prune(100).unwrap();
    ledger.clock.advance(100 * DAY + MARGIN);
    // Its time has come, but the row is there: comparing times only ever refuses.
    assert_code(&call(&tools, "forgotten"), "key_expired");
    ledger.store.prune(100).unwrap();
    assert_eq!(ledger.rows(), (1, 0));
    assert_succeeded(&call(&tools, "forgotten"), false);
    assert_eq!(ledger.rows(), (2, 1));
}

#[test]
fn a_pruned_tombstone_keeps_no_result() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    assert_succeeded(&call(&tools, "emptied"), false);
    ledger.clock.advance(10 * DAY + MARGIN);
    ledger.store.prune(100).unwrap();
    let left: (Option<String>, Option<Vec<u8>>) = rusqlite::Connection::open(ledger.path())
        .unwrap()
        .query_row(
            "SELECT result, fingerprint FROM idempotent_receipts",
            (),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!(left, (None, None));
}

#[test]
fn the_retention_is_fixed_per_receipt() {
    let ledger = Ledger::new();
    assert_succeeded(&call(&toolbox(&ledger), "fixed"), false);
    let shorter = Toolbox::builder(ledger.reopen())
        .without_authorization()
        .tool::<create_note_shortly>()
        .build()
        .unwrap();
    ledger.clock.advance(9 * DAY);
    assert_succeeded(&call(&shorter, "fixed"), true);
}

#[test]
fn pruning_is_bounded() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    for index in 0..10 {
        assert_succeeded(&call(&tools, &format!("bounded-{index}")), false);
    }
    ledger.clock.advance(200 * DAY);
    let pruned = |limit| {
        ledger.store.prune(limit).unwrap();
        ledger.rows().1
    };
    // Receipts become tombstones first, three at a time; nothing disappears at once.
    for _ in 0..4 {
        assert_eq!(pruned(3), 10);
    }
    ledger.clock.advance(100 * DAY + MARGIN);
    for _ in 0..20 {
        ledger.store.prune(3).unwrap();
    }
    assert_eq!(ledger.rows(), (10, 0));
}

#[test]
fn a_clock_that_goes_back_a_year_frees_no_key_and_loses_no_receipt() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    assert_succeeded(&call(&tools, "before"), false);
    let now = ledger.clock.wall();
    ledger.clock.set_wall(now - 365 * DAY);
    assert_succeeded(&call(&tools, "before"), true);
    assert_succeeded(&call(&tools, "during"), false);
    ledger.store.prune(100).unwrap();
    assert_eq!(ledger.rows(), (2, 2));
    ledger.clock.set_wall(now);
    assert_succeeded(&call(&tools, "before"), true);
    assert_succeeded(&call(&tools, "during"), true);
    assert_eq!(ledger.rows(), (2, 2));
}

#[test]
fn a_clock_that_jumps_ahead_two_years_refuses_no_key() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    assert_succeeded(&call(&tools, "ahead"), false);
    let now = ledger.clock.wall();
    ledger.clock.set_wall(now + 730 * DAY);
    for _ in 0..3 {
        ledger.store.prune(100).unwrap();
        assert_succeeded(&call(&tools, "ahead"), true);
    }
    ledger.clock.set_wall(now);
    assert_succeeded(&call(&tools, "ahead"), true);
    assert_eq!(ledger.rows(), (1, 1));
}

#[test]
fn a_clock_before_1970_is_harmless() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    ledger.clock.set_wall(SystemTime::UNIX_EPOCH - DAY);
    assert_succeeded(&call(&tools, "early"), false);
    assert_succeeded(&call(&tools, "early"), true);
}
