//! Streamable HTTP: authentication, limits and an orderly end around the MCP server.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Extension, Request, State},
    http::{
        HeaderValue, StatusCode,
        header::{CONNECTION, WWW_AUTHENTICATE},
        request::Parts,
        uri::Authority,
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use clap::Args;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use idempotent_tool::{Caller, mcp::Unidentified};
use rmcp::{
    RoleServer, ServerHandler,
    service::RequestContext,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
    },
};
use tokio::net::TcpListener;

use super::{
    Outcome,
    admission::{Admission, Entrant},
    tokens::{Tokens, TokensError},
};

/// Whether to serve over HTTP, where, and to whom.
#[derive(Debug, Args)]
pub struct HttpArgs {
    /// Serve over HTTP at this address instead; the endpoint is `/mcp`
    #[arg(
        long,
        value_name = "ADDRESS",
        requires = "tokens",
        conflicts_with_all = ["account", "principal", "workspace"]
    )]
    http: Option<SocketAddr>,
    /// Who may call over HTTP, and what: `[[token]]` tables of `token`, `account`,
    /// `principal`, `workspace` and `permissions`, read again when the file changes
    #[arg(long, value_name = "FILE", requires = "http")]
    tokens: Option<PathBuf>,
    /// Answer requests for this host name as well as for this machine's own, on any port
    /// unless one is given; may be repeated
    #[arg(long = "allowed-host", value_name = "HOST", requires = "http")]
    allowed_hosts: Vec<Authority>,
}

impl HttpArgs {
    /// What to serve at; nothing if standard input and output are served.
    ///
    /// # Errors
    ///
    /// When the token file can't be read, or is not what it should be.
    pub fn endpoint(self) -> Result<Option<Endpoint>, TokensError> {
        let (Some(address), Some(tokens)) = (self.http, self.tokens) else {
            return Ok(None);
        };
        Ok(Some(Endpoint {
            address,
            allowed_hosts: self.allowed_hosts,
            tokens: Tokens::open(tokens)?,
        }))
    }
}

/// Where a server answers, and to whom.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    allowed_hosts: Vec<Authority>,
    tokens: Tokens,
}

/// Pages that a browser may call from. With the SDK's check of the host name, no page of
/// another site can reach the server.
const LOCAL_ORIGINS: [&str; 3] = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];

/// What one client, and all of them together, may use.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Limits {
    /// The largest body of a request, in bytes; it holds the arguments.
    pub body: usize,
    /// How long a client may take to send its headers, and then its body.
    pub reading: Duration,
    /// Connections at a time whose requests have a valid token; more wait for a place.
    pub connections: usize,
    /// Connections at a time that have sent no valid token yet; if more come, the oldest is
    /// closed, or waited for if it is too new.
    pub strangers: usize,
    /// For how long a connection without a valid token is not closed for a newer one.
    pub spared: Duration,
    /// How long a client may take to send a valid token, and how long one that has sent it
    /// waits for a place.
    pub entering: Duration,
    /// How long answers may take once the server has been told to end.
    pub ending: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // 10,000 code points, each written as two escapes of six bytes, and some more.
            body: 256 * 1024,
            reading: Duration::from_secs(10),
            connections: 512,
            strangers: 256,
            spared: Duration::from_millis(250),
            entering: Duration::from_secs(5),
            ending: Duration::from_secs(40),
        }
    }
}

/// A server that is bound to its address and serves once [`run`](Self::run) is called.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    endpoint: Router,
    config: StreamableHttpServerConfig,
    limits: Limits,
}

impl Server {
    /// Binds the address of `endpoint` for `handler`.
    ///
    /// # Errors
    ///
    /// When the address can't be bound.
    pub async fn bind(
        handler: impl ServerHandler + Clone,
        endpoint: Endpoint,
        limits: Limits,
    ) -> std::io::Result<Self> {
        let Endpoint {
            address,
            allowed_hosts,
            tokens,
        } = endpoint;
        let listener = TcpListener::bind(address).await?;
        // No protocol sessions: a call needs nothing but itself, on every version, so a
        // client goes on after a restart of the server, and no stream can be taken over.
        let mut config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(limits.body)
            .with_allowed_origins(LOCAL_ORIGINS);
        let allowed_hosts = allowed_hosts.iter().map(ToString::to_string);
        config.allowed_hosts.extend(allowed_hosts);
        let mcp = StreamableHttpService::new(
            move || Ok(handler.clone()),
            Arc::new(NeverSessionManager::default()),
            config.clone(),
        );
        let endpoint = Router::new()
            .route_service("/mcp", mcp)
            .layer(middleware::from_fn_with_state(limits, read_body))
            .layer(middleware::from_fn_with_state(
                (tokens, limits),
                authenticate,
            ));
        Ok(Self {
            listener,
            endpoint,
            config,
            limits,
        })
    }

