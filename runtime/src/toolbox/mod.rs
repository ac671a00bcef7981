//! The registry of tools and the way of one call, readable top to bottom in [`Inner::answer`].

mod builder;
mod error;
mod external;
#[cfg(feature = "rmcp")]
pub(crate) mod operations;
mod permission;
mod registered;
mod typed;

use std::{
    collections::BTreeMap,
    fmt, future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use serde_json::{Map, Value};
use tracing::Instrument;

pub use self::{
    builder::ToolboxBuilder,
    error::BuildError,
    typed::{CallError, Completed},
};
use self::{
    external::ExternalCall,
    registered::{Group, Kind, Version},
};
use crate::{
    effect::{
        external::{executor::Executor, outbox::Outbox},
        failure::FailureObserver,
        transactional::{Executed, RunError, TransactionalCall},
    },
    operation::{
        decision::{Decision, Known, decide, recall},
        id::OperationId,
        identity::Identity,
        stored::{Receipt, Stored},
    },
    reply::{
        GET_OPERATION, Reply, describe::ToolDescription, rejection::Rejection, validate::ReplyCheck,
    },
    request::{
        arguments::{InvalidArguments, as_object, fingerprint::Fingerprint},
        caller::Caller,
        carrier::{CarriedKeys, KeyPlace},
        key::IdempotencyKey,
    },
    store::{Backend, BoxFuture, Prospect, Store, StoreError, Wait},
    tool::State,
};

/// When to come back after `busy`: the queue was full or a lock was held until the deadline.
const RETRY_AFTER_BUSY: Duration = Duration::from_millis(250);

/// The tools of an application, ready to be called.
///
/// Clones are cheap and share everything.
#[derive(Clone)]
pub struct Toolbox {
    inner: Arc<Inner>,
}

struct Inner {
    backend: Arc<dyn Backend>,
    groups: BTreeMap<Arc<str>, Group>,
    state: Arc<State>,
    failures: FailureObserver,
    /// What is listed, the toolbox's own tools included, by name.
    listing: BTreeMap<String, ToolDescription>,
    /// The checks of the toolbox's own tools' replies.
    #[allow(
        clippy::zero_sized_map_values,
        reason = "the check is empty but in tests"
    )]
    own_checks: BTreeMap<&'static str, ReplyCheck>,
    /// Present if an external tool is registered.
    executor: Option<Arc<Executor>>,
    outbox: Arc<Outbox>,
    key_place: KeyPlace,
}

impl Toolbox {
    /// Starts a toolbox on `store`.
    pub fn builder<S: Store>(store: S) -> ToolboxBuilder<S> {
        ToolboxBuilder::new(store)
    }

    /// What to list: one entry per tool, of its highest version, sorted by name.
    #[must_use]
    pub fn list(&self) -> impl ExactSizeIterator<Item = &ToolDescription> {
        self.inner.listing.values()
    }

    /// The entry of [`list`](Self::list) with this name.
    #[must_use]
    pub fn describe(&self, tool: &str) -> Option<&ToolDescription> {
        self.inner.listing.get(tool)
    }

    /// Calls `tool` with its arguments and `idempotency_key` in one object.
    ///
    /// The answer is always a [`Reply`], rejections included. Dropping the future drops
    /// a call that has not begun; one that has begun commits, and the same key replays it.
    ///
    /// It needs no particular runtime: the store ends the wait at the tool's deadline.
    pub async fn call(&self, caller: &Caller, tool: &str, arguments: Value) -> Reply {
        self.inner
            .call(caller, tool, Input::whole(arguments), Wait::Async)
            .await
    }

    /// Calls `tool` with a key that the request carries beside its `arguments`.
    ///
    /// For adapters and hosts; a key among the arguments must then be the same one. See
    /// [`call`](Self::call).
    pub async fn call_carrying(
        &self,
        caller: &Caller,
        tool: &str,
        arguments: Value,
        keys: CarriedKeys,
    ) -> Reply {
        let input = Input::Whole { arguments, keys };
        self.inner.call(caller, tool, input, Wait::Async).await
    }

    /// Calls `tool` from a thread that may block: as fast as the handler and the disk.
    ///
    /// See [`call`](Self::call). The call runs in this thread when no other one runs or
    /// waits. Don't use it in an async task: it blocks the task's thread.
    pub fn call_blocking(&self, caller: &Caller, tool: &str, arguments: Value) -> Reply {
        self.inner.block_on(caller, tool, Input::whole(arguments))
    }
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Toolbox")
            .field("tools", &self.inner.groups.keys())
            .finish_non_exhaustive()
    }
}

/// The arguments in the form they came.
enum Input {
    /// One value, with the key in it, beside it or in both places.
    Whole { arguments: Value, keys: CarriedKeys },
    /// The key apart, and the version that the caller's type names.
    Typed {
        keys: CarriedKeys,
        arguments: Value,
        version: u32,
    },
}

