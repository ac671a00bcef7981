//! The write connection with the runtime's own statements beside it, prepared once.
//!
//! They are not in the connection's cache: a call finds them without a look-up, and a
//! handler that runs the same text never gets one that was prepared without its
//! restrictions.
#![allow(unsafe_code)] // For one `Send`, which carries its argument.

use std::{cell::RefCell, fmt};

use rusqlite::{Connection, Statement};
use self_cell::self_cell;

use crate::store::sqlite::{ffi, misuse, statements};

/// One of the statements that calls run over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    Begin,
    BeginImmediate,
    Upgrade,
    Commit,
    Rollback,
    Savepoint,
    RollbackTo,
    Release,
    Find,
    FindScope,
    InsertScope,
    InsertReceipt,
    Versions,
    SchemaCookie,
    FindTool,
    FindContract,
    ReadClock,
    WriteClock,
}

/// In the order of [`Own`].
const TEXTS: [(Own, &str); 18] = [
    (Own::Begin, statements::BEGIN),
    (Own::BeginImmediate, statements::BEGIN_IMMEDIATE),
    (Own::Upgrade, statements::UPGRADE),
    (Own::Commit, statements::COMMIT),
    (Own::Rollback, statements::ROLLBACK),
    (Own::Savepoint, statements::SAVEPOINT),
    (Own::RollbackTo, statements::ROLLBACK_TO),
    (Own::Release, statements::RELEASE),
    (Own::Find, statements::FIND),
    (Own::FindScope, statements::FIND_SCOPE),
    (Own::InsertScope, statements::INSERT_SCOPE),
    (Own::InsertReceipt, statements::INSERT_RECEIPT),
    (Own::Versions, statements::LEDGER_VERSIONS),
    (Own::SchemaCookie, statements::SCHEMA_COOKIE),
    (Own::FindTool, statements::FIND_TOOL),
    (Own::FindContract, statements::FIND_CONTRACT),
    (Own::ReadClock, statements::READ_CLOCK),
    (Own::WriteClock, statements::WRITE_CLOCK),
];

type Statements<'connection> = Vec<RefCell<Statement<'connection>>>;

self_cell! {
    struct Prepared {
        owner: Connection,
        #[not_covariant]
        dependent: Statements,
    }
}

/// A connection and its statements.
pub(crate) struct OwnConnection(Prepared);

// SAFETY: a `Connection` may move to another thread; a statement may not, since it refers to
// its connection. Here both are in one value, every reference between them stays inside it,
// and none is handed out but for the length of a borrow: so they move together or not at
// all, and without `Sync` one thread has them at a time, which is what SQLite asks for.
unsafe impl Send for OwnConnection {}

impl OwnConnection {
    /// Prepares the statements. Later hooks would have SQLite prepare them again.
    pub(super) fn prepare(connection: Connection) -> rusqlite::Result<Self> {
        let prepared = Prepared::try_new(connection, |connection| {
            TEXTS
                .iter()
                .map(|(_, text)| connection.prepare(text).map(RefCell::new))
                .collect()
        });
        prepared.map(Self)
    }

    pub(crate) fn connection(&self) -> &Connection {
        self.0.borrow_owner()
    }

    /// Runs `work` with a statement; it must leave it at its end.
    pub(super) fn with<T>(
        &self,
        own: Own,
        work: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        self.0.with_dependent(|_, statements| {
            let statement = statements.get(own as usize);
            let statement = statement.and_then(|statement| statement.try_borrow_mut().ok());
            match statement {
                Some(mut statement) => work(&mut statement),
                None => Err(misuse(
                    "a statement of the runtime's own runs inside itself",
                )),
            }
        })
    }
}

impl Drop for OwnConnection {
    fn drop(&mut self) {
        ffi::remove_rollback_hook(self.connection());
    }
}

impl fmt::Debug for OwnConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.connection().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_statement_is_found_in_its_place() {
        for (position, (own, _)) in TEXTS.iter().enumerate() {
            assert_eq!(*own as usize, position);
        }
    }
}
