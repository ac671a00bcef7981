//! What waits for the writer, bounded, and the watch over deadlines.

use std::{
    collections::VecDeque,
    fmt, mem,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    clock::Clock,
    effect::transactional::{Executed, TransactionalCall},
    operation::id::OperationId,
    store::{
        StoreError,
        sqlite::{
            Core,
            ticket::{Answer, Ticket},
            writer::Writer,
        },
    },
};

/// How many calls share one commit at most; more gain nothing.
const BATCH_CALLS: usize = 128;

/// How many bytes of arguments share one commit at most, a single call apart.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// How long the writer thread looks for further work before it sleeps. A lone caller's next
/// call comes sooner than the thread would wake up.
const LINGER: Duration = Duration::from_micros(80);

/// How soon work must have come, its wake-up counted, for the thread to linger next time.
const BRISK: Duration = Duration::from_micros(150);

/// The longest that the watch sleeps while calls wait: an injected clock wakes nobody.
const WATCH_SLICE: Duration = Duration::from_millis(100);

/// One piece of the writer's work.
#[derive(Debug)]
pub(super) enum Job {
    /// A call, which may share a commit with others.
    Call(CallJob),
    /// Work that has the connection to itself.
    Alone(AloneJob),
}

/// A call in the queue or in a batch. Dropped without an answer, it answers.
pub(super) struct CallJob {
    pub(super) ticket: Arc<Ticket>,
    pub(super) call: Arc<TransactionalCall>,
    /// What is answered once the batch is committed.
    pub(super) outcome: Option<Executed>,
    bytes: usize,
}

type AloneWork = Box<dyn FnOnce(&Core, &mut Writer, &Ticket) -> Answer + Send>;

/// Work that has the connection to itself. Dropped without an answer, it answers.
pub(super) struct AloneJob {
    pub(super) ticket: Arc<Ticket>,
    work: Option<AloneWork>,
}

/// The writer's queue.
#[derive(Debug)]
pub(super) struct Queue {
    inner: Mutex<Inner>,
    /// Waiting jobs; a hint that needs no lock.
    waiting: AtomicUsize,
    work: Condvar,
    watch: Condvar,
    calls: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Inner {
    jobs: VecDeque<Job>,
    bytes: usize,
    /// The tickets of the batch that the writer thread runs.
    running: Vec<Arc<Ticket>>,
    closed: bool,
    /// The writer thread sleeps, and is to be woken for work.
    idle: bool,
    /// The last work came soon after there was none.
    is_brisk: bool,
    watch: Watch,
}

/// When the watch looks next.
#[derive(Debug, Default, PartialEq, Eq)]
enum Watch {
    /// Not before it is woken.
    #[default]
    Asleep,
    /// At this time, if it is not woken.
    Until(Duration),
}

/// Why the writer thread stops waiting.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wake {
    Work,
    Idle,
    Closed,
}

/// What the writer takes at a time.
#[derive(Debug)]
pub(super) enum Batch {
    Calls(Vec<CallJob>),
    Alone(AloneJob),
}

impl Queue {
    pub(super) fn new(calls: usize, bytes: usize) -> Self {
        Self {
            inner: Mutex::default(),
            waiting: AtomicUsize::new(0),
            work: Condvar::new(),
            watch: Condvar::new(),
            calls,
            bytes,
        }
    }

