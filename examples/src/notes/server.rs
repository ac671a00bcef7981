//! The MCP server: our tools and a plain one in the same listing.

use std::error::Error;

use idempotent_tool::{
    Caller, SqliteStore, Toolbox,
    mcp::{Adapter, Unidentified},
};
use rmcp::{
    ErrorData, Json, RoleServer, ServerHandler, ServiceExt,
    handler::server::router::tool::ToolRouter, service::RequestContext, tool, tool_handler,
    tool_router,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::support::{
    http::{self, Endpoint},
    tokens::Permissions,
};

/// A server of notes.
#[derive(Debug, Clone)]
pub struct Notes {
    store: SqliteStore,
    identity: Identity,
    router: ToolRouter<Self>,
}

/// Where the caller of a request is known from.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Identity {
    /// Standard input authenticates nobody: whoever started the process is the caller.
    Fixed(Caller),
    /// The HTTP layer has authenticated the request, and left the caller in it.
    Request,
}

impl Identity {
    /// The caller of the request that `context` belongs to.
    ///
    /// # Errors
    ///
    /// When nobody has authenticated it.
    pub fn caller(&self, context: &RequestContext<RoleServer>) -> Result<Caller, Unidentified> {
        match self {
            Self::Fixed(caller) => Ok(caller.clone()),
            Self::Request => http::caller(context),
        }
    }
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
    /// A server of `tools` and of the notes in `store` to the callers of `identity`.
    ///
    /// # Errors
    ///
    /// When both define a tool of the same name.
    pub fn new(
        store: SqliteStore,
        tools: Toolbox,
        identity: Identity,
    ) -> Result<Self, Box<dyn Error>> {
        let callers = identity.clone();
        let adapter = Adapter::new(tools, move |context| {
            std::future::ready(callers.caller(&context))
        });
        Ok(Self {
            store,
            identity,
            router: adapter.merge(Self::tool_router())?,
        })
    }

    /// List the caller's notes: returns the id and the body of each, pinned ones first.
    #[tool(annotations(title = "List notes", read_only_hint = true, open_world_hint = false))]
    async fn list_notes(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<Json<NoteList>, ErrorData> {
        let caller = self
            .identity
            .caller(&context)
            .map_err(|error| ErrorData::invalid_request(error.to_string(), None))?;
        let permissions = caller.get::<Permissions>();
        if permissions.is_some_and(|permissions| !permissions.allow("list_notes")) {
            let message = "this caller may not call `list_notes`";
            return Err(ErrorData::invalid_request(message, None));
        }
        let (store, scope) = (self.store.clone(), caller.scope().to_string());
        let listed = tokio::task::spawn_blocking(move || list(&store, &scope)).await;
        match listed {
            Ok(Ok(notes)) => Ok(Json(NoteList { notes })),
            // What went wrong in the database is no business of the caller's.
            Ok(Err(_)) | Err(_) => Err(ErrorData::internal_error("the notes can't be read", None)),
        }
    }
}

#[tool_handler(router = self.router, name = "notes", version = "0.1.0")]
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
    let server = Notes::new(store, tools, Identity::Fixed(caller))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let running = server.serve(rmcp::transport::stdio()).await?;
        running.waiting().await?;
        Ok(())
    })
}

/// Serves MCP over HTTP to the callers of `endpoint` until the process is told to end.
///
/// # Errors
///
/// When the tools can't be merged, or the server can't start.
pub fn serve_http(
    store: SqliteStore,
    tools: Toolbox,
    endpoint: Endpoint,
) -> Result<(), Box<dyn Error>> {
    // The last handles of the store go with it: what has begun is committed then.
    let server = Notes::new(store, tools, Identity::Request)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(http::serve(server, endpoint))
}
