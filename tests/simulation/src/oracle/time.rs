//! The ledger's own time, as far as the promises fix it: between two bounds.
//!
//! It runs with the true time while a process has the ledger open, and grows at an opening
//! by what the wall clock is past the highest that was seen. All in milliseconds.

/// What two processes, and a pair that was written a while ago, may differ by.
pub const SLACK: i64 = 150_000;

/// Bounds of the ledger's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub least: i64,
    pub most: i64,
}

/// The part of it that is kept in the file.
#[derive(Debug, Clone, Copy)]
pub struct LedgerTime {
    now: Span,
    /// The highest wall time while it was open.
    highest_wall: i64,
    /// How far the wall clock has jumped ahead since that is known to be recorded.
    unrecorded: i64,
    /// What is left if nothing was recorded since the last orderly end.
    recorded: (i64, i64),
    /// The wall clock was set since then.
    was_set: bool,
}

impl LedgerTime {
    pub fn new(wall: i64) -> Self {
        Self {
            now: Span {
                least: wall,
                most: wall,
            },
            highest_wall: wall,
            unrecorded: 0,
            recorded: (wall, wall),
            was_set: false,
        }
    }

    pub fn now(&self) -> Span {
        self.now
    }

    /// True time passes while a process has the ledger open.
    pub fn pass(&mut self, by: i64, wall: i64) {
        // What is reckoned from a pair that is behind the wall clock alone may stand still.
        self.now.least += (wall - self.highest_wall).clamp(0, by);
        self.now.most += by;
        self.highest_wall = self.highest_wall.max(wall);
    }

    /// The wall clock is set while a process has the ledger open.
    pub fn jump(&mut self, by: i64, wall: i64) {
        self.unrecorded += by.max(0);
        self.was_set = true;
        self.highest_wall = self.highest_wall.max(wall);
    }

    /// It is set while none has.
    pub fn jump_unseen(&mut self) {
        self.was_set = true;
    }

    /// A process opens the ledger; `first` if none had it open.
    pub fn open(&mut self, wall: i64, first: bool) {
        self.now.most += self.unrecorded;
        if first {
            let grows = (wall - self.highest_wall).max(0);
            let (least, at) = self.recorded;
            // After a jump nothing is sure to count, since others may know better.
            let (sure, since) = if self.was_set {
                (0, 0)
            } else {
                (grows, (wall - at).max(0))
            };
            self.now.least = (self.now.least + sure).min(least + since);
            self.now.most += grows;
            self.unrecorded = 0;
            self.highest_wall = self.highest_wall.max(wall);
        }
    }

    /// The last process ends; `orderly` if it could write.
    pub fn close(&mut self, orderly: bool) {
        if orderly {
            self.recorded = (self.now.least, self.highest_wall);
            self.was_set = false;
        }
    }

    /// Processes that have the ledger open find an older one in its place.
    pub fn go_back(&mut self, older: &Self) {
        self.now.least = self.now.least.min(older.now.least);
        self.recorded = older.recorded;
        self.was_set = true;
        self.unrecorded += (self.highest_wall - older.highest_wall).max(0);
    }
}

impl Span {
    #[must_use]
    pub fn plus(self, by: i64) -> Self {
        Self {
            least: self.least + by,
            most: self.most + by,
        }
    }

    /// Whether it may be that this time has come at `now`.
    pub fn may_have_come(self, now: Self) -> bool {
        self.least <= now.most + SLACK
    }

    /// Whether it must be so.
    pub fn must_have_come(self, now: Self) -> bool {
        self.most + SLACK <= now.least
    }
}
