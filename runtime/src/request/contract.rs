//! The contract of one version as the ledger keeps it, and what may change in place.

use std::collections::BTreeSet;

use serde_json::{Map, Number, Value, json};

use crate::request::{
    arguments::{
        DefaultChange, default_change,
        number::{Reading, read},
    },
    json_schema::{Shape, pointer, subschemas_mut},
};

/// The form of [`Contract::json`]; another one takes another number.
const FORMAT: u32 = 1;

/// The member that holds the arguments' schema.
const ARGUMENTS: &str = "arguments";

/// The member that says where the effect is, if not in the database.
const EFFECT: &str = "effect";
const EXTERNAL: &str = "external";

/// Keywords that are texts for readers and promise nothing.
const ANNOTATIONS: &[&str] = &[
    "$comment",
    "$id",
    "$schema",
    "deprecated",
    "description",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
];

/// What a version promised: its arguments' schema and its result's, without texts, and
/// where its effect is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Contract {
    pub(crate) tool: String,
    pub(crate) version: u32,
    /// The form that is stored: members sorted, descriptions and titles removed.
    pub(crate) json: Value,
}

impl Contract {
    /// The contract of `tool:vVERSION` with these schemas, as they are advertised.
    pub(crate) fn new(
        tool: &str,
        version: u32,
        arguments: &Map<String, Value>,
        result: &Value,
        external: bool,
    ) -> Self {
        let mut json = json!({
            "format": FORMAT,
            ARGUMENTS: stored_form(Value::Object(arguments.clone())),
            "result": stored_form(result.clone()),
        });
        // A transactional one says nothing, as all did before there were others.
        if external {
            json[EFFECT] = EXTERNAL.into();
        }
        Self {
            tool: tool.to_owned(),
            version,
            json: sorted(json),
        }
    }
}

fn stored_form(mut schema: Value) -> Value {
    tidy(&mut schema);
    schema
}

/// Removes annotations, puts lists whose order says nothing in order, and gives limits
/// that are equal one form.
fn tidy(schema: &mut Value) {
    let Value::Object(schema) = schema else {
        return;
    };
    schema.retain(|keyword, _| {
        !ANNOTATIONS.contains(&keyword.as_str()) && !keyword.starts_with("x-")
    });
    subschemas_mut(schema, &mut |_, subschema| tidy(subschema));
    for keyword in ["required", "enum", "type", "oneOf"] {
        if let Some(Value::Array(unordered)) = schema.get_mut(keyword) {
            unordered.sort_by_cached_key(|value| sorted(value.clone()).to_string());
        }
    }
    for (keyword, value) in schema {
        if let Value::Number(limit) = value
            && !matches!(keyword.as_str(), "default" | "const")
        {
            *limit = by_value(limit);
        }
    }
}

/// The same JSON with members in order and numbers in one spelling, whatever features
/// other crates switch on in `serde_json`.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members
                .into_iter()
                .map(|(name, value)| (name, sorted(value)))
                .collect();
            members.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(members.into_iter().collect())
        }
        Value::Array(elements) => Value::Array(elements.into_iter().map(sorted).collect()),
        Value::Number(number) => Value::Number(one_spelling(number)),
        other => other,
    }
}

/// A limit, for which `1` and `1.0` are one.
fn by_value(limit: &Number) -> Number {
    match read(limit) {
        #[expect(clippy::cast_possible_truncation, reason = "an integer within 2^53")]
        Reading::Double(value) if value.fract() == 0.0 && value.abs() < 9e15 => {
            Number::from(value as i64)
        }
        _ => limit.clone(),
    }
}

fn one_spelling(number: Number) -> Number {
    match read(&number) {
        Reading::Unsigned(value) => value.into(),
        Reading::Negative(value) => value.into(),
        Reading::Double(value) => Number::from_f64(value).unwrap_or(number),
        Reading::Infinite => number,
    }
}

