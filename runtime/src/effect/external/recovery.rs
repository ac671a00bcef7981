//! How an attempt in doubt is settled: what a tool declares, and what that allows.

use std::time::Duration;

use crate::{
    clock::{Moment, Timestamp},
    effect::external::inquiry::AskFn,
    ledger_time::MARGIN,
    operation::state::{By, Resend},
};

/// What a request may need, beyond its attempt's time-out, to reach a provider whose key
/// is about to be forgotten.
const WINDOW_MARGIN: Duration = Duration::from_secs(5);

/// How far the wall clock may be behind what is recorded before it isn't believed.
const BEHIND: Duration = Duration::from_mins(1);

/// How an external tool is tried and recovered, as its attribute says.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct ExternalDeclaration {
    /// How an attempt in doubt is settled.
    pub recovery: RecoveryDeclaration,
    /// The longest that one attempt takes.
    pub attempt_timeout: Duration,
    /// How many attempts one run makes.
    pub max_attempts: u32,
    /// How long a caller waits before it gets a handle.
    pub wait: Duration,
    /// The delay before the second attempt; it doubles from there.
    pub backoff: Duration,
    /// Whether the arguments are kept after the end.
    pub keep_request: bool,
}

/// The recovery as the attribute says it.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub enum RecoveryDeclaration {
    /// `provider_key(window = "…")`.
    ProviderKey {
        /// How long the provider knows a key.
        window: Duration,
        /// What to check past it, and where.
        instruction: Option<&'static str>,
    },
    /// `reconcile(path, settle = "…")`.
    Reconcile {
        /// The function.
        ask: Ask,
        /// How old the last send must be.
        settle: Duration,
        /// What to check while the provider can't tell, and where.
        instruction: Option<&'static str>,
    },
    /// `inspect = "…"`.
    Inspect {
        /// What to check, and where.
        instruction: &'static str,
    },
}

/// The function that a tool is reconciled by, with its types erased.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Ask(pub(crate) AskFn);

impl Ask {
    /// The function as the attribute wraps it.
    #[must_use]
    pub fn new(ask: AskFn) -> Self {
        Self(ask)
    }
}

impl RecoveryDeclaration {
    /// What it allows.
    pub(crate) fn recovery(self) -> Recovery {
        match self {
            Self::ProviderKey { window, .. } => Recovery::ProviderKey { window },
            Self::Reconcile { settle, .. } => Recovery::Reconcile { settle },
            Self::Inspect { .. } => Recovery::Inspect,
        }
    }

    /// What to check, and where, if it says so.
    pub(crate) fn instruction(self) -> Option<&'static str> {
        match self {
            Self::ProviderKey { instruction, .. } | Self::Reconcile { instruction, .. } => {
                instruction
            }
            Self::Inspect { instruction } => Some(instruction),
        }
    }
}

/// The recovery that a tool declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// The provider answers one key once, for `window` after it first saw it.
    ProviderKey { window: Duration },
    /// The provider can be asked; its "no" counts when no send is younger than `settle`.
    Reconcile { settle: Duration },
    /// Neither: a person looks.
    Inspect,
}

impl Recovery {
    /// Whether an attempt that lasts up to `timeout` may begin at `now` while earlier ones
    /// are in doubt, the first of which began at `first`.
    ///
    /// Either clock may have stood still or been set, so what has passed is the larger of
    /// what the two say. A wall clock that is far behind what it said then says nothing.
    pub(crate) fn resend(self, first: Moment, now: Moment, timeout: Duration) -> Resend {
        match self {
            Self::ProviderKey { window } => {
                let is_behind = now.wall.plus(BEHIND) < first.wall;
                let ends = now.since(first).saturating_add(timeout + WINDOW_MARGIN);
                if !is_behind && ends < window {
                    Resend::SameIdentity
                } else {
                    Resend::Forbidden
                }
            }
            Self::Reconcile { .. } | Self::Inspect => Resend::Forbidden,
        }
    }

