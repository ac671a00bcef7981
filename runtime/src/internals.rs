//! Steps of a call that this project's bench measures by themselves; no part of the
//! public interface.

use serde_json::Value;

use crate::{
    request::arguments::CompiledArguments,
    tool::{Tool, ToolArguments},
};

/// The arguments of a tool, to be fingerprinted apart from a call.
#[derive(Debug)]
pub struct Arguments(CompiledArguments);

impl Arguments {
    /// Compiles the arguments of `T`.
    ///
    /// # Errors
    ///
    /// When their schema can't be a tool's contract, and why.
    pub fn of<T: Tool>() -> Result<Self, String> {
        CompiledArguments::compile(T::Arguments::json_schema(), &T::defaults())
            .map(Self)
            .map_err(|error| error.to_string())
    }

    /// Canonicalizes and digests arguments that are valid already.
    #[must_use]
    pub fn fingerprint(&self, arguments: &Value) -> Vec<u8> {
        self.0.fingerprint(arguments).as_bytes().to_vec()
    }
}
