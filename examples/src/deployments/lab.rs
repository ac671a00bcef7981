//! Real processes for the demonstration: the provider and the server.

use std::{
    env,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::{Duration, Instant, sleep, timeout},
};

use super::{
    provider::{
        books::{self, Entry, Line},
        server::LISTENING,
        switches::{Behaviour, Switches},
    },
    tools::Point,
};
use crate::support::{
    Outcome,
    client::{PATIENCE, Server},
};

/// How often the provider's log is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A folder with a provider's log and a server's ledger, and the provider's process.
pub(super) struct Lab {
    folder: TempDir,
    provider: Child,
    url: String,
    http: reqwest::Client,
}

impl Lab {
    pub(super) async fn new() -> Outcome<Self> {
        let folder = tempfile::tempdir()?;
        let mut provider = Command::new(env::current_exe()?)
            .arg("provider")
            .arg("--log")
            .arg(folder.path().join("provider.log"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = provider.stdout.take().ok_or("the provider has no output")?;
        let mut lines = BufReader::new(output).lines();
        let line = timeout(PATIENCE, lines.next_line()).await??;
        let url = line
            .as_deref()
            .and_then(|line| line.strip_prefix(LISTENING))
            .ok_or("the provider did not say where it listens")?
            .to_owned();
        Ok(Self {
            folder,
            provider,
            url,
            http: reqwest::Client::builder().no_proxy().build()?,
        })
    }

    /// Starts a server on the lab's ledger.
    pub(super) async fn server(&self) -> Outcome<Server> {
        Server::start(self.command()?).await
    }

    /// Starts a server that halts where it is told to.
    pub(super) async fn halting_server(&self, point: Point) -> Outcome<Server> {
        let mut command = self.command()?;
        command.arg("--halt").arg(match point {
            Point::BeforeSending => "before-sending",
            Point::AfterAnswer => "after-answer",
        });
        Server::start(command).await
    }

    /// Starts a server whose time of day is ahead.
    pub(super) async fn later_server(&self, by: Duration) -> Outcome<Server> {
        let mut command = self.command()?;
        command.arg("--ahead").arg(by.as_secs().to_string());
        Server::start(command).await
    }

    fn command(&self) -> Outcome<Command> {
        let mut command = Command::new(env::current_exe()?);
        command
            .arg("serve")
            .arg("--db")
            .arg(self.folder.path().join("deployments.sqlite3"))
            .arg("--provider")
            .arg(&self.url);
        Ok(command)
    }

    /// How the provider takes the next requests.
    pub(super) async fn script(&self, script: &[Behaviour]) -> Outcome {
        self.put("script", &json!(script)).await
    }

    /// What the provider is able to do.
    pub(super) async fn switches(&self, switches: Switches) -> Outcome {
        self.put("switches", &json!(switches)).await
    }

    /// Has all held requests answered.
    pub(super) async fn release(&self) -> Outcome {
        let request = self.http.post(format!("{}/release", self.url));
        request.send().await?.error_for_status()?;
        Ok(())
    }

    async fn put(&self, path: &str, value: &Value) -> Outcome {
        let request = self.http.put(format!("{}/{path}", self.url)).json(value);
        request.send().await?.error_for_status()?;
        Ok(())
    }

    /// The provider's log, as it is on the disk.
    pub(super) fn log(&self) -> Outcome<Vec<Line>> {
        Ok(books::read(&self.log_path())?)
    }

    /// What the provider holds of a service.
    pub(super) fn held(&self, service: &str) -> Outcome<Vec<String>> {
        let log = self.log()?;
        let held = books::created(&log)
            .filter(|created| created.order.service == service)
            .map(|created| created.deployment_id.clone());
        Ok(held.collect())
    }

    /// How many requests for a deployment the provider has received.
    pub(super) fn requests(&self) -> Outcome<usize> {
        let received = |line: &&Line| matches!(line.entry, Entry::Received { .. });
        Ok(self.log()?.iter().filter(received).count())
    }

    /// Waits until the provider has received as many requests.
    pub(super) async fn received(&self, requests: usize) -> Outcome {
        self.wait(|| Ok(requests <= self.requests()?)).await
    }

    /// Waits until the provider holds as many deployments.
    pub(super) async fn created(&self, deployments: usize) -> Outcome {
        let enough = || Ok(deployments <= books::created(&self.log()?).count());
        self.wait(enough).await
    }

    async fn wait(&self, enough: impl Fn() -> Outcome<bool>) -> Outcome {
        let until = Instant::now() + PATIENCE;
        while !enough()? {
            if until < Instant::now() {
                return Err("the provider did not receive what was expected".into());
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    fn log_path(&self) -> PathBuf {
        self.path().join("provider.log")
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Ends the provider's process.
    pub(super) async fn end(mut self) -> Outcome {
        self.provider.kill().await?;
        Ok(self.folder.close()?)
    }
}
