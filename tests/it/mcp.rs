//! The MCP adapter on the wire: raw JSON lines, for every version of the protocol.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
    mpsc::{Receiver, Sender, channel},
};

use idempotent_tool::{
    Failure, Toolbox, Tx, idempotent_tool,
    mcp::{Adapter, DuplicateTools, Unidentified},
};
use rmcp::{
    ServerHandler, ServiceExt, handler::server::router::tool::ToolRouter, tool, tool_handler,
    tool_router,
};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};

use crate::{
    common::{Ledger, ada, caller, key, marked},
    conversation::create_note,
};

pub(crate) const NEWEST: &str = "2026-07-28";
const OLDER: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// An application with a plain tool of its own.
struct Application {
    word: &'static str,
    router: ToolRouter<Self>,
}

#[tool_router]
impl Application {
    /// Count the letters of the word.
    #[tool]
    #[allow(clippy::unused_self, reason = "the SDK's tools take it")]
    fn count_letters(&self) -> String {
        self.word.len().to_string()
    }
}

#[tool_handler(router = self.router)]
impl ServerHandler for Application {}

pub(crate) fn tools(ledger: &Ledger) -> Toolbox {
    Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<create_note>()
        .build()
        .unwrap()
}

/// A client that writes and reads lines.
pub(crate) struct Wire {
    version: &'static str,
    last_id: u64,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
}

impl Wire {
    /// Connects to a server of its own; `version` decides how.
    pub(crate) async fn connect(adapter: &Adapter, version: &'static str) -> Self {
        let application = Application {
            word: "notes",
            router: adapter.merge(Application::tool_router()).unwrap(),
        };
        Self::to(application, version).await
    }

    /// Connects to this server.
    pub(crate) async fn to(server: impl ServerHandler, version: &'static str) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        tokio::spawn(async move {
            let (reader, writer) = tokio::io::split(theirs);
            let server = server.serve((reader, writer)).await.unwrap();
            server.waiting().await.unwrap();
        });
        let (reader, writer) = tokio::io::split(ours);
        let mut wire = Self {
            version,
            last_id: 0,
            lines: BufReader::new(reader).lines(),
            writer,
        };
        if version == NEWEST {
            let discovered = wire.request("server/discover", json!({})).await;
            let versions = discovered["result"]["supportedVersions"]
                .as_array()
                .unwrap();
            assert!(versions.contains(&json!(NEWEST)), "{discovered}");
        } else {
            // Clients that negotiate declare extensions, whichever protocol comes out of it.
            let hello = json!({
                "protocolVersion": version,
                "capabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
                "clientInfo": { "name": "wire", "version": "1" },
            });
            let welcome = wire.request("initialize", hello).await;
            assert_eq!(welcome["result"]["protocolVersion"], version, "{welcome}");
            assert!(
                welcome["result"]["capabilities"]["tools"].is_object(),
                "{welcome}"
            );
            wire.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
                .await;
        }
        wire
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.writer
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }

    /// Sends a request without waiting for its response; returns its id.
    pub(crate) async fn begin(&mut self, method: &str, mut params: Value) -> u64 {
        self.last_id += 1;
        if self.version == NEWEST {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!(NEWEST);
            let capabilities = &mut meta["io.modelcontextprotocol/clientCapabilities"];
            if capabilities.is_null() {
                *capabilities = json!({});
            }
            meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "wire", "version": "1" });
        }
        self.send(&json!({
            "jsonrpc": "2.0",
            "id": self.last_id,
            "method": method,
            "params": params,
        }))
        .await;
        self.last_id
    }

    pub(crate) async fn response(&mut self) -> Value {
        let line = self.lines.next_line().await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params).await;
        let response = self.response().await;
        assert_eq!(response["id"], id, "{response}");
        response
    }

    /// The whole result of a tool's call.
    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        let response = self.request("tools/call", params).await;
        assert!(response.get("error").is_none(), "{response}");
        response["result"].clone()
    }

    /// The reply of one of our tools, after the checks that hold for all of them.
    async fn reply(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments).await;
        let reply = result["structuredContent"].clone();
        let texts = result["content"].as_array().unwrap();
        assert_eq!(texts.len(), 2, "{result}");
        assert!(texts.iter().all(|text| text["type"] == "text"), "{result}");
        let text: Value = serde_json::from_str(texts[0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, reply);
        assert!(
            texts[1]["text"].as_str().unwrap().ends_with('.'),
            "{result}"
        );
        let is_error = !matches!(reply["status"].as_str(), Some("succeeded"));
        assert_eq!(result["isError"], is_error, "{result}");
        let result_type = if self.version == NEWEST {
            json!("complete")
        } else {
            json!(null)
        };
        assert_eq!(result["resultType"], result_type, "{result}");
        reply
    }
}

