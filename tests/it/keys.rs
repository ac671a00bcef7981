//! The caller's keys: strange ones are harmless, bad ones are refused and say why.

use idempotent_tool::Toolbox;
use serde_json::{Value, json};

use crate::{
    common::{Ledger, ada, assert_code, assert_succeeded, json, marked},
    conversation::create_note,
};

fn toolbox(ledger: &Ledger) -> Toolbox {
    Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<create_note>()
        .build()
        .unwrap()
}

#[test]
fn strange_keys_each_name_one_action() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    let longest = "\u{1f600}".repeat(128);
    let keys = [
        "user",
        "__proto__",
        "../x",
        "a:b",
        "a",
        "b",
        "A",
        "é",
        "e\u{301}",
        "\u{1f600}",
        "\u{202e}txt",
        "שלום",
        "'; DROP TABLE notes; --",
        "%00",
        "null",
        "0",
        "a b",
        &longest,
    ];
    for (index, key) in keys.iter().enumerate() {
        let arguments = json!({ "idempotency_key": key, "body": marked("milk") });
        let first = tools.call_blocking(&ada(), "create_note", arguments.clone());
        assert_succeeded(&first, false);
        let again = tools.call_blocking(&ada(), "create_note", arguments);
        assert_succeeded(&again, true);
        assert_eq!(first.operation_id(), again.operation_id());
        let rows = i64::try_from(index).unwrap() + 1;
        assert_eq!(ledger.rows(), (rows, rows), "{key:?}");
    }
}

#[test]
fn bad_keys_are_refused_with_the_reason_and_nothing_is_stored() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    let too_long = "a".repeat(129);
    let cases: [(Value, &str); 11] = [
        (json!({}), "missing"),
        (json!({ "idempotency_key": null }), "must be a string"),
        (json!({ "idempotency_key": 7 }), "must be a string"),
        (json!({ "idempotency_key": ["k"] }), "must be a string"),
        (json!({ "idempotency_key": "" }), "empty"),
        (json!({ "idempotency_key": " " }), "white space"),
        (json!({ "idempotency_key": " k" }), "white space"),
        (json!({ "idempotency_key": "k\u{3000}" }), "white space"),
        (
            json!({ "idempotency_key": "k\u{0}" }),
            "control character at position 1",
        ),
        (
            json!({ "idempotency_key": "k\nk" }),
            "control character at position 1",
        ),
        (json!({ "idempotency_key": too_long }), "129 characters"),
    ];
    for (mut arguments, reason) in cases {
        arguments["body"] = marked("milk").into();
        let reply = tools.call_blocking(&ada(), "create_note", arguments.clone());
        assert_code(&reply, "invalid_key");
        let message = json(&reply)["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(message.contains(reason), "{arguments}: {message}");
    }
    assert_eq!(ledger.rows(), (0, 0));
}

#[test]
fn a_bad_key_is_told_before_bad_arguments() {
    let ledger = Ledger::new();
    let reply = toolbox(&ledger).call_blocking(&ada(), "create_note", json!({ "bdy": 1 }));
    assert_code(&reply, "invalid_key");
}
