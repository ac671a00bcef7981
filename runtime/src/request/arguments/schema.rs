//! From the schema that schemars writes to the one that is advertised and enforced.

use serde_json::{Map, Value};

use super::{
    SchemaError,
    branch::told_apart,
    number::{Reading, integer, read},
};
use crate::{
    request::json_schema::{Shape, find_reference, has_type, pointer, strip, subschemas_mut},
    tool::ArgumentDefault,
};

/// The argument that is the toolbox's own.
const KEY: &str = "idempotency_key";

/// Closes and inlines the schema of an arguments struct, with the parameters' `defaults`.
pub(super) fn contract(
    schema: Value,
    defaults: &[ArgumentDefault],
) -> Result<Map<String, Value>, SchemaError> {
    if let Some(path) = find_reference(&schema) {
        return Err(SchemaError::new(format!(
            "{} has a type that contains itself or a `$ref`, which can't be written out inline; \
             take it as a `String` or a `serde_json::Value`",
            place(&path)
        )));
    }
    let mut schema = schema;
    strip(&mut schema);
    let Value::Object(mut root) = schema else {
        return Err(not_a_struct());
    };
    check_root(&root)?;
    // Nothing refers to the definitions, as was checked.
    for keyword in ["title", "$defs", "definitions"] {
        root.remove(keyword);
    }
    root.entry("properties")
        .or_insert_with(|| Value::Object(Map::new()));
    supply_defaults(&mut root, defaults)?;
    tidy(
        &mut root,
        Place {
            closing: true,
            decided: true,
        },
    );
    Ok(root)
}

/// An argument as errors name it.
pub(super) fn place(path: &str) -> String {
    if path.is_empty() {
        "the arguments' type".to_owned()
    } else {
        format!("the argument `{path}`")
    }
}

pub(super) fn not_a_struct() -> SchemaError {
    SchemaError::new(
        "the arguments' type is no object with named members; take a struct with named fields"
            .to_owned(),
    )
}

fn check_root(root: &Map<String, Value>) -> Result<(), SchemaError> {
    if root.get("type") != Some(&Value::from("object")) {
        return Err(not_a_struct());
    }
    if Shape::of(root) != Shape::Plain || root.contains_key("not") {
        return Err(SchemaError::new(
            "the arguments' type combines several schemas, which many clients refuse at the root; \
             take an enum as a named argument, without `#[serde(flatten)]`"
                .to_owned(),
        ));
    }
    let open = [
        "additionalProperties",
        "unevaluatedProperties",
        "patternProperties",
    ]
    .iter()
    .any(|keyword| {
        root.get(*keyword)
            .is_some_and(|value| *value != Value::Bool(false))
    });
    if open {
        return Err(SchemaError::new(
            "the arguments' type accepts members that it doesn't name; take a map as a named \
             argument, without `#[serde(flatten)]`"
                .to_owned(),
        ));
    }
    if root
        .get("properties")
        .is_some_and(|known| known.get(KEY).is_some())
    {
        return Err(SchemaError::new(format!(
            "the arguments' type has a member `{KEY}`, which is the toolbox's own; rename it"
        )));
    }
    Ok(())
}

fn supply_defaults(
    root: &mut Map<String, Value>,
    defaults: &[ArgumentDefault],
) -> Result<(), SchemaError> {
    for default in defaults {
        let path = pointer("", default.name);
        let value = (default.make)()
            .and_then(|text| serde_json::from_str::<Value>(&text))
            .map_err(|error| {
                SchemaError::new(format!(
                    "the default of {} can't be written as JSON: {error}",
                    place(&path)
                ))
            })?;
        let argument = root
            .get_mut("properties")
            .and_then(Value::as_object_mut)
            .and_then(|known| known.get_mut(default.name))
            .ok_or_else(|| {
                SchemaError::new(format!(
                    "a default is declared for {}, which the schema doesn't name",
                    place(&path)
                ))
            })?;
        if let Value::Object(argument) = argument {
            argument.insert("default".to_owned(), value);
        }
        if let Some(Value::Array(required)) = root.get_mut("required") {
            required.retain(|name| name != default.name);
        }
    }
    Ok(())
}

/// Where a schema stands, for [`tidy`].
#[derive(Clone, Copy)]
struct Place {
    /// Whether its objects are closed here rather than by the schema around it.
    closing: bool,
    /// Whether a member can be told to belong to one schema, so that its null can be
    /// dropped and need not be advertised.
    decided: bool,
}

fn tidy(schema: &mut Map<String, Value>, place: Place) {
    let composite = match Shape::of(schema) {
        Shape::Plain => false,
        Shape::Choice => {
            tidy_branches(schema, place);
            return;
        }
        Shape::Composite => true,
    };
    bound_integers(schema);
    if place.closing {
        close(schema, composite);
    }
    let inside = Place {
        closing: true,
        decided: place.decided && !composite,
    };
    if inside.decided {
        remove_absent_nulls(schema);
    }
    subschemas_mut(schema, &mut |keyword, subschema| match keyword {
        "properties" | "items" | "prefixItems" | "additionalProperties" | "patternProperties" => {
            tidy_value(subschema, inside);
        }
        "allOf" | "anyOf" | "oneOf" | "then" | "else" | "dependentSchemas" => {
            tidy_value(
                subschema,
                Place {
                    closing: false,
                    decided: false,
                },
            );
        }
        // These only test a value; closing them would change what they test.
        _ => {}
    });
}

