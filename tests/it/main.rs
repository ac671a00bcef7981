//! The integration tests: one binary, a module for each theme.

#![allow(
    clippy::duration_suboptimal_units,
    clippy::expect_used,
    clippy::panic,
    clippy::similar_names,
    clippy::unchecked_time_subtraction,
    clippy::unnecessary_wraps,
    clippy::unused_async,
    clippy::unwrap_used,
    reason = "a test that can't go on stops; handlers return a `Result` whatever they do"
)]

mod arguments;
mod authorization;
mod carriers;
mod clocks;
mod common;
mod contracts;
mod conversation;
mod external;
mod failures;
mod going_back;
mod guide;
mod handles;
mod instructions;
mod keys;
mod listing;
mod mcp;
mod mcp_external;
mod no_answer;
mod old_ledger;
mod operating;
mod outbox;
mod own_types;
mod pace;
mod process;
mod proof;
mod provider;
mod recoverers;
mod reliability;
mod results;
mod schedules;
mod store;
mod tags;
mod time;
mod typed;
mod ui;
mod version_authorizers;
mod versions;
