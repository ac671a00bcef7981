//! Receipts past their retention become tombstones, old tombstones are forgotten.

use std::time::Duration;

use rusqlite::Connection;

use crate::{
    clock::Timestamp,
    effect::tx::Transaction,
    ledger_time::{MARGIN, Occasion},
    store::{
        StoreError,
        sqlite::{
            Core,
            call::unreadable,
            exclusive::{self, Failed, Terms},
            external::DROP_EXTERNAL,
            statements::{BURY, FORGET, WALK},
            writer::Memo,
        },
    },
};

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
    /// Nothing was pruned: this process opened the ledger within the last minute, and had
    /// only its wall clock to tell how long nobody had it open. Other processes get the time
    /// to disagree.
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

impl Walk {
    /// How long the walk can rest: not at all in the middle, else until a row is due.
    pub(super) fn rest(&self, now: Timestamp) -> Duration {
        if self.after != 0 {
            return Duration::ZERO;
        }
        let Some(due) = self.next_due else {
            return LONGEST_REST;
        };
        now.until(due.plus(MARGIN)).min(LONGEST_REST)
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
    mut wait: impl FnMut() -> bool,
) -> Result<Option<Pruned>, StoreError> {
    let time = &core.time;
    time.look((core, &mut *memo), transaction, Occasion::Look, &mut wait)?;
    if time.is_on_trial() {
        return Ok(Some(Pruned {
            halted: true,
            ..Pruned::default()
        }));
    }
    let now = time.now().minus(MARGIN);
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
        let terms = Terms {
            synced: false,
            is_there: None,
        };
        let outcome = exclusive::run(
            core,
            memo,
            transaction,
            None,
            wait,
            &terms,
            |_, transaction| {
                // Another process may have found that less time has passed.
                time.meet(transaction).map_err(unreadable)?;
                let removed = remove(transaction.connection(), &doomed, time.now())?;
                // Before the commit: what is removed by it is answered no more, whatever
                // becomes of it. The rest still holds.
                Ok((removed, core.watch.raise()))
            },
        );
        match outcome {
            Ok(((expired, forgotten), generation)) => {
                memo.learn_in(generation);
                core.guard.confirmed(generation);
                pruned.expired = expired;
                pruned.forgotten = forgotten;
            }
            Err(Failed::Busy | Failed::Late) => return Ok(None),
            Err(
                Failed::Refused(error)
                | Failed::Nothing(error)
                | Failed::Cleared(error)
                | Failed::Unknown(error),
            ) => return Err(error),
        }
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

/// Buries and forgets rows; how many of each.
fn remove(
    connection: &Connection,
    doomed: &[(&'static str, i64)],
    now: Timestamp,
) -> Result<(usize, usize), StoreError> {
    let past = now.minus(MARGIN);
    let (mut expired, mut forgotten) = (0, 0);
    for (sql, seq) in doomed {
        let rows = match *sql {
            BURY => connection.execute(sql, (seq, past.0, now.0)),
            _ => connection.execute(sql, (seq, past.0)),
        }
        .map_err(unreadable)?;
        if *sql == BURY && rows > 0 {
            for sql in DROP_EXTERNAL {
                connection.execute(sql, [seq]).map_err(unreadable)?;
            }
        }
        match *sql {
            BURY => expired += rows,
            _ => forgotten += rows, // `doomed` holds these two.
        }
    }
    Ok((expired, forgotten))
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
