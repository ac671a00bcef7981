//! Who may call: asked on every call, before anything is observed.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use idempotent_tool::{Access, Asked, BuildError, Caller, Failure, Toolbox, Tx, idempotent_tool};
use serde_json::{Value, json};

use crate::{
    common::{Ledger, ada, assert_code, assert_succeeded, key, marked},
    conversation::create_note,
};

struct Clerk;

fn clerks_only(caller: &Caller, _: &Asked<'_>) -> Access {
    Access::from(caller.get::<Clerk>().is_some())
}

/// A tool that names its own authorizer.
#[idempotent_tool(operation = "file_note:v1", authorize = clerks_only)]
fn file_note(tx: &Tx, body: String) -> Result<i64, Failure> {
    create_note(tx, body)
}

#[test]
fn a_toolbox_without_an_authorizer_does_not_build() {
    let ledger = Ledger::new();
    let error = Toolbox::builder(ledger.store.clone())
        .tool::<create_note>()
        .build()
        .unwrap_err();
    assert!(matches!(error, BuildError::MissingAuthorizer { .. }));
    let text = error.to_string();
    for part in ["`create_note`", ".authorize(", ".without_authorization()"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_tools_own_authorizer_is_enough_and_is_asked() {
    let ledger = Ledger::new();
    let tools = Toolbox::builder(ledger.store.clone())
        .tool::<file_note>()
        .build()
        .unwrap();
    let arguments = json!({ "idempotency_key": key("own"), "body": marked("milk") });
    let denied = tools.call_blocking(&ada(), "file_note", arguments.clone());
    assert_code(&denied, "denied");
    let filed = tools.call_blocking(&ada().with(Clerk), "file_note", arguments);
    assert_succeeded(&filed, false);
    assert_eq!(ledger.rows(), (1, 1));
}

#[test]
fn a_revoked_caller_learns_nothing_of_its_earlier_call() {
    let ledger = Ledger::new();
    let allowed = Arc::new(AtomicBool::new(true));
    let answer = Arc::clone(&allowed);
    let tools = Toolbox::builder(ledger.store.clone())
        .authorize(move |_, _| Access::from(answer.load(Ordering::SeqCst)))
        .tool::<create_note>()
        .build()
        .unwrap();
    let call = |key: String, body: Value| {
        let arguments = json!({ "idempotency_key": key, "body": body });
        tools.call_blocking(&ada(), "create_note", arguments)
    };
    let first = call(key("known"), marked("milk").into());
    assert_succeeded(&first, false);

    allowed.store(false, Ordering::SeqCst);
    let denied = call(key("known"), marked("milk").into());
    assert_code(&denied, "denied");
    // A replay, a conflict, invalid arguments and an unknown key: the same words.
    for (key, body) in [
        (key("known"), marked("other").into()),
        (key("known"), json!(7)),
        (key("unknown"), marked("milk").into()),
        (key("unknown"), json!(7)),
    ] {
        assert_eq!(call(key, body).to_json(), denied.to_json());
    }

    allowed.store(true, Ordering::SeqCst);
    assert_succeeded(&call(key("known"), marked("milk").into()), true);
    assert_eq!(ledger.rows(), (1, 1));
}

#[test]
fn the_authorizer_sees_the_arguments_as_they_came_once() {
    let ledger = Ledger::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    let tools = Toolbox::builder(ledger.store.clone())
        .authorize(move |_, asked| {
            if let Asked::Call {
                tool, arguments, ..
            } = asked
            {
                let arguments = Value::Object((*arguments).clone());
                record.lock().unwrap().push(((*tool).to_owned(), arguments));
            }
            Access::Allowed
        })
        .tool::<create_note>()
        .build()
        .unwrap();
    let arguments = json!({ "idempotency_key": key("seen"), "body": 7, "extra": null });
    assert_code(
        &tools.call_blocking(&ada(), "create_note", arguments),
        "invalid_arguments",
    );
    assert_eq!(
        *seen.lock().unwrap(),
        [(
            "create_note".to_owned(),
            json!({ "body": 7, "extra": null })
        )]
    );
}

#[test]
fn a_bad_key_is_told_before_the_authorizer_is_asked() {
    let ledger = Ledger::new();
    let tools = Toolbox::builder(ledger.store.clone())
        .authorize(|_, _| panic!("asked about a call without a key"))
        .tool::<create_note>()
        .build()
        .unwrap();
    for arguments in [
        json!({ "body": "x" }),
        json!({ "idempotency_key": " k", "body": "x" }),
    ] {
        assert_code(
            &tools.call_blocking(&ada(), "create_note", arguments),
            "invalid_key",
        );
    }
}

#[test]
fn an_authorizer_that_cannot_tell_lets_nothing_happen() {
    let ledger = Ledger::new();
    let tools = Toolbox::builder(ledger.store.clone())
        .authorize(|_, _| Access::Unavailable)
        .tool::<create_note>()
        .build()
        .unwrap();
    let arguments = json!({ "idempotency_key": key("unclear"), "body": marked("milk") });
    let reply = tools.call_blocking(&ada(), "create_note", arguments);
    assert!(reply.is_retryable(), "{}", reply.to_json());
    assert_eq!(ledger.rows(), (0, 0));
}
