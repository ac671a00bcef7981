//! Versions: a key used under v1 is served by v1, never executed under v2.

use idempotent_tool::{Failure, Reply, SqliteStore, Toolbox, Tx, idempotent_tool};
use serde_json::{Value, json};

use crate::common::{Ledger, ada, assert_code, assert_succeeded, key, marked};

#[idempotent_tool(operation = "create_note:v1")]
fn create_note_v1(tx: &Tx, body: String) -> Result<String, Failure> {
    insert(tx, &body)?;
    Ok("made under v1".into())
}

#[idempotent_tool(operation = "create_note:v2")]
fn create_note_v2(
    tx: &Tx,
    body: String,
    #[serde(default)] pinned: bool,
    folder: Option<String>,
) -> Result<String, Failure> {
    insert(tx, &body)?;
    Ok(format!("made under v2, {pinned} {folder:?}"))
}

fn insert(tx: &Tx, body: &str) -> Result<(), Failure> {
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, ?2)",
        (tx.scope(), body),
    )?;
    Ok(())
}

fn old(store: SqliteStore) -> Toolbox {
    let builder = Toolbox::builder(store).without_authorization();
    builder.tool::<create_note_v1>().build().unwrap()
}

fn both(store: SqliteStore) -> Toolbox {
    let builder = Toolbox::builder(store).without_authorization();
    builder
        .tool::<create_note_v2>()
        .tool::<create_note_v1>()
        .build()
        .unwrap()
}

fn new(store: SqliteStore) -> Toolbox {
    let builder = Toolbox::builder(store).without_authorization();
    builder.tool::<create_note_v2>().build().unwrap()
}

fn call(tools: &Toolbox, name: &str, mut arguments: Value) -> Reply {
    arguments["idempotency_key"] = key(name).into();
    tools.call_blocking(&ada(), "create_note", arguments)
}

#[test]
fn a_key_used_under_v1_is_replayed_through_v2s_shape() {
    let ledger = Ledger::new();
    let body = marked("milk");
    let first = call(&old(ledger.store.clone()), "old", json!({ "body": body }));
    let tools = both(ledger.reopen());
    for arguments in [
        json!({ "body": body }),
        json!({ "body": body, "pinned": false }),
        json!({ "body": body, "pinned": false, "folder": null }),
    ] {
        let retried = call(&tools, "old", arguments);
        assert_succeeded(&retried, true);
        assert_eq!(retried.operation_id(), first.operation_id());
        assert_eq!(retried.result().unwrap().get(), r#""made under v1""#);
    }
    assert_eq!(ledger.rows(), (1, 1));
}

#[test]
fn what_v1_cannot_mean_is_a_conflict_and_what_neither_means_is_invalid() {
    let ledger = Ledger::new();
    let body = marked("milk");
    call(&old(ledger.store.clone()), "old", json!({ "body": body }))
        .operation_id()
        .unwrap();
    let tools = both(ledger.reopen());
    let pinned = call(&tools, "old", json!({ "body": body, "pinned": true }));
    assert_code(&pinned, "payload_conflict");
    let foldered = call(
        &tools,
        "old",
        json!({ "body": body, "folder": marked("inbox") }),
    );
    assert_code(&foldered, "payload_conflict");
    let invalid = call(&tools, "old", json!({ "body": body, "colour": "red" }));
    assert_code(&invalid, "invalid_arguments");
    assert_eq!(ledger.rows(), (1, 1));
}

#[test]
fn a_key_of_an_unregistered_version_is_refused() {
    let ledger = Ledger::new();
    let body = marked("milk");
    call(&old(ledger.store.clone()), "old", json!({ "body": body }))
        .operation_id()
        .unwrap();
    let tools = new(ledger.reopen());
    assert_code(
        &call(&tools, "old", json!({ "body": body })),
        "version_conflict",
    );
    assert_succeeded(
        &call(&tools, "new", json!({ "body": body, "pinned": true })),
        false,
    );
    assert_eq!(ledger.rows(), (2, 2));
}

#[test]
fn a_key_used_under_v2_meets_an_old_server_as_a_version_conflict() {
    let ledger = Ledger::new();
    let body = marked("milk");
    let first = call(
        &both(ledger.store.clone()),
        "new",
        json!({ "body": body, "pinned": true }),
    );
    assert_eq!(
        first.result().unwrap().get(),
        r#""made under v2, true None""#
    );
    let tools = old(ledger.reopen());
    assert_code(
        &call(&tools, "new", json!({ "body": body })),
        "version_conflict",
    );
    assert_eq!(ledger.rows(), (1, 1));
}

#[test]
fn the_listing_shows_the_highest_version() {
    let ledger = Ledger::new();
    let tools = both(ledger.store.clone());
    let names: Vec<_> = tools.list().map(|tool| tool.name.clone()).collect();
    assert_eq!(names, ["create_note"]);
    let properties = &tools.describe("create_note").unwrap().input_schema["properties"];
    assert!(properties.get("pinned").is_some(), "{properties}");
}
