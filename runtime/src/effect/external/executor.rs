//! Who runs attempts: one per toolbox, with a task for each operation that it has in hand.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{runtime::Handle, sync::watch};
use uuid::Uuid;

use crate::{
    clock::{Clock, Moment, Timestamp},
    effect::external::{
        incident::IncidentObserver, recovery::Recovery, run::Run, tool::ExternalTool,
    },
    effect::failure::FailureObserver,
    operation::{
        id::OperationId,
        record::{Lease, Record},
        state::State as OperationState,
    },
    store::Backend,
    tool::State,
};

/// How much longer than its attempt a lease lasts: for the report.
const LEASE_MARGIN: Duration = Duration::from_secs(2);

/// How many operations are watched for quiet at most; beyond, the watch begins anew.
const WATCHED: usize = 65_536;

pub(crate) struct Executor {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) state: Arc<State>,
    pub(super) failures: FailureObserver,
    pub(crate) incidents: IncidentObserver,
    tools: Arc<Tools>,
    pub(super) runtime: Handle,
    /// Made anew at each start, so that a process is never taken for one before it.
    pub(super) owner: [u8; 16],
    live: Mutex<HashMap<OperationId, Live>>,
    /// How many runs there are, for who waits for the last one.
    count: watch::Sender<usize>,
    /// Since when this process knows that no attempt is under way, by operation.
    quiet: Mutex<HashMap<OperationId, Quiet>>,
    stopping: watch::Sender<bool>,
}

/// Since when no attempt of an operation is under way, while the record says the same: a
/// ledger that was put back may have lost an attempt that another process has begun.
struct Quiet {
    attempts: u32,
    era: i64,
    since: Duration,
}

impl Quiet {
    fn is_of(&self, record: &Record) -> bool {
        self.attempts == record.operation.attempts && self.era == record.era
    }
}

/// The external tools of a toolbox by their names.
pub(super) struct Tools(BTreeMap<Arc<str>, Vec<Arc<ExternalTool>>>);

impl Tools {
    fn get(&self, name: &str, version: u32) -> Option<&Arc<ExternalTool>> {
        let versions = self.0.get(name)?;
        versions.iter().find(|tool| tool.version == version)
    }

    pub(super) fn recovery(&self, name: &str, version: u32) -> Option<Recovery> {
        self.get(name, version).map(|tool| tool.recovery())
    }
}

/// What reaches a run of this process.
struct Live {
    cancel: watch::Sender<bool>,
    /// Each change of the operation's record by the run.
    changed: watch::Receiver<u64>,
}

/// Ends a run's registration, however the run ends.
pub(super) struct Registration {
    executor: Arc<Executor>,
    operation_id: OperationId,
    /// Says that the record has changed.
    pub(super) changed: watch::Sender<u64>,
    pub(super) cancelled: watch::Receiver<bool>,
}

