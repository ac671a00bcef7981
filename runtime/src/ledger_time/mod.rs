//! The ledger's own time, which no jump of a wall clock moves. Pure.
//!
//! The ledger keeps a pair: its own time and the wall time up to which it counted. A process
//! that has the ledger open goes on from there by its monotonic clock alone. The wall clock
//! is asked once, at an opening, how long nobody had the ledger open; and not even then if
//! the pair was written since the machine's start, since the monotonic clock tells it better.
//!
//! Every error there can be is one to lag: then a result is kept and a key refused for
//! longer. That holds because of three rules.
//!
//! - While a process lives, what its wall clock gains on the monotonic one is counted into
//!   the pair's wall time and not into the ledger's, so that no later opening counts it.
//! - Of two processes that disagree, the one that is behind is right.
//! - A time that an opening believed to the wall clock alone decides nothing that can't be
//!   taken back (burial, freeing) before others had the time to disagree.

use std::time::Duration;

use crate::clock::{BootId, Clock, Timestamp, milliseconds};

/// How far the times of two processes may differ before one of them is corrected; by so
/// much later a receipt is buried and a key freed. For as long, an opening is on trial, and
/// so long after the last time a commit that happens anyway writes the pair.
pub(crate) const MARGIN: Duration = Duration::from_mins(1);

/// How far an opening now could count too much before the pair is written at once.
const AHEAD: i64 = 5_000;

/// How much an opening now could fail to count before the pair is written at once, in
/// milliseconds: it would only lag, as it does all the time beside a wall clock that is
/// behind.
const BEHIND: i64 = 3_600_000;

/// The same for a process that closes the ledger: it won't come to write it later.
const AT_CLOSE: i64 = 1_000;

/// What the ledger keeps of its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) ledger: Timestamp,
    /// Up to where wall time was counted: the highest that there was, and what has passed
    /// since.
    pub(crate) wall: Timestamp,
    /// Where the process that wrote it was on its monotonic clock, if others can read that.
    pub(crate) anchor: Option<Anchor>,
}

/// A reading of a monotonic clock that other processes read too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Anchor {
    pub(crate) boot: BootId,
    /// In milliseconds.
    pub(crate) monotonic: i64,
}

/// What a process's clocks show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) wall: Timestamp,
    /// In milliseconds.
    pub(crate) monotonic: i64,
    pub(crate) boot: Option<BootId>,
}

impl Reading {
    /// Reads the clocks. The wall clock first: if the process stands still in between, it
    /// seems to be behind, which is the harmless way to be wrong.
    pub(crate) fn of(clock: &dyn Clock) -> Self {
        let wall = Timestamp::wall(clock);
        Self {
            wall,
            monotonic: milliseconds(clock.monotonic()),
            boot: clock.boot_id(),
        }
    }

    fn anchor(&self) -> Option<Anchor> {
        self.boot.map(|boot| Anchor {
            boot,
            monotonic: self.monotonic,
        })
    }
}

impl Pair {
    /// The pair of a ledger that begins: its time starts as the wall clock's.
    pub(crate) fn beginning(reading: &Reading) -> Self {
        Self {
            ledger: reading.wall,
            wall: reading.wall,
            anchor: reading.anchor(),
        }
    }

    /// The ledger's time now if nothing is known but the pair; whether that is certain.
    fn reckoned(&self, reading: &Reading) -> (Timestamp, bool) {
        if let (Some(anchor), Some(boot)) = (self.anchor, reading.boot)
            && anchor.boot == boot
            && anchor.monotonic <= reading.monotonic
        {
            let passed = reading.monotonic.saturating_sub(anchor.monotonic);
            return (later(self.ledger, passed), true);
        }
        (self.by_wall(reading), false)
    }

    /// The same by the wall clock alone, as after a start of the machine.
    fn by_wall(&self, reading: &Reading) -> Timestamp {
        let uncounted = reading.wall.0.saturating_sub(self.wall.0).max(0);
        later(self.ledger, uncounted)
    }
}

fn later(time: Timestamp, milliseconds: i64) -> Timestamp {
    Timestamp(time.0.saturating_add(milliseconds))
}

/// When somebody asks whether the pair is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// A transaction that wrote something is about to commit.
    Commit,
    /// Nothing else is written.
    Look,
    /// This process closes the ledger.
    Close,
}

/// The ledger's time as one process has it.
#[derive(Debug)]
pub(crate) struct LedgerTime {
    /// By how much it is ahead of the process's monotonic clock, in milliseconds.
    ahead: i64,
    /// The pair that is in the ledger, as far as this process knows.
    known: Pair,
    /// Since when, on the monotonic clock in milliseconds.
    known_since: i64,
    /// What a transaction of this process is about to commit.
    written: Option<Pair>,
    /// The pair in the ledger is to be replaced at the next occasion.
    is_unrecorded: bool,
    /// By how much the wall clock was ahead of the pair when that was last told of.
    told_of: i64,
    /// Until when on the monotonic clock this process decides nothing that others may have
    /// to take back, if its opening believed the wall clock.
    trial_ends: Option<i64>,
}

