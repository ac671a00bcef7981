//! The MCP server: our tools, and a plain one that only reads.

use idempotent_tool::{Caller, OperationId, Toolbox, mcp::Adapter};
use rmcp::{
    ErrorData, Json, ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    tool, tool_handler, tool_router,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    evidence::{End, Proven},
    tools::Terminal,
};
use crate::support::{Outcome, stdio};

/// The most that one reading returns.
const LONGEST_OUTPUT: u64 = 64 * 1024;

/// A server of sessions to one caller.
#[derive(Debug)]
struct Server {
    terminal: Terminal,
    caller: Caller,
    router: ToolRouter<Self>,
}

/// What to read.
#[derive(Debug, Deserialize, JsonSchema)]
struct Reading {
    /// The session that the command runs in.
    session_id: Uuid,
    /// The `operation_id` that `run_command` replied.
    operation_id: String,
    /// The byte to begin at; 0 if absent, or `next` of the reading before.
    #[serde(default)]
    from: u64,
}

/// What `read_output` returns.
#[derive(Debug, Serialize, JsonSchema)]
struct Written {
    /// What the command wrote, standard and error output together.
    output: String,
    /// Where the next reading begins.
    next: u64,
    /// What the command's evidence proves.
    state: CommandState,
    /// The exit code of a command that has ended by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
}

/// What the evidence proves.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CommandState {
    /// It was not started.
    NotStarted,
    /// It runs.
    Running,
    /// It was started, and whoever watched over it was killed: its end is not known.
    Abandoned,
    /// It has ended by itself.
    Ended,
    /// It was killed before its end.
    Killed,
}

#[tool_router]
impl Server {
    /// Read what a command has written so far, and whether it has ended. It changes nothing.
    #[tool(annotations(title = "Read output", read_only_hint = true, open_world_hint = false))]
    async fn read_output(
        &self,
        Parameters(reading): Parameters<Reading>,
    ) -> Result<Json<Written>, ErrorData> {
        let unknown = || ErrorData::invalid_params("there is no such command in the session", None);
        // What went wrong on the disk is no business of the caller's.
        let failed = |_| ErrorData::internal_error("the output can't be read", None);
        let operation_id: OperationId = reading.operation_id.parse().map_err(|_| unknown())?;
        let scope = self.caller.scope().as_str();
        let known = self.terminal.knows(reading.session_id, scope).await;
        if !known.map_err(failed)? {
            return Err(unknown());
        }
        let evidence = self.terminal.evidence(reading.session_id, operation_id);
        // The state first: what an ended command wrote is then whole.
        let proven = evidence.read().map_err(failed)?;
        let (bytes, next) = evidence
            .read_output(reading.from, LONGEST_OUTPUT)
            .map_err(failed)?;
        let (state, exit_code) = match proven {
            Proven::NotStarted => (CommandState::NotStarted, None),
            Proven::Running => (CommandState::Running, None),
            Proven::Abandoned => (CommandState::Abandoned, None),
            Proven::Ended(End::ExitCode(code)) => (CommandState::Ended, Some(code)),
            Proven::Ended(End::Signal(_)) => (CommandState::Killed, None),
        };
        Ok(Json(Written {
            output: String::from_utf8_lossy(&bytes).into_owned(),
            next,
            state,
            exit_code,
        }))
    }
}

#[tool_handler(router = self.router)]
impl ServerHandler for Server {}

/// Serves MCP on standard input and output until the client closes it.
///
/// # Errors
///
/// When the tools can't be merged, or the client breaks the protocol.
pub async fn serve(terminal: Terminal, tools: Toolbox, caller: Caller) -> Outcome {
    let adapter = Adapter::for_caller(tools.clone(), caller.clone());
    let server = Server {
        terminal,
        caller,
        router: adapter.merge(Server::tool_router())?,
    };
    stdio::serve_handler(server, &tools).await
}
