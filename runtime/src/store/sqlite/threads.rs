//! The store's threads: the writer, the watch over deadlines, the one that copies the log.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    ledger_time::Occasion,
    store::sqlite::{
        Core, batch, checkpoint,
        prune::prune,
        queue::{Batch, Wake},
    },
};

/// The rest between two looks at the clocks while nothing is written.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// How many rows a pass looks at between two batches.
const PRUNE_ROWS: usize = 256;

/// How long the writer rests between two passes of one walk, so that calls come first.
const PRUNE_PAUSE: Duration = Duration::from_millis(5);

/// How long pruning waits for an idle moment before it takes a turn among the calls.
const PRUNE_PATIENCE: Duration = Duration::from_secs(5);

/// What a thread does until the store is closed.
type Role = fn(&Core);

/// Starts the threads; they end when the store is closed.
pub(super) fn start(core: &Arc<Core>) -> io::Result<Vec<JoinHandle<()>>> {
    let roles: [(&str, Role); 3] = [
        ("idempotent-writer", write),
        ("idempotent-watch", |core| core.queue.watch(&*core.clock)),
        ("idempotent-checkpoint", checkpoint::run),
    ];
    let mut threads = Vec::new();
    for (name, role) in roles {
        let shared = Arc::clone(core);
        match thread::Builder::new()
            .name(name.into())
            .spawn(move || role(&shared))
        {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                core.close();
                return Err(error);
            }
        }
    }
    Ok(threads)
}

fn write(core: &Core) {
    let pruning = core.opener.options.background_pruning;
    let mut next_look = Instant::now() + LOOK_PAUSE;
    let mut next_pass = pruning.then(|| Instant::now() + PRUNE_PATIENCE);
    loop {
        let next = next_pass.map_or(next_look, |pass| pass.min(next_look));
        let rest = next.saturating_duration_since(Instant::now());
        let patience = match core.queue.wait(rest) {
            Wake::Closed => return,
            Wake::Idle => {
                // While calls are written, their commits do the same.
                if next_look <= Instant::now() {
                    core.look_at_time(Occasion::Look);
                    next_look = Instant::now() + LOOK_PAUSE;
                }
                Duration::ZERO
            }
            Wake::Work => {
                // A batch that panics answers its calls by being dropped.
                if catch_unwind(AssertUnwindSafe(|| write_batch(core))).is_err() {
                    tracing::error!("the writer panicked; its calls are answered, and it goes on");
                }
                core.queue.finished();
                PRUNE_PATIENCE
            }
        };
        if next_pass.is_some_and(|next| next + patience <= Instant::now()) {
            next_pass = Some(Instant::now() + prune_a_little(core));
        }
    }
}

fn write_batch(core: &Core) {
    let mut writer = core.writer();
    // What was queued while the connection was waited for joins the batch.
    match core.queue.take() {
        Some(Batch::Calls(calls)) => {
            core.is_crowded.store(1 < calls.len(), Ordering::Relaxed);
            #[cfg(feature = "failpoints")]
            let _counting = core.count_statements();
            let rest = batch::run(core, &mut writer, calls);
            if !rest.is_empty() {
                core.queue.put_back(rest);
            }
        }
        Some(Batch::Alone(alone)) => alone.run(core, &mut writer),
        None => (),
    }
}

/// One pass of pruning; how long to rest after it.
fn prune_a_little(core: &Core) -> Duration {
    let mut guard = core.writer();
    let writer = &mut *guard;
    let transaction = match writer.take(core) {
        Ok(transaction) => transaction,
        Err(error) => {
            tracing::warn!(%error, "the ledger can't be pruned");
            return PRUNE_PATIENCE;
        }
    };
    // Another process that has the lock comes first.
    let pruned = prune(
        core,
        &transaction,
        &mut writer.memo,
        &mut writer.walk,
        PRUNE_ROWS,
        || false,
    );
    writer.put(core, transaction);
    match pruned {
        Ok(Some(pruned)) if !pruned.halted => writer.walk.rest(core.time.now()).max(PRUNE_PAUSE),
        Ok(_) => PRUNE_PATIENCE,
        Err(error) => {
            tracing::warn!(%error, "the ledger can't be pruned");
            PRUNE_PATIENCE
        }
    }
}

