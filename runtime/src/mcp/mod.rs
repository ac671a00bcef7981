//! The adapter for the Model Context Protocol, on the `rmcp` SDK (feature `rmcp`).
//!
//! It makes a toolbox's tools routes of the application's own [`ToolRouter`], so that one
//! server lists and serves both, and the SDK keeps everything else of the protocol.
//!
//! The SDK logs whole requests and replies, arguments and results included, at level
//! `debug`. Switch its target off (`rmcp=off` in an environment filter) where logs must
//! not hold them.
//!
//! ```
//! use idempotent_tool::{Caller, Scope, Toolbox, mcp::Adapter};
//! use rmcp::{ServerHandler, handler::server::router::tool::ToolRouter, tool_handler};
//!
//! struct Notes {
//!     router: ToolRouter<Self>,
//! }
//!
//! #[tool_handler(router = self.router)]
//! impl ServerHandler for Notes {}
//!
//! fn server(tools: Toolbox) -> Result<Notes, Box<dyn std::error::Error>> {
//!     // Standard input authenticates nobody: the identity is stated here, once.
//!     let caller = Caller::new(Scope::builder().account("local").build()?);
//!     // An application with tools of its own passes its `Self::tool_router()`.
//!     let router = Adapter::for_caller(tools, caller).merge(ToolRouter::new())?;
//!     Ok(Notes { router })
//! }
//! ```

mod identity;
mod progress;
mod tasks;
mod wire;

use std::{fmt, future, sync::Arc};

use http::request::Parts;

use rmcp::{
    ErrorData, RoleServer,
    handler::server::{
        router::tool::{ToolRoute, ToolRouter},
        tool::ToolCallContext,
    },
    model::CallToolResponse,
    service::RequestContext,
};
use serde_json::Value;

use crate::{
    reply::{Reply, rejection::Rejection},
    request::{caller::Caller, carrier::CarriedKeys},
    store::BoxFuture,
    toolbox::Toolbox,
};

type Identify = dyn Fn(RequestContext<RoleServer>) -> BoxFuture<'static, Result<Caller, Unidentified>>
    + Send
    + Sync;

/// The member of a request's `_meta` that carries the key, unless the application names
/// another.
const KEY_META: &str = "idempotent-tool/key";

/// The header that carries the key over HTTP.
const KEY_HEADER: &str = "idempotency-key";

/// A toolbox's tools as an MCP server serves them. Clones are cheap.
///
/// The key of a call is among its arguments, in the `idempotent-tool/key` member of the
/// request's `_meta`, or, over HTTP, in the `Idempotency-Key` header (a quoted string or a
/// bare token). Where several carry one, they must agree: otherwise the call is refused
/// with `invalid_key`.
///
/// A client that waits for an external operation and sent a progress token hears every
/// second that the operation is under way.
#[derive(Clone)]
pub struct Adapter {
    tools: Toolbox,
    identify: Arc<Identify>,
    key_meta: Arc<str>,
    tasks: bool,
}

/// Why a request has no caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unidentified {
    /// The request is not authenticated: the same one would be refused again.
    #[error("the request is not authenticated")]
    Refused,
    /// It can't be established now; the caller may ask again.
    #[error("the caller of the request can't be established now")]
    Unavailable,
}

/// Tools that both the toolbox and the application define.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the toolbox and the application both define {}; rename one of each pair",
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
)]
#[non_exhaustive]
pub struct DuplicateTools {
    /// Their names, sorted.
    pub names: Vec<String>,
}

