//! A ledger that the code before exact numbers and ledger time wrote, and what it must still say.
//!
//! `fixtures/ledger-2.db` is of the ledger's version 2, and is never made again: it stands for
//! the files that users have. It was made by that code, with the tools below and the
//! [provider](crate::provider)'s, by a test in this place that
//!
//! 1. at hour 500,000 since 1970 called `keep_numbers`, `label:v1` and each external tool once,
//!    with the keys of [`BURIED`], and pruned eleven and forty days later;
//! 2. made what [`EXPIRED`] names, and went on for 31 days without pruning;
//! 3. made a receipt for each of [`NUMBERS`] and of [`LABELS`], whose results are what the
//!    handler saw;
//! 4. for each line of [`OPERATIONS`] started a [process](crate::process) on the file, had the
//!    provider answer so that the operation came to the state that the line names, and killed
//!    the process in it: a direct call after its acceptance, an enqueued one before the worker
//!    took it, attempts while the provider hung, one that was asked to come back in 20 s
//!    between two attempts, two attempts of `unknown by key`, a mute provider for `unknown by
//!    asking`, and two operations that a person settled;
//! 5. checkpointed the file and vacuumed it, at [`WRITTEN_AT`].

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use idempotent_tool::{Failure, IdempotencyKey, Reply, SqliteStore, Toolbox, Tx, idempotent_tool};
use rusqlite::Connection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use crate::{
    common::{Ledger, ada, assert_code, assert_succeeded, key, marked, watch_logs},
    pace::PacedClock,
    provider::{self, BY_ASKING, BY_HAND, BY_KEY, Provider},
};

/// A decimal as libraries have it: exact, of any number that it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exact(pub(crate) String);

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Number::deserialize(deserializer)?.to_string()))
    }
}

impl Serialize for Exact {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number: Number = self.0.parse().map_err(serde::ser::Error::custom)?;
        number.serialize(serializer)
    }
}

impl JsonSchema for Exact {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Exact".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "number" })
    }
}

/// A newtype around one.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Price(Exact);

/// Exact numbers further down.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Nested {
    #[serde(default = "beyond")]
    price: Price,
    #[serde(default)]
    list: Vec<Exact>,
    #[serde(default)]
    by_name: BTreeMap<String, Exact>,
    ratio: Option<f64>,
}

fn nothing_nested() -> Nested {
    Nested {
        price: beyond(),
        list: Vec::new(),
        by_name: BTreeMap::new(),
        ratio: None,
    }
}

fn beyond() -> Price {
    Price(Exact("9007199254740993".into()))
}

fn one() -> f64 {
    1.0
}

/// Numbers of every kind; the result is what the handler saw.
#[expect(clippy::too_many_arguments, reason = "one of each kind")]
#[idempotent_tool(operation = "keep_numbers:v1", retention = "30d", tombstone = "365d")]
pub(crate) fn keep_numbers(
    tx: &Tx,
    #[serde(default)] count: u64,
    #[serde(default)] delta: i64,
    #[serde(default = "one")] ratio: f64,
    single: Option<f32>,
    exact: Option<Exact>,
    #[serde(default = "beyond")] price: Price,
    #[schemars(with = "Option<f64>")] disguised: Option<Exact>,
    number: Option<Number>,
    #[serde(default = "nothing_nested")] nested: Nested,
    #[serde(default)] any: Value,
) -> Result<String, Failure> {
    let Price(Exact(price)) = price;
    let seen = format!(
        "{count} {delta} {ratio:?} {single:?} {exact:?} {price} {disguised:?} {number:?} {nested:?} {any}"
    );
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, ?2)",
        (tx.scope(), &seen),
    )?;
    Ok(seen)
}

pub(crate) mod first {
    use super::*;

    /// The older version.
    #[idempotent_tool(operation = "label:v1", retention = "30d", tombstone = "365d")]
    pub(crate) fn label(_tx: &Tx, text: String) -> Result<usize, Failure> {
        Ok(text.len())
    }
}

