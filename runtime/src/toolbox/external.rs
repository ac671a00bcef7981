//! The way of a call whose effect lies outside the database.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value};

use super::{
    Inner, Toolbox,
    registered::{Group, Kind, Version},
    storage, unwritten,
};
use crate::{
    effect::external::{
        budget::Budget,
        decide::{Seen, Terms, is_held, may_run_again},
        decided::{Undecided, decide_on, recorded_arguments},
        executor::Executor,
        incident::{Incident, IncidentKind},
        resolution::{Finding, Resolution, ResolveError},
        run::{Plan, Run},
        tool::ExternalTool,
        view, worker,
    },
    operation::{
        id::OperationId,
        identity::Identity,
        record::{NewOperation, Record, RecordedError},
        state::{self, By, Event, Failed, Operation, Origin, State},
    },
    reply::{CANCEL_OPERATION, GET_OPERATION, Reply, inspection::Inspection, rejection::Rejection},
    request::{
        arguments::{InvalidArgument, InvalidArguments, Prepared, as_object},
        caller::Caller,
        json_schema::pointer,
        tags::Tags,
    },
    store::WriteError,
};

/// How soon another process's change is seen.
const POLL: Duration = Duration::from_millis(100);

/// One call, as far as its external operation needs it.
pub(super) struct ExternalCall<'a> {
    pub(super) caller: &'a Caller,
    /// When it began, on the monotonic clock.
    pub(super) started: Duration,
    /// When the budget of the version asked for ends, on that clock.
    pub(super) deadline: Duration,
}