/// The contract that the ledger keeps once a build with the `current` one has started: the
/// widest, with every optional argument that any build had. `None` if that is the `stored`
/// one already, as for a build that lacks some of them.
///
/// An optional argument may be added or left out because a request without it keeps its
/// meaning and its fingerprint: a member that is absent or repeats its default is left out
/// of the canonical form. What a build doesn't know it refuses, as the object is closed, so
/// none of its requests can use the name for something else. The same holds for an optional
/// member of a nested object that is closed, unless that changes a default around it.
/// Inside `oneOf` and `anyOf` nothing may change: another member could make an old value fit
/// two branches, and be canonicalized otherwise.
///
/// # Errors
///
/// What else tells the two apart, one sentence each.
pub(crate) fn widen(stored: &Value, current: &Value) -> Result<Option<Value>, Vec<String>> {
    if stored.get("format") != Some(&Value::from(FORMAT)) {
        return Err(vec![
            "the stored contract has a format that this version of idempotent-tool doesn't know"
                .to_owned(),
        ]);
    }
    let stored = sorted(stored.clone());
    let mut changes = Vec::new();
    let arguments = merge(
        part(&stored, ARGUMENTS),
        part(current, ARGUMENTS),
        "",
        &mut changes,
    );
    if part(&stored, "result") != part(current, "result") {
        changes.push("the result's schema changed".to_owned());
    }
    if part(&stored, EFFECT) != part(current, EFFECT) {
        let now = if part(current, EFFECT) == EXTERNAL {
            "outside the database, and was in it: its receipts are no operations"
        } else {
            "in the database, and was outside it: its operations may be under way"
        };
        changes.push(format!("its effect is now {now}"));
    }
    if !changes.is_empty() {
        return Err(changes);
    }
    if arguments == *part(&stored, ARGUMENTS) {
        return Ok(None);
    }
    let mut widest = stored;
    widest[ARGUMENTS] = arguments;
    Ok(Some(sorted(widest)))
}

fn part<'a>(contract: &'a Value, name: &str) -> &'a Value {
    contract.get(name).unwrap_or(&Value::Null)
}

/// The stored schema with the optional members that the current one adds; notes in `changes`
/// what a version may not change.
fn merge(stored: &Value, current: &Value, path: &str, changes: &mut Vec<String>) -> Value {
    if stored == current {
        return stored.clone();
    }
    let (Value::Object(old), Value::Object(new)) = (stored, current) else {
        changes.push(format!("{} changed its schema", name(path)));
        return stored.clone();
    };
    let plain = Shape::of(old) == Shape::Plain && Shape::of(new) == Shape::Plain;
    let mut widest = old.clone();
    let keywords: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for keyword in keywords {
        let (was, is) = (old.get(keyword), new.get(keyword));
        if was == is {
            continue;
        }
        match (keyword.as_str(), was, is) {
            ("properties" | "required", ..) if plain => {}
            // Compared below, by what it means under the schema of all members.
            ("default", Some(_), Some(_)) => {}
            ("items" | "additionalProperties", Some(was), Some(is)) if plain => {
                let merged = merge(was, is, &pointer(path, "*"), changes);
                widest.insert(keyword.clone(), merged);
            }
            ("prefixItems", Some(Value::Array(was)), Some(Value::Array(is)))
                if plain && was.len() == is.len() =>
            {
                let pairs = was.iter().zip(is).enumerate();
                let merged = pairs.map(|(index, (was, is))| {
                    merge(was, is, &pointer(path, &index.to_string()), changes)
                });
                let merged = merged.collect();
                widest.insert(keyword.clone(), merged);
            }
            (_, was, is) => changes.push(keyword_change(path, keyword, was, is)),
        }
    }
    if plain {
        merge_members(old, new, path, &mut widest, changes);
    }
    let mut widest = Value::Object(widest);
    if let (Some(was), Some(is)) = (old.get("default"), new.get("default"))
        && was != is
    {
        match default_change(&widest, was, is) {
            DefaultChange::None => {}
            DefaultChange::WasRounded => widest["default"] = is.clone(),
            DefaultChange::Changed => {
                changes.push(keyword_change(path, "default", Some(was), Some(is)));
            }
        }
    }
    widest
}

