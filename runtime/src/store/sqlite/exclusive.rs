//! One transaction that has the connection to itself: from the lock to a settled commit.

use std::error::Error;

use rusqlite::Connection;

use crate::{
    effect::tx::Transaction,
    store::{
        StoreError,
        sqlite::{
            Core, Synchronous,
            call::unreadable,
            log::Published,
            lost_commit::{Evidence, Uncommitted, commit},
            ticket::Ticket,
            writer::Memo,
        },
    },
};

/// Why a transaction has written nothing, or may have.
#[derive(Debug)]
pub(super) enum Failed<E> {
    /// The lock wasn't to be had in time.
    Busy,
    /// There was no time left to commit.
    Late,
    /// The work's own reason.
    Refused(E),
    /// The database failed; nothing was written.
    Nothing(StoreError),
    /// The database failed at the commit; nothing was written, and nothing is left of a
    /// failed commit before it.
    Cleared(StoreError),
    /// The database failed at the commit, and whether it happened can't be established.
    Unknown(StoreError),
}

/// How a transaction is committed.
pub(super) struct Terms<'a, T> {
    /// Whether the commit is on the disk before it is told, whatever the level chosen for
    /// calls.
    pub(super) synced: bool,
    /// What to look for if the commit's answer is lost; without it the log's index tells.
    pub(super) is_there: Option<IsThere<'a, T>>,
}

type IsThere<'a, T> = &'a dyn Fn(&Connection, &T) -> rusqlite::Result<bool>;

/// Runs `work` under the write lock and commits it. Whoever `waits` no more, or whose
/// `ticket` has ended, gets nothing written.
pub(super) fn run<T, E>(
    core: &Core,
    memo: &mut Memo,
    transaction: &Transaction,
    ticket: Option<&Ticket>,
    waits: impl FnMut() -> bool,
    terms: &Terms<'_, T>,
    work: impl FnOnce(&mut Memo, &Transaction) -> Result<T, E>,
) -> Result<T, Failed<E>> {
    let nothing = |error| Failed::Nothing(unreadable(error).before_look_up());
    let chosen = core.opener.options.synchronous;
    let synced = terms.synced || chosen.syncs_commits();
    let _raised = (synced && !chosen.syncs_commits())
        .then(|| Raised::from(chosen, transaction))
        .transpose()
        .map_err(nothing)?;
    let locked = transaction.lock(waits).map_err(nothing)?;
    if !locked || !ticket.is_none_or(Ticket::begin) {
        return Err(Failed::Busy);
    }
    memo.confirm_locked(core, transaction)
        .map_err(|error| Failed::Nothing(error.before_look_up()))?;
    let value = work(memo, transaction).map_err(Failed::Refused)?;
    if !ticket.is_none_or(Ticket::seal) {
        return Err(Failed::Late);
    }
    let wrote = |connection: &Connection| match terms.is_there {
        Some(is_there) => is_there(connection, &value),
        None => Ok(false),
    };
    let evidence = match terms.is_there {
        Some(_) => Evidence::Written(&wrote),
        None => Evidence::Index(Published::read(transaction.connection())),
    };
    match commit(core, transaction, &evidence, synced) {
        Ok(()) => {
            memo.committed();
            Ok(value)
        }
        Err(Uncommitted::Busy) => Err(Failed::Busy),
        Err(Uncommitted::Untried(error)) => Err(Failed::Nothing(error)),
        Err(Uncommitted::Nothing(error)) => Err(Failed::Cleared(error)),
        Err(Uncommitted::Unknown(error)) => Err(Failed::Unknown(unsettled(error))),
    }
}

/// What to say of a commit that can't be settled.
pub(super) fn unsettled(error: impl Into<Box<dyn Error + Send + Sync>>) -> StoreError {
    StoreError::new(
        "the database failed at the commit, and what it kept can't be read; look again before \
         you repeat it",
    )
    .retryable()
    .caused_by(error)
}

/// While it lives, commits of the write connection sync, at a level where others don't.
///
/// The level can't change inside a transaction, so it is raised before `BEGIN`. A sync after
/// the commit would be too late: what is published can't be taken back if it fails.
struct Raised<'a> {
    transaction: &'a Transaction,
    chosen: Synchronous,
}

impl<'a> Raised<'a> {
    fn from(chosen: Synchronous, transaction: &'a Transaction) -> rusqlite::Result<Self> {
        set_level(transaction, Synchronous::Full)?;
        Ok(Self {
            transaction,
            chosen,
        })
    }
}

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        let ended = self.transaction.recover();
        if let Err(error) = ended.and_then(|()| set_level(self.transaction, self.chosen)) {
            // Commits go on to sync, which is slower and no worse.
            tracing::warn!(
                code = error.sqlite_error().map_or(0, |error| error.extended_code),
                "the write connection stays at a level that syncs each commit"
            );
        }
    }
}

fn set_level(transaction: &Transaction, level: Synchronous) -> rusqlite::Result<()> {
    let connection = transaction.connection();
    connection.pragma_update(None, "synchronous", level.pragma())
}
