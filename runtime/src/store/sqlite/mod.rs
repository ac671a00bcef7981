//! The embedded store: one SQLite file, the application's tables beside the ledger's.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rusqlite::Connection;

pub(crate) use external::enqueue;
pub(crate) use guard::Guard;
pub use options::{OpenError, SqliteOptions, Synchronous};
pub(crate) use own::OwnConnection;
pub use prune::Pruned;
pub use transact::TransactError;

use crate::{
    clock::Clock,
    effect::tx::Transaction,
    store::{Backend, Store, StoreError, StoreHandle, Wait},
};
use checkpoint::Checkpoints;
use connection::Opener;
use files::Files;
use held::Held;
use owner::{Owner, not_run};
use queue::{AloneJob, CallJob, Job, Queue};
use reader::Readers;
use receipts::Receipts;
use recent::Recent;
use ticket::{Answer, Ticket};
use time::StoreTime;
use transact::Outcome;
use watch::Watch;
use writer::Writer;

mod batch;
mod call;
mod checkpoint;
mod confirm;
mod connection;
mod exclusive;
mod external;
#[cfg(feature = "failpoints")]
pub mod failpoints;
mod ffi;
mod files;
mod gather;
mod guard;
mod held;
mod key;
mod log;
mod lost_commit;
mod operations;
mod options;
mod own;
mod owner;
mod provider_key;
mod prune;
mod queue;
mod reader;
mod receipts;
mod recent;
mod reentry;
mod register;
mod statements;
mod threads;
mod ticket;
mod time;
mod transact;
mod watch;
mod writer;

/// A store in one SQLite file, which the application's own tables share.
///
/// Clones are cheap and are one store. Opening the same file twice, in one process or in
/// several, is safe; within a process one store is faster. When the last clone and the last
/// toolbox on it are dropped, the running batch is finished and the file closed.
///
/// ```
/// use idempotent_tool::SqliteStore;
///
/// let store = SqliteStore::in_memory()?;
/// let notes: i64 = store.transact_blocking(|tx| {
///     tx.execute_batch("CREATE TABLE notes (id TEXT, scope TEXT, body TEXT)")?;
///     tx.query_row("SELECT count(*) FROM notes", (), |row| row.get(0))
/// })?;
/// assert_eq!(notes, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct SqliteStore {
    owner: Arc<Owner>,
}

/// What the store's threads share.
struct Core {
    opener: Opener,
    clock: Arc<dyn Clock>,
    time: Arc<StoreTime>,
    guard: Arc<Guard>,
    queue: Queue,
    /// A hint where to look, and no answer: it may be of any generation.
    recent: Recent,
    receipts: Receipts,
    /// Since when the write connection is taken.
    held: Held,
    checkpoints: Checkpoints,
    /// For the ledger; held for microseconds.
    readers: Readers,
    /// For the application, which may hold them long.
    application_readers: Readers,
    /// Whether others commit, on which all that is remembered of the ledger depends.
    watch: Watch,
    /// Where the store's files were; `None` in memory.
    files: Option<Files>,
    /// Locked by whoever runs a transaction.
    writer: Mutex<Writer>,
    /// The last calls that waited were several: then it pays to wait for company, and is
    /// fair, since the first callers to wake up would be served alone before all others.
    is_crowded: AtomicBool,
}

