//! The tools, registered and called.

use hostile::{all_in_one, eight, flags, owned, shadowed};
use idempotent_tool::{Caller, Scope, SqliteStore, Toolbox};
use serde_json::{Value, json};

fn call(tool: &str, arguments: Value) -> Value {
    let builder = Toolbox::builder(SqliteStore::options().open_in_memory().unwrap());
    let tools = builder
        .without_authorization()
        .state(3_usize)
        .tool::<eight>()
        .tool::<flags>()
        .tool::<owned>()
        .tool::<shadowed>()
        .tool::<all_in_one>()
        .build()
        .unwrap();
    let caller = Caller::new(Scope::builder().account("a").build().unwrap());
    let reply = tools.call_blocking(&caller, tool, arguments);
    serde_json::from_str(&reply.to_json()).unwrap()
}

#[test]
fn eight_arguments() {
    let arguments = json!({ "idempotency_key": "k", "one": 1, "two": 1, "three": 1, "four": 1, "eight": [1, 1] });
    let reply = call("eight", arguments);
    assert_eq!(reply["result"], 9, "{reply}");
}

#[test]
fn three_flags() {
    let arguments = json!({ "idempotency_key": "k", "one": true, "two": true, "three": true });
    let reply = call("flags", arguments);
    assert_eq!(reply["result"], true, "{reply}");
}

#[test]
fn owned_arguments() {
    let reply = call(
        "owned",
        json!({ "idempotency_key": "k", "text": "ab", "more": ["c"] }),
    );
    assert_eq!(reply["result"], 6, "{reply}");
    let reply = call("owned", json!({ "idempotency_key": "k", "text": "" }));
    assert_eq!(reply["error"]["code"], "invalid_arguments", "{reply}");
}

#[test]
fn types_of_shadowed_names() {
    let arguments = json!({ "idempotency_key": "k", "text": 1, "option": 2, "vec": 3 });
    let reply = call("shadowed", arguments);
    assert_eq!(reply["result"], 6, "{reply}");
}

#[test]
fn one_struct() {
    let reply = call("all_in_one", json!({ "idempotency_key": "k", "number": 1 }));
    assert_eq!(reply["result"], Value::Null, "{reply}");
    let reply = call("all_in_one", json!({ "idempotency_key": "k", "number": 0 }));
    assert_eq!(reply["error"]["code"], "nothing", "{reply}");
}
