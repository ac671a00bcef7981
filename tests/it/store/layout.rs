//! What a receipt costs on the disk.

use idempotent_tool::{
    Failure, IdempotencyKey, SqliteStore, Synchronous, Toolbox, Tx, idempotent_tool,
};
use idempotent_tool_tests::caller;
use serde_json::json;
use uuid::Uuid;

use crate::common::watch_logs;

const RECEIPTS: u32 = 3_000;

/// The largest, beside key and result, all indexes counted.
const LARGEST: f64 = 120.0;

#[idempotent_tool(operation = "count_up:v1")]
fn count_up(tx: &Tx) -> Result<u64, Failure> {
    tx.execute("UPDATE counter SET value = value + 1", ())?;
    Ok(tx.changes())
}

/// Bytes of pages per receipt, without one copy of its key and its result.
fn bytes_per_receipt(key: impl Fn() -> String) -> f64 {
    watch_logs();
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::options()
        .synchronous(Synchronous::Normal)
        .open(folder.path().join("db"))
        .unwrap();
    store
        .transact_blocking(|tx| {
            tx.execute_batch("CREATE TABLE counter (value); INSERT INTO counter VALUES (0)")
        })
        .unwrap();
    let tools = Toolbox::builder(store.clone())
        .without_authorization()
        .tool::<count_up>()
        .build()
        .unwrap();
    let ada = caller().unwrap();
    for _ in 0..RECEIPTS {
        let arguments = json!({ "idempotency_key": key() });
        assert!(
            tools
                .call_blocking(&ada, "count_up", arguments)
                .result()
                .is_some()
        );
    }
    let (pages, kept): (i64, i64) = store
        .read(|connection| {
            connection.query_row(
                "SELECT (SELECT sum(pgsize) FROM dbstat
                         WHERE name IN ('idempotent_receipts', 'idempotent_identity')),
                        (SELECT sum(octet_length(key) + octet_length(result))
                         FROM idempotent_receipts)",
                (),
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
        })
        .map_err(|error: rusqlite::Error| error)
        .unwrap();
    f64::from(i32::try_from(pages - kept).unwrap()) / f64::from(RECEIPTS)
}

#[test]
fn a_receipt_with_a_key_in_time_order_is_small() {
    let bytes = bytes_per_receipt(|| IdempotencyKey::generate().as_str().to_owned());
    assert!(bytes <= LARGEST, "{bytes}");
}

/// Pages that random keys fall into are two thirds full.
#[test]
fn a_receipt_with_a_random_key_is_little_larger() {
    let bytes = bytes_per_receipt(|| Uuid::new_v4().to_string());
    assert!(bytes <= LARGEST * 1.4, "{bytes}");
}
