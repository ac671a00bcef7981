//! What a ledger retains of an external operation.

use std::{fmt, sync::Arc};

use serde_json::value::RawValue;

use crate::{
    clock::Timestamp,
    operation::{
        id::{AttemptId, OperationId},
        identity::Identity,
        state::Operation,
    },
    request::{arguments::fingerprint::Fingerprint, registered::Registered, tags::Tags},
};

/// An external operation as it is recorded.
#[derive(Clone)]
pub(crate) struct Record {
    pub(crate) operation_id: OperationId,
    /// The scope's text form.
    pub(crate) scope: Arc<str>,
    /// The operation's name, without its version.
    pub(crate) tool: Arc<str>,
    pub(crate) version: u32,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) operation: Operation,
    /// The normalized arguments as JSON, for as long as an attempt may need them.
    pub(crate) request: Option<Box<str>>,
    /// What the authorizer gave at the acceptance; `None` if that was before tags were kept.
    pub(crate) tags: Option<Tags>,
    pub(crate) first_attempt_at: Option<Timestamp>,
    /// The latest time that was recorded of it.
    pub(crate) latest_at: Timestamp,
    /// While an attempt or a run is under way: whose, and until when nobody else takes over.
    pub(crate) lease: Option<Lease>,
    /// The end of the run's budget by the time of day.
    pub(crate) run_until: Timestamp,
    /// When a worker looks at it next.
    pub(crate) due_at: Option<Timestamp>,
    /// How often a worker has looked since it last changed.
    pub(crate) checks: u32,
    pub(crate) attempts: Vec<AttemptRecord>,
    pub(crate) result: Option<Box<RawValue>>,
    pub(crate) error: Option<RecordedError>,
    /// Who settled it by hand, and why.
    pub(crate) resolved: Option<(Box<str>, Box<str>)>,
    /// From when its key is refused, and from when it is forgotten; unset until it is final.
    pub(crate) ends: Option<Ends>,
}

/// The times that are fixed when an operation becomes final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) expires_at: Timestamp,
    pub(crate) forget_at: Timestamp,
}

/// Who has an operation. A lease always ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease {
    /// Made anew at each start of a process, so that nobody is taken for somebody else.
    pub(crate) owner: [u8; 16],
    pub(crate) began: Timestamp,
    pub(crate) until: Timestamp,
}

/// One attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AttemptRecord {
    pub(crate) number: u32,
    pub(crate) attempt_id: AttemptId,
    pub(crate) started_at: Timestamp,
    pub(crate) outcome: AttemptOutcome,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptOutcome {
    /// It has not been heard of.
    Unreported,
    Succeeded,
    Refused,
    NotApplied,
    Ambiguous,
}

/// A failure as it is retained and told.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RecordedError {
    pub(crate) code: Box<str>,
    pub(crate) message: Box<str>,
}

/// An operation to be recorded, before anything of it happens.
#[derive(Debug, Clone)]
pub(crate) struct NewOperation {
    pub(crate) identity: Identity,
    pub(crate) version: u32,
    pub(crate) contract: Arc<Registered>,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) request: Box<str>,
    pub(crate) tags: Tags,
    pub(crate) operation_id: OperationId,
    pub(crate) operation: Operation,
    pub(crate) accepted_at: Timestamp,
    pub(crate) run_until: Timestamp,
    pub(crate) due_at: Option<Timestamp>,
}

impl AttemptOutcome {
    pub(crate) const ALL: [Self; 5] = [
        Self::Unreported,
        Self::Succeeded,
        Self::Refused,
        Self::NotApplied,
        Self::Ambiguous,
    ];

    /// The name under which it is recorded and told.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unreported => "unreported",
            Self::Succeeded => "succeeded",
            Self::Refused => "refused",
            Self::NotApplied => "not_applied",
            Self::Ambiguous => "ambiguous",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|outcome| outcome.as_str() == name)
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("operation_id", &self.operation_id)
            .field("tool", &self.tool)
            .field("version", &self.version)
            .field("operation", &self.operation)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RecordedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedError")
            .field("code", &self.code)
            .finish_non_exhaustive()
    }
}