    /// Whether nothing waits.
    pub(super) fn is_free(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Queues a job, or answers it at once if the queue is full or closed.
    pub(super) fn push(&self, job: Job) {
        let deadline = job.ticket().deadline;
        let wake = {
            let mut inner = self.inner();
            let full = self.calls <= inner.jobs.len()
                || (self.bytes < inner.bytes.saturating_add(job.bytes()));
            if inner.closed || full {
                Err(job)
            } else {
                inner.bytes += job.bytes();
                inner.jobs.push_back(job);
                self.waiting.store(inner.jobs.len(), Ordering::Release);
                let early = match inner.watch {
                    Watch::Asleep => true,
                    Watch::Until(next) => deadline < next,
                };
                if early {
                    self.watch.notify_one();
                }
                Ok(mem::take(&mut inner.idle))
            }
        };
        match wake {
            Err(refused) => refused.ticket().answer(Answer::Executed(Executed::Busy)),
            Ok(true) => self.work.notify_one(),
            Ok(false) => (), // The writer sees it before it sleeps.
        }
    }

    /// Puts calls that their batch had no time for back to the front.
    pub(super) fn put_back(&self, calls: Vec<CallJob>) {
        let mut inner = self.inner();
        for call in calls.into_iter().rev() {
            inner.bytes += call.bytes;
            inner.jobs.push_front(Job::Call(call));
        }
        self.waiting.store(inner.jobs.len(), Ordering::Release);
    }

    /// Blocks the writer thread until there is work, or for as long as `rest`.
    pub(super) fn wait(&self, rest: Duration) -> Wake {
        let empty_since = Instant::now();
        let mut inner = self.inner();
        if inner.is_brisk && inner.jobs.is_empty() {
            drop(inner);
            while self.is_free() && empty_since.elapsed() < LINGER {
                thread::yield_now();
            }
            inner = self.inner();
        }
        loop {
            inner.idle = false;
            if inner.closed {
                return Wake::Closed;
            }
            if !inner.jobs.is_empty() {
                inner.is_brisk = empty_since.elapsed() < BRISK;
                return Wake::Work;
            }
            inner.idle = true;
            let (guard, wait) = self
                .work
                .wait_timeout(inner, rest)
                .unwrap_or_else(PoisonError::into_inner);
            inner = guard;
            if wait.timed_out() && inner.jobs.is_empty() && !inner.closed {
                return Wake::Idle;
            }
        }
    }

    /// Takes what shares the next transaction; `None` if an inline call was faster.
    pub(super) fn take(&self) -> Option<Batch> {
        // Dropped after the lock is given up: a call's state may hold the last handle of
        // this very store.
        let mut left = Vec::new();
        let mut inner = self.inner();
        let mut calls = Vec::new();
        let mut bytes = 0_usize;
        while let Some(job) = inner.jobs.pop_front() {
            inner.bytes = inner.bytes.saturating_sub(job.bytes());
            match job {
                Job::Call(call) if !call.ticket.is_live() => left.push(call),
                Job::Call(call) => {
                    bytes = bytes.saturating_add(call.bytes);
                    if !calls.is_empty() && BATCH_BYTES < bytes {
                        inner.bytes += call.bytes;
                        inner.jobs.push_front(Job::Call(call));
                        break;
                    }
                    calls.push(call);
                    if calls.len() == BATCH_CALLS {
                        break;
                    }
                }
                Job::Alone(alone) if calls.is_empty() => {
                    inner.running.push(Arc::clone(&alone.ticket));
                    self.waiting.store(inner.jobs.len(), Ordering::Release);
                    return Some(Batch::Alone(alone));
                }
                Job::Alone(alone) => {
                    inner.jobs.push_front(Job::Alone(alone));
                    break;
                }
            }
        }
        inner
            .running
            .extend(calls.iter().map(|call| Arc::clone(&call.ticket)));
        self.waiting.store(inner.jobs.len(), Ordering::Release);
        (!calls.is_empty()).then_some(Batch::Calls(calls))
    }

    /// The batch is answered.
    pub(super) fn finished(&self) {
        self.inner().running.clear();
    }

    /// Ends both threads once they have answered what they run.
    pub(super) fn close(&self) {
        self.inner().closed = true;
        self.work.notify_all();
        self.watch.notify_all();
    }

    /// Ends calls when their deadlines pass, until the queue is closed.
    pub(super) fn watch(&self, clock: &dyn Clock) {
        let mut quiet = false;
        let mut inner = self.inner();
        while !inner.closed {
            let now = clock.monotonic();
            let (expired, next) = inner.expire(now);
            if !expired.is_empty() {
                drop(inner);
                for (ticket, outcome) in expired {
                    ticket.answer(Answer::Executed(outcome));
                }
                inner = self.inner();
                continue;
            }
            // One idle slice before sleeping, so that a lone caller doesn't wake the watch
            // with each of its calls.
            let slice = match next {
                Some(deadline) => Some(deadline.saturating_sub(now).min(WATCH_SLICE)),
                None if !quiet => Some(WATCH_SLICE),
                None => None,
            };
            quiet = next.is_none();
            inner = if let Some(slice) = slice {
                inner.watch = Watch::Until(now.saturating_add(slice));
                let wait = self.watch.wait_timeout(inner, slice);
                wait.unwrap_or_else(PoisonError::into_inner).0
            } else {
                inner.watch = Watch::Asleep;
                quiet = false;
                self.watch
                    .wait(inner)
                    .unwrap_or_else(PoisonError::into_inner)
            };
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Ends what is past its deadline; the earliest deadline of the rest.
    fn expire(&self, now: Duration) -> (Vec<(Arc<Ticket>, Executed)>, Option<Duration>) {
        let mut expired = Vec::new();
        let mut next: Option<Duration> = None;
        for ticket in self.jobs.iter().map(Job::ticket).chain(&self.running) {
            if !ticket.is_live() {
                continue;
            }
            match ticket.expire(now) {
                Some(outcome) => expired.push((Arc::clone(ticket), outcome)),
                None => {
                    next = Some(next.map_or(ticket.deadline, |next| next.min(ticket.deadline)));
                }
            }
        }
        (expired, next)
    }
}

impl Job {
    fn ticket(&self) -> &Arc<Ticket> {
        match self {
            Self::Call(call) => &call.ticket,
            Self::Alone(alone) => &alone.ticket,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Call(call) => call.bytes,
            Self::Alone(_) => 0,
        }
    }
}

impl CallJob {
    pub(super) fn new(call: TransactionalCall) -> Self {
        Self {
            ticket: Arc::new(Ticket::new(call.deadline)),
            bytes: 0,
            call: Arc::new(call),
            outcome: None,
        }
    }

    /// Weighs the call, which is needed only where it waits.
    pub(super) fn weighed(mut self) -> Self {
        self.bytes = size_of::<TransactionalCall>() + weight(&self.call.arguments);
        self
    }

    /// Answers with the outcome, which is committed or rolled back by now.
    pub(super) fn finish(mut self) {
        if let Some(outcome) = self.outcome.take() {
            self.ticket.answer(Answer::Executed(outcome));
        }
    }
}

impl AloneJob {
    pub(super) fn new(
        deadline: Duration,
        work: impl FnOnce(&Core, &mut Writer, &Ticket) -> Answer + Send + 'static,
    ) -> Self {
        Self {
            ticket: Arc::new(Ticket::new(deadline)),
            work: Some(Box::new(work)),
        }
    }

    pub(super) fn run(mut self, core: &Core, writer: &mut Writer) {
        let Some(work) = self.work.take() else { return };
        if let Some(outcome) = self.ticket.expire(core.clock.monotonic()) {
            self.ticket.answer(Answer::Executed(outcome));
        } else if self.ticket.is_live() {
            let answer = work(core, writer, &self.ticket);
            self.ticket.answer(answer);
        }
    }
}

/// What is said of a job that ends without an outcome: its deadline's, or that of a writer
/// that panicked.
fn unanswered(ticket: &Ticket) -> Executed {
    ticket
        .ended()
        .unwrap_or_else(|| Executed::Storage(stopped()))
}

fn stopped() -> StoreError {
    StoreError::new("the writer stopped in the middle of its work; ask again with the same key")
        .retryable()
}

impl Drop for CallJob {
    fn drop(&mut self) {
        let outcome = match self.outcome.take() {
            // Its transaction was about to commit, or has.
            Some(Executed::Committed(receipt)) => {
                Executed::Unknown(receipt.operation_id, stopped())
            }
            _ => unanswered(&self.ticket), // It is rolled back with its connection.
        };
        self.ticket.answer(Answer::Executed(outcome));
    }
}

impl Drop for AloneJob {
    fn drop(&mut self) {
        let outcome = if self.ticket.is_sealed() {
            // Such work is no operation; its caller is told the error alone.
            Executed::Unknown(OperationId::generate(), stopped())
        } else {
            unanswered(&self.ticket)
        };
        self.ticket.answer(Answer::Executed(outcome));
    }
}

impl fmt::Debug for CallJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallJob")
            .field("ticket", &self.ticket)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for AloneJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AloneJob")
            .field("ticket", &self.ticket)
            .finish_non_exhaustive()
    }
}

/// About how many bytes a value has in memory.
fn weight(value: &Value) -> usize {
    let inside = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(weight).sum(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| name.len() + 24 + weight(value))
            .sum(),
    };
    size_of::<Value>() + inside
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Duration = Duration::from_secs(12);

    /// The watch has ended a job and not answered yet, when the writer drops it.
    #[test]
    fn a_job_that_its_deadline_ended_is_answered_so_by_whoever_is_first() {
        let queued = AloneJob::new(NOON, |_, _, _| Answer::Ran);
        let begun = AloneJob::new(NOON, |_, _, _| Answer::Ran);
        assert!(begun.ticket.begin());
        let tickets = [queued, begun].map(|job| {
            assert!(job.ticket.expire(NOON).is_some());
            Arc::clone(&job.ticket)
        });
        let [queued, begun] = tickets.map(|ticket| ticket.wait());
        assert!(matches!(queued, Answer::Executed(Executed::Busy)));
        assert!(matches!(
            begun,
            Answer::Executed(Executed::DeadlineExceeded)
        ));
    }
}
