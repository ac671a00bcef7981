//! Calls that share one transaction and one sync: from `BEGIN` to the answers.
//!
//! No call takes another down. A batch with a call to be undone that nothing protects is
//! repeated with a savepoint around each call, and has them from the start if one of its
//! handlers tells something outside, which would be told twice. What a call loses for all
//! even so (SQLite's own rollbacks, a commit that fails) is repeated without it, and then it
//! alone.

use std::{sync::Arc, time::Duration};

use rusqlite::Connection;

use crate::{
    effect::{
        transactional::Executed,
        tx::{Transaction, Tx},
    },
    store::{
        StoreError,
        sqlite::{
            Core,
            call::{self, End, Progress, Undo, unreadable},
            connection::is_busy,
            exclusive::unsettled,
            key::LedgerKey,
            lost_commit::{self, Evidence, Uncommitted},
            own::Own,
            queue::CallJob,
            statements::HAS_OPERATION,
            ticket::Answer,
            watch::Before,
            writer::{Memo, Writer},
        },
    },
};

/// The longest that a batch takes on further calls.
const BATCH_TIME: Duration = Duration::from_millis(10);

/// How often a transaction begins again because another process was in the way at a place
/// where none can be; then it is given up.
const RESTARTS: u32 = 16;

/// How one transaction ended.
enum Attempt {
    /// The first so many calls have their outcomes, which are committed or rolled back.
    Done(usize),
    /// Another process was in the way; nothing happened.
    Locked,
    /// One call needs a savepoint around it; nothing happened.
    Unprotected,
    /// One call lost the transaction for all, and what to say of it.
    Lost(usize, Executed),
    /// The commit failed with nothing written, and what to say if it was of one call.
    NotCommitted(Executed),
    /// The commit failed, and whether it happened can't be established.
    Unknown(StoreError),
}

/// Runs calls in as few transactions as possible and answers them; returns those that
/// there was no time for.
pub(super) fn run(core: &Core, writer: &mut Writer, mut jobs: Vec<CallJob>) -> Vec<CallJob> {
    let Some(first) = jobs.first() else {
        return jobs;
    };
    let transaction = match writer.take(core) {
        Ok(transaction) => transaction,
        Err(error) => {
            refuse_all(jobs, &Arc::new(error));
            return Vec::new();
        }
    };
    let tx = Tx::new(transaction, Arc::clone(&first.call));
    let mut batch = Batch {
        core,
        memo: &mut writer.memo,
        tx,
    };
    let mut rest = Vec::new();
    if jobs.len() == 1 {
        batch.run_each(jobs);
    } else {
        match batch.run_together(&mut jobs) {
            Together::Done(ran) => {
                rest = jobs.split_off(ran);
                jobs.into_iter().for_each(CallJob::finish);
            }
            Together::Without(suspect) => {
                let suspect = jobs.remove(suspect);
                match batch.run_together(&mut jobs) {
                    Together::Done(ran) => {
                        rest = jobs.split_off(ran);
                        jobs.into_iter().for_each(CallJob::finish);
                    }
                    Together::Without(_) | Together::Each => batch.run_each(jobs),
                }
                batch.run_each(vec![suspect]);
            }
            Together::Each => batch.run_each(jobs),
        }
    }
    let transaction: Transaction = batch.tx.into_transaction();
    writer.put(core, transaction);
    rest
}

fn refuse_all(jobs: Vec<CallJob>, error: &Arc<StoreError>) {
    for job in jobs {
        let own = StoreError {
            what: error.what,
            prospect: error.prospect,
            unread: error.unread,
            source: Some(Box::new(Arc::clone(error))),
        };
        job.ticket.answer(Answer::Executed(Executed::Storage(own)));
    }
}

/// How several calls in one transaction came out.
enum Together {
    /// The first so many have their outcomes.
    Done(usize),
    /// One lost the transaction: the others are to run without it.
    Without(usize),
    /// They are to run one by one.
    Each,
}

struct Batch<'a> {
    core: &'a Core,
    memo: &'a mut Memo,
    tx: Tx,
}

