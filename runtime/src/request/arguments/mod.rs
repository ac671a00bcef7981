//! Validate, normalize, fingerprint: from the JSON that came to the request that is compared.

pub(crate) mod fingerprint;
pub(crate) mod number;
pub(crate) mod validate;

mod branch;
mod canonical;
mod compile;
mod invalid;
mod node;
mod normalize;
mod schema;

#[cfg(test)]
mod tests;

use std::{cell::Cell, collections::HashSet};

use schemars::Schema;
use serde_json::{Map, Value};

pub(crate) use self::invalid::{InvalidArgument, InvalidArguments};
use self::{
    canonical::Form,
    fingerprint::Fingerprint,
    node::{Node, ObjectRule},
    validate::Validator,
};
use crate::tool::ArgumentDefault;

/// The arguments of one version of a tool, compiled at `build()`.
#[derive(Debug)]
pub(crate) struct CompiledArguments {
    schema: Map<String, Value>,
    validator: Validator,
    node: Node,
}

/// Arguments that the contract accepts.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    /// The normalized arguments, to deserialize.
    pub(crate) arguments: Value,
    pub(crate) fingerprint: Fingerprint,
}

/// Why a schema can't be a tool's contract.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct SchemaError {
    pub(crate) message: String,
}

impl SchemaError {
    pub(crate) fn new(message: String) -> Self {
        Self { message }
    }
}

/// The arguments' object.
pub(crate) fn as_object(value: Value) -> Result<Map<String, Value>, InvalidArguments> {
    match value {
        Value::Object(arguments) => Ok(arguments),
        _ => Err(InvalidArguments::one(
            "",
            "must be an object that holds the arguments by name",
        )),
    }
}

impl CompiledArguments {
    /// Turns the generated schema into the contract that is advertised and enforced.
    ///
    /// `schema` is schemars' deserialize schema of the arguments struct; `defaults` are
    /// the parameters' declared defaults, which win over those in the schema.
    pub(crate) fn compile(
        schema: Schema,
        defaults: &[ArgumentDefault],
    ) -> Result<Self, SchemaError> {
        let mut schema = schema::contract(schema.to_value(), defaults)?;
        let node = Node::compile(&mut schema)?;
        let schema = Value::Object(schema);
        let validator = Validator::compile(&schema)?;
        let Value::Object(schema) = schema else {
            return Err(schema::not_a_struct());
        };
        Ok(Self {
            schema,
            validator,
            node,
        })
    }

    /// The advertised schema of the arguments, without the idempotency key: an object
    /// schema, closed, inlined, with defaults.
    pub(crate) fn schema(&self) -> &Map<String, Value> {
        &self.schema
    }

    /// Normalizes, validates, canonicalizes and digests.
    ///
    /// # Errors
    ///
    /// What the contract refuses, by its paths.
    pub(crate) fn prepare(
        &self,
        arguments: &Map<String, Value>,
    ) -> Result<Prepared, InvalidArguments> {
        match normalize::members(&self.node, arguments) {
            Ok(arguments) if self.validator.accepts(&arguments) => {
                let fingerprint = self.fingerprint(&arguments);
                Ok(Prepared {
                    arguments,
                    fingerprint,
                })
            }
            _ => Err(self.explain(arguments)),
        }
    }

    /// Everything that is wrong with `arguments`.
    fn explain(&self, arguments: &Map<String, Value>) -> InvalidArguments {
        if let Some(arguments) = invalid::with_short_names(arguments) {
            let explained = self.explain_all(&arguments);
            if !explained.is_empty() {
                return explained;
            }
        }
        self.explain_all(arguments)
    }

    fn explain_all(&self, arguments: &Map<String, Value>) -> InvalidArguments {
        let (arguments, refused) = normalize::explain(&self.node, arguments);
        let found = self.validator.explain(&arguments);
        // A number that was refused stays as it came, so the validator may name it once more,
        // with less to say.
        let places: HashSet<_> = refused.iter().map(InvalidArgument::place).collect();
        let others = found
            .iter()
            .filter(|other| !places.contains(&other.place()))
            .cloned();
        refused.iter().cloned().chain(others).collect()
    }