fn note(name: &str, body: &str) -> Value {
    json!({ "idempotency_key": key(name), "body": marked(body) })
}

#[tokio::test]
async fn every_version_lists_and_calls_both_kinds_of_tools() {
    for version in OLDER.into_iter().chain([NEWEST]) {
        let ledger = Ledger::new();
        let adapter = Adapter::for_caller(tools(&ledger), ada());
        let mut wire = Wire::connect(&adapter, version).await;

        let listing = wire.request("tools/list", json!({})).await;
        let listed = listing["result"]["tools"].as_array().unwrap();
        let names: Vec<_> = listed
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["count_letters", "create_note"], "{version}");
        assert_eq!(
            listed[1]["annotations"],
            json!({
                "readOnlyHint": false,
                "destructiveHint": true,
                "idempotentHint": true,
                "openWorldHint": false,
            })
        );
        assert_eq!(listed[1]["inputSchema"]["type"], "object");
        assert_eq!(listed[1]["outputSchema"]["type"], "object");

        let first = wire.reply("create_note", note("wire", "milk")).await;
        assert_eq!(first["status"], "succeeded", "{first}");
        assert_eq!(first["replayed"], false);
        let mut replay = wire.reply("create_note", note("wire", "milk")).await;
        assert_eq!(replay["replayed"], true);
        replay["replayed"] = json!(false);
        assert_eq!(replay, first);
        let conflict = wire.reply("create_note", note("wire", "bread")).await;
        assert_eq!(conflict["error"]["code"], "payload_conflict");
        let invalid = wire
            .reply("create_note", json!({ "idempotency_key": key("x") }))
            .await;
        assert_eq!(invalid["error"]["code"], "invalid_arguments");

        let plain = wire.call("count_letters", json!({})).await;
        assert_eq!(plain["content"][0]["text"], "5");
        assert_eq!(ledger.rows(), (1, 1), "{version}");
    }
}

#[tokio::test]
async fn a_call_without_arguments_reaches_us_and_an_unknown_tool_does_not() {
    let ledger = Ledger::new();
    let adapter = Adapter::for_caller(tools(&ledger), ada());
    let mut wire = Wire::connect(&adapter, NEWEST).await;
    let response = wire
        .request("tools/call", json!({ "name": "create_note" }))
        .await;
    assert_eq!(
        response["result"]["structuredContent"]["error"]["code"],
        "invalid_key"
    );
    let unknown = wire
        .request("tools/call", json!({ "name": "no_such_tool" }))
        .await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
}

#[tokio::test]
async fn an_unidentified_request_touches_nothing() {
    let ledger = Ledger::new();
    for (unidentified, retryable) in [
        (Unidentified::Refused, false),
        (Unidentified::Unavailable, true),
    ] {
        let adapter = Adapter::new(tools(&ledger), move |_| async move { Err(unidentified) });
        let mut wire = Wire::connect(&adapter, NEWEST).await;
        let reply = wire.reply("create_note", note("nobody", "milk")).await;
        assert_eq!(reply["error"]["code"], "denied", "{reply}");
        assert_eq!(reply["retryable"], retryable, "{reply}");
        assert_eq!(ledger.rows(), (0, 0));
    }
}

