//! The worker: takes up what nobody else will.
//!
//! It finds expired leases, dispatches what was enqueued, and asks about what is unknown, at
//! growing intervals up to a horizon. It also tells this process's runs what another process
//! was asked to stop. For a call it sends nothing once the call's own
//! deadline is over: that takes the same key again.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    clock::Clock,
    effect::external::{
        budget::Budget,
        decide::{Seen, Terms, is_held, is_over},
        decided::{Undecided, decide_on, recorded_arguments},
        executor::Executor,
        run::{Plan, Run},
        tool::ExternalTool,
    },
    ledger_time::MARGIN,
    operation::{
        id::OperationId,
        record::Record,
        state::{By, Origin, State},
    },
    request::{caller::Caller, scope::Scope},
    store::DuePlace,
};

/// The rest between two looks at what is due: other processes record operations too.
const POLL: Duration = Duration::from_millis(500);

/// How many operations are taken up at a time.
const AT_A_TIME: usize = 64;

/// How many times as many are looked at for them: those of tools that this toolbox doesn't
/// have stay due, and must not stand before the others for ever.
const LOOKS: usize = 16;

/// How many runs' operations are read at a time, for what was asked of them elsewhere.
const HEARD_AT_A_TIME: usize = 256;

/// Starts the worker; it ends with the executor.
pub(crate) fn start(executor: &Arc<Executor>) {
    let clock = Arc::clone(executor.clock());
    let worker = work(Arc::downgrade(executor), clock);
    executor.runtime.spawn(worker);
}

async fn work(executor: Weak<Executor>, clock: Arc<dyn Clock>) {
    let (mut from, mut told) = (None, None);
    while let Some(executor) = executor.upgrade() {
        if executor.is_stopping() {
            return;
        }
        told = hear(&executor, told).await;
        from = pass(&executor, from).await;
        drop(executor);
        let next = clock.monotonic().saturating_add(POLL);
        clock.reached(next).await;
    }
}

/// Tells the runs of this process, from behind `told` on, what was asked of their operations
/// in another one; returns the last that was looked at, if there are more.
async fn hear(executor: &Executor, told: Option<OperationId>) -> Option<OperationId> {
    let mut untold = executor.untold();
    untold.retain(|id| told.is_none_or(|told| told < *id));
    untold.sort_unstable();
    let more = HEARD_AT_A_TIME < untold.len();
    untold.truncate(HEARD_AT_A_TIME);
    for id in &untold {
        match executor.backend.load(*id).await {
            Ok(Some(record)) if is_to_stop(&record) => executor.signal_cancel(*id),
            Ok(_) => (),
            Err(error) => {
                tracing::warn!(%error, operation_id = %id, "an operation can't be read");
            }
        }
    }
    untold.pop().filter(|_| more)
}

/// Whether nothing more is to be sent, whoever says so.
fn is_to_stop(record: &Record) -> bool {
    record.operation.cancel || record.operation.state == State::Succeeded
}

/// Takes up what is due behind `from`; returns from where the next pass goes on, if this one
/// has not come to the end.
async fn pass(executor: &Arc<Executor>, mut from: Option<DuePlace>) -> Option<DuePlace> {
    let now = executor.now();
    let mut taken_up = 0;
    for _ in 0..LOOKS {
        let due = match executor.backend.due(now, from, AT_A_TIME).await {
            Ok(due) => due,
            Err(error) => {
                tracing::warn!(%error, "what is due can't be read; the worker looks again");
                return from;
            }
        };
        for operation in &due {
            if executor.is_stopping() || taken_up == AT_A_TIME {
                return from;
            }
            from = Some(operation.place);
            let id = operation.operation_id;
            if executor.tool(&operation.tool, operation.version).is_some() && !executor.has_run(id)
            {
                taken_up += 1;
                take_up(executor, id).await;
            }
        }
        if due.len() < AT_A_TIME {
            return None;
        }
    }
    from
}

