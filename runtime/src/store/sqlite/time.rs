//! The ledger's time as the store keeps it: read and written beside everything else.

use std::{
    fmt, mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use rusqlite::{Connection, OptionalExtension, Row};

use crate::{
    clock::{BootId, Clock, Moment, Timestamp, milliseconds},
    effect::tx::Transaction,
    ledger_time::{Anchor, LedgerTime, Occasion, Pair, Reading},
    store::{
        StoreError,
        sqlite::{
            Core,
            call::unreadable,
            own::Own,
            statements::{READ_CLOCK, WRITE_CLOCK},
            writer::Memo,
        },
    },
};

/// The store's clocks: the application's, and the ledger's own time.
pub(crate) struct StoreTime {
    clock: Arc<dyn Clock>,
    /// By how much the ledger's time is ahead of the monotonic clock, in milliseconds: what
    /// `state` says, for those who only read it.
    ahead: AtomicI64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    time: LedgerTime,
    /// Whether the ledger was opened, and the time is its.
    is_open: bool,
    /// Whether the last look failed.
    fails: bool,
}

impl StoreTime {
    /// The wall clock's time, until a ledger is opened.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let time = LedgerTime::open(None, &Reading::of(&*clock));
        Self {
            clock,
            ahead: AtomicI64::new(time.ahead()),
            state: Mutex::new(State {
                time,
                is_open: false,
                fails: false,
            }),
        }
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(super) fn reading(&self) -> Reading {
        Reading::of(&*self.clock)
    }

    /// The ledger's time.
    pub(crate) fn now(&self) -> Timestamp {
        let monotonic = milliseconds(self.clock.monotonic());
        Timestamp(monotonic.saturating_add(self.ahead.load(Ordering::Relaxed)))
    }

    /// The ledger's time and the wall clock's.
    pub(crate) fn moment(&self) -> Moment {
        Moment {
            ledger: self.now(),
            wall: Timestamp::wall(&*self.clock),
        }
    }

    /// A connection was opened, its ledger brought to this version.
    pub(super) fn opened(&self, connection: &Connection) -> rusqlite::Result<()> {
        let found = connection.query_row(READ_CLOCK, [], read_pair).optional()?;
        self.with(|state, reading| {
            if state.is_open {
                state.time.meet(found, reading);
            } else {
                state.time = LedgerTime::open(found, reading);
                state.is_open = true;
            }
        });
        Ok(())
    }

    /// Whether this process buries and frees nothing yet, since it believes its wall clock.
    pub(super) fn is_on_trial(&self) -> bool {
        self.with(|state, reading| state.time.is_on_trial(reading))
    }

    /// Takes note of the pair in the ledger.
    pub(super) fn meet(&self, transaction: &Transaction) -> rusqlite::Result<()> {
        let found = read(transaction)?;
        self.with(|state, reading| state.time.meet(found, reading));
        Ok(())
    }

    /// Writes the pair in the open transaction if it is due, and says whether it was. The
    /// write lock is held.
    fn record(&self, transaction: &Transaction, occasion: Occasion) -> rusqlite::Result<bool> {
        if !self.with(|state, reading| state.time.is_due(reading, occasion)) {
            return Ok(false);
        }
        self.meet(transaction)?;
        self.tell_of_jumps();
        let pair = self.with(|state, reading| state.time.write(reading));
        write(transaction, pair).map(|()| true)
    }

    fn committed(&self) {
        self.with(|state, _| state.time.committed());
    }

    /// Looks whether the clocks have drifted apart or other processes disagree, and writes
    /// the pair then; not if another process has the write lock and `wait` says no.
    pub(super) fn look(
        &self,
        (core, memo): (&Core, &mut Memo),
        transaction: &Transaction,
        occasion: Occasion,
        wait: impl FnMut() -> bool,
    ) -> Result<(), StoreError> {
        self.meet(transaction).map_err(unreadable)?;
        self.tell_of_jumps();
        if !self.with(|state, reading| state.time.is_due(reading, occasion)) {
            return Ok(());
        }
        if !transaction.lock(wait).map_err(unreadable)? {
            return Ok(());
        }
        memo.confirm_locked(core, transaction)?;
        core.check_files()?;
        self.commit(transaction, occasion).map_err(unreadable)
    }

    /// Notes how a look went; whether it is the first that failed.
    pub(super) fn fails_anew(&self, fails: bool) -> bool {
        !mem::replace(&mut self.state().fails, fails) && fails
    }

    /// Commits the open transaction, with the pair in it if that is due.
    fn commit(&self, transaction: &Transaction, occasion: Occasion) -> rusqlite::Result<()> {
        let recorded = self.record(transaction, occasion)?;
        transaction.command(Own::Commit)?;
        if recorded {
            self.committed();
        }
        Ok(())
    }

    /// Resets the wall time of the pair in a transaction of its own; `false` if another
    /// process kept the write lock for as long as `wait` waited.
    pub(super) fn heal(
        &self,
        (core, memo): (&Core, &mut Memo),
        transaction: &Transaction,
        wait: impl FnMut() -> bool,
    ) -> Result<bool, StoreError> {
        if !transaction.lock(wait).map_err(unreadable)? {
            return Ok(false);
        }
        memo.confirm_locked(core, transaction)?;
        core.check_files()?;
        self.meet(transaction).map_err(unreadable)?;
        let pair = self.with(|state, reading| state.time.reset_wall(reading));
        write(transaction, pair)
            .and_then(|()| transaction.command(Own::Commit))
            .map_err(unreadable)?;
        self.committed();
        Ok(true)
    }

    fn tell_of_jumps(&self) {
        let Some(jump) = self.with(|state, reading| state.time.jump(reading)) else {
            return;
        };
        let seconds = jump / 1_000;
        if 0 < jump {
            tracing::warn!(
                seconds,
                "the wall clock went ahead of the monotonic one; the ledger's time goes on as before"
            );
        } else {
            tracing::warn!(
                seconds,
                "the wall clock is behind what the ledger has counted: time in which no process \
                 has it open doesn't count before it comes to as much; if the clock is right, \
                 call \
                 `SqliteStore::reset_wall_time`"
            );
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut State, &Reading) -> T) -> T {
        let mut state = self.state();
        // Under the lock, so that moments come in their order.
        let value = work(&mut state, &self.reading());
        self.ahead.store(state.time.ahead(), Ordering::Relaxed);
        value
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transaction {
    /// Commits, and keeps the ledger's time on the way if that is due. The write lock is held.
    pub(super) fn commit(&self, time: &StoreTime) -> rusqlite::Result<()> {
        time.commit(self, Occasion::Commit)
    }
}

fn read(transaction: &Transaction) -> rusqlite::Result<Option<Pair>> {
    transaction.own(Own::ReadClock, |statement| {
        statement.query_row([], read_pair).optional()
    })
}

fn write(transaction: &Transaction, pair: Pair) -> rusqlite::Result<()> {
    let boot = pair.anchor.map(|anchor| *anchor.boot.as_bytes());
    let monotonic = pair.anchor.map(|anchor| anchor.monotonic);
    transaction
        .own(Own::WriteClock, |statement| {
            statement.execute((pair.ledger.0, pair.wall.0, boot, monotonic))
        })
        .map(|_| ())
}

/// Begins a ledger's time, in the migration that brought it.
pub(super) fn begin(connection: &Connection, reading: &Reading) -> rusqlite::Result<()> {
    let pair = Pair::beginning(reading);
    let boot = pair.anchor.map(|anchor| *anchor.boot.as_bytes());
    let monotonic = pair.anchor.map(|anchor| anchor.monotonic);
    connection
        .execute(WRITE_CLOCK, (pair.ledger.0, pair.wall.0, boot, monotonic))
        .map(|_| ())
}

/// Reads `ledger_time, wall_time, boot_id, boot_time`.
fn read_pair(row: &Row<'_>) -> rusqlite::Result<Pair> {
    let boot: Option<Vec<u8>> = row.get(2)?;
    let monotonic: Option<i64> = row.get(3)?;
    let boot = boot.and_then(|boot| boot.try_into().ok());
    Ok(Pair {
        ledger: Timestamp(row.get(0)?),
        wall: Timestamp(row.get(1)?),
        anchor: boot.zip(monotonic).map(|(boot, monotonic)| Anchor {
            boot: BootId::from_bytes(boot),
            monotonic,
        }),
    })
}

impl fmt::Debug for StoreTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreTime").finish_non_exhaustive()
    }
}
