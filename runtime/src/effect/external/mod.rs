//! Effects outside the database: what can be known of them, and how they are tried.

pub(crate) mod attempt;
pub(crate) mod budget;
pub(crate) mod decide;
pub(crate) mod decided;
pub(crate) mod error;
pub(crate) mod executor;
pub(crate) mod incident;
pub(crate) mod inquiry;
pub(crate) mod instruction;
pub(crate) mod outbox;
pub(crate) mod recovery;
mod report;
pub(crate) mod resolution;
pub(crate) mod run;
pub(crate) mod tool;
pub(crate) mod view;
pub(crate) mod worker;
