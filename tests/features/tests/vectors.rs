//! Runs the vectors and compares the recorded digests with those that were committed.

use std::{collections::BTreeMap, error::Error};

use features::{canonical_probe, exact_probe, extremes};
use idempotent_tool::{Caller, Reply, Scope, SqliteStore, Toolbox};
use serde::Deserialize;
use serde_json::Value;

const CASES: &str = include_str!("../../cases/canonical.json");
const DIGESTS: &str = include_str!("../../cases/digests.json");
const EXACT_CASES: &str = include_str!("../../cases/exact.json");
const EXACT_DIGESTS: &str = include_str!("../../cases/exact_digests.json");
const CONTRACT: &str = include_str!("contract.json");

#[derive(Deserialize)]
struct Cases {
    pairs: Vec<Pair>,
    rejected: Vec<Rejected>,
}

#[derive(Deserialize)]
struct Pair {
    name: String,
    left: String,
    right: String,
    same: bool,
}

#[derive(Deserialize)]
struct Rejected {
    name: String,
    arguments: String,
    path: String,
}

struct Probe {
    store: SqliteStore,
    tools: Toolbox,
    caller: Caller,
}

impl Probe {
    fn new() -> Self {
        let store = SqliteStore::in_memory().unwrap();
        let tools = Toolbox::builder(store.clone())
            .without_authorization()
            .tool::<canonical_probe>()
            .tool::<extremes>()
            .tool::<exact_probe>()
            .build()
            .unwrap();
        let scope = Scope::builder().principal("ada").build().unwrap();
        Self {
            store,
            tools,
            caller: Caller::new(scope),
        }
    }

    /// Calls with arguments as JSON text, which may not parse.
    fn call(&self, tool: &str, key: &str, arguments: &str) -> serde_json::Result<Reply> {
        let mut arguments: Value = serde_json::from_str(arguments)?;
        if let Value::Object(members) = &mut arguments {
            members.insert("idempotency_key".to_owned(), key.into());
        }
        Ok(self.tools.call_blocking(&self.caller, tool, arguments))
    }

    fn succeed(&self, tool: &str, key: &str, arguments: &str) -> Reply {
        let reply = self.call(tool, key, arguments).unwrap();
        assert!(reply.result().is_some(), "{key}: {}", reply.to_json());
        reply
    }

    fn text(&self, sql: &str, parameter: &str) -> String {
        self.store
            .read(|connection| {
                Ok::<_, Box<dyn Error>>(connection.query_row(sql, [parameter], |row| row.get(0))?)
            })
            .unwrap()
    }

    fn digest(&self, key: &str) -> String {
        let sql = "SELECT lower(hex(fingerprint)) FROM idempotent_receipts WHERE key = ?1";
        self.text(sql, key)
    }
}

/// How this build reads numbers.
const PARSER: &str = if cfg!(feature = "arbitrary_precision") {
    "arbitrary precision"
} else {
    "doubles"
};

