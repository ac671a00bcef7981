//! A client of an MCP server in a process of its own, which can be killed at any time.

use std::{collections::HashMap, process::Stdio, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, Command},
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{Instant, sleep, timeout},
};

use super::{
    Outcome,
    report::{expect, text},
};

/// Longer than any wait of a demonstration; what takes longer has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How often an operation is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// A server process and the connection to it. It is killed when this is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    input: ChildStdin,
    output: UnboundedReceiver<String>,
    errors: UnboundedReceiver<String>,
    answered: HashMap<u64, Value>,
    next_id: u64,
}

impl Server {
    /// Starts the server and shakes hands.
    ///
    /// # Errors
    ///
    /// When it can't be started, or does not speak MCP.
    pub async fn start(mut command: Command) -> Outcome<Self> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let input = child.stdin.take().ok_or("the server has no input")?;
        let output = child.stdout.take().ok_or("the server has no output")?;
        let errors = child
            .stderr
            .take()
            .ok_or("the server has no error output")?;
        let mut server = Self {
            child,
            input,
            output: lines(output),
            errors: lines(errors),
            answered: HashMap::new(),
            next_id: 0,
        };
        let id = server
            .request(
                "initialize",
                &json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": { "name": "demonstration", "version": "1" },
                }),
            )
            .await?;
        server.response(id).await?;
        server
            .write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
            .await?;
        Ok(server)
    }

    /// Sends a call and does not wait for its reply; [`receive`](Self::receive) does.
    ///
    /// # Errors
    ///
    /// When the server is gone.
    pub async fn send(&mut self, tool: &str, arguments: &Value) -> Outcome<u64> {
        let parameters = json!({ "name": tool, "arguments": arguments });
        self.request("tools/call", &parameters).await
    }

    /// The reply to a call that was sent.
    ///
    /// # Errors
    ///
    /// When the server is gone, takes too long, or answers with an error of the protocol.
    pub async fn receive(&mut self, id: u64) -> Outcome<Value> {
        let response = self.response(id).await?;
        let reply = &response["result"]["structuredContent"];
        if reply.is_object() {
            return Ok(reply.clone());
        }
        Err(format!("expected a reply, got {response}").into())
    }

    /// Makes a call.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send) and [`receive`](Self::receive).
    pub async fn call(&mut self, tool: &str, arguments: &Value) -> Outcome<Value> {
        let id = self.send(tool, arguments).await?;
        self.receive(id).await
    }

    /// Looks at an operation.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    pub async fn look(&mut self, operation_id: &str) -> Outcome<Value> {
        let arguments = json!({ "operation_id": operation_id });
        self.call("get_operation", &arguments).await
    }

    /// Looks at an operation until `done` with it.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call), and when it takes too long.
    pub async fn follow(
        &mut self,
        operation_id: &str,
        done: impl Fn(&Value) -> bool,
    ) -> Outcome<Value> {
        let until = Instant::now() + PATIENCE;
        loop {
            let reply = self.look(operation_id).await?;
            if done(&reply) {
                return Ok(reply);
            }
            if until < Instant::now() {
                return Err(format!("the operation stays as it is: {reply}").into());
            }
            sleep(LOOK).await;
        }
    }

    /// What an agent does after a lost answer: the same call again, then look until the
    /// operation is settled or a person is needed.
    ///
    /// # Errors
    ///
    /// As [`follow`](Self::follow).
    pub async fn recover(&mut self, tool: &str, arguments: &Value) -> Outcome<Value> {
        let reply = self.call(tool, arguments).await?;
        let id = text(&reply, "operation_id").to_owned();
        let reply = self.follow(&id, |reply| !is_under_way(reply)).await?;
        // The call's own time may be over by now: then it takes the same key once more.
        if reply["retryable"] == true {
            self.call(tool, arguments).await?;
        }
        let settled = |reply: &Value| !is_under_way(reply) && reply["retryable"] != true;
        self.follow(&id, settled).await
    }

    /// Waits until the server has written `text` to its error output.
    ///
    /// # Errors
    ///
    /// When it ends without, or takes too long.
    pub async fn says(&mut self, text: &str) -> Outcome {
        loop {
            let line = timeout(PATIENCE, self.errors.recv()).await?;
            let line = line.ok_or_else(|| format!("the server ended and did not say `{text}`"))?;
            if line.contains(text) {
                return Ok(());
            }
        }
    }

    /// Kills the server as an operating system does: nothing is unwound or flushed.
    ///
    /// # Errors
    ///
    /// When it had ended before.
    pub async fn kill(mut self) -> Outcome {
        self.child.start_kill()?;
        let status = self.child.wait().await?;
        // Whoever ends by a signal has no exit code.
        expect(status.code().is_none(), "a killed server", &status)
    }

    async fn request(&mut self, method: &str, parameters: &Value) -> Outcome<u64> {
        let id = self.next_id;
        self.next_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": parameters });
        self.write(&request).await?;
        Ok(id)
    }

    async fn write(&mut self, message: &Value) -> Outcome {
        let line = format!("{message}\n");
        self.input.write_all(line.as_bytes()).await?;
        Ok(self.input.flush().await?)
    }

    async fn response(&mut self, id: u64) -> Outcome<Value> {
        loop {
            if let Some(response) = self.answered.remove(&id) {
                return Ok(response);
            }
            let line = timeout(PATIENCE, self.output.recv()).await?;
            let line = line.ok_or("the server ended and did not answer")?;
            let message: Value = serde_json::from_str(&line)?;
            if let Some(answered) = message["id"].as_u64() {
                self.answered.insert(answered, message);
            }
        }
    }
}

/// Whether nothing is settled yet, by the reply's own word.
#[must_use]
pub fn is_under_way(reply: &Value) -> bool {
    matches!(
        text(reply, "status"),
        "accepted" | "running" | "cancel_requested"
    )
}

fn lines(output: impl AsyncRead + Send + Unpin + 'static) -> UnboundedReceiver<String> {
    let (sender, receiver) = unbounded_channel();
    tokio::spawn(async move {
        let mut lines = BufReader::new(output).lines();
        // A read that fails ends the output as its end does.
        while let Ok(Some(line)) = lines.next_line().await {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
