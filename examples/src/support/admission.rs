//! Who may hold a connection: callers that have shown a valid token, and apart from them, few
//! and briefly, strangers that haven't yet.

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The two kinds of places.
#[derive(Debug)]
pub(super) struct Admission {
    callers: Arc<Semaphore>,
    strangers: Mutex<Strangers>,
    most_strangers: usize,
    /// How long one may be a stranger, and how long a caller waits for a place.
    patience: Duration,
}

/// The connections without a valid token, oldest first.
#[derive(Debug, Default)]
struct Strangers {
    next: u64,
    waiting: BTreeMap<u64, Arc<Notify>>,
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
    pub(super) fn new(callers: usize, strangers: usize, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            callers: Arc::new(Semaphore::new(callers)),
            strangers: Mutex::default(),
            most_strangers: strangers.max(1),
            patience,
        })
    }

    /// Takes a connection in. If there are too many strangers, the oldest one has to go: it
    /// had the longest time to send its token, and whoever comes with one must not wait
    /// behind those without.
    pub(super) fn enter(self: &Arc<Self>) -> Arc<Entrant> {
        let pushed_out = Arc::new(Notify::new());
        let mut strangers = self.strangers();
        if self.most_strangers <= strangers.waiting.len()
            && let Some((_, oldest)) = strangers.waiting.pop_first()
        {
            oldest.notify_one();
        }
        let number = strangers.next;
        strangers.next += 1;
        strangers.waiting.insert(number, Arc::clone(&pushed_out));
        drop(strangers);
        Arc::new(Entrant {
            admission: Arc::clone(self),
            number,
            pushed_out,
            place: OnceLock::new(),
        })
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
        match tokio::time::timeout(self.admission.patience, callers.acquire_owned()).await {
            // A second request of one connection, which HTTP/1 doesn't have, would be in vain.
            Ok(Ok(place)) => self.place.set(place).is_ok(),
            Ok(Err(_)) | Err(_) => false, // Nobody closes the semaphore.
        }
    }

    /// Completes when the connection is to be closed: it still is a stranger, and has been one
    /// for too long, or others came after it.
    pub(super) async fn turned_away(&self) {
        let too_long = tokio::time::sleep(self.admission.patience);
        tokio::select! {
            () = self.pushed_out.notified() => (),
            () = too_long => if !self.leave_the_strangers() {
                pending().await // It was admitted, or asks for it now.
            },
        }
    }

    /// Whether it was one until now.
    fn leave_the_strangers(&self) -> bool {
        let mut strangers = self.admission.strangers();
        strangers.waiting.remove(&self.number).is_some()
    }
}

impl Drop for Entrant {
    fn drop(&mut self) {
        self.leave_the_strangers();
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin, task::Poll};

    use super::*;

    async fn is_pending(future: impl Future<Output = ()>) -> bool {
        let mut future = pin!(future);
        poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
    }

    #[tokio::test]
    async fn the_oldest_stranger_gives_way_and_a_caller_never_does() {
        let admission = Admission::new(2, 3, Duration::from_secs(60));
        let caller = admission.enter();
        assert!(caller.admit().await);
        let strangers: Vec<_> = (0..4).map(|_| admission.enter()).collect();
        let [oldest, others @ ..] = &strangers[..] else {
            panic!("there are four");
        };
        oldest.turned_away().await;
        assert!(!oldest.admit().await, "it is being closed");
        for entrant in others.iter().chain([&caller]) {
            assert!(is_pending(entrant.turned_away()).await);
        }
        assert!(others[0].admit().await);
        let newest = admission.enter();
        assert!(
            is_pending(others[1].turned_away()).await,
            "a place was free"
        );
        drop(newest);
        drop(strangers);
        assert!(admission.strangers().waiting.is_empty());
    }

    #[tokio::test]
    async fn a_stranger_is_turned_away_in_time_and_a_caller_waits_for_a_place() {
        let hurried = Admission::new(1, 3, Duration::from_millis(10));
        hurried.enter().turned_away().await;
        let (first, second) = (hurried.enter(), hurried.enter());
        assert!(first.admit().await);
        assert!(!second.admit().await, "no place became free");
        assert!(hurried.strangers().waiting.is_empty());

        let patient = Admission::new(1, 3, Duration::from_secs(60));
        let (first, second) = (patient.enter(), patient.enter());
        assert!(first.admit().await);
        let waits = tokio::spawn(async move { second.admit().await });
        tokio::task::yield_now().await;
        drop(first);
        assert!(waits.await.unwrap());
    }
}
