//! Deployments at a provider outside the database: one tool for each recovery, and the
//! provider itself, in a process of its own.

pub mod cli;
pub mod demo;
mod lab;
pub mod provider;
pub mod tools;
