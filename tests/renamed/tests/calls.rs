//! The tools, registered and called.

use once::{Caller, Reply, Scope, SqliteStore, Toolbox};
use renamed::{by_facade, by_name};
use serde_json::{Value, json};

fn json_of(reply: &Reply) -> Value {
    serde_json::from_str(&reply.to_json()).unwrap()
}

#[test]
fn both_are_called() {
    let tools = Toolbox::builder(SqliteStore::options().open_in_memory().unwrap())
        .without_authorization()
        .state(String::from("!"))
        .tool::<by_name>()
        .tool::<by_facade>()
        .build()
        .unwrap();
    let caller = Caller::new(Scope::builder().account("a").build().unwrap());
    let arguments = json!({ "idempotency_key": "k", "text": "ab", "times": 2 });
    let reply = json_of(&tools.call_blocking(&caller, "by_name", arguments));
    assert_eq!(reply["result"], "abab");
    let arguments = json!({ "idempotency_key": "k", "text": "ab" });
    let reply = json_of(&tools.call_blocking(&caller, "by_facade", arguments));
    assert_eq!(reply["result"], "ab!");
}
