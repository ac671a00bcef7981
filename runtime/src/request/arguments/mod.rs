//! Validate, normalize, fingerprint: from the JSON that came to the request that is compared.

pub(crate) mod fingerprint;

use schemars::Schema;
use serde_json::{Map, Value};

use self::fingerprint::Fingerprint;
use crate::tool::ArgumentDefault;

/// The arguments of one version of a tool, compiled at `build()`.
#[derive(Debug)]
pub(crate) struct CompiledArguments {
    schema: Map<String, Value>,
}

/// Arguments that the contract accepts.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    /// The normalized arguments, to deserialize.
    pub(crate) arguments: Value,
    pub(crate) fingerprint: Fingerprint,
}

/// One argument that the contract refuses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub(crate) struct InvalidArgument {
    /// Where, as a JSON Pointer into the arguments.
    pub(crate) path: String,
    /// What is wrong and what is expected; never the value itself.
    pub(crate) message: String,
}

/// Why a schema can't be a tool's contract.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct SchemaError {
    pub(crate) message: String,
}

/// The arguments as an object.
pub(crate) fn as_object(_arguments: Value) -> Result<Map<String, Value>, Vec<InvalidArgument>> {
    todo!()
}

impl CompiledArguments {
    /// Turns the generated schema into the contract that is advertised and enforced.
    ///
    /// `schema` is schemars' deserialize schema of the arguments struct; `defaults` are
    /// the parameters' declared defaults, which win over those in the schema.
    pub(crate) fn compile(
        _schema: Schema,
        _defaults: &[ArgumentDefault],
    ) -> Result<Self, SchemaError> {
        todo!()
    }

    /// The advertised schema of the arguments, without the idempotency key: an object
    /// schema, closed, inlined, with defaults.
    pub(crate) fn schema(&self) -> &Map<String, Value> {
        &self.schema
    }

    /// Normalizes, validates, canonicalizes and digests.
    pub(crate) fn prepare(
        &self,
        _arguments: &Map<String, Value>,
    ) -> Result<Prepared, Vec<InvalidArgument>> {
        todo!()
    }

    /// The arguments without the members that this version doesn't know and that equal
    /// the default that `newer` declares for them.
    pub(crate) fn without_newer_defaults(
        &self,
        _arguments: &Map<String, Value>,
        _newer: &Self,
    ) -> Map<String, Value> {
        todo!()
    }
}
