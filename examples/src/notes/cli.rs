//! The command line of the notes example.

use std::{error::Error, path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};
use idempotent_tool::{Caller, EmptyScope, Scope, SqliteStore};
use serde_json::Value;

use super::{demo, server, tools};
use crate::support::{self, http::HttpArgs};

/// Notes that an agent can create again after a lost answer, without a second note.
///
/// Without a command it demonstrates on a temporary file what happens under failure.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve MCP on standard input and output, or over HTTP
    #[command(mut_arg("deny", |deny| deny.conflicts_with("http")))]
    Serve {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        http: HttpArgs,
    },
    /// Make one call and print the reply
    Call {
        /// The tool's name
        tool: String,
        #[command(flatten)]
        target: Target,
        /// The arguments as JSON, `idempotency_key` among them
        arguments: String,
    },
    /// Print a tool's listing with both schemas
    Schema {
        /// The tool's name
        tool: String,
    },
    /// Write a note without its receipt and wait to be killed; the demonstration starts this
    #[command(hide = true)]
    WriteHalf {
        #[arg(long)]
        db: PathBuf,
    },
}

/// Where the notes are, and whose they are.
///
/// Standard input authenticates nobody, so the identity is stated here, once.
#[derive(Debug, Args)]
struct Target {
    /// The SQLite file; made if it is missing
    #[arg(long)]
    db: PathBuf,
    /// The account that the caller belongs to
    #[arg(long, default_value = "local")]
    account: String,
    /// The caller
    #[arg(long, default_value = "operator")]
    principal: String,
    /// The project that the caller works in
    #[arg(long, default_value = "notes")]
    workspace: String,
    /// Deny this tool, to see what a caller without the permission gets
    #[arg(long, value_name = "TOOL")]
    deny: Vec<String>,
}

impl Target {
    fn caller(&self) -> Result<Caller, EmptyScope> {
        let scope = Scope::builder()
            .account(&self.account)
            .principal(&self.principal)
            .workspace(&self.workspace)
            .build()?;
        Ok(Caller::new(scope))
    }

    fn store(&self) -> Result<SqliteStore, Box<dyn Error>> {
        let store = SqliteStore::open(&self.db)?;
        tools::create_table(&store)?;
        Ok(store)
    }

    fn revoked(&self) -> tools::Revoked {
        let revoked = tools::Revoked::default();
        self.deny.iter().for_each(|tool| revoked.revoke(tool));
        revoked
    }
}

/// Runs the command that the process was started with.
#[must_use]
pub fn main() -> ExitCode {
    support::start(|| run(Cli::parse()))
}

fn run(cli: Cli) -> Result<(), Box<dyn Error>> {
    match cli.command {
        None => demo::run(),
        Some(Command::Serve { target, http }) => {
            let endpoint = http.endpoint()?;
            let store = target.store()?;
            if let Some(endpoint) = endpoint {
                let tools = tools::toolbox_for_tokens(&store)?;
                return server::serve_http(store, tools, endpoint);
            }
            let tools = tools::toolbox(&store, target.revoked())?;
            server::serve_stdio(store, tools, target.caller()?)
        }
        Some(Command::Call {
            tool,
            target,
            arguments,
        }) => {
            let arguments: Value = serde_json::from_str(&arguments)
                .map_err(|error| format!("the arguments are not JSON: {error}"))?;
            let tools = tools::toolbox(&target.store()?, target.revoked())?;
            let reply = tools.call_blocking(&target.caller()?, &tool, arguments);
            println!("{}", reply.to_json());
            Ok(())
        }
        Some(Command::Schema { tool }) => {
            let store = SqliteStore::in_memory()?;
            let tools = tools::toolbox(&store, tools::Revoked::default())?;
            let description = tools
                .describe(&tool)
                .ok_or_else(|| format!("`{tool}` is not an idempotent tool; try `create_note`"))?;
            println!("{}", serde_json::to_string_pretty(description)?);
            Ok(())
        }
        Some(Command::WriteHalf { db }) => demo::write_half(&db),
    }
}
