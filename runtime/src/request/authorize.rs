//! The application's answer to: may this caller do this?

use std::{fmt, sync::Arc, time::Duration};

use serde_json::{Map, Value};

use crate::{
    clock::Clock,
    operation::id::OperationId,
    panics::{Panicked, caught},
    request::{caller::Caller, tags::Tags},
};

/// The signature of an authorizer that an attribute names with `authorize = path`.
pub type AuthorizeFn = fn(&Caller, &Asked<'_>) -> Access;

/// What an authorizer answers.
///
/// One that panics, answers after the deadline or gives more [`Tags`] than can be kept has
/// not answered: that counts as [`Unavailable`](Self::Unavailable), and is logged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "an answer that is dropped denies nothing"]
pub enum Access {
    /// The caller may.
    Allowed,
    /// The caller may, and an external operation that is accepted by this call keeps the
    /// tags. They are shown to the authorizer again when somebody inspects or cancels it;
    /// of every other question, and of a transactional tool, nothing is kept.
    Tagged(Tags),
    /// The caller may not: a call is `denied`, an inspection or cancellation `not_found`.
    Denied,
    /// It can't be established now: nothing is done, and the caller may ask again.
    Unavailable,
}

impl Access {
    /// The caller may, and an external operation keeps these tags; see [`Tags`].
    pub fn tagged<T: Into<Box<str>>>(tags: impl IntoIterator<Item = T>) -> Self {
        Self::Tagged(Tags::new(tags))
    }
}

impl From<bool> for Access {
    /// `true` allows, `false` denies.
    fn from(allowed: bool) -> Self {
        if allowed { Self::Allowed } else { Self::Denied }
    }
}

/// What a caller asks to do.
///
/// Each version of a tool has an authorizer, its own or the toolbox's. First that of the
/// version asked for is asked: the one that a typed call or `enqueue` names, otherwise the
/// highest. If the operation turns out to be of another version, that one's authorizer is
/// asked as well, before anything is told. So the `version` is the one whose authorizer is
/// asked, and both must allow.
///
/// Its `Debug` shows no argument and no tag.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Asked<'a> {
    /// To call a tool, replays included.
    #[non_exhaustive]
    Call {
        /// The tool's name.
        tool: &'a str,
        /// The version whose authorizer is asked.
        version: u32,
        /// The arguments as they came, without the idempotency key and not yet validated.
        arguments: &'a Map<String, Value>,
    },
    /// To read the state of an operation.
    #[non_exhaustive]
    Inspect {
        /// The tool's name.
        tool: &'a str,
        /// The version whose authorizer is asked.
        version: u32,
        /// The operation to read.
        operation_id: &'a OperationId,
        /// What the authorizer gave when the operation was accepted. `None` if that was
        /// before tags were kept: an authorizer that decides by them should deny.
        tags: Option<&'a Tags>,
    },
    /// To cancel an operation.
    #[non_exhaustive]
    Cancel {
        /// The tool's name.
        tool: &'a str,
        /// The version whose authorizer is asked.
        version: u32,
        /// The operation to cancel.
        operation_id: &'a OperationId,
        /// As of [`Inspect`](Self::Inspect).
        tags: Option<&'a Tags>,
    },
}

impl<'a> Asked<'a> {
    /// The name of the tool, whatever is asked of it.
    #[must_use]
    pub fn tool(&self) -> &'a str {
        match self {
            Self::Call { tool, .. } | Self::Inspect { tool, .. } | Self::Cancel { tool, .. } => {
                tool
            }
        }
    }

    /// The version of the tool whose authorizer is asked, the N of `name:vN`.
    #[must_use]
    pub fn version(&self) -> u32 {
        match self {
            Self::Call { version, .. }
            | Self::Inspect { version, .. }
            | Self::Cancel { version, .. } => *version,
        }
    }
}

impl fmt::Debug for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self {
            Self::Call { .. } => "Call",
            Self::Inspect { .. } => "Inspect",
            Self::Cancel { .. } => "Cancel",
        };
        f.debug_struct(action)
            .field("tool", &self.tool())
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

/// Why a caller may not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The authorizer says no.
    Denied,
    /// There is no answer now.
    Unavailable,
}

/// Until when an authorizer may answer, on the monotonic clock.
#[derive(Clone, Copy)]
pub(crate) struct AnswerBy<'a> {
    pub(crate) clock: &'a dyn Clock,
    pub(crate) deadline: Duration,
}

/// An authorizer as the toolbox keeps it.
#[derive(Clone)]
pub(crate) struct Authorizer(Arc<Authorize>);

type Authorize = dyn Fn(&Caller, &Asked<'_>) -> Access + Send + Sync;

impl Authorizer {
    pub(crate) fn new(
        authorize: impl Fn(&Caller, &Asked<'_>) -> Access + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(authorize))
    }

    /// The tags that come with a yes. What is no answer at all is logged, without a value.
    pub(crate) fn ask(
        &self,
        caller: &Caller,
        asked: &Asked<'_>,
        by: AnswerBy<'_>,
    ) -> Result<Tags, Refused> {
        let (tool, version) = (asked.tool(), asked.version());
        // A deadline that the call's own waits have used up is not the authorizer's.
        let in_time = by.clock.monotonic() < by.deadline;
        let access = caught(|| (self.0)(caller, asked)).map_err(|Panicked| {
            tracing::error!(tool, version, "the authorizer panicked; nothing is done");
            Refused::Unavailable
        })?;
        if in_time && by.deadline <= by.clock.monotonic() {
            tracing::error!(
                tool,
                version,
                "the authorizer answered after the deadline; nothing is done"
            );
            return Err(Refused::Unavailable);
        }
        match access {
            Access::Allowed => Ok(Tags::default()),
            Access::Tagged(tags) => tags.within_limits().map_err(|error| {
                tracing::error!(
                    tool,
                    version,
                    %error,
                    "the authorizer gives more tags than can be kept; nothing is done"
                );
                Refused::Unavailable
            }),
            Access::Denied => Err(Refused::Denied),
            Access::Unavailable => Err(Refused::Unavailable),
        }
    }
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorizer")
    }
}
