//! The backend's side of external operations: each a short transaction of the one writer.

use std::{future, sync::Arc, time::Duration};

use rusqlite::Connection;

use crate::{
    clock::Timestamp,
    effect::transactional::Executed,
    operation::{
        id::OperationId,
        record::{NewOperation, Record},
        stored::Stored,
    },
    request::registered::Registered,
    store::{
        BoxFuture, Decide, Decided, Due, DuePlace, ExternalBackend, StoreError, Wait, WriteError,
        sqlite::{
            Core,
            call::unreadable,
            exclusive::{self, Failed, Terms},
            external,
            owner::{Owner, not_run},
            reader,
            statements::{HAS_EXTERNAL, RAISE_FENCE},
            ticket::Ticket,
            writer::Writer,
        },
    },
};

/// How often a transaction is run again whose commit can't be settled. Each run finds what
/// the one before has done, if it did it.
const RUNS: u32 = 3;

/// Why a run has written nothing, or may have.
enum Unwritten {
    /// It came to no commit: an earlier run's may be there.
    Nothing(StoreError),
    /// Its commit failed, and nothing is there or will be, of an earlier run either if what
    /// it wrote was looked for.
    Cleared(StoreError),
    /// It may be there.
    Unknown(StoreError),
}

/// One transaction's work, which may run again.
struct Work<W, L> {
    /// What the ledger must cover before.
    contract: Option<Arc<Registered>>,
    run: W,
    /// What to look for if the commit's answer is lost.
    is_there: Option<L>,
}

impl ExternalBackend for Owner {
    fn accept(
        &self,
        new: NewOperation,
        deadline: Duration,
    ) -> BoxFuture<'_, Result<Option<Stored>, WriteError>> {
        Box::pin(async move {
            let identity = new.identity.clone();
            let id = new.operation_id;
            let contract = Arc::clone(&new.contract);
            let is_there = move |connection: &Connection, found: &Option<Stored>| match found {
                Some(_) => Ok(true), // It wrote nothing: what it found is there.
                None => connection.prepare(HAS_EXTERNAL)?.exists([id.as_bytes()]),
            };
            let work = move |connection: &Connection| {
                external::accept(connection, &new).map(|found| match found {
                    // A run before this one recorded it.
                    Some(Stored::External(found)) if found == id => None,
                    found => found,
                })
            };
            let accepted = self
                .transact(deadline, Work::found_by(contract, work, is_there))
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
    ) -> BoxFuture<'_, Result<Option<Decided>, WriteError>> {
        let deadline = self.core.clock.monotonic();
        let deadline = deadline.saturating_add(self.core.opener.options.budget);
        let work = move |connection: &Connection| {
            let Some(old) = external::load(connection, id)? else {
                return Ok(None);
            };
            let mut new = old.clone();
            if let Err(refusal) = decide(&mut new) {
                return Ok(Some(Err((refusal, old))));
            }
            external::save(connection, &old, &new)?;
            Ok(Some(Ok(new)))
        };
        Box::pin(self.transact(deadline, Work::found_by_the_index(work)))
    }
}

impl Owner {
    /// Runs `work` under the write lock and commits it; again if the commit can't be settled.
    async fn transact<T, W, L>(&self, deadline: Duration, work: Work<W, L>) -> Result<T, WriteError>
    where
        T: Send + 'static,
        W: Fn(&Connection) -> Result<T, StoreError> + Send + Sync + 'static,
        L: Fn(&Connection, &T) -> rusqlite::Result<bool> + Send + Sync + 'static,
    {
        let work = Arc::new(work);
        let mut run = 1;
        loop {
            let shared = Arc::clone(&work);
            let outcome = self
                .alone_until(Wait::Async, deadline, move |core, writer, ticket| {
                    run_once(core, writer, ticket, &shared, 1 < run)
                })
                .await
                .unwrap_or_else(|executed| Err(kept_from(executed)));
            let error = match outcome {
                Ok(done) => return Ok(done),
                Err(Unwritten::Unknown(_)) if run < RUNS => {
                    run += 1;
                    continue;
                }
                Err(error) => error,
            };
            return Err(match error {
                // What an earlier run left is known only if this one has looked for it.
                Unwritten::Cleared(error) if 1 < run && work.is_there.is_none() => {
                    WriteError::Unknown(exclusive::unsettled(error))
                }
                Unwritten::Nothing(error) if 1 < run => {
                    WriteError::Unknown(exclusive::unsettled(error))
                }
                Unwritten::Nothing(error) | Unwritten::Cleared(error) => WriteError::Nothing(error),
                Unwritten::Unknown(error) => WriteError::Unknown(error),
            });
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
            return Box::pin(future::ready(found.map_err(StoreError::before_look_up)));
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
                .map_err(StoreError::before_look_up)
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

impl<W, L> Work<W, L> {
    fn found_by(contract: Arc<Registered>, work: W, is_there: L) -> Self {
        Self {
            contract: Some(contract),
            run: work,
            is_there: Some(is_there),
        }
    }
}

impl<W, T> Work<W, fn(&Connection, &T) -> rusqlite::Result<bool>> {
    /// Of a change that others may have built upon since: there is nothing to look for.
    fn found_by_the_index(work: W) -> Self {
        Self {
            contract: None,
            run: work,
            is_there: None,
        }
    }
}

fn run_once<T, W, L>(
    core: &Core,
    writer: &mut Writer,
    ticket: &Ticket,
    work: &Work<W, L>,
    again: bool,
) -> Result<T, Unwritten>
where
    W: Fn(&Connection) -> Result<T, StoreError>,
    L: Fn(&Connection, &T) -> rusqlite::Result<bool>,
{
    #[cfg(feature = "failpoints")]
    let _counting = core.count_statements();
    let transaction = writer.take(core).map_err(Unwritten::Nothing)?;
    let waits = || core.clock.monotonic() < ticket.deadline && ticket.is_live();
    let terms = Terms {
        synced: true, // Nothing is sent or told that a loss of power could undo.
        is_there: work.is_there.as_ref().map(|is_there| is_there as _),
    };
    let outcome = exclusive::run(
        core,
        &mut writer.memo,
        &transaction,
        Some(ticket),
        waits,
        &terms,
        |memo, transaction| {
            let connection = transaction.connection();
            if again {
                // What the run before left, this one must find on the disk: so it writes.
                connection.execute(RAISE_FENCE, []).map_err(unreadable)?;
            }
            if let Some(contract) = &work.contract {
                memo.ensure_tool(transaction, contract)
                    .map_err(unreadable)??;
            }
            (work.run)(connection)
        },
    );
    writer.put(core, transaction);
    outcome.map_err(|failed| match failed {
        Failed::Busy => busy("another process keeps the database locked; ask again"),
        Failed::Late => busy("the writer had no time within the budget; ask again"),
        Failed::Refused(error) | Failed::Nothing(error) => Unwritten::Nothing(error),
        Failed::Cleared(error) => Unwritten::Cleared(error),
        Failed::Unknown(error) => Unwritten::Unknown(error),
    })
}

fn busy(what: &'static str) -> Unwritten {
    Unwritten::Nothing(StoreError::new(what).busy())
}

/// Why a transaction was not run, or was lost with the writer that ran it.
fn kept_from(executed: Executed) -> Unwritten {
    match executed {
        Executed::Unknown(_, error) => Unwritten::Unknown(error),
        executed => Unwritten::Nothing(not_run(executed)),
    }
}
