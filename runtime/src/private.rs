//! Exactly what expansions name; no part of the public interface.

pub use schemars;
pub use serde;

use serde::Serialize;

pub use crate::{
    effect::failure::Failure,
    tool::{
        ArgumentDefault, Context, Declaration, Handler, HandlerResult, Need, State, SyncContext,
        Tool,
    },
};

/// The prelude, for crates that have none.
pub mod prelude {
    pub use std::prelude::rust_2024::*;
}

/// The erased handler of a tool that is a plain function.
#[must_use]
pub fn handler<T: Handler>() -> <T::Context as Context>::Handler
where
    T::Context: SyncContext,
{
    <T::Context as SyncContext>::erase::<T>()
}

/// The JSON text of a default value.
///
/// # Errors
///
/// When the value cannot be written as JSON.
pub fn default_json<T: Serialize>(value: &T) -> serde_json::Result<String> {
    serde_json::to_string(value)
}