impl Batch<'_> {
    fn run_together(&mut self, jobs: &mut [CallJob]) -> Together {
        let mut locked = false;
        let tells_outside = jobs.iter().any(|job| job.call.tool.effects_outside);
        // The protection is the batch's: its failing call must not be one without a savepoint.
        let mut undo = if tells_outside {
            Undo::Call
        } else {
            self.memo.undo_in_a_batch(&self.core.guard)
        };
        for _ in 0..RESTARTS {
            match self.attempt(jobs, locked, undo) {
                Attempt::Done(ran) => return Together::Done(ran),
                Attempt::Locked => locked = true,
                Attempt::Unprotected => undo = Undo::Call,
                Attempt::Lost(guilty, _) => return Together::Without(guilty),
                Attempt::NotCommitted(_) => return Together::Each,
                Attempt::Unknown(error) => {
                    unknown(jobs, error);
                    return Together::Done(jobs.len());
                }
            }
        }
        Together::Each
    }

    /// Runs calls each in a transaction of its own, and answers each.
    fn run_each(&mut self, jobs: Vec<CallJob>) {
        for mut job in jobs {
            self.run_one(&mut job);
            job.finish();
        }
    }

    fn run_one(&mut self, job: &mut CallJob) {
        let mut locked = false;
        for _ in 0..RESTARTS {
            match self.attempt(std::slice::from_mut(job), locked, Undo::Transaction) {
                Attempt::Done(_) => return,
                // Undone with its transaction, a lone call needs no protection.
                Attempt::Locked | Attempt::Unprotected => locked = true,
                Attempt::Lost(_, outcome) | Attempt::NotCommitted(outcome) => {
                    job.outcome = Some(outcome);
                    return;
                }
                Attempt::Unknown(error) => {
                    unknown(std::slice::from_mut(job), error);
                    return;
                }
            }
        }
        job.outcome = Some(Executed::Busy);
    }

    /// One transaction with `jobs`. Unless it is done, nothing of it remains.
    fn attempt(&mut self, jobs: &mut [CallJob], locked: bool, undo: Undo) -> Attempt {
        let attempt = self.transact(jobs, locked, undo);
        if matches!(attempt, Attempt::Done(_)) {
            return attempt;
        }
        // Nothing outlives a transaction that is not known to be committed.
        self.memo.rolled_back();
        if matches!(attempt, Attempt::Unknown(_)) {
            return attempt;
        }
        for job in jobs {
            job.outcome = None;
            job.ticket.unseal();
        }
        // A failure here leaves a connection that is not put back; it shows at `BEGIN`.
        match self.tx.recover() {
            Ok(()) => attempt,
            Err(error) => Attempt::NotCommitted(Executed::Storage(unreadable(error))),
        }
    }

    fn transact(&mut self, jobs: &mut [CallJob], locked: bool, undo: Undo) -> Attempt {
        let core = self.core;
        self.tx.guard().begin();
        let before = if locked {
            Before::Locked
        } else {
            core.watch.before()
        };
        let began = if locked {
            self.tx.lock(|| someone_waits(core, jobs))
        } else {
            self.tx.command(Own::Begin).map(|()| true)
        };
        match began {
            Ok(true) => (),
            Ok(false) => return Attempt::Done(jobs.len()), // All have been answered.
            Err(error) if is_busy(&error) => return Attempt::Locked,
            Err(error) => {
                let error = unreadable(error).before_look_up();
                return Attempt::NotCommitted(Executed::Storage(error));
            }
        }
        let mut progress = Progress {
            undo,
            locked,
            unconfirmed: Some(before),
        };
        let began = core.clock.monotonic();
        let mut ran = 0;
        let mut sealed = false;
        for (position, job) in jobs.iter_mut().enumerate() {
            if 0 < position && BATCH_TIME <= core.clock.monotonic().saturating_sub(began) {
                break;
            }
            self.tx.begin_call(Arc::clone(&job.call));
            match call::run(core, self.memo, &mut self.tx, job, &mut progress) {
                End::Sealed(receipt) => {
                    job.outcome = Some(Executed::Committed(receipt));
                    sealed = true;
                }
                End::Found(stored) => job.outcome = Some(Executed::Found(stored)),
                End::Undone(outcome) => job.outcome = Some(outcome),
                End::RolledBack(outcome) => {
                    job.outcome = Some(outcome);
                    return Attempt::Done(1);
                }
                End::Skipped => (),
                End::Refused(error) => return Attempt::NotCommitted(Executed::Storage(error)),
                End::Locked => return Attempt::Locked,
                End::Unprotected => return Attempt::Unprotected,
                End::Lost(outcome) => return Attempt::Lost(position, outcome),
            }
            ran = position + 1;
        }
        let (jobs, _) = jobs.split_at_mut(ran);
        if sealed {
            self.commit(jobs)
        } else {
            self.conclude(jobs)
        }
    }

    /// Ends a transaction that wrote nothing.
    fn conclude(&mut self, jobs: &[CallJob]) -> Attempt {
        if let Err(moved) = self.core.check_files() {
            return Attempt::NotCommitted(Executed::Storage(moved));
        }
        if let Err(error) = self.tx.command(Own::Rollback) {
            return Attempt::NotCommitted(Executed::Storage(unreadable(error)));
        }
        self.committed(jobs);
        Attempt::Done(jobs.len())
    }

    fn commit(&mut self, jobs: &[CallJob]) -> Attempt {
        let core = self.core;
        let has_all = |connection: &Connection| has_all(connection, jobs);
        let evidence = Evidence::Written(&has_all);
        let synced = core.opener.options.synchronous.syncs_commits();
        match lost_commit::commit(core, &self.tx, &evidence, synced) {
            Ok(()) => {
                self.committed(jobs);
                Attempt::Done(jobs.len())
            }
            Err(Uncommitted::Busy) => Attempt::NotCommitted(Executed::Busy),
            Err(Uncommitted::Untried(error) | Uncommitted::Nothing(error)) => {
                Attempt::NotCommitted(Executed::Storage(error))
            }
            Err(Uncommitted::Unknown(error)) => Attempt::Unknown(error),
        }
    }

    /// What the transaction read and wrote is there to stay.
    fn committed(&mut self, jobs: &[CallJob]) {
        self.memo.committed();
        for job in jobs {
            job.ticket.learnt_in(self.memo.generation());
            // The caller keeps the receipt, if it is still there.
            if matches!(
                job.outcome,
                Some(Executed::Committed(_) | Executed::Found(_))
            ) {
                self.core.recent.insert(&job.call.identity);
            }
        }
    }
}