#[test]
fn the_features_are_what_this_build_is_for() {
    let text = serde_json::from_str::<Value>(r#"{"b":1.10,"a":1}"#)
        .unwrap()
        .to_string();
    assert_eq!(
        text.starts_with(r#"{"b""#),
        cfg!(feature = "preserve_order"),
        "{text}"
    );
    assert_eq!(
        text.contains("1.10"),
        cfg!(feature = "arbitrary_precision"),
        "{text}"
    );
}

#[test]
fn pairs_are_one_or_two_and_digests_those_that_were_committed() {
    check_pairs("canonical_probe", CASES, DIGESTS, 36);
    check_pairs("exact_probe", EXACT_CASES, EXACT_DIGESTS, 20);
}

fn check_pairs(tool: &str, cases: &str, digests: &str, at_least: usize) {
    let probe = Probe::new();
    let cases: Cases = serde_json::from_str(cases).unwrap();
    let mut digests: BTreeMap<String, [String; 2]> = serde_json::from_str(digests).unwrap();
    assert!(cases.pairs.len() >= at_least);
    for Pair {
        name,
        left,
        right,
        same,
    } in cases.pairs
    {
        let first = probe.succeed(tool, &name, &left);
        let again = probe.call(tool, &name, &right).unwrap();
        if same {
            assert!(again.is_replayed(), "{name}: {}", again.to_json());
            assert_eq!(first.result().unwrap().get(), again.result().unwrap().get());
        } else {
            assert_eq!(again.error_code(), Some("payload_conflict"), "{name}");
        }
        let other = format!("{name}, right");
        let second = probe.succeed(tool, &other, &right);
        // One digest is one request to the handler, but for the order of an untyped
        // object's members where the parser keeps it.
        if same && !cfg!(feature = "preserve_order") {
            assert_eq!(
                first.result().unwrap().get(),
                second.result().unwrap().get(),
                "{name}"
            );
        }
        if !same && tool == "exact_probe" {
            assert_ne!(
                first.result().unwrap().get(),
                second.result().unwrap().get(),
                "{name}"
            );
        }
        let now = [probe.digest(&name), probe.digest(&other)];
        assert_eq!(Some(now), digests.remove(&name), "{name}");
    }
    assert!(digests.is_empty(), "{digests:?}");
}

#[test]
fn rejections_name_the_path() {
    check_rejections("canonical_probe", CASES, 12);
    check_rejections("exact_probe", EXACT_CASES, 15);
}

fn check_rejections(tool: &str, cases: &str, at_least: usize) {
    let probe = Probe::new();
    let cases: Cases = serde_json::from_str(cases).unwrap();
    assert!(cases.rejected.len() >= at_least);
    for Rejected {
        name,
        arguments,
        path,
    } in cases.rejected
    {
        let Ok(reply) = probe.call(tool, &name, &arguments) else {
            assert_eq!(name, "not finite");
            assert_ne!(PARSER, "arbitrary precision", "{name}");
            continue;
        };
        let reply: Value = serde_json::from_str(&reply.to_json()).unwrap();
        assert_eq!(reply["error"]["code"], "invalid_arguments", "{name}");
        let details = reply["error"]["details"].as_array().unwrap();
        let paths: Vec<_> = details.iter().map(|detail| &detail["path"]).collect();
        assert_eq!(paths, [&path], "{name}");
    }
}

#[test]
fn spellings_that_only_some_parsers_keep_are_one() {
    let probe = Probe::new();
    let spellings = [
        (r#"{"text":"x","any":1.10}"#, r#"{"text":"x","any":1.1}"#),
        (r#"{"text":"x","any":1e2}"#, r#"{"text":"x","any":100.0}"#),
        (r#"{"text":"x","any":-0}"#, r#"{"text":"x","any":-0.0}"#),
        (
            r#"{"text":"x","any":0.1000000000000000055}"#,
            r#"{"text":"x","any":0.1}"#,
        ),
        (
            r#"{"text":"x","count":100e-2}"#,
            r#"{"text":"x","count":1}"#,
        ),
        (
            r#"{"text":"x","ratio":1e-400}"#,
            r#"{"text":"x","ratio":0}"#,
        ),
        (
            r#"{"text":"x","ratio":100000000000000000000}"#,
            r#"{"text":"x","ratio":1e20}"#,
        ),
    ];
    for (index, (left, right)) in spellings.into_iter().enumerate() {
        let key = index.to_string();
        let first = probe.succeed("canonical_probe", &key, left);
        assert!(
            probe.succeed("canonical_probe", &key, right).is_replayed(),
            "{left} {right}"
        );
        let second = probe.succeed("canonical_probe", &format!("{key}, right"), right);
        assert_eq!(
            first.result().unwrap().get(),
            second.result().unwrap().get()
        );
    }
    for refused in [
        r#"{"text":"x","any":100000000000000000000}"#,
        r#"{"text":"x","any":-9223372036854775809}"#,
        r#"{"text":"x","any":1e30}"#,
        r#"{"text":"x","count":9007199254740993.0}"#,
        r#"{"text":"x","delta":1e300}"#,
    ] {
        let reply = probe.call("canonical_probe", "refused", refused).unwrap();
        assert_eq!(reply.error_code(), Some("invalid_arguments"), "{refused}");
    }
}

#[test]
fn results_keep_their_bytes() {
    let probe = Probe::new();
    let expect = r#"{"z_first":0.1,"largest":18446744073709551615,"least":-9223372036854775808,"whole":1.0,"tiny":2.2250738585072014e-308,"any":0.5,"unit":null}"#;
    for (arguments, replayed) in [("{}", false), (r#"{"single":0.1}"#, true)] {
        let reply = probe.succeed("extremes", "key", arguments);
        assert_eq!(reply.result().unwrap().get(), expect);
        assert_eq!(reply.is_replayed(), replayed);
        assert!(reply.to_json().contains(expect));
    }
}

#[test]
fn contracts_are_stored_as_they_always_were() {
    let probe = Probe::new();
    let sql = "SELECT contract FROM idempotent_contracts JOIN idempotent_tools ON tool = id \
               WHERE name = ?1";
    assert_eq!(probe.text(sql, "extremes"), CONTRACT.trim_end());
}
