//! What is told of an external operation.

use crate::{
    clock::Moment,
    effect::external::{
        decide::{Terms, guided},
        recovery::RecoveryDeclaration,
        tool::ExternalTool,
    },
    operation::{
        id::OperationId,
        record::Record,
        state::{Failed, Origin, Resend, State},
    },
    reply::{GET_OPERATION, Reply, Status, repeat},
};

/// The operation's reply at `now`.
pub(crate) fn reply(tool: &ExternalTool, record: &Record, replayed: bool, now: Moment) -> Reply {
    let id = record.operation_id;
    let pending = |status| pending(status, id, replayed);
    match record.operation.state {
        State::Accepted => match record.operation.origin {
            Origin::Enqueued => pending(Status::Accepted),
            // Nobody has it in hand: its key alone takes it up.
            Origin::Call => Reply::pending(Status::Accepted, id, replayed, repeat(&tool.name)),
        },
        State::Attempting | State::Between => pending(Status::Running),
        State::CancelRequested => pending(Status::CancelRequested),
        State::OutcomeUnknown => {
            let (retryable, next) = unknown(tool, record, now);
            Reply::outcome_unknown(&tool.name, Some(id), retryable, Some(next))
                .with_replayed(replayed)
        }
        State::Succeeded => match &record.result {
            Some(result) => Reply::succeeded(id, replayed, result.clone()),
            // A success is recorded with its result; without it the ledger was changed.
            None => Reply::outcome_unknown(&tool.name, Some(id), false, Some(lost(record))),
        },
        State::Failed(failed) => {
            let error = record.error.as_ref();
            let told = error.map_or(
                ("nothing_applied", "the action was not carried out"),
                |error| (&*error.code, &*error.message),
            );
            let retryable = failed == Failed::NothingApplied;
            let reply = Reply::failed_operation(&tool.name, id, replayed, retryable, told);
            match guided(record, now.ledger) {
                Some(wait) if retryable => reply.retry_after_pause(wait),
                Some(_) | None => reply,
            }
        }
        State::Cancelled => Reply::cancelled(id, replayed),
    }
}

/// The reply of an operation that a run has in hand.
pub(crate) fn running(id: OperationId, replayed: bool) -> Reply {
    pending(Status::Running, id, replayed)
}

fn pending(status: Status, id: OperationId, replayed: bool) -> Reply {
    let next = format!("Call {GET_OPERATION} with operation_id {id}");
    Reply::pending(status, id, replayed, next)
}

fn lost(record: &Record) -> String {
    format!(
        "Report to the operator of the server that the result of {} is missing",
        record.operation_id
    )
}

/// Whether the same call may settle an unknown outcome, and what to do.
fn unknown(tool: &ExternalTool, record: &Record, now: Moment) -> (bool, String) {
    let id = record.operation_id;
    let instruction = tool.instruction.as_ref();
    let instruction = instruction.map(|instruction| instruction.of(record));
    match tool.declared.recovery {
        RecoveryDeclaration::Reconcile { .. } => {
            let asks = if record.due_at.is_some() {
                format!(
                    "Call {GET_OPERATION} with operation_id {id} later: the server asks the \
                     provider by itself"
                )
            } else {
                format!("{}, which asks the provider", repeat(&tool.name))
            };
            let next = match instruction {
                Some(instruction) => format!("{instruction}. {asks}"),
                None => asks,
            };
            (true, next)
        }
        RecoveryDeclaration::ProviderKey { .. }
            if !record.operation.cancel
                && Terms::of(tool).resend(record, now) == Resend::SameIdentity =>
        {
            (true, repeat(&tool.name))
        }
        RecoveryDeclaration::ProviderKey { .. } | RecoveryDeclaration::Inspect { .. } => {
            let by_hand = || {
                format!(
                    "Check with the provider whether the effect of {id} exists, and have the \
                     operator of the server settle the operation"
                )
            };
            (false, instruction.unwrap_or_else(by_hand))
        }
    }
}
