//! What is advertised, and what can't be.

use serde_json::Number;

use super::*;

fn default(name: &'static str, make: fn() -> serde_json::Result<String>) -> ArgumentDefault {
    ArgumentDefault { name, make }
}

#[test]
fn objects_are_closed_integers_bounded_and_nulls_of_options_gone() {
    let contract = compiled::<Second>();
    assert_eq!(
        Value::Object(contract.schema().clone()),
        json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["body"],
            "properties": {
                "body": { "type": "string" },
                "nested": {
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["a"],
                    "properties": {
                        "a": integer("int64", i64::MIN.into(), i64::MAX.into()),
                        "z": with_default(
                            integer("int64", i64::MIN.into(), i64::MAX.into()), json!(0)),
                    },
                },
                "pinned": { "type": "boolean", "default": false },
                "color": { "type": "string" },
                "limit": {
                    "type": ["integer", "null"],
                    "format": "uint32",
                    "minimum": 0,
                    "maximum": u32::MAX,
                    "default": 5,
                },
                "needed": integer("int64", i64::MIN.into(), i64::MAX.into()),
            },
        })
    );
}

fn integer(format: &str, minimum: Number, maximum: Number) -> Value {
    json!({ "type": "integer", "format": format, "minimum": minimum, "maximum": maximum })
}

fn with_default(mut schema: Value, default: Value) -> Value {
    schema["default"] = default;
    schema
}

#[test]
fn null_stays_where_it_means_something() {
    let contract = compiled::<Collections>();
    let properties = &contract.schema()["properties"];
    assert_eq!(
        properties["options"]["items"]["type"],
        json!(["integer", "null"])
    );
    assert_eq!(
        properties["map"]["additionalProperties"]["type"],
        json!(["integer", "null"])
    );
    let inner = &properties["by_number"]["patternProperties"][r"^\d+$"];
    assert_eq!(inner["properties"]["b"], json!({ "type": "boolean" }));
    assert_eq!(inner["additionalProperties"], json!(false));
    let contract = compiled::<Shapes>();
    let properties = &contract.schema()["properties"];
    assert!(
        properties["tagged"]
            .get("oneOf")
            .is_some_and(Value::is_array)
    );
    assert!(properties["tagged"].get("anyOf").is_none());
    assert_eq!(
        properties["many"]["items"]["anyOf"][1],
        json!({ "type": "null" })
    );
    assert_eq!(
        properties["tagged"]["oneOf"][0]["additionalProperties"],
        json!(false)
    );
}

