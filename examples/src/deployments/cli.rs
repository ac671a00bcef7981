//! The command line of the deployments example.

use std::{future::ready, net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use idempotent_tool::mcp::Adapter;

use super::{
    demo, provider,
    tools::{self, Halts, Provider},
};
use crate::support::{
    self, Outcome,
    http::{self, HttpArgs},
    identity::Target,
    stdio,
    tools::ToolServer,
};

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
    /// Serve MCP on standard input and output, or over HTTP
    Serve {
        #[command(flatten)]
        target: Target,
        /// The provider's address, as `deployments provider` prints it
        #[arg(long)]
        provider: String,
        #[command(flatten)]
        http: HttpArgs,
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
    support::start(|| run(Cli::parse().command))
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
                http,
                halts,
            } => {
                let endpoint = http.endpoint()?;
                let store = target.store()?;
                tools::create_table(&store)?;
                let provider = Provider::new(&provider, halts)?;
                let Some(endpoint) = endpoint else {
                    let tools = tools::toolbox(&store, provider)?;
                    return stdio::serve("deployments", tools, target.caller()?).await;
                };
                let tools = tools::toolbox_for_tokens(&store, provider)?;
                let adapter = Adapter::new(tools.clone(), |context| ready(http::caller(&context)));
                let server = ToolServer::new("deployments", adapter)?;
                http::serve(server, endpoint).await?;
                tools.shut_down(stdio::SHUT_DOWN).await;
                Ok(())
            }
            Command::Provider { log, listen } => provider::server::serve(&log, listen).await,
        }
    })
}
