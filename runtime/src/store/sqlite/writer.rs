//! The write connection: who has it, what it remembers, how it starts a transaction.

use std::{collections::BTreeSet, collections::HashMap, mem, sync::Arc, thread, time::Duration};

use rusqlite::{OptionalExtension, Row, Statement};
use serde_json::value::RawValue;

use crate::{
    clock::Timestamp,
    effect::tx::Transaction,
    operation::{
        id::OperationId,
        stored::{Receipt, Stored},
    },
    request::{arguments::fingerprint::Fingerprint, registered::Registered},
    store::{
        StoreError,
        sqlite::{
            Core,
            call::Undo,
            connection::{WriteConnection, is_busy},
            guard::Guard,
            misuse,
            options::OpenError,
            own::{Own, OwnConnection},
            prune::Walk,
            register::{self, Located},
            watch::Watch,
        },
    },
};

/// How many scopes are remembered before the writer starts afresh.
const REMEMBERED_SCOPES: usize = 16_384;

/// What is said of a file that went while a connection to it was made.
pub(super) const REPLACED: &str = "the database file was replaced while it was opened";

/// After a call that was undone, so many run in savepoints: a batch is repeated once in
/// eight at most.
const WARY: u32 = 1_024;

/// The write connection between two transactions.
#[derive(Debug)]
pub(super) struct Writer {
    /// Absent while a batch has it, and after it broke.
    connection: Option<Transaction>,
    pub(super) memo: Memo,
    pub(super) walk: Walk,
}

/// What holds for every transaction of a write connection: what is of the ledger, only while
/// its generation does.
#[derive(Debug, Default)]
pub(super) struct Memo {
    /// What the ledger's part was learnt in; zero if there is none.
    generation: u64,
    /// SQLite's number of the schema that `ledger_objects` was counted in.
    pub(super) schema_cookie: Option<i64>,
    /// How many objects the ledger has when no handler has renamed any.
    pub(super) ledger_objects: i64,
    /// The temporary objects of the application's hook: the connection's own, which nobody
    /// else can change.
    pub(super) temporary: BTreeSet<(String, String)>,
    /// Ids of committed scopes.
    scopes: HashMap<Arc<str>, i64>,
    /// What the open transaction has written or read. It is worth nothing before its commit.
    uncommitted: Vec<Learnt>,
    /// How many calls are to be kept before a batch does without savepoints again.
    wary: u32,
}

/// An id in the ledger.
#[derive(Debug)]
enum Learnt {
    Scope(Arc<str>, i64),
    Tool(Arc<Registered>, i64),
}

impl Writer {
    /// A writer with a connection that was just opened.
    pub(super) fn new(
        opened: WriteConnection,
        watch: &Watch,
        guard: &Arc<Guard>,
    ) -> Result<Self, OpenError> {
        let mut writer = Self {
            connection: None,
            memo: Memo::default(),
            walk: Walk::default(),
        };
        writer.connection = Some(writer.adopt(opened, watch, guard)?);
        Ok(writer)
    }

    /// Takes the connection, opening it anew if it broke.
    pub(super) fn take(&mut self, core: &Core) -> Result<Transaction, StoreError> {
        core.held.taken(core.clock.monotonic());
        match self.connection.take() {
            Some(connection) => Ok(connection),
            // What was in memory is gone with its connection.
            None if core.opener.path.is_none() => Err(StoreError::new(
                "the store in memory has lost its connection; open a new one",
            )
            .before_look_up()),
            None => {
                // What is at the path now may be another database, or none.
                core.check_files().map_err(StoreError::before_look_up)?;
                self.reopen(core).map_err(|error| {
                    StoreError::new(
                        "the database can't be opened again after a failure; check its disk",
                    )
                    .retryable()
                    .before_look_up()
                    .caused_by(error)
                })
            }
        }
    }

    /// Gives the connection back, if it is clean.
    pub(super) fn put(&mut self, core: &Core, connection: Transaction) {
        self.memo.uncommitted.clear();
        core.held.given_back();
        if connection.recover().is_ok() {
            core.checkpoints.after_batch(connection.connection());
            self.connection = Some(connection);
        } else {
            tracing::warn!("the write connection can't be rolled back; it is opened anew");
        }
    }

    fn reopen(&mut self, core: &Core) -> Result<Transaction, OpenError> {
        let opened = core.opener.writer(&core.guard)?;
        self.adopt(opened, &core.watch, &core.guard)
    }

