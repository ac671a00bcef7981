//! What each answer may be, said from the promises alone: nothing of the runtime is used
//! here, neither its canonical form nor its notion of time.

pub mod arguments;
pub mod external;
pub mod judge;
pub mod time;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use self::{
    arguments::Members,
    external::{External, Truth},
    time::{LedgerTime, Span},
};

pub const RETENTION: i64 = 86_400_000;
pub const TOMBSTONE: i64 = 7 * RETENTION;

/// What is known to be open: what it names is then not held against the runtime.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools)]
pub struct Open {
    /// A success that comes after `failed` or `cancelled` is dropped.
    pub late_success: bool,
    /// A version's own authorizer is not asked if another version is the highest.
    pub own_authorizer: bool,
    /// Integers beyond 2^53 - 1 of a `number` are rounded.
    pub exact_numbers: bool,
    /// An `accepted` operation that nobody takes up stays so.
    pub accepted_stays: bool,
    /// What a provider asked to wait is forgotten with the run.
    pub guidance: bool,
    /// A provider sees another key after a restore.
    pub provider_key: bool,
    /// `failed, nothing applied` isn't cancelled.
    pub cancel_failed: bool,
    /// A build without an optional argument that the ledger knows is refused.
    pub going_back: bool,
}

/// Which row of which tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    pub scope: String,
    pub tool: String,
    pub key: String,
}

/// A recorded identity.
#[derive(Debug, Clone)]
struct Entry {
    version: u32,
    members: Members,
    operation: Option<String>,
    /// The stored bytes, once they were told.
    result: Option<String>,
    /// What the handler returned.
    value: Option<Value>,
    /// When its retention began; not before that if it has not.
    since: Span,
    buried: Option<Span>,
    external: Option<External>,
}

/// What a file holds.
#[derive(Debug, Clone)]
pub struct File {
    entries: BTreeMap<Id, Entry>,
    /// The application's rows: whose each is.
    rows: BTreeMap<i64, String>,
    time: LedgerTime,
}

/// A row of the ledger as an operator reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub operation: Option<String>,
    pub is_tombstone: bool,
}

#[derive(Debug)]
pub struct Oracle {
    pub open: Open,
    file: File,
    /// How many processes have the file open.
    processes: usize,
    wall: i64,
    /// The true time.
    now: i64,
    denied: BTreeSet<(String, String, u32)>,
    /// What really happened outside, whatever any file says.
    truth: BTreeMap<Id, Truth>,
    /// Whose operation an id is; ids are never given twice.
    operations: BTreeMap<String, Id>,
    /// The same in the order in which they were recorded.
    known: Vec<String>,
    /// Keys may have been freed since the last look.
    pruned: bool,
}

impl Oracle {
    pub fn new(open: Open, wall: i64) -> Self {
        Self {
            open,
            file: File {
                entries: BTreeMap::new(),
                rows: BTreeMap::new(),
                time: LedgerTime::new(wall),
            },
            processes: 0,
            wall,
            now: 0,
            denied: BTreeSet::new(),
            truth: BTreeMap::new(),
            operations: BTreeMap::new(),
            known: Vec::new(),
            pruned: false,
        }
    }

    /// True time passes.
    pub fn pass(&mut self, by: i64) {
        self.now += by;
        self.wall += by;
        if 0 < self.processes {
            self.file.time.pass(by, self.wall);
        }
    }

    /// The wall clock is set.
    pub fn jump(&mut self, by: i64) {
        self.wall += by;
        if 0 < self.processes {
            self.file.time.jump(by, self.wall);
            return;
        }
        self.file.time.jump_unseen();
        if by < 0 {
            // The provider's window can't be told any more.
            self.truth
                .values_mut()
                .for_each(|truth| truth.clock_is_lost = true);
        }
    }

    pub fn opened(&mut self) {
        self.file.time.open(self.wall, self.processes == 0);
        self.processes += 1;
    }

    pub fn closed(&mut self, orderly: bool) {
        self.processes -= 1;
        if self.processes == 0 {
            self.file.time.close(orderly);
        }
    }

    /// A copy of the file as it is.
    pub fn copy(&self) -> File {
        self.file.clone()
    }

    /// An older copy takes the file's place.
    pub fn restored(&mut self, copy: &File) {
        let mut time = copy.time;
        if 0 < self.processes {
            time = self.file.time;
            time.go_back(&copy.time);
        }
        self.file = copy.clone();
        self.file.time = time;
        for truth in self.truth.values_mut() {
            truth.forgotten();
        }
    }

    /// An operator deleted a receipt.
    pub fn deleted(&mut self, id: &Id) {
        self.file.entries.remove(id);
        if let Some(truth) = self.truth.get_mut(id) {
            truth.forgotten();
        }
    }

    pub fn deny(&mut self, scope: &str, tool: &str, version: u32, denies: bool) {
        let place = (scope.to_owned(), tool.to_owned(), version);
        if denies {
            self.denied.insert(place);
        } else {
            self.denied.remove(&place);
        }
    }

    pub fn prunes(&mut self) {
        self.pruned = true;
    }

    /// Compares all that is on the file with what was acknowledged.
    pub fn audit(
        &mut self,
        ledger: &BTreeMap<Id, Row>,
        effects: &BTreeMap<i64, String>,
    ) -> Result<(), String> {
        if *effects != self.file.rows {
            let extra = effects
                .iter()
                .find(|(token, _)| !self.file.rows.contains_key(token));
            let missing = self
                .file
                .rows
                .iter()
                .find(|(token, _)| !effects.contains_key(token));
            return Err(format!(
                "the application's rows are not those acknowledged: extra {extra:?}, missing \
                 {missing:?}"
            ));
        }
        let now = self.file.time.now();
        for (id, row) in ledger {
            let Some(entry) = self.file.entries.get_mut(id) else {
                return Err(format!(
                    "the ledger has what nobody was told of: {id:?} {row:?}"
                ));
            };
            if row.is_tombstone {
                if entry.buried.is_none() {
                    if !entry.since.plus(RETENTION).may_have_come(now) {
                        return Err(format!("{id:?} was buried before its time"));
                    }
                    entry.buried = Some(now);
                }
            } else if entry.buried.is_some() {
                return Err(format!("{id:?} came back from its grave"));
            } else if entry.operation.is_none() {
                entry.operation.clone_from(&row.operation);
            } else if entry.operation != row.operation {
                return Err(format!("{id:?} has become another operation"));
            }
        }
        let gone: Vec<Id> = self
            .file
            .entries
            .keys()
            .filter(|id| !ledger.contains_key(id))
            .cloned()
            .collect();
        for id in gone {
            let entry = &self.file.entries[&id];
            let since = entry.since.plus(RETENTION + TOMBSTONE);
            if !self.pruned || !since.may_have_come(now) {
                return Err(format!("{id:?} is gone from the ledger before its time"));
            }
            self.deleted(&id);
        }
        self.pruned = false;
        Ok(())
    }
}