impl Executor {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        state: Arc<State>,
        failures: FailureObserver,
        incidents: IncidentObserver,
        tools: Vec<Arc<ExternalTool>>,
        runtime: Handle,
    ) -> Arc<Self> {
        let mut by_name: BTreeMap<Arc<str>, Vec<_>> = BTreeMap::new();
        for tool in tools {
            by_name
                .entry(Arc::clone(&tool.name))
                .or_default()
                .push(tool);
        }
        Arc::new(Self {
            backend,
            state,
            failures,
            incidents,
            tools: Arc::new(Tools(by_name)),
            runtime,
            owner: Uuid::new_v4().into_bytes(),
            live: Mutex::default(),
            count: watch::Sender::new(0),
            quiet: Mutex::default(),
            stopping: watch::Sender::new(false),
        })
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        self.backend.clock()
    }

    /// The ledger's time.
    pub(crate) fn now(&self) -> Timestamp {
        self.backend.now()
    }

    /// Now, by both clocks.
    pub(crate) fn moment(&self) -> Moment {
        self.backend.moment()
    }

    /// What keeps an operation for as long as `lasts`.
    pub(super) fn lease(&self, lasts: Duration) -> Lease {
        let began = self.now();
        Lease {
            owner: self.owner,
            began,
            until: began.plus(lasts).plus(LEASE_MARGIN),
        }
    }

    pub(crate) fn tool(&self, name: &str, version: u32) -> Option<&Arc<ExternalTool>> {
        self.tools.get(name, version)
    }

    /// The tools, for a decision that is made elsewhere.
    pub(super) fn tools(&self) -> &Arc<Tools> {
        &self.tools
    }

    /// Starts a run in a task of its own, unless this process has one or is stopping.
    pub(crate) fn start(self: &Arc<Self>, make: impl FnOnce(RunParts) -> Run, id: OperationId) {
        let mut live = self.live();
        if self.is_stopping() || live.contains_key(&id) {
            return;
        }
        let (cancel, cancelled) = watch::channel(false);
        let (changed, receiver) = watch::channel(0);
        live.insert(
            id,
            Live {
                cancel,
                changed: receiver,
            },
        );
        self.count.send_replace(live.len());
        drop(live);
        let registration = Registration {
            executor: Arc::clone(self),
            operation_id: id,
            changed,
            cancelled,
        };
        let run = make(RunParts {
            executor: Arc::clone(self),
            registration,
            stopping: self.stopping.subscribe(),
        });
        self.runtime.spawn(run.go());
    }

    /// Runs work in a task of its own.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    pub(crate) fn has_run(&self, id: OperationId) -> bool {
        self.live().contains_key(&id)
    }

    /// The changes that the run of this process makes from now on.
    pub(crate) fn changes(&self, id: OperationId) -> Option<watch::Receiver<u64>> {
        let mut changes = self.live().get(&id).map(|live| live.changed.clone())?;
        changes.mark_unchanged();
        Some(changes)
    }

    /// Waits for such a change, or, where another process may make one, for `poll`.
    pub(crate) async fn wait_for_change(
        &self,
        changes: Option<watch::Receiver<u64>>,
        until: Duration,
        poll: Duration,
    ) {
        let clock = self.clock();
        if let Some(mut changes) = changes {
            tokio::select! {
                _ = changes.changed() => (),
                () = clock.reached(until) => (),
            }
        } else {
            let next = clock.monotonic().saturating_add(poll).min(until);
            clock.reached(next).await;
        }
    }

    /// Tells the run of this process that its operation is to stop.
    pub(crate) fn signal_cancel(&self, id: OperationId) {
        if let Some(live) = self.live().get(&id) {
            live.cancel.send_replace(true);
        }
    }

    /// The operations of this process's runs that have not been told to stop.
    pub(crate) fn untold(&self) -> Vec<OperationId> {
        let live = self.live();
        let untold = live.iter().filter(|(_, run)| !*run.cancel.borrow());
        untold.map(|(id, _)| *id).collect()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Ends runs between their attempts and waits for those under way, within `bound`.
    pub(crate) async fn shut_down(&self, bound: Duration) -> usize {
        self.stopping.send_replace(true);
        let clock = self.clock();
        let until = clock.monotonic().saturating_add(bound);
        let mut count = self.count.subscribe();
        tokio::select! {
            _ = count.wait_for(|count| *count == 0) => (),
            () = clock.reached(until) => (),
        }
        self.live().len()
    }

    /// Notes whether an attempt is under way; a record that was just read or written.
    pub(crate) fn observe(&self, record: &Record) {
        let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        match record.operation.state {
            OperationState::Between | OperationState::OutcomeUnknown => {
                if WATCHED < quiet.len() {
                    quiet.clear();
                }
                let known = quiet.get(&record.operation_id);
                if !known.is_some_and(|quiet| quiet.is_of(record)) {
                    let begins = Quiet {
                        attempts: record.operation.attempts,
                        era: record.era,
                        since: self.clock().monotonic(),
                    };
                    quiet.insert(record.operation_id, begins);
                }
            }
            OperationState::Accepted
            | OperationState::Attempting
            | OperationState::CancelRequested
            | OperationState::Succeeded
            | OperationState::Failed(_)
            | OperationState::Cancelled => {
                quiet.remove(&record.operation_id);
            }
        }
    }

    /// For how long this process has known that no attempt of the operation is under way.
    pub(crate) fn quiet_for(&self, record: &Record) -> Duration {
        let quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        match quiet.get(&record.operation_id) {
            Some(quiet) if quiet.is_of(record) => {
                self.clock().monotonic().saturating_sub(quiet.since)
            }
            Some(_) | None => Duration::ZERO,
        }
    }

    fn live(&self) -> MutexGuard<'_, HashMap<OperationId, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the executor gives to a run.
pub(crate) struct RunParts {
    pub(super) executor: Arc<Executor>,
    pub(super) registration: Registration,
    pub(super) stopping: watch::Receiver<bool>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut live = self.executor.live();
        live.remove(&self.operation_id);
        self.executor.count.send_replace(live.len());
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("tools", &self.tools.0.keys())
            .finish_non_exhaustive()
    }
}
