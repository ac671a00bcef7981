//! A small provider of deployments: an HTTP server with books of its own on the disk.
//!
//! It can misbehave on command, so that what a caller does about it can be seen.

pub mod books;
pub mod server;
pub mod switches;