fn merge_members(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    path: &str,
    widest: &mut Map<String, Value>,
    changes: &mut Vec<String>,
) {
    let closed = [old, new].iter().all(|schema| {
        schema.get("additionalProperties") == Some(&Value::Bool(false))
            && schema.get("patternProperties").is_none()
    });
    let (mut merged, new_members) = (members(old), members(new));
    let names: BTreeSet<String> = merged.keys().chain(new_members.keys()).cloned().collect();
    for member in names {
        let path = pointer(path, &member);
        let (was_required, is_required) = (requires(old, &member), requires(new, &member));
        match (merged.get(&member), new_members.get(&member)) {
            (Some(was), Some(is)) => {
                if was_required != is_required {
                    let now = if is_required { "required" } else { "optional" };
                    changes.push(format!("{} became {now}", name(&path)));
                }
                let both = merge(was, is, &path, changes);
                merged.insert(member, both);
            }
            (Some(_), None) if was_required => {
                changes.push(format!("{} was removed and was required", name(&path)));
            }
            (Some(_), None) if !closed => {
                let place = name(&path);
                changes.push(format!("{place} was removed where any name is allowed"));
            }
            (None, _) if is_required => {
                changes.push(format!("{} was added and is required", name(&path)));
            }
            (None, _) if !closed => {
                let place = name(&path);
                changes.push(format!("{place} was added where any name was allowed"));
            }
            (None, Some(is)) => {
                merged.insert(member, is.clone());
            }
            (_, None) => {} // A build without it; the ledger's keeps it.
        }
    }
    if !merged.is_empty() {
        widest.insert("properties".to_owned(), Value::Object(merged));
    }
}

fn members(schema: &Map<String, Value>) -> Map<String, Value> {
    schema
        .get("properties")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default()
}

fn requires(schema: &Map<String, Value>, member: &str) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|names| names.iter().any(|name| name == member))
}

fn keyword_change(path: &str, keyword: &str, was: Option<&Value>, is: Option<&Value>) -> String {
    let place = name(path);
    match (was, is) {
        (Some(was), Some(is)) if brief(was) && brief(is) => {
            format!("{place} changed `{keyword}` from `{was}` to `{is}`")
        }
        (None, Some(is)) if brief(is) => format!("{place} gained `{keyword}`, `{is}`"),
        (Some(was), None) if brief(was) => format!("{place} lost `{keyword}`, `{was}`"),
        (None, _) => format!("{place} gained `{keyword}`"),
        (_, None) => format!("{place} lost `{keyword}`"),
        _ => format!("{place} changed `{keyword}`"),
    }
}

fn brief(value: &Value) -> bool {
    value.to_string().len() <= 80
}