impl Adapter {
    /// Serves `tools` to the callers that `identify` finds in the requests.
    ///
    /// `identify` reads what the transport has authenticated (for HTTP, the parts of the
    /// request in the context's extensions), never the arguments, a session id or the
    /// client's own words about itself. It is asked on every call; when it fails, the call
    /// is rejected with `denied` and nothing is touched. When it panics, or is not done by
    /// the tool's deadline (for an operation's state, the longest `wait` of the external
    /// tools), the call may be made again, and the log has an error.
    #[must_use]
    pub fn new<F, Fut>(tools: Toolbox, identify: F) -> Self
    where
        F: Fn(RequestContext<RoleServer>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Caller, Unidentified>> + Send + 'static,
    {
        Self {
            tools,
            identify: Arc::new(move |context| Box::pin(identify(context))),
            key_meta: KEY_META.into(),
            tasks: false,
        }
    }

    /// Names the member of a request's `_meta` that carries the key, instead of
    /// `idempotent-tool/key`.
    #[must_use]
    pub fn key_meta(mut self, name: impl Into<Arc<str>>) -> Self {
        self.key_meta = name.into();
        self
    }

    /// Serves `tools` to one fixed `caller`: for standard input and output, where whoever
    /// started the process is the caller.
    #[must_use]
    pub fn for_caller(tools: Toolbox, caller: Caller) -> Self {
        Self::new(tools, move |_| future::ready(Ok(caller.clone())))
    }

    /// The application's own routes and the toolbox's, for one listing.
    ///
    /// # Errors
    ///
    /// When both define a tool of the same name.
    pub fn merge<S: Send + Sync + 'static>(
        &self,
        mut own: ToolRouter<S>,
    ) -> Result<ToolRouter<S>, DuplicateTools> {
        let names: Vec<_> = self
            .tools
            .list()
            .filter(|tool| own.map.contains_key(tool.name.as_str()))
            .map(|tool| tool.name.clone())
            .collect();
        if !names.is_empty() {
            return Err(DuplicateTools { names });
        }
        for tool in self.tools.list() {
            let adapter = self.clone();
            own.add_route(ToolRoute::new_dyn(wire::listing(tool), move |context| {
                Box::pin(adapter.clone().serve(context))
            }));
        }
        Ok(own)
    }

    async fn serve<S>(
        self,
        context: ToolCallContext<'_, S>,
    ) -> Result<CallToolResponse, ErrorData> {
        let ToolCallContext {
            request_context,
            name,
            arguments,
            input_responses,
            request_state,
            ..
        } = context;
        if input_responses.is_some() || request_state.is_some() {
            // Nothing of ours asks for input, so there is nothing to continue.
            return Err(ErrorData::invalid_params(
                "an idempotent tool takes no continuation; send the call again without \
                 `inputResponses` and `requestState`, with the same idempotency key",
                None,
            ));
        }
        let cancelled = request_context.ct.clone();
        let arguments = Value::Object(arguments.unwrap_or_default());
        let answer = self.answer(request_context, &name, arguments);
        // A call that has not begun is dropped here; the SDK sends nothing.
        cancelled
            .run_until_cancelled(answer)
            .await
            .unwrap_or_else(|| Err(ErrorData::internal_error("the request was cancelled", None)))
    }

    async fn answer(
        &self,
        context: RequestContext<RoleServer>,
        tool: &str,
        arguments: Value,
    ) -> Result<CallToolResponse, ErrorData> {
        let keys = self.carried(&context);
        let is_external = self.tools.is_external(tool);
        let token = context
            .meta
            .get_progress_token()
            .filter(|_| is_external)
            .map(|token| (token, context.peer.clone()));
        // What a client declared for a whole session doesn't count: sessions belong to older
        // protocols, which don't have the extension.
        let may_be_task = self.tasks
            && is_external
            && context
                .meta
                .client_capabilities()
                .is_some_and(|declared| declared.supports_tasks());
        let caller = match self.caller(tool, context).await {
            Ok(caller) => caller,
            Err(unidentified) => {
                let rejection = match unidentified {
                    Unidentified::Refused => Rejection::Unauthenticated,
                    Unidentified::Unavailable => Rejection::AuthorizationUnavailable,
                };
                return wire::result(&Reply::rejected(tool, rejection)).map(Into::into);
            }
        };
        let call = self.tools.call_carrying(&caller, tool, arguments, keys);
        let reply = match token {
            Some((token, peer)) => progress::reported(&peer, token, call).await,
            None => call.await,
        };
        if may_be_task && let Some(task) = self.created_task(&caller, &reply).await {
            return Ok(CallToolResponse::Task(task));
        }
        wire::result(&reply).map(Into::into)
    }
}

impl Adapter {
    /// The keys that the request carries beside its arguments.
    fn carried(&self, context: &RequestContext<RoleServer>) -> CarriedKeys {
        let mut keys = CarriedKeys::none();
        if let Some(value) = context.meta.get(&*self.key_meta) {
            keys = keys.metadata(value);
        }
        if let Some(parts) = context.extensions.get::<Parts>() {
            for value in parts.headers.get_all(KEY_HEADER) {
                keys = keys.header(value.as_bytes());
            }
        }
        keys
    }
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapter")
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}
