//! The tools: one for each recovery, and one that orders a deployment with its own commit.

use std::{
    future::pending,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use clap::{Args, ValueEnum};
use idempotent_tool::{
    Access, Attempt, AttemptError, BuildError, Failure, Inquiry, Reconciled, SqliteStore, Toolbox,
    ToolboxBuilder, TransactError, Tx, idempotent_tool,
};
use reqwest::{StatusCode, header::RETRY_AFTER, redirect::Policy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::provider::{
    books::Order,
    server::{KEY_HEADER, REFERENCE_HEADER},
};
use crate::support::tokens;

/// What the tools return.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deployment {
    /// The provider's id of the deployment.
    pub deployment_id: String,
}

/// What `release_service` returns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Release {
    /// The id of the release.
    pub release_id: Uuid,
    /// The operation that deploys it; `get_operation` tells what became of it.
    pub deployment_operation_id: String,
}

/// Start a deployment at a provider that answers one idempotency key once.
///
/// # Errors
///
/// What the provider says, or that it can't be told what it did.
// The times are short so that the demonstration is.
#[idempotent_tool(
    operation = "start_deployment:v1",
    title = "Start deployment",
    provider_key(window = "24h"),
    deadline = "20s",
    attempt_timeout = "4s",
    wait = "500ms",
    destructive = false
)]
pub async fn start_deployment(
    attempt: &Attempt,
    #[arguments] order: Order,
    #[state] provider: &Provider,
) -> Result<Deployment, AttemptError> {
    let key = (KEY_HEADER, attempt.provider_key().to_owned());
    provider.order(attempt, &order, Some(key)).await
}

/// Start a deployment at a provider that can be asked for it by our reference.
///
/// # Errors
///
/// What the provider says, or that it can't be told what it did.
#[idempotent_tool(
    operation = "start_deployment_by_reference:v1",
    title = "Start deployment by reference",
    reconcile(find_deployment, settle = "1s"),
    deadline = "20s",
    attempt_timeout = "4s",
    wait = "500ms",
    destructive = false
)]
pub async fn start_deployment_by_reference(
    attempt: &Attempt,
    #[arguments] order: Order,
    #[state] provider: &Provider,
) -> Result<Deployment, AttemptError> {
    let reference = (REFERENCE_HEADER, attempt.provider_key().to_owned());
    provider.order(attempt, &order, Some(reference)).await
}

/// Start a deployment at a provider that knows neither keys nor references.
///
/// # Errors
///
/// What the provider says, or that it can't be told what it did.
#[idempotent_tool(
    operation = "start_deployment_unaided:v1",
    title = "Start deployment unaided",
    inspect = "Look for the service and its image in the provider's list of deployments, and have \
               the operator of this server settle the operation; do not deploy it again before",
    deadline = "20s",
    attempt_timeout = "4s",
    wait = "500ms",
    destructive = false
)]
pub async fn start_deployment_unaided(
    attempt: &Attempt,
    #[arguments] order: Order,
    #[state] provider: &Provider,
) -> Result<Deployment, AttemptError> {
    provider.order(attempt, &order, None).await
}

/// Record a release of a service and have it deployed: both, or neither.
///
/// # Errors
///
/// When the database refuses the row, or the deployment can't be ordered.
#[idempotent_tool(
    operation = "release_service:v1",
    title = "Release service",
    destructive = false
)]
pub fn release_service(tx: &Tx, #[arguments] order: Order) -> Result<Release, Failure> {
    let release_id = Uuid::now_v7();
    tx.execute(
        "INSERT INTO releases (id, scope, service, image) VALUES (?1, ?2, ?3, ?4)",
        (
            release_id.to_string(),
            tx.scope(),
            &order.service,
            &order.image,
        ),
    )?;
    let key = format!("release-{release_id}");
    let operation_id = tx.enqueue::<start_deployment>(&key, &order)?;
    Ok(Release {
        release_id,
        deployment_operation_id: operation_id.to_string(),
    })
}