    /// Who has an operation tried again that was in doubt, once its own late attempts have
    /// said that nothing was applied.
    ///
    /// Under `inspect` somebody has been told to look, and may be about to act on it.
    pub(crate) fn again(self) -> By {
        match self {
            Self::ProviderKey { .. } | Self::Reconcile { .. } => By::Itself,
            Self::Inspect => By::Key,
        }
    }

    /// Whether a provider's "not applied" counts, asked when this process had seen for
    /// `watched` that no attempt is under way.
    ///
    /// An attempt reads its lease right before it sends, so none of them has sent since
    /// then. The time is this process's own, since the time of day may have been set.
    pub(crate) fn settled(self, watched: Duration) -> bool {
        match self {
            Self::Reconcile { settle } => watched >= settle,
            Self::ProviderKey { .. } | Self::Inspect => false,
        }
    }
}

/// Whether a lease is over at `now`, or is of a process whose time was found to be wrong
/// since: it began more than the [`MARGIN`] ahead, and would last as much too long.
///
/// Too early an expiry costs a question or a person's look, never a second effect: an
/// expired attempt is in doubt.
pub(crate) fn lease_is_over(began: Timestamp, until: Timestamp, now: Timestamp) -> bool {
    now >= until || now.plus(MARGIN) < began
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);
    const MILLISECOND: Duration = Duration::from_millis(1);
    const FIRST: Timestamp = Timestamp(1_000_000_000);
    const KEY: Recovery = Recovery::ProviderKey { window: HOUR };

    fn at(later: Duration) -> Timestamp {
        FIRST.plus(later)
    }

    /// With the first attempt at [`FIRST`] by both clocks.
    fn resend(recovery: Recovery, ledger: Timestamp, wall: Timestamp) -> Resend {
        let first = Moment {
            ledger: FIRST,
            wall: FIRST,
        };
        recovery.resend(first, Moment { ledger, wall }, Duration::from_secs(8))
    }

    #[test]
    fn the_window_holds_a_whole_attempt_and_its_margin() {
        let last = HOUR.saturating_sub(Duration::from_secs(13));
        let before = at(last.saturating_sub(MILLISECOND));
        assert_eq!(resend(KEY, before, before), Resend::SameIdentity);
        for (ledger, wall) in [
            (at(last), at(last)),
            (at(last), FIRST),
            (FIRST, at(last)),
            (at(100 * HOUR), at(100 * HOUR)),
        ] {
            assert_eq!(resend(KEY, ledger, wall), Resend::Forbidden);
        }
    }

    #[test]
    fn a_wall_clock_that_is_behind_closes_the_window_and_a_small_step_does_not() {
        let back = |by: Duration| Timestamp(FIRST.0 - i64::try_from(by.as_millis()).unwrap());
        assert_eq!(
            resend(KEY, at(HOUR / 4), back(BEHIND)),
            Resend::SameIdentity
        );
        assert_eq!(
            resend(KEY, at(HOUR / 4), back(BEHIND + MILLISECOND)),
            Resend::Forbidden
        );
        assert_eq!(resend(KEY, FIRST, Timestamp(0)), Resend::Forbidden);
    }

    #[test]
    fn nothing_else_is_sent_twice() {
        for recovery in [
            Recovery::Reconcile {
                settle: Duration::ZERO,
            },
            Recovery::Inspect,
        ] {
            assert_eq!(resend(recovery, FIRST, FIRST), Resend::Forbidden);
        }
    }

    #[test]
    fn a_no_counts_after_settling_only() {
        let reconcile = Recovery::Reconcile { settle: HOUR };
        assert!(!reconcile.settled(HOUR.saturating_sub(MILLISECOND)));
        assert!(reconcile.settled(HOUR));
        assert!(!Recovery::Inspect.settled(100 * HOUR));
        assert!(!Recovery::ProviderKey { window: HOUR }.settled(100 * HOUR));
    }

    #[test]
    fn a_lease_ends_on_time_and_when_the_clock_goes_back() {
        assert!(!lease_is_over(FIRST, at(HOUR), at(HOUR / 2)));
        assert!(lease_is_over(FIRST, at(HOUR), at(HOUR)));
        assert!(lease_is_over(FIRST, at(HOUR), Timestamp(0)));
    }
}
