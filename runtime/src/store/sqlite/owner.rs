//! The store as the toolbox drives it, and as long as somebody does.

use std::{
    future::{self, Future},
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    thread::{self, JoinHandle},
    time::Duration,
};

use rusqlite::Connection;

use crate::{
    BuildError,
    clock::{Clock, Moment, Timestamp},
    effect::transactional::{Executed, TransactionalCall},
    operation::{
        identity::Identity,
        stored::{Receipt, Stored},
    },
    request::{
        contract::Contract,
        registered::{CheckContract, Registered},
    },
    store::{
        Backend, BoxFuture, StoreError, Wait,
        sqlite::{
            Core,
            options::OpenError,
            queue::{CallJob, Job},
            reader, reentry, register,
            ticket::{Answer, Ticket},
            writer::Writer,
        },
    },
};

/// Ends the store's threads when the last handle is dropped.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) core: Arc<Core>,
    pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Backend for Owner {
    fn clock(&self) -> &Arc<dyn Clock> {
        &self.core.clock
    }

    fn now(&self) -> Timestamp {
        self.core.time.now()
    }

    fn moment(&self) -> Moment {
        self.core.time.moment()
    }

    fn register(
        &self,
        contracts: Vec<Contract>,
        check: CheckContract,
    ) -> Result<Vec<Arc<Registered>>, BuildError> {
        reentry::refuse().map_err(BuildError::Store)?;
        let core = &*self.core;
        let mut guard = core.writer();
        let writer = &mut *guard;
        let transaction = writer.take(core).map_err(BuildError::Store)?;
        let registered = register::register(core, &mut writer.memo, &transaction, contracts, check);
        writer.put(core, transaction);
        registered
    }

    fn refuse_reentry(&self) -> Result<(), StoreError> {
        reentry::refuse()
    }

    fn may_know(&self, identity: &Identity) -> bool {
        let core = &self.core;
        // In memory every look-up goes through the writer, so one of its own saves nothing.
        core.opener.path.is_some()
            && (core.recent.may_contain(identity) || core.held.is_long(core.clock.monotonic()))
    }

    fn find<'a>(
        &'a self,
        identity: &'a Identity,
        wait: Wait,
    ) -> BoxFuture<'a, Result<Option<Stored>, StoreError>> {
        if let Err(refused) = reentry::refuse() {
            return Box::pin(future::ready(Err(refused)));
        }
        let core = &*self.core;
        if let Some(receipt) = core.remembered(identity) {
            let found = core.check_files().map(|()| Stored::Receipt(receipt));
            return Box::pin(future::ready(found.map(Some)));
        }
        if let Some(path) = &core.opener.path {
            let found = core.look(path, |connection| reader::find(connection, identity));
            return Box::pin(future::ready(found.map_err(StoreError::before_look_up)));
        }
        let identity = identity.clone();
        Box::pin(async move {
            let found = self.alone(wait, move |core, writer, _| {
                let transaction = writer.take(core)?;
                let found = reader::find(transaction.connection(), &identity);
                writer.put(core, transaction);
                found
            });
            found
                .await
                .unwrap_or_else(|executed| Err(not_run(executed)))
                .map_err(StoreError::before_look_up)
        })
    }

    fn execute(&self, call: TransactionalCall, wait: Wait) -> BoxFuture<'_, Executed> {
        Box::pin(async move {
            if let Err(refused) = reentry::refuse() {
                return Executed::Storage(refused);
            }
            let job = CallJob::new(call);
            let ticket = Arc::clone(&job.ticket);
            // Dropped here in the end, in the caller's time, as is the receipt kept.
            let call = Arc::clone(&job.call);
            let answer = match wait {
                Wait::Async => {
                    self.core.queue.push(Job::Call(job.weighed()));
                    Waiting(Arc::clone(&ticket)).await
                }
                Wait::Blocking => {
                    self.core.run_or_queue(job);
                    ticket.wait()
                }
            };
            let generation = ticket.generation().filter(|_| self.core.watch.sees());
            let Answer::Executed(executed) = answer else {
                return Executed::Busy; // The other is said of other work only.
            };
            if let Some((receipt, generation)) = executed.receipt().zip(generation) {
                let receipts = &self.core.receipts;
                receipts.insert(&call.identity, receipt, generation);
            }
            executed
        })
    }
}

