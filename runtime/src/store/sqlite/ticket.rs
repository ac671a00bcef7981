//! The state that a waiting caller and the writer share about one call.

use std::{
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::effect::transactional::Executed;

const QUEUED: u8 = 0;
const BEGUN: u8 = 1;
const SEALED: u8 = 2;
const ABANDONED: u8 = 3;
const CONDEMNED: u8 = 4;

/// One call's place in the writer's queue and batches.
///
/// ```text
/// queued ──begin──▶ begun ──seal──▶ sealed ──(commit failed)──▶ begun
///    │                │
///    │ abandon        │ condemn
///    ▼                ▼
/// abandoned        condemned
/// ```
///
/// Only a sealed call is committed, and a sealed call can't be condemned: so a caller who
/// was told that nothing was written was told the truth.
#[derive(Debug)]
pub(super) struct Ticket {
    state: AtomicU8,
    /// On the clock's monotonic axis.
    pub(super) deadline: Duration,
    /// In which generation the answer was read or committed; zero if it may not be remembered.
    learnt_in: AtomicU64,
    slot: Mutex<Slot>,
    answered: Condvar,
}

/// What the caller gets.
#[derive(Debug)]
pub(super) enum Answer {
    /// The outcome of a call, or what kept other work from running.
    Executed(Executed),
    /// The work ran, and kept its outcome itself.
    Ran,
}

#[derive(Debug, Default)]
struct Slot {
    answer: Option<Answer>,
    closed: bool,
    /// A thread blocks until there is an answer.
    blocked: bool,
    waker: Option<Waker>,
}

impl Ticket {
    pub(super) fn new(deadline: Duration) -> Self {
        Self {
            state: AtomicU8::new(QUEUED),
            deadline,
            learnt_in: AtomicU64::new(0),
            slot: Mutex::default(),
            answered: Condvar::new(),
        }
    }

    /// The answer that comes next holds in `generation`.
    pub(super) fn learnt_in(&self, generation: u64) {
        self.learnt_in.store(generation, Ordering::Relaxed); // The slot's lock orders it.
    }

    /// The generation that the answer holds in, if it may be remembered.
    pub(super) fn generation(&self) -> Option<u64> {
        Some(self.learnt_in.load(Ordering::Relaxed)).filter(|generation| *generation != 0)
    }

    /// The writer begins the call; `false` if its caller has left.
    pub(super) fn begin(&self) -> bool {
        self.change(QUEUED, BEGUN) || self.state.load(Ordering::Acquire) == BEGUN
    }

    /// The call's effect and receipt are ready to commit; `false` if it was condemned.
    pub(super) fn seal(&self) -> bool {
        self.change(BEGUN, SEALED)
    }

    /// The commit of a sealed call failed, with nothing written: it may run again.
    pub(super) fn unseal(&self) {
        self.change(SEALED, BEGUN);
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.state.load(Ordering::Acquire) == SEALED
    }

    /// The caller leaves; a call that has not begun is dropped whole.
    pub(super) fn abandon(&self) {
        self.change(QUEUED, ABANDONED);
    }

    /// Ends the call if its deadline has passed, and returns what to answer.
    pub(super) fn expire(&self, now: Duration) -> Option<Executed> {
        if now < self.deadline {
            return None;
        }
        if self.change(QUEUED, ABANDONED) {
            return Some(Executed::Busy);
        }
        self.change(BEGUN, CONDEMNED)
            .then_some(Executed::DeadlineExceeded)
    }

    /// What a deadline has ended the call with. Whoever saw it pass is about to answer so.
    pub(super) fn ended(&self) -> Option<Executed> {
        match self.state.load(Ordering::Acquire) {
            ABANDONED => Some(Executed::Busy), // Or its caller has left, and hears nothing.
            CONDEMNED => Some(Executed::DeadlineExceeded),
            _ => None, // Queued, begun or sealed: it has not ended.
        }
    }

    /// Whether the call can still run or is about to be answered.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.state.load(Ordering::Acquire), QUEUED | BEGUN)
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Answers the caller. Only the first answer counts.
    pub(super) fn answer(&self, answer: Answer) {
        let (waker, blocked) = {
            let mut slot = self.slot();
            if slot.closed {
                return;
            }
            slot.closed = true;
            slot.answer = Some(answer);
            (slot.waker.take(), slot.blocked)
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        if blocked {
            self.answered.notify_one();
        }
    }

    /// Blocks the thread until the call is answered.
    pub(super) fn wait(&self) -> Answer {
        let mut slot = self.slot();
        loop {
            if let Some(answer) = slot.answer.take() {
                return answer;
            }
            slot.blocked = true;
            slot = self
                .answered
                .wait(slot)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the answer, or has the task woken when there is one.
    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<Answer> {
        let mut slot = self.slot();
        if let Some(answer) = slot.answer.take() {
            return Poll::Ready(answer);
        }
        match &mut slot.waker {
            Some(waker) => waker.clone_from(context.waker()),
            waker @ None => *waker = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Duration = Duration::from_secs(12);

    #[test]
    fn a_sealed_call_outlives_its_deadline() {
        let ticket = Ticket::new(NOON);
        assert!(ticket.begin() && ticket.seal());
        assert!(ticket.expire(NOON).is_none());
    }

    #[test]
    fn a_condemned_call_is_never_sealed() {
        let ticket = Ticket::new(NOON);
        assert!(ticket.begin());
        assert!(matches!(
            ticket.expire(NOON),
            Some(Executed::DeadlineExceeded)
        ));
        assert!(!ticket.seal());
    }

    #[test]
    fn an_abandoned_call_never_begins() {
        let ticket = Ticket::new(NOON);
        assert!(ticket.expire(NOON / 2).is_none());
        assert!(matches!(ticket.expire(NOON), Some(Executed::Busy)));
        assert!(!ticket.begin());
    }

    #[test]
    fn leaving_a_begun_call_changes_nothing() {
        let ticket = Ticket::new(NOON);
        assert!(ticket.begin());
        ticket.abandon();
        assert!(ticket.seal());
    }

    #[test]
    fn only_the_first_answer_counts() {
        let ticket = Ticket::new(NOON);
        ticket.answer(Answer::Executed(Executed::Busy));
        ticket.answer(Answer::Ran);
        assert!(matches!(ticket.wait(), Answer::Executed(Executed::Busy)));
    }
}
