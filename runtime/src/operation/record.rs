//! What a ledger retains of an external operation.

use std::{fmt, sync::Arc};

use serde_json::value::RawValue;

use crate::{
    clock::{Moment, Timestamp},
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
    /// Another number than before says that the whole ledger may have been put back.
    pub(crate) era: i64,
    /// The scope's text form.
    pub(crate) scope: Arc<str>,
    /// The operation's name, without its version.
    pub(crate) tool: Arc<str>,
    pub(crate) version: u32,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) operation: Operation,
    /// The normalized arguments as JSON, for as long as an attempt may need them.
    pub(crate) request: Option<Box<str>>,
    /// What the provider knows it by; of operations recorded before there was one, the id.
    pub(crate) provider_key: Option<Box<str>>,
    /// Until when the provider asked to wait.
    pub(crate) not_before: Option<Timestamp>,
    /// What the authorizer gave at the acceptance; `None` if that was before tags were kept.
    pub(crate) tags: Option<Tags>,
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
    /// From when its key is refused, and from when it is forgotten; unset while it may be
    /// under way or its outcome is unknown.
    pub(crate) ends: Option<Ends>,
}

/// The times that are fixed when an operation becomes final, or is left before it was sent.
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
    /// By the wall clock.
    pub(crate) started_wall: Timestamp,
    pub(crate) outcome: AttemptOutcome,
    pub(crate) called: Called,
}

/// What is known of an attempt's handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Called {
    /// It may have been called.
    Perhaps,
    /// The runtime stopped the attempt before it.
    Never,
    /// By a ledger that this one has taken the place of, under another provider key.
    Otherwise,
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
    /// When it ends if nobody takes it up.
    pub(crate) ends: Ends,
}

impl Record {
    /// Whether its key is refused at `now`, though pruning may not have come to it.
    pub(crate) fn has_expired(&self, now: Timestamp) -> bool {
        self.ends.is_some_and(|ends| ends.expires_at <= now)
    }

    /// What the provider knows the operation by.
    pub(crate) fn provider_key(&self) -> String {
        match &self.provider_key {
            Some(key) => key.to_string(),
            None => self.operation_id.to_string(),
        }
    }

    /// When the first attempt began whose handler may have been called.
    pub(crate) fn first_called(&self) -> Option<Moment> {
        let called = |attempt: &&AttemptRecord| attempt.called != Called::Never;
        self.attempts.iter().find(called).map(|first| Moment {
            ledger: first.started_at,
            wall: first.started_wall,
        })
    }
}

impl Called {
    /// The number under which it is recorded.
    pub(crate) fn as_number(self) -> Option<u8> {
        match self {
            Self::Perhaps => None,
            Self::Never => Some(0),
            Self::Otherwise => Some(2),
        }
    }

    pub(crate) fn from_number(number: Option<u8>) -> Option<Self> {
        [Self::Perhaps, Self::Never, Self::Otherwise]
            .into_iter()
            .find(|called| called.as_number() == number)
    }
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
