//! What keeps a handler inside its transaction.
//!
//! The hooks are installed once per write connection and read a flag that is set around
//! the handler: installing an authorizer anew would re-prepare every cached statement.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use rusqlite::{
    Connection,
    hooks::{AuthAction, AuthContext, Authorization, TransactionOperation},
};

use crate::{
    clock::Clock,
    effect::failure::Failure,
    store::sqlite::{statements::SAVEPOINT_PREFIX, time::StoreTime},
};

/// How many instructions SQLite runs between two looks at the clock: some 20 µs.
const PROGRESS_STEPS: i32 = 1_000;

/// Pragmas that only read, without a value or with the name of what to read.
const READING_PRAGMAS: [&str; 15] = [
    "collation_list",
    "compile_options",
    "data_version",
    "database_list",
    "foreign_key_check",
    "foreign_key_list",
    "function_list",
    "index_info",
    "index_list",
    "index_xinfo",
    "module_list",
    "pragma_list",
    "table_info",
    "table_list",
    "table_xinfo",
];

/// Pragmas that read without a value, and change something with one.
const READING_WITHOUT_VALUE: [&str; 10] = [
    "application_id",
    "encoding",
    "foreign_keys",
    "freelist_count",
    "integrity_check",
    "page_count",
    "page_size",
    "quick_check",
    "schema_version",
    "user_version",
];

/// The state that the hooks of one write connection share with the writer.
pub(crate) struct Guard {
    time: Arc<StoreTime>,
    in_handler: AtomicBool,
    denied: AtomicU8,
    rolled_back: AtomicBool,
    made_temporary: AtomicBool,
    changed_schema: AtomicBool,
    made_savepoint: AtomicBool,
    /// The generation of what is remembered in the open transaction.
    generation: AtomicU64,
    /// Nanoseconds on the clock's monotonic axis.
    deadline: AtomicU64,
    #[cfg(feature = "failpoints")]
    pub(crate) failpoints: Option<super::failpoints::Failpoints>,
}

/// What a handler was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Denied {
    Begin = 1,
    Commit,
    Rollback,
    Attach,
    Pragma,
    Ledger,
    Savepoint,
    Unknown,
    Elsewhere,
}

impl Guard {
    pub(super) fn new(time: Arc<StoreTime>) -> Self {
        Self {
            time,
            in_handler: AtomicBool::new(false),
            denied: AtomicU8::new(0),
            rolled_back: AtomicBool::new(false),
            made_temporary: AtomicBool::new(false),
            changed_schema: AtomicBool::new(false),
            made_savepoint: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            deadline: AtomicU64::new(u64::MAX),
            #[cfg(feature = "failpoints")]
            failpoints: None,
        }
    }

