//! An MCP server on standard input and output.

use std::time::Duration;

use idempotent_tool::{Caller, Toolbox, mcp::Adapter};
use rmcp::{ServerHandler, ServiceExt};

use super::{Outcome, tools::ToolServer};

/// How long attempts under way are waited for at the end; what is left is recovered by the
/// next start.
pub const SHUT_DOWN: Duration = Duration::from_secs(2);

/// Serves a toolbox over MCP until the client closes its end.
///
/// # Errors
///
/// When the client breaks the protocol.
pub async fn serve(name: &'static str, tools: Toolbox, caller: Caller) -> Outcome {
    let adapter = Adapter::for_caller(tools.clone(), caller);
    serve_handler(ToolServer::new(name, adapter)?, &tools).await
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
