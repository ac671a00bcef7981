//! What the application is told of its handlers' errors, and callers are not.

use std::sync::{Arc, Mutex};

use idempotent_tool::{Attempt, AttemptError, Failure, SqliteStore, Toolbox, Tx, idempotent_tool};
use serde_json::json;

use crate::common::{ada, assert_code, key};

#[idempotent_tool(operation = "misspell:v1")]
fn misspell(tx: &Tx) -> Result<(), Failure> {
    tx.execute("INSERT INTO no_such_table VALUES (1)", ())?;
    Ok(())
}

#[idempotent_tool(operation = "charge:v1", inspect = "look at {operation_id}")]
async fn charge(attempt: &Attempt) -> Result<(), AttemptError> {
    let error = AttemptError::refused("declined", "the card was declined");
    Err(error.with_source(format!("attempt {}", attempt.number())))
}

type Told = Arc<Mutex<Vec<(String, String, String)>>>;

fn tools(told: &Told) -> Toolbox {
    let told = Arc::clone(told);
    Toolbox::builder(SqliteStore::in_memory().unwrap())
        .without_authorization()
        .tool::<misspell>()
        .tool::<charge>()
        .on_failure(move |tool, error| {
            let cause = error.source().unwrap().to_string();
            let told_now = (tool.to_owned(), error.to_string(), cause);
            told.lock().unwrap().push(told_now);
            assert_ne!(tool, "misspell", "the application's own mistake");
        })
        .build()
        .unwrap()
}

#[tokio::test]
async fn the_application_is_told_of_each_failure_with_its_cause() {
    let told = Told::default();
    let tools = tools(&told);
    for (tool, code, cause) in [
        ("misspell", "database_error", "no such table: no_such_table"),
        ("charge", "declined", "attempt 1"),
    ] {
        let arguments = json!({ "idempotency_key": key("once") });
        let reply = tools.call(&ada(), tool, arguments.clone()).await;
        assert_code(&reply, code);
        assert!(!reply.to_json().contains(cause));
        let (told_tool, error, told_cause) = told.lock().unwrap().pop().unwrap();
        assert_eq!(told_tool, tool);
        assert!(error.starts_with(code), "{error}");
        assert!(told_cause.contains(cause), "{told_cause}");
    }
    // A replay of a failure is none of the handler's.
    let arguments = json!({ "idempotency_key": key("once") });
    assert_code(&tools.call(&ada(), "charge", arguments).await, "declined");
    assert!(told.lock().is_ok_and(|told| told.is_empty()));
}
