//! A clock that a step moves, and that knows who sleeps on it.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use idempotent_tool::{Clock, ManualClock};
use tokio::{runtime::Handle, task::yield_now};

/// Longer than anything takes; what takes longer waits for what never comes.
const PATIENCE: Duration = Duration::from_secs(20);

/// The clock of one process: all of them show the same time, and each knows its sleepers.
#[derive(Debug, Clone)]
pub struct SimClock {
    time: ManualClock,
    sleepers: Arc<Mutex<Sleepers>>,
    /// How many tasks wait for what time doesn't bring.
    elsewhere: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Sleepers {
    next: u64,
    until: BTreeMap<u64, Duration>,
}

impl SimClock {
    pub fn new(time: ManualClock) -> Self {
        Self {
            time,
            sleepers: Arc::default(),
            elsewhere: Arc::default(),
        }
    }

    /// Awaits what time doesn't bring.
    pub async fn elsewhere<T>(&self, future: impl Future<Output = T>) -> T {
        self.elsewhere.fetch_add(1, Ordering::SeqCst);
        let _there = Elsewhere(&self.elsewhere);
        future.await
    }

    /// Lets every task of the runtime go on until all sleep or are elsewhere.
    pub async fn rest(&self) {
        let began = Instant::now();
        let handle = Handle::current();
        let mut turns = 0_u32;
        loop {
            yield_now().await;
            yield_now().await;
            if handle.metrics().num_alive_tasks() <= self.at_rest() {
                return;
            }
            turns += 1;
            if turns.is_multiple_of(64) {
                std::thread::yield_now(); // The store's thread may need this processor.
                assert!(began.elapsed() < PATIENCE, "nobody comes to rest: {self:?}");
            }
        }
    }

    /// When the first sleeper wakes.
    pub fn next_wake(&self) -> Option<Duration> {
        self.sleepers().until.values().min().copied()
    }

    fn at_rest(&self) -> usize {
        let now = self.monotonic();
        let sleepers = self.sleepers();
        let asleep = sleepers.until.values().filter(|until| now < **until);
        asleep.count() + self.elsewhere.load(Ordering::SeqCst)
    }

    fn sleepers(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for SimClock {
    fn wall(&self) -> SystemTime {
        self.time.wall()
    }

    fn monotonic(&self) -> Duration {
        self.time.monotonic()
    }

    fn reached(&self, until: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let _asleep = Asleep::new(self, until);
            self.time.reached(until).await;
        })
    }
}

struct Asleep<'a> {
    clock: &'a SimClock,
    place: u64,
}

impl<'a> Asleep<'a> {
    fn new(clock: &'a SimClock, until: Duration) -> Self {
        let mut sleepers = clock.sleepers();
        let place = sleepers.next;
        sleepers.next += 1;
        sleepers.until.insert(place, until);
        Self { clock, place }
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.clock.sleepers().until.remove(&self.place);
    }
}

struct Elsewhere<'a>(&'a AtomicUsize);

impl Drop for Elsewhere<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
