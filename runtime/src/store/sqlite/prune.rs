//! Receipts past their retention become tombstones, old tombstones are forgotten.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime},
};

use rusqlite::Connection;

use crate::{
    clock::{Clock, Timestamp},
    effect::tx::Transaction,
    store::{
        StoreError,
        sqlite::{
            Core,
            call::unreadable,
            external::DROP_EXTERNAL,
            own::Own,
            statements::{BURY, FORGET, WALK},
            writer::Memo,
        },
    },
};

/// How far the wall clock may drift from the monotonic one since the store was opened
/// before nothing is pruned any more.
///
/// A suspended machine counts as a jump, since its monotonic clock stood still; that
/// errs to keeping rows.
pub(super) const CLOCK_TOLERANCE: Duration = Duration::from_hours(1);

/// The longest rest of a walk that found nothing due: other processes write too.
const LONGEST_REST: Duration = Duration::from_mins(1);

/// What pruning did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Pruned {
    /// How many rows were looked at.
    pub looked_at: usize,
    /// How many receipts became tombstones.
    pub expired: usize,
    /// How many tombstones were removed, which frees their keys.
    pub forgotten: usize,
    /// Nothing was pruned: the wall clock has jumped against the monotonic one since the
    /// store was opened.
    pub halted: bool,
}

/// Where the walk over the ledger is, oldest first. It is a place to look at and no more:
/// each row is judged as it is, and another ledger is walked from its start within a minute.
#[derive(Debug, Default)]
pub(super) struct Walk {
    after: i64,
    /// The earliest time at which a row that the walk has passed is due.
    next_due: Option<Timestamp>,
}

/// The clocks as the store found them.
#[derive(Debug)]
pub(super) struct Epoch {
    wall: SystemTime,
    monotonic: Duration,
    warned: AtomicBool,
}

impl Epoch {
    pub(super) fn now(clock: &dyn Clock) -> Self {
        Self {
            wall: clock.wall(),
            monotonic: clock.monotonic(),
            warned: AtomicBool::new(false),
        }
    }

    /// Whether the wall clock has gone elsewhere than the monotonic one; says so once.
    fn has_jumped(&self, clock: &dyn Clock) -> bool {
        let passed = clock.monotonic().saturating_sub(self.monotonic);
        let drift = match self.wall.checked_add(passed) {
            Some(expected) => {
                let ahead = clock.wall().duration_since(expected);
                ahead.unwrap_or_else(|behind| behind.duration())
            }
            None => Duration::MAX,
        };
        if drift <= CLOCK_TOLERANCE {
            return false;
        }
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                drift_s = drift.as_secs(),
                "the wall clock has jumped since the store was opened; nothing is pruned until \
                 it is opened again"
            );
        }
        true
    }
}

impl Walk {
    /// How long the walk can rest: not at all in the middle, else until a row is due.
    pub(super) fn rest(&self, clock: &dyn Clock) -> Duration {
        if self.after != 0 {
            return Duration::ZERO;
        }
        let Some(due) = self.next_due else {
            return LONGEST_REST;
        };
        let wait = due.0.saturating_sub(Timestamp::now(clock).0);
        Duration::from_millis(u64::try_from(wait).unwrap_or(0)).min(LONGEST_REST)
    }
}

