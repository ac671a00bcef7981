//! Time that passes only when nobody has anything to do: however slow the machine, a test's
//! clock never runs away from what it measures.

use std::{
    collections::BTreeMap,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant, SystemTime},
};

use idempotent_tool::{BootId, Clock, ManualClock};
use tokio::{
    runtime::{Builder, Handle},
    sync::Notify,
    task::yield_now,
};

/// How often it is looked whether all are at rest, besides when somebody goes to sleep.
const LOOK: Duration = Duration::from_millis(1);

/// Longer than anything takes; what takes longer waits for what never comes.
const PATIENCE: Duration = Duration::from_secs(300);

/// A clock for one runtime of one thread: it knows who sleeps on it.
///
/// Clones are one clock; a [`sibling`](Self::sibling) shares the time alone.
#[derive(Debug, Clone)]
pub(crate) struct PacedClock {
    time: ManualClock,
    waiting: Arc<Mutex<Waiting>>,
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    /// Until when each sleeper sleeps.
    sleepers: BTreeMap<u64, Duration>,
    /// How many wait for something that time doesn't bring.
    elsewhere: usize,
    /// How many tasks do so for good.
    background: usize,
}

impl PacedClock {
    pub(crate) fn new(wall: SystemTime) -> Self {
        Self::showing(ManualClock::new(wall))
    }

    /// A clock of another runtime, which shows the same time.
    pub(crate) fn sibling(&self) -> Self {
        Self::showing(self.time.clone())
    }

    /// Whether it is the same, and not a sibling.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.waiting, &other.waiting)
    }

    fn showing(time: ManualClock) -> Self {
        Self {
            time,
            waiting: Arc::default(),
            changed: Arc::default(),
        }
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.time.advance(by);
    }

    pub(crate) fn set_wall(&self, wall: SystemTime) {
        self.time.set_wall(wall);
    }

    /// Awaits what time doesn't bring: the test itself, or another task.
    pub(crate) async fn elsewhere<T>(&self, future: impl Future<Output = T>) -> T {
        self.waiting().elsewhere += 1;
        self.changed.notify_one();
        let _there = Elsewhere(self);
        future.await
    }

    /// Takes the tasks that are now neither asleep nor elsewhere for waiting for good, as
    /// those do that serve a connection.
    pub(crate) async fn excuse_others(&self) {
        for _ in 0..64 {
            yield_now().await;
        }
        let alive = Handle::current().metrics().num_alive_tasks();
        let mut waiting = self.waiting();
        waiting.background = 0;
        let at_rest = waiting.at_rest(self.monotonic());
        waiting.background = alive.saturating_sub(at_rest);
    }

    /// Waits until every task of the runtime sleeps or is elsewhere; no time passes.
    pub(crate) async fn rest(&self) {
        let began = Instant::now();
        loop {
            // Whoever is ready comes first.
            yield_now().await;
            let changed = self.changed.notified();
            if self.all_rest(0) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "nobody comes to rest: {self:?}");
            tokio::select! {
                () = changed => (),
                () = tokio::time::sleep(LOOK) => (),
            }
        }
    }

    /// Whether all tasks, and `more` than them, sleep or are elsewhere.
    fn all_rest(&self, more: usize) -> bool {
        let alive = Handle::current().metrics().num_alive_tasks();
        alive + more <= self.waiting().at_rest(self.monotonic())
    }

    /// Goes to when the first sleeper wakes.
    fn skip(&self) {
        let now = self.monotonic();
        let first = self.waiting().sleepers.values().min().copied();
        let first = first.expect("all are elsewhere, and nobody would ever come back");
        self.advance(first.saturating_sub(now));
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap()
    }
}

impl Waiting {
    fn at_rest(&self, now: Duration) -> usize {
        let asleep = self.sleepers.values().filter(|until| now < **until);
        asleep.count() + self.elsewhere + self.background
    }
}

impl Clock for PacedClock {
    fn wall(&self) -> SystemTime {
        self.time.wall()
    }

    fn monotonic(&self) -> Duration {
        self.time.monotonic()
    }

    fn boot_id(&self) -> Option<BootId> {
        self.time.boot_id()
    }

    fn reached(&self, until: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let _asleep = Asleep::new(self, until);
            self.time.reached(until).await;
        })
    }
}

struct Asleep<'a> {
    clock: &'a PacedClock,
    place: u64,
}

impl<'a> Asleep<'a> {
    fn new(clock: &'a PacedClock, until: Duration) -> Self {
        let mut waiting = clock.waiting();
        let place = waiting.next;
        waiting.next += 1;
        waiting.sleepers.insert(place, until);
        clock.changed.notify_one();
        Self { clock, place }
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.clock.waiting().sleepers.remove(&self.place);
    }
}

struct Elsewhere<'a>(&'a PacedClock);

impl Drop for Elsewhere<'_> {
    fn drop(&mut self) {
        self.0.waiting().elsewhere -= 1;
    }
}

/// Runs a part of a test in a runtime of its own: its clock knows no other's tasks.
pub(crate) fn alone<T>(part: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(part)
}

/// Awaits `future`; whenever it and all tasks are at rest, time goes to the next that wakes.
///
/// A future that waits for a task or a connection does so [`elsewhere`](PacedClock::elsewhere).
pub(crate) async fn drive<T>(clock: &PacedClock, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut began = Instant::now();
    loop {
        woken.by_any.store(false, Ordering::SeqCst);
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        // Whoever that made ready comes first.
        yield_now().await;
        if woken.by_any.load(Ordering::SeqCst) {
            continue;
        }
        if clock.all_rest(1) {
            clock.skip();
            began = Instant::now();
            continue;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "nobody comes to rest: {clock:?}"
        );
        tokio::select! {
            () = woken.notify.notified() => (),
            () = clock.changed.notified() => (),
            () = tokio::time::sleep(LOOK) => (),
        }
    }
}

/// Whether the driven future has something to do.
#[derive(Default)]
struct Woken {
    by_any: AtomicBool,
    notify: Notify,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.by_any.store(true, Ordering::SeqCst);
        self.notify.notify_one();
    }
}
