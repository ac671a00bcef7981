//! The schema as the arguments are normalized and written by: compiled once, at `build()`.

use serde_json::Value;

use super::{
    branch::Branch,
    canonical::{self, Form},
    normalize,
    number::NumberRule,
};

/// What the schema says of a value, by the value's own type.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) number: NumberRule,
    pub(super) array: ArrayRule,
    pub(super) object: ObjectRule,
    /// If there are any, one of these decides instead.
    pub(super) alternatives: Vec<(Branch, Node)>,
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
    /// Whether the default has an integer that no double stands for.
    pub(super) default_is_exact: bool,
    /// Whether null is dropped, as no default but null is declared.
    pub(super) null_is_absence: bool,
    pub(super) node: Node,
}

/// A value of which nothing is known.
pub(super) static UNTYPED: Node = Node {
    number: NumberRule::Untyped,
    array: ArrayRule::Untyped,
    object: ObjectRule::Untyped,
    alternatives: Vec::new(),
};
/// A value of which only is known that it may be a floating-point number.
static UNTYPED_DOUBLE: Node = Node {
    number: NumberRule::UntypedDouble,
    array: ArrayRule::Untyped,
    object: ObjectRule::Untyped,
    alternatives: Vec::new(),
};

impl Node {
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
            .filter(|(branch, _)| branch.may_describe(value));
        match (fitting.next(), fitting.next()) {
            (Some((_, only)), None) => only.of(value),
            _ => self.below(),
        }
    }
}

impl Members {
    pub(super) fn new(mut known: Vec<Member>, others: Option<Node>) -> Self {
        known.sort_by(|one, other| one.name.cmp(&other.name));
        Self {
            known,
            others: others.map(Box::new),
        }
    }

    /// The members that the schema names, sorted.
    pub(super) fn known(&self) -> &[Member] {
        &self.known
    }

    pub(super) fn get(&self, name: &str) -> Option<&Member> {
        let index = self
            .known
            .binary_search_by(|member| member.name.as_str().cmp(name));
        index.ok().and_then(|index| self.known.get(index))
    }
}

impl Member {
    /// Whether giving `value` says no more than leaving the member out.
    pub(super) fn repeats_default(&self, value: &Value) -> bool {
        if !self.optional {
            return false;
        }
        let mut form = Form::default();
        match normalize::value(&self.node, value) {
            Ok(normal) => canonical::write(&self.node, &normal, &mut form),
            Err(_) => return false,
        }
        form.bytes == self.default
    }
}
