//! The result table: the first answer and every replay carry the same bytes.

use idempotent_tool::{
    Attempt, AttemptError, CallError, Failure, IdempotencyKey, Reply, Status, Toolbox, Tx,
    idempotent_tool,
};
use schemars::JsonSchema;
use serde::{Serialize, Serializer, ser::Error};
use serde_json::json;

use crate::common::{Ledger, MARK, ada, assert_code, assert_succeeded, key};

#[derive(Serialize, JsonSchema)]
struct Limits {
    smallest: i64,
    largest: u64,
    beyond_doubles: u64,
    single: f32,
    double: f64,
    negative_zero: f64,
}

#[derive(Serialize, JsonSchema)]
struct Nothing {}

const LIMITS: Limits = Limits {
    smallest: i64::MIN,
    largest: u64::MAX,
    beyond_doubles: 9_007_199_254_740_993,
    single: 0.1,
    double: 0.1,
    negative_zero: -0.0,
};

/// One tool per row of the table: its name, its operation, its output and the bytes.
macro_rules! table {
    ($($name:ident $operation:literal: $output:ty = $value:expr => $bytes:expr;)*) => {
        $(
            #[idempotent_tool(operation = $operation)]
            fn $name(tx: &Tx) -> Result<$output, Failure> {
                tx.execute("INSERT INTO notes (scope, body) VALUES (?1, 'x')", (tx.scope(),))?;
                Ok($value)
            }
        )*

        #[test]
        fn first_answer_and_replay_are_the_same_bytes() {
            let ledger = Ledger::new();
            let build = |store| {
                Toolbox::builder(store)
                    .without_authorization()
                    $(.tool::<$name>())*
                    .build()
                    .unwrap()
            };
            let tools = build(ledger.store.clone());
            // Another process remembers nothing: it reads what is in the file.
            let restarted = build(ledger.reopen());
            $({
                let call = |tools: &Toolbox| {
                    let arguments = json!({ "idempotency_key": key(stringify!($name)) });
                    tools.call_blocking(&ada(), stringify!($name), arguments)
                };
                let first = call(&tools);
                assert_succeeded(&first, false);
                assert_eq!(first.result().unwrap().get(), $bytes);
                // From memory; from the file by the writer; from the file by a reader.
                for again in [call(&tools), call(&restarted), call(&restarted)] {
                    assert_succeeded(&again, true);
                    assert_eq!(again.result().unwrap().get(), $bytes);
                    assert_eq!(
                        first.to_json().replace(r#""replayed":false"#, r#""replayed":true"#),
                        again.to_json()
                    );
                }
            })*
        }
    };
}

table! {
    unit "unit:v1": () = () => "null";
    yes "yes:v1": bool = true => "true";
    no "no:v1": bool = false => "false";
    zero "zero:v1": i64 = 0 => "0";
    limits "limits:v1": Limits = LIMITS => concat!(
        r#"{"smallest":-9223372036854775808,"largest":18446744073709551615,"#,
        r#""beyond_doubles":9007199254740993,"single":0.1,"double":0.1,"negative_zero":-0.0}"#
    );
    single "single:v1": f32 = 16_777_216.0 => "16777216.0";
    empty_text "empty_text:v1": String = String::new() => r#""""#;
    empty_list "empty_list:v1": Vec<u8> = Vec::new() => "[]";
    empty_object "empty_object:v1": Nothing = Nothing {} => "{}";
    nothing "nothing:v1": Option<u8> = None => "null";
    mebibyte "mebibyte:v1": String = text(MEBIBYTE) => format!("\"{}\"", text(MEBIBYTE));
}

/// The default `max_result`, in bytes of JSON.
const MEBIBYTE: usize = 1 << 20;

/// A text whose JSON has so many bytes.
fn text(bytes: usize) -> String {
    MARK.chars().cycle().take(bytes - 2).collect()
}

#[idempotent_tool(operation = "above_the_default:v1")]
fn above_the_default(tx: &Tx) -> Result<String, Failure> {
    insert(tx)?;
    Ok(text(MEBIBYTE + 1))
}

/// A result whose `Serialize` fails.
#[derive(JsonSchema)]
struct Unserializable {}

impl Serialize for Unserializable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("m4rk3d-v4lu3 is not for everyone"))
    }
}

/// A result that is not what its schema says.
#[derive(JsonSchema)]
struct Liar {
    #[expect(dead_code, reason = "only its schema is used")]
    number: u8,
}

impl Serialize for Liar {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MARK)
    }
}

fn insert(tx: &Tx) -> Result<(), Failure> {
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, 'x')",
        (tx.scope(),),
    )?;
    Ok(())
}

#[idempotent_tool(operation = "unserializable:v1")]
fn unserializable(tx: &Tx) -> Result<Unserializable, Failure> {
    insert(tx)?;
    Ok(Unserializable {})
}

#[idempotent_tool(operation = "liar:v1")]
fn liar(tx: &Tx) -> Result<Liar, Failure> {
    insert(tx)?;
    Ok(Liar { number: 0 })
}

#[idempotent_tool(operation = "oversized:v1", max_result = 10)]
fn oversized(tx: &Tx, length: usize) -> Result<String, Failure> {
    insert(tx)?;
    Ok("x".repeat(length))
}

