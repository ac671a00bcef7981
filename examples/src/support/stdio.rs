//! An MCP server on standard input and output.

use std::time::Duration;

use idempotent_tool::Toolbox;
use rmcp::{ServerHandler, ServiceExt, handler::server::router::tool::ToolRouter, tool_handler};
use tracing_subscriber::EnvFilter;

use super::Outcome;

/// How long attempts under way are waited for at the end; what is left is recovered by the
/// next start.
const SHUT_DOWN: Duration = Duration::from_secs(2);

/// Sparse, and never the MCP SDK's own: it logs whole requests.
const LOG_FILTER: &str = "warn,rmcp=off";

/// A server of a toolbox's tools, and of plain ones if there are any.
#[derive(Debug)]
struct Server {
    router: ToolRouter<Self>,
}

#[tool_handler(router = self.router)]
impl ServerHandler for Server {}

/// Serves a toolbox over MCP until the client closes its end.
///
/// # Errors
///
/// When the client breaks the protocol.
pub async fn serve(tools: Toolbox, caller: idempotent_tool::Caller) -> Outcome {
    let adapter = idempotent_tool::mcp::Adapter::for_caller(tools.clone(), caller);
    let server = Server {
        router: adapter.merge(ToolRouter::new())?,
    };
    serve_handler(server, &tools).await
}

/// Serves a handler whose router has the tools of `tools`.
///
/// # Errors
///
/// When the client breaks the protocol.
pub async fn serve_handler(handler: impl ServerHandler, tools: &Toolbox) -> Outcome {
    let running = handler.serve(rmcp::transport::stdio()).await?;
    running.waiting().await?;
    tools.shut_down(SHUT_DOWN).await;
    Ok(())
}

/// Sends logs to standard error: standard output belongs to the protocol.
pub fn log_to_stderr() {
    let logs = tracing_subscriber::fmt().with_writer(std::io::stderr);
    logs.with_env_filter(EnvFilter::new(LOG_FILTER)).init();
}
