//! Failures at a chosen statement of a call, for this crate's own tests.
//!
//! `IDEMPOTENT_TOOL_FAILPOINT=action:number`, or `kill:after-commit`, arms every store that
//! the process opens, so that a child process can be killed between two statements.

use std::{
    fmt, io, process,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use rusqlite::{
    Connection, Error, ffi,
    trace::{TraceEvent, TraceEventCodes},
};

use crate::store::sqlite::options::OpenError;

/// What happens at the chosen statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failpoint {
    /// The process is killed before SQLite runs it.
    KillBefore,
    /// The process is killed after SQLite has run it.
    KillAfter,
    /// The process is killed after a commit, whatever its number.
    KillAfterCommit,
    /// It is not run, and reports a lock.
    Busy,
    /// It is not run, and reports a failure of the disk.
    Io,
    /// It is not run, reports a failure of the disk, and the transaction is rolled back, as
    /// SQLite does when a commit can't be written.
    IoAndRollback,
    /// It is run, and reports a failure of the disk.
    IoAfter,
    /// It is run, reports a failure of the disk, and what it did can't be read afterwards.
    IoAfterAndHidden,
    /// It is not run, and reports a full disk.
    Full,
    /// It is not run, reports a full disk, and the transaction is rolled back.
    FullAndRollback,
    /// As [`FullAndRollback`](Self::FullAndRollback), and whether it was can't be read afterwards.
    FullAndHidden,
}

/// Counts what the calls of a store run, and fails where it was told to.
///
/// Two counts, both from a batch's `BEGIN` to its answers: of the statements that SQLite
/// ran, whoever prepared them (what kills go by), and of the runtime's and handlers' requests
/// (what errors go by; a batch of statements is one).
#[derive(Clone, Default)]
pub struct Failpoints(Arc<Shared>);

#[derive(Default)]
struct Shared {
    counting: AtomicBool,
    /// The application's own transactions and pruning count as calls do.
    counts_all: AtomicBool,
    statements: AtomicU64,
    requests: AtomicU64,
    commits: AtomicU64,
    /// Zero is not armed.
    at: AtomicU64,
    /// The armed number is of commits alone.
    at_commits: AtomicBool,
    /// The next request is a commit.
    commit_comes: AtomicBool,
    commit_requests: AtomicU64,
    /// How often the armed failure may still happen.
    left: AtomicU64,
    /// How often it has happened, and how often of these at a commit.
    failed: AtomicU64,
    failed_commits: AtomicU64,
    action: AtomicU64,
    hidden: AtomicBool,
}

const ACTIONS: [(&str, Failpoint); 11] = [
    ("kill-before", Failpoint::KillBefore),
    ("kill-after", Failpoint::KillAfter),
    ("kill-after-commit", Failpoint::KillAfterCommit),
    ("busy", Failpoint::Busy),
    ("io", Failpoint::Io),
    ("io-and-rollback", Failpoint::IoAndRollback),
    ("io-after", Failpoint::IoAfter),
    ("io-after-and-hidden", Failpoint::IoAfterAndHidden),
    ("full", Failpoint::Full),
    ("full-and-rollback", Failpoint::FullAndRollback),
    ("full-and-hidden", Failpoint::FullAndHidden),
];

impl Failpoints {
    /// Failpoints that are not armed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Arms one failure, at the statement or request with this number from now on.
    pub fn arm(&self, action: Failpoint, number: u64) {
        let position = ACTIONS.iter().position(|(_, known)| *known == action);
        self.0.action.store(
            position.map_or(0, |position| position as u64),
            Ordering::SeqCst,
        );
        self.0.statements.store(0, Ordering::SeqCst);
        self.0.requests.store(0, Ordering::SeqCst);
        self.0.commits.store(0, Ordering::SeqCst);
        self.0.hidden.store(false, Ordering::SeqCst);
        self.0.at_commits.store(false, Ordering::SeqCst);
        self.0.commit_requests.store(0, Ordering::SeqCst);
        self.0.left.store(1, Ordering::SeqCst);
        self.0.failed.store(0, Ordering::SeqCst);
        self.0.failed_commits.store(0, Ordering::SeqCst);
        self.0.at.store(number, Ordering::SeqCst);
    }

