//! The command line of the terminal example.

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use super::{
    demo, keeper, server,
    tools::{self, Terminal},
};
use crate::support::{self, Outcome, identity::Target};

/// A terminal whose commands an agent can call again after a lost answer, and which runs
/// none of them twice.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Kill servers and commands half way, and look at what was run
    Demo,
    /// Serve MCP on standard input and output
    Serve(Target),
    /// Run the command that standard input holds, and keep evidence of it; the server starts this
    #[command(hide = true)]
    Keep {
        /// Where the evidence goes
        folder: PathBuf,
    },
}

/// Runs the command that the process was started with.
#[must_use]
pub fn main() -> ExitCode {
    support::start(|| run(Cli::parse().command))
}

fn run(command: Command) -> Outcome {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
    };
    match command {
        Command::Demo => runtime()?.block_on(demo::run()),
        Command::Serve(target) => runtime()?.block_on(async {
            let store = target.store()?;
            tools::create_table(&store)?;
            let terminal = Terminal::new(store.clone(), &target.db);
            let tools = tools::toolbox(&store, terminal.clone())?;
            server::serve(terminal, tools, target.caller()?).await
        }),
        Command::Keep { folder } => keeper::keep(folder),
    }
}
