//! External operations over MCP: handles, progress, and tasks for clients that know them.

use idempotent_tool::{Toolbox, mcp::Adapter};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::router::tool::ToolRouter,
    model::{CancelTaskParams, GetTaskParams, GetTaskResult, ServerCapabilities, ServerConfig},
    service::RequestContext,
    tool_handler,
};
use serde_json::{Value, json};

use crate::{
    common::{ada, caller},
    mcp::{NEWEST, Wire},
    pace::drive,
    provider::{BY_HAND, BY_KEY, Lab, Takes, arguments},
};

/// An application that advertises tasks, and forwards them.
struct Tasks {
    adapter: Adapter,
    router: ToolRouter<Self>,
}

#[tool_handler(router = self.router)]
impl ServerHandler for Tasks {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tasks();
        ServerConfig::new(capabilities.build())
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

async fn connect(lab: &Lab, tools: &Toolbox, principal: &str) -> Wire {
    connect_on(lab, tools, principal, NEWEST).await
}

async fn connect_on(lab: &Lab, tools: &Toolbox, principal: &str, version: &'static str) -> Wire {
    let adapter = Adapter::for_caller(tools.clone(), caller(principal)).with_tasks();
    let router = adapter.merge(ToolRouter::new()).unwrap();
    let mut wire = Wire::to(Tasks { adapter, router }, version).await;
    // With its first request the server has all tasks that it ever has.
    wire.request("tools/list", json!({})).await;
    lab.ledger.clock.excuse_others().await;
    wire
}

/// Adds the declaration of the extension to a request's parameters.
fn declaring(mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
        json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    params
}

fn call(tool: &str, name: &str) -> Value {
    json!({ "name": tool, "arguments": arguments(name) })
}

/// The result of a request, while the lab's time passes.
async fn result(lab: &Lab, wire: &mut Wire, method: &str, params: Value) -> Value {
    let clock = &lab.ledger.clock;
    let response = drive(clock, clock.elsewhere(wire.request(method, params))).await;
    assert!(response.get("error").is_none(), "{response}");
    response["result"].clone()
}

async fn get(lab: &Lab, wire: &mut Wire, task: &Value) -> Value {
    let params = declaring(json!({ "taskId": task["taskId"] }));
    result(lab, wire, "tasks/get", params).await
}

/// What becomes of a task, while the lab's time passes.
async fn ended(lab: &Lab, wire: &mut Wire, task: &Value) -> Value {
    loop {
        let task = get(lab, wire, task).await;
        if task["status"] != "working" {
            return task;
        }
        lab.pass(std::time::Duration::from_millis(250)).await;
    }
}

#[tokio::test]
async fn an_operation_that_still_runs_is_a_task_to_clients_that_know_tasks() {
    let lab = Lab::new([Takes::Waits]);
    let mut wire = connect(&lab, &lab.tools, "ada").await;
    let params = declaring(call(BY_KEY, "task"));
    let task = result(&lab, &mut wire, "tools/call", params.clone()).await;
    assert_eq!(task["resultType"], "task", "{task}");
    assert_eq!(task["status"], "working");
    assert_eq!(task["pollIntervalMs"], 1_000);
    assert_eq!(task["ttlMs"], json!(null));
    assert_eq!(get(&lab, &mut wire, &task).await["status"], "working");

    lab.provider.go_on.notify_one();
    let completed = ended(&lab, &mut wire, &task).await;
    assert_eq!(completed["status"], "completed", "{completed}");
    assert_eq!(completed["createdAt"], task["createdAt"]);
    assert!(completed["ttlMs"].as_u64().unwrap() > 0, "{completed}");
    let reply = &completed["result"]["structuredContent"];
    assert_eq!(reply["status"], "succeeded");
    assert_eq!(completed["result"]["isError"], false);
    // The tool's own reply: nothing that only `get_operation` tells.
    assert!(reply.get("attempts").is_none(), "{reply}");
    assert_eq!(lab.provider.deployments(), 1);

    // After a restart, and to another process: the state is in the ledger.
    let mut restarted = connect(&lab, &lab.second(), "ada").await;
    assert_eq!(get(&lab, &mut restarted, &task).await, completed);
}

#[tokio::test]
async fn a_client_that_knows_no_tasks_gets_the_handle() {
    let lab = Lab::new([Takes::Waits]);
    let mut wire = connect(&lab, &lab.tools, "ada").await;
    let handle = result(&lab, &mut wire, "tools/call", call(BY_KEY, "handle")).await;
    assert_eq!(handle["resultType"], "complete", "{handle}");
    assert_eq!(handle["isError"], false);
    assert_eq!(handle["structuredContent"]["status"], "running");
    // Its operation is a task to one that does.
    lab.provider.go_on.notify_one();
    let id = &handle["structuredContent"]["operation_id"];
    let completed = ended(&lab, &mut wire, &json!({ "taskId": id })).await;
    assert_eq!(completed["status"], "completed", "{completed}");
    let reply = &completed["result"]["structuredContent"];
    assert_eq!(&reply["operation_id"], id);
}

#[tokio::test]
async fn a_session_of_an_older_protocol_has_no_tasks_whatever_it_declares() {
    let lab = Lab::new([Takes::Waits]);
    let mut wire = connect_on(&lab, &lab.tools, "ada", "2025-11-25").await;
    let handle = result(&lab, &mut wire, "tools/call", call(BY_KEY, "older")).await;
    assert_eq!(handle["structuredContent"]["status"], "running", "{handle}");
    lab.provider.go_on.notify_one();
}

#[tokio::test]
async fn a_task_belongs_to_the_scope_of_its_operation() {
    let lab = Lab::new([Takes::Waits]);
    let mut hers = connect(&lab, &lab.tools, "ada").await;
    let params = declaring(call(BY_KEY, "mine"));
    let task = result(&lab, &mut hers, "tools/call", params).await;
    let mut eves = connect(&lab, &lab.tools, "eve").await;
    for id in [task["taskId"].as_str().unwrap(), "op_42", ""] {
        for method in ["tasks/get", "tasks/cancel"] {
            let params = declaring(json!({ "taskId": id }));
            let response = eves.request(method, params).await;
            assert_eq!(response["error"]["code"], -32602, "{response}");
            assert_eq!(response["error"]["message"], "there is no such task");
        }
    }
    // Whoever doesn't declare the extension has no tasks.
    let response = hers
        .request("tasks/get", json!({ "taskId": task["taskId"] }))
        .await;
    assert_eq!(response["error"]["code"], -32021, "{response}");
    assert_eq!(get(&lab, &mut hers, &task).await["status"], "working");
    lab.provider.go_on.notify_one();
    ended(&lab, &mut hers, &task).await;
}

#[tokio::test]
async fn an_unknown_outcome_completes_a_task_as_an_error() {
    let lab = Lab::new([Takes::AppliesAndHangs]);
    let mut wire = connect(&lab, &lab.tools, "ada").await;
    let params = declaring(call(BY_HAND, "unknown"));
    let task = result(&lab, &mut wire, "tools/call", params).await;
    assert_eq!(task["resultType"], "task", "{task}");
    let completed = ended(&lab, &mut wire, &task).await;
    assert_eq!(completed["status"], "completed", "{completed}");
    assert_eq!(completed["result"]["isError"], true);
    let reply = &completed["result"]["structuredContent"];
    assert_eq!(reply["status"], "outcome_unknown", "{reply}");
    assert_eq!(
        reply["next_action"],
        "Look for the deployment in the provider's console"
    );
}

#[tokio::test]
async fn a_cancelled_task_is_a_cancelled_operation() {
    let lab = Lab::new([Takes::AsksToWait(std::time::Duration::from_secs(20))]);
    let mut wire = connect(&lab, &lab.tools, "ada").await;
    let params = declaring(call(BY_HAND, "cancelled"));
    let task = result(&lab, &mut wire, "tools/call", params).await;
    assert_eq!(task["resultType"], "task", "{task}");
    let cancel = declaring(json!({ "taskId": task["taskId"] }));
    result(&lab, &mut wire, "tasks/cancel", cancel.clone()).await;
    let ended = ended(&lab, &mut wire, &task).await;
    assert_eq!(ended["status"], "cancelled", "{ended}");
    // Cancelling what has ended is no failure.
    result(&lab, &mut wire, "tasks/cancel", cancel).await;
    assert_eq!(lab.provider.deployments(), 0);
}

#[tokio::test]
async fn cancelling_the_request_cancels_no_operation_and_cancel_operation_does() {
    let lab = Lab::new([Takes::AsksToWait(std::time::Duration::from_secs(20))]);
    let adapter = Adapter::for_caller(lab.tools.clone(), ada());
    let mut wire = Wire::connect(&adapter, "2025-11-25").await;
    lab.ledger.clock.excuse_others().await;
    let id = wire.begin("tools/call", call(BY_HAND, "request")).await;
    lab.provider.arrived.notified().await;
    wire.send(&json!({
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": { "requestId": id },
    }))
    .await;
    wire.request("ping", json!({})).await;

    // It goes on without the request: the same key finds it.
    let handle = result(&lab, &mut wire, "tools/call", call(BY_HAND, "request")).await;
    let reply = &handle["structuredContent"];
    assert_eq!(reply["status"], "running", "{reply}");
    let asked = json!({ "operation_id": reply["operation_id"] });
    let asked = |tool: &str| json!({ "name": tool, "arguments": asked });
    let state = result(&lab, &mut wire, "tools/call", asked("get_operation")).await;
    assert_eq!(state["structuredContent"]["status"], "running", "{state}");
    assert_eq!(
        state["structuredContent"]["attempts"][0]["outcome"],
        "not_applied"
    );
    let cancelled = result(&lab, &mut wire, "tools/call", asked("cancel_operation")).await;
    assert_eq!(cancelled["structuredContent"]["status"], "cancelled");
    assert_eq!(cancelled["isError"], false);
    assert_eq!(lab.provider.deployments(), 0);
}

#[tokio::test]
async fn a_client_that_waits_hears_of_progress_if_it_asked() {
    for version in [NEWEST, "2025-11-25"] {
        let lab = Lab::new([Takes::Waits]);
        let adapter = Adapter::for_caller(lab.tools.clone(), ada());
        let mut wire = Wire::connect(&adapter, version).await;
        let mut params = call(BY_KEY, "progress");
        params["_meta"] = json!({ "progressToken": "news" });
        let id = wire.begin("tools/call", params).await;
        // The lab's clock stands still, so the wait doesn't end by itself.
        for expected in [1.0, 2.0] {
            let news = wire.response().await;
            assert_eq!(news["method"], "notifications/progress", "{news}");
            assert_eq!(news["params"]["progressToken"], "news");
            assert_eq!(news["params"]["progress"].as_f64(), Some(expected));
        }
        lab.provider.go_on.notify_one();
        let response = loop {
            let message = wire.response().await;
            if message.get("method").is_none() {
                break message;
            }
        };
        assert_eq!(response["id"], id, "{response}");
        assert_eq!(
            response["result"]["structuredContent"]["status"],
            "succeeded"
        );
    }
}