    /// Whether normalized arguments fit, as those that are recorded did when they came.
    pub(crate) fn accepts(&self, arguments: &Value) -> bool {
        self.validator.accepts(arguments)
    }

    /// Canonicalizes and digests arguments that are normalized and validated.
    pub(crate) fn fingerprint(&self, arguments: &Value) -> Fingerprint {
        with_form(|form| {
            canonical::write(&self.node, arguments, form);
            Fingerprint::of(form)
        })
    }

    /// The arguments without the members that this version doesn't know and that equal
    /// the default that `newer` declares for them.
    pub(crate) fn without_newer_defaults(
        &self,
        arguments: &Map<String, Value>,
        newer: &Self,
    ) -> Map<String, Value> {
        without_newer_defaults(&self.node, &newer.node, arguments)
    }
}

fn without_newer_defaults(
    older: &Node,
    newer: &Node,
    arguments: &Map<String, Value>,
) -> Map<String, Value> {
    let (ObjectRule::Members(known), ObjectRule::Members(newly)) = (&older.object, &newer.object)
    else {
        return arguments.clone();
    };
    let mut kept = Map::new();
    for (name, value) in arguments {
        let value = match (known.get(name), newly.get(name), value) {
            (Some(older), Some(newer), Value::Object(members)) => {
                Value::Object(without_newer_defaults(&older.node, &newer.node, members))
            }
            (None, Some(newer), _) if known.others.is_none() && newer.repeats_default(value) => {
                continue;
            }
            _ => value.clone(),
        };
        kept.insert(name.clone(), value);
    }
    kept
}

/// How an argument's default differs from the one that was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DefaultChange {
    /// What repeats the one repeats the other.
    None,
    /// An integer in it was recorded rounded, as all were that no double stands for.
    WasRounded,
    /// They are two.
    Changed,
}

/// Compares the default that was recorded of an argument with the one it has now, by its
/// `schema`.
pub(crate) fn default_change(schema: &Value, was: &Value, is: &Value) -> DefaultChange {
    let Value::Object(schema) = schema else {
        return if was == is {
            DefaultChange::None
        } else {
            DefaultChange::Changed
        };
    };
    // The schema is compiled without its own default, which may be neither of the two.
    let mut schema = schema.clone();
    schema.remove("default");
    let Ok(node) = Node::compile(&mut schema) else {
        return DefaultChange::Changed;
    };
    let form = |default: Value| {
        let mut form = Form::default();
        canonical::write(&node, &default, &mut form);
        form.bytes
    };
    let exact = |default| normalize::value(&node, default).map(form);
    let rounded = |default| normalize::rounded(&node, default).map(form);
    let (recorded, now) = (exact(was), exact(is));
    if matches!((&recorded, &now), (Ok(was), Ok(is)) if was == is) {
        return DefaultChange::None;
    }
    // What was recorded as it is has not been rounded.
    let (Ok(was), Ok(is)) = (rounded(was), rounded(is)) else {
        return DefaultChange::Changed;
    };
    if was == is && recorded.map_or(true, |recorded| recorded == was) {
        DefaultChange::WasRounded
    } else {
        DefaultChange::Changed
    }
}

/// Lends a form whose buffer is kept from call to call.
fn with_form<T>(write: impl FnOnce(&mut Form) -> T) -> T {
    /// The largest buffer that is kept.
    const KEPT: usize = 64 * 1024;
    thread_local! {
        static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    let mut form = Form {
        bytes: BUFFER.take(),
        ..Form::default()
    };
    form.bytes.clear();
    let result = write(&mut form);
    if form.bytes.capacity() <= KEPT {
        BUFFER.set(form.bytes);
    }
    result
}
