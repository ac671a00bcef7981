//! What the servers of external effects share: who calls, the server on standard input and
//! output, a client that speaks to such a server, and a clock that is ahead.

pub mod client;
pub mod clock;
pub mod identity;
pub mod report;
pub mod stdio;

/// What an example ends with.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;
