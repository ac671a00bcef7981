//! Authorizers and identity resolvers that don't answer: nothing is done, the caller is told
//! at once that it may ask again, and the operator finds an error in the log.

use std::{
    future::pending,
    panic::panic_any,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use idempotent_tool::{
    Access, Attempt, AttemptError, CallError, Clock, Failure, IdempotencyKey, Reply, Toolbox, Tx,
    idempotent_tool,
    mcp::{Adapter, Unidentified},
};
use serde_json::{Value, json};

use crate::{
    common::{Ledger, ada, assert_code, assert_succeeded, json, key, marked},
    conversation::create_note,
    mcp::{NEWEST, Wire},
    pace::drive,
};

/// Send a message.
#[idempotent_tool(
    operation = "send:v1",
    wait = "2s",
    inspect = "Look for the message in the outbox"
)]
async fn send(_attempt: &Attempt, body: String) -> Result<usize, AttemptError> {
    Ok(body.len())
}

/// Have a message sent.
#[idempotent_tool(operation = "order:v1")]
fn order(tx: &Tx, body: String) -> Result<String, Failure> {
    let id = tx.enqueue::<send>(&key("ordered"), &json!({ "body": body }))?;
    Ok(id.to_string())
}

/// A value that panics once more when it is dropped.
struct PanicsAgain;

impl Drop for PanicsAgain {
    fn drop(&mut self) {
        panic_any(Self);
    }
}

/// A toolbox whose authorizer goes wrong while it is told to.
fn tools(
    ledger: &Ledger,
    goes_wrong: impl Fn() + Send + Sync + 'static,
) -> (Toolbox, Arc<AtomicBool>) {
    let broken = Arc::new(AtomicBool::new(false));
    let is_broken = Arc::clone(&broken);
    let tools = Toolbox::builder(ledger.store.clone())
        .authorize(move |_, asked| {
            // A handler's own call is allowed: what it enqueues is what goes wrong.
            if is_broken.load(Ordering::SeqCst) && asked.tool() != "order" {
                goes_wrong();
            }
            Access::Allowed
        })
        .tool::<create_note>()
        .tool::<send>()
        .tool::<order>()
        .build()
        .unwrap();
    (tools, broken)
}

fn arguments(name: &str) -> Value {
    json!({ "idempotency_key": key(name), "body": marked("milk") })
}

#[track_caller]
fn assert_unavailable(reply: &Reply) {
    assert_code(reply, "denied");
    assert_eq!(json(reply)["retryable"], true, "{}", reply.to_json());
}

/// What of an operation is asked and told, one way after the other.
async fn is_told_everywhere_and_nothing_is_done(
    ledger: &Ledger,
    tools: &Toolbox,
    broken: &AtomicBool,
    enqueued: &str,
) {
    let sent = drive(&ledger.clock, tools.call(&ada(), "send", arguments("sent"))).await;
    assert_succeeded(&sent, false);
    let id = sent.operation_id().unwrap().to_string();
    let before = ledger.rows();

    broken.store(true, Ordering::SeqCst);
    assert_unavailable(&tools.call(&ada(), "create_note", arguments("note")).await);
    assert_unavailable(&tools.call(&ada(), "send", arguments("sent")).await);
    assert_unavailable(&tools.call(&ada(), "send", arguments("another")).await);
    let name = IdempotencyKey::new(key("typed")).unwrap();
    let body = json!({ "body": marked("milk") });
    match tools.call_typed::<create_note>(&ada(), &name, &body).await {
        Err(CallError::Unsuccessful(reply)) => assert_unavailable(&reply),
        other => panic!("{other:?}"),
    }
    for own in ["get_operation", "cancel_operation"] {
        let asked = json!({ "operation_id": id });
        assert_unavailable(&tools.call(&ada(), own, asked).await);
    }
    let ordered = tools.call(&ada(), "order", arguments("order")).await;
    assert_code(&ordered, enqueued);
    assert!(ordered.is_retryable(), "{}", ordered.to_json());
    assert_eq!(ledger.rows(), before);

    broken.store(false, Ordering::SeqCst);
    assert_succeeded(
        &tools.call(&ada(), "create_note", arguments("note")).await,
        false,
    );
    assert_succeeded(
        &tools.call(&ada(), "order", arguments("order")).await,
        false,
    );
}

#[tokio::test]
async fn an_authorizer_that_panics_lets_nothing_happen() {
    let ledger = Ledger::new();
    let (tools, broken) = tools(&ledger, || panic!("the authorizer breaks"));
    is_told_everywhere_and_nothing_is_done(&ledger, &tools, &broken, "denied").await;
}

#[tokio::test]
async fn a_panic_whose_value_panics_in_turn_lets_nothing_happen_either() {
    let ledger = Ledger::new();
    let (tools, broken) = tools(&ledger, || panic_any(PanicsAgain));
    is_told_everywhere_and_nothing_is_done(&ledger, &tools, &broken, "denied").await;
}