    /// Arms a failure at the commit that is requested as the `number`th from now on, and at
    /// those after it: `times` in all.
    pub fn arm_commits(&self, action: Failpoint, number: u64, times: u64) {
        self.arm(action, 0);
        self.0.at_commits.store(true, Ordering::SeqCst);
        self.0.left.store(times, Ordering::SeqCst);
        self.0.at.store(number, Ordering::SeqCst);
    }

    /// From now on the application's own transactions and pruning, run where nobody else
    /// waits, count as well.
    pub fn count_all(&self) {
        self.0.counts_all.store(true, Ordering::SeqCst);
    }

    pub(super) fn counts_all(&self) -> bool {
        self.0.counts_all.load(Ordering::SeqCst)
    }

    /// How often the armed failure of a request has happened.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.0.failed.load(Ordering::SeqCst)
    }

    /// How often of these at a commit.
    #[must_use]
    pub fn failed_commits(&self) -> u64 {
        self.0.failed_commits.load(Ordering::SeqCst)
    }

    /// Starts the counts again, with nothing armed.
    pub fn reset(&self) {
        self.arm(Failpoint::Busy, 0);
    }

    /// How many statements SQLite ran since the last [`arm`](Self::arm) or [`reset`](Self::reset).
    #[must_use]
    pub fn statements(&self) -> u64 {
        self.0.statements.load(Ordering::SeqCst)
    }

    /// How many requests were made since the last [`arm`](Self::arm) or [`reset`](Self::reset).
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.0.requests.load(Ordering::SeqCst)
    }

    /// How many commits SQLite ran since the last [`arm`](Self::arm) or [`reset`](Self::reset).
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.0.commits.load(Ordering::SeqCst)
    }

    /// What the environment asks for.
    pub(super) fn from_environment() -> Result<Option<Self>, OpenError> {
        let Ok(text) = std::env::var("IDEMPOTENT_TOOL_FAILPOINT") else {
            return Ok(None);
        };
        let failpoints = Self::new();
        if text == "kill:after-commit" {
            failpoints.arm(Failpoint::KillAfterCommit, 1);
            return Ok(Some(failpoints));
        }
        let (name, number) = text.split_once(':').ok_or(OpenError::Failpoint)?;
        let number = number.parse().map_err(|_| OpenError::Failpoint)?;
        let action = ACTIONS.iter().find(|(known, _)| *known == name);
        let (_, action) = action.ok_or(OpenError::Failpoint)?;
        failpoints.arm(*action, number);
        Ok(Some(failpoints))
    }

    /// A batch begins or has been answered.
    fn count(&self, on: bool) {
        self.0.counting.store(on, Ordering::SeqCst);
    }

    /// Has SQLite report the statements that it runs.
    pub(super) fn install(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let failpoints = self.clone();
        connection.trace_v2(
            TraceEventCodes::SQLITE_TRACE_STMT | TraceEventCodes::SQLITE_TRACE_PROFILE,
            Some(move |event: TraceEvent<'_>| failpoints.trace(&event)),
        )
    }

    /// Runs a request, unless it is the one to fail.
    pub(crate) fn around<T>(
        &self,
        connection: &Connection,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        if !self.0.counting.load(Ordering::SeqCst) {
            return work(connection);
        }
        let is_commit = self.0.commit_comes.swap(false, Ordering::SeqCst);
        if !self.is_to_fail(is_commit) {
            return work(connection);
        }
        match self.action() {
            Some(Failpoint::Busy) => Err(failure(ffi::SQLITE_BUSY)),
            Some(Failpoint::Io) => Err(failure(ffi::SQLITE_IOERR_WRITE)),
            Some(Failpoint::Full) => Err(failure(ffi::SQLITE_FULL)),
            Some(Failpoint::IoAndRollback) => {
                connection.execute_batch("ROLLBACK")?;
                Err(failure(ffi::SQLITE_IOERR_WRITE))
            }
            Some(Failpoint::FullAndRollback) => {
                connection.execute_batch("ROLLBACK")?;
                Err(failure(ffi::SQLITE_FULL))
            }
            Some(Failpoint::FullAndHidden) => {
                self.0.hidden.store(true, Ordering::SeqCst);
                connection.execute_batch("ROLLBACK")?;
                Err(failure(ffi::SQLITE_FULL))
            }
            Some(Failpoint::IoAfter) => {
                work(connection)?;
                Err(failure(ffi::SQLITE_IOERR_FSYNC))
            }
            Some(Failpoint::IoAfterAndHidden) => {
                self.0.hidden.store(true, Ordering::SeqCst);
                work(connection)?;
                Err(failure(ffi::SQLITE_IOERR_FSYNC))
            }
            Some(Failpoint::KillBefore | Failpoint::KillAfter | Failpoint::KillAfterCommit)
            | None => work(connection),
        }
    }

    /// Counts a request, and says whether it is to fail.
    fn is_to_fail(&self, is_commit: bool) -> bool {
        let shared = &*self.0;
        let mut number = shared.requests.fetch_add(1, Ordering::SeqCst) + 1;
        let at = shared.at.load(Ordering::SeqCst);
        let mut fails = number == at;
        if shared.at_commits.load(Ordering::SeqCst) {
            if !is_commit {
                return false;
            }
            number = shared.commit_requests.fetch_add(1, Ordering::SeqCst) + 1;
            fails = at <= number;
        }
        if !fails || at == 0 || shared.left.load(Ordering::SeqCst) == 0 {
            return false;
        }
        shared.left.fetch_sub(1, Ordering::SeqCst);
        shared.failed.fetch_add(1, Ordering::SeqCst);
        if is_commit {
            shared.failed_commits.fetch_add(1, Ordering::SeqCst);
        }
        true
    }

    /// The next request is a commit.
    pub(super) fn commit_comes(&self) {
        let counting = self.0.counting.load(Ordering::SeqCst);
        self.0.commit_comes.store(counting, Ordering::SeqCst);
    }

    /// Whether a look at what a commit did must fail.
    pub(super) fn hides_the_outcome(&self) -> bool {
        self.0.hidden.load(Ordering::SeqCst)
    }

    fn action(&self) -> Option<Failpoint> {
        let position = usize::try_from(self.0.action.load(Ordering::SeqCst)).ok()?;
        ACTIONS.get(position).map(|(_, action)| *action)
    }

    fn trace(&self, event: &TraceEvent<'_>) {
        if !self.0.counting.load(Ordering::SeqCst) {
            return;
        }
        let at = self.0.at.load(Ordering::SeqCst);
        match event {
            // A trigger's statements are their statement's; SQLite tells them as comments.
            TraceEvent::Stmt(_, sql) if sql.starts_with("--") => (),
            TraceEvent::Stmt(..) => {
                let number = self.0.statements.fetch_add(1, Ordering::SeqCst) + 1;
                if number == at && self.action() == Some(Failpoint::KillBefore) {
                    kill();
                }
            }
            TraceEvent::Profile(statement, _) => {
                let commits = statement.sql().starts_with("COMMIT");
                if commits {
                    self.0.commits.fetch_add(1, Ordering::SeqCst);
                }
                let number = self.0.statements.load(Ordering::SeqCst);
                match self.action() {
                    Some(Failpoint::KillAfter) if number == at => kill(),
                    Some(Failpoint::KillAfterCommit) if commits && at != 0 => kill(),
                    _ => (), // The other actions don't go by what SQLite ran.
                }
            }
            _ => (), // Only these two were asked for.
        }
    }
}

/// While it lives, statements count.
#[derive(Debug)]
pub(super) struct Counting(Option<Failpoints>);

impl Counting {
    pub(super) fn begin(failpoints: Option<Failpoints>) -> Self {
        if let Some(failpoints) = &failpoints {
            failpoints.count(true);
        }
        Self(failpoints)
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        if let Some(failpoints) = &self.0 {
            failpoints.count(false);
        }
    }
}

impl fmt::Debug for Failpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failpoints")
            .field("statements", &self.statements())
            .field("requests", &self.requests())
            .finish_non_exhaustive()
    }
}

fn failure(code: i32) -> Error {
    Error::SqliteFailure(ffi::Error::new(code), None)
}

/// Kills this process as an operating system does: nothing is unwound or flushed.
fn kill() {
    let killed = Command::new("kill")
        .args(["-9", &process::id().to_string()])
        .status();
    if let Err(error) = killed {
        let error: io::Error = error;
        tracing::error!(%error, "the failpoint can't kill the process");
        process::abort();
    }
    loop {
        thread::park();
    }
}
