//! The three recoveries, with all that the attribute takes for them.

#![deny(warnings, missing_docs)]

use idempotent_tool::{
    Attempt, AttemptError, Inquiry, Reconciled, SqliteStore, Toolbox, idempotent_tool,
};

/// A client.
pub struct Client(u64);

/// Sends by key.
#[idempotent_tool(
    operation = "by_key:v1",
    provider_key(window = "24h"),
    deadline = "20s",
    attempt_timeout = "4s",
    max_attempts = 2,
    wait = "1s",
    backoff = "50ms",
    keep_request = true
)]
pub async fn by_key(
    attempt: &Attempt,
    /// To whom.
    to: String,
    #[state] client: &Client,
) -> Result<u64, AttemptError> {
    drop((attempt.provider_key().to_owned(), to));
    attempt.check().await?;
    Ok(client.0)
}

/// Sends and asks.
#[idempotent_tool(operation = "by_asking:v1", reconcile(asking::find, settle = "30s"))]
pub async fn by_asking(_attempt: &Attempt) -> Result<u64, AttemptError> {
    Ok(1)
}

mod asking {
    use super::{AttemptError, Client, Inquiry, Reconciled};

    pub async fn find(inquiry: &Inquiry) -> Result<Reconciled<u64>, AttemptError> {
        Ok(Reconciled::Applied(inquiry.state::<Client>()?.0))
    }
}

/// An error of the application's own.
pub struct Own;

impl From<Own> for AttemptError {
    fn from(Own: Own) -> Self {
        Self::ambiguous("own", "an own error")
    }
}

/// Sends once.
#[idempotent_tool(operation = "by_hand:v1", inspect = "Look at the outbox")]
pub async fn by_hand(_attempt: &Attempt, input: u64, context: bool) -> Result<u64, Own> {
    if context { Ok(input) } else { Err(Own) }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let store = SqliteStore::in_memory().unwrap();
    let tools = Toolbox::builder(store)
        .without_authorization()
        .state(Client(7))
        .tool::<by_key>()
        .tool::<by_asking>()
        .tool::<by_hand>()
        .build()
        .unwrap();
    assert_eq!(tools.list().len(), 5);
}