/// Asks the provider whether it has the deployment with this operation's reference.
async fn find_deployment(inquiry: &Inquiry) -> Result<Reconciled<Deployment>, AttemptError> {
    let provider = inquiry.state::<Provider>()?;
    provider.find(inquiry.provider_key()).await
}

/// A point at which a server halts, for the demonstration and the crash tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Point {
    /// The attempt has begun, and nothing has left.
    BeforeSending,
    /// The provider's answer is here, and its receipt isn't written.
    AfterAnswer,
}

impl Point {
    /// What the server says there on its error output.
    #[must_use]
    pub fn says(self) -> &'static str {
        match self {
            Self::BeforeSending => "halted before the request is sent",
            Self::AfterAnswer => "halted after the provider's answer",
        }
    }
}

/// Where a server halts, if anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Args)]
pub struct Halts {
    /// Halt there until killed
    #[arg(long, hide = true)]
    halt: Option<Point>,
    /// Stop the whole process there once, until it is continued
    #[arg(long, hide = true)]
    stop: Option<Point>,
}

/// The client of the provider.
#[derive(Debug, Clone)]
pub struct Provider {
    http: reqwest::Client,
    url: String,
    halts: Halts,
    stopped: Arc<AtomicBool>,
}

impl Provider {
    /// A client of the provider at `url`.
    ///
    /// # Errors
    ///
    /// When the HTTP client can't be made.
    pub fn new(url: &str, halts: Halts) -> reqwest::Result<Self> {
        Ok(Self {
            // The provider of this example is on the same machine. What it answers to an order is
            // an answer, and no address to go on to: an error there would say nothing of the
            // order.
            http: reqwest::Client::builder()
                .no_proxy()
                .redirect(Policy::none())
                .build()?,
            url: url.trim_end_matches('/').to_owned(),
            halts,
            stopped: Arc::default(),
        })
    }

    async fn order(
        &self,
        attempt: &Attempt,
        order: &Order,
        name: Option<(&'static str, String)>,
    ) -> Result<Deployment, AttemptError> {
        self.halt_at(Point::BeforeSending).await?;
        // Right before it leaves: the attempt may have been taken over meanwhile.
        attempt.check().await?;
        let mut request = self
            .http
            .post(format!("{}/deployments", self.url))
            .timeout(attempt.remaining())
            .json(order);
        if let Some((header, value)) = name {
            request = request.header(header, value);
        }
        let response = request.send().await?;
        let deployment = match response.status() {
            StatusCode::CREATED | StatusCode::OK => response.json().await?,
            StatusCode::TOO_MANY_REQUESTS => return Err(too_many(&response)),
            status => return Err(AttemptError::from_http_status(status.as_u16())),
        };
        self.halt_at(Point::AfterAnswer).await?;
        Ok(deployment)
    }

    async fn find(&self, reference: &str) -> Result<Reconciled<Deployment>, AttemptError> {
        let url = format!("{}/deployments/by-reference/{reference}", self.url);
        let response = self.http.get(url).send().await?;
        match response.status() {
            StatusCode::OK => Ok(Reconciled::Applied(response.json().await?)),
            StatusCode::NOT_FOUND => Ok(Reconciled::NotApplied),
            _ => Ok(Reconciled::Undetermined),
        }
    }

    async fn halt_at(&self, point: Point) -> Result<(), AttemptError> {
        if self.halts.halt == Some(point) {
            eprintln!("{}", point.says());
            pending::<()>().await;
        }
        if self.halts.stop == Some(point) && !self.stopped.swap(true, Ordering::SeqCst) {
            eprintln!("{}", point.says());
            // Blocking on purpose: whoever is continued goes on exactly here.
            let stop = format!("kill -STOP {}", std::process::id());
            let stopped = Command::new("/bin/sh").arg("-c").arg(stop).status();
            stopped.map_err(|error| {
                AttemptError::ambiguous("not_stopped", "the server can't stop itself")
                    .with_source(error)
            })?;
        }
        Ok(())
    }
}

/// This provider documents that a request it answers with 429 has created nothing.
fn too_many(response: &reqwest::Response) -> AttemptError {
    let error = AttemptError::not_applied("too_many_requests", "the provider takes no more now");
    let value = response.headers().get(RETRY_AFTER);
    match value.and_then(|value| retry_after(value.to_str().ok()?, SystemTime::now())) {
        Some(wait) => error.with_retry_after(wait),
        None => error,
    }
}

/// How long `Retry-After` asks to wait: it is a number of seconds, or an HTTP date.
fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(value).ok()?;
    Some(at.duration_since(now).unwrap_or_default())
}

