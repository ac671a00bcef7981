//! How long the write connection has been taken.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// From how long on the connection counts as held long: by a slow handler, or by a wait
/// for another process's lock. Ordinary batches end sooner.
const LONG: Duration = Duration::from_millis(20);

/// Since when the write connection is taken, if it is: microseconds on the clock's
/// monotonic axis, and one.
#[derive(Debug, Default)]
pub(super) struct Held(AtomicU64);

impl Held {
    pub(super) fn taken(&self, now: Duration) {
        self.0
            .store(micros(now).saturating_add(1), Ordering::Relaxed);
    }

    pub(super) fn given_back(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Whether a call that joins the queue now would wait long. Then it pays to look for
    /// its receipt first, which needs no lock.
    pub(super) fn is_long(&self, now: Duration) -> bool {
        self.0
            .load(Ordering::Relaxed)
            .checked_sub(1)
            .is_some_and(|since| micros(LONG) <= micros(now).saturating_sub(since))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