impl SqliteStore {
    /// Opens the store in the file at `path`, which is made if it doesn't exist.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::options().open(path)
    }

    /// Opens a store in memory, which ends with it: for tests and demonstrations.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn in_memory() -> Result<Self, OpenError> {
        Self::options().open_in_memory()
    }

    /// What can be chosen when a store is opened.
    pub fn options() -> SqliteOptions {
        SqliteOptions::new()
    }

    /// Runs the application's own writes in a transaction of their own, in turn with the
    /// calls of tools.
    ///
    /// The closure is restricted as a tool is, see [`Transaction`]. If the returned future
    /// is dropped before the closure began, it never runs; afterwards it commits.
    ///
    /// # Errors
    ///
    /// The closure's own, after a rollback, or what kept it from committing: see
    /// [`TransactError`].
    pub async fn transact<T, E>(
        &self,
        work: impl FnOnce(&Transaction) -> Result<T, E> + Send + 'static,
    ) -> Result<T, TransactError<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        let outcome = self.owner.alone(Wait::Async, |core, writer, ticket| {
            transact::run(core, writer, ticket, work)
        });
        outcome
            .await
            .unwrap_or_else(|executed| Err(executed.into()))
    }

    /// [`transact`](Self::transact) that blocks the thread.
    ///
    /// # Errors
    ///
    /// As [`transact`](Self::transact).
    pub fn transact_blocking<T, E>(
        &self,
        work: impl FnOnce(&Transaction) -> Result<T, E> + Send + 'static,
    ) -> Result<T, TransactError<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        let outcome = self
            .owner
            .alone_blocking(|core, writer, ticket| transact::run(core, writer, ticket, work));
        outcome.unwrap_or_else(|executed| Err(executed.into()))
    }

    /// Runs the application's reads on a connection that can't write, beside the writer.
    ///
    /// It blocks the thread while all the readers are in use. A transaction that the closure
    /// leaves open is ended.
    ///
    /// # Errors
    ///
    /// The closure's own, or SQLite's if no connection can be had; with a store in memory,
    /// which has one connection, also when it is called inside a handler.
    pub fn read<T, E: From<rusqlite::Error>>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        let core = &self.owner.core;
        if let Some(path) = &core.opener.path {
            core.check_files()
                .map_err(|error| E::from(misuse(error.what)))?;
            return match core.application_readers.with(&core.opener, path, work) {
                Ok(outcome) => outcome,
                Err(error) => Err(E::from(error.into_sqlite())),
            };
        }
        let refused = |error: StoreError| E::from(misuse(error.what));
        reentry::refuse().map_err(refused)?;
        let mut guard = core.writer();
        let writer = &mut *guard;
        let transaction = writer.take(core).map_err(refused)?;
        let outcome = transaction
            .connection()
            .pragma_update(None, "query_only", true)
            .map_err(E::from)
            .map(|()| catch_unwind(AssertUnwindSafe(|| work(transaction.connection()))));
        let ended = transaction
            .connection()
            .pragma_update(None, "query_only", false);
        writer.put(core, transaction);
        drop(guard);
        match outcome? {
            Ok(outcome) => ended.map_err(E::from).and(outcome),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Prunes the next `limit` rows of the ledger, oldest first: receipts past their
    /// retention become tombstones, tombstones past their time are removed. At the end of
    /// the ledger the next pass starts over.
    ///
    /// It blocks the thread. The writer does the same by itself when it is idle, unless
    /// [`background_pruning`](SqliteOptions::background_pruning) is off. A row goes a minute
    /// after its time, and a tombstone no sooner than its own time after it became one. For
    /// a minute after an opening that had to believe the wall clock, nothing is pruned: see
    /// [`Pruned::halted`].
    ///
    /// # Errors
    ///
    /// When the ledger can't be read or written, or another process has the lock for longer
    /// than the store's budget.
    pub fn prune(&self, limit: usize) -> Result<Pruned, StoreError> {
        let pruned = self
            .owner
            .alone_blocking(move |core, writer, ticket| pass(core, writer, ticket, limit));
        pruned.unwrap_or_else(|executed| Err(not_run(executed)))
    }

    /// Forgets up to which time of day the ledger has counted, and begins anew with what the
    /// clock shows now.
    ///
    /// The ledger has a time of its own, which goes on from what the wall clock gained while
    /// nobody had it open. After a process whose wall clock was far ahead, it has counted up
    /// to there already: before it comes to as much, no time counts in which no process has
    /// the ledger open, so that results are kept, and keys refused, for longer.
    /// Call this once the clock is right. It changes no row and frees no key.
    ///
    /// It blocks the thread. A process whose clock is still ahead takes it back.
    ///
    /// # Errors
    ///
    /// As [`prune`](Self::prune).
    pub fn reset_wall_time(&self) -> Result<(), StoreError> {
        let reset = self.owner.alone_blocking(|core, writer, ticket| {
            let transaction = writer.take(core)?;
            let waits = || core.clock.monotonic() < ticket.deadline && ticket.is_live();
            let known = (core, &mut writer.memo);
            let reset = core.time.heal(known, &transaction, waits);
            writer.put(core, transaction);
            if reset? {
                return Ok(());
            }
            let locked = "another process keeps the database locked; reset its clock later";
            Err(StoreError::new(locked).retryable())
        });
        reset.unwrap_or_else(|executed| Err(not_run(executed)))
    }

    fn start(path: Option<PathBuf>, options: SqliteOptions) -> Result<Self, OpenError> {
        let path = path.map(connection::settle_path);
        let clock = options.clock_or_system();
        let time = Arc::new(StoreTime::new(Arc::clone(&clock)));
        #[allow(unused_mut)] // Without failpoints it is as it was made.
        let mut guard = Guard::new(Arc::clone(&time));
        #[cfg(feature = "failpoints")]
        {
            guard.failpoints = match options.failpoints.clone() {
                Some(failpoints) => Some(failpoints),
                None => failpoints::Failpoints::from_environment()?,
            };
        }
        let guard = Arc::new(guard);
        let opener = Opener { path, options };
        let connection = opener.writer(&guard)?;
        if ffi::has_moved(&connection.connection) {
            return Err(OpenError::Sqlite(misuse(writer::REPLACED)));
        }
        let (watch, files) = opener.watch(&connection.connection);
        let writer = Writer::new(connection, &watch, &guard)?;
        let options = &opener.options;
        let core = Arc::new(Core {
            time,
            guard,
            queue: Queue::new(options.queued_calls, options.queued_bytes),
            recent: Recent::new(),
            receipts: Receipts::new(),
            held: Held::default(),
            checkpoints: Checkpoints::new(),
            readers: Readers::new(options.readers),
            application_readers: Readers::new(options.readers),
            watch,
            files,
            writer: Mutex::new(writer),
            is_crowded: AtomicBool::new(false),
            opener,
            clock,
        });
        let threads = threads::start(&core).map_err(OpenError::Thread)?;
        Ok(Self {
            owner: Arc::new(Owner {
                core,
                threads: Mutex::new(threads),
            }),
        })
    }
}

