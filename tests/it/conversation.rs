//! A call, its retry, and what must not be taken for a retry.

use std::collections::BTreeSet;

use idempotent_tool::{Caller, Failure, Scope, Status, Toolbox, Tx, idempotent_tool};
use serde_json::json;

use crate::common::{Ledger, ada, assert_code, assert_succeeded, caller, json, key, marked};

/// Create a note.
#[idempotent_tool(operation = "create_note:v1")]
pub(crate) fn create_note(tx: &Tx, body: String) -> Result<i64, Failure> {
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, ?2)",
        (tx.scope(), &body),
    )?;
    Ok(tx.last_insert_rowid())
}

/// Another operation with the same arguments.
#[idempotent_tool(operation = "draft_note:v1")]
fn draft_note(tx: &Tx, body: String) -> Result<i64, Failure> {
    create_note(tx, body)
}

/// Refuses, after it has written.
#[idempotent_tool(operation = "refuse_note:v1")]
fn refuse_note(tx: &Tx, body: String, #[serde(default)] later: bool) -> Result<i64, Failure> {
    create_note(tx, body)?;
    let failure = Failure::new("too_many_notes", "the project is full");
    Err(if later { failure.retryable() } else { failure })
}

fn toolbox(ledger: &Ledger) -> Toolbox {
    Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<create_note>()
        .tool::<draft_note>()
        .tool::<refuse_note>()
        .build()
        .unwrap()
}

#[test]
fn a_retry_gets_the_first_result_and_no_second_effect() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    let arguments = json!({ "idempotency_key": key("retry"), "body": marked("milk") });
    let first = tools.call_blocking(&ada(), "create_note", arguments.clone());
    let again = tools.call_blocking(&ada(), "create_note", arguments);
    assert_succeeded(&first, false);
    assert_succeeded(&again, true);
    assert_eq!(first.operation_id(), again.operation_id());
    assert_eq!(first.result().unwrap().get(), again.result().unwrap().get());
    assert_eq!(ledger.rows(), (1, 1));
}

#[test]
fn a_retry_in_a_new_process_gets_the_first_result() {
    let ledger = Ledger::new();
    let arguments = json!({ "idempotency_key": key("restart"), "body": marked("milk") });
    let first = toolbox(&ledger).call_blocking(&ada(), "create_note", arguments.clone());
    let restarted = Toolbox::builder(ledger.reopen())
        .without_authorization()
        .tool::<create_note>()
        .build()
        .unwrap();
    let again = restarted.call_blocking(&ada(), "create_note", arguments);
    assert_succeeded(&again, true);
    assert_eq!(first.operation_id(), again.operation_id());
    assert_eq!(ledger.rows(), (1, 1));
}

#[tokio::test]
async fn the_async_call_is_the_same_call() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    let arguments = json!({ "idempotency_key": key("async"), "body": marked("milk") });
    let first = tools.call(&ada(), "create_note", arguments.clone()).await;
    let again = tools.call(&ada(), "create_note", arguments).await;
    assert_succeeded(&first, false);
    assert_succeeded(&again, true);
    assert_eq!(ledger.rows(), (1, 1));
}

#[test]
fn other_arguments_under_a_used_key_are_a_conflict_that_reveals_nothing() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    let call = |body: String| {
        let arguments = json!({ "idempotency_key": key("conflict"), "body": body });
        tools.call_blocking(&ada(), "create_note", arguments)
    };
    let first = call(marked("the first body"));
    let conflict = call(marked("another body"));
    assert_code(&conflict, "payload_conflict");
    assert_eq!(conflict.status(), Status::Rejected);
    let text = conflict.to_json();
    let operation_id = first.operation_id().unwrap().to_string();
    for secret in [
        &*operation_id,
        "the first body",
        "another body",
        &*key("conflict"),
    ] {
        assert!(!text.contains(secret), "{text}");
    }
    assert_eq!(ledger.rows(), (1, 1));
}

#[test]
fn the_same_key_of_another_principal_is_another_operation() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    let arguments = json!({ "idempotency_key": key("shared"), "body": marked("milk") });
    let hers = tools.call_blocking(&ada(), "create_note", arguments.clone());
    let his = tools.call_blocking(&caller("bob"), "create_note", arguments);
    assert_succeeded(&his, false);
    assert_ne!(hers.operation_id(), his.operation_id());
    assert_eq!(ledger.rows(), (2, 2));
}

#[test]
fn each_component_of_a_scope_keeps_keys_apart() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    let a = || Scope::builder().account("a");
    let scopes = [
        a(),
        a().principal(""),
        a().principal("p"),
        a().workspace("p"),
        a().principal("p").workspace("w"),
        Scope::builder().account("b").principal("p").workspace("w"),
        Scope::builder().principal("a"),
        Scope::builder().workspace("a"),
        Scope::builder().account("a\",\"p"),
    ];
    let mut operations = BTreeSet::new();
    for scope in scopes {
        let caller = Caller::new(scope.build().unwrap());
        let arguments = json!({ "idempotency_key": key("everywhere"), "body": marked("milk") });
        let reply = tools.call_blocking(&caller, "create_note", arguments);
        assert_succeeded(&reply, false);
        operations.insert(reply.operation_id().unwrap());
    }
    assert_eq!(operations.len(), 9);
    assert_eq!(ledger.rows(), (9, 9));
}

#[test]
fn the_same_key_under_another_operation_is_another_operation() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    let arguments = json!({ "idempotency_key": key("two-tools"), "body": marked("milk") });
    let note = tools.call_blocking(&ada(), "create_note", arguments.clone());
    let draft = tools.call_blocking(&ada(), "draft_note", arguments);
    assert_succeeded(&draft, false);
    assert_ne!(note.operation_id(), draft.operation_id());
    assert_eq!(ledger.rows(), (2, 2));
}

#[test]
fn a_handlers_refusal_leaves_nothing_and_the_key_free() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    let arguments = json!({ "idempotency_key": key("refused"), "body": marked("milk") });
    let refused = tools.call_blocking(&ada(), "refuse_note", arguments);
    assert_eq!(
        json(&refused),
        json!({
            "status": "failed",
            "retryable": false,
            "error": { "code": "too_many_notes", "message": "the project is full" },
        })
    );
    assert_eq!(ledger.rows(), (0, 0));
    let other = json!({ "idempotency_key": key("refused"), "body": marked("x"), "later": true });
    let again = tools.call_blocking(&ada(), "refuse_note", other);
    assert!(
        again.is_retryable() && again.next_action().is_some(),
        "{}",
        again.to_json()
    );
    assert_eq!(ledger.rows(), (0, 0));
}

#[test]
fn an_unknown_tool_is_not_found() {
    let ledger = Ledger::new();
    let reply = toolbox(&ledger).call_blocking(&ada(), "creat_note", json!({}));
    assert_code(&reply, "not_found");
}
