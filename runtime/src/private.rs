//! Exactly what expansions name; no part of the public interface.

pub use std::vec::Vec;

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

/// What the derive of `JsonSchema` takes for granted, for crates without a prelude.
///
/// Traits are nameless, so that no name of the user's is shadowed but `Some` and `None`.
pub mod prelude {
    pub use std::{
        convert::Into as _,
        default::Default as _,
        iter::{IntoIterator as _, Iterator as _},
        option::Option::{None, Some},
    };
}

/// The items as a list.
#[must_use]
pub fn list<T, const N: usize>(items: [T; N]) -> Vec<T> {
    Vec::from(items)
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
