//! The command line of the deployments example.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use super::{
    demo, provider,
    tools::{self, Halts, Provider},
};
use crate::support::{Outcome, identity::Target, stdio};

/// Deployments at a provider outside the database, started once whatever gets lost.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Kill real processes in every failure window, and compare what the tools say with what
    /// the provider holds
    Demo,
    /// Serve MCP on standard input and output
    Serve {
        #[command(flatten)]
        target: Target,
        /// The provider's address, as `deployments provider` prints it
        #[arg(long)]
        provider: String,
        #[command(flatten)]
        halts: Halts,
    },
    /// Run the provider
    Provider {
        /// Its log; made if it is missing
        #[arg(long)]
        log: PathBuf,
        /// The address to listen on
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
}

/// Runs the command that the process was started with.
#[must_use]
pub fn main() -> ExitCode {
    stdio::log_to_stderr();
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match command {
            Command::Demo => demo::run().await,
            Command::Serve {
                target,
                provider,
                halts,
            } => {
                let store = target.store()?;
                tools::create_table(&store)?;
                let tools = tools::toolbox(&store, Provider::new(&provider, halts)?)?;
                stdio::serve(tools, target.caller()?).await
            }
            Command::Provider { log, listen } => provider::server::serve(&log, listen).await,
        }
    })
}
