//! Keys that requests carry beside their arguments, and what continues a request.

use idempotent_tool::{CallError, CarriedKeys, IdempotencyKey, Toolbox, mcp::Adapter};
use serde_json::{Value, json};

use crate::{
    common::{Ledger, ada, assert_code, assert_succeeded, key, marked},
    conversation::create_note,
    mcp::{NEWEST, Wire, tools},
};

/// Of the same header a service that speaks HTTP itself makes the key that an adapter makes.
#[tokio::test]
async fn one_header_is_one_key_however_it_comes_in() {
    let header = format!("\"{}\"", key("header"));
    let body = json!({ "body": marked("milk") });
    let bare = key("header");
    let ledger = Ledger::new();
    let tools = tools(&ledger);
    let own = IdempotencyKey::from_header(&header).unwrap();
    let typed = tools.call_typed::<create_note>(&ada(), &own, &body).await;
    let first = typed.unwrap().operation_id;
    for value in [&header, &bare] {
        let carried = || CarriedKeys::none().header(value.as_bytes());
        let again = tools
            .call_typed::<create_note>(&ada(), carried(), &body)
            .await;
        let again = again.unwrap();
        assert!(again.replayed);
        assert_eq!(again.operation_id, first);
        let blocking = tools.call_typed_blocking::<create_note>(&ada(), carried(), &body);
        assert_eq!(blocking.unwrap().operation_id, first);
        let reply = tools
            .call_carrying(&ada(), "create_note", body.clone(), carried())
            .await;
        assert_succeeded(&reply, true);
        assert_eq!(reply.operation_id(), Some(first));
    }
    assert_eq!(ledger.rows(), (1, 1));
}

