//! What a JSON schema is made of: where its subschemas are, and which of them apply in place.

use serde_json::{Map, Value};

/// Keywords whose value is one schema.
const SINGLE: &[&str] = &[
    "items",
    "additionalItems",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "propertyNames",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "contentSchema",
];
/// Keywords whose value is a list of schemas.
const LISTS: &[&str] = &["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords whose value names schemas.
const NAMED: &[&str] = &[
    "properties",
    "patternProperties",
    "dependentSchemas",
    "$defs",
    "definitions",
];
/// Keywords that describe the value where they stand, beside `properties` and `items`.
const IN_PLACE: &[&str] = &[
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "$ref",
    "$dynamicRef",
];
/// Keywords whose `true` says that anything may be added.
const OPEN: &[&str] = &[
    "additionalItems",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords that describe members or elements.
const STRUCTURE: &[&str] = &[
    "properties",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "items",
    "prefixItems",
    "unevaluatedItems",
    "required",
];

/// How a schema decides which of its parts describe a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Shape {
    /// By keywords of its own alone.
    Plain,
    /// By one of several alternatives and nothing else.
    Choice,
    /// By several schemas at once: nothing here tells which part a member belongs to.
    Composite,
}

impl Shape {
    pub(crate) fn of(schema: &Map<String, Value>) -> Self {
        let mut in_place = IN_PLACE
            .iter()
            .filter(|keyword| schema.contains_key(**keyword));
        match (in_place.next(), in_place.next()) {
            (None, _) => Shape::Plain,
            (Some(&("anyOf" | "oneOf")), None)
                if !STRUCTURE
                    .iter()
                    .any(|keyword| schema.contains_key(*keyword)) =>
            {
                Shape::Choice
            }
            _ => Shape::Composite,
        }
    }
}

/// Calls `visit` with every direct subschema and the steps that lead to it.
pub(crate) fn subschemas<'a>(
    schema: &'a Map<String, Value>,
    visit: &mut dyn FnMut(&'a str, Option<&'a str>, &'a Value),
) {
    for (keyword, value) in schema {
        match value {
            Value::Array(list) if LISTS.contains(&keyword.as_str()) => {
                for schema in list {
                    visit(keyword, None, schema);
                }
            }
            Value::Object(named) if NAMED.contains(&keyword.as_str()) => {
                for (name, schema) in named {
                    visit(keyword, Some(name), schema);
                }
            }
            _ if SINGLE.contains(&keyword.as_str()) => visit(keyword, None, value),
            _ => {}
        }
    }
}

/// Calls `visit` with every direct subschema, to change it.
pub(crate) fn subschemas_mut(
    schema: &mut Map<String, Value>,
    visit: &mut dyn FnMut(&str, &mut Value),
) {
    for (keyword, value) in schema {
        match value {
            Value::Array(list) if LISTS.contains(&keyword.as_str()) => {
                for schema in list {
                    visit(keyword, schema);
                }
            }
            Value::Object(named) if NAMED.contains(&keyword.as_str()) => {
                for schema in named.values_mut() {
                    visit(keyword, schema);
                }
            }
            _ if SINGLE.contains(&keyword.as_str()) => visit(keyword, value),
            _ => {}
        }
    }
}

/// Where a `$ref` stands, as a pointer into the values that the schema describes, with
/// `*` for an element or an entry; schemars leaves one only where a type contains itself.
pub(crate) fn find_reference(schema: &Value) -> Option<String> {
    fn find(schema: &Value, path: &str) -> Option<String> {
        let schema = schema.as_object()?;
        if schema.contains_key("$ref") || schema.contains_key("$dynamicRef") {
            return Some(path.to_owned());
        }
        let mut found = None;
        subschemas(schema, &mut |keyword, name, subschema| {
            if found.is_some() || keyword == "$defs" || keyword == "definitions" {
                return;
            }
            found = match (keyword, name) {
                ("properties", Some(name)) => find(subschema, &pointer(path, name)),
                (
                    "items"
                    | "prefixItems"
                    | "unevaluatedItems"
                    | "additionalProperties"
                    | "unevaluatedProperties"
                    | "patternProperties",
                    _,
                ) => find(subschema, &pointer(path, "*")),
                _ => find(subschema, path),
            };
        });
        found
    }
    find(schema, "")
}

/// Takes out, everywhere, what says nothing that a caller needs or what some clients
/// refuse: a `true` that describes a value is `{}`, an open object stays `true`.
pub(crate) fn strip(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    for keyword in ["$schema", "$id", "nullable"] {
        map.remove(keyword);
    }
    subschemas_mut(map, &mut |keyword, subschema| {
        if *subschema == Value::Bool(true) && !OPEN.contains(&keyword) {
            *subschema = Value::Object(Map::new());
        }
        strip(subschema);
    });
}

/// Whether a schema lists `name` among its types.
pub(crate) fn has_type(schema: &Map<String, Value>, name: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(one)) => one == name,
        Some(Value::Array(several)) => several.iter().any(|one| one == name),
        _ => false,
    }
}

/// The JSON Pointer one step below `path`.
pub(crate) fn pointer(path: &str, step: &str) -> String {
    let mut pointer = path.to_owned();
    push_step(&mut pointer, step);
    pointer
}

/// Leads a JSON Pointer one step further down.
pub(crate) fn push_step(pointer: &mut String, step: &str) {
    pointer.push('/');
    if step.contains(['~', '/']) {
        pointer.push_str(&step.replace('~', "~0").replace('/', "~1"));
    } else {
        pointer.push_str(step);
    }
}
