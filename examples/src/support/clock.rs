//! A clock that is ahead of the machine's, to see what a server does a day later.

use std::time::{Duration, SystemTime};

use idempotent_tool::{Clock, SystemClock};

/// The machine's clock, its time of day moved on.
#[derive(Debug)]
pub struct Ahead {
    clock: SystemClock,
    by: Duration,
}

impl Ahead {
    /// A clock that is `by` ahead of the machine's.
    #[must_use]
    pub fn new(by: Duration) -> Self {
        Self {
            clock: SystemClock::new(),
            by,
        }
    }
}

impl Clock for Ahead {
    fn wall(&self) -> SystemTime {
        self.clock.wall() + self.by
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }
}
