//! What the examples share: how they start and end, who calls, the server on standard input and output and the one
//! over HTTP, a client that speaks to such a server, and a clock that is ahead.

mod admission;
pub mod client;
pub mod clock;
pub mod http;
pub mod identity;
pub mod report;
pub mod stdio;
pub mod tokens;
pub mod tools;

use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

/// What an example ends with.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Sparse, and never the MCP SDK's own: it logs whole requests.
const LOG_FILTER: &str = "warn,rmcp=off";

/// Runs an example and tells how it ended. Logs and errors go to standard error, since
/// standard output belongs to the protocol.
#[must_use]
pub fn start(run: impl FnOnce() -> Outcome) -> ExitCode {
    let logs = tracing_subscriber::fmt().with_writer(std::io::stderr);
    logs.with_env_filter(EnvFilter::new(LOG_FILTER)).init();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
