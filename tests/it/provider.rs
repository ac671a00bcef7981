//! A provider outside the database, with its own books, and tools on it: one for each
//! recovery. Every assertion on what really happened reads the books.

use std::{
    collections::{HashSet, VecDeque},
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use idempotent_tool::{
    Attempt, AttemptError, Clock, Inquiry, Reconciled, Reply, SqliteStore, Status, Toolbox,
    idempotent_tool,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Notify;

use crate::{
    common::{Ledger, ada, key, marked},
    pace::{PacedClock, drive},
};

/// How the provider takes a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Takes {
    /// It applies it and answers.
    Applies,
    /// It applies it, and the answer is lost.
    AppliesSilently,
    /// It applies it, and the connection hangs.
    AppliesAndHangs,
    /// It never sees it: the connection hangs before.
    Hangs,
    /// It never sees it, and the client can't know.
    LosesIt,
    /// It refuses it.
    Refuses,
    /// It says 409: something with this key is in progress, or was.
    Conflicts,
    /// It can't be reached.
    IsAway,
    /// It asks to come back later.
    AsksToWait(Duration),
    /// It waits for the test, then applies it and answers.
    Waits,
    /// It is not sent until somebody cancels, and then it isn't.
    StopsWhenCancelled,
    /// It applies it, and the tool panics.
    AppliesAndBreaksTheTool,
}

/// The provider; clones share its books.
#[derive(Clone)]
pub(crate) struct Provider {
    books: Arc<Mutex<Books>>,
    pub(crate) arrived: Arc<Notify>,
    pub(crate) go_on: Arc<Notify>,
    clock: PacedClock,
}

#[derive(Default)]
struct Books {
    script: VecDeque<Takes>,
    /// The times at which requests arrived.
    requests: Vec<Duration>,
    deployments: Vec<String>,
    keys: HashSet<String>,
    asked: usize,
    is_mute: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Deployment {
    pub(crate) deployment_id: String,
}

impl Provider {
    pub(crate) fn new(clock: &PacedClock, script: impl IntoIterator<Item = Takes>) -> Self {
        let books = Books {
            script: script.into_iter().collect(),
            ..Books::default()
        };
        Self {
            books: Arc::new(Mutex::new(books)),
            arrived: Arc::default(),
            go_on: Arc::default(),
            clock: clock.clone(),
        }
    }

    /// The same provider, as the handlers of another process see it.
    pub(crate) fn seen_from(&self, clock: PacedClock) -> Self {
        Self {
            clock,
            ..self.clone()
        }
    }

    pub(crate) fn deployments(&self) -> usize {
        self.books.lock().unwrap().deployments.len()
    }

    /// How many requests were sent.
    pub(crate) fn requests(&self) -> usize {
        self.books.lock().unwrap().requests.len()
    }

    pub(crate) fn request_times(&self) -> Vec<Duration> {
        self.books.lock().unwrap().requests.clone()
    }

    pub(crate) fn asked(&self) -> usize {
        self.books.lock().unwrap().asked
    }

    /// What the provider knows requests by, of those that it has applied.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys: Vec<_> = self.books.lock().unwrap().keys.iter().cloned().collect();
        keys.sort();
        keys
    }

    /// It can't tell what became of anything.
    pub(crate) fn is_mute(&self, is_mute: bool) {
        self.books.lock().unwrap().is_mute = is_mute;
    }

    async fn send(
        &self,
        attempt: &Attempt,
        deduplicates: bool,
    ) -> Result<Deployment, AttemptError> {
        let takes = {
            let mut books = self.books.lock().unwrap();
            books.requests.push(self.clock.monotonic());
            books.script.pop_front().unwrap_or(Takes::Applies)
        };
        self.arrived.notify_one();
        let id = attempt.operation_id().to_string();
        let deployment = Deployment {
            deployment_id: marked(&id),
        };
        let apply = || {
            let mut books = self.books.lock().unwrap();
            if books.keys.insert(attempt.provider_key().to_owned()) || !deduplicates {
                books.deployments.push(id.clone());
            }
        };
        match takes {
            Takes::Applies => {
                apply();
                Ok(deployment)
            }
            Takes::AppliesSilently => {
                apply();
                Err(AttemptError::ambiguous(
                    "answer_lost",
                    "the answer was lost",
                ))
            }
            Takes::AppliesAndHangs => {
                apply();
                self.clock.elsewhere(pending()).await
            }
            Takes::Hangs => self.clock.elsewhere(pending()).await,
            Takes::LosesIt => Err(AttemptError::ambiguous(
                "answer_lost",
                "the answer was lost",
            )),
            Takes::Refuses => Err(AttemptError::refused("quota", "the quota is used up")),
            Takes::Conflicts => Err(AttemptError::refused("conflict", "there is one already")),
            Takes::IsAway => Err(AttemptError::not_applied("away", "nobody is there")),
            Takes::AsksToWait(wait) => {
                Err(AttemptError::not_applied("later", "come back later").with_retry_after(wait))
            }
            Takes::Waits => {
                self.clock.elsewhere(self.go_on.notified()).await;
                apply();
                Ok(deployment)
            }
            Takes::StopsWhenCancelled => {
                self.clock.elsewhere(attempt.cancelled()).await;
                Err(AttemptError::not_applied("stopped", "it was stopped"))
            }
            Takes::AppliesAndBreaksTheTool => {
                apply();
                panic!("the tool breaks");
            }
        }
    }

    fn find(&self, inquiry: &Inquiry) -> Reconciled<Deployment> {
        let mut books = self.books.lock().unwrap();
        books.asked += 1;
        let id = inquiry.operation_id().to_string();
        if books.is_mute {
            Reconciled::Undetermined
        } else if books.deployments.contains(&id) {
            Reconciled::Applied(Deployment {
                deployment_id: marked(&id),
            })
        } else {
            Reconciled::NotApplied
        }
    }
}

/// Start a deployment at a provider that deduplicates.
#[idempotent_tool(
    operation = "deploy_by_key:v1",
    provider_key(window = "24h"),
    retention = "10d",
    tombstone = "100d"
)]
pub(crate) async fn deploy_by_key(
    attempt: &Attempt,
    image: String,
    #[state] provider: &Provider,
) -> Result<Deployment, AttemptError> {
    drop(image);
    provider.send(attempt, true).await
}