#[tokio::test]
async fn the_caller_is_resolved_for_every_request() {
    let ledger = Ledger::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let adapter = Adapter::new(tools(&ledger), move |_| {
        let principal = ["ada", "bob"][counted.fetch_add(1, Ordering::SeqCst) % 2];
        async move { Ok(caller(principal)) }
    });
    let mut wire = Wire::connect(&adapter, "2025-11-25").await;
    let hers = wire.reply("create_note", note("shared", "milk")).await;
    let his = wire.reply("create_note", note("shared", "milk")).await;
    let hers_again = wire.reply("create_note", note("shared", "milk")).await;
    assert_eq!(his["replayed"], false, "{his}");
    assert_eq!(hers_again["replayed"], true);
    assert_eq!(hers_again["operation_id"], hers["operation_id"]);
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    assert_eq!(ledger.rows(), (2, 2));
}

#[test]
fn a_tool_that_both_define_is_an_error() {
    /// Count the letters of a word.
    #[idempotent_tool(operation = "count_letters:v1")]
    fn count_letters(_tx: &Tx) -> Result<u8, Failure> {
        Ok(5)
    }

    let ledger = Ledger::new();
    let tools = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<create_note>()
        .tool::<count_letters>()
        .build()
        .unwrap();
    let error: DuplicateTools = Adapter::for_caller(tools, ada())
        .merge(Application::tool_router())
        .map(drop)
        .unwrap_err();
    assert_eq!(error.names, ["count_letters"]);
    assert_eq!(
        error.to_string(),
        "the toolbox and the application both define `count_letters`; rename one of each pair"
    );
}

/// Tells a test that a handler runs, and lets it return when the test says so.
struct Gate {
    entered: Sender<()>,
    release: Receiver<()>,
}

/// Wait at the gate, then create a note.
#[idempotent_tool(operation = "slow_note:v1")]
fn slow_note(
    tx: &Tx,
    body: String,
    #[state] gate: &std::sync::Mutex<Gate>,
) -> Result<i64, Failure> {
    let gate = gate.lock().unwrap();
    gate.entered.send(()).unwrap();
    gate.release.recv().unwrap();
    create_note(tx, body)
}

/// A cancelled request whose call waits is dropped whole; one whose call runs commits.
#[tokio::test]
async fn cancelling_drops_what_waits_and_keeps_what_runs() {
    let ledger = Ledger::new();
    let ((entered, has_entered), (release, released)) = (channel(), channel());
    let tools = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .state(std::sync::Mutex::new(Gate {
            entered,
            release: released,
        }))
        .tool::<create_note>()
        .tool::<slow_note>()
        .build()
        .unwrap();
    let adapter = Adapter::for_caller(tools, ada());
    let mut wire = Wire::connect(&adapter, "2025-11-25").await;
    let cancel = |id: u64| {
        json!({
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": { "requestId": id },
        })
    };

    let slow = json!({ "name": "slow_note", "arguments": note("slow", "milk") });
    let running = wire.begin("tools/call", slow).await;
    tokio::task::spawn_blocking(move || has_entered.recv())
        .await
        .unwrap()
        .unwrap();
    let quick = json!({ "name": "create_note", "arguments": note("quick", "bread") });
    let waiting = wire.begin("tools/call", quick).await;
    wire.send(&cancel(waiting)).await;
    wire.send(&cancel(running)).await;
    // Answered in order, by the same thread: both cancellations are through.
    wire.request("ping", json!({})).await;
    release.send(()).unwrap();

    // The running call was not stopped: its key is taken. The waiting one never ran.
    let replay = wire.reply("slow_note", note("slow", "milk")).await;
    assert_eq!(replay["replayed"], true, "{replay}");
    assert_eq!(ledger.rows(), (1, 1));
    let first = wire.reply("create_note", note("quick", "bread")).await;
    assert_eq!(first["replayed"], false, "{first}");
}
