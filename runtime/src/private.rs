//! Exactly what expansions name; no part of the public interface.

pub use std::vec::Vec;

pub use schemars::{self, Schema};
pub use serde_json::Value;

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

pub use crate::{
    definition::{AsyncDefinition, AsyncFn, Definition, PlainDefinition, PlainFn},
    effect::{
        external::{
            error::AttemptError,
            inquiry::answer,
            recovery::{Ask, ExternalDeclaration, RecoveryDeclaration},
        },
        failure::Failure,
    },
    request::authorize::AuthorizeFn,
    tool::{ArgumentDefault, Declaration, Need, State, ToolArguments},
};
use crate::{
    finite,
    reading::{self, Unreadable},
    request::arguments::InvalidArguments,
    tool,
};

/// What comes of reading an argument.
pub type Result<T> = core::result::Result<T, Unreadable>;

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

/// What stands in it, so that a path that leads nowhere is one error at the path.
#[doc(hidden)]
#[macro_export]
macro_rules! __expansion {
    ($($token:tt)*) => { $($token)* };
}
pub use crate::__expansion as expansion;

/// The items as a list.
#[must_use]
pub fn list<T, const N: usize>(items: [T; N]) -> Vec<T> {
    Vec::from(items)
}

/// A type that one parameter of a tool may have.
///
/// Its schema is asked for by the derive of `JsonSchema`, so a type without one is told there.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of an idempotent tool",
    label = "not an argument of a tool",
    note = "an argument must be `serde::de::DeserializeOwned + schemars::JsonSchema`",
    note = "add `#[derive(serde::Deserialize, schemars::JsonSchema)]`"
)]
pub trait Argument: Sized {
    /// Reads the value of an argument.
    ///
    /// # Errors
    ///
    /// When the type refuses what its schema allows.
    fn read(value: &Value) -> Result<Self>;
}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned> Argument for T {
    fn read(value: &Value) -> Result<Self> {
        reading::read(value)
    }
}

/// Reads the argument `name`. One that is absent is optional, or validation had refused it.
///
/// # Errors
///
/// When the type refuses what its schema allows.
pub fn argument<T: Argument>(arguments: &Value, name: &str) -> Result<T> {
    T::read(arguments.get(name).unwrap_or(&Value::Null)).map_err(|refused| refused.below(name))
}

/// Reads the argument `name`, or takes its default.
///
/// # Errors
///
/// When the type refuses what its schema allows.
pub fn argument_or<T: Argument>(
    arguments: &Value,
    name: &str,
    default: impl FnOnce() -> T,
) -> Result<T> {
    let read = |value| T::read(value).map_err(|refused| refused.below(name));
    arguments.get(name).map_or_else(|| Ok(default()), read)
}

/// Reads the argument `name` by a function of the user's.
///
/// # Errors
///
/// When the function refuses what the schema allows.
pub fn argument_with<'a, T>(
    arguments: &'a Value,
    name: &str,
    read: impl FnOnce(&'a Value) -> serde_json::Result<T>,
) -> Result<T> {
    read(arguments.get(name).unwrap_or(&Value::Null))
        .map_err(|error| Unreadable::new("", &error).below(name))
}

/// The schema of the arguments as schemars writes it.
#[must_use]
pub fn schema<T: JsonSchema>() -> Schema {
    tool::deserialize_schema::<T>()
}

/// A type whose value may be the default of an argument.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot have a default as an argument of an idempotent tool",
    label = "its default can't be told in the schema",
    note = "a default is part of the contract, so its type must be `serde::Serialize`",
    note = "add `#[derive(serde::Serialize)]`, or take an `Option` without a default"
)]
pub trait DefaultArgument {
    /// The JSON text of the value.
    ///
    /// # Errors
    ///
    /// When the value cannot be written as JSON.
    fn to_json(&self) -> serde_json::Result<String>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize> DefaultArgument for T {
    fn to_json(&self) -> serde_json::Result<String> {
        Ok(finite::to_raw_value(self)?.get().to_owned())
    }
}

/// The JSON text of a default value, which must mean that value when a caller sends it.
///
/// # Errors
///
/// When the value cannot be written as JSON, or what is written is read as another value,
/// as when a member that isn't at its own default is skipped.
pub fn default_json<T: DefaultArgument + Argument>(value: &T) -> serde_json::Result<String> {
    let written = value.to_json()?;
    let json: Value = serde_json::from_str(&written)?;
    let again = T::read(&json).map_err(|refused| {
        let refused = InvalidArguments::from(refused).text();
        <serde_json::Error as serde::de::Error>::custom(refused)
    })?;
    let again: Value = serde_json::from_str(&again.to_json()?)?;
    if same_members(&json, &again) {
        return Ok(written);
    }
    Err(serde::de::Error::custom(
        "it is read back as another value than was written; write all its members",
    ))
}

/// Whether two values are equal but for the order of elements, which a set may change.
fn same_members(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            let mut left: Vec<_> = other.iter().collect();
            one.len() == other.len()
                && one.iter().all(|element| {
                    let found = left
                        .iter()
                        .position(|candidate| same_members(element, candidate));
                    found.map(|place| left.swap_remove(place)).is_some()
                })
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| {
                    other
                        .get(name)
                        .is_some_and(|candidate| same_members(value, candidate))
                })
        }
        _ => one == other,
    }
}
