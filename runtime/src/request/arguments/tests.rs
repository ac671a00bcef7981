//! The rules of the contract, one by one, and the vectors of `tests/cases`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::tool::ToolArguments;

mod exact;
mod properties;
mod schemas;
mod vectors;

fn compiled<T: ToolArguments>() -> CompiledArguments {
    compile::<T>(&[]).unwrap()
}

fn compile<T: ToolArguments>(
    defaults: &[ArgumentDefault],
) -> Result<CompiledArguments, SchemaError> {
    CompiledArguments::compile(T::json_schema(), defaults)
}

#[track_caller]
fn refused_schema<T: ToolArguments>() -> String {
    CompiledArguments::compile(T::json_schema(), &[])
        .unwrap_err()
        .to_string()
}

fn parse(text: &str) -> Map<String, Value> {
    as_object(serde_json::from_str(text).unwrap()).unwrap()
}

#[track_caller]
fn fingerprint(contract: &CompiledArguments, text: &str) -> Fingerprint {
    match contract.prepare(&parse(text)) {
        Ok(prepared) => prepared.fingerprint,
        Err(errors) => panic!("{text} is refused: {errors:?}"),
    }
}

#[track_caller]
fn same(contract: &CompiledArguments, left: &str, right: &str) {
    let equal = fingerprint(contract, left) == fingerprint(contract, right);
    assert!(equal, "{left} and {right} differ");
}

#[track_caller]
fn differ(contract: &CompiledArguments, left: &str, right: &str) {
    let equal = fingerprint(contract, left) == fingerprint(contract, right);
    assert!(!equal, "{left} and {right} are one");
}

/// Checks which paths are refused, and that no message holds the marked value.
#[track_caller]
fn refuses(contract: &CompiledArguments, text: &str, expect: &[(&str, &str)]) {
    let errors = contract.prepare(&parse(text)).map(|_| ()).unwrap_err();
    let errors = errors.details();
    let found: Vec<_> = errors
        .iter()
        .map(|error| (error.path(), error.message()))
        .collect();
    assert_eq!(found, expect, "{text}");
    assert!(
        errors
            .iter()
            .all(|error| !error.message().contains("secret")),
        "{text}"
    );
}

