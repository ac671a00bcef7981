//! Time as the runtime reads it: injected, so that tests move it.

use std::{
    fmt,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::sync::Notify;
use uuid::Uuid;

/// Where the runtime reads the time.
///
/// Time passes on [`monotonic`](Self::monotonic): budgets, and retention while a process has
/// the ledger open. [`wall`](Self::wall) tells how long nobody had it open, and what replies
/// show.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time of day.
    fn wall(&self) -> SystemTime;
    /// The time since an arbitrary origin; never goes back. It should count the time that
    /// the machine is suspended for.
    fn monotonic(&self) -> Duration;
    /// From where on [`monotonic`](Self::monotonic) counts. Two clocks that return the same
    /// id read one monotonic clock, though they may be of two processes: then a jump of the
    /// wall clock between the two is told from time that passed.
    ///
    /// The default is `None`: the readings can be compared with no other process's.
    fn boot_id(&self) -> Option<BootId> {
        None
    }
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

/// Names one start of a monotonic clock: usually that of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BootId([u8; 16]);

impl BootId {
    /// The start that these bytes name. They are kept in the ledger as they are.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// The machine's clocks.
///
/// On Linux and Android the monotonic one counts from the start of the machine, suspension
/// included, and is the same in every process. Elsewhere it is the standard library's
/// [`Instant`](std::time::Instant).
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock {
    _private: (),
}

impl SystemClock {
    /// The machine's clocks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Clock for SystemClock {
    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn monotonic(&self) -> Duration {
        machine::monotonic()
    }

    fn boot_id(&self) -> Option<BootId> {
        machine::boot_id()
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod machine {
    use std::{fs, sync::OnceLock, time::Duration};

    use rustix::time::{ClockId, clock_gettime};
    use sha2::{Digest, Sha256};

    use super::BootId;

    pub(super) fn monotonic() -> Duration {
        // It is never negative; if it were, the start of the machine is the best guess.
        Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
    }

    /// A digest of what the kernel calls this start, and of what this process's time
    /// namespace adds to the clock. `None` if the kernel doesn't tell.
    pub(super) fn boot_id() -> Option<BootId> {
        static ID: OnceLock<Option<BootId>> = OnceLock::new();
        *ID.get_or_init(|| {
            let boot = fs::read("/proc/sys/kernel/random/boot_id").ok()?;
            // Kernels without time namespaces have no such file, and add nothing.
            let offsets = fs::read("/proc/self/timens_offsets").unwrap_or_default();
            let mut digest = Sha256::new();
            digest.update(boot);
            digest.update(offsets);
            let digest = digest.finalize();
            digest.first_chunk().copied().map(BootId)
        })
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod machine {
    use std::{
        sync::OnceLock,
        time::{Duration, Instant},
    };

    use super::BootId;

    pub(super) fn monotonic() -> Duration {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        ORIGIN.get_or_init(Instant::now).elapsed()
    }

    pub(super) fn boot_id() -> Option<BootId> {
        None
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
    /// The time of day of something that is stamped with the ledger's time.
    ///
    /// What the clocks differ by is taken in whole seconds: the two are not read at the same
    /// instant, and a stamp is to be told alike by every process.
    pub(crate) fn time_of_day(self, stamp: Timestamp) -> Timestamp {
        let differ_by = self.wall.0.saturating_sub(self.ledger.0);
        let seconds = differ_by.saturating_add(500).div_euclid(1_000);
        Timestamp(stamp.0.saturating_add(seconds.saturating_mul(1_000)))
    }

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
    now: Arc<Mutex<Shown>>,
    moved: Arc<Notify>,
}

/// What a [`ManualClock`] shows.
#[derive(Debug)]
struct Shown {
    wall: SystemTime,
    monotonic: Duration,
    boot: BootId,
}

impl ManualClock {
    /// A clock that reads `wall`, of a machine that has just started.
    #[must_use]
    pub fn new(wall: SystemTime) -> Self {
        Self {
            now: Arc::new(Mutex::new(Shown {
                wall,
                monotonic: Duration::ZERO,
                boot: random_boot(),
            })),
            moved: Arc::new(Notify::new()),
        }
    }

    /// Lets time pass on both clocks.
    pub fn advance(&self, by: Duration) {
        let mut now = self.shown();
        now.wall += by;
        now.monotonic += by;
        drop(now);
        self.moved.notify_waiters();
    }

    /// Sets the time of day alone, as an administrator or a time service does.
    pub fn set_wall(&self, wall: SystemTime) {
        self.shown().wall = wall;
    }

    /// Starts the machine anew, `down` later by the time of day: the monotonic clock counts
    /// from zero again. Nothing that reads this clock may live on, since for it the
    /// monotonic clock went back.
    pub fn reboot(&self, down: Duration) {
        let mut now = self.shown();
        now.wall += down;
        now.monotonic = Duration::ZERO;
        now.boot = random_boot();
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn random_boot() -> BootId {
    BootId(Uuid::new_v4().into_bytes())
}

impl Clock for ManualClock {
    fn wall(&self) -> SystemTime {
        self.shown().wall
    }

    fn monotonic(&self) -> Duration {
        self.shown().monotonic
    }

    fn boot_id(&self) -> Option<BootId> {
        Some(self.shown().boot)
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

/// A time in milliseconds since 1970, as the ledger keeps it: its own time, unless a name
/// says that it is the wall clock's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp(pub(crate) i64);

impl Timestamp {
    /// The time of day by `clock`; before 1970 counts as 1970.
    pub(crate) fn wall(clock: &dyn Clock) -> Self {
        let elapsed = clock.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(milliseconds(elapsed))
    }

    /// How long it is from here to `later`; zero if it has passed.
    pub(crate) fn until(self, later: Self) -> Duration {
        let passes = later.0.saturating_sub(self.0);
        Duration::from_millis(u64::try_from(passes).unwrap_or(0))
    }

    /// This time and `later` more; saturates at the end of the range.
    pub(crate) fn plus(self, later: Duration) -> Self {
        Self(self.0.saturating_add(milliseconds(later)))
    }

    /// This time less `earlier`; saturates at the end of the range.
    pub(crate) fn minus(self, earlier: Duration) -> Self {
        Self(self.0.saturating_sub(milliseconds(earlier)))
    }
}

/// Whole milliseconds; saturates.
pub(crate) fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_told_alike_whenever_the_clocks_are_read() {
        let stamp = Timestamp(7_000_123);
        let told = |differ_by: i64| {
            let ledger = Timestamp(9_000_000);
            let wall = Timestamp(ledger.0 + differ_by);
            Moment { ledger, wall }.time_of_day(stamp)
        };
        for jitter in [-499, -1, 0, 1, 499] {
            assert_eq!(told(jitter), stamp);
            assert_eq!(told(-3_600_000 + jitter), Timestamp(stamp.0 - 3_600_000));
        }
    }
}