/// The newer version, with one argument more.
#[idempotent_tool(operation = "label:v2", retention = "30d", tombstone = "365d")]
pub(crate) fn label(
    _tx: &Tx,
    text: String,
    #[serde(default)] bold: bool,
) -> Result<String, Failure> {
    Ok(format!("{} {bold}", text.len()))
}

/// Have something deployed by and by.
#[idempotent_tool(
    operation = "deploy_by_and_by:v1",
    retention = "30d",
    tombstone = "365d"
)]
pub(crate) fn deploy_by_and_by(tx: &Tx, name: String) -> Result<String, Failure> {
    let image = serde_json::json!({ "image": marked("web:7") });
    let id = tx.enqueue::<provider::deploy_by_key>(&key(&name), &image)?;
    Ok(id.to_string())
}

/// The calls of `keep_numbers`, each under its own key: what is wrong with a number is in
/// the name, what was sent beside it.
pub(crate) const NUMBERS: [(&str, &str); 27] = [
    ("nothing given", r"{}"),
    (
        "small",
        r#"{"count":7,"delta":-7,"ratio":2,"single":0.1,"exact":1,"number":1.5}"#,
    ),
    ("the same small", r#"{"exact":1.0,"number":2e0}"#),
    ("exact at the limit", r#"{"exact":9007199254740991}"#),
    ("exact, 2^53", r#"{"exact":9007199254740992}"#),
    ("exact, rounded", r#"{"exact":9007199254740993}"#),
    ("exact, rounded, negative", r#"{"exact":-9007199254740993}"#),
    ("exact, largest u64", r#"{"exact":18446744073709551615}"#),
    ("exact, smallest i64", r#"{"exact":-9223372036854775808}"#),
    (
        "exact, second smallest i64",
        r#"{"exact":-9223372036854775807}"#,
    ),
    ("price, the default", r#"{"price":9007199254740993}"#),
    ("price, beside the default", r#"{"price":9007199254740992}"#),
    ("price, rounded", r#"{"price":9007199254740995}"#),
    ("disguised, rounded", r#"{"disguised":9007199254740993}"#),
    ("number, rounded", r#"{"number":9007199254740993}"#),
    ("number, exact", r#"{"number":9007199254740992}"#),
    (
        "nested, rounded",
        r#"{"nested":{"price":9007199254740995}}"#,
    ),
    (
        "nested, the default",
        r#"{"nested":{"price":9007199254740993}}"#,
    ),
    (
        "nested, small",
        r#"{"nested":{"price":5,"list":[1,2.5],"by_name":{"a":3}}}"#,
    ),
    (
        "list, rounded",
        r#"{"nested":{"list":[1,9007199254740993]}}"#,
    ),
    (
        "map, rounded",
        r#"{"nested":{"by_name":{"a":9007199254740993}}}"#,
    ),
    ("ratio, large", r#"{"ratio":1e300}"#),
    ("ratio, 2^64", r#"{"ratio":18446744073709551616}"#),
    ("ratio, 2^53", r#"{"ratio":9007199254740992}"#),
    (
        "count, exact",
        r#"{"count":9007199254740993,"delta":-9007199254740993}"#,
    ),
    ("any, exact", r#"{"any":9007199254740993}"#),
    ("any, nested", r#"{"any":{"a":[9007199254740993,1.0,1]}}"#),
];

/// Those of them that the form of their time rounded, or that left out a default which only a
/// rounded number equals.
const ROUNDED: [&str; 13] = [
    "exact, rounded",
    "exact, rounded, negative",
    "exact, largest u64",
    "exact, second smallest i64",
    "price, the default",
    "price, beside the default",
    "price, rounded",
    "disguised, rounded",
    "number, rounded",
    "nested, rounded",
    "nested, the default",
    "list, rounded",
    "map, rounded",
];

/// The calls of `label`: the version under which each was made, its key and arguments.
pub(crate) const LABELS: [(u32, &str, &str); 3] = [
    (1, "under the first version", r#"{"text":"m4rk3d-v4lu3"}"#),
    (2, "under the second version", r#"{"text":"m4rk3d-v4lu3"}"#),
    (2, "bold", r#"{"text":"m4rk3d-v4lu3","bold":true}"#),
];

/// Keys of which a tombstone is left.
pub(crate) const BURIED: [(&str, &str); 5] = [
    ("keep_numbers", "buried numbers"),
    ("label", "buried label"),
    (BY_KEY, "buried deploy_by_key"),
    (BY_ASKING, "buried deploy_by_asking"),
    (BY_HAND, "buried deploy_by_hand"),
];

/// Keys whose retention was over when the file was written, unpruned: `keep_numbers` without
/// arguments, and a success by `deploy_by_key`.
pub(crate) const EXPIRED: [(&str, &str); 2] =
    [("keep_numbers", "expired"), (BY_KEY, "expired operation")];

/// The external operations: tool, key, the state's text in the file.
pub(crate) const OPERATIONS: [(&str, &str, &str); 17] = [
    (BY_KEY, "accepted by a call", "accepted"),
    (BY_KEY, "enqueued", "accepted"),
    (BY_KEY, "attempting by key", "attempting"),
    (BY_ASKING, "attempting by asking", "attempting"),
    (BY_HAND, "attempting by hand", "attempting"),
    (BY_KEY, "between", "between"),
    (BY_HAND, "cancel requested", "cancel_requested"),
    (BY_KEY, "unknown by key", "outcome_unknown"),
    (BY_ASKING, "unknown by asking", "outcome_unknown"),
    (BY_HAND, "unknown by hand", "outcome_unknown"),
    (BY_KEY, "succeeded", "succeeded"),
    (BY_ASKING, "succeeded by asking", "succeeded"),
    (BY_HAND, "found by a person", "succeeded"),
    (BY_KEY, "refused", "refused"),
    (BY_HAND, "nothing applied", "nothing_applied"),
    (BY_HAND, "settled as not applied", "nothing_applied"),
    (BY_HAND, "cancelled", "cancelled"),
];

/// When the file was written, in milliseconds since 1970.
pub(crate) const WRITTEN_AT: u64 = 1_806_134_465_159;

const FIXTURE: &[u8] = include_bytes!("fixtures/ledger-2.db");

/// A copy of the old file, opened a second after it was written: no lease in it is over.
pub(crate) fn open() -> Ledger {
    watch_logs();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    std::fs::write(&path, FIXTURE).unwrap();
    let written_at = SystemTime::UNIX_EPOCH + Duration::from_millis(WRITTEN_AT);
    let clock = PacedClock::new(written_at + Duration::from_secs(1));
    let store = SqliteStore::options()
        .clock(clock.clone())
        .background_pruning(false)
        .open(&path)
        .unwrap();
    Ledger {
        folder,
        clock,
        store,
    }
}

/// A toolbox with every tool that wrote to the file.
pub(crate) fn toolbox(store: &SqliteStore, provider: &Provider) -> Toolbox {
    Toolbox::builder(store.clone())
        .without_authorization()
        .state(provider.clone())
        .tool::<provider::deploy_by_key>()
        .tool::<provider::deploy_by_asking>()
        .tool::<provider::deploy_by_hand>()
        .tool::<keep_numbers>()
        .tool::<first::label>()
        .tool::<label>()
        .tool::<deploy_by_and_by>()
        .build()
        .unwrap()
}

async fn call(tools: &Toolbox, tool: &str, name: &str, arguments: &str) -> Reply {
    let mut arguments: Value = serde_json::from_str(arguments).unwrap();
    arguments["idempotency_key"] = key(name).into();
    tools.call(&ada(), tool, arguments).await
}

#[tokio::test]
async fn an_old_file_has_what_its_description_says() {
    let ledger = open();
    let tools = toolbox(&ledger.store, &Provider::new(&ledger.clock, []));
    let connection = Connection::open(ledger.path()).unwrap();
    for (_, name, state) in OPERATIONS {
        let found: String = connection
            .query_row(
                "SELECT state FROM idempotent_external JOIN idempotent_receipts USING (seq)
                 WHERE key = ?1",
                [key(name)],
                |row| row.get(0),
            )
            .unwrap();
        assert_eq!(found, state, "{name}");
    }
    for (tool, name) in BURIED.into_iter().chain(EXPIRED) {
        let arguments = match tool {
            "keep_numbers" => "{}",
            "label" => r#"{"text":"m4rk3d-v4lu3"}"#,
            _ => r#"{"image":"m4rk3d-v4lu3 web:7"}"#,
        };
        let reply = call(&tools, tool, name, arguments).await;
        assert_code(&reply, "key_expired");
    }
}

#[tokio::test]
async fn the_receipts_of_an_old_file_are_replayed_byte_for_byte() {
    let ledger = open();
    let tools = toolbox(&ledger.store, &Provider::new(&ledger.clock, []));
    let connection = Connection::open(ledger.path()).unwrap();
    let recorded = |name: &str| -> String {
        connection
            .query_row(
                "SELECT result FROM idempotent_receipts WHERE key = ?1",
                [key(name)],
                |row| row.get(0),
            )
            .unwrap()
    };
    for (name, arguments) in NUMBERS {
        let reply = call(&tools, "keep_numbers", name, arguments).await;
        if ROUNDED.contains(&name) {
            // It may be another integer's receipt: nobody can tell any more.
            assert_code(&reply, "payload_conflict");
        } else {
            assert_succeeded(&reply, true);
            assert_eq!(reply.result().unwrap().get(), recorded(name), "{name}");
        }
    }
    let ada = ada();
    for (version, name, arguments) in LABELS {
        let reply = call(&tools, "label", name, arguments).await;
        assert_succeeded(&reply, true);
        assert_eq!(reply.result().unwrap().get(), recorded(name), "{name}");
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        let key = IdempotencyKey::new(key(name)).unwrap();
        if version == 1 {
            let typed = tools.call_typed::<first::label>(&ada, &key, &arguments);
            assert!(typed.await.unwrap().replayed, "{name}");
        } else {
            let typed = tools.call_typed::<label>(&ada, &key, &arguments);
            assert!(typed.await.unwrap().replayed, "{name}");
        }
    }
}

/// `9007199254740993` replayed the receipt of `…992`, and its handler saw that one.
#[tokio::test]
async fn an_integer_that_was_rounded_replays_no_others_receipt_and_arrives_as_it_is() {
    let ledger = open();
    let tools = toolbox(&ledger.store, &Provider::new(&ledger.clock, []));
    let beyond = r#"{"exact":9007199254740993}"#;
    let reply = call(&tools, "keep_numbers", "exact, 2^53", beyond).await;
    assert_code(&reply, "payload_conflict");
    for (name, arguments, seen) in [
        ("new", beyond, "9007199254740993"),
        (
            "new option",
            r#"{"number":9007199254740993}"#,
            "Some(Number(9007199254740993))",
        ),
        (
            "new newtype",
            r#"{"price":9007199254740995}"#,
            " 9007199254740995 ",
        ),
        (
            "new disguise",
            r#"{"disguised":-9007199254740993}"#,
            "-9007199254740993",
        ),
        (
            "new list",
            r#"{"nested":{"list":[9007199254740993]}}"#,
            "list: [Exact(\"9007199254740993",
        ),
        ("new default", "{}", " 9007199254740993 "),
    ] {
        let first = call(&tools, "keep_numbers", name, arguments).await;
        assert_succeeded(&first, false);
        let result: String = serde_json::from_str(first.result().unwrap().get()).unwrap();
        assert!(result.contains(seen), "{name}: {result}");
        assert_succeeded(&call(&tools, "keep_numbers", name, arguments).await, true);
        for other in ["9007199254740992", "9007199254740994"] {
            let other = if arguments == "{}" {
                format!(r#"{{"price":{other}}}"#)
            } else {
                arguments
                    .replace("9007199254740993", other)
                    .replace("9007199254740995", other)
            };
            let reply = call(&tools, "keep_numbers", name, &other).await;
            assert_code(&reply, "payload_conflict");
        }
    }
    let given = r#"{"price":9007199254740993}"#;
    assert_succeeded(
        &call(&tools, "keep_numbers", "new default", given).await,
        true,
    );
}