fn tidy_branches(schema: &mut Map<String, Value>, place: Place) {
    for keyword in ["oneOf", "anyOf"] {
        let Some(Value::Array(branches)) = schema.get_mut(keyword) else {
            continue;
        };
        let decided = place.decided && told_apart(branches);
        for branch in branches {
            tidy_value(branch, Place { decided, ..place });
        }
    }
}

fn tidy_value(schema: &mut Value, place: Place) {
    if let Value::Object(schema) = schema {
        tidy(schema, place);
    }
}

/// Refuses members that an object schema doesn't name, unless it says what they are.
fn close(schema: &mut Map<String, Value>, composite: bool) {
    if !composite && let Some(others) = schema.remove("unevaluatedProperties") {
        schema.entry("additionalProperties").or_insert(others);
    }
    let open =
        schema.contains_key("additionalProperties") || schema.contains_key("unevaluatedProperties");
    if composite && !open {
        schema.insert("unevaluatedProperties".to_owned(), Value::Bool(false));
    } else if !open && (has_type(schema, "object") || schema.contains_key("properties")) {
        schema.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
}

/// Gives an integer the bounds of its Rust type, where its own are not tighter.
fn bound_integers(schema: &mut Map<String, Value>) {
    if !has_type(schema, "integer") || has_type(schema, "number") {
        return;
    }
    let (min, max) = bounds(schema);
    for (keyword, bound) in [("minimum", min), ("maximum", max)] {
        if let Some(bound) = integer(bound) {
            schema.insert(keyword.to_owned(), Value::Number(bound));
        }
    }
}

/// The least and the greatest integer that a schema of integers accepts.
pub(super) fn bounds(schema: &Map<String, Value>) -> (i128, i128) {
    let (min, max) = match schema.get("format").and_then(Value::as_str) {
        Some("int8") => (i128::from(i8::MIN), i128::from(i8::MAX)),
        Some("int16") => (i128::from(i16::MIN), i128::from(i16::MAX)),
        Some("int32") => (i128::from(i32::MIN), i128::from(i32::MAX)),
        Some("int64" | "int") => (i128::from(i64::MIN), i128::from(i64::MAX)),
        Some("uint8") => (0, i128::from(u8::MAX)),
        Some("uint16") => (0, i128::from(u16::MAX)),
        Some("uint32") => (0, i128::from(u32::MAX)),
        Some("uint64" | "uint" | "uint128") => (0, i128::from(u64::MAX)),
        _ => (i128::from(i64::MIN), i128::from(u64::MAX)),
    };
    (
        declared(schema, "minimum", f64::ceil).map_or(min, |declared| declared.max(min)),
        declared(schema, "maximum", f64::floor).map_or(max, |declared| declared.min(max)),
    )
}

fn declared(schema: &Map<String, Value>, keyword: &str, round: fn(f64) -> f64) -> Option<i128> {
    match read(schema.get(keyword)?.as_number()?) {
        Reading::Unsigned(bound) => Some(bound.into()),
        Reading::Negative(bound) => Some(bound.into()),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a bound that wide is met by the type's"
        )]
        Reading::Double(bound) => Some(round(bound) as i128),
        Reading::Infinite => None,
    }
}

/// Takes null out of the members that may be left out and whose null says no more: those
/// that declare no default but null. Normalizing drops it from the arguments.
fn remove_absent_nulls(schema: &mut Map<String, Value>) {
    let required = required(schema);
    let Some(members) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    for (name, member) in members {
        let null_is_absence =
            !required.contains(name) && member.get("default").is_none_or(Value::is_null);
        if null_is_absence {
            remove_null(member);
        }
    }
}

/// The members that an object schema requires.
pub(super) fn required(schema: &Map<String, Value>) -> Vec<String> {
    let names = schema.get("required").and_then(Value::as_array);
    let names = names.into_iter().flatten().filter_map(Value::as_str);
    names.map(str::to_owned).collect()
}

fn remove_null(member: &mut Value) {
    let Value::Object(schema) = member else {
        return;
    };
    schema.remove("default");
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [one] = types.as_slice() {
            let one = one.clone();
            schema.insert("type".to_owned(), one);
        }
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    for keyword in ["anyOf", "oneOf"] {
        let Some(Value::Array(alternatives)) = schema.get_mut(keyword) else {
            continue;
        };
        alternatives.retain(|alternative| alternative.get("type") != Some(&Value::from("null")));
        // The one that is left describes the member by itself.
        if let [Value::Object(only)] = alternatives.as_slice() {
            let only = only.clone();
            schema.remove(keyword);
            for (keyword, value) in only {
                schema.entry(keyword).or_insert(value);
            }
        }
    }
}
