//! The schema as the arguments are normalized and written by: compiled once, at `build()`.

use serde_json::{Map, Value};

use super::{
    SchemaError, canonical, normalize,
    number::NumberRule,
    schema::{bounds, place, required},
    validate::Validator,
};
use crate::request::json_schema::{Shape, has_type, pointer};

/// What the schema says of a value, by the value's own type.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) number: NumberRule,
    pub(super) array: ArrayRule,
    pub(super) object: ObjectRule,
    /// If there are any, one of these decides instead.
    alternatives: Vec<Alternative>,
}

/// What the schema says of an array.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ArrayRule {
    Untyped,
    Items {
        prefix: Vec<Node>,
        rest: Box<Node>,
        /// A set, whose order says nothing.
        unordered: bool,
    },
}

/// What the schema says of an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ObjectRule {
    Untyped,
    Members(Members),
}

/// The members of an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Members {
    /// By name, sorted.
    known: Vec<Member>,
    /// What an entry that isn't named is; `None` where there can't be one.
    pub(super) others: Option<Box<Node>>,
}

/// A member that the schema names.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) optional: bool,
    /// The canonical form of the default, null if none is declared.
    pub(super) default: Vec<u8>,
    /// Whether null is dropped, as no default but null is declared.
    pub(super) null_is_absence: bool,
    pub(super) node: Node,
}

/// One branch of a `oneOf` or `anyOf`.
#[derive(Debug, Clone, PartialEq)]
struct Alternative {
    node: Node,
    types: Types,
    required: Vec<String>,
    /// The members whose value is fixed: tags.
    fixed: Vec<(String, Value)>,
}

/// A set of JSON types.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Types(u8);

static UNTYPED: Node = Node {
    number: NumberRule::Untyped,
    array: ArrayRule::Untyped,
    object: ObjectRule::Untyped,
    alternatives: Vec::new(),
};
static UNTYPED_DOUBLE: Node = Node {
    number: NumberRule::UntypedDouble,
    array: ArrayRule::Untyped,
    object: ObjectRule::Untyped,
    alternatives: Vec::new(),
};

impl Node {
    /// Compiles the schema of arguments and puts its defaults into their normal form.
    pub(super) fn compile(schema: &mut Map<String, Value>) -> Result<Self, SchemaError> {
        compile(schema, "")
    }

    /// The node of what is inside a value of which nothing is known.
    pub(super) fn below(&self) -> &'static Self {
        if self.number == NumberRule::UntypedDouble {
            &UNTYPED_DOUBLE
        } else {
            &UNTYPED
        }
    }

    /// The node of an array's element.
    pub(super) fn element(&self, index: usize) -> &Self {
        match &self.array {
            ArrayRule::Untyped => self.below(),
            ArrayRule::Items { prefix, rest, .. } => prefix.get(index).unwrap_or(rest),
        }
    }

    /// The node that describes this very value.
    ///
    /// Where several branches could, the value is kept as it came.
    pub(super) fn of(&self, value: &Value) -> &Self {
        if self.alternatives.is_empty() {
            return self;
        }
        let mut fitting = self
            .alternatives
            .iter()
            .filter(|branch| branch.may_describe(value));
        match (fitting.next(), fitting.next()) {
            (Some(only), None) => only.node.of(value),
            _ => self.below(),
        }
    }
}

impl Members {
    /// The sorted members that the schema names.
    pub(super) fn known(&self) -> &[Member] {
        &self.known
    }

    pub(super) fn get(&self, name: &str) -> Option<&Member> {
        let index = self
            .known
            .binary_search_by(|member| member.name.as_str().cmp(name))
            .ok()?;
        self.known.get(index)
    }
}

impl Member {
    /// Whether giving `value` says no more than leaving the member out.
    pub(super) fn repeats_default(&self, value: &Value) -> bool {
        if !self.optional {
            return false;
        }
        let mut form = Vec::new();
        match normalize::value(&self.node, value) {
            Ok(normal) => canonical::write(&self.node, &normal, &mut form),
            Err(_) => return false,
        }
        form == self.default
    }
}