impl Input {
    fn whole(arguments: Value) -> Self {
        Self::Whole {
            arguments,
            keys: CarriedKeys::none(),
        }
    }
}

impl Inner {
    /// Calls from a thread that may block.
    fn block_on(self: &Arc<Self>, caller: &Caller, tool: &str, input: Input) -> Reply {
        let external = match self.groups.get(tool) {
            Some(group) => group.is_external(),
            None => true, // One of the toolbox's own tools, or none.
        };
        let Some(executor) = self.executor.as_ref().filter(|_| external) else {
            return ready(self.call(caller, tool, input, Wait::Blocking));
        };
        if let Err(error) = self.backend.refuse_reentry() {
            return Reply::rejected(tool, storage(error));
        }
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        let (inner, caller, name) = (Arc::clone(self), caller.clone(), tool.to_owned());
        executor.spawn(async move {
            let reply = inner.call(&caller, &name, input, Wait::Async).await;
            // The receiver waits until the answer comes or this task is gone.
            let _ = answer.send(reply);
        });
        answered.recv().unwrap_or_else(|_| {
            // The task is gone with its runtime: how far it came isn't known.
            tracing::error!("a call was lost with the runtime that it ran in");
            if tool == GET_OPERATION {
                return Reply::rejected(tool, Rejection::Storage { retryable: true });
            }
            Reply::outcome_unknown(tool, None, true, None)
        })
    }

    async fn call(&self, caller: &Caller, tool: &str, input: Input, wait: Wait) -> Reply {
        let Some(group) = self.groups.get(tool) else {
            if let Input::Whole { arguments, .. } = input
                && let Some(reply) = Box::pin(self.own_tool(caller, tool, arguments)).await
            {
                return reply;
            }
            return Reply::rejected(tool, Rejection::NotFound);
        };
        let span = tracing::debug_span!(
            "idempotent_tool",
            tool = &*group.name,
            operation_id = tracing::field::Empty
        );
        let answer = self
            .answer(group, caller, input, wait)
            .instrument(span.clone())
            .await;
        let reply = answer.unwrap_or_else(|rejection| Reply::rejected(tool, rejection));
        if let Some(operation_id) = reply.operation_id() {
            span.record("operation_id", tracing::field::display(operation_id));
        }
        group.reply.checked(reply)
    }

    /// The way of one call: key, authorizer, look-up, version, arguments, decision, effect.
    ///
    /// The authorizer is asked before anything is observed of the ledger, and that of the
    /// recorded version before anything is told of it. A first call is not looked up on its
    /// own: the transaction that executes it does that.
    async fn answer(
        &self,
        group: &Group,
        caller: &Caller,
        input: Input,
        wait: Wait,
    ) -> Result<Reply, Rejection> {
        let started = self.backend.clock().monotonic();
        let (key, arguments, asked) = open(group, self.key_place, input)?;
        let deadline = started.saturating_add(asked.deadline);
        let tags = self.may_call(group, asked, caller, &arguments, deadline)?;

        let identity = Identity::new(caller.scope(), &group.name, key);
        let prepared = asked.arguments.prepare(&arguments);
        let worth_a_look = prepared.is_err() || self.backend.may_know(&identity);
        let recorded = if worth_a_look {
            self.backend.find(&identity, wait).await.map_err(storage)?
        } else {
            None
        };
        let external = ExternalCall {
            caller,
            started,
            deadline,
        };
        if let Some(stored) = recorded {
            let fingerprint = prepared.map(|prepared| prepared.fingerprint);
            // The rare ways are boxed: they would make every waiting call as large as theirs.
            let recorded = self.recorded(group, asked, &arguments, fingerprint, stored, external);
            return Box::pin(recorded).await;
        }

        let prepared = prepared.map_err(Rejection::InvalidArguments)?;
        let tool = match &asked.kind {
            Kind::Transactional(tool) => tool,
            Kind::External(tool) => {
                let operation = self.call_external(
                    group, asked, tool, identity, &arguments, prepared, tags, external,
                );
                return Box::pin(operation).await;
            }
        };
        let fingerprint = prepared.fingerprint;
        let call = TransactionalCall {
            identity,
            caller: caller.clone(),
            operation_id: OperationId::generate(),
            tool: Arc::clone(tool),
            outbox: Arc::clone(&self.outbox),
            arguments: prepared.arguments,
            fingerprint,
            state: Arc::clone(&self.state),
            deadline,
            span: tracing::Span::current(),
        };
        match self.backend.execute(call, wait).await {
            Executed::Committed(receipt) => Ok(Reply::succeeded(
                receipt.operation_id,
                false,
                receipt.result,
            )),
            Executed::Found(stored) => {
                let recorded =
                    self.recorded(group, asked, &arguments, Ok(fingerprint), stored, external);
                Box::pin(recorded).await
            }
            Executed::RolledBack(RunError::Failed(failure)) => {
                self.failures.tell(&group.name, &failure);
                Ok(Reply::failed(&group.name, &failure))
            }
            Executed::RolledBack(RunError::InvalidArguments(details)) => {
                Err(Rejection::InvalidArguments(details))
            }
            Executed::Busy => Err(Rejection::Busy {
                retry_after: RETRY_AFTER_BUSY,
            }),
            Executed::DeadlineExceeded => Err(Rejection::DeadlineExceeded),
            Executed::Storage(error) => Err(storage(error)),
            Executed::Unknown(operation_id, error) => {
                tracing::error!(%error, "the answer to a commit was lost");
                Ok(Reply::outcome_unknown(
                    &group.name,
                    Some(operation_id),
                    true,
                    None,
                ))
            }
        }
    }

