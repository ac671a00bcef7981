//! What the schema declares is enforced, all failing paths at once, and nothing is stored.

use std::collections::{BTreeSet, HashMap};

use idempotent_tool::{Failure, Toolbox, Tx, idempotent_tool};
use rusqlite::Connection;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::common::{Ledger, ada, assert_code, assert_succeeded, json, key, marked};

/// A nested argument.
#[derive(Debug, Deserialize, serde::Serialize, JsonSchema)]
struct Nested {
    a: i64,
    #[serde(default = "yes")]
    b: bool,
    c: Option<f64>,
}

fn yes() -> bool {
    true
}

fn five() -> Option<u32> {
    Some(5)
}

fn one() -> f64 {
    1.0
}

/// The tool that the vectors in `cases/canonical.json` describe.
#[expect(clippy::too_many_arguments, reason = "the vectors name thirteen")]
#[idempotent_tool(operation = "canonical_probe:v1")]
fn canonical_probe(
    tx: &Tx,
    text: String,
    #[serde(default)] count: u64,
    #[serde(default)] delta: i64,
    #[serde(default = "one")] ratio: f64,
    #[serde(default = "yes")] exact: bool,
    #[serde(default)] tags: BTreeSet<String>,
    #[serde(default)] items: Vec<i64>,
    #[serde(default)] labels: HashMap<String, String>,
    note: Option<String>,
    #[serde(default = "nothing_nested")] nested: Nested,
    #[serde(default = "five")] limit: Option<u32>,
    #[serde(default, skip_serializing)] password: String,
    #[serde(default)] any: Value,
) -> Result<i64, Failure> {
    let seen = format!(
        "{text}{count}{delta}{ratio}{exact}{tags:?}{items:?}{labels:?}{note:?}{nested:?}{limit:?}{password}{any}"
    );
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, ?2)",
        (tx.scope(), seen),
    )?;
    Ok(tx.last_insert_rowid())
}

fn nothing_nested() -> Nested {
    Nested {
        a: 0,
        b: true,
        c: None,
    }
}

fn cases() -> Value {
    serde_json::from_str(include_str!("../cases/canonical.json")).unwrap()
}

fn toolbox(ledger: &Ledger) -> Toolbox {
    Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<canonical_probe>()
        .build()
        .unwrap()
}

fn call(tools: &Toolbox, name: &str, arguments: &str) -> idempotent_tool::Reply {
    let mut arguments: Value = serde_json::from_str(arguments).unwrap();
    if let Value::Object(members) = &mut arguments {
        members.insert("idempotency_key".into(), key(name).into());
    }
    tools.call_blocking(&ada(), "canonical_probe", arguments)
}

#[test]
fn every_vector_of_equal_and_different_arguments_holds() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    for pair in cases()["pairs"].as_array().unwrap() {
        let name = pair["name"].as_str().unwrap();
        let first = call(&tools, name, pair["left"].as_str().unwrap());
        assert_succeeded(&first, false);
        let second = call(&tools, name, pair["right"].as_str().unwrap());
        if pair["same"].as_bool().unwrap() {
            assert!(second.is_replayed(), "{name}: {}", second.to_json());
        } else {
            assert_eq!(second.error_code(), Some("payload_conflict"), "{name}");
        }
    }
}

/// Arguments that serialize alike and are not alike.
#[derive(Deserialize, serde::Serialize, JsonSchema)]
struct Silent {
    #[serde(default, skip_serializing)]
    secret: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    list: Vec<String>,
    #[serde(default = "five", skip_serializing_if = "Option::is_some")]
    limit: Option<u32>,
}

#[idempotent_tool(operation = "silent:v1")]
fn silent(tx: &Tx, #[arguments] silent: Silent) -> Result<i64, Failure> {
    let seen = format!("{}{:?}{:?}", silent.secret, silent.list, silent.limit);
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, ?2)",
        (tx.scope(), seen),
    )?;
    Ok(tx.last_insert_rowid())
}