impl Core {
    /// Looks at the clocks, unless somebody has the connection and may commit.
    fn look_at_time(&self, occasion: Occasion) {
        let Ok(mut writer) = self.writer.try_lock() else {
            return;
        };
        let writer = &mut *writer;
        let looked = writer.take(self).and_then(|transaction| {
            let known = (self, &mut writer.memo);
            // Another process that has the lock comes first; there is a next look.
            let looked = self.time.look(known, &transaction, occasion, || false);
            writer.put(self, transaction);
            looked
        });
        if self.time.fails_anew(looked.is_err())
            && let Err(error) = looked
        {
            tracing::warn!(%error, "the ledger's time can't be read or kept; trying again");
        }
    }

    /// Leaves the ledger's time as exact as it is. The threads have ended.
    pub(super) fn close_time(&self) {
        self.look_at_time(Occasion::Close);
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use crate::{Clock, ManualClock, SqliteStore, clock::Timestamp};

    use super::*;
    use crate::ledger_time::MARGIN;

    #[test]
    fn an_idle_store_writes_nothing_until_its_clocks_drift_apart() {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_hours(24));
        let options = SqliteStore::options().clock(clock.clone());
        let path = folder.path().join("db");
        let store = options.background_pruning(false).open(&path).unwrap();
        let other = rusqlite::Connection::open(&path).unwrap();
        let version = || -> i64 {
            let version = other.query_row("PRAGMA data_version", (), |row| row.get(0));
            version.unwrap()
        };
        let look = || store.owner.core.look_at_time(Occasion::Look);
        let before = version();
        for _ in 0..3 {
            clock.advance(Duration::from_hours(1));
            look();
        }
        clock.set_wall(clock.wall() + Duration::from_secs(5));
        look();
        assert_eq!(version(), before);
        clock.set_wall(clock.wall() + Duration::from_millis(1));
        look();
        let drifted = version();
        assert_ne!(drifted, before);
        look();
        assert_eq!(version(), drifted, "once");
    }

    #[test]
    fn idle_passes_walk_the_whole_ledger() {
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_hours(24));
        let options = SqliteStore::options().clock(clock.clone());
        let store = options.background_pruning(false).open_in_memory().unwrap();
        let core = &store.owner.core;
        let expires_at = Timestamp::wall(&clock).plus(Duration::from_hours(1));
        let forget_at = expires_at.plus(Duration::from_hours(1));
        let rows = 3 * i64::try_from(PRUNE_ROWS).unwrap();
        let connection = core.writer().take(core).unwrap();
        for key in 0..rows {
            connection
                .connection()
                .execute(
                    "INSERT INTO idempotent_receipts VALUES (NULL, x'00', ?1, 1, 1, 1, x'00', ?2, ?3, '1')",
                    (key.to_string(), expires_at.0, forget_at.0),
                )
                .unwrap();
        }
        core.writer().put(core, connection);
        let count = |sql: &str| {
            let count = |connection: &rusqlite::Connection| {
                connection.query_row(sql, (), |row| row.get::<_, i64>(0))
            };
            store.read::<_, rusqlite::Error>(count).unwrap()
        };
        let receipts = "SELECT count(*) FROM idempotent_receipts WHERE result IS NOT NULL";
        let all = "SELECT count(*) FROM idempotent_receipts";
        let walk = || {
            for _ in 0..4 {
                prune_a_little(core);
            }
        };
        walk();
        assert_eq!((count(receipts), count(all)), (rows, rows));
        clock.advance(Duration::from_hours(1) + MARGIN);
        walk();
        assert_eq!((count(receipts), count(all)), (0, rows));
        clock.advance(Duration::from_hours(1) + MARGIN);
        walk();
        assert_eq!((count(receipts), count(all)), (0, 0));
    }
}
