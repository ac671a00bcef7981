//! From the advertised schema to the nodes that arguments are normalized and written by.

use serde_json::{Map, Value};

use super::{
    SchemaError,
    branch::Branch,
    canonical::{self, Form},
    node::{ArrayRule, Member, Members, Node, ObjectRule, UNTYPED},
    normalize,
    number::NumberRule,
    schema::{bounds, place, required},
    validate::Validator,
};
use crate::request::json_schema::{Shape, has_type, pointer, subschemas};

impl Node {
    /// Compiles the schema of arguments and puts its defaults into their normal form.
    pub(super) fn compile(schema: &mut Map<String, Value>) -> Result<Self, SchemaError> {
        compile(schema, "")
    }
}

fn compile_value(schema: &mut Value, path: &str) -> Result<Node, SchemaError> {
    match schema {
        Value::Object(schema) => compile(schema, path),
        _ => Ok(UNTYPED.clone()),
    }
}

fn compile(schema: &mut Map<String, Value>, path: &str) -> Result<Node, SchemaError> {
    match Shape::of(schema) {
        // Nothing tells which schema a member belongs to: the value is kept as it came.
        Shape::Composite => Ok(Node {
            number: undecided_number(schema),
            ..UNTYPED.clone()
        }),
        Shape::Choice => Ok(Node {
            number: undecided_number(schema),
            alternatives: alternatives(schema, path)?,
            ..UNTYPED.clone()
        }),
        Shape::Plain => Ok(Node {
            number: number_rule(schema),
            array: array_rule(schema, path)?,
            object: object_rule(schema, path)?,
            alternatives: Vec::new(),
        }),
    }
}

fn alternatives(
    schema: &mut Map<String, Value>,
    path: &str,
) -> Result<Vec<(Branch, Node)>, SchemaError> {
    let mut alternatives = Vec::new();
    for keyword in ["oneOf", "anyOf"] {
        let Some(Value::Array(schemas)) = schema.get_mut(keyword) else {
            continue;
        };
        for schema in schemas {
            let node = compile_value(schema, path)?;
            alternatives.push((Branch::of(schema), node));
        }
    }
    Ok(alternatives)
}

fn undecided_number(schema: &Map<String, Value>) -> NumberRule {
    if mentions_doubles(schema) {
        NumberRule::UntypedDouble
    } else {
        NumberRule::Untyped
    }
}

fn mentions_doubles(schema: &Map<String, Value>) -> bool {
    let mut found = matches!(number_rule(schema), NumberRule::Double | NumberRule::Single);
    subschemas(schema, &mut |_, _, subschema| {
        found |= subschema.as_object().is_some_and(mentions_doubles);
    });
    found
}

fn number_rule(schema: &Map<String, Value>) -> NumberRule {
    if has_type(schema, "number") {
        match schema.get("format").and_then(Value::as_str) {
            Some("float") => NumberRule::Single,
            Some("double") => NumberRule::Double,
            _ => NumberRule::Number,
        }
    } else if has_type(schema, "integer") {
        let (min, max) = bounds(schema);
        NumberRule::Integer { min, max }
    } else {
        NumberRule::Untyped
    }
}

fn array_rule(schema: &mut Map<String, Value>, path: &str) -> Result<ArrayRule, SchemaError> {
    let unordered = schema.get("uniqueItems") == Some(&Value::Bool(true));
    if !unordered && !schema.contains_key("items") && !schema.contains_key("prefixItems") {
        return Ok(ArrayRule::Untyped);
    }
    let inside = pointer(path, "*");
    let mut prefix = Vec::new();
    if let Some(Value::Array(schemas)) = schema.get_mut("prefixItems") {
        for schema in schemas {
            prefix.push(compile_value(schema, &inside)?);
        }
    }
    let rest = match schema.get_mut("items") {
        Some(items) => compile_value(items, &inside)?,
        None => UNTYPED.clone(),
    };
    Ok(ArrayRule::Items {
        prefix,
        rest: Box::new(rest),
        unordered,
    })
}

fn object_rule(schema: &mut Map<String, Value>, path: &str) -> Result<ObjectRule, SchemaError> {
    let described = ["properties", "patternProperties", "additionalProperties"]
        .iter()
        .any(|keyword| schema.contains_key(*keyword));
    if !described {
        return Ok(ObjectRule::Untyped);
    }
    let required = required(schema);
    let mut known = Vec::new();
    if let Some(Value::Object(members)) = schema.get_mut("properties") {
        for (name, member) in members {
            known.push(compile_member(name, member, required.contains(name), path)?);
        }
    }
    Ok(ObjectRule::Members(Members::new(
        known,
        entries(schema, path)?,
    )))
}

fn compile_member(
    name: &str,
    member: &mut Value,
    required: bool,
    path: &str,
) -> Result<Member, SchemaError> {
    let path = pointer(path, name);
    let node = compile_value(member, &path)?;
    let declared = member
        .get("default")
        .filter(|default| !default.is_null())
        .cloned();
    let null_is_absence = !required && declared.is_none();
    let mut default = Form::default();
    match declared {
        None => canonical::write(&node, &Value::Null, &mut default),
        Some(declared) => {
            let normal = normalize::value(&node, &declared).map_err(|_| bad_default(&path))?;
            if !Validator::compile(member)?.accepts(&normal) {
                return Err(bad_default(&path));
            }
            canonical::write(&node, &normal, &mut default);
            let listed = normalize::listed(&node, &declared).map_err(|_| bad_default(&path))?;
            if let Value::Object(member) = member {
                member.insert("default".to_owned(), listed);
            }
        }
    }
    Ok(Member {
        name: name.to_owned(),
        optional: !required,
        default: default.bytes,
        default_is_exact: default.is_exact,
        null_is_absence,
        node,
    })
}

fn bad_default(path: &str) -> SchemaError {
    SchemaError::new(format!(
        "{} declares a default that its own schema refuses; change one of them",
        place(path)
    ))
}

/// What the members are that an object schema doesn't name.
fn entries(schema: &mut Map<String, Value>, path: &str) -> Result<Option<Node>, SchemaError> {
    let inside = pointer(path, "*");
    let mut kinds = Vec::new();
    if let Some(Value::Object(patterns)) = schema.get_mut("patternProperties") {
        for pattern in patterns.values_mut() {
            kinds.push(compile_value(pattern, &inside)?);
        }
    }
    match schema.get_mut("additionalProperties") {
        Some(Value::Bool(false)) => {}
        Some(others) => kinds.push(compile_value(others, &inside)?),
        None => kinds.push(UNTYPED.clone()),
    }
    kinds.dedup();
    Ok(match kinds.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        // Which of them describes an entry depends on its name: kept as it came.
        _ => Some(UNTYPED.clone()),
    })
}
