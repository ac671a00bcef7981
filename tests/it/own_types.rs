//! What a tool's own type refuses is refused before anything is recorded, and burns no key.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use idempotent_tool::{Attempt, AttemptError, Failure, Reply, Toolbox, Tx, idempotent_tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::common::{Ledger, ada, assert_code, assert_succeeded, json as read, key, marked};

/// An address, as a type has it that its schema says little of.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
struct Email(String);

impl TryFrom<String> for Email {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.contains('@') {
            Ok(Self(text))
        } else {
            Err(format!("`{text}` has no @"))
        }
    }
}

/// A type that is stricter from one deployment to the next.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
struct Changing(String);

static IS_STRICT: AtomicBool = AtomicBool::new(false);

impl TryFrom<String> for Changing {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        if IS_STRICT.load(Ordering::SeqCst) {
            Err("no longer allowed")
        } else {
            Ok(Self(text))
        }
    }
}

/// Write to somebody, here.
#[idempotent_tool(operation = "write_down:v1")]
fn write_down(
    tx: &Tx,
    to: Email,
    #[serde(default)] others: Vec<Email>,
    #[serde(default)] ports: BTreeMap<u16, String>,
) -> Result<usize, Failure> {
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, ?2)",
        (tx.scope(), &to.0),
    )?;
    Ok(others.len() + ports.len())
}

/// Write to somebody, elsewhere.
#[idempotent_tool(
    operation = "send_mail:v1",
    inspect = "Look into the outbox of the mail server"
)]
async fn send_mail(
    _attempt: &Attempt,
    to: Email,
    #[serde(default)] others: Vec<Email>,
    #[serde(default)] ports: BTreeMap<u16, String>,
) -> Result<usize, AttemptError> {
    Ok(to.0.len() + others.len() + ports.len())
}

/// Have somebody written to.
#[idempotent_tool(operation = "enqueue_mail:v1")]
fn enqueue_mail(tx: &Tx, mail: Value) -> Result<String, Failure> {
    let id = tx.enqueue::<send_mail>(&key("mail"), &mail)?;
    Ok(id.to_string())
}

/// Take what may be refused later.
#[idempotent_tool(operation = "send_changing:v1", inspect = "Look")]
async fn send_changing(_attempt: &Attempt, text: Changing) -> Result<usize, AttemptError> {
    Ok(text.0.len())
}

#[idempotent_tool(operation = "enqueue_changing:v1")]
fn enqueue_changing(tx: &Tx, text: String) -> Result<String, Failure> {
    let id = tx.enqueue::<send_changing>(&key("changing"), &json!({ "text": text }))?;
    Ok(id.to_string())
}

#[idempotent_tool(operation = "keep_changing:v1")]
fn keep_changing(_tx: &Tx, text: Changing) -> Result<usize, Failure> {
    Ok(text.0.len())
}

fn toolbox(ledger: &Ledger) -> (Toolbox, Arc<Mutex<Vec<String>>>) {
    let causes = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&causes);
    let tools = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .on_failure(move |_, error| {
            let cause = error.source().map(ToString::to_string);
            heard.lock().unwrap().push(cause.unwrap_or_default());
        })
        .tool::<write_down>()
        .tool::<send_mail>()
        .tool::<enqueue_mail>()
        .tool::<send_changing>()
        .tool::<enqueue_changing>()
        .tool::<keep_changing>()
        .build()
        .unwrap();
    (tools, causes)
}

async fn call(tools: &Toolbox, tool: &str, name: &str, arguments: Value) -> Reply {
    let mut arguments = arguments;
    arguments["idempotency_key"] = key(name).into();
    tools.call(&ada(), tool, arguments).await
}

/// Arguments that only the type refuses, the place, and what the type says.
fn refused() -> [(Value, &'static str, &'static str); 3] {
    let good = marked("a@b");
    [
        (
            json!({ "to": marked("x") }),
            "/to",
            "m4rk3d-v4lu3 x` has no @",
        ),
        (
            json!({ "to": good, "others": [good, marked("y")] }),
            "/others/1",
            "m4rk3d-v4lu3 y` has no @",
        ),
        (
            json!({ "to": good, "ports": { "70000": "x" } }),
            "/ports/70000",
            "70000",
        ),
    ]
}

#[tokio::test]
async fn a_refused_call_names_the_place_and_the_reason_and_burns_no_key() {
    for tool in ["write_down", "send_mail"] {
        let ledger = Ledger::new();
        let (tools, _) = toolbox(&ledger);
        for (arguments, path, reason) in refused() {
            let reply = call(&tools, tool, "mail", arguments).await;
            assert_code(&reply, "invalid_arguments");
            let details = read(&reply)["error"]["details"].clone();
            assert_eq!(details[0]["path"], path, "{details}");
            let message = details[0]["message"].as_str().unwrap();
            assert!(message.contains(reason), "{message}");
            assert_eq!(ledger.rows(), (0, 0), "{tool}");
        }
        let corrected = json!({ "to": marked("a@b") });
        assert_succeeded(&call(&tools, tool, "mail", corrected).await, false);
    }
}

#[tokio::test]
async fn a_refused_enqueue_names_the_place_alone_and_records_nothing() {
    let ledger = Ledger::new();
    let (tools, causes) = toolbox(&ledger);
    for (arguments, path, reason) in refused() {
        let arguments = json!({ "mail": arguments });
        let reply = call(&tools, "enqueue_mail", "enqueue", arguments).await;
        assert_code(&reply, "invalid_arguments");
        let message = reply.error_message().unwrap();
        assert!(message.ends_with(&format!("at `{path}`")), "{message}");
        let cause = causes.lock().unwrap().pop().unwrap();
        assert!(cause.contains(reason), "{cause}");
        assert_eq!(ledger.rows(), (0, 0));
    }
    let arguments = json!({ "mail": { "to": marked("a@b") } });
    assert_succeeded(
        &call(&tools, "enqueue_mail", "enqueue", arguments).await,
        false,
    );
}

/// It is alone in this test, whose type changes under it.
#[tokio::test]
async fn a_type_that_became_stricter_refuses_no_retained_result() {
    let ledger = Ledger::new();
    let (tools, _) = toolbox(&ledger);
    let text = || json!({ "text": marked("before") });
    for tool in ["send_changing", "keep_changing", "enqueue_changing"] {
        let name = if tool == "send_changing" {
            "changing"
        } else {
            tool
        };
        assert_succeeded(&call(&tools, tool, name, text()).await, false);
    }
    IS_STRICT.store(true, Ordering::SeqCst);
    // Another process remembers nothing of them.
    let other = Ledger {
        folder: tempfile::tempdir().unwrap(),
        clock: ledger.clock.clone(),
        store: ledger.reopen(),
    };
    for (tools, _) in [(tools, 0), (toolbox(&other).0, 1)] {
        assert_succeeded(
            &call(&tools, "send_changing", "changing", text()).await,
            true,
        );
        for tool in ["keep_changing", "enqueue_changing"] {
            assert_succeeded(&call(&tools, tool, tool, text()).await, true);
        }
        // The key of the operation that it finds is enqueued again.
        let again = call(&tools, "enqueue_changing", "again", text()).await;
        assert!(again.result().is_some(), "{}", again.to_json());
        let new = call(&tools, "send_changing", "new", text()).await;
        assert_code(&new, "invalid_arguments");
    }
}
