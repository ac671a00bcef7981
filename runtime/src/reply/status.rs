//! What may become of a call.

use std::fmt;

/// What became of a call, or of the operation it asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// Recorded, not yet started.
    Accepted,
    /// Started; nothing is known of its end.
    Running,
    /// Carried out; the result is recorded.
    Succeeded,
    /// Refused by the handler; nothing was changed.
    Failed,
    /// To be stopped if it still can be; the final state tells what happened.
    CancelRequested,
    /// Established as stopped before it took effect.
    Cancelled,
    /// Whether it was carried out can't be established.
    OutcomeUnknown,
    /// The call was not carried out, and nothing is recorded of it.
    Rejected,
}

impl Status {
    /// Every status, in the order of the documentation.
    pub(crate) const ALL: [Self; 8] = [
        Self::Accepted,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::CancelRequested,
        Self::Cancelled,
        Self::OutcomeUnknown,
        Self::Rejected,
    ];

    /// The status as a reply writes it, such as `outcome_unknown`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::CancelRequested => "cancel_requested",
            Self::Cancelled => "cancelled",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Rejected => "rejected",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
