//! The integration tests: one binary, a module for each theme.

#![allow(missing_docs, clippy::needless_pass_by_value, reason = "tests")]
// Clippy's own exemption for tests stops at functions without `#[test]`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod arguments;
mod authorization;
mod common;
mod contracts;
mod conversation;
mod keys;
mod listing;
mod mcp;
mod results;
mod store;
mod time;
mod typed;
mod ui;
mod versions;
