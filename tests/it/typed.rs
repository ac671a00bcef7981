//! Calls by the generated type.

use idempotent_tool::{CallError, Failure, IdempotencyKey, Toolbox, Tx, idempotent_tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::common::{Ledger, ada, key, marked};

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Note {
    id: i64,
    body: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct NewNote {
    body: String,
    #[serde(default)]
    copies: u8,
}

/// Takes its arguments as one struct, and the suffix from the application.
#[idempotent_tool(operation = "create_note:v1")]
fn create_note(
    tx: &Tx,
    #[arguments] note: NewNote,
    #[state] suffix: &Suffix,
) -> Result<Note, Failure> {
    let body = format!("{}{}", note.body, suffix.0);
    for _ in 0..=note.copies {
        tx.execute(
            "INSERT INTO notes (scope, body) VALUES (?1, ?2)",
            (tx.scope(), &body),
        )?;
    }
    Ok(Note {
        id: tx.last_insert_rowid(),
        body,
    })
}

struct Suffix(&'static str);

fn toolbox(ledger: &Ledger) -> Toolbox {
    Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .state(Suffix("!"))
        .tool::<create_note>()
        .build()
        .unwrap()
}

#[tokio::test]
async fn typed_arguments_in_typed_result_out() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    let key = IdempotencyKey::new(key("typed")).unwrap();
    let note = NewNote {
        body: marked("milk"),
        copies: 0,
    };
    let first = tools
        .call_typed::<create_note>(&ada(), &key, &note)
        .await
        .unwrap();
    assert_eq!(
        first.result,
        Note {
            id: 1,
            body: format!("{}!", marked("milk"))
        }
    );
    assert!(!first.replayed);

    // Anything that serializes to the arguments' object is the same call.
    let untyped = json!({ "body": marked("milk") });
    let again = tools
        .call_typed_blocking::<create_note>(&ada(), &key, &untyped)
        .unwrap();
    assert!(again.replayed);
    assert_eq!(
        (again.operation_id, again.result),
        (first.operation_id, first.result)
    );
    assert_eq!(ledger.rows(), (1, 1));
}

#[test]
fn a_typed_call_that_is_refused_carries_the_reply() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    let key = IdempotencyKey::new(key("refused")).unwrap();
    let error = tools
        .call_typed_blocking::<create_note>(&ada(), &key, &json!([]))
        .unwrap_err();
    let CallError::Unsuccessful(reply) = error else {
        panic!("{error:?}")
    };
    assert_eq!(reply.error_code(), Some("invalid_arguments"));
}

#[test]
fn missing_state_is_told_by_build() {
    let ledger = Ledger::new();
    let builder = Toolbox::builder(ledger.store.clone()).without_authorization();
    let error = builder
        .tool::<create_note>()
        .build()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`create_note:v1` needs state of type"),
        "{error}"
    );
    assert!(
        error.contains("Suffix") && error.contains(".state("),
        "{error}"
    );
}

#[test]
fn a_generated_key_is_valid_and_new() {
    let (one, other) = (IdempotencyKey::generate(), IdempotencyKey::generate());
    assert_ne!(one, other);
    assert!(IdempotencyKey::new(one.as_str()).is_ok());
}
