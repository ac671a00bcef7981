//! The notes example: the demonstration, an MCP server, one call, the listing.
//!
//! ```text
//! cargo run                                       the demonstration
//! cargo run -- serve --db notes.sqlite3           MCP on stdio
//! cargo run -- serve --db notes.sqlite3 --http 127.0.0.1:8000 --tokens tokens.toml
//! cargo run -- call create_note --db notes.sqlite3 '{"idempotency_key":"k","body":"…"}'
//! cargo run -- schema create_note                 the listing with both schemas
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    examples::notes::cli::main()
}