#[tokio::test]
async fn a_typed_call_refuses_what_is_no_single_key() {
    let ledger = Ledger::new();
    let tools = tools(&ledger);
    let body = json!({ "body": marked("milk") });
    for keys in [
        CarriedKeys::none(),
        CarriedKeys::none().header(b"a b"),
        CarriedKeys::none().header(b"a").header(b"b"),
        CarriedKeys::none().metadata(&json!(null)),
    ] {
        match tools.call_typed::<create_note>(&ada(), keys, &body).await {
            Err(CallError::Unsuccessful(reply)) => assert_code(&reply, "invalid_key"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ledger.rows(), (0, 0));
}

const VERSIONS: [&str; 2] = [NEWEST, "2025-11-25"];

/// `tools/call` of `create_note` with the keys that are given.
fn call(meta: Option<(&str, Value)>, argument: Option<&str>) -> Value {
    let mut params = json!({ "name": "create_note", "arguments": { "body": marked("milk") } });
    if let Some((name, key)) = meta {
        params["_meta"] = json!({ name: key });
    }
    if let Some(key) = argument {
        params["arguments"]["idempotency_key"] = key.into();
    }
    params
}

async fn reply(wire: &mut Wire, params: Value) -> Value {
    let response = wire.request("tools/call", params).await;
    response["result"]["structuredContent"].clone()
}

fn keys_beside(ledger: &Ledger) -> Toolbox {
    Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .keys_beside_arguments()
        .tool::<create_note>()
        .build()
        .unwrap()
}

#[tokio::test]
async fn metadata_carries_the_key_alone_or_agrees_with_the_argument() {
    const META: &str = "idempotent-tool/key";
    for version in VERSIONS {
        let ledger = Ledger::new();
        let mut wire = Wire::connect(&Adapter::for_caller(tools(&ledger), ada()), version).await;
        let (one, other) = (key("one"), key("other"));

        let first = reply(&mut wire, call(Some((META, json!(one))), None)).await;
        assert_eq!(first["status"], "succeeded", "{first}");
        let argument = reply(&mut wire, call(None, Some(&one))).await;
        let both = reply(&mut wire, call(Some((META, json!(one))), Some(&one))).await;
        for again in [argument, both] {
            assert_eq!(again["replayed"], true, "{again}");
            assert_eq!(again["operation_id"], first["operation_id"]);
        }

        for refused in [
            call(Some((META, json!(other))), Some(&one)),
            call(Some((META, json!(null))), Some(&one)),
            call(Some((META, json!(7))), None),
            call(Some((META, json!(""))), None),
            // Another name carries nothing.
            call(Some(("another/key", json!(one))), None),
        ] {
            let refused = reply(&mut wire, refused).await;
            assert_eq!(refused["error"]["code"], "invalid_key", "{refused}");
        }
        assert_eq!(ledger.rows(), (1, 1), "{version}");
    }
}

#[tokio::test]
async fn the_name_in_the_metadata_is_configurable() {
    let ledger = Ledger::new();
    let adapter = Adapter::for_caller(tools(&ledger), ada()).key_meta("com.example/key");
    let mut wire = Wire::connect(&adapter, NEWEST).await;
    let named = call(Some(("com.example/key", json!(key("named")))), None);
    assert_eq!(reply(&mut wire, named).await["status"], "succeeded");
    let usual = call(Some(("idempotent-tool/key", json!(key("named")))), None);
    let refused = reply(&mut wire, usual).await;
    assert_eq!(refused["error"]["code"], "invalid_key", "{refused}");
}

#[tokio::test]
async fn a_host_that_carries_the_key_sees_no_argument_for_it() {
    for version in VERSIONS {
        let ledger = Ledger::new();
        let adapter = Adapter::for_caller(keys_beside(&ledger), ada());
        let mut wire = Wire::connect(&adapter, version).await;
        let listing = wire.request("tools/list", json!({})).await;
        let tool = &listing["result"]["tools"][1];
        assert_eq!(tool["inputSchema"]["required"], json!(["body"]), "{tool}");
        assert_eq!(
            tool["inputSchema"]["properties"].as_object().unwrap().len(),
            1
        );
        assert!(!tool["description"].to_string().contains("idempotency_key"));

        let carried = Some(("idempotent-tool/key", json!(key("host"))));
        let first = reply(&mut wire, call(carried.clone(), None)).await;
        assert_eq!(first["status"], "succeeded", "{first}");
        assert_eq!(
            reply(&mut wire, call(carried.clone(), None)).await["replayed"],
            true
        );
        let none = reply(&mut wire, call(None, None)).await;
        assert_eq!(none["error"]["code"], "invalid_key", "{none}");
        // What is not listed is not known.
        let unknown = reply(&mut wire, call(carried, Some(&key("host")))).await;
        assert_eq!(unknown["error"]["code"], "invalid_arguments", "{unknown}");
        assert_eq!(unknown["error"]["details"][0]["path"], "/idempotency_key");
        assert_eq!(ledger.rows(), (1, 1), "{version}");
    }
}

/// Both modes have the same contracts: a toolbox may change from one to the other.
#[tokio::test]
async fn a_toolbox_may_change_who_carries_the_key() {
    let ledger = Ledger::new();
    let carried = IdempotencyKey::new(key("moved")).unwrap();
    let arguments = json!({ "idempotency_key": carried.as_str(), "body": marked("milk") });
    let first = tools(&ledger).call(&ada(), "create_note", arguments).await;
    assert_succeeded(&first, false);

    let beside = keys_beside(&ledger);
    let body = json!({ "body": marked("milk") });
    let keys = CarriedKeys::from(carried);
    let again = beside
        .call_carrying(&ada(), "create_note", body.clone(), keys)
        .await;
    assert_succeeded(&again, true);
    let none = beside.call(&ada(), "create_note", body).await;
    assert_code(&none, "invalid_key");
    assert_eq!(ledger.rows(), (1, 1));
}

#[tokio::test]
async fn a_continuation_is_refused_before_anything_is_done() {
    for version in VERSIONS {
        let ledger = Ledger::new();
        let mut wire = Wire::connect(&Adapter::for_caller(tools(&ledger), ada()), version).await;
        for (member, value) in [
            ("requestState", json!("opaque")),
            ("inputResponses", json!({})),
        ] {
            let mut params = call(None, Some(&key("continued")));
            params[member] = value;
            let response = wire.request("tools/call", params).await;
            assert_eq!(response["error"]["code"], -32602, "{response}");
            let message = response["error"]["message"].as_str().unwrap();
            assert!(message.contains("takes no continuation"), "{message}");
        }
        assert_eq!(ledger.rows(), (0, 0), "{version}");
    }
}