    /// Installs the hooks; they replace the application's own of the same kinds.
    pub(super) fn install(self: &Arc<Self>, connection: &mut Connection) -> rusqlite::Result<()> {
        let guard = Arc::clone(self);
        connection.authorizer(Some(move |context: AuthContext<'_>| {
            guard.authorize(&context)
        }))?;
        let guard = Arc::clone(self);
        connection.commit_hook(Some(move || guard.in_handler.load(Ordering::Relaxed)))?;
        let guard = Arc::clone(self);
        connection.rollback_hook(Some(move || {
            guard.rolled_back.store(true, Ordering::Relaxed);
        }))?;
        let guard = Arc::clone(self);
        connection.progress_handler(PROGRESS_STEPS, Some(move || guard.is_overdue()))
    }

    /// A transaction begins; no rollback of an earlier one counts.
    pub(super) fn begin(&self) {
        self.rolled_back.store(false, Ordering::Relaxed);
    }

    /// A handler begins; its statements stop at `deadline`.
    pub(super) fn enter(&self, deadline: Duration) {
        let deadline = u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX);
        self.deadline.store(deadline, Ordering::Relaxed);
        self.denied.store(0, Ordering::Relaxed);
        self.in_handler.store(true, Ordering::Relaxed);
    }

    /// The handler has returned or panicked.
    pub(super) fn leave(&self) {
        self.in_handler.store(false, Ordering::Relaxed);
    }

    /// Runs the runtime's own work in the middle of a handler, without its restrictions.
    pub(crate) fn outside<T>(&self, work: impl FnOnce() -> T) -> T {
        let inside = self.in_handler.swap(false, Ordering::Relaxed);
        let value = work();
        self.in_handler.store(inside, Ordering::Relaxed);
        value
    }

    /// What the handler was refused first, even if it swallowed the error.
    pub(super) fn denied(&self) -> Option<Denied> {
        Denied::from_raw(self.denied.load(Ordering::Relaxed))
    }

    /// Whether SQLite rolled the whole transaction back since it began.
    pub(super) fn rolled_back(&self) -> bool {
        self.rolled_back.load(Ordering::Relaxed)
    }

    /// Whether a handler ever made a temporary object on this connection. A cached
    /// statement can make another one without asking, so this never goes back.
    pub(super) fn made_temporary(&self) -> bool {
        self.made_temporary.load(Ordering::Relaxed)
    }

    /// Whether a handler ever changed the schema through this connection.
    pub(super) fn changed_schema(&self) -> bool {
        self.changed_schema.load(Ordering::Relaxed)
    }

    /// Whether a handler ever made a savepoint on this connection. One that is left open is
    /// the next handler's to go back to, and a cached statement makes another without asking.
    pub(super) fn made_savepoint(&self) -> bool {
        self.made_savepoint.load(Ordering::Relaxed)
    }

    /// The store's time.
    pub(crate) fn time(&self) -> &StoreTime {
        &self.time
    }

    /// What is remembered was compared with the ledger, and is of this generation.
    pub(super) fn confirmed(&self, generation: u64) {
        self.generation.store(generation, Ordering::Relaxed);
    }

    /// The generation of what is remembered in the open transaction.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The store's clocks.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        self.time.clock()
    }

    /// The time by the store's monotonic clock.
    pub(crate) fn now(&self) -> Duration {
        self.time.clock().monotonic()
    }

    fn is_overdue(&self) -> bool {
        if !self.in_handler.load(Ordering::Relaxed) {
            return false;
        }
        let now = u64::try_from(self.now().as_nanos()).unwrap_or(u64::MAX);
        self.deadline.load(Ordering::Relaxed) <= now
    }

    fn authorize(&self, context: &AuthContext<'_>) -> Authorization {
        if !self.in_handler.load(Ordering::Relaxed) {
            return Authorization::Allow;
        }
        self.note(context);
        let elsewhere = context
            .database_name
            .is_some_and(|database| database != "main" && database != "temp");
        let denied = if elsewhere && writes(&context.action) {
            Some(Denied::Elsewhere)
        } else {
            denial(&context.action)
        };
        let Some(denied) = denied else {
            return Authorization::Allow;
        };
        if self.denied.load(Ordering::Relaxed) == 0 {
            self.denied.store(denied as u8, Ordering::Relaxed);
        }
        Authorization::Deny
    }

    fn note(&self, context: &AuthContext<'_>) {
        match context.action {
            AuthAction::CreateTempIndex { .. }
            | AuthAction::CreateTempTable { .. }
            | AuthAction::CreateTempTrigger { .. }
            | AuthAction::CreateTempView { .. } => {
                self.made_temporary.store(true, Ordering::Relaxed);
            }
            AuthAction::CreateVtable { .. } if context.database_name == Some("temp") => {
                self.made_temporary.store(true, Ordering::Relaxed);
            }
            AuthAction::AlterTable { .. } => self.changed_schema.store(true, Ordering::Relaxed),
            AuthAction::Savepoint { .. } => self.made_savepoint.store(true, Ordering::Relaxed),
            _ => (), // Only what outlives a statement or renames a table is noted.
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl Denied {
    fn from_raw(raw: u8) -> Option<Self> {
        [
            Self::Begin,
            Self::Commit,
            Self::Rollback,
            Self::Attach,
            Self::Pragma,
            Self::Ledger,
            Self::Savepoint,
            Self::Unknown,
            Self::Elsewhere,
        ]
        .into_iter()
        .find(|denied| *denied as u8 == raw)
    }

    /// The error that the caller gets, and the tool's author reads.
    pub(super) fn failure(self) -> Failure {
        let message = match self {
            Self::Begin => {
                "the tool used transaction control (`BEGIN`); the runtime owns the transaction: use a savepoint"
            }
            Self::Commit => {
                "the tool used transaction control (`COMMIT`); the runtime commits when the tool returns `Ok`"
            }
            Self::Rollback => {
                "the tool used transaction control (`ROLLBACK`); the runtime rolls back when the tool returns `Err`"
            }
            Self::Attach => {
                "the tool used `ATTACH` or `DETACH`; attach in the store's `on_connection` hook, for reading only"
            }
            Self::Pragma => {
                "the tool used a pragma that changes something; set it in the store's `on_connection` hook"
            }
            Self::Ledger => {
                "the tool touched a ledger table (`idempotent_*`); only the runtime reads and writes those"
            }
            Self::Savepoint => "the tool used a savepoint named `idempotent_*`; rename it",
            Self::Elsewhere => {
                "the tool wrote to an attached database; its commit is not one with the receipt's, so write to the store's own file"
            }
            Self::Unknown => {
                "the tool used a statement that the runtime doesn't know to be harmless; remove it"
            }
        };
        Failure::new("not_allowed", message)
    }
}

/// Whether `action` changes data or schema.
fn writes(action: &AuthAction<'_>) -> bool {
    !matches!(
        action,
        AuthAction::Read { .. }
            | AuthAction::Select
            | AuthAction::Function { .. }
            | AuthAction::Pragma { .. }
            | AuthAction::Transaction { .. }
            | AuthAction::Savepoint { .. }
            | AuthAction::Recursive
    )
}

/// Why a handler may not do `action`.
///
/// Reads of the ledger are refused too: it holds other callers' keys and results.
fn denial(action: &AuthAction<'_>) -> Option<Denied> {
    match *action {
        AuthAction::Transaction {
            operation: TransactionOperation::Begin,
        } => Some(Denied::Begin),
        AuthAction::Transaction {
            operation: TransactionOperation::Rollback,
        } => Some(Denied::Rollback),
        // rusqlite names no commit: SQLite's `COMMIT` arrives as an unknown operation.
        AuthAction::Transaction { .. } => Some(Denied::Commit),
        AuthAction::Attach { .. } | AuthAction::Detach { .. } => Some(Denied::Attach),
        AuthAction::Pragma {
            pragma_name,
            pragma_value,
        } => (!only_reads(pragma_name, pragma_value)).then_some(Denied::Pragma),
        AuthAction::Savepoint { savepoint_name, .. } => {
            is_ledger(savepoint_name).then_some(Denied::Savepoint)
        }
        AuthAction::CreateTable { table_name: name }
        | AuthAction::CreateTempTable { table_name: name }
        | AuthAction::CreateView { view_name: name }
        | AuthAction::CreateTempView { view_name: name }
        | AuthAction::Delete { table_name: name }
        | AuthAction::DropTable { table_name: name }
        | AuthAction::DropTempTable { table_name: name }
        | AuthAction::DropView { view_name: name }
        | AuthAction::DropTempView { view_name: name }
        | AuthAction::Insert { table_name: name }
        | AuthAction::Read {
            table_name: name, ..
        }
        | AuthAction::Update {
            table_name: name, ..
        }
        | AuthAction::AlterTable {
            table_name: name, ..
        }
        | AuthAction::Reindex { index_name: name }
        | AuthAction::Analyze { table_name: name }
        | AuthAction::CreateVtable {
            table_name: name, ..
        }
        | AuthAction::DropVtable {
            table_name: name, ..
        } => is_ledger(name).then_some(Denied::Ledger),
        AuthAction::CreateIndex {
            index_name: name,
            table_name,
        }
        | AuthAction::CreateTempIndex {
            index_name: name,
            table_name,
        }
        | AuthAction::DropIndex {
            index_name: name,
            table_name,
        }
        | AuthAction::DropTempIndex {
            index_name: name,
            table_name,
        }
        | AuthAction::CreateTrigger {
            trigger_name: name,
            table_name,
        }
        | AuthAction::CreateTempTrigger {
            trigger_name: name,
            table_name,
        }
        | AuthAction::DropTrigger {
            trigger_name: name,
            table_name,
        }
        | AuthAction::DropTempTrigger {
            trigger_name: name,
            table_name,
        } => (is_ledger(name) || is_ledger(table_name)).then_some(Denied::Ledger),
        AuthAction::Select | AuthAction::Function { .. } | AuthAction::Recursive => None,
        _ => Some(Denied::Unknown), // The enum is open, and what is unknown is refused.
    }
}

fn only_reads(pragma: &str, value: Option<&str>) -> bool {
    let is = |name: &&str| name.eq_ignore_ascii_case(pragma);
    READING_PRAGMAS.iter().any(is) || (value.is_none() && READING_WITHOUT_VALUE.iter().any(is))
}

/// Whether a name has the ledger's prefix, or is SQLite's index of a ledger table.
fn is_ledger(name: &str) -> bool {
    let name = match name.get(..17) {
        Some(prefix) if prefix.eq_ignore_ascii_case("sqlite_autoindex_") => &name[17..],
        _ => name,
    };
    name.get(..SAVEPOINT_PREFIX.len())
        .is_some_and(|prefix| prefix.eq_ignore_ascii_case(SAVEPOINT_PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledger_names_are_told_in_any_case() {
        for name in [
            "idempotent_receipts",
            "IDEMPOTENT_x",
            "sqlite_autoindex_idempotent_scope_1",
        ] {
            assert!(is_ledger(name), "{name}");
        }
        for name in [
            "notes",
            "idempotent",
            "my_idempotent_table",
            "sqlite_schema",
            "ïdempotent_",
        ] {
            assert!(!is_ledger(name), "{name}");
        }
    }

    #[test]
    fn a_pragma_with_a_value_changes_something() {
        assert!(only_reads("user_version", None));
        assert!(!only_reads("user_version", Some("7")));
        assert!(only_reads("table_info", Some("notes")));
        assert!(!only_reads("journal_mode", None));
        assert!(!only_reads("writable_schema", Some("1")));
    }

    #[test]
    fn every_denial_is_told_apart() {
        for raw in 1..=8 {
            assert_eq!(Denied::from_raw(raw).map(|denied| denied as u8), Some(raw));
        }
        assert_eq!(Denied::from_raw(0), None);
    }
}