impl Inner {
    /// A call whose identity is not known to be recorded.
    #[allow(
        clippy::too_many_arguments,
        reason = "a call's parts, each of its own kind"
    )]
    pub(super) async fn call_external(
        &self,
        group: &Group,
        asked: &Version,
        tool: &Arc<ExternalTool>,
        identity: Identity,
        arguments: &Map<String, Value>,
        prepared: Prepared,
        tags: Tags,
        call: ExternalCall<'_>,
    ) -> Result<Reply, Rejection> {
        let executor = self.executor()?;
        if executor.is_stopping() {
            return Err(Rejection::Busy {
                retry_after: super::RETRY_AFTER_BUSY,
            });
        }
        // Nothing that can't run is recorded. What is recorded is told whatever the type says
        // of it today. Each attempt reads the arguments again, which costs nothing beside its request.
        if let Err(unreadable) = tool.handler.check(&prepared.arguments) {
            let found = self.backend.find(&identity, super::Wait::Async).await;
            return match found.map_err(storage)? {
                Some(stored) => {
                    let fingerprint = Ok(prepared.fingerprint);
                    self.recorded(group, asked, arguments, fingerprint, stored, call)
                        .await
                }
                None => Err(Rejection::InvalidArguments(unreadable.into())),
            };
        }
        let now = executor.now();
        let operation_id = OperationId::generate();
        let new = NewOperation {
            identity,
            version: tool.version,
            contract: Arc::clone(&tool.contract),
            fingerprint: prepared.fingerprint,
            request: prepared.arguments.to_string().into(),
            operation_id,
            operation: Operation::accepted(Origin::Call),
            accepted_at: now,
            run_until: now.plus(tool.deadline),
            due_at: None,
            ends: Terms::of(tool).ends(now),
            tags,
        };
        let deadline = call.started.saturating_add(tool.deadline);
        let accepted = self.backend.accept(new, deadline).await;
        match accepted {
            Err(WriteError::Nothing(error)) => Err(storage(error)),
            // Nothing was sent, and nothing will be without another call.
            Err(WriteError::Unknown(error)) => {
                tracing::error!(%error, %operation_id, "the answer to a commit was lost");
                let id = Some(operation_id);
                Ok(Reply::outcome_unknown(&tool.name, id, true, None))
            }
            Ok(None) => {
                let attended = self.attend(tool, operation_id, Arc::new(prepared.arguments), &call);
                attended.await
            }
            Ok(Some(stored)) => {
                let fingerprint = Ok(prepared.fingerprint);
                self.recorded(group, asked, arguments, fingerprint, stored, call)
                    .await
            }
        }
    }

    /// A call whose identity is recorded as an external operation.
    pub(super) async fn recorded_external(
        &self,
        group: &Group,
        asked: &Version,
        arguments: &Map<String, Value>,
        operation_id: OperationId,
        call: ExternalCall<'_>,
    ) -> Result<Reply, Rejection> {
        let executor = self.executor()?;
        let record = self.backend.load(operation_id).await.map_err(storage)?;
        let Some(record) = record else {
            return Err(Rejection::KeyExpired); // It was pruned since it was found.
        };
        self.may_learn(group, asked, record.version, arguments, &call)?;
        if record.has_expired(executor.now()) {
            return Err(Rejection::KeyExpired);
        }
        let conflict = Rejection::VersionConflict {
            recorded: record.version,
        };
        let Some(executed) = group.version(record.version) else {
            return Err(conflict);
        };
        let Kind::External(tool) = &executed.kind else {
            return Err(conflict); // The version was external when it was recorded.
        };
        let prepared = executed.prepare_for(asked, arguments)?;
        if !record.fingerprint.is_of(&prepared.fingerprint) {
            return Err(Rejection::PayloadConflict);
        }
        self.attend(tool, operation_id, Arc::new(prepared.arguments), &call)
            .await
    }

    /// Has the operation run if it may, and waits for it as long as the tool says.
    async fn attend(
        &self,
        tool: &Arc<ExternalTool>,
        operation_id: OperationId,
        arguments: Arc<Value>,
        call: &ExternalCall<'_>,
    ) -> Result<Reply, Rejection> {
        let executor = self.executor()?;
        let clock = executor.clock();
        let until = call.started.saturating_add(tool.declared.wait);
        // What this call did itself is not replayed; it starts one run at most.
        let mut started = false;
        let mut waited = false;
        loop {
            let changes = executor.changes(operation_id);
            let record = match self.backend.load(operation_id).await {
                Ok(record) => record,
                // It is recorded, and may have been sent: `storage` would say that nothing was.
                Err(error) => {
                    tracing::error!(%error, %operation_id, "an operation can't be read");
                    let id = Some(operation_id);
                    return Ok(Reply::outcome_unknown(&tool.name, id, true, None));
                }
            };
            let Some(mut record) = record else {
                return Err(Rejection::KeyExpired);
            };
            executor.observe(&record);
            let alone = changes.is_none() && !executor.has_run(operation_id);
            if is_held(record.operation.state)
                && worker::is_abandoned(executor, &record)
                && let Some(now) = expire(executor, tool, &record).await
            {
                record = now; // Or it was heard of after all.
            }
            // The failure of a run that it has waited for is its answer, as it is the run's
            // own caller's.
            let failed = record.operation.state == State::Failed(Failed::NothingApplied);
            let may_start = may_start(tool, &record) && !(waited && failed);
            // What a newer build recorded waits for one.
            let may_start = alone && !started && may_start && tool.knows_arguments_of(&record);
            if may_start && !executor.is_stopping() {
                started = true;
                start(executor, tool, record, Arc::clone(&arguments), call);
                continue;
            }
            let ended = match record.operation.state {
                State::Succeeded | State::Failed(Failed::Refused) | State::Cancelled => true,
                // A run of this process may be about to change it.
                State::Accepted | State::OutcomeUnknown | State::Failed(Failed::NothingApplied) => {
                    alone
                }
                State::Attempting | State::Between | State::CancelRequested => false,
            };
            if ended || until <= clock.monotonic() {
                return Ok(told(executor, tool, &record, !started));
            }
            executor.wait_for_change(changes, until, POLL).await;
            waited = true;
        }
    }

    /// Answers the toolbox's own tools; `None` if `tool` is none of them.
    pub(super) async fn own_tool(
        &self,
        caller: &Caller,
        tool: &str,
        arguments: Value,
    ) -> Option<Reply> {
        let executor = self.executor.as_ref()?;
        let answer = match tool {
            GET_OPERATION => self.get_operation(executor, caller, arguments).await,
            CANCEL_OPERATION => self.cancel_operation(executor, caller, arguments).await,
            _ => return None,
        };
        let reply = answer.unwrap_or_else(|rejection| Reply::rejected(tool, rejection).about(None));
        Some(match self.own_checks.get(tool) {
            Some(check) => check.checked(reply),
            None => reply,
        })
    }

    async fn get_operation(
        &self,
        executor: &Executor,
        caller: &Caller,
        arguments: Value,
    ) -> Result<Reply, Rejection> {
        let id = operation_id(arguments)?;
        let (record, tool) = self.visible(executor, caller, id, false).await?;
        let reply = told(executor, &tool, &record, true);
        Ok(reply.about(Some(Inspection::of(&record, executor.moment()))))
    }

    async fn cancel_operation(
        &self,
        executor: &Executor,
        caller: &Caller,
        arguments: Value,
    ) -> Result<Reply, Rejection> {
        let id = operation_id(arguments)?;
        let (record, tool) = self.visible(executor, caller, id, true).await?;
        let id = record.operation_id;
        let (terms, now) = (Terms::of(&tool), executor.moment());
        let decided = decide_on(
            executor,
            id,
            Box::new(move |record| terms.cancel(record, now)),
        );
        let record = match decided.await {
            Ok(record) => {
                executor.signal_cancel(id);
                record
            }
            // It has ended, and stays as it is.
            Err(Undecided::Refused(_, record)) => *record,
            Err(Undecided::Gone) => return Err(Rejection::NoSuchOperation),
            Err(Undecided::Storage(error)) => return Err(unwritten(error)),
            Err(Undecided::Unknown(error)) => {
                tracing::error!(%error, operation_id = %id, "the answer to a commit was lost");
                let again = format!("Call {CANCEL_OPERATION} again with operation_id {id}");
                let unknown = Reply::outcome_unknown(&tool.name, Some(id), true, Some(again));
                return Ok(unknown.about(None));
            }
        };
        Ok(view::reply(&tool, &record, true, now).about(None))
    }

    /// The operation, if the caller may know of it. All that keeps it from that sounds alike.
    pub(super) async fn visible(
        &self,
        executor: &Executor,
        caller: &Caller,
        id: Option<OperationId>,
        to_cancel: bool,
    ) -> Result<(Record, Arc<ExternalTool>), Rejection> {
        let started = executor.clock().monotonic();
        let id = id.ok_or(Rejection::NoSuchOperation)?;
        let record = self.backend.load(id).await.map_err(unwritten)?;
        let record = record.ok_or(Rejection::NoSuchOperation)?;
        if *record.scope != *caller.scope().as_str() {
            return Err(Rejection::NoSuchOperation);
        }
        if record.has_expired(executor.now()) {
            return Err(Rejection::NoSuchOperation); // Pruning has not come to it yet.
        }
        let group = self.groups.get(&*record.tool);
        let tool = executor.tool(&record.tool, record.version);
        let (Some(group), Some(tool)) = (group, tool) else {
            return Err(Rejection::NoSuchOperation);
        };
        let deadline = started.saturating_add(tool.declared.wait);
        self.may_reach(group, &record, caller, to_cancel, deadline)?;
        Ok((record, Arc::clone(tool)))
    }

    pub(super) fn executor(&self) -> Result<&Arc<Executor>, Rejection> {
        // `build()` makes one for every toolbox with an external tool.
        self.executor.as_ref().ok_or(Rejection::NotFound)
    }
}

