//! How a store is opened, and why it can't be.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use rusqlite::Connection;

use crate::{
    clock::{Clock, SystemClock},
    store::sqlite::SqliteStore,
};

/// What every connection is given to: pragmas, functions, collations.
pub(super) type ConnectionHook = Arc<dyn Fn(&Connection) -> rusqlite::Result<()> + Send + Sync>;

/// When a commit is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Synchronous {
    /// Before it is answered: a result that a caller has seen survives a loss of power.
    #[default]
    Full,
    /// As [`Full`](Self::Full), with the folder's entries too.
    Extra,
    /// Some time later: a killed process loses nothing, but a loss of power may undo the
    /// last answered calls, each whole. Their retries then execute again. What is recorded of
    /// an external operation is on the disk before anything is sent or told, as with `Full`.
    Normal,
}

/// How to open a [`SqliteStore`].
///
/// ```
/// use idempotent_tool::{SqliteStore, Synchronous};
///
/// let store = SqliteStore::options()
///     .synchronous(Synchronous::Full)
///     .readers(2)
///     .on_connection(|connection| connection.pragma_update(None, "foreign_keys", true))
///     .open_in_memory()?;
/// # Ok::<(), idempotent_tool::OpenError>(())
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until the store is opened"]
pub struct SqliteOptions {
    pub(super) synchronous: Synchronous,
    pub(super) on_connection: Option<ConnectionHook>,
    pub(super) readers: usize,
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) queued_calls: usize,
    pub(super) queued_bytes: usize,
    pub(super) budget: Duration,
    pub(super) background_pruning: bool,
    #[cfg(feature = "failpoints")]
    pub(super) failpoints: Option<super::failpoints::Failpoints>,
}

