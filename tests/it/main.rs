//! The integration tests: one binary, a module for each theme.

#![allow(missing_docs, clippy::needless_pass_by_value, reason = "tests")]

mod arguments;
mod authorization;
mod common;
mod contracts;
mod conversation;
mod keys;
mod listing;
mod mcp;
mod results;
mod time;
mod typed;
mod versions;
