//! The contract of one version as the ledger keeps it, and what may change in place.

use std::collections::BTreeSet;

use serde_json::{Map, Number, Value, json};

use crate::request::{
    arguments::{
        number::{Reading, read},
        same_default,
    },
    json_schema::{Shape, pointer, subschemas_mut},
};

/// The form of [`Contract::json`]; another one takes another number.
const FORMAT: u32 = 1;

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

/// What a version promised: its arguments' schema and its result's, without texts.
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
    ) -> Self {
        let json = json!({
            "format": FORMAT,
            "arguments": stored_form(Value::Object(arguments.clone())),
            "result": stored_form(result.clone()),
        });
        Self {
            tool: tool.to_owned(),
            version,
            json: sorted(json),
        }
    }
}

fn stored_form(mut schema: Value) -> Value {
    remove_texts(&mut schema);
    schema
}

/// Removes annotations and puts lists whose order says nothing in order.
fn remove_texts(schema: &mut Value) {
    let Value::Object(schema) = schema else {
        return;
    };
    schema.retain(|keyword, _| {
        !ANNOTATIONS.contains(&keyword.as_str()) && !keyword.starts_with("x-")
    });
    subschemas_mut(schema, &mut |_, subschema| remove_texts(subschema));
    for keyword in ["required", "enum", "type", "oneOf"] {
        if let Some(Value::Array(unordered)) = schema.get_mut(keyword) {
            unordered.sort_by_cached_key(|value| sorted(value.clone()).to_string());
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

fn one_spelling(number: Number) -> Number {
    match read(&number) {
        Reading::Unsigned(value) => value.into(),
        Reading::Negative(value) => value.into(),
        Reading::Double(value) => Number::from_f64(value).unwrap_or(number),
        Reading::Infinite => number,
    }
}

/// What changed between the `stored` contract and the `current` one that a version may
/// not change in place, one sentence each; empty if only optional arguments were added.
///
/// An optional argument may be added because a request without it keeps its meaning and
/// its fingerprint: a member that is absent or repeats its default is left out of the
/// canonical form. The same holds for an optional member of a nested object that is
/// closed, as no old request can have used its name for something else, unless that
/// changes a default around it. Inside `oneOf` and `anyOf` nothing may change: a new
/// member could make an old value fit two branches, and be canonicalized otherwise.
pub(crate) fn breaking_changes(stored: &Value, current: &Value) -> Vec<String> {
    if stored.get("format") != Some(&Value::from(FORMAT)) {
        return vec![
            "the stored contract has a format that this version of idempotent-tool doesn't know"
                .to_owned(),
        ];
    }
    let stored = sorted(stored.clone());
    let mut changes = Vec::new();
    compare(
        part(&stored, "arguments"),
        part(current, "arguments"),
        "",
        &mut changes,
    );
    if part(&stored, "result") != part(current, "result") {
        changes.push("the result's schema changed".to_owned());
    }
    changes
}

fn part<'a>(contract: &'a Value, name: &str) -> &'a Value {
    contract.get(name).unwrap_or(&Value::Null)
}

fn compare(stored: &Value, current: &Value, path: &str, changes: &mut Vec<String>) {
    if stored == current {
        return;
    }
    let (Value::Object(old), Value::Object(new)) = (stored, current) else {
        changes.push(format!("{} changed its schema", name(path)));
        return;
    };
    let plain = matches!(
        (Shape::of(old), Shape::of(new)),
        (Shape::Plain, Shape::Plain)
    );
    let keywords: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for keyword in keywords {
        let (was, is) = (old.get(keyword), new.get(keyword));
        if was == is {
            continue;
        }
        match (keyword.as_str(), was, is) {
            ("properties" | "required", ..) if plain => {}
            ("items" | "additionalProperties", Some(was), Some(is)) if plain => {
                compare(was, is, &pointer(path, "*"), changes);
            }
            ("prefixItems", Some(Value::Array(was)), Some(Value::Array(is)))
                if plain && was.len() == is.len() =>
            {
                for (index, (was, is)) in was.iter().zip(is).enumerate() {
                    compare(was, is, &pointer(path, &index.to_string()), changes);
                }
            }
            ("default", Some(was), Some(is)) if same_default(current, was, is) => {}
            (_, was, is) => changes.push(keyword_change(path, keyword, was, is)),
        }
    }
    if plain {
        compare_members(old, new, path, changes);
    }
}

fn compare_members(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    path: &str,
    changes: &mut Vec<String>,
) {
    let closed = [old, new]
        .iter()
        .all(|schema| schema.get("additionalProperties") == Some(&Value::Bool(false)))
        && old.get("patternProperties").is_none();
    let (old_members, new_members) = (members(old), members(new));
    let names: BTreeSet<&String> = old_members.keys().chain(new_members.keys()).collect();
    for member in names {
        let path = pointer(path, member);
        let (was_required, is_required) = (requires(old, member), requires(new, member));
        match (old_members.get(member), new_members.get(member)) {
            (Some(was), Some(is)) => {
                if was_required != is_required {
                    let now = if is_required { "required" } else { "optional" };
                    changes.push(format!("{} became {now}", name(&path)));
                }
                compare(was, is, &path, changes);
            }
            (Some(_), None) => changes.push(format!("{} was removed", name(&path))),
            (None, _) if is_required => {
                changes.push(format!("{} was added and is required", name(&path)));
            }
            (None, _) if !closed => {
                changes.push(format!(
                    "{} was added where any name was allowed",
                    name(&path)
                ));
            }
            (None, _) => {}
        }
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
