//! What the servers share: who calls, the server on standard input and output and the one
//! over HTTP, a client that speaks to such a server, and a clock that is ahead.

pub mod client;
pub mod clock;
pub mod http;
pub mod identity;
pub mod report;
pub mod stdio;
pub mod tokens;
pub mod tools;

/// What an example ends with.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;
