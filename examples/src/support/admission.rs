//! Who may hold a connection: callers that have shown a valid token, and apart from them, few
//! and briefly, strangers that haven't yet.

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout, timeout_at},
};

use super::http::Limits;

/// The two kinds of places.
#[derive(Debug)]
pub(super) struct Admission {
    callers: Arc<Semaphore>,
    strangers: Mutex<Strangers>,
    /// A stranger's place has become free.
    left: Notify,
    limits: Limits,
}

/// The connections without a valid token, oldest first.
#[derive(Debug, Default)]
struct Strangers {
    next: u64,
    waiting: BTreeMap<u64, Stranger>,
}

#[derive(Debug)]
struct Stranger {
    since: Instant,
    pushed_out: Arc<Notify>,
}

/// One connection: a stranger until [`admit`](Self::admit).
#[derive(Debug)]
pub(super) struct Entrant {
    admission: Arc<Admission>,
    number: u64,
    pushed_out: Arc<Notify>,
    place: OnceLock<OwnedSemaphorePermit>,
}

impl Admission {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            callers: Arc::new(Semaphore::new(limits.connections)),
            strangers: Mutex::default(),
            left: Notify::new(),
            limits,
        })
    }

    /// Takes a connection in. If there are too many strangers, the oldest one has to go once
    /// it had the time to send its token: whoever comes with one must not wait long behind
    /// those without.
    pub(super) async fn enter(self: &Arc<Self>) -> Arc<Entrant> {
        loop {
            let spared_until = match self.try_enter() {
                Ok(entrant) => return entrant,
                Err(spared_until) => spared_until,
            };
            // Either way it is looked again.
            let _ = timeout_at(spared_until, self.left.notified()).await;
        }
    }

    /// Fails with the time until which the oldest stranger is spared.
    fn try_enter(self: &Arc<Self>) -> Result<Arc<Entrant>, Instant> {
        let now = Instant::now();
        let mut strangers = self.strangers();
        if self.limits.strangers <= strangers.waiting.len()
            && let Some(oldest) = strangers.waiting.first_entry()
        {
            let spared_until = oldest.get().since + self.limits.spared;
            if now < spared_until {
                return Err(spared_until);
            }
            oldest.remove().pushed_out.notify_one();
        }
        let number = strangers.next;
        strangers.next += 1;
        let pushed_out = Arc::new(Notify::new());
        let stranger = Stranger {
            since: now,
            pushed_out: Arc::clone(&pushed_out),
        };
        strangers.waiting.insert(number, stranger);
        Ok(Arc::new(Entrant {
            admission: Arc::clone(self),
            number,
            pushed_out,
            place: OnceLock::new(),
        }))
    }

    fn strangers(&self) -> MutexGuard<'_, Strangers> {
        self.strangers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entrant {
    /// Gives the connection a caller's place, now that a request had a valid token. Says no if
    /// all are taken for too long, or the connection is being closed.
    pub(super) async fn admit(&self) -> bool {
        if self.place.get().is_some() {
            return true;
        }
        if !self.leave_the_strangers() {
            return false;
        }
        let callers = Arc::clone(&self.admission.callers);
        match timeout(self.admission.limits.entering, callers.acquire_owned()).await {
            // A second request of one connection, which HTTP/1 doesn't have, would be in vain.
            Ok(Ok(place)) => self.place.set(place).is_ok(),
            Ok(Err(_)) | Err(_) => false, // Nobody closes the semaphore.
        }
    }

    /// Completes when the connection is to be closed: it still is a stranger, and has been one
    /// for too long, or others came after it.
    pub(super) async fn turned_away(&self) {
        let too_long = sleep(self.admission.limits.entering);
        tokio::select! {
            () = self.pushed_out.notified() => (),
            () = too_long => if !self.leave_the_strangers() {
                pending::<()>().await; // It was admitted, or asks for it now.
            },
        }
    }

    /// Whether it was one until now.
    fn leave_the_strangers(&self) -> bool {
        let known = self.admission.strangers().waiting.remove(&self.number);
        if known.is_some() {
            self.admission.left.notify_one();
        }
        known.is_some()
    }
}

impl Drop for Entrant {
    fn drop(&mut self) {
        self.leave_the_strangers();
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

    use super::*;

    fn limits(connections: usize, strangers: usize) -> Limits {
        Limits {
            connections,
            strangers,
            entering: Duration::from_mins(1),
            spared: Duration::ZERO,
            ..Limits::default()
        }
    }

    async fn is_pending<T>(future: impl Future<Output = T>) -> bool {
        let mut future = pin!(future);
        poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
    }

    #[tokio::test]
    async fn the_oldest_stranger_gives_way_and_a_caller_never_does() {
        let admission = Admission::new(limits(2, 3));
        let caller = admission.enter().await;
        assert!(caller.admit().await);
        let mut strangers = Vec::new();
        for _ in 0..4 {
            strangers.push(admission.enter().await);
        }
        let [oldest, others @ ..] = &strangers[..] else {
            panic!("there are four");
        };
        oldest.turned_away().await;
        assert!(!oldest.admit().await, "it is being closed");
        for entrant in others.iter().chain([&caller]) {
            assert!(is_pending(entrant.turned_away()).await);
        }
        assert!(others[0].admit().await);
        let newest = admission.enter().await;
        assert!(
            is_pending(others[1].turned_away()).await,
            "a place was free"
        );
        drop(newest);
        drop(strangers);
        assert!(admission.strangers().waiting.is_empty());
    }

    #[tokio::test]
    async fn a_stranger_that_has_just_come_is_spared_until_it_leaves() {
        let admission = Admission::new(Limits {
            spared: Duration::from_mins(1),
            ..limits(2, 1)
        });
        let first = admission.enter().await;
        assert!(is_pending(admission.enter()).await);
        let waits = tokio::spawn({
            let admission = Arc::clone(&admission);
            async move { admission.enter().await }
        });
        tokio::task::yield_now().await;
        assert!(first.admit().await);
        let second = waits.await.unwrap();
        assert!(is_pending(first.turned_away()).await);
        assert!(second.admit().await);
    }

    #[tokio::test]
    async fn a_stranger_is_turned_away_in_time_and_a_caller_waits_for_a_place() {
        let hurried = Admission::new(Limits {
            entering: Duration::from_millis(10),
            ..limits(1, 3)
        });
        hurried.enter().await.turned_away().await;
        let (first, second) = (hurried.enter().await, hurried.enter().await);
        assert!(first.admit().await);
        assert!(!second.admit().await, "no place became free");
        assert!(hurried.strangers().waiting.is_empty());

        let patient = Admission::new(limits(1, 3));
        let (first, second) = (patient.enter().await, patient.enter().await);
        assert!(first.admit().await);
        let waits = tokio::spawn(async move { second.admit().await });
        tokio::task::yield_now().await;
        drop(first);
        assert!(waits.await.unwrap());
    }
}
