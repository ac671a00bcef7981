//! Tools of a crate that knows the library as `once`, without serde or schemars of its own.

use once::{Failure, Tx, idempotent_tool};

/// Says it again.
///
/// # Errors
///
/// None.
#[idempotent_tool(operation = "by_name:v1", crate = ::once)]
pub fn by_name(
    _tx: &Tx,
    #[schemars(length(min = 1))] text: String,
    #[serde(default)] times: u8,
) -> Result<String, Failure> {
    Ok(text.repeat(usize::from(times)))
}

/// What a crate of the user's re-exports.
pub mod facade {
    pub use once as tool;
}

/// Says it again.
///
/// # Errors
///
/// None.
#[facade::tool::idempotent_tool(operation = "by_facade:v1", crate = crate::facade::tool)]
pub fn by_facade(
    _tx: &facade::tool::Tx,
    text: String,
    #[state] suffix: &String,
) -> Result<String, facade::tool::Failure> {
    Ok(text + suffix)
}
