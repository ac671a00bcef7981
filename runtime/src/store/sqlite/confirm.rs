//! What the writer remembers is compared with the ledger, in the snapshot that answers.

use rusqlite::ErrorCode;

use crate::{
    effect::tx::Transaction,
    store::{
        StoreError,
        sqlite::{
            Core,
            call::unreadable,
            connection::{KNOWN_VERSION, is_busy},
            own::Own,
            statements::LEDGER_OBJECTS,
            watch::Before,
            writer::Memo,
        },
    },
};

impl Memo {
    /// To be asked after the first read of a transaction, before anything of it is believed:
    /// whether what was remembered still holds in its snapshot. If not, it is forgotten, and
    /// what was read by it is to be read again.
    ///
    /// `before` is from before the transaction began.
    pub(super) fn confirm(
        &mut self,
        core: &Core,
        transaction: &Transaction,
        before: Before,
    ) -> rusqlite::Result<Result<bool, StoreError>> {
        let generation = core.watch.generation(before);
        if self.is_of(generation) {
            return Ok(Ok(true));
        }
        self.forget();
        if let Err(refused) = check_versions(transaction)? {
            return Ok(Err(refused));
        }
        // The cookie tells whether the schema is as it was: its objects are many.
        let cookie = transaction.own(Own::SchemaCookie, |cookie| {
            cookie.query_row([], |row| row.get(0))
        })?;
        if self.schema_cookie != Some(cookie) {
            self.ledger_objects =
                transaction
                    .connection()
                    .query_row(LEDGER_OBJECTS, [], |row| row.get(0))?;
            self.schema_cookie = Some(cookie);
        }
        self.learn_in(generation);
        core.guard.confirmed(generation);
        Ok(Ok(false))
    }

    /// [`confirm`](Self::confirm) for a transaction that has the write lock.
    pub(super) fn confirm_locked(
        &mut self,
        core: &Core,
        transaction: &Transaction,
    ) -> Result<(), StoreError> {
        let confirmed = self.confirm(core, transaction, Before::Locked);
        confirmed.map_err(unreadable)?.map(|_| ())
    }
}

/// Whether this version may still write to the ledger, as it is in the transaction's snapshot.
fn check_versions(transaction: &Transaction) -> rusqlite::Result<Result<(), StoreError>> {
    let versions = transaction.own(Own::Versions, |versions| {
        versions.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
    });
    match versions {
        Ok((schema, oldest_writer)) => Ok(judge(schema, oldest_writer)),
        Err(error) if is_busy(&error) => Err(error),
        // Without the ledger's own table the statement means nothing any more.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::Unknown) => {
            Ok(Err(older().caused_by(error)))
        }
        Err(rusqlite::Error::QueryReturnedNoRows) => Ok(Err(older())),
        Err(error) => Err(error),
    }
}

/// What a ledger of these versions is to this one.
pub(super) fn judge(schema: i64, oldest_writer: i64) -> Result<(), StoreError> {
    if KNOWN_VERSION < oldest_writer {
        return Err(StoreError::new(
            "a newer version of idempotent-tool has migrated the ledger, and this one may no \
             longer use it; upgrade idempotent-tool in this process",
        ));
    }
    if schema < KNOWN_VERSION {
        return Err(older());
    }
    Ok(())
}

fn older() -> StoreError {
    StoreError::new(
        "the database has no ledger or an older one than the store was opened with, as after a \
         restore; open the store anew, which migrates it: end this process and start it again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_ledger_of_this_version_or_a_newer_one_that_allows_it_is_written_to() {
        let known = KNOWN_VERSION;
        assert!(judge(known, known).is_ok());
        assert!(judge(known, 1).is_ok());
        assert!(judge(known + 1, known).is_ok());
        for (schema, oldest_writer, remedy) in [
            (known + 1, known + 1, "upgrade"),
            (known - 1, 1, "open the store anew"),
            (0, 0, "open the store anew"),
        ] {
            let refused = judge(schema, oldest_writer).unwrap_err();
            assert!(refused.what.contains(remedy), "{schema}: {refused}");
            assert_eq!(refused.prospect, crate::store::Prospect::Stays);
        }
    }
}