/// Looks at the next `limit` rows, oldest first, in one transaction; after the last row it
/// starts over at the next time. `None` if another process has the write lock.
pub(super) fn prune(
    core: &Core,
    transaction: &Transaction,
    memo: &mut Memo,
    walk: &mut Walk,
    limit: usize,
    wait: impl FnMut() -> bool,
) -> Result<Option<Pruned>, StoreError> {
    if core.epoch.has_jumped(&*core.clock) {
        return Ok(Some(Pruned {
            halted: true,
            ..Pruned::default()
        }));
    }
    let now = Timestamp::now(&*core.clock);
    let rows = look(transaction.connection(), walk.after, limit).map_err(unreadable)?;
    let mut pruned = Pruned {
        looked_at: rows.len(),
        ..Pruned::default()
    };
    let mut due_later = None;
    let mut doomed = Vec::new();
    for row in &rows {
        match row.fate(now) {
            Fate::Stays(due) => due_later = Some(earlier(due_later, due)),
            Fate::Expires => {
                doomed.push((BURY, row.seq));
                due_later = Some(earlier(due_later, Timestamp(row.forget_at)));
            }
            Fate::Forgotten => doomed.push((FORGET, row.seq)),
        }
    }
    if !doomed.is_empty() {
        if !transaction.lock(wait).map_err(unreadable)? {
            return Ok(None);
        }
        memo.confirm_locked(core, transaction)?;
        for (sql, seq) in doomed {
            let rows = transaction
                .connection()
                .execute(sql, (seq, now.0))
                .map_err(unreadable)?;
            if sql == BURY && rows > 0 {
                for sql in DROP_EXTERNAL {
                    transaction
                        .connection()
                        .execute(sql, [seq])
                        .map_err(unreadable)?;
                }
            }
            match sql {
                BURY => pruned.expired += rows,
                _ => pruned.forgotten += rows, // `doomed` holds these two.
            }
        }
        core.check_files()?;
        // Before the commit: what is removed by it is answered no more. The rest still holds.
        let generation = core.watch.raise();
        transaction.command(Own::Commit).map_err(unreadable)?;
        memo.learn_in(generation);
        core.guard.confirmed(generation);
        core.check_files()?;
    }
    walk.next_due = match (walk.after, due_later) {
        (0, due) => due,
        (_, Some(due)) => Some(earlier(walk.next_due, due)),
        (_, None) => walk.next_due,
    };
    walk.after = match rows.last() {
        Some(row) if rows.len() == limit => row.seq,
        _ => 0, // The end: the next walk starts over.
    };
    Ok(Some(pruned))
}

fn earlier(one: Option<Timestamp>, other: Timestamp) -> Timestamp {
    one.map_or(other, |one| one.min(other))
}

#[derive(Debug)]
struct RowTimes {
    seq: i64,
    expires_at: i64,
    forget_at: i64,
    is_tombstone: bool,
}

/// What pruning does with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Nothing before this time.
    Stays(Timestamp),
    Expires,
    Forgotten,
}

impl RowTimes {
    /// A receipt is a tombstone first, so that its key is refused for a while whatever the
    /// two times are.
    fn fate(&self, now: Timestamp) -> Fate {
        if !self.is_tombstone {
            return if self.expires_at <= now.0 {
                Fate::Expires
            } else {
                Fate::Stays(Timestamp(self.expires_at))
            };
        }
        if self.forget_at <= now.0 {
            Fate::Forgotten
        } else {
            Fate::Stays(Timestamp(self.forget_at))
        }
    }
}

fn look(connection: &Connection, after: i64, limit: usize) -> rusqlite::Result<Vec<RowTimes>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    connection
        .prepare(WALK)?
        .query_map((after, limit), |row| {
            Ok(RowTimes {
                seq: row.get(0)?,
                expires_at: row.get(1)?,
                forget_at: row.get(2)?,
                is_tombstone: row.get(3)?,
            })
        })?
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_a_tombstone_before_it_is_forgotten() {
        let mut row = RowTimes {
            seq: 1,
            expires_at: 10,
            forget_at: 20,
            is_tombstone: false,
        };
        assert_eq!(row.fate(Timestamp(9)), Fate::Stays(Timestamp(10)));
        assert_eq!(row.fate(Timestamp(10)), Fate::Expires);
        assert_eq!(row.fate(Timestamp(30)), Fate::Expires);
        row.is_tombstone = true;
        assert_eq!(row.fate(Timestamp(19)), Fate::Stays(Timestamp(20)));
        assert_eq!(row.fate(Timestamp(20)), Fate::Forgotten);
    }
}