#[test]
fn no_keyword_that_clients_refuse_is_left() {
    let texts = [
        Value::Object(compiled::<Shapes>().schema().clone()).to_string(),
        Value::Object(compiled::<Flattened>().schema().clone()).to_string(),
        Value::Object(compiled::<Limits>().schema().clone()).to_string(),
    ];
    for text in texts {
        for keyword in ["\"$ref\"", "\"$defs\"", "\"$schema\"", "\"nullable\""] {
            assert!(!text.contains(keyword), "{keyword} in {text}");
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Tree {
    root: Branch,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Branch {
    children: Vec<Branch>,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct List {
    next: Option<Box<List>>,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Open {
    a: i64,
    #[serde(flatten)]
    others: HashMap<String, Value>,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Keyed {
    idempotency_key: String,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct BadDefault {
    inner: WithBadDefault,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct WithBadDefault {
    #[serde(default)]
    #[schemars(length(min = 1))]
    text: String,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct BadPattern {
    #[schemars(regex(pattern = "("))]
    text: String,
}

#[test]
fn what_can_be_no_contract_is_refused_by_name() {
    #[track_caller]
    fn check(message: &str, expect: &str) {
        assert!(message.contains(expect), "{message}");
        assert!(
            message.starts_with(char::is_lowercase) && !message.ends_with('.'),
            "{message}"
        );
    }
    check(
        &refused_schema::<Tree>(),
        "the argument `/root/children/*` has a type that contains",
    );
    check(
        &refused_schema::<List>(),
        "the argument `/next` has a type that contains itself",
    );
    check(
        &refused_schema::<Open>(),
        "accepts members that it doesn't name",
    );
    check(&refused_schema::<Outer>(), "combines several schemas");
    check(
        &refused_schema::<Tagged>(),
        "is no object with named members",
    );
    check(
        &refused_schema::<Vec<u8>>(),
        "is no object with named members",
    );
    check(
        &refused_schema::<Value>(),
        "is no object with named members",
    );
    check(&refused_schema::<()>(), "is no object with named members");
    check(
        &refused_schema::<HashMap<String, i64>>(),
        "accepts members that it doesn't name",
    );
    check(
        &refused_schema::<Keyed>(),
        "`idempotency_key`, which is the toolbox's own",
    );
    check(
        &refused_schema::<BadDefault>(),
        "the argument `/inner/text` declares a default",
    );
    check(&refused_schema::<BadPattern>(), "/properties/text/pattern");
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Parameters {
    single: f32,
    count: u32,
    note: Option<String>,
    any: Value,
}

#[test]
fn the_defaults_of_parameters_win() {
    let defaults = [
        default("single", || serde_json::to_string(&0.1_f32)),
        default("count", || serde_json::to_string(&7)),
        default("note", || serde_json::to_string(&None::<String>)),
        default("any", || serde_json::to_string(&json!({ "b": 1, "a": [] }))),
    ];
    let contract = compile::<Parameters>(&defaults).unwrap();
    let properties = &contract.schema()["properties"];
    assert_eq!(properties["single"]["default"].to_string(), "0.1");
    assert_eq!(properties["count"]["default"], json!(7));
    assert_eq!(properties["note"], json!({ "type": "string" }));
    assert_eq!(properties["any"], json!({ "default": { "a": [], "b": 1 } }));
    assert_eq!(contract.schema().get("required"), Some(&json!([])));
    same(
        &contract,
        "{}",
        r#"{"single":0.1,"count":7.0,"note":null,"any":{"a":[],"b":1}}"#,
    );
    differ(&contract, "{}", r#"{"any":null}"#);
    differ(&contract, "{}", r#"{"any":{"a":[],"b":1.0}}"#);
}

#[test]
fn a_default_that_is_none_is_refused() {
    let refused = |default| compile::<Parameters>(&[default]).unwrap_err().to_string();
    let message = refused(default("count", || serde_json::to_string(&-1)));
    assert!(
        message.contains("the argument `/count` declares a default"),
        "{message}"
    );
    let message = refused(default("count", || Err(serde::ser::Error::custom("no"))));
    assert!(
        message.contains("the default of the argument `/count` can't be"),
        "{message}"
    );
    let message = refused(default("missing", || Ok("1".to_owned())));
    assert!(
        message.contains("the argument `/missing`, which the schema"),
        "{message}"
    );
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Integers {
    a: i8,
    b: i16,
    c: i32,
    d: i64,
    e: isize,
    f: u8,
    g: u16,
    h: u32,
    i: u64,
    j: usize,
    k: i128,
    l: u128,
    m: std::num::NonZeroU8,
    #[schemars(range(min = -5, max = 1e30))]
    n: i64,
    #[schemars(range(min = 0.5, max = 2.5))]
    o: i64,
}

#[test]
fn every_integer_has_its_bounds() {
    let contract = compiled::<Integers>();
    let bounds = |name: &str| {
        let schema = &contract.schema()["properties"][name];
        format!("{} {}", schema["minimum"], schema["maximum"])
    };
    assert_eq!(bounds("a"), "-128 127");
    assert_eq!(bounds("b"), "-32768 32767");
    assert_eq!(bounds("c"), "-2147483648 2147483647");
    assert_eq!(bounds("d"), "-9223372036854775808 9223372036854775807");
    assert_eq!(bounds("e"), bounds("d"));
    assert_eq!(bounds("f"), "0 255");
    assert_eq!(bounds("g"), "0 65535");
    assert_eq!(bounds("h"), "0 4294967295");
    assert_eq!(bounds("i"), "0 18446744073709551615");
    assert_eq!(bounds("j"), bounds("i"));
    assert_eq!(bounds("k"), "-9223372036854775808 18446744073709551615");
    assert_eq!(bounds("l"), bounds("i"));
    assert_eq!(bounds("m"), "1 255");
    assert_eq!(bounds("n"), "-5 9223372036854775807");
    assert_eq!(bounds("o"), "1 2");
}