#[tokio::test]
async fn an_authorizer_that_answers_after_the_deadline_lets_nothing_happen() {
    let ledger = Ledger::new();
    let clock = ledger.clock.clone();
    let (tools, broken) = tools(&ledger, move || clock.advance(Duration::from_secs(31)));
    // The handler that asked has overrun its own deadline with it.
    is_told_everywhere_and_nothing_is_done(&ledger, &tools, &broken, "deadline_exceeded").await;
}

#[tokio::test]
async fn an_inspection_waits_for_the_authorizer_no_longer_than_the_tool_waits() {
    let ledger = Ledger::new();
    let clock = ledger.clock.clone();
    let (tools, broken) = tools(&ledger, move || clock.advance(Duration::from_secs(2)));
    let sent = drive(&ledger.clock, tools.call(&ada(), "send", arguments("sent"))).await;
    let asked = json!({ "operation_id": sent.operation_id().unwrap().to_string() });
    broken.store(true, Ordering::SeqCst);
    assert_unavailable(&tools.call(&ada(), "get_operation", asked).await);
    // The deadline of a call is another.
    let again = drive(&ledger.clock, tools.call(&ada(), "send", arguments("sent"))).await;
    assert_succeeded(&again, true);
}

#[test]
fn a_panic_in_a_thread_that_may_block_goes_no_further() {
    let ledger = Ledger::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let (tools, broken) = tools(&ledger, || panic!("the authorizer breaks"));
    broken.store(true, Ordering::SeqCst);
    for tool in ["create_note", "send"] {
        assert_unavailable(&tools.call_blocking(&ada(), tool, arguments("blocking")));
    }
}

#[tokio::test]
async fn over_mcp_a_panic_is_answered_and_the_server_goes_on() {
    let ledger = Ledger::new();
    let (tools, broken) = tools(&ledger, || panic!("the authorizer breaks"));
    let mut wire = Wire::connect(&Adapter::for_caller(tools, ada()), NEWEST).await;
    let params = json!({ "name": "create_note", "arguments": arguments("wire") });
    for is_broken in [true, false] {
        broken.store(is_broken, Ordering::SeqCst);
        let response = wire.request("tools/call", params.clone()).await;
        let reply = &response["result"]["structuredContent"];
        if is_broken {
            assert_eq!(reply["error"]["code"], "denied", "{reply}");
            assert_eq!(reply["retryable"], true, "{reply}");
        } else {
            assert_eq!(reply["status"], "succeeded", "{reply}");
        }
    }
}

/// How a resolver of identities fails to answer.
#[derive(Debug, Clone, Copy)]
enum Resolver {
    PanicsAtOnce,
    PanicsLater,
    PanicsTwice,
    NeverAnswers,
}

#[tokio::test]
async fn an_identity_resolver_that_does_not_answer_lets_nothing_happen() {
    for resolver in [
        Resolver::PanicsAtOnce,
        Resolver::PanicsLater,
        Resolver::PanicsTwice,
        Resolver::NeverAnswers,
    ] {
        let ledger = Ledger::new();
        let (tools, _) = tools(&ledger, || ());
        let clock = ledger.clock.clone();
        let adapter = Adapter::new(tools, move |_| {
            if matches!(resolver, Resolver::PanicsAtOnce) {
                panic!("the resolver breaks");
            }
            let clock = clock.clone();
            async move {
                tokio::task::yield_now().await;
                match resolver {
                    Resolver::PanicsTwice => panic_any(PanicsAgain),
                    Resolver::NeverAnswers => clock.elsewhere(pending()).await,
                    Resolver::PanicsAtOnce | Resolver::PanicsLater => panic!("it breaks"),
                }
                Err(Unidentified::Refused)
            }
        });
        let mut wire = Wire::connect(&adapter, NEWEST).await;
        wire.request("tools/list", json!({})).await;
        ledger.clock.excuse_others().await;
        let sent = json!({ "operation_id": "op_0190163d8694739b8ab4a3c0d1f2e3a4" });
        for (tool, arguments, bound) in [
            ("create_note", arguments("nobody"), 30),
            ("get_operation", sent, 2),
        ] {
            let params = json!({ "name": tool, "arguments": arguments });
            let began = ledger.clock.monotonic();
            let response = ledger.clock.elsewhere(wire.request("tools/call", params));
            let response = drive(&ledger.clock, response).await;
            let reply = &response["result"]["structuredContent"];
            assert_eq!(reply["error"]["code"], "denied", "{resolver:?}: {reply}");
            assert_eq!(reply["retryable"], true, "{resolver:?}: {reply}");
            if matches!(resolver, Resolver::NeverAnswers) {
                let took = ledger.clock.monotonic() - began;
                let bound = Duration::from_secs(bound);
                assert!(bound <= took && took < bound * 2, "{tool}: {took:?}");
            }
        }
        assert_eq!(ledger.rows(), (0, 0));
    }
}