#[idempotent_tool(operation = "panicking:v1")]
fn panicking(tx: &Tx) -> Result<(), Failure> {
    insert(tx)?;
    panic!("m4rk3d-v4lu3 in a panic");
}

#[test]
fn a_result_that_cannot_be_kept_leaves_no_effect_and_a_clean_connection() {
    let ledger = Ledger::new();
    let tools = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<unserializable>()
        .tool::<liar>()
        .tool::<oversized>()
        .tool::<above_the_default>()
        .tool::<panicking>()
        .tool::<zero>()
        .build()
        .unwrap();
    let call = |tool: &str, arguments: serde_json::Value| -> Reply {
        let mut arguments = arguments;
        arguments["idempotency_key"] = key("bad-result").into();
        tools.call_blocking(&ada(), tool, arguments)
    };
    for (tool, arguments, code) in [
        ("unserializable", json!({}), "result_not_serializable"),
        ("liar", json!({}), "invalid_result"),
        ("oversized", json!({ "length": 9 }), "result_too_large"),
        ("above_the_default", json!({}), "result_too_large"),
        ("panicking", json!({}), "handler_panicked"),
    ] {
        let failed = call(tool, arguments);
        assert_code(&failed, code);
        assert!(!failed.to_json().contains(MARK), "{}", failed.to_json());
        assert_eq!(ledger.rows(), (0, 0), "{tool}");
    }
    assert_succeeded(&call("oversized", json!({ "length": 8 })), false);
    assert_succeeded(&call("zero", json!({})), false);
    assert_eq!(ledger.rows(), (2, 2));
}

#[derive(Serialize, serde::Deserialize, JsonSchema)]
struct Rate {
    rate: Option<f64>,
}

/// A rate that is of no use.
#[idempotent_tool(operation = "odd_rate:v1")]
fn odd_rate(tx: &Tx, how: String) -> Result<Rate, Failure> {
    insert(tx)?;
    let rate = match how.as_str() {
        "nan" => Some(f64::NAN),
        "infinite" => Some(f64::INFINITY),
        _ => None,
    };
    Ok(Rate { rate })
}

/// What takes a rate.
#[idempotent_tool(operation = "take_rate:v1")]
fn take_rate(tx: &Tx, rate: Option<f64>) -> Result<bool, Failure> {
    insert(tx)?;
    Ok(rate.is_some())
}

/// A provider that tells a rate that is of no use.
#[idempotent_tool(operation = "ask_rate:v1", inspect = "Look at the provider's rates")]
async fn ask_rate(_attempt: &Attempt, rate: Option<f64>) -> Result<Rate, AttemptError> {
    Ok(Rate {
        rate: rate.map(|_| f64::NAN),
    })
}

/// Have a rate asked that is of no use.
#[idempotent_tool(operation = "enqueue_rate:v1")]
fn enqueue_rate(tx: &Tx) -> Result<(), Failure> {
    let rate = Some(f64::NEG_INFINITY);
    tx.enqueue::<ask_rate>(&key("rate"), &Rate { rate })?;
    Ok(())
}

fn not_a_rate() -> Option<f64> {
    Some(f64::NAN)
}

#[idempotent_tool(operation = "odd_default:v1")]
fn odd_default(
    _tx: &Tx,
    #[serde(default = "not_a_rate")] rate: Option<f64>,
) -> Result<bool, Failure> {
    Ok(rate.is_some())
}

/// JSON has no such numbers: `serde_json` makes a null of them, which says something else.
#[tokio::test]
async fn a_number_that_is_not_finite_never_becomes_null() {
    let ledger = Ledger::new();
    let tools = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<odd_rate>()
        .tool::<take_rate>()
        .tool::<ask_rate>()
        .tool::<enqueue_rate>()
        .build()
        .unwrap();
    for how in ["nan", "infinite"] {
        let arguments = json!({ "idempotency_key": key("odd"), "how": how });
        let reply = tools.call(&ada(), "odd_rate", arguments).await;
        assert_code(&reply, "invalid_result");
        assert_eq!(ledger.rows(), (0, 0), "{how}");
    }
    let arguments = json!({ "idempotency_key": key("odd"), "how": "none" });
    let reply = tools.call(&ada(), "odd_rate", arguments).await;
    assert_eq!(reply.result().unwrap().get(), r#"{"rate":null}"#);

    // The same of arguments: an action without its rate is another action.
    let odd = IdempotencyKey::new(key("typed")).unwrap();
    let rate = Rate {
        rate: Some(f64::NAN),
    };
    let called = tools.call_typed::<take_rate>(&ada(), &odd, &rate).await;
    assert!(matches!(called, Err(CallError::Arguments(_))), "{called:?}");
    let arguments = json!({ "idempotency_key": key("enqueue") });
    let reply = tools.call(&ada(), "enqueue_rate", arguments).await;
    assert_code(&reply, "invalid_arguments");
    assert_eq!(ledger.rows(), (1, 1));

    // Outside, the effect may exist: a result that can't be written leaves that open.
    let arguments = json!({ "idempotency_key": key("ask"), "rate": 1.0 });
    let reply = tools.call(&ada(), "ask_rate", arguments).await;
    assert_eq!(
        reply.status(),
        Status::OutcomeUnknown,
        "{}",
        reply.to_json()
    );

    let error = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<odd_default>()
        .build()
        .unwrap_err();
    assert!(error.to_string().contains("infinite"), "{error}");
}