impl Alternative {
    /// Whether the branch may accept `value`: a "no" is certain.
    fn may_describe(&self, value: &Value) -> bool {
        if !self.types.contain(value) {
            return false;
        }
        let (Value::Object(given), ObjectRule::Members(members)) = (value, &self.node.object)
        else {
            return true;
        };
        self.required.iter().all(|name| given.contains_key(name))
            && self
                .fixed
                .iter()
                .all(|(name, tag)| given.get(name).is_none_or(|it| it == tag))
            && (members.others.is_some() || given.keys().all(|name| members.get(name).is_some()))
    }
}

impl Types {
    const ALL: Self = Self(u8::MAX);

    fn of_schema(schema: &Value) -> Self {
        let Value::Object(schema) = schema else {
            return Self::ALL;
        };
        match schema.get("type") {
            Some(Value::String(name)) => Self::named(name),
            Some(Value::Array(names)) => Self(
                names
                    .iter()
                    .filter_map(Value::as_str)
                    .fold(0, |all, name| all | Self::named(name).0),
            ),
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
            _ => u8::MAX,
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

fn compile_value(schema: &mut Value, path: &str) -> Result<Node, SchemaError> {
    match schema {
        Value::Object(schema) => compile(schema, path),
        _ => Ok(UNTYPED.clone()),
    }
}

fn compile(schema: &mut Map<String, Value>, path: &str) -> Result<Node, SchemaError> {
    match Shape::of(schema) {
        Shape::Composite => {
            // The whole value is kept as it came, but a number may be meant as a double.
            let number = if mentions_doubles(schema) {
                NumberRule::UntypedDouble
            } else {
                NumberRule::Untyped
            };
            Ok(Node {
                number,
                ..UNTYPED.clone()
            })
        }
        Shape::Choice(_) => compile_choice(schema, path),
        Shape::Plain => Ok(Node {
            number: number_rule(schema),
            array: array_rule(schema, path)?,
            object: object_rule(schema, path)?,
            alternatives: Vec::new(),
        }),
    }
}

fn compile_choice(schema: &mut Map<String, Value>, path: &str) -> Result<Node, SchemaError> {
    let number = if mentions_doubles(schema) {
        NumberRule::UntypedDouble
    } else {
        NumberRule::Untyped
    };
    let mut alternatives = Vec::new();
    for keyword in ["oneOf", "anyOf"] {
        let Some(Value::Array(branches)) = schema.get_mut(keyword) else {
            continue;
        };
        for branch in branches {
            alternatives.push(Alternative {
                node: compile_value(branch, path)?,
                types: Types::of_schema(branch),
                required: branch.as_object().map(required).unwrap_or_default(),
                fixed: fixed_members(branch),
            });
        }
    }
    Ok(Node {
        number,
        alternatives,
        ..UNTYPED.clone()
    })
}

fn fixed_members(branch: &Value) -> Vec<(String, Value)> {
    let members = branch
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    members
        .filter_map(|(name, member)| match member.get("const")? {
            tag @ Value::String(_) => Some((name.clone(), tag.clone())),
            _ => None,
        })
        .collect()
}

fn mentions_doubles(schema: &Map<String, Value>) -> bool {
    let mut found = has_type(schema, "number");
    crate::request::json_schema::subschemas(schema, &mut |_, _, subschema| {
        found |= subschema.as_object().is_some_and(mentions_doubles);
    });
    found
}

fn number_rule(schema: &Map<String, Value>) -> NumberRule {
    if has_type(schema, "number") {
        match schema.get("format").and_then(Value::as_str) {
            Some("float") => NumberRule::Single,
            _ => NumberRule::Double,
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
    known.sort_by(|one, other| one.name.cmp(&other.name));
    let others = entries(schema, path)?.map(Box::new);
    Ok(ObjectRule::Members(Members { known, others }))
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
    let mut default = Vec::new();
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
        default,
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