/// Start a deployment at a provider that can be asked.
#[idempotent_tool(
    operation = "deploy_by_asking:v1",
    reconcile(find_deployment, settle = "10s")
)]
pub(crate) async fn deploy_by_asking(
    attempt: &Attempt,
    image: String,
    #[state] provider: &Provider,
) -> Result<Deployment, AttemptError> {
    drop(image);
    provider.send(attempt, false).await
}

async fn find_deployment(inquiry: &Inquiry) -> Result<Reconciled<Deployment>, AttemptError> {
    Ok(inquiry.state::<Provider>()?.find(inquiry))
}

/// Start a deployment at a provider that tells nothing.
#[idempotent_tool(
    operation = "deploy_by_hand:v1",
    inspect = "Look for the deployment in the provider's console"
)]
pub(crate) async fn deploy_by_hand(
    attempt: &Attempt,
    image: String,
    #[state] provider: &Provider,
) -> Result<Deployment, AttemptError> {
    drop(image);
    provider.send(attempt, false).await
}

/// The names of the three tools.
pub(crate) const BY_KEY: &str = "deploy_by_key";
pub(crate) const BY_ASKING: &str = "deploy_by_asking";
pub(crate) const BY_HAND: &str = "deploy_by_hand";

/// A toolbox with the three tools, a provider and a ledger.
pub(crate) struct Lab {
    pub(crate) ledger: Ledger,
    pub(crate) provider: Provider,
    pub(crate) tools: Toolbox,
}

impl Lab {
    pub(crate) fn new(script: impl IntoIterator<Item = Takes>) -> Self {
        let ledger = Ledger::new();
        let provider = Provider::new(&ledger.clock, script);
        let tools = toolbox(&ledger.store, &provider);
        Self {
            ledger,
            provider,
            tools,
        }
    }

    /// Another process's toolbox on the same file and provider.
    pub(crate) fn second(&self) -> Toolbox {
        toolbox(&self.ledger.reopen(), &self.provider)
    }

    /// One call, while time passes.
    pub(crate) async fn call(&self, tool: &str, name: &str) -> Reply {
        call(&self.tools, &self.ledger.clock, tool, name).await
    }

    /// One call, and what becomes of its operation by itself.
    pub(crate) async fn settle(&self, tool: &str, name: &str) -> Reply {
        let mut reply = self.call(tool, name).await;
        while reply.status() == Status::Running {
            self.pass(Duration::from_millis(250)).await;
            reply = self.look(&reply).await;
        }
        reply
    }

    pub(crate) async fn look(&self, reply: &Reply) -> Reply {
        let id = reply.operation_id().unwrap().to_string();
        let arguments = json!({ "operation_id": id });
        self.tools.call(&ada(), "get_operation", arguments).await
    }

    /// Lets time pass, and everybody act who waits for it.
    pub(crate) async fn pass(&self, time: Duration) {
        let clock = &self.ledger.clock;
        drive(clock, clock.reached(clock.monotonic() + time)).await;
    }

    pub(crate) async fn get(&self, reply: &Reply) -> serde_json::Value {
        crate::common::json(&self.look(reply).await)
    }

    pub(crate) async fn cancel(&self, reply: &Reply) -> Reply {
        let id = reply.operation_id().unwrap().to_string();
        let arguments = json!({ "operation_id": id });
        self.tools.call(&ada(), "cancel_operation", arguments).await
    }
}

pub(crate) fn toolbox(store: &SqliteStore, provider: &Provider) -> Toolbox {
    Toolbox::builder(store.clone())
        .without_authorization()
        .state(provider.clone())
        .tool::<deploy_by_key>()
        .tool::<deploy_by_asking>()
        .tool::<deploy_by_hand>()
        .build()
        .unwrap()
}

pub(crate) fn arguments(name: &str) -> serde_json::Value {
    json!({ "idempotency_key": key(name), "image": marked("web:7") })
}

pub(crate) async fn call(tools: &Toolbox, clock: &PacedClock, tool: &str, name: &str) -> Reply {
    drive(clock, tools.call(&ada(), tool, arguments(name))).await
}