    /// The address that is bound.
    ///
    /// # Errors
    ///
    /// When the operating system can't tell it.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `end`; then accepts nothing more and lets the calls that run finish.
    pub async fn run(self, end: impl Future<Output = ()>) {
        let Self {
            listener,
            endpoint,
            config,
            limits,
        } = self;
        let admission = Admission::new(limits);
        let graceful = GracefulShutdown::new();
        let mut protocol = http1::Builder::new();
        protocol
            .timer(TokioTimer::new())
            .header_read_timeout(limits.reading);

        let mut end = std::pin::pin!(end);
        loop {
            let accept = async {
                let accepted = listener.accept().await?;
                Ok::<_, std::io::Error>((accepted, admission.enter().await))
            };
            let accepted = tokio::select! {
                accepted = accept => accepted,
                () = &mut end => break,
            };
            let (stream, entrant) = match accepted {
                Ok(((stream, _), entrant)) => (stream, entrant),
                Err(error) => {
                    // The client has gone, or no file descriptor is left until one ends.
                    tracing::warn!(%error, "a connection can't be accepted");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            };
            let endpoint = endpoint.clone().layer(Extension(Arc::clone(&entrant)));
            let service = TowerToHyperService::new(endpoint);
            let connection = protocol.serve_connection(TokioIo::new(stream), service);
            let connection = graceful.watch(connection);
            tokio::spawn(async move {
                tokio::select! {
                    ended = connection => if let Err(error) = ended {
                        tracing::debug!(%error, "a connection ended early");
                    },
                    () = entrant.turned_away() => {
                        tracing::debug!("a connection without a valid token was closed");
                    }
                }
            });
        }
        drop(listener);
        if tokio::time::timeout(limits.ending, graceful.shutdown())
            .await
            .is_err()
        {
            // What has begun still commits: the store waits for it when it is dropped.
            config.cancellation_token.cancel();
            tracing::warn!("some connections were cut: they did not end in time");
        }
    }
}

/// Lets a request pass that a token identifies; any other touches nothing, and its connection
/// ends, so that it doesn't keep a caller's place.
async fn authenticate(
    State((tokens, limits)): State<(Tokens, Limits)>,
    Extension(entrant): Extension<Arc<Entrant>>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut refusal = match tokens.caller(request.headers()) {
        Ok(Some(caller)) => {
            if entrant.admit().await {
                request.extensions_mut().insert(caller);
                return next.run(request).await;
            }
            tracing::warn!("a caller found no place among the connections");
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
        Ok(None) => {
            let challenge = HeaderValue::from_static("Bearer");
            (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, challenge)]).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "nobody can be identified");
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    };
    discard(request.into_body(), limits).await;
    let close = HeaderValue::from_static("close");
    refusal.headers_mut().insert(CONNECTION, close);
    refusal
}

/// Reads a body and keeps nothing of it: a client that still sends when the connection is
/// closed may lose the answer.
async fn discard(body: Body, limits: Limits) {
    let mut body = Limited::new(body, limits.body);
    let end = async { while let Some(Ok(_)) = body.frame().await {} };
    if tokio::time::timeout(limits.reading, end).await.is_err() {
        tracing::debug!("a refused request was not read to its end");
    }
}

/// Reads the whole body, within the limits of size and time, before anything is done.
async fn read_body(State(limits): State<Limits>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, limits.body).collect();
    match tokio::time::timeout(limits.reading, body).await {
        Ok(Ok(body)) => {
            let request = Request::from_parts(parts, Body::from(body.to_bytes()));
            next.run(request).await
        }
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            StatusCode::PAYLOAD_TOO_LARGE.into_response()
        }
        Ok(Err(_)) => StatusCode::BAD_REQUEST.into_response(),
        Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
    }
}

/// The caller that [`Server`] has found by the token of the request.
///
/// # Errors
///
/// When the request did not come through it.
pub fn caller(context: &RequestContext<RoleServer>) -> Result<Caller, Unidentified> {
    context
        .extensions
        .get::<Parts>()
        .and_then(|parts| parts.extensions.get::<Caller>())
        .cloned()
        .ok_or(Unidentified::Refused)
}

/// Serves MCP over HTTP until the process is told to end. What the handlers have begun is
/// committed when the last handle of their store is dropped.
///
/// # Errors
///
/// When the server can't start.
pub async fn serve(handler: impl ServerHandler + Clone, endpoint: Endpoint) -> Outcome {
    let server = Server::bind(handler, endpoint, Limits::default()).await?;
    let end = told_to_end()?;
    eprintln!("serving MCP at http://{}/mcp", server.address()?);
    server.run(end).await;
    Ok(())
}

/// Completes when the terminal interrupts the process, or the system terminates it.
fn told_to_end() -> std::io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    Ok(async move {
        #[cfg(unix)]
        let terminated = terminate.recv();
        #[cfg(not(unix))]
        let terminated = pending::<()>();
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => {
                if let Err(error) = interrupted {
                    tracing::error!(%error, "interrupts can't be received");
                }
            }
            _ = terminated => (),
        }
    })
}