    fn adopt(
        &mut self,
        opened: WriteConnection,
        watch: &Watch,
        guard: &Arc<Guard>,
    ) -> Result<Transaction, OpenError> {
        self.memo.forget();
        self.memo.schema_cookie = None;
        self.memo.temporary = opened.temporary;
        if watch.follow(&opened.connection).is_err() {
            let replaced = misuse(REPLACED);
            return Err(OpenError::Sqlite(replaced));
        }
        let connection = OwnConnection::prepare(opened.connection).map_err(OpenError::Sqlite)?;
        Ok(Transaction::new(connection, Arc::clone(guard)))
    }
}

impl Memo {
    /// How the calls of the next batch are undone.
    pub(super) fn undo_in_a_batch(&self, guard: &Guard) -> Undo {
        if self.wary == 0 && !guard.made_savepoint() {
            Undo::Repeat
        } else {
            Undo::Call
        }
    }

    pub(super) fn kept_a_call(&mut self) {
        self.wary = self.wary.saturating_sub(1);
    }

    pub(super) fn undid_a_call(&mut self) {
        self.wary = WARY;
    }

    pub(super) fn is_of(&self, generation: u64) -> bool {
        self.generation == generation
    }

    /// The generation of the open transaction.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Nothing is known of the ledger.
    pub(super) fn forget(&mut self) {
        self.generation = 0;
        self.scopes.clear();
        self.uncommitted.clear();
    }

    /// From now on what is learnt is of this generation.
    pub(super) fn learn_in(&mut self, generation: u64) {
        self.generation = generation;
    }

    /// The id of a tool, and whether its contract is to be registered again.
    pub(super) fn find_tool(
        &mut self,
        transaction: &Transaction,
        contract: &Arc<Registered>,
    ) -> rusqlite::Result<Result<Located, StoreError>> {
        let covered = |id| Located {
            tool: Some(id),
            is_covered: true,
        };
        if let Some(id) = contract.tool(self.generation) {
            return Ok(Ok(covered(id)));
        }
        let learnt = self.uncommitted.iter().find_map(|learnt| match learnt {
            Learnt::Tool(known, id) if Arc::ptr_eq(known, contract) => Some(*id),
            Learnt::Tool(..) | Learnt::Scope(..) => None,
        });
        if let Some(id) = learnt {
            return Ok(Ok(covered(id)));
        }
        let found = match register::locate(transaction, contract) {
            Ok(found) => found,
            Err(refused) => return refused.again().map(Err),
        };
        if let (Some(id), true) = (found.tool, found.is_covered) {
            self.wrote_tool(contract, id);
        }
        Ok(Ok(found))
    }

    fn wrote_tool(&mut self, contract: &Arc<Registered>, id: i64) {
        self.uncommitted
            .push(Learnt::Tool(Arc::clone(contract), id));
    }

    /// The id of a tool, whose contract is registered if need be: the write lock is held.
    pub(super) fn ensure_tool(
        &mut self,
        transaction: &Transaction,
        contract: &Arc<Registered>,
    ) -> rusqlite::Result<Result<i64, StoreError>> {
        match self.find_tool(transaction, contract)? {
            Ok(Located {
                tool: Some(id),
                is_covered: true,
            }) => return Ok(Ok(id)),
            Ok(_) => (), // It is to be registered.
            Err(refused) => return Ok(Err(refused)),
        }
        match register::ensure(transaction, contract) {
            Ok(id) => {
                self.wrote_tool(contract, id);
                Ok(Ok(id))
            }
            Err(refused) => refused.again().map(Err),
        }
    }

    /// The id of a scope; `None` if no operation was ever recorded in it.
    pub(super) fn find_scope(
        &mut self,
        transaction: &Transaction,
        scope: &Arc<str>,
    ) -> rusqlite::Result<Option<i64>> {
        if let Some(id) = self.scopes.get(scope) {
            return Ok(Some(*id));
        }
        let learnt = self.uncommitted.iter().find_map(|learnt| match learnt {
            Learnt::Scope(text, id) if text == scope => Some(*id),
            Learnt::Scope(..) | Learnt::Tool(..) => None,
        });
        if learnt.is_some() {
            return Ok(learnt);
        }
        let found = transaction.own(Own::FindScope, |find| {
            find.query_row([&**scope], |row| row.get(0)).optional()
        })?;
        if let Some(id) = found {
            self.wrote_scope(scope, id);
        }
        Ok(found)
    }

