//! The application's own writes, through the writer that runs the calls.

use std::{
    error::Error,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    effect::{
        failure::Failure,
        transactional::{Executed, RunError},
        tx::Transaction,
    },
    store::{
        StoreError,
        sqlite::{
            Core,
            call::{forget_changes, is_lost, restricted, tidy, unreadable},
            exclusive::{self, Failed, Terms},
            ticket::{Answer, Ticket},
            writer::{Memo, Writer},
        },
    },
};

/// Why a closure given to [`SqliteStore::transact`](crate::SqliteStore::transact) has
/// written nothing, or may have.
#[derive(Debug)]
#[non_exhaustive]
pub enum TransactError<E> {
    /// The closure's own error; what it wrote is rolled back.
    Refused(E),
    /// What the closure wrote can't be committed, and is rolled back: it did something that
    /// is not allowed inside, or violated a deferred foreign key.
    NotAllowed(Failure),
    /// The closure panicked; what it wrote is rolled back.
    Panicked,
    /// The budget ended before the closure began, or too much is queued; nothing was written.
    Busy,
    /// The budget ended while the closure ran; what it wrote is rolled back.
    DeadlineExceeded,
    /// The database failed; nothing was written, and nothing will be.
    Storage(StoreError),
    /// The database failed at the commit, and so did every way to learn whether it happened.
    /// What the application's own tables show may change once more, when the disk works
    /// again: look at them then.
    Unknown(StoreError),
}

/// Where work that runs elsewhere leaves its outcome.
#[derive(Debug)]
pub(super) struct Outcome<T>(Arc<Mutex<Option<T>>>);

impl<T> Outcome<T> {
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }

    pub(super) fn set(&self, outcome: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }

    /// The outcome, if the work ran; else why it did not.
    pub(super) fn take(&self, answer: Answer) -> Result<T, Executed> {
        match answer {
            Answer::Executed(executed) => Err(executed),
            Answer::Ran => {
                let outcome = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
                outcome.ok_or(Executed::Busy)
            }
        }
    }
}

impl<T> Clone for Outcome<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Runs `work` in a transaction of its own.
pub(super) fn run<T, E>(
    core: &Core,
    writer: &mut Writer,
    ticket: &Ticket,
    work: impl FnOnce(&Transaction) -> Result<T, E>,
) -> Result<T, TransactError<E>> {
    let transaction = writer.take(core).map_err(TransactError::Storage)?;
    transaction.guard().begin();
    let waits = || core.clock.monotonic() < ticket.deadline && ticket.is_live();
    let terms = Terms {
        synced: false,
        is_there: None,
    };
    let outcome = exclusive::run(
        core,
        &mut writer.memo,
        &transaction,
        Some(ticket),
        waits,
        &terms,
        |memo, transaction| inside(core, memo, transaction, ticket, work),
    );
    writer.put(core, transaction);
    outcome.map_err(|failed| match failed {
        Failed::Busy => TransactError::Busy,
        Failed::Late => TransactError::DeadlineExceeded,
        Failed::Refused(error) => error,
        Failed::Nothing(error) | Failed::Cleared(error) => TransactError::Storage(error),
        Failed::Unknown(error) => TransactError::Unknown(error),
    })
}

/// What the open transaction gets of `work`, and why it can't be committed.
fn inside<T, E>(
    core: &Core,
    memo: &mut Memo,
    transaction: &Transaction,
    ticket: &Ticket,
    work: impl FnOnce(&Transaction) -> Result<T, E>,
) -> Result<T, TransactError<E>> {
    forget_changes(transaction).map_err(|error| TransactError::Storage(unreadable(error)))?;
    let outcome = restricted(transaction, ticket.deadline, || work(transaction));
    let left_behind = tidy(memo, transaction);
    if ticket.deadline <= core.clock.monotonic() {
        return Err(TransactError::DeadlineExceeded);
    }
    if let Some(denied) = transaction.guard().denied() {
        return Err(TransactError::NotAllowed(denied.failure()));
    }
    let value = match outcome {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => return Err(TransactError::Refused(error)),
        Err(_) => return Err(TransactError::Panicked),
    };
    if is_lost(transaction) {
        return Err(TransactError::NotAllowed(Failure::new(
            "transaction_lost",
            "a statement made SQLite roll the whole transaction back",
        )));
    }
    left_behind?;
    Ok(value)
}

impl<E> From<Executed> for TransactError<E> {
    fn from(executed: Executed) -> Self {
        match executed {
            Executed::DeadlineExceeded => Self::DeadlineExceeded,
            Executed::RolledBack(RunError::Failed(failure)) => Self::NotAllowed(failure),
            // The others are a call's own, and never said of other work.
            Executed::Busy
            | Executed::Committed(_)
            | Executed::Found(_)
            | Executed::RolledBack(RunError::InvalidArguments(_)) => Self::Busy,
            Executed::Storage(error) => Self::Storage(error),
            Executed::Unknown(_, error) => Self::Unknown(error),
        }
    }
}

impl<E: fmt::Display> fmt::Display for TransactError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::NotAllowed(failure) => failure.fmt(f),
            Self::Panicked => f.write_str("the closure panicked; nothing was written"),
            Self::Busy => f.write_str("the writer had no time within the budget; try again"),
            Self::DeadlineExceeded => {
                f.write_str("the closure took longer than the budget, and was rolled back")
            }
            Self::Storage(error) | Self::Unknown(error) => error.fmt(f),
        }
    }
}

impl<E: Error + 'static> Error for TransactError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused(error) => Some(error),
            Self::NotAllowed(failure) => failure.source(),
            Self::Panicked | Self::Busy | Self::DeadlineExceeded => None,
            Self::Storage(error) | Self::Unknown(error) => error.source(),
        }
    }
}
