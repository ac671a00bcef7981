//! What an external handler works in.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use serde_json::{Value, value::RawValue};
use tokio::sync::watch;

use crate::{
    effect::external::{error::AttemptError, recovery::lease_is_over},
    operation::{
        id::{AttemptId, OperationId},
        record::{Lease, Record},
        state::State as OperationState,
    },
    panics::{Panicked, caught},
    reading::Unreadable,
    request::{arguments::InvalidArguments, caller::Caller},
    store::{Backend, Store},
    tool::{AsyncContext, AsyncHandler, Context, Effect, RunsOn, State, ToolArguments, ToolOutput},
};

/// One attempt of an external operation: the first parameter of an external tool.
///
/// It runs in a task of its own: nothing changes when the caller leaves. It is dropped at
/// its time-out, and counts as ambiguous then. Clones are cheap and are the same attempt.
#[derive(Clone)]
pub struct Attempt {
    inner: Arc<Inner>,
}

struct Inner {
    operation_id: OperationId,
    attempt_id: AttemptId,
    number: u32,
    provider_key: String,
    caller: Caller,
    lease: Lease,
    /// On the clock's monotonic axis.
    ends: Duration,
    backend: Arc<dyn Backend>,
    cancelled: watch::Receiver<bool>,
}

impl Attempt {
    pub(crate) fn new(
        record: &Record,
        attempt_id: AttemptId,
        lease: Lease,
        ends: Duration,
        caller: Caller,
        backend: Arc<dyn Backend>,
        cancelled: watch::Receiver<bool>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                operation_id: record.operation_id,
                attempt_id,
                number: record.operation.attempts,
                provider_key: record.provider_key(),
                caller,
                lease,
                ends,
                backend,
                cancelled,
            }),
        }
    }

    /// The operation's durable handle, the same in every attempt. What a provider is to know
    /// the operation by is the [`provider_key`](Self::provider_key).
    #[must_use]
    pub fn operation_id(&self) -> OperationId {
        self.inner.operation_id
    }

    /// What the provider is to know the operation by: the key to send to one that deduplicates,
    /// the reference to give to one that is to be asked later.
    ///
    /// It is the same in every attempt, and another one for every other operation; a text of
    /// 36 characters, of the form of a UUID. It is derived from the caller's scope, the tool's
    /// name and the idempotency key with a secret of the ledger, so that it is the same again
    /// after the ledger was restored from a backup. (Of an operation that was recorded by a
    /// version before there were such keys it is the operation's id.)
    #[must_use]
    pub fn provider_key(&self) -> &str {
        &self.inner.provider_key
    }

    /// This attempt's own id, for traces.
    #[must_use]
    pub fn attempt_id(&self) -> String {
        self.inner.attempt_id.to_string()
    }

    /// Which attempt of the operation this is, from 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// Who called. After a restart, and for an enqueued operation, it has the scope alone,
    /// without what [`Caller::with`] added.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.inner.caller
    }

    /// The scope's text form.
    #[must_use]
    pub fn scope(&self) -> &str {
        self.inner.caller.scope().as_str()
    }

    /// What is left of this attempt's time.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let now = self.inner.backend.clock().monotonic();
        self.inner.ends.saturating_sub(now)
    }

    /// Whether somebody asked that the operation stops; in another process, a moment ago.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.inner.cancelled.borrow()
    }

    /// Waits until somebody asks that the operation stops, in this process or another.
    ///
    /// A handler that stops says what it knows: [`AttemptError::not_applied`] only if nothing
    /// was sent, or what was sent is established to have no effect.
    pub async fn cancelled(&self) {
        let mut cancelled = self.inner.cancelled.clone();
        // The run outlives its attempt; should it not, nobody will ask any more.
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Establishes that this attempt may still send: call it right before the request leaves
    /// if something slow came before.
    ///
    /// The runtime does so before it calls the handler.
    ///
    /// # Errors
    ///
    /// As *not applied*, when the attempt's time is over, when another process has taken the
    /// operation over, when it was cancelled, or when the ledger can't be read. Nothing may
    /// be sent then.
    pub async fn check(&self) -> Result<(), AttemptError> {
        let inner = &*self.inner;
        let record = inner.backend.load(inner.operation_id).await;
        let record = record.map_err(|error| {
            AttemptError::not_applied("ledger_unreadable", "the server's storage failed")
                .with_source(error)
        })?;
        let holds = record.is_some_and(|record| {
            record.operation.state == OperationState::Attempting
                && record.operation.attempts == inner.number
        });
        // Read after the record, since reading takes time too.
        let Lease { began, until, .. } = inner.lease;
        let in_time = inner.backend.clock().monotonic() < inner.ends
            && !lease_is_over(began, until, inner.backend.now());
        if holds && in_time {
            return Ok(());
        }
        Err(AttemptError::not_applied(
            "attempt_superseded",
            "the attempt came too late and sent nothing",
        ))
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("operation_id", &self.inner.operation_id)
            .field("attempt_id", &self.inner.attempt_id)
            .field("number", &self.inner.number)
            .finish_non_exhaustive()
    }
}

pub(crate) type Outcome = Pin<Box<dyn Future<Output = Result<Box<RawValue>, AttemptError>> + Send>>;

/// A handler on [`Attempt`] with its types erased.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct AttemptHandler {
    /// Reads the arguments as the tool's own type, and drops them.
    read: fn(&Value) -> Result<(), Unreadable>,
    pub(crate) run: fn(Attempt, Arc<State>, Arc<Value>) -> Outcome,
}

impl AttemptHandler {
    /// Whether the tool's own type accepts the arguments, before anything is recorded.
    pub(crate) fn check(&self, arguments: &Value) -> Result<(), Unreadable> {
        caught(|| (self.read)(arguments))
            .unwrap_or_else(|Panicked| Err(Unreadable::new("", &"it failed unexpectedly")))
    }
}

impl Context for Attempt {
    type Handler = AttemptHandler;
}

impl AsyncContext for Attempt {
    fn erase<T: AsyncHandler<Context = Self>>() -> AttemptHandler {
        AttemptHandler {
            read: |arguments| T::Arguments::from_json(arguments).map(drop),
            run: |attempt, state, arguments| {
                Box::pin(async move {
                    let arguments = T::Arguments::from_json(&arguments).map_err(|refused| {
                        // They were accepted when they were recorded: the type has changed,
                        // and may again. Its message may quote a value.
                        AttemptError::not_applied(
                            "invalid_arguments",
                            "the tool's own type refuses the arguments that are recorded",
                        )
                        .with_source(InvalidArguments::from(refused).text())
                    })?;
                    let output = T::call(&attempt, &state, arguments).await?;
                    output.to_json().map_err(AttemptError::unwritable_result)
                })
            },
        }
    }
}

impl<S: Store> RunsOn<S> for Attempt {
    fn effect(handler: AttemptHandler) -> Effect {
        Effect::External(handler)
    }
}
