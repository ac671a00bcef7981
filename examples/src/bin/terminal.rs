//! The terminal example: commands that are run at most once, with evidence of their end.
//!
//! ```text
//! cargo run --bin terminal -- demo
//! cargo run --bin terminal -- serve --db terminal.sqlite3
//! ```

use std::process::ExitCode;

#[cfg(unix)]
fn main() -> ExitCode {
    examples::terminal::cli::main()
}

#[cfg(not(unix))]
fn main() -> ExitCode {
    eprintln!("error: this example needs a Unix shell");
    ExitCode::FAILURE
}