fn name(path: &str) -> String {
    if path.is_empty() {
        "the arguments' object".to_owned()
    } else {
        format!("argument `{path}`")
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection, option, prelude::*};
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::{
        reply::validate::ResultValidator,
        request::arguments::CompiledArguments,
        tool::{ToolArguments, ToolOutput},
    };

    fn contract<A: ToolArguments, R: ToolOutput>() -> Value {
        let arguments = CompiledArguments::compile(A::json_schema(), &[]).unwrap();
        let result = ResultValidator::compile(R::json_schema().as_value()).unwrap();
        Contract::new("tool", 1, arguments.schema(), result.schema(), false).json
    }

    /// Checks the change from the arguments `A` to `B`, through the ledger's text.
    #[track_caller]
    fn check<A: ToolArguments, B: ToolArguments>(expect: &[&str]) {
        check_json(&contract::<A, ()>(), &contract::<B, ()>(), expect);
    }

    #[track_caller]
    fn check_json(stored: &Value, current: &Value, expect: &[&str]) {
        let stored = serde_json::from_str(&stored.to_string()).unwrap();
        let changes = widen(&stored, current).err().unwrap_or_default();
        assert_eq!(changes, expect);
    }

    /// Structs in their own modules, so that they can share a name.
    macro_rules! arguments {
        ($($module:ident { $($fields:tt)* })*) => {
            $(mod $module {
                use super::*;

                #[derive(Deserialize, JsonSchema)]
                #[expect(dead_code, reason = "only its schema is used")]
                pub(super) struct Arguments { $($fields)* }
            })*
        };
    }

    arguments! {
        original {
            /// A text.
            #[schemars(length(max = 100))]
            body: String,
            #[serde(default)]
            copies: u8,
            nested: Option<Nested>,
            list: Vec<Nested>,
            #[serde(default)]
            with_default: Nested,
            choice: Option<Choice>,
            any: Option<Value>,
        }
        reworded {
            /// Another text about it.
            #[schemars(length(max = 100), title = "Body")]
            body: String,
            choice: Option<Reordered>,
            list: Vec<Nested>,
            any: Option<Value>,
            #[serde(default)]
            with_default: Nested,
            #[serde(default)]
            copies: u8,
            nested: Option<Nested>,
        }
        grown {
            #[schemars(length(max = 100))]
            body: String,
            #[serde(default)]
            copies: u8,
            nested: Option<Grown>,
            list: Vec<Grown>,
            #[serde(default)]
            with_default: Grown,
            choice: Option<Choice>,
            any: Option<Value>,
            pinned: Option<bool>,
            #[serde(default)]
            color: String,
        }
        changed {
            #[schemars(length(max = 99))]
            body: String,
            copies: u16,
            nested: Nested,
            list: Vec<Shrunk>,
            #[serde(default)]
            with_default: Shifted,
            choice: Option<GrownChoice>,
            any: Option<String>,
            needed: String,
        }
    }

    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Nested {
        a: i64,
        b: Option<bool>,
    }

    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Grown {
        a: i64,
        b: Option<bool>,
        #[serde(default)]
        c: u8,
    }

    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Shrunk {
        a: i64,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Shifted {
        a: i64,
        b: Option<bool>,
        #[serde(default)]
        c: u8,
    }

    impl Default for Shifted {
        fn default() -> Self {
            Self {
                a: 0,
                b: None,
                c: 7,
            }
        }
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(tag = "kind")]
    #[expect(dead_code, reason = "only its schema is used")]
    enum Choice {
        A { x: i64 },
        B { y: i64 },
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(tag = "kind")]
    #[expect(dead_code, reason = "only its schema is used")]
    enum Reordered {
        /// The other one.
        B {
            y: i64,
        },
        A {
            x: i64,
        },
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(tag = "kind")]
    #[expect(dead_code, reason = "only its schema is used")]
    enum GrownChoice {
        A { x: i64, z: Option<i64> },
        B { y: i64 },
    }

    use original::Arguments as Original;

    #[test]
    fn texts_and_orders_are_no_part_of_it() {
        check::<Original, Original>(&[]);
        check::<Original, reworded::Arguments>(&[]);
        assert_eq!(
            contract::<Original, ()>(),
            contract::<reworded::Arguments, ()>()
        );
        let text = contract::<Original, ()>().to_string();
        assert!(!text.contains("A text"), "{text}");
        assert!(
            text.starts_with(r#"{"arguments":{"additionalProperties":false,"#),
            "{text}"
        );
    }

    #[test]
    fn optional_members_of_closed_objects_may_be_added() {
        check::<Original, grown::Arguments>(&[]);
    }

    #[test]
    fn optional_members_of_closed_objects_may_be_left_out() {
        check::<grown::Arguments, Original>(&[]);
        let (wide, narrow) = (
            contract::<grown::Arguments, ()>(),
            contract::<Original, ()>(),
        );
        assert_eq!(widen(&wide, &narrow), Ok(None));
        let widest = widen(&narrow, &wide).unwrap().unwrap();
        let color = "/arguments/properties/color/default";
        assert_eq!(widest.pointer(color), Some(&json!("")));
        assert_eq!(widen(&widest, &wide), Ok(None));
        assert_eq!(widen(&widest, &narrow), Ok(None));
    }

    #[test]
    fn a_member_of_an_open_object_may_not_come_or_go() {
        let with = |members: Value, patterns: Value| {
            let Value::Object(arguments) = json!({
                "type": "object",
                "properties": { "open": {
                    "type": "object", "properties": members,
                    "additionalProperties": patterns.is_object().then_some(false),
                    "patternProperties": patterns,
                } },
                "additionalProperties": false,
            }) else {
                unreachable!()
            };
            Contract::new("tool", 1, &arguments, &Value::Null, false).json
        };
        for patterns in [Value::Null, json!({ "^b": true })] {
            let (none, one) = (
                with(json!({}), patterns.clone()),
                with(json!({ "b": {} }), patterns),
            );
            check_json(
                &none,
                &one,
                &["argument `/open/b` was added where any name was allowed"],
            );
            check_json(
                &one,
                &none,
                &["argument `/open/b` was removed where any name is allowed"],
            );
        }
    }

    #[test]
    fn anything_else_is_named() {
        check::<Original, changed::Arguments>(&[
            "argument `/any` gained `type`, `\"string\"`",
            "argument `/body` changed `maxLength` from `100` to `99`",
            "argument `/choice` changed `oneOf`",
            "argument `/copies` became required",
            "argument `/copies` lost `default`, `0`",
            "argument `/copies` changed `format` from `\"uint8\"` to `\"uint16\"`",
            "argument `/copies` changed `maximum` from `255` to `65535`",
            "argument `/needed` was added and is required",
            "argument `/nested` became required",
            r#"argument `/with_default` changed `default` from `{"a":0}` to `{"a":0,"c":7}`"#,
        ]);
    }

    #[test]
    fn a_result_may_not_change() {
        #[derive(Serialize, JsonSchema)]
        struct One {
            /// An id.
            id: u64,
        }
        #[derive(Serialize, JsonSchema)]
        struct Two {
            id: u64,
            more: Option<String>,
        }
        let one = contract::<Original, One>();
        check_json(&one, &contract::<Original, One>(), &[]);
        let changed = ["the result's schema changed"];
        check_json(&one, &contract::<Original, Two>(), &changed);
        check_json(&one, &contract::<Original, ()>(), &changed);
    }

    #[test]
    fn a_property_may_be_called_like_an_annotation() {
        #[derive(Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema is used")]
        struct Named {
            title: String,
            description: Option<i64>,
        }
        let json = contract::<Named, ()>();
        assert!(json["arguments"]["properties"]["title"].is_object());
        check::<Named, original::Arguments>(&[
            "argument `/body` was added and is required",
            "argument `/list` was added and is required",
            "argument `/title` was removed and was required",
        ]);
    }

    #[test]
    fn limits_go_by_their_value() {
        let limited = |limits: Value| {
            let Value::Object(limits) = limits else {
                unreachable!()
            };
            Contract::new("tool", 1, &limits, &Value::Null, false).json
        };
        let one = limited(json!({ "minimum": 0.0, "multipleOf": 0.5, "default": 1.0 }));
        check_json(
            &one,
            &limited(json!({ "minimum": 0, "multipleOf": 0.5, "default": 1.0 })),
            &[],
        );
        check_json(
            &one,
            &limited(json!({ "minimum": 0, "multipleOf": 0.5, "default": 1 })),
            &["the arguments' object changed `default` from `1.0` to `1`"],
        );
    }

    #[test]
    fn an_unknown_format_is_said() {
        let current = contract::<Original, ()>();
        let mut stored = current.clone();
        stored["format"] = json!(2);
        let changes = widen(&stored, &current).unwrap_err();
        assert_eq!(changes.len(), 1);
        assert!(changes[0].contains("doesn't know"), "{changes:?}");
    }

    /// A build: which of the optional members it has, at each of three places.
    type Build = [[bool; 3]; 3];

    /// Its arguments: an object with optional members, which has another one, and a list of
    /// such.
    fn build_of([top, nested, element]: Build) -> CompiledArguments {
        let object = |has: [bool; 3], mut members: Map<String, Value>| {
            for (name, has) in ["a", "b", "c"].into_iter().zip(has) {
                if has {
                    let schema = match name {
                        "a" => json!({ "type": "integer", "format": "int64", "default": 1 }),
                        "b" => json!({ "type": "string" }),
                        _ => json!({ "type": "number", "default": 0.5 }),
                    };
                    members.insert(name.to_owned(), schema);
                }
            }
            json!({ "type": "object", "properties": members, "additionalProperties": false })
        };
        let mut inner = object(nested, Map::new());
        inner["default"] = json!({});
        let mut members = Map::new();
        members.insert("inner".to_owned(), inner);
        let items = object(element, Map::new());
        let list = json!({ "type": "array", "items": items, "default": [{}] });
        members.insert("list".to_owned(), list);
        let schema = schemars::Schema::try_from(object(top, members)).unwrap();
        CompiledArguments::compile(schema, &[]).unwrap()
    }

    fn members_of() -> impl Strategy<Value = Map<String, Value>> {
        let a = option::of((0_i64..3).prop_map(Value::from));
        let b = option::of("[xy]?".prop_map(Value::from));
        let c = option::of((0_u8..3).prop_map(|half| Value::from(f64::from(half) / 2.0)));
        (a, b, c).prop_map(|members| {
            let members: [_; 3] = members.into();
            let named = ["a", "b", "c"].into_iter().zip(members);
            named
                .filter_map(|(name, value)| Some((name.to_owned(), value?)))
                .collect()
        })
    }

    fn request() -> impl Strategy<Value = Map<String, Value>> {
        let list = option::of(collection::vec(members_of(), 0..3));
        (members_of(), option::of(members_of()), list).prop_map(|(mut top, inner, list)| {
            top.extend(inner.map(|inner| ("inner".to_owned(), inner.into())));
            top.extend(list.map(|list| ("list".to_owned(), list.into())));
            top
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// In whichever order builds start, the ledger comes to keep what all of them have;
        /// and a request that two of them take is one request for both.
        #[test]
        fn builds_agree_whatever_they_lack(
            builds in collection::vec(any::<Build>(), 1..6),
            one in request(),
            other in request(),
        ) {
            let contract = |arguments: &CompiledArguments| {
                Contract::new("tool", 1, arguments.schema(), &Value::Null, false).json
            };
            let mut union = Build::default();
            for build in &builds {
                for (place, has) in union.iter_mut().flatten().zip(build.iter().flatten()) {
                    *place |= has;
                }
            }
            let builds: Vec<_> = builds.into_iter().map(build_of).collect();
            let mut kept = contract(&builds[0]);
            for build in builds.iter().chain(&builds) {
                if let Some(widest) = widen(&kept, &contract(build)).unwrap() {
                    kept = widest;
                }
            }
            let widest = build_of(union);
            prop_assert_eq!(&kept, &contract(&widest));

            let (one, other) = (&one, &other);
            for first in builds.iter().chain([&widest]) {
                for second in builds.iter().chain([&widest]) {
                    let fingerprint = |build: &CompiledArguments, request| {
                        build.prepare(request).ok().map(|prepared| prepared.fingerprint)
                    };
                    let (Some(one_first), Some(other_second)) =
                        (fingerprint(first, one), fingerprint(second, other))
                    else {
                        continue;
                    };
                    if let Some(one_second) = fingerprint(second, one) {
                        prop_assert_eq!(one_first, one_second);
                    }
                    // What is one request for two builds is one for the widest.
                    let same = fingerprint(&widest, one) == fingerprint(&widest, other);
                    prop_assert_eq!(one_first == other_second, same);
                }
            }
        }
    }
}