/// Why a store can't be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file can't be opened or made.
    #[error("the database file can't be opened; check that its folder exists and may be written")]
    CannotOpen(#[source] rusqlite::Error),
    /// The file is something else than a database.
    #[error(
        "the file is not an SQLite database; name another one, or remove it if it can be spared"
    )]
    NotADatabase(#[source] rusqlite::Error),
    /// A newer version of this crate has written the ledger.
    #[error(
        "the ledger has version {found}, and this version of idempotent-tool knows versions up to \
         {known}; upgrade idempotent-tool"
    )]
    NewerLedger {
        /// The ledger's version.
        found: i64,
        /// The newest version that is known.
        known: i64,
    },
    /// Another connection keeps the database locked.
    #[error("another connection keeps the database locked; end it, or try again")]
    Locked(#[source] rusqlite::Error),
    /// The file system or the file allows no write-ahead log.
    #[error(
        "the database can't use a write-ahead log (its journal mode stays `{found}`); put the file \
         on a local file system"
    )]
    NoWriteAheadLog {
        /// The journal mode that the database stays in.
        found: String,
    },
    /// The application's hook failed on a new connection.
    #[error("the `on_connection` hook failed")]
    Hook(#[source] rusqlite::Error),
    /// The machine gave no random bytes for the secret that provider keys are derived with.
    #[error("the machine gives no random bytes; the ledger needs some for its secret, once")]
    NoRandomness(#[source] std::io::Error),
    /// SQLite failed otherwise.
    #[error("the database can't be prepared")]
    Sqlite(#[source] rusqlite::Error),
    /// The store's threads can't be started.
    #[error("the store's threads can't be started")]
    Thread(#[source] std::io::Error),
    /// The failpoint in the environment can't be read.
    #[cfg(feature = "failpoints")]
    #[error("`IDEMPOTENT_TOOL_FAILPOINT` can't be read; it is `action:number`")]
    Failpoint,
}

impl OpenError {
    /// As SQLite's own error, for a caller that knows no other.
    pub(super) fn into_sqlite(self) -> rusqlite::Error {
        match self {
            Self::CannotOpen(error)
            | Self::NotADatabase(error)
            | Self::Locked(error)
            | Self::Hook(error)
            | Self::Sqlite(error) => error,
            other => rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN),
                Some(other.to_string()),
            ),
        }
    }
}

impl SqliteOptions {
    pub(super) fn new() -> Self {
        Self {
            synchronous: Synchronous::default(),
            on_connection: None,
            readers: 4,
            clock: None,
            queued_calls: 16_384,
            queued_bytes: 64 * 1024 * 1024,
            budget: Duration::from_secs(30),
            background_pruning: true,
            #[cfg(feature = "failpoints")]
            failpoints: None,
        }
    }

    /// When a commit is on the disk; [`Synchronous::Full`] if not set.
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// Prepares every connection, before the runtime does: pragmas, functions, collations,
    /// attached databases.
    ///
    /// Tools can read an attached database and not write to it: in WAL mode a commit over
    /// several files is not one, so a receipt could be kept whose effect is lost.
    ///
    /// An authorizer, a progress handler, a commit or a rollback hook that it installs on
    /// the write connection is replaced by the runtime's.
    pub fn on_connection(
        mut self,
        hook: impl Fn(&Connection) -> rusqlite::Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.on_connection = Some(Arc::new(hook));
        self
    }

    /// How many connections serve replays, and how many as well serve the application's
    /// reads; at least one, four if not set. Each is opened when it is first needed.
    pub fn readers(mut self, readers: usize) -> Self {
        self.readers = readers.max(1);
        self
    }

    /// Where the store reads the time; the machine's clocks if not set.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// How many calls may wait for the writer, 16,384 if not set; one more is `busy` at once.
    pub fn queued_calls(mut self, calls: usize) -> Self {
        self.queued_calls = calls;
        self
    }

    /// How many bytes the waiting calls may have together, 64 MiB if not set; a call over
    /// it is `busy` at once.
    pub fn queued_bytes(mut self, bytes: usize) -> Self {
        self.queued_bytes = bytes;
        self
    }

    /// The budget of [`SqliteStore::transact`] and of the runtime's own transactions, 30
    /// seconds if not set. A tool's call has the deadline that its attribute declares.
    pub fn budget(mut self, budget: Duration) -> Self {
        self.budget = budget;
        self
    }

    /// Whether the writer prunes when it is idle; it does if not set. Without it, call
    /// [`SqliteStore::prune`].
    pub fn background_pruning(mut self, on: bool) -> Self {
        self.background_pruning = on;
        self
    }

    /// Gives the store failpoints, for tests of this crate.
    #[cfg(feature = "failpoints")]
    #[doc(hidden)]
    pub fn failpoints(mut self, failpoints: super::failpoints::Failpoints) -> Self {
        self.failpoints = Some(failpoints);
        self
    }

    /// Opens the store in the file at `path`, which is made if it doesn't exist.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<SqliteStore, OpenError> {
        SqliteStore::start(Some(path.as_ref().to_owned()), self)
    }

    /// Opens a store in memory, which ends with it: for tests and demonstrations.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn open_in_memory(self) -> Result<SqliteStore, OpenError> {
        SqliteStore::start(None, self)
    }

    pub(super) fn clock_or_system(&self) -> Arc<dyn Clock> {
        self.clock
            .clone()
            .unwrap_or_else(|| Arc::new(SystemClock::new()))
    }
}

impl Synchronous {
    pub(super) fn pragma(self) -> &'static str {
        match self {
            Self::Full => "FULL",
            Self::Extra => "EXTRA",
            Self::Normal => "NORMAL",
        }
    }

    /// Whether a commit syncs the log before it is published.
    pub(super) fn syncs_commits(self) -> bool {
        match self {
            Self::Full | Self::Extra => true,
            Self::Normal => false,
        }
    }
}

impl fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteOptions")
            .field("synchronous", &self.synchronous)
            .field("readers", &self.readers)
            .field("queued_calls", &self.queued_calls)
            .field("queued_bytes", &self.queued_bytes)
            .field("budget", &self.budget)
            .field("background_pruning", &self.background_pruning)
            .finish_non_exhaustive()
    }
}
