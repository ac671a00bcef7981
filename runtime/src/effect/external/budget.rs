//! What one run may spend: time on the monotonic clock, and attempts.

use std::time::Duration;

/// No delay between attempts is longer, unless the provider asks for more.
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// The budget of one run. Waiting, backoff and attempts all take from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    /// When it ends, on the monotonic clock.
    ends: Duration,
    attempt_timeout: Duration,
    attempts_left: u32,
    backoff: Backoff,
}

/// The delays between a run's attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backoff {
    base: Duration,
    retries: u32,
}

impl Budget {
    pub(crate) fn new(
        ends: Duration,
        attempt_timeout: Duration,
        max_attempts: u32,
        backoff: Duration,
    ) -> Self {
        Self {
            ends,
            attempt_timeout,
            attempts_left: max_attempts,
            backoff: Backoff {
                base: backoff,
                retries: 0,
            },
        }
    }

    /// Takes an attempt that begins at `now`: how long it may last, or `None` if there is
    /// no attempt or no time left.
    pub(crate) fn take_attempt(&mut self, now: Duration) -> Option<Duration> {
        let remaining = self.remaining(now);
        if remaining.is_zero() || self.attempts_left == 0 {
            return None;
        }
        self.attempts_left -= 1;
        Some(self.attempt_timeout.min(remaining))
    }

    /// How long to wait before the next attempt, or `None` if there will be none.
    pub(crate) fn pause(
        &mut self,
        now: Duration,
        retry_after: Option<Duration>,
        random: u64,
    ) -> Option<Duration> {
        if self.attempts_left == 0 {
            return None;
        }
        self.delay(now, retry_after, random)
    }

    /// How long to wait before asking, or trying, again; `None` if there is no time for it.
    ///
    /// `retry_after` is the provider's own guidance: no attempt comes before it, and one
    /// that would come after the budget doesn't come. `random` decides the jitter.
    pub(crate) fn delay(
        &mut self,
        now: Duration,
        retry_after: Option<Duration>,
        random: u64,
    ) -> Option<Duration> {
        let pause = self
            .backoff
            .next(random)
            .max(retry_after.unwrap_or_default());
        (pause < self.remaining(now)).then_some(pause)
    }

    /// What is left at `now`.
    pub(crate) fn remaining(&self, now: Duration) -> Duration {
        self.ends.saturating_sub(now)
    }
}

impl Backoff {
    /// Half of the exponential delay for certain, the other half by `random`: retries of
    /// many callers spread, and none comes at once.
    fn next(&mut self, random: u64) -> Duration {
        let doubled = 1_u32.checked_shl(self.retries).unwrap_or(u32::MAX);
        self.retries = self.retries.saturating_add(1);
        let full = self
            .base
            .saturating_mul(doubled)
            .min(LONGEST_BACKOFF.max(self.base));
        let half = full / 2;
        // 1,024 steps are jitter enough, and small numbers can't overflow.
        let step = u32::try_from(random % 1_025).unwrap_or_default();
        half + half.saturating_mul(step) / 1_024
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn budget() -> Budget {
        Budget::new(seconds(30), seconds(8), 3, seconds(1))
    }

    #[test]
    fn an_attempt_is_capped_by_what_remains() {
        let mut budget = budget();
        assert_eq!(budget.take_attempt(seconds(0)), Some(seconds(8)));
        assert_eq!(budget.take_attempt(seconds(25)), Some(seconds(5)));
        assert_eq!(budget.take_attempt(seconds(30)), None);
    }

    #[test]
    fn attempts_run_out() {
        let mut budget = budget();
        for _ in 0..3 {
            assert!(budget.take_attempt(seconds(0)).is_some());
        }
        assert_eq!(budget.take_attempt(seconds(0)), None);
        assert_eq!(budget.pause(seconds(0), None, 0), None);
    }

    #[test]
    fn delays_double_with_jitter() {
        let mut budget = budget();
        assert_eq!(
            budget.pause(seconds(0), None, 0),
            Some(Duration::from_millis(500))
        );
        assert_eq!(budget.pause(seconds(0), None, 1_024), Some(seconds(2)));
        assert_eq!(budget.pause(seconds(0), None, 1_024), Some(seconds(4)));
        for _ in 0..100 {
            let pause = budget.pause(seconds(0), None, u64::MAX);
            assert!(pause.is_none_or(|pause| pause <= LONGEST_BACKOFF));
        }
    }

    #[test]
    fn the_providers_guidance_is_kept_or_ends_the_run() {
        let mut budget = budget();
        assert_eq!(
            budget.pause(seconds(0), Some(seconds(7)), 0),
            Some(seconds(7))
        );
        assert_eq!(budget.pause(seconds(0), Some(seconds(30)), 0), None);
        assert_eq!(budget.pause(seconds(29), None, 1_024), None);
    }
}
