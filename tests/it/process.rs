//! A process in this one: it stands still unless it is told to go on, and can be killed.

use std::path::Path;

use idempotent_tool::{SqliteStore, Synchronous, Toolbox, failpoints::Failpoints};
use tokio::{
    runtime::{Builder, Runtime},
    task::yield_now,
};

use crate::pace::PacedClock;

/// A toolbox on a file, with a runtime of its own. Dropped, it is killed: nothing of it
/// comes to an end of its own, but for a transaction that has begun.
pub(crate) struct Process {
    runtime: Runtime,
    pub(crate) tools: Toolbox,
    pub(crate) clock: PacedClock,
    pub(crate) failpoints: Failpoints,
}

impl Process {
    /// Starts one at the time that `clock` shows, with the tools that `build` gives it.
    pub(crate) fn start(
        path: &Path,
        clock: &PacedClock,
        build: impl FnOnce(SqliteStore, PacedClock) -> Toolbox,
    ) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let clock = clock.sibling();
        let failpoints = Failpoints::new();
        let store = SqliteStore::options()
            .clock(clock.clone())
            .failpoints(failpoints.clone())
            // A process that ends leaves the disk alone; these do no worse.
            .synchronous(Synchronous::Normal)
            .background_pruning(false)
            .open(path)
            .unwrap();
        let tools = {
            let _inside = runtime.enter();
            build(store, clock.clone())
        };
        Self {
            runtime,
            tools,
            clock,
            failpoints,
        }
    }

    /// Has it do something besides what it does.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn(future)
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// It goes on until it has nothing to do before time passes.
    pub(crate) fn go_on(&self) {
        self.block_on(self.clock.rest());
    }

    /// It goes on for a few turns, and stands still in the middle of what it does.
    pub(crate) fn stumble(&self, turns: usize) {
        self.block_on(async {
            for _ in 0..turns {
                yield_now().await;
            }
        });
    }
}