/// Creates the application's own table, beside the ledger's, if the file is new.
///
/// # Errors
///
/// When the file can't be written.
pub fn create_table(store: &SqliteStore) -> Result<(), TransactError<rusqlite::Error>> {
    store.transact_blocking(|tx| {
        tx.execute_batch(
            "CREATE TABLE IF NOT EXISTS releases (
                 id TEXT PRIMARY KEY,
                 scope TEXT NOT NULL,
                 service TEXT NOT NULL,
                 image TEXT NOT NULL
             )",
        )
    })
}

/// The toolbox of the server. It must be built inside a tokio runtime, where attempts run.
///
/// # Errors
///
/// When the ledger in `store` can't be used with these tools.
pub fn toolbox(store: &SqliteStore, provider: Provider) -> Result<Toolbox, BuildError> {
    // One caller, who started the server and may do all of it.
    let builder = Toolbox::builder(store.clone()).authorize(|_, _| Access::Allowed);
    register(builder, provider)
}

/// The toolbox of many callers: each may call the tools that its token names.
///
/// # Errors
///
/// When the ledger in `store` can't be used with these tools.
pub fn toolbox_for_tokens(store: &SqliteStore, provider: Provider) -> Result<Toolbox, BuildError> {
    register(
        Toolbox::builder(store.clone()).authorize(tokens::authorize),
        provider,
    )
}

fn register(
    builder: ToolboxBuilder<SqliteStore>,
    provider: Provider,
) -> Result<Toolbox, BuildError> {
    builder
        .state(provider)
        .tool::<start_deployment>()
        .tool::<start_deployment_by_reference>()
        .tool::<start_deployment_unaided>()
        .tool::<release_service>()
        .build()
}

#[cfg(test)]
mod tests {
    use idempotent_tool::AttemptError;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    #[test]
    fn a_retry_after_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Mon, 30 Nov 2026 22:00:00 GMT").unwrap();
        for (value, seconds) in [
            ("120", Some(120)),
            ("Mon, 30 Nov 2026 22:10:00 GMT", Some(600)),
            ("Mon, 30 Nov 2026 21:00:00 GMT", Some(0)),
            ("soon", None),
        ] {
            let wait = retry_after(value, now);
            assert_eq!(wait, seconds.map(Duration::from_secs), "{value}");
        }
    }

    /// Takes one order, and sends the client elsewhere.
    async fn answering(location: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut taken = [0; 4096];
            let _ = stream.read(&mut taken).await.unwrap();
            let answer = format!(
                "HTTP/1.1 303 See Other\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        url
    }

    #[tokio::test]
    async fn a_taken_order_is_in_doubt_wherever_the_answer_leads() {
        for location in ["http://127.0.0.1:1/gone", "ftp://127.0.0.1/", "mailto:x"] {
            let url = answering(location).await;
            let provider = Provider::new(&url, Halts::default()).unwrap();
            let sent = provider
                .http
                .post(format!("{url}/deployments"))
                .body("{}")
                .send()
                .await;
            let error = match sent {
                Ok(response) => AttemptError::from_http_status(response.status().as_u16()),
                Err(error) => error.into(),
            };
            assert!(error.is_ambiguous(), "{location}: {error:?}");
        }
    }
}
