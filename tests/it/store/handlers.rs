//! What a handler is told, and what is told of it.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use idempotent_tool::{Caller, Failure, Toolbox, Tx, idempotent_tool};
use serde_json::json;
use tracing::{Subscriber, field::Visit, span};
use tracing_subscriber::{Layer, layer::Context, layer::SubscriberExt};

use crate::common::{Ledger, MARK, ada, assert_succeeded, key, marked};

/// What the application knows of a caller.
struct Plan(&'static str);

#[idempotent_tool(operation = "look_around:v1", deadline = "7s")]
fn look_around(tx: &Tx) -> Result<(String, String, u64, i64, String), Failure> {
    let before = tx.last_insert_rowid();
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, 'x')",
        [tx.scope()],
    )?;
    let plan = tx.caller().get::<Plan>().map_or("none", |plan| plan.0);
    Ok((
        tx.scope().to_owned(),
        plan.to_owned(),
        tx.remaining().as_secs(),
        before,
        tx.operation_id().to_string(),
    ))
}

#[idempotent_tool(operation = "show_itself:v1")]
fn show_itself(tx: &Tx, body: String) -> Result<(String, usize), Failure> {
    Ok((format!("{tx:?} {tx:#?}"), body.len()))
}

/// As `tracing::instrument` would put it into a log.
#[test]
fn a_transaction_shows_neither_arguments_nor_key() {
    let ledger = Ledger::new();
    let tools = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<show_itself>()
        .build()
        .unwrap();
    let arguments = json!({ "idempotency_key": key("shown"), "body": marked("milk") });
    let reply = tools.call_blocking(&ada(), "show_itself", arguments);
    assert_succeeded(&reply, false);
    let shown = reply.result().unwrap().get();
    assert!(!shown.contains(MARK), "{shown}");
    assert!(shown.contains("show_itself"), "{shown}");
}

fn tools(ledger: &Ledger) -> Toolbox {
    Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<look_around>()
        .build()
        .unwrap()
}

#[test]
fn a_handler_knows_its_caller_scope_operation_and_budget() {
    let ledger = Ledger::new();
    let tools = tools(&ledger);
    let caller: Caller = ada().with(Plan("large"));
    for round in 0..2 {
        let arguments = json!({ "idempotency_key": key(&round.to_string()) });
        let reply = tools.call_blocking(&caller, "look_around", arguments);
        assert_succeeded(&reply, false);
        let (scope, plan, remaining, before, operation_id): (String, String, u64, i64, String) =
            serde_json::from_str(reply.result().unwrap().get()).unwrap();
        assert_eq!(scope, r#"["acme","ada","lab"]"#);
        assert_eq!(plan, "large");
        assert_eq!(remaining, Duration::from_secs(7).as_secs());
        // Another call's row is none of its business.
        assert_eq!(before, 0);
        assert_eq!(operation_id, reply.operation_id().unwrap().to_string());
    }
}

/// Collects the fields of the spans named `attempt`.
#[derive(Clone, Default)]
struct Attempts(Arc<Mutex<Vec<Fields>>>);

#[derive(Default)]
struct Fields(Vec<(&'static str, String)>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }
}

impl<S: Subscriber> Layer<S> for Attempts {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, _: &span::Id, _: Context<'_, S>) {
        if attributes.metadata().name() == "attempt" {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            self.0.lock().unwrap().push(fields);
        }
    }
}

#[test]
fn each_execution_has_an_attempt_id_beside_its_operation_id() {
    let ledger = Ledger::new();
    let tools = tools(&ledger);
    let attempts = Attempts::default();
    let subscriber = tracing_subscriber::registry().with(attempts.clone());
    let mut operations = Vec::new();
    tracing::subscriber::with_default(subscriber, || {
        for name in ["one", "two", "two"] {
            let arguments = json!({ "idempotency_key": key(name) });
            let reply = tools.call_blocking(&ada(), "look_around", arguments);
            operations.push(reply.operation_id().unwrap().to_string());
        }
    });
    let attempts = attempts.0.lock().unwrap();
    // The replay executes nothing.
    assert_eq!(attempts.len(), 2);
    let field = |attempt: &Fields, name| {
        attempt
            .0
            .iter()
            .find(|(field, _)| *field == name)
            .unwrap()
            .1
            .clone()
    };
    for (attempt, operation) in attempts.iter().zip(&operations) {
        assert_eq!(&field(attempt, "operation_id"), operation);
        assert!(field(attempt, "attempt_id").starts_with("at_"));
        assert_eq!(field(attempt, "tool"), "look_around");
        assert_eq!(attempt.0.len(), 3);
    }
    assert_ne!(
        field(&attempts[0], "attempt_id"),
        field(&attempts[1], "attempt_id")
    );
}