    /// Notes a scope that the open transaction has written.
    pub(super) fn wrote_scope(&mut self, scope: &Arc<str>, id: i64) {
        self.uncommitted.push(Learnt::Scope(Arc::clone(scope), id));
    }

    /// Where the open transaction stands, before a call.
    pub(super) fn mark(&self) -> usize {
        self.uncommitted.len()
    }

    /// A call is undone: so is what it wrote.
    pub(super) fn forget_since(&mut self, mark: usize) {
        self.uncommitted.truncate(mark);
    }

    /// The transaction is committed: what it wrote is there to stay.
    pub(super) fn committed(&mut self) {
        if REMEMBERED_SCOPES < self.scopes.len() {
            self.scopes.clear();
        }
        for learnt in mem::take(&mut self.uncommitted) {
            match learnt {
                Learnt::Scope(text, id) => {
                    self.scopes.insert(text, id);
                }
                Learnt::Tool(contract, id) => contract.learn(self.generation, id),
            }
        }
    }

    /// The transaction is rolled back, or may be: so is what it wrote.
    pub(super) fn rolled_back(&mut self) {
        self.uncommitted.clear();
    }
}

/// What the runtime does with a connection that handlers must not.
impl Transaction {
    /// Runs one of the runtime's own statements that returns no row.
    pub(super) fn command(&self, own: Own) -> rusqlite::Result<()> {
        #[cfg(feature = "failpoints")]
        if let (Own::Commit, Some(failpoints)) = (own, &self.guard().failpoints) {
            failpoints.commit_comes();
        }
        self.own(own, |statement| statement.execute([])).map(|_| ())
    }

    /// Runs one of the runtime's own statements.
    pub(super) fn own<T>(
        &self,
        own: Own,
        work: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        self.run(|_| self.statements().with(own, work))
    }

    /// Leaves no transaction open.
    pub(super) fn recover(&self) -> rusqlite::Result<()> {
        if self.is_autocommit() {
            Ok(())
        } else {
            self.command(Own::Rollback)
        }
    }

    /// Begins a transaction under the write lock, as soon as no other process has it.
    ///
    /// `wait` is asked before each further try, and says whether anybody still waits.
    pub(super) fn lock(&self, mut wait: impl FnMut() -> bool) -> rusqlite::Result<bool> {
        for attempt in 0.. {
            match self.command(Own::BeginImmediate) {
                Ok(()) => return Ok(true),
                Err(error) if is_busy(&error) => {
                    if !wait() {
                        return Ok(false);
                    }
                    pause(attempt);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

/// Rests between two tries for a lock that another process holds.
///
/// Short and uneven: a growing pause, as SQLite's own, starves whoever waited longest.
pub(super) fn pause(attempt: u32) {
    let uneven = (u64::from(std::process::id()) + u64::from(attempt) * 7) % 8;
    thread::sleep(Duration::from_micros(200 + uneven * 100));
}

/// Reads `operation_id, version, fingerprint, expires_at, result`.
pub(super) fn read_stored(row: &Row<'_>) -> rusqlite::Result<Result<Stored, StoreError>> {
    let Some(operation_id) = row.get::<_, Option<[u8; 16]>>(0)? else {
        return Ok(Ok(Stored::Tombstone(row.get(1)?)));
    };
    let fingerprint = match Fingerprint::from_stored(row.get_ref(2)?.as_blob()?) {
        Ok(fingerprint) => fingerprint,
        Err(unknown) => {
            let error = StoreError::new(
                "a receipt has a fingerprint of an unknown format; open the ledger with the \
                 version of idempotent-tool that wrote it",
            );
            return Ok(Err(error.caused_by(unknown)));
        }
    };
    let version = row.get(1)?;
    let expires_at = Timestamp(row.get(3)?);
    let Some(result) = row.get(4)? else {
        let operation_id = OperationId::from_bytes(operation_id);
        return Ok(Ok(Stored::External(operation_id)));
    };
    let Ok(result) = RawValue::from_string(result) else {
        // The parser's error is left out: it may quote the result.
        return Ok(Err(StoreError::new(
            "a receipt's result is not JSON; the ledger was changed from outside",
        )));
    };
    Ok(Ok(Stored::Receipt(Receipt {
        operation_id: OperationId::from_bytes(operation_id),
        version,
        fingerprint,
        result,
        expires_at,
    })))
}
