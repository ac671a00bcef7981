//! The integration tests: one binary, a module for each theme.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unnecessary_wraps,
    clippy::unwrap_used,
    reason = "a test that can't go on stops; handlers return a `Result` whatever they do"
)]

mod arguments;
mod authorization;
mod carriers;
mod common;
mod contracts;
mod conversation;
mod external;
mod handles;
mod keys;
mod listing;
mod mcp;
mod outbox;
mod provider;
mod results;
mod store;
mod time;
mod typed;
mod ui;
mod versions;