impl Toolbox {
    /// Settles an operation whose outcome is unknown, by what a person has found out. A success
    /// is recorded of one that failed or was cancelled as well, and overrules that.
    ///
    /// It asks no authorizer: it is for the operator of the server, and no tool calls it.
    ///
    /// # Errors
    ///
    /// When the finding is no success and the outcome is not unknown (any more); when the
    /// operation has succeeded or its key has expired; when the finding doesn't cover the
    /// attempts that have begun; or when the result doesn't fit the tool's schema.
    pub async fn resolve(&self, resolution: Resolution) -> Result<Reply, ResolveError> {
        let executor = self.inner.executor.as_ref().ok_or(ResolveError::NotFound)?;
        let id = resolution.operation_id;
        let record = self.inner.backend.load(id).await?;
        let record = record.ok_or(ResolveError::NotFound)?;
        let tool = executor
            .tool(&record.tool, record.version)
            .ok_or(ResolveError::NotRegistered)?;
        let (kind, result, error) = match resolution.finding {
            Finding::Succeeded(result) => {
                let result = serde_json::value::to_raw_value(&result).map_err(|_| {
                    let message = "the result can't be written as JSON";
                    let failure = crate::Failure::new("result_not_serializable", message);
                    ResolveError::InvalidResult(failure)
                })?;
                tool.check_result(&result)
                    .map_err(ResolveError::InvalidResult)?;
                (state::Resolution::Succeeded, Some(result), None)
            }
            Finding::Failed { code, message } => {
                let error = RecordedError {
                    code: code.into(),
                    message: message.into(),
                };
                (state::Resolution::Failed, None, Some(error))
            }
            Finding::NotApplied => (state::Resolution::NotApplied, None, None),
        };
        let (terms, now) = (Terms::of(tool), executor.moment());
        let seen = resolution.attempts;
        let (by, why): (Box<str>, Box<str>) = (resolution.by.into(), resolution.why.into());
        let decided = decide_on(
            executor,
            id,
            Box::new(move |record| {
                let event = Event::Resolve {
                    seen,
                    resolution: kind,
                };
                terms.step(record, event, now)?;
                record.result.clone_from(&result);
                record.error.clone_from(&error);
                record.resolved = Some((by.clone(), why.clone()));
                Ok(())
            }),
        );
        match decided.await {
            Ok(record) => Ok(view::reply(tool, &record, true, now).about(None)),
            Err(Undecided::Refused(_, record)) if record.has_expired(now.ledger) => {
                if kind == state::Resolution::Succeeded {
                    let incident = Incident::of(&record, IncidentKind::SuccessTooLate);
                    executor.incidents.tell(&incident);
                }
                Err(ResolveError::NotFound)
            }
            Err(Undecided::Refused(..)) => Err(ResolveError::MovedOn),
            Err(Undecided::Gone) => Err(ResolveError::NotFound),
            Err(Undecided::Storage(error)) => Err(ResolveError::Store(error)),
            Err(Undecided::Unknown(error)) => Err(ResolveError::Unknown(error)),
        }
    }