#[test]
fn arguments_are_an_object() {
    let errors = as_object(json!([1])).unwrap_err();
    let [error] = errors.details() else {
        panic!("{errors:?}")
    };
    assert_eq!(error.path(), "");
    assert!(as_object(json!({})).is_ok());
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Limits {
    #[schemars(length(min = 2, max = 4))]
    text: String,
    #[schemars(range(min = 1, max = 5))]
    small: u8,
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    ratio: f64,
    #[schemars(regex(pattern = "^[a-z]+$"))]
    word: String,
    #[schemars(email)]
    mail: String,
    flag: bool,
    list: Vec<Inner>,
    #[serde(default)]
    map: HashMap<String, i32>,
    #[serde(default)]
    pair: Option<(i8, String)>,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Inner {
    a: i64,
    b: Option<bool>,
}

#[test]
fn every_failing_path_is_named_at_once() {
    let contract = compiled::<Limits>();
    refuses(
        &contract,
        r#"{"text":"secret","small":0,"ratio":0,"word":"secret 1","mail":"secret",
            "flag":"secret","list":[{"a":1},{"a":1.5,"b":"secret","c/d":1},7],
            "map":{"k":4000000000},"pair":[200,null],"extra":"secret"}"#,
        &[
            ("/extra", "is not known here; remove it or correct its name"),
            ("/flag", "must be a boolean"),
            ("/list/1/a", "must be an integer"),
            ("/list/1/b", "must be a boolean"),
            (
                "/list/1/c~1d",
                "is not known here; remove it or correct its name",
            ),
            ("/list/2", "must be an object"),
            ("/mail", "must have the format `email`"),
            (
                "/map/k",
                "must be an integer from -2147483648 to 2147483647",
            ),
            ("/pair/0", "must be an integer from -128 to 127"),
            ("/pair/1", "must be a string"),
            ("/ratio", "must be greater than 0.0"),
            ("/small", "must be an integer from 1 to 5"),
            ("/text", "must have at most 4 characters"),
            ("/word", "must match the pattern `^[a-z]+$`"),
        ],
    );
    refuses(
        &contract,
        "{}",
        &[
            ("/flag", "is required"),
            ("/list", "is required"),
            ("/mail", "is required"),
            ("/ratio", "is required"),
            ("/small", "is required"),
            ("/text", "is required"),
            ("/word", "is required"),
        ],
    );
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Code {
    #[schemars(length(max = 2))]
    code: String,
}

#[test]
fn lengths_count_code_points() {
    let contract = compiled::<Code>();
    fingerprint(&contract, r#"{"code":"😀é"}"#);
    refuses(
        &contract,
        r#"{"code":"abc"}"#,
        &[("/code", "must have at most 2 characters")],
    );
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
enum Tagged {
    Circle {
        radius: f64,
        #[serde(default = "yes")]
        filled: bool,
    },
    Square {
        side: f64,
        note: Option<String>,
    },
}

fn yes() -> bool {
    true
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
enum External {
    Unit,
    Other,
    Newtype(f64),
    Struct { x: i32, y: Option<i32> },
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "t", content = "c")]
#[expect(dead_code, reason = "only its schema is used")]
enum Adjacent {
    A(i64),
    B { z: Option<i64> },
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum Untagged {
    Number(f64),
    Text(String),
    Both { a: i64, b: Option<i64> },
    Also { a: i64, b: Option<String> },
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Shapes {
    tagged: Option<Tagged>,
    external: Option<External>,
    adjacent: Option<Adjacent>,
    untagged: Option<Untagged>,
    many: Option<Vec<Option<Tagged>>>,
}

#[test]
fn alternatives_are_normalized_by_their_tag() {
    let contract = compiled::<Shapes>();
    same(
        &contract,
        r#"{"tagged":{"kind":"circle","radius":1}}"#,
        r#"{"tagged":{"radius":1.0,"filled":true,"kind":"circle"}}"#,
    );
    same(
        &contract,
        r#"{"tagged":{"kind":"square","side":1,"note":null}}"#,
        r#"{"tagged":{"kind":"square","side":1e0}}"#,
    );
    differ(
        &contract,
        r#"{"tagged":{"kind":"circle","radius":1}}"#,
        r#"{"tagged":{"kind":"circle","radius":1,"filled":false}}"#,
    );
    same(
        &contract,
        r#"{"external":{"newtype":2}}"#,
        r#"{"external":{"newtype":2.0}}"#,
    );
    same(
        &contract,
        r#"{"external":{"struct":{"x":2.0}}}"#,
        r#"{"external":{"struct":{"x":2,"y":null}}}"#,
    );
    differ(
        &contract,
        r#"{"external":"unit"}"#,
        r#"{"external":"other"}"#,
    );
    same(
        &contract,
        r#"{"adjacent":{"t":"A","c":1.0}}"#,
        r#"{"adjacent":{"c":1,"t":"A"}}"#,
    );
    same(
        &contract,
        r#"{"adjacent":{"t":"B","c":{"z":null}}}"#,
        r#"{"adjacent":{"t":"B","c":{}}}"#,
    );
    differ(
        &contract,
        r#"{"adjacent":{"t":"A","c":1}}"#,
        r#"{"adjacent":{"t":"A","c":2}}"#,
    );
    same(&contract, r#"{"tagged":null}"#, "{}");
    differ(&contract, r#"{"many":[null]}"#, r#"{"many":[]}"#);
    same(
        &contract,
        r#"{"many":[null,{"kind":"square","side":1,"note":null}]}"#,
        r#"{"many":[null,{"kind":"square","side":1}]}"#,
    );
}

#[test]
fn untagged_values_are_decided_by_what_they_are_or_kept() {
    let contract = compiled::<Shapes>();
    same(&contract, r#"{"untagged":1}"#, r#"{"untagged":1.0}"#);
    same(&contract, r#"{"untagged":1e300}"#, r#"{"untagged":1E+300}"#);
    differ(
        &contract,
        r#"{"untagged":{"a":1,"b":1}}"#,
        r#"{"untagged":{"a":1,"b":"1"}}"#,
    );
    // Two branches may describe it, so its null is no one's to drop, and is accepted.
    differ(
        &contract,
        r#"{"untagged":{"a":1,"b":null}}"#,
        r#"{"untagged":{"a":1}}"#,
    );
}

#[test]
fn errors_inside_alternatives_name_the_leaf() {
    let contract = compiled::<Shapes>();
    let one_of = "must be one of `circle`, `square`";
    refuses(
        &contract,
        r#"{"tagged":{"kind":"circle","radius":"secret","z":1}}"#,
        &[
            ("/tagged/radius", "must be a number"),
            (
                "/tagged/z",
                "is not known here; remove it or correct its name",
            ),
        ],
    );
    refuses(
        &contract,
        r#"{"tagged":{"kind":"secret"}}"#,
        &[("/tagged/kind", one_of)],
    );
    refuses(
        &contract,
        r#"{"tagged":{}}"#,
        &[("/tagged/kind", "is required")],
    );
    refuses(
        &contract,
        r#"{"tagged":"secret"}"#,
        &[("/tagged", "must be an object")],
    );
    refuses(
        &contract,
        r#"{"external":{"struct":{"x":"secret"}}}"#,
        &[("/external/struct/x", "must be an integer")],
    );
    refuses(
        &contract,
        r#"{"external":"secret"}"#,
        &[("/external", "must be one of `unit`, `other` or an object")],
    );
    refuses(
        &contract,
        r#"{"external":{"secret":1}}"#,
        &[(
            "/external/secret",
            "is not known here; remove it or correct its name",
        )],
    );
    refuses(
        &contract,
        r#"{"adjacent":{"t":"A","c":9223372036854775808}}"#,
        &[(
            "/adjacent/c",
            "must be an integer from -9223372036854775808 to 9223372036854775807",
        )],
    );
    refuses(
        &contract,
        r#"{"untagged":[]}"#,
        &[("/untagged", "must be a number or a string or an object")],
    );
    refuses(
        &contract,
        r#"{"many":[{"kind":"square"}]}"#,
        &[("/many/0/side", "is required")],
    );
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Flattened {
    outer: Outer,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Outer {
    id: i64,
    note: Option<String>,
    #[serde(flatten)]
    shape: Tagged,
}

#[test]
fn what_is_flattened_together_is_closed_and_kept_as_it_came() {
    let contract = compiled::<Flattened>();
    same(
        &contract,
        r#"{"outer":{"id":1,"kind":"circle","radius":1.5}}"#,
        r#"{"outer":{"kind":"circle","radius":1.5,"id":1}}"#,
    );
    // Nothing tells which schema a member belongs to, so its default is not left out.
    differ(
        &contract,
        r#"{"outer":{"id":1,"kind":"circle","radius":1.5}}"#,
        r#"{"outer":{"id":1,"kind":"circle","radius":1.5,"filled":true}}"#,
    );
    fingerprint(
        &contract,
        r#"{"outer":{"id":1,"note":null,"kind":"circle","radius":1.5}}"#,
    );
    refuses(
        &contract,
        r#"{"outer":{"id":1,"kind":"circle","radius":1.5,"secret":1}}"#,
        &[(
            "/outer/secret",
            "is not known here; remove it or correct its name",
        )],
    );
    refuses(
        &contract,
        r#"{"outer":{"id":1,"kind":"circle","radius":"secret"}}"#,
        &[("/outer/radius", "must be a number")],
    );
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Collections {
    #[serde(default)]
    set: BTreeSet<u64>,
    #[serde(default)]
    sets: Vec<BTreeSet<String>>,
    #[serde(default)]
    map: BTreeMap<String, Option<i64>>,
    #[serde(default)]
    by_number: BTreeMap<u8, Inner>,
    #[serde(default)]
    options: Vec<Option<i64>>,
    #[serde(default)]
    single: f32,
}

#[test]
fn collections_keep_what_says_something() {
    let contract = compiled::<Collections>();
    same(&contract, r#"{"set":[1,2.0,300]}"#, r#"{"set":[300,2,1]}"#);
    same(
        &contract,
        r#"{"sets":[["a","b"],["c"]]}"#,
        r#"{"sets":[["b","a"],["c"]]}"#,
    );
    differ(
        &contract,
        r#"{"sets":[["a"],["c"]]}"#,
        r#"{"sets":[["c"],["a"]]}"#,
    );
    differ(&contract, r#"{"map":{"k":null}}"#, r#"{"map":{}}"#);
    differ(&contract, r#"{"map":{"k":null}}"#, r#"{"map":{"k":0}}"#);
    same(
        &contract,
        r#"{"by_number":{"1":{"a":1,"b":null}}}"#,
        r#"{"by_number":{"1":{"a":1}}}"#,
    );
    differ(&contract, r#"{"options":[null]}"#, r#"{"options":[]}"#);
    same(
        &contract,
        r#"{"single":0.1}"#,
        r#"{"single":0.10000000149011612}"#,
    );
    same(&contract, r#"{"single":-0.0}"#, "{}");
    refuses(
        &contract,
        r#"{"set":[1,1.0]}"#,
        &[("/set", "must not repeat an element")],
    );
    refuses(
        &contract,
        r#"{"single":1e39}"#,
        &[("/single", "must lie within the range of 32-bit floats")],
    );
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Any {
    any: Value,
}

#[test]
fn untyped_values_are_kept_as_they_came() {
    let contract = compiled::<Any>();
    differ(&contract, r#"{"any":-0.0}"#, r#"{"any":0.0}"#);
    differ(&contract, r#"{"any":0.0}"#, r#"{"any":0}"#);
    same(
        &contract,
        r#"{"any":{"b":1,"a":2.0}}"#,
        r#"{"any":{"a":2e0,"b":1}}"#,
    );
    refuses(
        &contract,
        r#"{"any":[1,[18446744073709551616]]}"#,
        &[(
            "/any/1/0",
            "must lie within the range of 64-bit integers; give a larger number as a string",
        )],
    );
    let mut deep = json!(1);
    for _ in 0..200 {
        deep = json!([deep]);
    }
    let errors = contract
        .prepare(&as_object(json!({ "any": deep })).unwrap())
        .unwrap_err();
    assert!(errors.text().contains("deeper than 128"), "{errors:?}");
}

#[test]
fn a_text_that_looks_like_the_form_is_a_text() {
    let contract = compiled::<Any>();
    // `s` begins a text, `e` ends an array, `m` begins a member.
    differ(&contract, r#"{"any":["asb"]}"#, r#"{"any":["a","b"]}"#);
    differ(&contract, r#"{"any":["aesb"]}"#, r#"{"any":["a","b"]}"#);
    differ(
        &contract,
        r#"{"any":["a\u0001sb"]}"#,
        r#"{"any":["a","b"]}"#,
    );
    differ(
        &contract,
        r#"{"any":{"a":"bmcsd"}}"#,
        r#"{"any":{"a":"b","c":"d"}}"#,
    );
    differ(
        &contract,
        r#"{"any":[["a"],"b"]}"#,
        r#"{"any":["a",["b"]]}"#,
    );
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct LongName {
    #[serde(
        rename = "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee"
    )]
    name: Option<u8>,
}

#[test]
fn a_name_as_long_as_a_marker_is_large_is_no_marker() {
    // 101 is the byte that ends an object.
    let name = "e".repeat(101);
    let (empty, given) = (json!({}), json!({ name: 1 }));
    for node in [&node::UNTYPED, &compiled::<LongName>().node] {
        let form = |value| {
            let mut form = Form::default();
            canonical::write(node, value, &mut form);
            form.bytes
        };
        assert!(!form(&given).starts_with(&form(&empty)));
    }
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct First {
    body: String,
    nested: Option<Nested1>,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Nested1 {
    a: i64,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Second {
    body: String,
    nested: Option<Nested2>,
    #[serde(default)]
    pinned: bool,
    color: Option<String>,
    #[serde(default = "five")]
    limit: Option<u32>,
    needed: Option<i64>,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Nested2 {
    a: i64,
    #[serde(default)]
    z: i64,
}

#[expect(clippy::unnecessary_wraps, reason = "the default of an `Option`")]
fn five() -> Option<u32> {
    Some(5)
}

#[test]
fn an_added_optional_argument_changes_no_fingerprint() {
    let (first, second) = (compiled::<First>(), compiled::<Second>());
    for text in [r#"{"body":"x"}"#, r#"{"body":"x","nested":{"a":1}}"#] {
        assert_eq!(fingerprint(&first, text), fingerprint(&second, text));
    }
    assert_eq!(
        fingerprint(&first, r#"{"body":"x"}"#),
        fingerprint(
            &second,
            r#"{"body":"x","pinned":false,"color":null,"limit":5}"#
        ),
    );
}

#[test]
fn members_that_repeat_a_newer_default_are_dropped_for_the_older_version() {
    let (first, second) = (compiled::<First>(), compiled::<Second>());
    let check = |text: &str, expect: &str| {
        assert_eq!(
            first.without_newer_defaults(&parse(text), &second),
            parse(expect),
            "{text}"
        );
    };
    check(
        r#"{"body":"x","pinned":false,"color":null,"limit":5,"nested":{"a":1,"z":0.0}}"#,
        r#"{"body":"x","nested":{"a":1}}"#,
    );
    check(
        r#"{"body":"x","pinned":true}"#,
        r#"{"body":"x","pinned":true}"#,
    );
    check(
        r#"{"body":"x","limit":null}"#,
        r#"{"body":"x","limit":null}"#,
    );
    check(
        r#"{"body":"x","unknown":null}"#,
        r#"{"body":"x","unknown":null}"#,
    );
    check(r#"{"body":7,"nested":7}"#, r#"{"body":7,"nested":7}"#);
}

#[test]
fn the_handler_sees_what_was_digested() {
    let contract = compiled::<Collections>();
    let prepared = contract
        .prepare(&parse(r#"{"single":0.1,"set":[2.0]}"#))
        .unwrap();
    assert_eq!(prepared.arguments["set"], json!([2]));
    let typed = Collections::from_json(&prepared.arguments).unwrap();
    assert_eq!(typed.single.to_bits(), 0.1_f32.to_bits());
    let typed = serde_json::to_value(BTreeMap::from([("single", 0.1_f32)])).unwrap();
    let typed = contract.prepare(&as_object(typed).unwrap()).unwrap();
    assert_eq!(
        typed.fingerprint,
        fingerprint(&contract, r#"{"single":0.1}"#)
    );
}
