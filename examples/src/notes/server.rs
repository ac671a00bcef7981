//! The MCP server: our tools and a plain one in the same listing.

use std::error::Error;

use idempotent_tool::{Caller, SqliteStore, Toolbox, mcp::Adapter};
use rmcp::{
    ErrorData, Json, ServerHandler, ServiceExt, handler::server::router::tool::ToolRouter, tool,
    tool_handler, tool_router,
};
use schemars::JsonSchema;
use serde::Serialize;

/// A server of notes to one caller.
#[derive(Debug)]
pub struct Notes {
    store: SqliteStore,
    caller: Caller,
    router: ToolRouter<Self>,
}

/// What `list_notes` returns.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NoteList {
    /// The caller's notes, pinned ones first, then the newest.
    notes: Vec<ListedNote>,
}

/// A note in the list.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ListedNote {
    note_id: String,
    body: String,
    pinned: bool,
}

#[tool_router]
impl Notes {
    /// A server of `tools` and of the notes in `store` to `caller`.
    ///
    /// # Errors
    ///
    /// When both define a tool of the same name.
    pub fn new(store: SqliteStore, tools: Toolbox, caller: Caller) -> Result<Self, Box<dyn Error>> {
        let adapter = Adapter::for_caller(tools, caller.clone());
        Ok(Self {
            store,
            caller,
            router: adapter.merge(Self::tool_router())?,
        })
    }

    /// List the caller's notes.
    #[tool(annotations(title = "List notes", read_only_hint = true, open_world_hint = false))]
    async fn list_notes(&self) -> Result<Json<NoteList>, ErrorData> {
        let (store, scope) = (self.store.clone(), self.caller.scope().to_string());
        let listed = tokio::task::spawn_blocking(move || list(&store, &scope)).await;
        match listed {
            Ok(Ok(notes)) => Ok(Json(NoteList { notes })),
            // What went wrong in the database is no business of the caller's.
            Ok(Err(_)) | Err(_) => Err(ErrorData::internal_error("the notes can't be read", None)),
        }
    }
}

#[tool_handler(router = self.router)]
impl ServerHandler for Notes {}

fn list(store: &SqliteStore, scope: &str) -> Result<Vec<ListedNote>, Box<dyn Error + Send + Sync>> {
    let notes =
        store.read(|connection| {
            connection
            .prepare_cached(
                "SELECT id, body, pinned FROM notes WHERE scope = ?1 ORDER BY pinned DESC, id DESC",
            )?
            .query_map([scope], |row| {
                Ok(ListedNote { note_id: row.get(0)?, body: row.get(1)?, pinned: row.get(2)? })
            })?
            .collect()
        })?;
    Ok(notes)
}

/// Serves MCP on standard input and output until the client closes it.
///
/// # Errors
///
/// When the tools can't be merged, or the client breaks the protocol.
pub fn serve_stdio(
    store: SqliteStore,
    tools: Toolbox,
    caller: Caller,
) -> Result<(), Box<dyn Error>> {
    let server = Notes::new(store, tools, caller)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let running = server.serve(rmcp::transport::stdio()).await?;
        running.waiting().await?;
        Ok(())
    })
}
