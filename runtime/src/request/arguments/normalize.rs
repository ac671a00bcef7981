//! Numbers by the schema's type, and null where it only means absence.

use serde_json::{Map, Number, Value};

use super::{
    InvalidArgument,
    node::{Node, ObjectRule},
    number::NumberRule,
};
use crate::request::json_schema::pointer;

/// How deep arguments may nest, which is how deep `serde_json` reads.
const MAX_DEPTH: usize = 128;

/// The arguments as the handler is to see them. What the schema refuses beside numbers
/// passes through; validation names it.
pub(super) fn members(
    node: &Node,
    arguments: &Map<String, Value>,
) -> Result<Value, (Value, Vec<InvalidArgument>)> {
    let mut normalizer = Normalizer {
        number: NumberRule::apply,
        refused: Vec::new(),
    };
    let value = Value::Object(normalizer.object(node, arguments, &Path::ROOT));
    normalizer.finish(value)
}

/// One value as the handler is to see it.
pub(super) fn value(node: &Node, value: &Value) -> Result<Value, (Value, Vec<InvalidArgument>)> {
    let mut normalizer = Normalizer {
        number: NumberRule::apply,
        refused: Vec::new(),
    };
    let value = normalizer.value(node, value, &Path::ROOT);
    normalizer.finish(value)
}

/// One value as a listing shows it.
pub(super) fn listed(node: &Node, value: &Value) -> Result<Value, (Value, Vec<InvalidArgument>)> {
    let mut normalizer = Normalizer {
        number: NumberRule::listed,
        refused: Vec::new(),
    };
    let value = normalizer.value(node, value, &Path::ROOT);
    normalizer.finish(value)
}

struct Normalizer {
    number: fn(NumberRule, &Number) -> Result<Number, String>,
    refused: Vec<InvalidArgument>,
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
    fn finish(self, value: Value) -> Result<Value, (Value, Vec<InvalidArgument>)> {
        if self.refused.is_empty() {
            Ok(value)
        } else {
            Err((value, self.refused))
        }
    }

    fn value(&mut self, node: &Node, value: &Value, path: &Path<'_>) -> Value {
        if path.depth > MAX_DEPTH {
            self.refuse(
                path,
                format!("must not nest deeper than {MAX_DEPTH} levels"),
            );
            return Value::Null;
        }
        let node = node.of(value);
        match value {
            Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
            Value::Number(number) => match (self.number)(node.number, number) {
                Ok(number) => Value::Number(number),
                Err(message) => {
                    self.refuse(path, message);
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
                    None => match &described.others {
                        Some(others) => others,
                        None => {
                            normal.insert(name.clone(), Value::Null);
                            continue;
                        }
                    },
                },
            };
            let value = self.value(node, value, &path.join(Step::Member(name)));
            normal.insert(name.clone(), value);
        }
        normal
    }

    fn refuse(&mut self, path: &Path<'_>, message: String) {
        self.refused.push(InvalidArgument {
            path: path.pointer(),
            message,
        });
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
        let parent = self.parent.map_or_else(String::new, Path::pointer);
        match self.step {
            Step::Root => parent,
            Step::Member(name) => pointer(&parent, name),
            Step::Element(index) => format!("{parent}/{index}"),
        }
    }
}