#[idempotent_tool(operation = "silent_parameters:v1")]
fn silent_parameters(
    tx: &Tx,
    #[serde(default, skip_serializing)] secret: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")] list: Vec<String>,
    #[serde(default = "five", skip_serializing_if = "Option::is_some")] limit: Option<u32>,
) -> Result<i64, Failure> {
    silent(
        tx,
        Silent {
            secret,
            list,
            limit,
        },
    )
}

#[test]
fn arguments_that_serialize_alike_never_collide() {
    let ledger = Ledger::new();
    let tools = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<silent>()
        .tool::<silent_parameters>()
        .build()
        .unwrap();
    let requests = [
        serde_json::json!({}),
        serde_json::json!({ "secret": "a" }),
        serde_json::json!({ "secret": "b" }),
        serde_json::json!({ "list": ["a"] }),
        serde_json::json!({ "limit": 6 }),
        serde_json::json!({ "limit": null }),
    ];
    for tool in ["silent", "silent_parameters"] {
        for (one, first) in requests.iter().enumerate() {
            for (other, second) in requests.iter().enumerate() {
                let call = |arguments: &Value| {
                    let mut arguments = arguments.clone();
                    arguments["idempotency_key"] = key(&format!("{one}-{other}")).into();
                    tools.call_blocking(&ada(), tool, arguments)
                };
                assert_succeeded(&call(first), false);
                let again = call(second);
                // Of a struct's member whose default is not in its schema, null counts as
                // absent, for the handler too. A parameter's default is always known.
                let absent = |number| number == 0 || number == 5;
                if one == other || (tool == "silent" && absent(one) && absent(other)) {
                    assert_succeeded(&again, true);
                } else {
                    assert_code(&again, "payload_conflict");
                }
            }
        }
    }
    let seen = |limit: &str, tool: &str| -> i64 {
        Connection::open(ledger.path())
            .unwrap()
            .query_row(
                "SELECT count(*) FROM notes JOIN idempotent_receipts ON result = notes.id
                 JOIN idempotent_tools ON idempotent_tools.id = tool
                 WHERE body LIKE ?1 AND name = ?2",
                (limit, tool),
                |row| row.get(0),
            )
            .unwrap()
    };
    assert_eq!(
        (seen("%None", "silent"), seen("%None", "silent_parameters")),
        (0, 6)
    );
}

#[test]
fn every_refused_vector_names_its_path_and_stores_nothing() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    for case in cases()["rejected"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let arguments = case["arguments"].as_str().unwrap();
        if serde_json::from_str::<Value>(arguments).is_err() {
            // No parser of this build reads the number, so no call can carry it.
            assert_eq!(name, "not finite");
            continue;
        }
        let reply = call(&tools, name, arguments);
        assert_code(&reply, "invalid_arguments");
        let details = json(&reply)["error"]["details"].clone();
        let paths: Vec<_> = details
            .as_array()
            .unwrap()
            .iter()
            .map(|detail| &detail["path"])
            .collect();
        assert_eq!(paths, [&case["path"]], "{name}: {details}");
    }
    assert_eq!(ledger.rows(), (0, 0));
}

#[test]
fn all_mistakes_are_named_at_once() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    let reply = call(
        &tools,
        "many",
        r#"{ "count": -1, "delta": "x", "nested": { "b": 7, "z": 1 }, "items": [1, "2"], "extra": 0 }"#,
    );
    let details = json(&reply)["error"]["details"].clone();
    let paths: Vec<_> = details
        .as_array()
        .unwrap()
        .iter()
        .map(|detail| detail["path"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        paths,
        [
            "/count",
            "/delta",
            "/extra",
            "/items/1",
            "/nested/a",
            "/nested/b",
            "/nested/z",
            "/text"
        ]
    );
    assert_eq!(ledger.rows(), (0, 0));
}

#[test]
fn an_invalid_call_is_no_result_and_the_corrected_one_runs() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    assert_code(
        &call(&tools, "corrected", r#"{ "text": 1 }"#),
        "invalid_arguments",
    );
    assert_succeeded(&call(&tools, "corrected", r#"{ "text": "x" }"#), false);
}

#[test]
fn messages_never_show_a_value() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger);
    let reply = call(
        &tools,
        "hidden",
        r#"{ "text": 31337, "count": "31337", "tags": ["31337", "31337"], "limit": "31337" }"#,
    );
    assert_code(&reply, "invalid_arguments");
    assert!(!reply.to_json().contains("31337"), "{}", reply.to_json());
}

