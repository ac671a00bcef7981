//! A struct of arguments. What derives its schema needs a prelude, so there is one here.

#[allow(
    clippy::wildcard_imports,
    clippy::allow_attributes,
    reason = "it is a prelude"
)]
use ::std::prelude::rust_2024::*;

/// Named like the standard library's.
#[derive(Debug, Clone, Copy, ::serde::Deserialize, ::schemars::JsonSchema)]
#[schemars(crate = "::schemars")]
#[non_exhaustive]
pub struct Box {
    /// A number.
    pub number: u8,
}