/// One transaction wrote all of the sealed calls' receipts, so all or none are there.
fn has_all(connection: &Connection, jobs: &[CallJob]) -> rusqlite::Result<bool> {
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
            return Ok(false);
        }
    }
    Ok(true)
}

/// Nothing is known of what the transaction wrote, nor of what its other calls read of it.
fn unknown(jobs: &mut [CallJob], error: StoreError) {
    let error_at_commit = Arc::new(error);
    let unsettled_ids: Vec<_> = jobs
        .iter()
        .filter_map(|job| match &job.outcome {
            Some(Executed::Committed(receipt)) => Some(receipt.operation_id),
            _ => None,
        })
        .collect();
    for job in jobs {
        let receipt = job.outcome.as_ref().and_then(Executed::receipt);
        let receipt = receipt.filter(|receipt| unsettled_ids.contains(&receipt.operation_id));
        if let Some(receipt) = receipt {
            let error = unsettled(Arc::clone(&error_at_commit));
            job.outcome = Some(Executed::Unknown(receipt.operation_id, error));
        }
    }
}

/// Answers the calls whose deadlines passed while another process had the lock.
fn someone_waits(core: &Core, jobs: &[CallJob]) -> bool {
    let now = core.clock.monotonic();
    let mut waits = false;
    for job in jobs {
        match job.ticket.expire(now) {
            Some(outcome) => job.ticket.answer(Answer::Executed(outcome)),
            None => waits |= job.ticket.is_live(),
        }
    }
    waits
}