impl LedgerTime {
    /// Goes on from the pair that was found at an opening; begins if there is none.
    pub(crate) fn open(found: Option<Pair>, reading: &Reading) -> Self {
        let known = found.unwrap_or_else(|| Pair::beginning(reading));
        let (now, is_certain) = known.reckoned(reading);
        let believed = now.0.saturating_sub(known.ledger.0);
        let on_trial = !is_certain && AHEAD < believed;
        Self {
            ahead: now.0.saturating_sub(reading.monotonic),
            known,
            known_since: reading.monotonic,
            written: None,
            told_of: 0,
            is_unrecorded: found.is_none()
                || known.anchor.map(|anchor| anchor.boot) != reading.boot
                || (!is_certain && believed != 0),
            trial_ends: on_trial.then(|| reading.monotonic.saturating_add(milliseconds(MARGIN))),
        }
    }

    /// By how much it is ahead of the process's monotonic clock, in milliseconds.
    pub(crate) fn ahead(&self) -> i64 {
        self.ahead
    }

    pub(crate) fn now(&self, reading: &Reading) -> Timestamp {
        later(Timestamp(self.ahead), reading.monotonic)
    }

    /// Whether this process decides nothing yet that can't be taken back.
    pub(crate) fn is_on_trial(&mut self, reading: &Reading) -> bool {
        self.trial_ends = self.trial_ends.filter(|ends| reading.monotonic < *ends);
        self.trial_ends.is_some()
    }

    /// Takes note of the pair that is in the ledger, and goes on from the smaller of what it
    /// says and what this process had.
    pub(crate) fn meet(&mut self, found: Option<Pair>, reading: &Reading) {
        let Some(found) = found else {
            self.is_unrecorded = true; // It was removed from outside.
            return;
        };
        if found == self.known {
            return;
        }
        if self.written == Some(found) {
            self.committed();
            return;
        }
        // Another process wrote it, or it came with a copy that was restored.
        let now = self.now(reading);
        let (reckoned, _) = found.reckoned(reading);
        if reckoned < now {
            self.ahead = reckoned.0.saturating_sub(reading.monotonic);
        } else if now.plus(MARGIN) < reckoned {
            self.is_unrecorded = true; // The other one is to go on from ours.
        }
        self.known = found;
        self.known_since = reading.monotonic;
    }

    /// Whether the pair is to be written now.
    pub(crate) fn is_due(&self, reading: &Reading, occasion: Occasion) -> bool {
        let now = self.now(reading);
        let opening = self.known.by_wall(reading);
        let too_much = opening.0.saturating_sub(now.0);
        let too_little = now.0.saturating_sub(opening.0);
        let is_old = || {
            let since = reading.monotonic.saturating_sub(self.known_since);
            milliseconds(MARGIN) <= since
        };
        self.is_unrecorded
            || AHEAD < too_much
            || BEHIND < too_little
            || match occasion {
                Occasion::Commit => is_old(),
                Occasion::Look => false,
                Occasion::Close => AT_CLOSE < too_much || AT_CLOSE < too_little,
            }
    }

    /// By how many milliseconds the wall clock is ahead of where the pair and the monotonic
    /// clock have it, or behind if it is negative; `None` if that is less than a minute, or
    /// was told before.
    pub(crate) fn jump(&mut self, reading: &Reading) -> Option<i64> {
        let minute = milliseconds(MARGIN);
        let gained = reading.wall.0.saturating_sub(self.known.wall.0);
        let passed = self.now(reading).0.saturating_sub(self.known.ledger.0);
        let jump = gained.saturating_sub(passed);
        if jump.saturating_sub(self.told_of).saturating_abs() <= minute {
            return None;
        }
        self.told_of = jump;
        (minute < jump.saturating_abs()).then_some(jump)
    }

    /// The pair to write, after the one in the ledger was met under the write lock.
    ///
    /// Its wall time goes on from the ledger's, never from one that the process remembers: it
    /// may have been reset. And it goes on as time does, as a clock does that is ahead of
    /// this process's: what is counted into the ledger's time is not counted again.
    pub(crate) fn write(&mut self, reading: &Reading) -> Pair {
        let passed = self.now(reading).0.saturating_sub(self.known.ledger.0);
        let wall = later(self.known.wall, passed.max(0)).max(reading.wall);
        self.write_with(wall, reading)
    }

    /// The pair to write, its wall time reset to what the clock shows now.
    pub(crate) fn reset_wall(&mut self, reading: &Reading) -> Pair {
        self.write_with(reading.wall, reading)
    }

    fn write_with(&mut self, wall: Timestamp, reading: &Reading) -> Pair {
        let pair = Pair {
            ledger: self.now(reading),
            wall,
            anchor: reading.anchor(),
        };
        self.written = Some(pair);
        pair
    }

    /// What was to be written is in the ledger, if anything was.
    pub(crate) fn committed(&mut self) {
        if let Some(pair) = self.written.take() {
            self.known_since = pair.ledger.0.saturating_sub(self.ahead);
            if self.known.wall < pair.wall && 0 < self.told_of {
                self.told_of = 0; // It is counted.
            }
            self.known = pair;
            self.is_unrecorded = false;
        }
    }
}

#[cfg(test)]
mod tests;
