//! What of external operations an operator has to know, and no caller is told.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use crate::{
    effect::external::recovery::Recovery,
    operation::{
        id::OperationId,
        record::{AttemptOutcome, Record},
        state::{Failed, Operation, Origin, State},
    },
};

/// Something that happened to an external operation, and that nobody else is told of.
///
/// [`on_incident`](crate::ToolboxBuilder::on_incident) is told of each, and an error line is
/// logged. It holds no argument, key or result.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Incident {
    /// The operation, as `get_operation` and [`Resolution`](crate::Resolution) know it.
    pub operation_id: OperationId,
    /// The tool's name, without the version.
    pub tool: String,
    /// The tool's version that recorded it.
    pub version: u32,
    /// How many attempts had begun.
    pub attempts: u32,
    /// What happened.
    pub kind: IncidentKind,
}

/// What happened to an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IncidentKind {
    /// An enqueued operation's outcome is unknown, and the server won't look again by itself.
    OutcomeUnknown,
    /// An enqueued operation failed: it was refused, or it was tried for as long as it ever is.
    Failed,
    /// An enqueued operation was never sent: its retention ended first.
    Unsent,
    /// A success came after the operation had failed or was cancelled. It has succeeded now:
    /// whoever acted on the failure acted on something wrong.
    Overruled {
        /// Whether it was told to be cancelled; failed otherwise.
        was_cancelled: bool,
        /// The person who had settled it, as [`Resolution::by`](crate::Resolution::by) says.
        settled_by: Option<String>,
    },
    /// Two attempts succeeded, and the provider doesn't know the second for the first: the
    /// effect may be there twice. The first result stays.
    SucceededTwice {
        /// The person who had settled it, as [`Resolution::by`](crate::Resolution::by) says.
        settled_by: Option<String>,
    },
    /// A success came after the operation's key had expired, or its row was gone: the effect
    /// exists, and the ledger can't say so any more.
    SuccessTooLate,
}

impl Incident {
    pub(crate) fn of(record: &Record, kind: IncidentKind) -> Self {
        Self {
            operation_id: record.operation_id,
            tool: record.tool.to_string(),
            version: record.version,
            attempts: record.operation.attempts,
            kind,
        }
    }

    /// One error line.
    fn log(&self) {
        let operation_id = self.operation_id;
        let (tool, version, attempts) = (&*self.tool, self.version, self.attempts);
        let nobody = "nobody";
        match &self.kind {
            IncidentKind::OutcomeUnknown => tracing::error!(
                %operation_id, tool, version, attempts,
                "the outcome of an enqueued operation is unknown, and the server asks no more; \
                 find out what happened and settle it"
            ),
            IncidentKind::Failed => tracing::error!(
                %operation_id, tool, version, attempts,
                "an enqueued operation failed; enqueue it again with a new key if it is to be"
            ),
            IncidentKind::Unsent => tracing::error!(
                %operation_id, tool, version, attempts,
                "an enqueued operation ended without being sent; register its tool, and enqueue \
                 it again with a new key if it is to be"
            ),
            IncidentKind::Overruled {
                was_cancelled,
                settled_by,
            } => tracing::error!(
                %operation_id, tool, version, attempts,
                overruled = if *was_cancelled { "cancelled" } else { "failed" },
                settled_by = settled_by.as_deref().unwrap_or(nobody),
                "an operation has succeeded after another end was told of it; look whether \
                 somebody acted on that"
            ),
            IncidentKind::SucceededTwice { settled_by } => tracing::error!(
                %operation_id, tool, version, attempts,
                overruled = "not applied",
                settled_by = settled_by.as_deref().unwrap_or(nobody),
                "two attempts of an operation have succeeded; look whether its effect is there \
                 twice"
            ),
            IncidentKind::SuccessTooLate => tracing::error!(
                %operation_id, tool, version, attempts,
                "an attempt has succeeded after its operation was forgotten; its effect exists"
            ),
        }
    }
}

/// An operation before a decision.
pub(crate) struct Before {
    operation: Operation,
    is_given_up: bool,
    successes: usize,
    settled_by: Option<String>,
}

impl Before {
    pub(crate) fn of(record: &Record) -> Self {
        Self {
            operation: record.operation.clone(),
            is_given_up: is_given_up(record),
            successes: successes(record),
            settled_by: record.resolved.as_ref().map(|(by, _)| by.to_string()),
        }
    }

    /// Whether the decision has changed anything that is told of.
    pub(crate) fn differs(&self, after: &Record) -> bool {
        self.operation != after.operation
            || self.is_given_up != is_given_up(after)
            || self.successes != successes(after)
    }

    /// What of the decision an operator is told.
    pub(crate) fn incident(self, after: &Record, recovery: Recovery) -> Option<Incident> {
        let kind = match (self.operation.state, after.operation.state) {
            (State::Failed(_) | State::Cancelled, State::Succeeded) => IncidentKind::Overruled {
                was_cancelled: self.operation.state == State::Cancelled,
                settled_by: self.settled_by,
            },
            (_, State::Succeeded) => {
                let deduplicates = matches!(recovery, Recovery::ProviderKey { .. });
                let again = self.successes < successes(after) && 1 < successes(after);
                if deduplicates || !again {
                    return None;
                }
                IncidentKind::SucceededTwice {
                    settled_by: self.settled_by,
                }
            }
            (before, State::Failed(now)) if after.operation.origin == Origin::Enqueued => {
                if matches!(before, State::Failed(was) if was == now) {
                    return None;
                }
                IncidentKind::Failed
            }
            (_, State::OutcomeUnknown) if after.operation.origin == Origin::Enqueued => {
                if self.is_given_up || !is_given_up(after) {
                    return None;
                }
                IncidentKind::OutcomeUnknown
            }
            (
                _,
                State::Accepted
                | State::Attempting
                | State::Between
                | State::CancelRequested
                | State::OutcomeUnknown
                | State::Failed(Failed::Refused | Failed::NothingApplied)
                | State::Cancelled,
            ) => return None,
        };
        Some(Incident::of(after, kind))
    }
}

fn is_given_up(record: &Record) -> bool {
    record.operation.state == State::OutcomeUnknown && record.due_at.is_none()
}

fn successes(record: &Record) -> usize {
    let outcomes = record.attempts.iter().map(|attempt| attempt.outcome);
    outcomes
        .filter(|outcome| *outcome == AttemptOutcome::Succeeded)
        .count()
}

/// Whom the application has told of incidents, as the toolbox keeps it.
#[derive(Clone, Default)]
pub(crate) struct IncidentObserver(Option<Arc<Observe>>);

type Observe = dyn Fn(&Incident) + Send + Sync;

impl IncidentObserver {
    pub(crate) fn new(observe: impl Fn(&Incident) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(observe)))
    }

    /// Logs an incident and tells of it; a panic there must not end what is under way.
    pub(crate) fn tell(&self, incident: &Incident) {
        incident.log();
        let Some(observe) = &self.0 else {
            return;
        };
        if catch_unwind(AssertUnwindSafe(|| observe(incident))).is_err() {
            tracing::error!("the application's `on_incident` panicked");
        }
    }
}

impl fmt::Debug for IncidentObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IncidentObserver")
    }
}