/// Recovers one operation as far as a worker may.
async fn take_up(executor: &Arc<Executor>, id: OperationId) {
    let record = match executor.backend.load(id).await {
        Ok(Some(record)) => record,
        Ok(None) => return,
        Err(error) => {
            tracing::warn!(%error, operation_id = %id, "an operation can't be read");
            return;
        }
    };
    let Some(tool) = executor.tool(&record.tool, record.version).cloned() else {
        return; // Another process has the tool, or the operation waits for it.
    };
    // What a newer build recorded waits for one, but a lost attempt is given up here as well.
    let runs = tool.knows_arguments_of(&record);
    if !runs && !is_held(record.operation.state) {
        return;
    }
    let Some(record) = claim(executor, &tool, record).await else {
        return;
    };
    executor.observe(&record);
    if runs {
        recover(executor, &tool, record);
    }
}

/// Takes the operation, so that no other worker does at the same time.
async fn claim(executor: &Executor, tool: &Arc<ExternalTool>, record: Record) -> Option<Record> {
    let (terms, now) = (Terms::of(tool), executor.moment());
    let (seen, due_at) = (Seen::of(&record), record.due_at);
    let decided = decide_on(
        executor,
        record.operation_id,
        Box::new(move |record| match record.operation.state {
            State::Attempting | State::Between | State::CancelRequested => {
                terms.expire(record, seen, now)
            }
            State::Accepted if Terms::is_past_horizon(record, now.ledger) => {
                terms.end_run(record, record.operation.attempts, now)
            }
            State::Accepted
            | State::OutcomeUnknown
            | State::Succeeded
            | State::Failed(_)
            | State::Cancelled => terms.claim(record, due_at, now),
        }),
    );
    match decided.await {
        Ok(record) => Some(record),
        Err(Undecided::Refused(..) | Undecided::Gone) => None,
        Err(Undecided::Storage(error) | Undecided::Unknown(error)) => {
            tracing::warn!(%error, "an operation can't be taken up; the worker looks again");
            None
        }
    }
}

fn recover(executor: &Arc<Executor>, tool: &Arc<ExternalTool>, record: Record) {
    let now = executor.now();
    let stands_for_caller = match record.operation.origin {
        Origin::Enqueued => true,
        Origin::Call => record.latest_at <= now.plus(MARGIN) && now < record.run_until,
    };
    if record.has_expired(now) {
        return;
    }
    let waits = match (record.operation.state, record.operation.origin) {
        (State::Accepted, Origin::Enqueued) | (State::OutcomeUnknown, _) => true,
        // A direct call that was not dispatched is taken up by its key alone.
        (
            State::Accepted
            | State::Attempting
            | State::Between
            | State::CancelRequested
            | State::Succeeded
            | State::Failed(_)
            | State::Cancelled,
            _,
        ) => false,
    };
    if !waits {
        return;
    }
    let budget = match record.operation.origin {
        Origin::Enqueued => tool.deadline,
        Origin::Call if stands_for_caller => now.until(record.run_until).min(tool.deadline),
        Origin::Call => tool.declared.attempt_timeout,
    };
    start_recovery(executor, tool, record, budget, stands_for_caller);
}

/// Starts a run on what the record holds alone.
pub(crate) fn start_recovery(
    executor: &Arc<Executor>,
    tool: &Arc<ExternalTool>,
    record: Record,
    lasts: Duration,
    may_send: bool,
) {
    let (Some(scope), Some(arguments)) =
        (Scope::from_text(&record.scope), recorded_arguments(&record))
    else {
        tracing::error!(
            operation_id = %record.operation_id,
            "an operation's scope or request can't be read; the ledger was changed from outside"
        );
        return;
    };
    let declared = tool.declared;
    let ends = executor.clock().monotonic().saturating_add(lasts);
    let id = record.operation_id;
    let plan = Plan {
        tool: Arc::clone(tool),
        caller: Caller::new(scope),
        arguments,
        budget: Budget::new(
            ends,
            declared.attempt_timeout,
            declared.max_attempts,
            declared.backoff,
        ),
        run_until: record.run_until,
        may_send,
        by: match record.operation.origin {
            Origin::Call => By::Key,
            Origin::Enqueued => By::Itself,
        },
        record,
    };
    executor.start(move |parts| Run::new(parts, plan), id);
}

/// Whether nobody has the operation, though its state says so.
pub(crate) fn is_abandoned(executor: &Executor, record: &Record) -> bool {
    !executor.has_run(record.operation_id) && is_over(record, executor.now())
}