impl Core {
    /// The receipt in memory, if nobody else has committed since it was read or written.
    fn remembered(&self, identity: &Identity) -> Option<Receipt> {
        let generation = self.watch.believed()?;
        let now = self.time.now();
        self.receipts.get(identity, now, generation)
    }

    /// Reads the ledger without the write lock, in the file that the store has opened.
    pub(super) fn look<T>(
        &self,
        path: &Path,
        read: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let found = self
            .readers
            .with(&self.opener, path, read)
            .unwrap_or_else(|error| Err(unopened(error)));
        // Afterwards: a connection that was opened meanwhile is another file's, if it moved.
        self.check_files().and(found)
    }
}

impl Owner {
    /// Runs work that has the connection to itself; `Err` says why it did not run.
    pub(super) async fn alone<T: Send + 'static>(
        &self,
        wait: Wait,
        work: impl FnOnce(&Core, &mut Writer, &Ticket) -> T + Send + 'static,
    ) -> Result<T, Executed> {
        self.alone_until(wait, self.core.budget_from_now(), work)
            .await
    }

    pub(super) async fn alone_until<T: Send + 'static>(
        &self,
        wait: Wait,
        deadline: Duration,
        work: impl FnOnce(&Core, &mut Writer, &Ticket) -> T + Send + 'static,
    ) -> Result<T, Executed> {
        match wait {
            Wait::Blocking => self.alone_blocking(work),
            Wait::Async => {
                reentry::refuse().map_err(Executed::Storage)?;
                let (job, outcome) = Core::prepare(deadline, work);
                let ticket = Arc::clone(&job.ticket);
                self.core.queue.push(Job::Alone(job));
                outcome.take(Waiting(ticket).await)
            }
        }
    }

    pub(super) fn alone_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Core, &mut Writer, &Ticket) -> T + Send + 'static,
    ) -> Result<T, Executed> {
        reentry::refuse().map_err(Executed::Storage)?;
        let core = &*self.core;
        let (job, outcome) = Core::prepare(core.budget_from_now(), work);
        let ticket = Arc::clone(&job.ticket);
        match core.free_writer() {
            Some(mut writer) => {
                #[cfg(feature = "failpoints")]
                let _counting = core.count_other_work();
                job.run(core, &mut writer);
            }
            None => core.queue.push(Job::Alone(job)),
        }
        outcome.take(ticket.wait())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.core.close();
        let threads = self
            .threads
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            // The last handle may have been a handler's, whose thread can't join itself.
            if thread.thread().id() != thread::current().id() && thread.join().is_err() {
                tracing::error!("a thread of the store panicked");
            }
        }
        self.core.close_time();
    }
}

/// A call's answer. Dropped, it abandons a call that has not begun.
#[derive(Debug)]
struct Waiting(Arc<Ticket>);

impl Future for Waiting {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        self.0.poll(context)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Why work of the runtime's own was not run.
pub(super) fn not_run(executed: Executed) -> StoreError {
    match executed {
        Executed::Storage(error) | Executed::Unknown(_, error) => error,
        // The others are a call's own, but for the two that say that time was short.
        Executed::Busy
        | Executed::DeadlineExceeded
        | Executed::Committed(_)
        | Executed::Found(_)
        | Executed::RolledBack(_) => {
            StoreError::new("the writer had no time within the budget; ask again").busy()
        }
    }
}

pub(super) fn unopened(error: OpenError) -> StoreError {
    StoreError::new("the database can't be opened for reading; check the file and its folder")
        .retryable()
        .caused_by(error)
}
