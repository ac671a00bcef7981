//! A server that has nothing but a toolbox's tools.

use idempotent_tool::mcp::{Adapter, DuplicateTools};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::router::tool::ToolRouter,
    model::{
        CancelTaskParams, GetTaskParams, GetTaskResult, Implementation, ServerCapabilities,
        ServerConfig,
    },
    service::RequestContext,
    tool_handler,
};

/// Serves the tools of an adapter, with tasks to the clients that know them.
#[derive(Debug, Clone)]
pub struct ToolServer {
    name: &'static str,
    adapter: Adapter,
    router: ToolRouter<Self>,
}

impl ToolServer {
    /// A server of this name.
    ///
    /// # Errors
    ///
    /// Never: there are no other tools whose names could collide.
    pub fn new(name: &'static str, adapter: Adapter) -> Result<Self, DuplicateTools> {
        let adapter = adapter.with_tasks();
        let router = adapter.merge(ToolRouter::new())?;
        Ok(Self {
            name,
            adapter,
            router,
        })
    }
}

#[tool_handler(router = self.router)]
impl ServerHandler for ToolServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tasks();
        let server = Implementation::new(self.name, env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities.build()).with_server_info(server)
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.adapter.get_task(request, context).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.adapter.cancel_task(request, context).await
    }
}
