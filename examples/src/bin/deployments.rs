//! The deployments example: external effects, their provider, and what a crash leaves.
//!
//! ```text
//! cargo run --bin deployments -- demo
//! cargo run --bin deployments -- provider --log provider.log
//! cargo run --bin deployments -- serve --db deployments.sqlite3 --provider http://127.0.0.1:…
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    examples::deployments::cli::main()
}
