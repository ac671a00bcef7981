//! What a reply of an unknown outcome says is to be checked, in the tool's own words.

use std::time::Duration;

use idempotent_tool::{
    Attempt, AttemptError, BuildError, Clock, Inquiry, Reconciled, Reply, Status, Tool, Toolbox,
    idempotent_tool,
};
use serde_json::{Value, json};

use crate::{
    common::{Ledger, ada, key},
    pace::drive,
};

/// Goes silent.
#[idempotent_tool(
    operation = "post_by_hand:v1",
    inspect = "Ask {addressee} for letter {number} of {operation_id} in {\"quotes\"}"
)]
async fn post_by_hand(
    _attempt: &Attempt,
    addressee: String,
    number: u8,
) -> Result<(), AttemptError> {
    drop(addressee);
    Err(AttemptError::ambiguous("silence", number.to_string()))
}

/// Goes silent, and nobody will ever know.
#[idempotent_tool(
    operation = "post_by_asking:v1",
    reconcile(never_known, settle = "1s", inspect = "Ask {addressee}")
)]
async fn post_by_asking(_attempt: &Attempt, addressee: String) -> Result<(), AttemptError> {
    drop(addressee);
    Err(AttemptError::ambiguous("silence", "nothing was heard"))
}

async fn never_known(_inquiry: &Inquiry) -> Result<Reconciled<()>, AttemptError> {
    Ok(Reconciled::Undeterminable)
}

/// Goes silent, with a window that is soon over.
#[idempotent_tool(
    operation = "post_by_key:v1",
    provider_key(inspect = "Ask {addressee}", window = "1m")
)]
async fn post_by_key(_attempt: &Attempt, addressee: String) -> Result<(), AttemptError> {
    drop(addressee);
    Err(AttemptError::ambiguous("silence", "nothing was heard"))
}

/// Names what not every call has.
#[idempotent_tool(operation = "post_to_somebody:v1", inspect = "Ask {addressee}")]
async fn post_to_somebody(
    _attempt: &Attempt,
    addressee: Option<String>,
) -> Result<(), AttemptError> {
    drop(addressee);
    Ok(())
}

fn build<T: Tool<Context = Attempt>>(ledger: &Ledger) -> Result<Toolbox, BuildError> {
    Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<T>()
        .build()
}

async fn call<T: Tool<Context = Attempt>>(ledger: &Ledger, arguments: Value) -> (Toolbox, Reply) {
    let tools = build::<T>(ledger).unwrap();
    let mut arguments = arguments;
    arguments["idempotency_key"] = key("letter").into();
    let name = T::declaration().name;
    let reply = drive(&ledger.clock, tools.call(&ada(), name, arguments)).await;
    assert_eq!(
        reply.status(),
        Status::OutcomeUnknown,
        "{}",
        reply.to_json()
    );
    (tools, reply)
}

#[tokio::test]
async fn it_names_the_operation_and_its_arguments() {
    let ledger = Ledger::new();
    let arguments = json!({ "addressee": "Grace", "number": 7 });
    let (_tools, reply) = call::<post_by_hand>(&ledger, arguments).await;
    let id = reply.operation_id().unwrap();
    let expected = format!("Ask Grace for letter 7 of {id} in {{\"quotes\"}}");
    assert_eq!(reply.next_action(), Some(&*expected));
}

#[tokio::test]
async fn what_can_never_be_determined_is_unknown_at_once() {
    let ledger = Ledger::new();
    let began = ledger.clock.monotonic();
    let (_tools, reply) = call::<post_by_asking>(&ledger, json!({ "addressee": "Grace" })).await;
    // One attempt, one pause, one question.
    assert!(ledger.clock.monotonic() - began < Duration::from_secs(1));
    let next = reply.next_action().unwrap();
    assert!(next.starts_with("Ask Grace. Call get_operation"), "{next}");
}

#[tokio::test]
async fn past_the_window_it_says_what_to_check() {
    let ledger = Ledger::new();
    let (tools, reply) = call::<post_by_key>(&ledger, json!({ "addressee": "Grace" })).await;
    let next = reply.next_action().unwrap();
    assert!(next.starts_with("Call post_by_key again"), "{next}");
    ledger.clock.advance(Duration::from_mins(1));
    let asked = json!({ "operation_id": reply.operation_id().unwrap().to_string() });
    let reply = tools.call(&ada(), "get_operation", asked).await;
    assert_eq!(reply.next_action(), Some("Ask Grace"));
}

#[tokio::test]
async fn what_not_every_call_has_does_not_build() {
    let error = build::<post_to_somebody>(&Ledger::new()).unwrap_err();
    assert!(
        matches!(error, BuildError::UnknownPlaceholder { .. }),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.contains("`post_to_somebody:v1`") && text.contains("`{addressee}`"),
        "{text}"
    );
}
