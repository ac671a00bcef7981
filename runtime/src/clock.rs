//! Time as the runtime reads it: injected, so that tests move it.

use std::{
    fmt,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::sync::Notify;

/// Where the runtime reads the time.
///
/// Budgets are measured on [`monotonic`](Self::monotonic); what outlives the process
/// (retention, tombstones) is recorded by [`wall`](Self::wall).
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time of day.
    fn wall(&self) -> SystemTime;
    /// The time since an arbitrary origin; never goes back.
    fn monotonic(&self) -> Duration;
    /// Waits until [`monotonic`](Self::monotonic) has reached `until`.
    ///
    /// The default sleeps on tokio's timer for what remains. A clock that goes at another
    /// pace than the machine's wakes its sleepers itself.
    fn reached(&self, until: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            loop {
                let remains = until.saturating_sub(self.monotonic());
                if remains.is_zero() {
                    return;
                }
                tokio::time::sleep(remains).await;
            }
        })
    }
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// The machine's clocks, the monotonic one counted from now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            origin: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// One moment by both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    /// The ledger's own time.
    pub(crate) ledger: Timestamp,
    /// The time of day.
    pub(crate) wall: Timestamp,
}

impl Moment {
    pub(crate) fn plus(self, later: Duration) -> Self {
        Self {
            ledger: self.ledger.plus(later),
            wall: self.wall.plus(later),
        }
    }

    /// What has passed since `first`, by the clock that says more.
    pub(crate) fn since(self, first: Self) -> Duration {
        let by_ledger = first.ledger.until(self.ledger);
        by_ledger.max(first.wall.until(self.wall))
    }
}

/// A clock that stands still until a test moves it.
///
/// Clones share the time.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use idempotent_tool::{Clock, ManualClock};
///
/// let clock = ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000));
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(clock.monotonic(), Duration::from_secs(60));
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock {
    now: Arc<Mutex<(SystemTime, Duration)>>,
    moved: Arc<Notify>,
}

impl ManualClock {
    /// A clock that reads `wall`.
    #[must_use]
    pub fn new(wall: SystemTime) -> Self {
        Self {
            now: Arc::new(Mutex::new((wall, Duration::ZERO))),
            moved: Arc::new(Notify::new()),
        }
    }

    /// Lets time pass on both clocks.
    pub fn advance(&self, by: Duration) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.0 += by;
        now.1 += by;
        drop(now);
        self.moved.notify_waiters();
    }

    /// Sets the time of day alone, as an administrator or a time service does.
    pub fn set_wall(&self, wall: SystemTime) {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).0 = wall;
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> SystemTime {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn monotonic(&self) -> Duration {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    fn reached(&self, until: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            loop {
                let moved = self.moved.notified();
                let mut moved = pin!(moved);
                // Before the time is read, so that no move is missed.
                moved.as_mut().enable();
                if until <= self.monotonic() {
                    return;
                }
                moved.await;
            }
        })
    }
}

/// A point on the wall clock in milliseconds since 1970, as the ledger keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp(pub(crate) i64);

impl Timestamp {
    /// The time of day by `clock`; before 1970 counts as 1970.
    pub(crate) fn now(clock: &dyn Clock) -> Self {
        let elapsed = clock.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX))
    }

    /// How long it is from here to `later`; zero if it has passed.
    pub(crate) fn until(self, later: Self) -> Duration {
        let passes = later.0.saturating_sub(self.0);
        Duration::from_millis(u64::try_from(passes).unwrap_or(0))
    }

    /// This time and `later` more; saturates at the end of the range.
    pub(crate) fn plus(self, later: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(later.as_millis()).unwrap_or(i64::MAX)),
        )
    }
}