impl Store for SqliteStore {
    fn handle(&self) -> StoreHandle {
        StoreHandle(Arc::clone(&self.owner) as Arc<dyn Backend>)
    }
}

impl Core {
    /// Ends the threads once they have answered what they run.
    fn close(&self) {
        self.queue.close();
        self.checkpoints.close();
    }

    /// Waits for the connection.
    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, if nobody has it or waits for it.
    fn free_writer(&self) -> Option<MutexGuard<'_, Writer>> {
        if self.is_crowded.load(Ordering::Relaxed) || !self.queue.is_free() {
            return None;
        }
        match self.writer.try_lock() {
            Ok(writer) => Some(writer),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Runs the caller's own call in its thread if it need not wait, else queues it.
    fn run_or_queue(&self, job: CallJob) {
        let Some(mut writer) = self.free_writer() else {
            self.queue.push(Job::Call(job.weighed()));
            return;
        };
        #[cfg(feature = "failpoints")]
        let _counting = self.count_statements();
        // A single call is always reached, so nothing is left over.
        batch::run(self, &mut writer, vec![job]);
    }

    /// Fails if the store's files are no longer where it opened them: what is written is lost
    /// then, and what is read is not what others find.
    fn check_files(&self) -> Result<(), StoreError> {
        files::check(self.files.as_ref())
    }

    /// When work of the runtime's own is given up that begins to wait now.
    fn budget_from_now(&self) -> Duration {
        self.clock
            .monotonic()
            .saturating_add(self.opener.options.budget)
    }

    fn prepare<T: Send + 'static>(
        deadline: Duration,
        work: impl FnOnce(&Core, &mut Writer, &Ticket) -> T + Send + 'static,
    ) -> (AloneJob, Outcome<T>) {
        let outcome = Outcome::new();
        let place = outcome.clone();
        let job = AloneJob::new(deadline, move |core, writer, ticket| {
            place.set(work(core, writer, ticket));
            Answer::Ran
        });
        (job, outcome)
    }

    /// Counts what is no call, where that is wanted.
    #[cfg(feature = "failpoints")]
    fn count_other_work(&self) -> Option<impl Drop> {
        let failpoints = self.guard.failpoints.as_ref();
        let counts = failpoints.is_some_and(failpoints::Failpoints::counts_all);
        counts.then(|| self.count_statements())
    }

    #[cfg(feature = "failpoints")]
    fn count_statements(&self) -> impl Drop {
        failpoints::Counting::begin(self.guard.failpoints.clone())
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("path", &self.opener.path)
            .finish_non_exhaustive()
    }
}

fn pass(
    core: &Core,
    writer: &mut Writer,
    ticket: &Ticket,
    limit: usize,
) -> Result<Pruned, StoreError> {
    let transaction = writer.take(core)?;
    let waits = || core.clock.monotonic() < ticket.deadline && ticket.is_live();
    let pruned = prune::prune(
        core,
        &transaction,
        &mut writer.memo,
        &mut writer.walk,
        limit,
        waits,
    );
    writer.put(core, transaction);
    let locked = "another process keeps the database locked; prune later";
    pruned?.ok_or_else(|| StoreError::new(locked).retryable())
}

fn misuse(what: &str) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(
        rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_MISUSE),
        Some(what.to_owned()),
    )
}
