//! The write-ahead log is copied into the file beside the writer, not in a caller's time.
//!
//! A thread of its own copies most of the log while calls go on. What they append meanwhile
//! is left to the writer, which copies that tail after it has answered a batch: only with
//! nothing left to copy does the log begin again, instead of growing.

use std::{
    path::Path,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use rusqlite::Connection;

use crate::store::sqlite::{Core, ffi, statements::CHECKPOINT};

/// From how many pages on the log is copied: 8 MB.
const PAGES: u64 = 2_000;

/// How many pages may be left to the writer: a millisecond or two.
const TAIL: u64 = 400;

/// From how many pages on the writer waits for the thread, so that the log stays short
/// however slow the disk and the thread are: 24 MB.
const LIMIT: u64 = 6_000;

/// The longest that the writer waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often the thread tries to come so close.
const PASSES: u32 = 4;

/// What the writer and the thread that copies the log know of each other.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// Pages written since the log last began again.
    pages: AtomicU64,
    /// From how many pages on the thread is asked.
    next: AtomicU64,
    asked: AtomicBool,
    /// The thread has left the tail to the writer.
    tail: AtomicBool,
    state: Mutex<State>,
    wake: Condvar,
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    work: bool,
    closed: bool,
}

impl Checkpoints {
    pub(super) fn new() -> Self {
        Self {
            pages: AtomicU64::new(0),
            next: AtomicU64::new(PAGES),
            asked: AtomicBool::new(false),
            tail: AtomicBool::new(false),
            state: Mutex::default(),
            wake: Condvar::new(),
            done: Condvar::new(),
        }
    }

    /// The writer has answered a batch, and nothing is open on its `connection`.
    pub(super) fn after_batch(&self, connection: &Connection) {
        let written = ffi::take_pages_written(connection);
        let pages = self.pages.fetch_add(written, Ordering::Relaxed) + written;
        if self.next.load(Ordering::Relaxed) <= pages && !self.asked.swap(true, Ordering::AcqRel) {
            self.state().work = true;
            self.wake.notify_one();
        }
        if LIMIT <= pages && self.asked.load(Ordering::Relaxed) {
            self.wait_for_tail();
        }
        if self.tail.swap(false, Ordering::Acquire) {
            self.finish(copy(connection));
            self.asked.store(false, Ordering::Release);
        }
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.wake.notify_one();
        self.done.notify_all();
    }

    /// The thread has copied what it could.
    fn leave_tail(&self) {
        let _state = self.state();
        self.tail.store(true, Ordering::Release);
        self.done.notify_all();
    }

    fn wait_for_tail(&self) {
        let state = self.state();
        let waits = |state: &mut State| !state.closed && !self.tail.load(Ordering::Acquire);
        let waited = self.done.wait_timeout_while(state, PATIENCE, waits);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn finish(&self, copied: rusqlite::Result<bool>) {
        match copied {
            Ok(true) => {
                self.pages.store(0, Ordering::Relaxed);
                self.next.store(PAGES, Ordering::Relaxed);
            }
            // A reader still needs what the log has, or another process copies.
            Ok(false) => {
                let pages = self.pages.load(Ordering::Relaxed);
                self.next.store(pages + PAGES, Ordering::Relaxed);
            }
            Err(error) => {
                let pages = self.pages.load(Ordering::Relaxed);
                self.next.store(pages + PAGES, Ordering::Relaxed);
                warn(&error);
            }
        }
    }

    fn wait(&self) -> bool {
        let mut state = self.state();
        while !state.work && !state.closed {
            state = self
                .wake
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.work = false;
        !state.closed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Copies the log whenever the writer asks, until the store is closed.
pub(super) fn run(core: &Core) {
    let Some(path) = &core.opener.path else {
        return;
    };
    let mut connection = None;
    while core.checkpoints.wait() {
        if let Err(error) = come_close(core, path, &mut connection) {
            connection = None;
            warn(&error);
        }
        core.checkpoints.leave_tail();
    }
}

/// Copies until what is left is short.
fn come_close(
    core: &Core,
    path: &Path,
    connection: &mut Option<Connection>,
) -> rusqlite::Result<()> {
    let connection = match connection {
        Some(connection) => connection,
        None => connection.insert(core.opener.bare(path)?),
    };
    for _ in 0..PASSES {
        let before = core.checkpoints.pages.load(Ordering::Relaxed);
        copy(connection)?;
        let left = core
            .checkpoints
            .pages
            .load(Ordering::Relaxed)
            .saturating_sub(before);
        if left <= TAIL {
            break;
        }
    }
    Ok(())
}

/// Copies what no reader keeps it from; whether that was all.
fn copy(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row(CHECKPOINT, [], |row| {
        let (busy, pages, copied): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(busy == 0 && pages == copied)
    })
}

fn warn(error: &rusqlite::Error) {
    tracing::warn!(
        code = error.sqlite_error().map_or(0, |error| error.extended_code),
        "the write-ahead log can't be copied into the database file; it grows until it can"
    );
}
