//! Commits, and what became of one that reported a failure.
//!
//! A commit whose sync failed may have left its frames in the log, whole: no reader sees
//! them, but a recovery after a crash would. So it isn't enough to look: what is told absent
//! has to stay absent. A second connection takes the write lock, which keeps everybody else
//! from publishing, looks, and cuts off the log what is not published. That needs no space on
//! the disk, unlike a write; only where the log can't be cut, a write takes the frames' place.
//!
//! What it says holds whatever happens next, a loss of power included:
//!
//! - `Committed`: it is published, and was synced if it had to be.
//! - `NotCommitted`: nothing of it is published, and nothing of it is left in the log.
//! - `Unknown`: neither could be had.

use rusqlite::{Connection, TransactionBehavior};

use crate::{
    effect::tx::Transaction,
    store::{
        StoreError,
        sqlite::{
            Core,
            call::unreadable,
            connection::is_busy,
            log::{self, Published, Uncut},
            statements::RAISE_FENCE,
            writer::pause,
        },
    },
};

/// How often a commit is tried again that another connection keeps from happening.
const TRIES: u32 = 200;

/// Why a transaction is not committed. It is ended.
#[derive(Debug)]
pub(super) enum Uncommitted {
    /// Another connection was in the way. Nothing of it is there.
    Busy,
    /// It was not tried.
    Untried(StoreError),
    /// Nothing of it is there, nothing of it will be, nor of a failed one before it.
    Nothing(StoreError),
    /// It may be there, or is in files that nobody finds any more.
    Unknown(StoreError),
}

/// Whether a commit happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settled {
    Committed,
    NotCommitted,
    Unknown,
}

/// How a lost commit is told from one that did not happen, under the write lock.
pub(super) enum Evidence<'a> {
    /// By what it wrote.
    Written(&'a dyn Fn(&Connection) -> rusqlite::Result<bool>),
    /// By the log's index alone, for what leaves nothing to look for: as it was before the
    /// commit, under the same write lock. If it still is, nobody has published anything
    /// since. If not, that may have been this commit or another connection's, and it is
    /// unknown; a row to tell them apart would cost every such transaction a page of the log.
    Index(Option<Published>),
}

/// Commits the open transaction. A failure is settled, whether it has ended it or not.
///
/// `synced` says whether the commit is to be on the disk before anybody is told that it
/// happened.
pub(super) fn commit(
    core: &Core,
    transaction: &Transaction,
    evidence: &Evidence<'_>,
    synced: bool,
) -> Result<(), Uncommitted> {
    core.check_files().map_err(Uncommitted::Untried)?;
    let mut tries = 0..TRIES;
    let error = loop {
        let error = match transaction.commit(&core.time) {
            // What was committed to files that nobody finds any more is lost.
            Ok(()) => return core.check_files().map_err(Uncommitted::Unknown),
            Err(error) => error,
        };
        match tries.next() {
            Some(attempt) if is_busy(&error) && !transaction.is_autocommit() => pause(attempt),
            _ => break error,
        }
    };
    match settle(core, transaction, evidence, synced) {
        Settled::Committed => Ok(()),
        Settled::NotCommitted if is_busy(&error) => Err(Uncommitted::Busy),
        Settled::NotCommitted => Err(Uncommitted::Nothing(unreadable(error))),
        Settled::Unknown => Err(Uncommitted::Unknown(unreadable(error))),
    }
}

fn settle(
    core: &Core,
    transaction: &Transaction,
    evidence: &Evidence<'_>,
    synced: bool,
) -> Settled {
    let was_open = !transaction.is_autocommit();
    // While it is open it holds the lock; what it wrote to the log may be whole.
    if transaction.recover().is_err() {
        return Settled::Unknown;
    }
    #[cfg(feature = "failpoints")]
    if transaction
        .guard()
        .failpoints
        .as_ref()
        .is_some_and(super::failpoints::Failpoints::hides_the_outcome)
    {
        return Settled::Unknown;
    }
    // What is at the path now may be another database.
    if core.check_files().is_err() {
        return Settled::Unknown;
    }
    let settled = match &core.opener.path {
        Some(path) => core
            .opener
            .settling(path)
            .and_then(|mut connection| settle_on(&mut connection, evidence, synced)),
        // In memory, the connection is all there is.
        None => match evidence {
            _ if was_open => Ok(Settled::NotCommitted),
            Evidence::Written(is_there) => is_there(transaction.connection()).map(settled),
            Evidence::Index(_) => Ok(Settled::Unknown),
        },
    };
    settled.unwrap_or_else(|error| {
        tracing::error!(
            code = error.sqlite_error().map_or(0, |error| error.extended_code),
            "a commit failed, and what became of it can't be established"
        );
        Settled::Unknown
    })
}

fn settled(is_there: bool) -> Settled {
    if is_there {
        Settled::Committed
    } else {
        Settled::NotCommitted
    }
}

fn settle_on(
    connection: &mut Connection,
    evidence: &Evidence<'_>,
    synced: bool,
) -> rusqlite::Result<Settled> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let published = Published::read(&transaction);
    let is_there = match evidence {
        Evidence::Written(is_there) => is_there(&transaction)?,
        Evidence::Index(before) => match (before, &published) {
            (Some(before), Some(published)) if published.is_still(before) => false,
            _ => return Ok(Settled::Unknown),
        },
    };
    if is_there {
        // Its own sync may be what failed, if a crash of another process had it recovered.
        return Ok(match synced.then(|| log::sync(&transaction)) {
            None | Some(Ok(())) => Settled::Committed,
            Some(Err(code)) => unsynced(code),
        });
    }
    let cut = match &published {
        Some(published) => log::cut(&transaction, published),
        None => Err(Uncut::Not(rusqlite::ffi::SQLITE_NOTFOUND)),
    };
    match cut {
        Ok(()) => Ok(Settled::NotCommitted),
        Err(Uncut::NotSynced(code)) => Ok(unsynced(code)),
        Err(Uncut::Not(_)) => {
            transaction.execute(RAISE_FENCE, [])?;
            transaction.commit()?; // Synced, see `Opener::settling`.
            Ok(Settled::NotCommitted)
        }
    }
}

fn unsynced(code: i32) -> Settled {
    tracing::error!(
        code,
        "a commit failed, and the log can't be synced after it"
    );
    Settled::Unknown
}
