//! The backend's side of external operations: each a short transaction of the one writer.

use std::{future, sync::Arc, time::Duration};

use rusqlite::Connection;

use crate::{
    clock::Timestamp,
    effect::tx::Transaction,
    operation::{
        id::OperationId,
        record::{NewOperation, Record},
        stored::Stored,
    },
    request::registered::Registered,
    store::{
        BoxFuture, Decide, Decided, Due, DuePlace, ExternalBackend, StoreError, Wait,
        sqlite::{
            Core,
            call::unreadable,
            external,
            own::Own,
            owner::{Owner, not_run},
            reader,
            ticket::Ticket,
            writer::{Memo, Writer},
        },
    },
};

/// How often a transaction whose commit was lost is run again. Each run finds what the one
/// before has done, if it did it.
const RUNS: u32 = 3;

impl ExternalBackend for Owner {
    fn accept(
        &self,
        new: NewOperation,
        deadline: Duration,
    ) -> BoxFuture<'_, Result<Option<Stored>, StoreError>> {
        Box::pin(async move {
            let identity = new.identity.clone();
            let contract = Arc::clone(&new.contract);
            let accepted = self
                .transact(deadline, Some(contract), move |connection| {
                    external::accept(connection, &new).map(|found| match found {
                        // A run before this one recorded it.
                        Some(Stored::External(id)) if id == new.operation_id => None,
                        found => found,
                    })
                })
                .await?;
            self.core.recent.insert(&identity);
            Ok(accepted)
        })
    }

    fn load(&self, id: OperationId) -> BoxFuture<'_, Result<Option<Record>, StoreError>> {
        self.look(move |connection| external::load(connection, id))
    }

    fn due(
        &self,
        now: Timestamp,
        after: Option<DuePlace>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Due>, StoreError>> {
        self.look(move |connection| external::due(connection, now, after, limit))
    }

    fn decide(
        &self,
        id: OperationId,
        decide: Decide,
    ) -> BoxFuture<'_, Result<Option<Decided>, StoreError>> {
        let deadline = self.core.clock.monotonic();
        let deadline = deadline.saturating_add(self.core.opener.options.budget);
        Box::pin(self.transact(deadline, None, move |connection| {
            let Some(old) = external::load(connection, id)? else {
                return Ok(None);
            };
            let mut new = old.clone();
            if let Err(refusal) = decide(&mut new) {
                return Ok(Some(Err((refusal, old))));
            }
            external::save(connection, &old, &new)?;
            Ok(Some(Ok(new)))
        }))
    }
}

impl Owner {
    /// Runs `work` under the write lock and commits it; again if the commit was lost.
    async fn transact<T: Send + 'static>(
        &self,
        deadline: Duration,
        contract: Option<Arc<Registered>>,
        work: impl Fn(&Connection) -> Result<T, StoreError> + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        let work = Arc::new(work);
        let mut runs = 1;
        loop {
            let work = Arc::clone(&work);
            let contract = contract.clone();
            let outcome = self
                .alone_until(Wait::Async, deadline, move |core, writer, ticket| {
                    run(core, writer, ticket, contract.as_ref(), &*work)
                })
                .await
                .unwrap_or_else(|executed| Err(Lost::No(not_run(executed))));
            match outcome {
                Ok(value) => return Ok(value),
                Err(Lost::Perhaps(_)) if runs < RUNS => runs += 1,
                Err(Lost::No(error) | Lost::Perhaps(error)) => return Err(error),
            }
        }
    }

    /// Reads without the write lock.
    fn look<T: Send + 'static>(
        &self,
        read: impl Fn(&Connection) -> Result<T, StoreError> + Send + Sync + 'static,
    ) -> BoxFuture<'_, Result<T, StoreError>> {
        let core = &*self.core;
        if let Some(path) = &core.opener.path {
            let found = core.look(path, |connection| in_snapshot(connection, &read));
            return Box::pin(future::ready(found));
        }
        Box::pin(async move {
            let found = self.alone(Wait::Async, move |core, writer, _| {
                let transaction = writer.take(core)?;
                let found = read(transaction.connection());
                writer.put(core, transaction);
                found
            });
            found
                .await
                .unwrap_or_else(|executed| Err(not_run(executed)))
        })
    }
}

/// Reads several things of one moment, in a ledger that this version may use.
fn in_snapshot<T>(
    connection: &Connection,
    read: impl Fn(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let transaction = connection.unchecked_transaction().map_err(unreadable)?;
    reader::may_use(&transaction)?;
    read(&transaction) // Dropped, it is rolled back.
}

/// Whether what failed may have happened nevertheless.
enum Lost {
    No(StoreError),
    Perhaps(StoreError),
}

fn run<T>(
    core: &Core,
    writer: &mut Writer,
    ticket: &Ticket,
    contract: Option<&Arc<Registered>>,
    work: &dyn Fn(&Connection) -> Result<T, StoreError>,
) -> Result<T, Lost> {
    #[cfg(feature = "failpoints")]
    let _counting = core.count_statements();
    let transaction = writer.take(core).map_err(Lost::No)?;
    let outcome = inside(core, &mut writer.memo, &transaction, ticket, contract, work);
    writer.put(core, transaction);
    outcome
}

fn inside<T>(
    core: &Core,
    memo: &mut Memo,
    transaction: &Transaction,
    ticket: &Ticket,
    contract: Option<&Arc<Registered>>,
    work: &dyn Fn(&Connection) -> Result<T, StoreError>,
) -> Result<T, Lost> {
    let waits = || core.clock.monotonic() < ticket.deadline && ticket.is_live();
    let locked = transaction
        .lock(waits)
        .map_err(|error| Lost::No(unreadable(error)))?;
    if !locked || !ticket.begin() {
        let error = StoreError::new("another process keeps the database locked; ask again");
        return Err(Lost::No(error.busy()));
    }
    memo.confirm_locked(core, transaction).map_err(Lost::No)?;
    if let Some(contract) = contract {
        memo.ensure_tool(transaction, contract)
            .map_err(|error| Lost::No(unreadable(error)))?
            .map_err(Lost::No)?;
    }
    let value = work(transaction.connection()).map_err(Lost::No)?;
    if !ticket.seal() {
        let error = StoreError::new("the writer had no time within the budget; ask again");
        return Err(Lost::No(error.busy()));
    }
    core.check_files().map_err(Lost::No)?;
    match transaction.command(Own::Commit) {
        Ok(()) => {
            core.check_files().map_err(Lost::Perhaps)?;
            memo.committed();
            Ok(value)
        }
        Err(error) if transaction.is_autocommit() => Err(Lost::Perhaps(unreadable(error))),
        Err(error) => Err(Lost::No(unreadable(error))),
    }
}
