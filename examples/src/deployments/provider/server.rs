//! The provider's HTTP interface.
//!
//! ```text
//! POST /deployments                            create one; headers `idempotency-key`, `client-reference`
//! GET  /deployments/by-reference/{reference}   find one: 200 with it, 404, or 501 if it can't be asked
//! PUT  /script                                 how the next requests are taken, in order
//! PUT  /switches                               its abilities
//! POST /release                                answer all requests that are held
//! ```

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{self, State},
    http::{HeaderMap, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use hyper::body::Frame;
use serde_json::json;
use tokio::{net::TcpListener, sync::watch};

use super::{
    books::{Books, Created, Entry, Order},
    switches::{Behaviour, Switches},
};
use crate::support::Outcome;

/// The header that names a request towards a provider that deduplicates.
pub const KEY_HEADER: &str = "idempotency-key";

/// The header with the client's own reference.
pub const REFERENCE_HEADER: &str = "client-reference";

/// What the first line of output begins with; the address follows.
pub const LISTENING: &str = "listening on ";

struct Provider {
    books: Mutex<Books>,
    switches: Mutex<Switches>,
    script: Mutex<VecDeque<Behaviour>>,
    /// How often the held requests were released.
    released: watch::Sender<u64>,
}

/// Serves until it is killed.
///
/// # Errors
///
/// When the log can't be opened, or the address can't be bound.
pub async fn serve(log: &Path, listen: SocketAddr) -> Outcome {
    let provider = Arc::new(Provider {
        books: Mutex::new(Books::open(log)?),
        switches: Mutex::default(),
        script: Mutex::default(),
        released: watch::Sender::new(0),
    });
    let router = Router::new()
        .route("/deployments", post(create))
        .route("/deployments/by-reference/{reference}", get(find))
        .route("/script", put(set_script))
        .route("/switches", put(set_switches))
        .route("/release", post(release))
        .with_state(provider);
    let listener = TcpListener::bind(listen).await?;
    println!("{LISTENING}http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, router).await?)
}

async fn create(
    State(provider): State<Arc<Provider>>,
    headers: HeaderMap,
    Json(order): Json<Order>,
) -> Response {
    let text = |name| {
        let value = headers.get(name)?;
        value.to_str().ok().map(ToOwned::to_owned)
    };
    let (key, reference) = (text(KEY_HEADER), text(REFERENCE_HEADER));
    // In a task of its own: a client that leaves changes nothing of what was accepted.
    let taken = tokio::spawn(async move { provider.take(order, key, reference).await });
    match taken.await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn find(
    State(provider): State<Arc<Provider>>,
    extract::Path(reference): extract::Path<String>,
) -> Response {
    if !locked(&provider.switches).finds {
        return StatusCode::NOT_IMPLEMENTED.into_response();
    }
    let mut books = locked(&provider.books);
    let found = books.by_reference(&reference).map(answer);
    let asked = Entry::Asked {
        reference,
        found: found.is_some(),
    };
    match (books.append(asked), found) {
        (Ok(()), Some(found)) => found.into_response(),
        (Ok(()), None) => StatusCode::NOT_FOUND.into_response(),
        (Err(_), _) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn set_script(
    State(provider): State<Arc<Provider>>,
    Json(script): Json<VecDeque<Behaviour>>,
) {
    *locked(&provider.script) = script;
}

async fn set_switches(State(provider): State<Arc<Provider>>, Json(switches): Json<Switches>) {
    *locked(&provider.switches) = switches;
}

async fn release(State(provider): State<Arc<Provider>>) {
    provider.released.send_modify(|released| *released += 1);
}

impl Provider {
    async fn take(
        &self,
        order: Order,
        key: Option<String>,
        reference: Option<String>,
    ) -> io::Result<Response> {
        let behaviour = locked(&self.script).pop_front().unwrap_or_default();
        let mut released = self.released.subscribe();
        let request = self.receive(key.clone(), reference.clone())?;
        match behaviour {
            Behaviour::Create | Behaviour::DropResponse | Behaviour::Hold => (),
            Behaviour::Delay { ms } => tokio::time::sleep(Duration::from_millis(ms)).await,
            Behaviour::Refuse => {
                let refusal = (StatusCode::FORBIDDEN, Json(json!({ "error": "forbidden" })));
                return self.respond(request, refusal);
            }
            Behaviour::TooMany { seconds } => {
                let later = [(RETRY_AFTER, seconds.to_string())];
                return self.respond(request, (StatusCode::TOO_MANY_REQUESTS, later));
            }
        }
        let response = match self.apply(request, order, key, reference)? {
            Applied::Created(created) => (StatusCode::CREATED, answer(&created)).into_response(),
            Applied::Before(created) => (StatusCode::OK, answer(&created)).into_response(),
            Applied::KeyReused => StatusCode::UNPROCESSABLE_ENTITY.into_response(),
        };
        match behaviour {
            Behaviour::DropResponse => return Ok(Response::new(Body::new(Cut))),
            // Its sender lives as long as this provider.
            Behaviour::Hold => released.changed().await.map_err(io::Error::other)?,
            Behaviour::Create
            | Behaviour::Delay { .. }
            | Behaviour::Refuse
            | Behaviour::TooMany { .. } => (),
        }
        self.respond(request, response)
    }

    fn receive(&self, key: Option<String>, reference: Option<String>) -> io::Result<u64> {
        let mut books = locked(&self.books);
        let request = books.next_request();
        books.append(Entry::Received {
            request,
            key,
            reference,
        })?;
        Ok(request)
    }

    /// Creates the deployment, unless its key says that it was.
    fn apply(
        &self,
        request: u64,
        order: Order,
        key: Option<String>,
        reference: Option<String>,
    ) -> io::Result<Applied> {
        let switches = *locked(&self.switches);
        // From the look to the entry under one lock: two requests with one key create one.
        let mut books = locked(&self.books);
        if let Some(key) = key.as_deref().filter(|_| switches.deduplicates)
            && let Some(before) = books.by_key(key, switches.remembers_ms)
        {
            return Ok(if before.order == order {
                Applied::Before(before.clone())
            } else {
                Applied::KeyReused
            });
        }
        let created = Created {
            request,
            deployment_id: books.next_deployment(),
            order,
            key,
            reference,
        };
        books.append(Entry::Created(created.clone()))?;
        Ok(Applied::Created(created))
    }

    fn respond(&self, request: u64, response: impl IntoResponse) -> io::Result<Response> {
        let response = response.into_response();
        locked(&self.books).append(Entry::Answered {
            request,
            status: response.status().as_u16(),
        })?;
        Ok(response)
    }
}

enum Applied {
    Created(Created),
    /// An earlier request with the key has created it.
    Before(Created),
    /// An earlier request with the key ordered something else.
    KeyReused,
}

fn answer(created: &Created) -> Json<serde_json::Value> {
    Json(json!({ "deployment_id": created.deployment_id }))
}

/// A body that fails at once, so that the connection ends without an answer.
struct Cut;

impl hyper::body::Body for Cut {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into())))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
