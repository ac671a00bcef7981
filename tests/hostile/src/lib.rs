//! Tools in a crate that has no prelude, shadows the names that expansions like to use, and
//! denies the lints that expansions like to trip over.
#![no_implicit_prelude]
#![forbid(unsafe_code)]
#![deny(
    missing_docs,
    missing_debug_implementations,
    missing_copy_implementations,
    nonstandard_style,
    rust_2018_idioms,
    single_use_lifetimes,
    trivial_casts,
    trivial_numeric_casts,
    unreachable_pub,
    unused,
    unused_import_braces,
    unused_lifetimes,
    unused_qualifications,
    unused_results,
    variant_size_differences,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::default_trait_access,
    clippy::empty_structs_with_brackets,
    clippy::exhaustive_structs,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::infinite_loop,
    clippy::let_underscore_untyped,
    clippy::missing_docs_in_private_items,
    clippy::panic,
    clippy::partial_pub_fields,
    clippy::pattern_type_mismatch,
    clippy::question_mark_used,
    clippy::redundant_type_annotations,
    clippy::ref_patterns,
    clippy::renamed_function_params,
    clippy::shadow_reuse,
    clippy::shadow_same,
    clippy::shadow_unrelated,
    clippy::str_to_string,
    clippy::unneeded_field_pattern,
    clippy::unwrap_in_result,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm
)]

mod shadows;
mod whole;

pub use ::idempotent_tool::{Access, Failure, Tx};
use ::idempotent_tool::{Asked, Caller, idempotent_tool};

#[expect(unused_imports, reason = "they are here to be in the way")]
use crate::shadows::{
    Clone, Default, Deserialize, From, Into, Iterator, JsonSchema, Schema, Serialize, Sized, Value,
    alloc, core, schemars, serde, serde_json, std,
};
pub use crate::{
    shadows::{Option, Result, String, Vec},
    whole::Box,
};

/// What a handler returns here.
type Returned<T> = ::core::result::Result<T, Failure>;
/// The text that is not shadowed.
type Text = ::std::string::String;

/// Allows everything, by a macro's lights.
fn may(_caller: &Caller, asked: &Asked<'_>) -> Access {
    if asked.tool().is_empty() {
        Access::Denied
    } else {
        Access::Allowed
    }
}

/// The step where none is given.
const fn step() -> u8 {
    2
}

/// Takes eight arguments.
///
/// # Errors
///
/// None.
#[idempotent_tool(operation = "eight:v1", title = "Eight", authorize = may)]
pub fn eight(
    tx: &Tx,
    /// The first.
    one: u8,
    two: u8,
    three: u8,
    four: u8,
    #[serde(default)] five: u8,
    #[serde(default = "step")] six: u8,
    seven: ::core::option::Option<u8>,
    eight: [u8; 2],
) -> Returned<u8> {
    let _: &Tx = tx;
    let [left, right] = eight;
    let last = seven.unwrap_or(1) + left + right;
    ::core::result::Result::Ok(one + two + three + four + five + six + last)
}

/// Takes three flags.
///
/// # Errors
///
/// None.
#[idempotent_tool(operation = "flags:v1")]
pub fn flags(tx: &Tx, one: bool, two: bool, three: bool) -> Returned<bool> {
    let _: &Tx = tx;
    ::core::result::Result::Ok(one && two && three)
}

/// Takes owned arguments and only borrows them.
///
/// # Errors
///
/// None.
#[idempotent_tool(operation = "owned:v1")]
pub fn owned(
    tx: &Tx,
    #[schemars(length(min = 1, max = 10), title = "Text")] text: Text,
    #[serde(default)] more: ::std::vec::Vec<Text>,
    #[state] limit: &usize,
) -> Returned<usize> {
    let _: &Tx = tx;
    ::core::result::Result::Ok(text.len() + more.len() + *limit)
}

/// Takes and returns types of this crate that are named like the standard library's.
///
/// # Errors
///
/// None.
#[idempotent_tool(operation = "shadowed:v1")]
pub fn shadowed(tx: &Tx, text: String, option: Option, vec: Vec) -> Returned<Result> {
    let _: &Tx = tx;
    ::core::result::Result::Ok(Result(text.0 + option.0 + vec.0))
}

/// Takes them all in one.
///
/// # Errors
///
/// When it is nothing.
#[idempotent_tool(operation = "all_in_one:v1")]
pub fn all_in_one(tx: &Tx, #[arguments] whole: Box) -> Returned<()> {
    let _: &Tx = tx;
    if whole.number == 0 {
        return ::core::result::Result::Err(Failure::new("nothing", "it is nothing"));
    }
    ::core::result::Result::Ok(())
}

/// An old one.
///
/// # Errors
///
/// None.
#[deprecated(note = "use another")]
#[idempotent_tool(operation = "old:v1")]
pub fn old(tx: &Tx, text: Text) -> Returned<usize> {
    let _: &Tx = tx;
    ::core::result::Result::Ok(text.len())
}

/// Not registered anywhere.
#[expect(
    dead_code,
    reason = "a tool that nobody registers is said to be unused"
)]
#[idempotent_tool(operation = "unused:v1")]
fn unused(tx: &Tx, text: Text) -> Returned<usize> {
    let _: &Tx = tx;
    ::core::result::Result::Ok(text.len())
}