    /// What a call gets whose identity is recorded: a replay, or a reason why not.
    ///
    /// `prepared` is what the arguments came to under the version that was asked for.
    /// Boxed, since an external call that finds another's operation comes here again.
    fn recorded<'a>(
        &'a self,
        group: &'a Group,
        asked: &'a Version,
        arguments: &'a Map<String, Value>,
        prepared: Result<Fingerprint, InvalidArguments>,
        stored: Stored,
        call: ExternalCall<'a>,
    ) -> BoxFuture<'a, Result<Reply, Rejection>> {
        let recorded = match &stored {
            Stored::Receipt(receipt) => Some(receipt.version),
            Stored::Tombstone(version) => Some(*version),
            Stored::External(_) => None, // Its record tells, and asks.
        };
        if let Some(version) = recorded
            && let Err(refused) = self.may_learn(group, asked, version, arguments, &call)
        {
            return Box::pin(future::ready(Err(refused)));
        }
        let now = self.backend.now();
        let receipt = match recall(stored, now) {
            Known::Compare(receipt) => receipt,
            Known::External(id) => {
                return Box::pin(self.recorded_external(group, asked, arguments, id, call));
            }
            Known::Expired => return Box::pin(future::ready(Err(Rejection::KeyExpired))),
        };
        let reply = replay(group, asked, arguments, prepared, receipt);
        Box::pin(future::ready(reply))
    }
}

fn replay(
    group: &Group,
    asked: &Version,
    arguments: &Map<String, Value>,
    prepared: Result<Fingerprint, InvalidArguments>,
    receipt: Receipt,
) -> Result<Reply, Rejection> {
    let Some(executed) = group.version(receipt.version) else {
        return Err(Rejection::VersionConflict {
            recorded: receipt.version,
        });
    };
    let fingerprint = if executed.number == asked.number {
        prepared.map_err(Rejection::InvalidArguments)?
    } else {
        executed.prepare_for(asked, arguments)?.fingerprint
    };
    match decide(receipt, &fingerprint) {
        Decision::Replay {
            operation_id,
            result,
        } => Ok(Reply::succeeded(operation_id, true, result)),
        Decision::PayloadConflict => Err(Rejection::PayloadConflict),
    }
}

/// The rejection of a call that a store failed, or had no time for; the cause stays here, in
/// the log.
fn storage(error: StoreError) -> Rejection {
    let unread = error.unread;
    match unwritten(error) {
        Rejection::Storage { retryable } if unread => Rejection::Unread { retryable },
        rejection => rejection,
    }
}

/// The same for a call without a key, of which no earlier call can have been.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape that `map_err` takes"
)]
fn unwritten(error: StoreError) -> Rejection {
    let retryable = match error.prospect {
        Prospect::Busy => {
            tracing::debug!(%error, "the store was busy");
            let retry_after = RETRY_AFTER_BUSY;
            return Rejection::Busy { retry_after };
        }
        Prospect::MayPass => true,
        Prospect::Stays => false,
    };
    tracing::error!(%error, "the store failed");
    Rejection::Storage { retryable }
}

/// Takes the input apart: the key, the arguments, the version that is asked for.
fn open(
    group: &Group,
    key_place: KeyPlace,
    input: Input,
) -> Result<(IdempotencyKey, Map<String, Value>, &Version), Rejection> {
    match input {
        Input::Whole { arguments, keys } => {
            let mut arguments = as_object(arguments).map_err(Rejection::InvalidArguments)?;
            let key = keys
                .settle(key_place, &mut arguments)
                .map_err(Rejection::InvalidKey)?;
            Ok((key, arguments, &group.highest))
        }
        Input::Typed {
            keys,
            arguments,
            version,
        } => {
            let key = keys.alone().map_err(Rejection::InvalidKey)?;
            let arguments = as_object(arguments).map_err(Rejection::InvalidArguments)?;
            let asked = group.version(version).ok_or(Rejection::NotFound)?;
            Ok((key, arguments, asked))
        }
    }
}

/// The value of a future that never waits, because it was told to block instead.
fn ready(future: impl Future<Output = Reply>) -> Reply {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(reply) => reply,
        // A store that breaks its word must not be waited for: nobody would wake us.
        Poll::Pending => Reply::rejected("", Rejection::Storage { retryable: false }),
    }
}
