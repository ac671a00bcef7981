//! What became of a commit whose answer was lost.

use rusqlite::{Connection, TransactionBehavior};

use crate::{
    effect::{transactional::Executed, tx::Tx},
    store::sqlite::{
        Core,
        key::LedgerKey,
        queue::CallJob,
        statements::{HAS_OPERATION, RAISE_FENCE},
    },
};

/// Whether a commit happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    Committed,
    NotCommitted,
    Unknown,
}

/// Looks for the sealed calls' receipts, by identity and operation, on a fresh connection.
///
/// It looks inside a transaction that writes. A commit whose sync failed may have left its
/// frames in the log, where no reader sees them but a recovery after a crash would; that
/// write takes their place, so that what is absent now stays absent.
pub(super) fn settle(core: &Core, tx: &Tx, jobs: &[CallJob]) -> Settled {
    let Some(path) = &core.opener.path else {
        // In memory, the connection is all there is.
        return has_all(tx.connection(), jobs).unwrap_or(Settled::Unknown);
    };
    #[cfg(feature = "failpoints")]
    if tx
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
    let settled = core.opener.bare(path).and_then(|mut connection| {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute(RAISE_FENCE, [])?;
        let settled = has_all(&transaction, jobs)?;
        transaction.commit()?;
        Ok(settled)
    });
    match settled {
        Ok(settled) => settled,
        Err(error) => {
            tracing::error!(
                code = error.sqlite_error().map_or(0, |error| error.extended_code),
                "a commit failed, and what became of it can't be established"
            );
            Settled::Unknown
        }
    }
}

/// One transaction wrote all of the receipts, so all or none are there.
fn has_all(connection: &Connection, jobs: &[CallJob]) -> rusqlite::Result<Settled> {
    let mut statement = connection.prepare(HAS_OPERATION)?;
    for job in jobs {
        let Some(Executed::Committed(receipt)) = &job.outcome else {
            continue;
        };
        let identity = &job.call.identity;
        let found = statement.exists((
            LedgerKey::from(&identity.key),
            &*identity.scope,
            &*identity.tool,
            receipt.operation_id.as_bytes(),
        ))?;
        if !found {
            return Ok(Settled::NotCommitted);
        }
    }
    Ok(Settled::Committed)
}