    /// Stops external operations: no further one begins, runs end between two attempts, and
    /// attempts under way are waited for within `bound`. Returns how many are left; what is
    /// left is recovered after the next start, or by another process.
    ///
    /// Calls of transactional tools are not affected.
    pub async fn shut_down(&self, bound: Duration) -> usize {
        match &self.inner.executor {
            Some(executor) => executor.shut_down(bound).await,
            None => 0,
        }
    }
}

/// The operation's reply. While a run of this process waits for as long as the provider asked
/// it to, the failure before is not what becomes of the operation.
pub(super) fn told(
    executor: &Executor,
    tool: &ExternalTool,
    record: &Record,
    replayed: bool,
) -> Reply {
    let (id, state) = (record.operation_id, record.operation.state);
    // The guidance goes when the attempt begins that waits for it.
    let waits = record.not_before.is_some() && executor.has_run(id);
    if waits && state == State::Failed(Failed::NothingApplied) {
        return view::running(id, replayed);
    }
    view::reply(tool, record, replayed, executor.moment())
}

/// Whether the same key has something to run: an attempt, or a question.
fn may_start(tool: &ExternalTool, record: &Record) -> bool {
    use crate::effect::external::recovery::RecoveryDeclaration as Declared;
    if may_run_again(record.operation.state) {
        return true;
    }
    match (record.operation.state, tool.declared.recovery) {
        (State::OutcomeUnknown, Declared::ProviderKey { .. }) => !record.operation.cancel,
        (State::OutcomeUnknown, Declared::Reconcile { .. }) => true,
        (State::OutcomeUnknown, Declared::Inspect { .. })
        | (
            State::Accepted
            | State::Attempting
            | State::Between
            | State::CancelRequested
            | State::Succeeded
            | State::Failed(_)
            | State::Cancelled,
            _,
        ) => false,
    }
}

/// Starts a run for a call, on the recorded arguments: what is sent again is what was sent.
fn start(
    executor: &Arc<Executor>,
    tool: &Arc<ExternalTool>,
    record: Record,
    arguments: Arc<Value>,
    call: &ExternalCall<'_>,
) {
    let declared = tool.declared;
    let ends = call.started.saturating_add(tool.deadline);
    let remains = ends.saturating_sub(executor.clock().monotonic());
    let id = record.operation_id;
    let plan = Plan {
        tool: Arc::clone(tool),
        caller: call.caller.clone(),
        arguments: recorded_arguments(&record).unwrap_or(arguments),
        budget: Budget::new(
            ends,
            declared.attempt_timeout,
            declared.max_attempts,
            declared.backoff,
        ),
        run_until: executor.now().plus(remains),
        may_send: true,
        by: By::Key,
        record,
    };
    executor.start(move |parts| Run::new(parts, plan), id);
}

/// Gives a lease up that is over; the record as it is then.
async fn expire(executor: &Executor, tool: &Arc<ExternalTool>, record: &Record) -> Option<Record> {
    let (terms, seen, now) = (Terms::of(tool), Seen::of(record), executor.moment());
    let decided = decide_on(
        executor,
        record.operation_id,
        Box::new(move |record| terms.expire(record, seen, now)),
    );
    match decided.await {
        Ok(record) => Some(record),
        Err(Undecided::Refused(_, record)) => Some(*record),
        Err(Undecided::Gone | Undecided::Storage(_) | Undecided::Unknown(_)) => None,
    }
}

/// The id in the arguments of the toolbox's own tools; `None` if it is no id at all.
fn operation_id(arguments: Value) -> Result<Option<OperationId>, Rejection> {
    let arguments = as_object(arguments).map_err(Rejection::InvalidArguments)?;
    let unknown = arguments
        .keys()
        .filter(|name| *name != "operation_id")
        .map(|name| InvalidArgument::new(&pointer("", name), "is not an argument of this tool"));
    let (id, missing) = match arguments.get("operation_id") {
        Some(Value::String(id)) => (id.parse().ok(), None),
        Some(_) => (None, Some("must be a string")),
        None => (None, Some("is missing")),
    };
    let missing = missing.map(|message| InvalidArgument::new("/operation_id", message));
    let invalid: InvalidArguments = unknown.chain(missing).collect();
    if invalid.is_empty() {
        return Ok(id);
    }
    Err(Rejection::InvalidArguments(invalid))
}
