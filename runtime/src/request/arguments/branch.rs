//! What tells one branch of a `oneOf` or `anyOf` from the others.

use serde_json::{Map, Value};

use super::schema::required;

/// The marks of a branch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Branch {
    types: Types,
    required: Vec<String>,
    /// The required members whose value is fixed: tags.
    tags: Vec<(String, String)>,
}

/// A set of JSON types.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Types(u8);

impl Branch {
    pub(super) fn of(schema: &Value) -> Self {
        let required = schema.as_object().map(required).unwrap_or_default();
        let tags = required
            .iter()
            .filter_map(|name| Some((name.clone(), tag(schema, name)?.to_owned())))
            .collect();
        Self {
            types: Types::of(schema),
            required,
            tags,
        }
    }

    /// Whether the branch may accept `value`: a "no" is certain.
    ///
    /// It looks at required members only. A member that can be left out must not decide,
    /// or leaving out a default could move a value to another branch.
    pub(super) fn may_describe(&self, value: &Value) -> bool {
        if !self.types.contain(value) {
            return false;
        }
        let Value::Object(given) = value else {
            return true;
        };
        self.required.iter().all(|name| given.contains_key(name))
            && self
                .tags
                .iter()
                .all(|(name, tag)| given.get(name).is_some_and(|it| it == tag))
    }
}

fn tag<'a>(schema: &'a Value, name: &str) -> Option<&'a str> {
    schema.get("properties")?.get(name)?.get("const")?.as_str()
}

/// Whether no value that one of the branches accepts may be described by another.
pub(super) fn told_apart(schemas: &[Value]) -> bool {
    let branches: Vec<_> = schemas
        .iter()
        .map(|schema| (schema, Branch::of(schema)))
        .collect();
    branches
        .iter()
        .enumerate()
        .all(|(index, (schema, branch))| {
            branches
                .iter()
                .skip(index + 1)
                .all(|(other_schema, other)| {
                    branch.types.0 & other.types.0 == 0
                        || tags_differ(branch, other)
                        || (needs_more(branch, other_schema) && needs_more(other, schema))
                })
        })
}

fn tags_differ(one: &Branch, other: &Branch) -> bool {
    one.tags.iter().any(|(name, tag)| {
        other
            .tags
            .iter()
            .any(|(other_name, other_tag)| name == other_name && tag != other_tag)
    })
}

/// Whether the branch requires a member that no object of the other, closed, one can have.
fn needs_more(branch: &Branch, other: &Value) -> bool {
    let Value::Object(other) = other else {
        return false;
    };
    let known = other.get("properties").and_then(Value::as_object);
    is_closed(other)
        && branch
            .required
            .iter()
            .any(|name| known.is_none_or(|known| !known.contains_key(name)))
}

/// Whether an object schema has, or is going to be given, no members that it doesn't name.
fn is_closed(schema: &Map<String, Value>) -> bool {
    !schema.contains_key("patternProperties")
        && ["additionalProperties", "unevaluatedProperties"]
            .iter()
            .all(|keyword| {
                schema
                    .get(*keyword)
                    .is_none_or(|others| *others == Value::Bool(false))
            })
}

impl Types {
    const NONE: Self = Self(0);
    const ALL: Self = Self(u8::MAX);

    fn of(schema: &Value) -> Self {
        let union = |types: &mut dyn Iterator<Item = Self>| {
            types.fold(Self::NONE, |all, types| Self(all.0 | types.0))
        };
        match (
            schema.get("type"),
            schema.get("oneOf").or_else(|| schema.get("anyOf")),
        ) {
            (Some(Value::String(name)), _) => Self::named(name),
            (Some(Value::Array(names)), _) => {
                union(&mut names.iter().filter_map(Value::as_str).map(Self::named))
            }
            (None, Some(Value::Array(branches))) => union(&mut branches.iter().map(Self::of)),
            _ => Self::ALL,
        }
    }

    fn named(name: &str) -> Self {
        Self(match name {
            "null" => 1,
            "boolean" => 2,
            "number" | "integer" => 4,
            "string" => 8,
            "array" => 16,
            "object" => 32,
            _ => return Self::ALL,
        })
    }

    fn contain(self, value: &Value) -> bool {
        let bit = match value {
            Value::Null => 1,
            Value::Bool(_) => 2,
            Value::Number(_) => 4,
            Value::String(_) => 8,
            Value::Array(_) => 16,
            Value::Object(_) => 32,
        };
        self.0 & bit != 0
    }
}