/// Lists by name.
#[idempotent_tool(operation = "lists:v1")]
fn lists(_tx: &Tx, lists: HashMap<String, Vec<u32>>) -> Result<usize, Failure> {
    Ok(lists.len())
}

/// The reply to arguments with much wrong: at most 32 places, and how many more there are.
#[track_caller]
fn bounded(arguments: &Value, more: usize) -> Value {
    let ledger = Ledger::new();
    let tools = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<canonical_probe>()
        .tool::<lists>()
        .build()
        .unwrap();
    let tool = if arguments.get("lists").is_some() {
        "lists"
    } else {
        "canonical_probe"
    };
    let mut arguments = arguments.clone();
    arguments["idempotency_key"] = key("much").into();
    let reply = tools.call_blocking(&ada(), tool, arguments);
    assert_code(&reply, "invalid_arguments");
    let length = reply.to_json().len();
    assert!(length < 100_000, "{length}");
    let error = json(&reply)["error"].clone();
    assert_eq!(error["more"].as_u64().unwrap_or(0), more as u64);
    let details = error["details"].as_array().unwrap();
    assert_eq!(details.len(), if more == 0 { details.len() } else { 32 });
    for detail in details {
        for text in [&detail["path"], &detail["message"]] {
            assert!(text.as_str().unwrap().chars().count() <= 256, "{text}");
        }
    }
    let paths: Vec<_> = details
        .iter()
        .map(|detail| detail["path"].as_str())
        .collect();
    assert!(paths.is_sorted());
    assert_eq!(ledger.rows(), (0, 0));
    error
}

/// 230 kB of members that nobody knows made a reply of 8.8 MB.
#[test]
fn a_reply_to_many_mistakes_is_bounded() {
    let unknown = |name: &dyn Fn(usize) -> String, number: usize| -> Value {
        let members = (0..number).map(|index| (name(index), Value::Null));
        let mut arguments = Value::Object(members.collect());
        arguments["text"] = marked("x").into();
        arguments
    };
    let error = bounded(
        &unknown(&|index| format!("m{index:06}"), 20_000),
        20_000 - 32,
    );
    assert_eq!(error["details"][31]["path"], "/m000031");
    let message = error["message"].as_str().unwrap();
    assert!(message.ends_with("; and 19968 more"), "{message}");
    bounded(&unknown(&|index| format!("m{index:06}"), 32), 0);
    bounded(&unknown(&|index| format!("m{index:06}"), 33), 1);
    // Names that are alike as far as they are told.
    let long = "é".repeat(1_000);
    let error = bounded(
        &unknown(&|index| format!("{long}{index}"), 1_000),
        1_000 - 32,
    );
    let path = error["details"][0]["path"].as_str().unwrap();
    assert_eq!(path, format!("/{}…", "é".repeat(254)));
}

/// Each of these mistakes has the long name in its path.
#[test]
fn a_long_name_above_many_mistakes_costs_no_more_than_a_short_one() {
    let name = "n".repeat(100_000);
    for wrong in [serde_json::json!("1"), serde_json::json!(1.5)] {
        let list = Value::Array(vec![wrong; 20_000]);
        let error = bounded(
            &serde_json::json!({ "lists": { &name: list } }),
            20_000 - 32,
        );
        let path = error["details"][0]["path"].as_str().unwrap();
        assert!(
            path.starts_with("/lists/nnn") && path.ends_with("n…"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn what_the_own_tools_refuse_is_bounded_too() {
    let lab = crate::provider::Lab::new([]);
    let members = (0..20_000).map(|index| (format!("m{index:06}"), Value::Null));
    let reply = lab
        .tools
        .call(&ada(), "get_operation", Value::Object(members.collect()))
        .await;
    assert_code(&reply, "invalid_arguments");
    assert_eq!(json(&reply)["error"]["more"], 20_001 - 32);
}
