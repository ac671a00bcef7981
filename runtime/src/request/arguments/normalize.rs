//! Numbers by the schema's type, and null where it only means absence.

use serde_json::{Map, Number, Value};

use super::{
    InvalidArgument,
    node::{Node, ObjectRule},
    number::NumberRule,
};
use crate::request::json_schema::push_step;

/// How deep arguments may nest, which is how deep `serde_json` reads.
const MAX_DEPTH: usize = 128;

/// A number is refused, or the nesting; [`explain`] says where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refused;

/// The arguments as the handler is to see them. What the schema refuses beside numbers
/// passes through; validation names it.
pub(super) fn members(node: &Node, arguments: &Map<String, Value>) -> Result<Value, Refused> {
    let mut normalizer = Normalizer::new(NumberRule::apply);
    let value = Value::Object(normalizer.object(node, arguments, &Path::ROOT));
    normalizer.finish(value)
}

/// As much of the arguments as can be normalized, and what can't.
pub(super) fn explain(
    node: &Node,
    arguments: &Map<String, Value>,
) -> (Value, Vec<InvalidArgument>) {
    let mut normalizer = Normalizer::new(NumberRule::apply);
    normalizer.named = Some(Vec::new());
    let value = Value::Object(normalizer.object(node, arguments, &Path::ROOT));
    (value, normalizer.named.unwrap_or_default())
}

/// One value as the handler is to see it.
pub(super) fn value(node: &Node, value: &Value) -> Result<Value, Refused> {
    let mut normalizer = Normalizer::new(NumberRule::apply);
    let value = normalizer.value(node, value, &Path::ROOT);
    normalizer.finish(value)
}

/// One value with integers rounded that no double stands for, as once they all were.
pub(super) fn rounded(node: &Node, value: &Value) -> Result<Value, Refused> {
    let mut normalizer = Normalizer::new(NumberRule::apply_rounded);
    let value = normalizer.value(node, value, &Path::ROOT);
    normalizer.finish(value)
}

/// One value as a listing shows it.
pub(super) fn listed(node: &Node, value: &Value) -> Result<Value, Refused> {
    let mut normalizer = Normalizer::new(NumberRule::listed);
    let value = normalizer.value(node, value, &Path::ROOT);
    normalizer.finish(value)
}

struct Normalizer {
    number: fn(NumberRule, &Number) -> Result<Number, String>,
    refused: bool,
    /// What is refused, if it is to be named.
    named: Option<Vec<InvalidArgument>>,
}

/// The way to a value, written out only when something is wrong there.
struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
    depth: usize,
}

enum Step<'a> {
    Root,
    Member(&'a str),
    Element(usize),
}

impl Normalizer {
    fn new(number: fn(NumberRule, &Number) -> Result<Number, String>) -> Self {
        Self {
            number,
            refused: false,
            named: None,
        }
    }

    fn finish(self, value: Value) -> Result<Value, Refused> {
        if self.refused {
            Err(Refused)
        } else {
            Ok(value)
        }
    }

    fn value(&mut self, node: &Node, value: &Value, path: &Path<'_>) -> Value {
        if path.depth > MAX_DEPTH {
            self.refuse(
                path,
                &format!("must not nest deeper than {MAX_DEPTH} levels"),
            );
            return Value::Null;
        }
        let node = node.of(value);
        match value {
            Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
            Value::Number(number) => match (self.number)(node.number, number) {
                Ok(number) => Value::Number(number),
                Err(message) => {
                    self.refuse(path, &message);
                    value.clone()
                }
            },
            Value::Array(elements) => Value::Array(self.array(node, elements, path)),
            Value::Object(members) => Value::Object(self.object(node, members, path)),
        }
    }

    fn array(&mut self, node: &Node, elements: &[Value], path: &Path<'_>) -> Vec<Value> {
        let elements = elements.iter().enumerate();
        elements
            .map(|(index, element)| {
                self.value(
                    node.element(index),
                    element,
                    &path.join(Step::Element(index)),
                )
            })
            .collect()
    }

    fn object(
        &mut self,
        node: &Node,
        members: &Map<String, Value>,
        path: &Path<'_>,
    ) -> Map<String, Value> {
        let mut normal = Map::new();
        for (name, value) in members {
            let node = match &node.object {
                ObjectRule::Untyped => node.below(),
                ObjectRule::Members(described) => match described.get(name) {
                    Some(member) if value.is_null() && member.null_is_absence => continue,
                    Some(member) => &member.node,
                    None => {
                        let Some(others) = &described.others else {
                            // Its name is all that is needed, to be refused.
                            normal.insert(name.clone(), Value::Null);
                            continue;
                        };
                        others
                    }
                },
            };
            let value = self.value(node, value, &path.join(Step::Member(name)));
            normal.insert(name.clone(), value);
        }
        normal
    }

    fn refuse(&mut self, path: &Path<'_>, message: &str) {
        self.refused = true;
        if let Some(named) = &mut self.named {
            named.push(InvalidArgument::new(&path.pointer(), message));
        }
    }
}

impl<'a> Path<'a> {
    const ROOT: Path<'static> = Path {
        parent: None,
        step: Step::Root,
        depth: 0,
    };

    fn join(&'a self, step: Step<'a>) -> Self {
        Self {
            parent: Some(self),
            step,
            depth: self.depth + 1,
        }
    }

    fn pointer(&self) -> String {
        let mut pointer = String::new();
        self.write(&mut pointer);
        pointer
    }

    fn write(&self, pointer: &mut String) {
        if let Some(parent) = self.parent {
            parent.write(pointer);
        }
        match self.step {
            Step::Root => (),
            Step::Member(name) => push_step(pointer, name),
            Step::Element(index) => push_step(pointer, &index.to_string()),
        }
    }
}
