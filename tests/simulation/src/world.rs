//! A ledger's life: processes on one file, and what happens to them.

#![allow(clippy::unnecessary_wraps)] // Steps have one shape, whether or not they can fail.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::mpsc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use idempotent_tool::{
    CallError, Caller, Clock, Finding, IdempotencyKey, ManualClock, Reply, Resolution,
    ResolveError, Scope, SqliteStore, Synchronous, Tool, Toolbox, TransactError,
    failpoints::{Failpoint, Failpoints},
};
use rusqlite::{Connection, OpenFlags, OptionalExtension, backup::Backup};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::{
    clock::SimClock,
    coverage::Coverage,
    oracle::{
        self, Id, Open, Oracle, Row,
        arguments::Shape,
        external::{Asked, Request},
        judge::{Answer, Call, Seen},
    },
    step::{At, COPIES, Does, Fault, How, Step, What, key_of, memo, payment, scope_of},
    tools::{self, Behaviour, Fate, KINDS, Kind, News, Paid, Shared, Takes},
};

/// A process that has the file open.
struct Process {
    kind: Kind,
    tools: Toolbox,
    store: SqliteStore,
    failpoints: Failpoints,
    clock: SimClock,
    runtime: Runtime,
}

pub struct World {
    folder: TempDir,
    time: ManualClock,
    started: SystemTime,
    pub oracle: Oracle,
    shared: Shared,
    processes: Vec<Option<Process>>,
    copies: Vec<(PathBuf, oracle::File)>,
    copied: usize,
    observer: Option<Connection>,
    /// The last time that was told to the oracle.
    told: Duration,
    pub coverage: Coverage,
    /// The last of the application's own rows; they count down from zero.
    own_row: i64,
    /// How many of the provider's requests were told to the oracle.
    requests_told: usize,
    /// Whether every step is followed by a look at all there is.
    audits_next: bool,
    /// A build with `tag` has recorded its contract.
    is_wide: bool,
}

type Outcome<T = ()> = Result<T, String>;

fn text(error: impl std::fmt::Display) -> String {
    format!("the harness failed: {error}")
}

fn milliseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl World {
    pub fn new(open: Open) -> Outcome<Self> {
        let started = UNIX_EPOCH + Duration::from_hours(500_000);
        let time = ManualClock::new(started);
        let shared = Shared::new(time.clone());
        tools::set_permissions(&shared);
        let base = Path::new("/dev/shm");
        let folder = if base.is_dir() {
            tempfile::tempdir_in(base)
        } else {
            tempfile::tempdir()
        };
        let mut world = Self {
            folder: folder.map_err(text)?,
            oracle: Oracle::new(open, milliseconds(started)),
            shared,
            processes: (0..crate::step::PLACES).map(|_| None).collect(),
            copies: Vec::new(),
            copied: 0,
            observer: None,
            told: Duration::ZERO,
            coverage: Coverage::default(),
            is_wide: false,
            own_row: 0,
            requests_told: 0,
            audits_next: false,
            started,
            time,
        };
        world.observer()?.execute_batch(
            "PRAGMA journal_mode = WAL; CREATE TABLE effects (token INTEGER PRIMARY KEY, scope TEXT NOT NULL, amount INTEGER NOT NULL)",
        ).map_err(text)?;
        Ok(world)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("db")
    }

    /// A connection of nobody's, for looking.
    fn observer(&mut self) -> Outcome<&Connection> {
        let path = self.path();
        if self.observer.is_none() {
            self.observer = Some(Connection::open(path).map_err(text)?);
        }
        self.observer.as_ref().ok_or_else(|| "unreachable".into())
    }

    /// The place of a process that is there, if there is one: the one at `place`, or the next.
    fn at(&self, place: usize) -> usize {
        let places = self.processes.len();
        let mut from = (place..place + places).map(|place| place % places);
        from.find(|place| self.processes[*place].is_some())
            .unwrap_or(place)
    }

    /// Does one step, and looks whether all is as promised.
    pub fn take(&mut self, number: usize, step: &Step) -> Outcome {
        let done = match step {
            Step::Open { place, kind } => self.open(*place, KINDS[*kind]),
            Step::Close { place, orderly } => self.close(*place, *orderly),
            Step::Crash => self.crash(),
            Step::Call {
                place,
                what,
                fault,
                takes,
            } => self.call(self.at(*place), what, *fault, takes),
            Step::Batch {
                place,
                whats,
                fault,
            } => self.batch(self.at(*place), whats, *fault),
            Step::Leave { place, what, turns } => self.leave(self.at(*place), what, *turns),
            Step::Transact {
                place,
                fails,
                fault,
            } => self.transact(self.at(*place), *fails, *fault),
            Step::Prune {
                place,
                limit,
                fault,
            } => self.prune(self.at(*place), *limit, *fault),
            Step::Copy { place } => self.copy(*place),
            Step::RestoreStopped { copy } => self.restore_stopped(*copy),
            Step::RestoreRunning { copy } => self.restore_running(*copy),
            Step::Delete { which } => self.delete(*which),
            Step::DeleteNames { table, which } => self.delete_names(table, *which),
            Step::Pass { milliseconds } => {
                self.time.advance(Duration::from_millis(*milliseconds));
                Ok(true)
            }
            Step::Jump { milliseconds } => self.jump(*milliseconds),
            Step::SetRight => self.set_right(),
            Step::Deny {
                tenant,
                version,
                denies,
            } => self.deny(*tenant, *version, *denies),
            Step::GoOn { place } => self.go_on(self.at(*place)),
            Step::Hear { which, news } => Ok(self.hear(*which, *news)),
            Step::Arrive { which } => Ok(self.arrive(*which)),
            Step::Get { place, which } => {
                self.handle(self.at(*place), *which, "get_operation", None)
            }
            Step::Cancel {
                place,
                which,
                fault,
            } => self.handle(self.at(*place), *which, "cancel_operation", *fault),
            Step::Resolve {
                place,
                which,
                finding,
                fault,
            } => self.resolve(self.at(*place), *which, *finding, *fault),
            Step::Mute { is_mute } => {
                self.shared.lock().is_mute = *is_mute;
                Ok(true)
            }
        }?;
        self.tell_time();
        if done {
            self.coverage.step(step);
        }
        let is_telling = matches!(
            step,
            Step::Open { .. }
                | Step::Batch { .. }
                | Step::Leave { .. }
                | Step::Transact { .. }
                | Step::Prune { .. }
                | Step::RestoreStopped { .. }
                | Step::RestoreRunning { .. }
                | Step::Delete { .. }
        ) || self.audits_next
            || matches!(step, Step::Call { fault: Some(_), .. });
        if done && (is_telling || number.is_multiple_of(8)) {
            self.audit()?;
        }
        let disturbed = std::mem::take(&mut self.coverage.disturbed);
        self.outside(disturbed)
    }

    fn tell_time(&mut self) {
        let now = self.time.monotonic();
        let passed = now.saturating_sub(self.told);
        self.told = now;
        self.oracle
            .pass(i64::try_from(passed.as_millis()).unwrap_or(0));
    }

    fn open(&mut self, place: usize, kind: Kind) -> Outcome<bool> {
        let places = self.processes.len();
        let mut from = (place..place + places).map(|place| place % places);
        let Some(place) = from.find(|place| self.processes[*place].is_none()) else {
            return Ok(false);
        };
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(text)?;
        let clock = SimClock::new(self.time.clone());
        let failpoints = Failpoints::new();
        failpoints.count_all();
        let store = SqliteStore::options()
            .clock(clock.clone())
            .failpoints(failpoints.clone())
            // A process that ends leaves the disk alone; these do no worse.
            .synchronous(Synchronous::Normal)
            .background_pruning(false)
            .readers(1)
            .open(self.path())
            .map_err(|error| format!("the store can't be opened: {error}"))?;
        self.oracle.opened();
        let built = {
            let _inside = runtime.enter();
            let builder = kind.builder(store.clone());
            builder
                .state(self.shared.clone())
                .state(clock.clone())
                .build()
        };
        let tools = match built {
            Ok(tools) => tools,
            Err(error) => {
                drop((store, runtime));
                self.oracle.closed(true);
                if self.oracle.open.going_back && kind == Kind::Old && self.is_wide {
                    return Ok(true);
                }
                return Err(format!("the toolbox can't be built: {error}"));
            }
        };
        self.is_wide |= matches!(kind, Kind::Wide | Kind::Both);
        self.processes[place] = Some(Process {
            kind,
            tools,
            store,
            failpoints,
            clock,
            runtime,
        });
        Ok(true)
    }

    fn close(&mut self, place: usize, orderly: bool) -> Outcome<bool> {
        let Some(process) = self.processes[place].take() else {
            return Ok(false);
        };
        if orderly {
            process
                .runtime
                .block_on(process.tools.shut_down(Duration::ZERO));
        }
        drop(process);
        self.oracle.closed(orderly);
        Ok(true)
    }

    fn close_all(&mut self) -> Outcome {
        for place in 0..self.processes.len() {
            self.close(place, false)?;
        }
        self.observer = None;
        Ok(())
    }

    fn crash(&mut self) -> Outcome<bool> {
        let path = self.path();
        let log = self.folder.path().join("db-wal");
        let (kept, kept_log) = (
            self.folder.path().join("kept"),
            self.folder.path().join("kept-wal"),
        );
        fs::copy(&path, &kept).map_err(text)?;
        let has_log = log.exists();
        if has_log {
            fs::copy(&log, &kept_log).map_err(text)?;
        }
        self.close_all()?;
        self.remove_database();
        fs::rename(&kept, &path).map_err(text)?;
        if has_log {
            fs::rename(&kept_log, &log).map_err(text)?;
        }
        Ok(true)
    }

    fn remove_database(&self) {
        for name in ["db", "db-wal", "db-shm"] {
            // What isn't there need not be removed.
            let _ = fs::remove_file(self.folder.path().join(name));
        }
    }

    fn deny(&mut self, tenant: u64, version: u32, denies: bool) -> Outcome<bool> {
        let scope = scope_text(tenant);
        self.oracle.deny(&scope, "pay", version, denies);
        let mut shared = self.shared.lock();
        if denies {
            shared.denied.insert((scope, "pay", version));
        } else {
            shared.denied.remove(&(scope, "pay", version));
        }
        Ok(true)
    }

    fn jump(&mut self, by: i64) -> Outcome<bool> {
        let wall = self.time.wall();
        let far = Duration::from_millis(by.unsigned_abs());
        let wall = if by < 0 {
            wall.checked_sub(far)
        } else {
            wall.checked_add(far)
        };
        self.time.set_wall(wall.ok_or("the clock is at its end")?);
        self.oracle.jump(by);
        Ok(true)
    }

    /// The wall clock shows the true time again.
    fn set_right(&mut self) -> Outcome<bool> {
        let right = self.started + self.time.monotonic();
        let by = milliseconds(right) - milliseconds(self.time.wall());
        if by == 0 {
            return Ok(false);
        }
        self.time.set_wall(right);
        self.oracle.jump(by);
        Ok(true)
    }

    fn call(
        &mut self,
        place: usize,
        what: &What,
        fault: Option<Fault>,
        takes: &[Takes],
    ) -> Outcome<bool> {
        let Some(process) = &self.processes[place] else {
            return Ok(false);
        };
        if what.tool != "pay" {
            return self.call_external(place, what, fault, takes);
        }
        let prepared = Prepared::new(process, what);
        self.shared
            .lock()
            .behaviours
            .insert(prepared.id.scope.clone(), prepared.behaviour.clone());
        let from = self.shared.lock().ran.len();
        arm(&process.failpoints, fault);
        let caller = caller(what.tenant);
        let arguments = prepared.with_key();
        let answer = match what.typed {
            None => answer(&process.tools.call_blocking(&caller, "pay", arguments)),
            Some(version) => typed(process, &caller, version, &prepared),
        };
        let faults = process.failpoints.failures();
        self.coverage
            .fault(fault, faults, process.failpoints.failed_commits());
        process.failpoints.reset();
        self.shared.lock().behaviours.clear();
        self.tell_time();
        let seen = self.seen(&prepared, from, 0 < faults || what.does == Does::Lingers)?;
        self.coverage.answer(&answer);
        let judged = self.oracle.judge(&prepared.call(), Some(&answer), &seen);
        judged.map_err(|broken| {
            format!(
                "{broken}\n  {:?}\n  {}\n  {seen:?}",
                prepared.id, answer.json
            )
        })?;
        Ok(true)
    }

    fn call_external(
        &mut self,
        place: usize,
        what: &What,
        fault: Option<Fault>,
        takes: &[Takes],
    ) -> Outcome<bool> {
        let Some(process) = self.processes[place]
            .as_ref()
            .filter(|process| process.kind.has_external())
        else {
            return Ok(false);
        };
        let prepared = Prepared::external(what);
        self.shared.lock().takes = takes.iter().copied().collect();
        arm(&process.failpoints, fault);
        let (tools, arguments) = (process.tools.clone(), prepared.with_key());
        let (caller, tool) = (caller(what.tenant), what.tool);
        let reply = process.drive(&self.time, async move {
            tools.call(&caller, tool, arguments).await
        })?;
        let faults = process.failpoints.failures();
        self.coverage
            .fault(fault, faults, process.failpoints.failed_commits());
        process.failpoints.reset();
        self.shared.lock().takes.clear();
        self.tell_time();
        let row = self.row(&prepared.id)?;
        let disturbed = 0 < faults;
        let seen = Seen {
            disturbed,
            ran: Vec::new(),
            kept: Vec::new(),
            row,
        };
        let answer = answer(&reply);
        self.coverage.answer(&answer);
        self.oracle.accepted(&prepared.call(), &answer, &seen);
        self.learn(disturbed, |oracle| {
            let judged = oracle.judge_external(&prepared.call(), &answer, &seen);
            judged.map_err(|broken| {
                format!(
                    "{broken}\n  {:?}\n  {}\n  {seen:?}",
                    prepared.id, answer.json
                )
            })
        })?;
        Ok(true)
    }

    /// What an answer says is judged after what was sent and returned meanwhile.
    fn learn(&mut self, disturbed: bool, judge: impl FnOnce(&mut Oracle) -> Outcome) -> Outcome {
        let ids = self.external_rows()?;
        self.oracle.recorded(&ids);
        self.provider()?;
        judge(&mut self.oracle)?;
        self.outside(disturbed)
    }

    /// The identities that are recorded with an operation of an external tool.
    fn external_rows(&mut self) -> Outcome<Vec<(Id, String)>> {
        let observer = self.observer()?;
        if !has_ledger(observer)? {
            return Ok(Vec::new());
        }
        let mut statement = observer
            .prepare_cached(
                "SELECT s.scope, t.name, r.key, r.operation_id FROM idempotent_external AS e
                 JOIN idempotent_receipts AS r ON r.seq = e.seq
                 JOIN idempotent_scopes AS s ON s.id = r.scope
                 JOIN idempotent_tools AS t ON t.id = r.tool
                 WHERE r.operation_id IS NOT NULL ORDER BY r.seq",
            )
            .map_err(text)?;
        let rows = statement
            .query_map([], |row| {
                let id = Id {
                    scope: row.get(0)?,
                    tool: row.get(1)?,
                    key: key_text(row.get_ref(2)?),
                };
                let operation: Vec<u8> = row.get(3)?;
                Ok((id, row_of(Some(operation)).operation.unwrap_or_default()))
            })
            .map_err(text)?;
        rows.collect::<Result<_, _>>().map_err(text)
    }

    /// Tells the oracle what the provider's books and the handlers say.
    fn outside(&mut self, disturbed: bool) -> Outcome {
        self.provider()?;
        // An answer of this step may be from before.
        let proofs = std::mem::take(&mut self.shared.lock().proofs);
        for (operation, _) in proofs {
            self.oracle.proven(&operation, disturbed);
        }
        Ok(())
    }

    fn provider(&mut self) -> Outcome {
        let now = u64::try_from(self.time.monotonic().as_millis()).unwrap_or(0);
        let requests = {
            let mut inner = self.shared.lock();
            inner.settle(now);
            let new_from = self.requests_told;
            let requests: Vec<_> = inner
                .sent
                .iter()
                .enumerate()
                .map(|(number, (sent, fate))| Request {
                    operation: sent.operation.clone(),
                    memo: sent.memo.clone(),
                    at: i64::try_from(sent.at).unwrap_or(0),
                    wait: sent.wait.and_then(|wait| i64::try_from(wait).ok()),
                    has_effect: *fate == Fate::Applied,
                    is_under_way: *fate == Fate::UnderWay,
                    is_new: new_from <= number,
                })
                .collect();
            self.requests_told = requests.len();
            requests
        };
        if requests.iter().any(|request| request.is_new) {
            let ids = self.external_rows()?;
            self.oracle.recorded(&ids);
        }
        self.oracle.outside(&requests)
    }

    fn go_on(&mut self, place: usize) -> Outcome<bool> {
        let Some(process) = &self.processes[place] else {
            return Ok(false);
        };
        process.runtime.block_on(process.clock.rest());
        Ok(true)
    }

    fn hear(&mut self, which: usize, news: News) -> bool {
        let mut inner = self.shared.lock();
        inner.hanging.retain(|(_, tell)| !tell.is_closed());
        if inner.hanging.is_empty() {
            return false;
        }
        let place = which % inner.hanging.len();
        let (_, tell) = inner.hanging.remove(place);
        // It was open just now, and nobody else acts.
        let _ = tell.send(news);
        true
    }

    fn arrive(&mut self, which: usize) -> bool {
        let now = u64::try_from(self.time.monotonic().as_millis()).unwrap_or(0);
        let mut inner = self.shared.lock();
        let under_way: Vec<_> = (0..inner.sent.len())
            .filter(|request| inner.sent[*request].1 == Fate::UnderWay)
            .collect();
        let Some(request) = under_way.get(which % under_way.len().max(1)) else {
            return false;
        };
        inner.apply(*request, now);
        true
    }

    fn handle(
        &mut self,
        place: usize,
        which: usize,
        tool: &'static str,
        fault: Option<Fault>,
    ) -> Outcome<bool> {
        let Some((operation, id)) = self.oracle.known_operation(which / 2) else {
            return Ok(false);
        };
        let Some(process) = &self.processes[place] else {
            return Ok(false);
        };
        // One in six asks for another's operation.
        let is_owner = which != 11;
        let caller = if is_owner {
            caller_of(&id.scope)?
        } else {
            caller(999)
        };
        arm(&process.failpoints, fault);
        let tools = process.tools.clone();
        let arguments = json!({ "operation_id": operation });
        let reply = process.drive(&self.time, async move {
            tools.call(&caller, tool, arguments).await
        })?;
        let asked = Asked {
            is_owner,
            has_tool: process.kind.has_external(),
            cancels: tool == "cancel_operation",
        };
        let faults = process.failpoints.failures();
        self.coverage
            .fault(fault, faults, process.failpoints.failed_commits());
        process.failpoints.reset();
        self.tell_time();
        let answer = answer(&reply);
        self.learn(0 < faults, |oracle| {
            let judged = oracle.judge_handle(&id, &operation, &answer, asked, 0 < faults);
            judged.map_err(|broken| format!("{broken}\n  {id:?}\n  {}", answer.json))
        })?;
        Ok(true)
    }

    fn resolve(
        &mut self,
        place: usize,
        which: usize,
        finding: usize,
        fault: Option<Fault>,
    ) -> Outcome<bool> {
        let Some((operation, id)) = self.oracle.known_operation(which / 2) else {
            return Ok(false);
        };
        let observer = self.observer()?;
        let found: Option<(i64, String)> = observer
            .query_row(
                "SELECT e.attempts, e.state FROM idempotent_external AS e JOIN idempotent_receipts AS r ON r.seq = e.seq
                 WHERE r.operation_id = unhex(substr(?1, 4))",
                [&operation],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .optional()
            .map_err(text)?;
        let Some((attempts, state)) = found else {
            return Ok(false);
        };
        if state != "outcome_unknown" && which != 1 {
            return Ok(false); // A person is asked where it is unknown, and seldom elsewhere.
        }
        let Some(process) = self.processes[place]
            .as_ref()
            .filter(|process| process.kind.has_external())
        else {
            return Ok(false);
        };
        let memo = self.oracle.memo_of(&id);
        let (told, finding) = match finding {
            0 => {
                let result = json!({ "request": 999_999, "memo": memo });
                (
                    oracle::external::Finding::Succeeded,
                    Finding::Succeeded(result),
                )
            }
            1 => {
                let (code, message) = ("lost".into(), "it was lost".into());
                (
                    oracle::external::Finding::Failed,
                    Finding::Failed { code, message },
                )
            }
            _ => (oracle::external::Finding::NotApplied, Finding::NotApplied),
        };
        let resolution = Resolution {
            operation_id: operation.parse().map_err(text)?,
            attempts: u32::try_from(attempts).map_err(text)?,
            finding,
            by: "ada".into(),
            why: "she looked".into(),
        };
        arm(&process.failpoints, fault);
        let tools = process.tools.clone();
        let resolved = process.drive(&self.time, async move { tools.resolve(resolution).await })?;
        let faults = process.failpoints.failures();
        self.coverage
            .fault(fault, faults, process.failpoints.failed_commits());
        process.failpoints.reset();
        self.tell_time();
        let disturbed = 0 < faults;
        match resolved {
            Ok(reply) => {
                let answer = answer(&reply);
                self.oracle.found(&id, told);
                self.learn(disturbed, |oracle| {
                    let asked = Asked {
                        is_owner: true,
                        has_tool: true,
                        cancels: false,
                    };
                    let judged = oracle.judge_handle(&id, &operation, &answer, asked, disturbed);
                    judged.map_err(|broken| format!("{broken}\n  {id:?}\n  {}", answer.json))
                })?;
            }
            Err(error) if disturbed => {
                let _ = error; // It may be recorded all the same.
                self.oracle.found(&id, told);
            }
            Err(ResolveError::NotFound) if state != "outcome_unknown" => (),
            // The worker may have asked meanwhile.
            Err(ResolveError::MovedOn) => (),
            Err(error) => return Err(format!("{state} can't be settled: {error}\n  {id:?}")),
        }
        Ok(true)
    }

    /// Calls that queue behind one piece of work, and so share a transaction.
    fn batch(&mut self, place: usize, whats: &[What], fault: Option<Fault>) -> Outcome<bool> {
        let Some(process) = &self.processes[place] else {
            return Ok(false);
        };
        let mut scopes = std::collections::BTreeSet::new();
        let whats: Vec<_> = whats
            .iter()
            .filter(|what| scopes.insert(scope_text(what.tenant)))
            .collect();
        let prepared: Vec<_> = whats
            .iter()
            .map(|what| Prepared::new(process, what))
            .collect();
        for one in &prepared {
            self.shared
                .lock()
                .behaviours
                .insert(one.id.scope.clone(), one.behaviour.clone());
        }
        let from = self.shared.lock().ran.len();
        let (start, wait) = mpsc::channel::<()>();
        let replies: Vec<Reply> = process.runtime.block_on(async {
            let store = process.store.clone();
            let first =
                tokio::spawn(
                    async move { store.transact(move |_| wait.recv().map_err(|_| ())).await },
                );
            tokio::task::yield_now().await;
            let calls: Vec<_> = whats
                .iter()
                .zip(&prepared)
                .map(|(what, prepared)| {
                    let (tools, arguments) = (process.tools.clone(), prepared.with_key());
                    let caller = caller(what.tenant);
                    tokio::spawn(async move { tools.call(&caller, "pay", arguments).await })
                })
                .collect();
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            arm(&process.failpoints, fault);
            // It waits for nothing else.
            let _ = start.send(());
            let _ = first.await;
            let mut replies = Vec::new();
            for call in calls {
                replies.push(call.await.map_err(text)?);
            }
            process.clock.rest().await;
            Ok::<_, String>(replies)
        })?;
        let faults = process.failpoints.failures();
        self.coverage
            .fault(fault, faults, process.failpoints.failed_commits());
        process.failpoints.reset();
        self.shared.lock().behaviours.clear();
        self.tell_time();
        let disturbed = 0 < faults || whats.iter().any(|what| what.does == Does::Lingers);
        for (one, reply) in prepared.iter().zip(&replies) {
            let seen = self.seen(one, from, disturbed)?;
            let answer = answer(reply);
            self.coverage.answer(&answer);
            let judged = self.oracle.judge(&one.call(), Some(&answer), &seen);
            judged.map_err(|broken| {
                format!("{broken}\n  {:?}\n  {}\n  {seen:?}", one.id, answer.json)
            })?;
        }
        Ok(true)
    }

    fn leave(&mut self, place: usize, what: &What, turns: u64) -> Outcome<bool> {
        let Some(process) = &self.processes[place] else {
            return Ok(false);
        };
        if what.tool != "pay" {
            return Ok(false);
        }
        let prepared = Prepared::new(
            process,
            &What {
                typed: None,
                ..*what
            },
        );
        self.shared
            .lock()
            .behaviours
            .insert(prepared.id.scope.clone(), prepared.behaviour.clone());
        let from = self.shared.lock().ran.len();
        let (tools, arguments, caller) = (
            process.tools.clone(),
            prepared.with_key(),
            caller(what.tenant),
        );
        let reply = process.runtime.block_on(async {
            let call = tokio::spawn(async move { tools.call(&caller, "pay", arguments).await });
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            call.abort();
            let reply = call.await.ok();
            process.clock.rest().await;
            reply
        });
        // Whatever was queued comes before this.
        let behind = process.store.transact_blocking(|_| Ok::<_, ()>(()));
        behind.map_err(|error| format!("the store is not at rest: {error:?}"))?;
        self.shared.lock().behaviours.clear();
        self.tell_time();
        let seen = self.seen(&prepared, from, what.does == Does::Lingers)?;
        let answer = reply.as_ref().map(answer);
        let judged = self.oracle.judge(&prepared.call(), answer.as_ref(), &seen);
        judged
            .map_err(|broken| format!("{broken}\n  {:?}\n  {answer:?}\n  {seen:?}", prepared.id))?;
        Ok(true)
    }

    fn transact(&mut self, place: usize, fails: bool, fault: Option<Fault>) -> Outcome<bool> {
        let Some(process) = &self.processes[place] else {
            return Ok(false);
        };
        self.own_row -= 1;
        let token = self.own_row;
        arm(&process.failpoints, fault);
        let done = process.store.transact_blocking(move |tx| {
            tx.execute(
                "INSERT INTO effects (token, scope, amount) VALUES (?1, 'own', 0)",
                [token],
            )?;
            if fails {
                Err(rusqlite::Error::QueryReturnedNoRows)
            } else {
                Ok(())
            }
        });
        let faults = process.failpoints.failures();
        self.coverage
            .fault(fault, faults, process.failpoints.failed_commits());
        process.failpoints.reset();
        let said = match &done {
            Ok(()) => "done",
            Err(TransactError::Refused(_) | TransactError::NotAllowed(_)) => "failed",
            Err(TransactError::Unknown(_)) => "unknown",
            Err(_) => "storage",
        };
        let there = self.has_row(token)?;
        let judged = self.oracle.judge_own(token, said, there, fails, 0 < faults);
        judged.map_err(|broken| format!("{broken}: {done:?}"))?;
        Ok(true)
    }

    fn has_row(&mut self, token: i64) -> Outcome<bool> {
        let observer = self.observer()?;
        observer
            .prepare_cached("SELECT 1 FROM effects WHERE token = ?1")
            .and_then(|mut statement| statement.exists([token]))
            .map_err(text)
    }

    fn prune(&mut self, place: usize, limit: usize, fault: Option<Fault>) -> Outcome<bool> {
        let Some(process) = &self.processes[place] else {
            return Ok(false);
        };
        arm(&process.failpoints, fault);
        let pruned = process.store.prune(limit);
        let faults = process.failpoints.failures();
        self.coverage
            .fault(fault, faults, process.failpoints.failed_commits());
        process.failpoints.reset();
        if let (Err(error), 0) = (&pruned, faults) {
            return Err(format!("nothing failed, and it can't be pruned: {error}"));
        }
        if let Ok(pruned) = pruned {
            self.coverage.pruned(pruned.expired, pruned.forgotten);
        }
        self.oracle.prunes();
        Ok(true)
    }

    fn copy(&mut self, place: usize) -> Outcome<bool> {
        let _ = place;
        let path = self.folder.path().join(format!("copy-{}", self.copied));
        self.copied += 1;
        self.observer()?
            .execute("VACUUM INTO ?1", [path.to_string_lossy()])
            .map_err(text)?;
        let copy = self.oracle.copy();
        if self.copies.len() == COPIES {
            let (old, _) = self.copies.remove(0);
            let _ = fs::remove_file(old); // It is in a temporary folder.
        }
        self.copies.push((path, copy));
        Ok(true)
    }

    fn restore_stopped(&mut self, copy: usize) -> Outcome<bool> {
        if self.copies.is_empty() {
            return Ok(false);
        }
        self.close_all()?;
        let (path, file) = &self.copies[copy % self.copies.len()];
        self.remove_database();
        fs::copy(path, self.path()).map_err(text)?;
        self.oracle.restored(file);
        Ok(true)
    }

    fn restore_running(&mut self, copy: usize) -> Outcome<bool> {
        if self.copies.is_empty() || self.processes.iter().all(Option::is_none) {
            return Ok(false);
        }
        let (path, file) = self.copies[copy % self.copies.len()].clone();
        let source =
            Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(text)?;
        let mut target = Connection::open(self.path()).map_err(text)?;
        let backup = Backup::new(&source, &mut target).map_err(text)?;
        backup
            .run_to_completion(10_000, Duration::from_millis(1), None)
            .map_err(text)?;
        drop(backup);
        self.oracle.restored(&file);
        Ok(true)
    }

    fn delete(&mut self, which: usize) -> Outcome<bool> {
        let ledger = self.receipts(which + 1)?;
        let Some((seq, id)) = ledger.into_iter().nth(which) else {
            return Ok(false);
        };
        let observer = self.observer()?;
        for table in [
            "idempotent_attempts",
            "idempotent_external",
            "idempotent_receipts",
        ] {
            observer
                .execute(&format!("DELETE FROM {table} WHERE seq = ?1"), [seq])
                .map_err(text)?;
        }
        self.oracle.deleted(&id);
        Ok(true)
    }

    fn delete_names(&mut self, table: &str, which: usize) -> Outcome<bool> {
        let observer = self.observer()?;
        let sql = format!(
            "DELETE FROM idempotent_{table} WHERE id = (SELECT id FROM idempotent_{table} ORDER BY id DESC LIMIT 1 OFFSET {which})"
        );
        match observer.execute(&sql, []) {
            Ok(0) => Ok(false),
            Ok(_) => Err(format!("a row of {table} could be deleted")),
            Err(_) => Ok(true),
        }
    }

    /// The newest receipts, with their owners.
    fn receipts(&mut self, limit: usize) -> Outcome<Vec<(i64, Id)>> {
        let observer = self.observer()?;
        if !has_ledger(observer)? {
            return Ok(Vec::new());
        }
        let mut statement = observer
            .prepare_cached(
                "SELECT r.seq, s.scope, t.name, r.key FROM idempotent_receipts AS r
                 JOIN idempotent_scopes AS s ON s.id = r.scope
                 JOIN idempotent_tools AS t ON t.id = r.tool ORDER BY seq DESC LIMIT ?1",
            )
            .map_err(text)?;
        let rows = statement
            .query_map([i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
                Ok((
                    row.get(0)?,
                    Id {
                        scope: row.get(1)?,
                        tool: row.get(2)?,
                        key: key_text(row.get_ref(3)?),
                    },
                ))
            })
            .map_err(text)?;
        rows.collect::<Result<_, _>>().map_err(text)
    }

    fn seen(&mut self, prepared: &Prepared, from: usize, disturbed: bool) -> Outcome<Seen> {
        let ran: Vec<_> = self.shared.lock().ran[from..]
            .iter()
            .filter(|ran| ran.scope == prepared.id.scope)
            .map(|ran| (ran.token, ran.returned.clone()))
            .collect();
        let mut kept = Vec::new();
        for (token, _) in &ran {
            if self.has_row(*token)? {
                kept.push(*token);
            }
        }
        let row = self.row(&prepared.id)?;
        Ok(Seen {
            disturbed,
            ran,
            kept,
            row,
        })
    }

    fn row(&mut self, id: &Id) -> Outcome<Option<Row>> {
        let observer = self.observer()?;
        let uuid = uuid_bytes(&id.key);
        let key: &dyn rusqlite::ToSql = match &uuid {
            Some(bytes) => bytes,
            None => &id.key,
        };
        let mut statement = observer
            .prepare_cached(
                "SELECT r.operation_id FROM idempotent_receipts AS r
                 WHERE r.key = ?1 AND r.scope = (SELECT id FROM idempotent_scopes WHERE scope = ?2)
                 AND r.tool = (SELECT id FROM idempotent_tools WHERE name = ?3)",
            )
            .map_err(text)?;
        let mut rows = statement.query((key, &id.scope, &id.tool)).map_err(text)?;
        let Some(row) = rows.next().map_err(text)? else {
            return Ok(None);
        };
        let operation: Option<Vec<u8>> = row.get(0).map_err(text)?;
        Ok(Some(row_of(operation)))
    }

    pub fn audit(&mut self) -> Outcome {
        self.coverage.audits += 1;
        let observer = self.observer()?;
        let mut ledger = BTreeMap::new();
        let mut effects = BTreeMap::new();
        if has_ledger(observer)? {
            let mut statement = observer
                .prepare_cached(
                    "SELECT s.scope, t.name, r.key, r.operation_id FROM idempotent_receipts AS r
                     LEFT JOIN idempotent_scopes AS s ON s.id = r.scope
                     LEFT JOIN idempotent_tools AS t ON t.id = r.tool",
                )
                .map_err(text)?;
            let mut rows = statement.query([]).map_err(text)?;
            while let Some(row) = rows.next().map_err(text)? {
                let scope: Option<String> = row.get(0).map_err(text)?;
                let tool: Option<String> = row.get(1).map_err(text)?;
                let (Some(scope), Some(tool)) = (scope, tool) else {
                    return Err("a receipt refers to a scope or tool that isn't there".into());
                };
                let key = key_text(row.get_ref(2).map_err(text)?);
                let operation: Option<Vec<u8>> = row.get(3).map_err(text)?;
                ledger.insert(Id { scope, tool, key }, row_of(operation));
            }
        }
        let mut statement = observer
            .prepare_cached("SELECT token, scope FROM effects")
            .map_err(text)?;
        let mut rows = statement.query([]).map_err(text)?;
        while let Some(row) = rows.next().map_err(text)? {
            effects.insert(row.get(0).map_err(text)?, row.get(1).map_err(text)?);
        }
        drop(rows);
        drop(statement);
        self.oracle.audit(&ledger, &effects)
    }
}

fn has_ledger(connection: &Connection) -> Outcome<bool> {
    connection
        .prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'idempotent_receipts'")
        .and_then(|mut statement| statement.exists([]))
        .map_err(text)
}

fn row_of(operation: Option<Vec<u8>>) -> Row {
    let operation = operation.map(|bytes| format!("op_{}", hex(&bytes)));
    Row {
        is_tombstone: operation.is_none(),
        operation,
    }
}

fn key_text(value: rusqlite::types::ValueRef<'_>) -> String {
    match value {
        rusqlite::types::ValueRef::Blob(bytes) => {
            let hex = hex(bytes);
            let at = |from: usize, to: usize| hex.get(from..to).unwrap_or_default().to_owned();
            [at(0, 8), at(8, 12), at(12, 16), at(16, 20), at(20, 32)].join("-")
        }
        other => other.as_str().unwrap_or_default().to_owned(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

fn uuid_bytes(key: &str) -> Option<Vec<u8>> {
    let hex: String = key.split('-').collect();
    if key.len() != 36 || hex.len() != 32 {
        return None;
    }
    (0..16)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok())
        .collect()
}

pub fn scope_text(tenant: u64) -> String {
    caller(tenant).scope().as_str().to_owned()
}

/// Whoever's scope has this text.
fn caller_of(scope: &str) -> Outcome<Caller> {
    let parts: Vec<Option<String>> = serde_json::from_str(scope).map_err(text)?;
    let mut builder = Scope::builder();
    if let Some(Some(account)) = parts.first() {
        builder = builder.account(account);
    }
    if let Some(Some(principal)) = parts.get(1) {
        builder = builder.principal(principal);
    }
    Ok(Caller::new(builder.build().map_err(text)?))
}

fn caller(tenant: u64) -> Caller {
    let [account, principal] = scope_of(tenant);
    let scope = Scope::builder()
        .account(account)
        .principal(principal)
        .build();
    Caller::new(scope.unwrap_or_else(|error| panic!("{error}")))
}

/// A call of `pay` before it is made.
struct Prepared {
    id: Id,
    arguments: Map<String, Value>,
    asked: Option<u32>,
    shapes: Vec<(u32, Shape)>,
    behaviour: Behaviour,
    can_enqueue: bool,
}

impl Process {
    /// Goes on, and lets time pass where all wait for it, until `future` has come to its end.
    fn drive<T: Send + 'static>(
        &self,
        time: &ManualClock,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Outcome<T> {
        let task = self.runtime.spawn(future);
        for _ in 0..10_000 {
            self.runtime.block_on(self.clock.rest());
            if task.is_finished() {
                return self.runtime.block_on(task).map_err(text);
            }
            let wake = self.clock.next_wake().ok_or("nobody would ever wake")?;
            time.advance(wake.saturating_sub(time.monotonic()));
        }
        Err("a call doesn't come to its end".into())
    }
}

impl Prepared {
    fn external(what: &What) -> Self {
        let own = crate::step::own_arguments(what.key) == what.arguments;
        Self {
            id: Id {
                scope: scope_text(what.tenant),
                tool: what.tool.into(),
                key: key_of(what.key),
            },
            arguments: memo(if own { what.key } else { what.arguments }),
            asked: None,
            shapes: vec![(1, Shape::Memo)],
            behaviour: Behaviour::Works,
            can_enqueue: true,
        }
    }

    fn new(process: &Process, what: &What) -> Self {
        let enqueues = |then_fails| Behaviour::Enqueues {
            key: key_of(what.key),
            arguments: memo(what.key),
            then_fails,
        };
        let shape = |version: &u32| match (version, process.kind) {
            (1, Kind::Old) => (1, Shape::First),
            (1, _) => (1, Shape::Wide),
            _ => (2, Shape::Second),
        };
        Self {
            id: Id {
                scope: scope_text(what.tenant),
                tool: "pay".into(),
                key: key_of(what.key),
            },
            arguments: payment(what.arguments, what.spelling),
            asked: what.typed,
            shapes: process.kind.versions().iter().map(shape).collect(),
            behaviour: match what.does {
                Does::Works => Behaviour::Works,
                Does::Fails => Behaviour::Fails,
                Does::Panics => Behaviour::Panics,
                Does::RollsBack => Behaviour::RollsBack,
                Does::Lingers => Behaviour::Lingers,
                Does::Enqueues => enqueues(false),
                Does::EnqueuesAndFails => enqueues(true),
            },
            can_enqueue: process.kind.has_external(),
        }
    }

    fn with_key(&self) -> Value {
        let mut arguments = self.arguments.clone();
        arguments.insert("idempotency_key".into(), json!(self.id.key));
        Value::Object(arguments)
    }

    fn call(&self) -> Call<'_> {
        let enqueues = match &self.behaviour {
            Behaviour::Enqueues { key, arguments, .. } => Some((key.as_str(), arguments)),
            _ => None,
        };
        Call {
            id: self.id.clone(),
            arguments: &self.arguments,
            asked: self.asked,
            shapes: &self.shapes,
            works: matches!(
                self.behaviour,
                Behaviour::Works
                    | Behaviour::Enqueues {
                        then_fails: false,
                        ..
                    }
            ),
            enqueues,
            can_enqueue: self.can_enqueue,
        }
    }
}

/// A typed call; of its result there are no bytes to compare.
fn typed(process: &Process, caller: &Caller, version: u32, prepared: &Prepared) -> Answer {
    fn call<T: Tool<Output = Paid>>(
        process: &Process,
        caller: &Caller,
        prepared: &Prepared,
    ) -> Answer {
        let key = IdempotencyKey::new(&prepared.id.key);
        let key = key.unwrap_or_else(|error| panic!("{error}"));
        let tools = &process.tools;
        match tools.call_typed_blocking::<T>(caller, &key, &prepared.arguments) {
            Ok(completed) => Answer {
                json: json!({
                    "status": "succeeded",
                    "operation_id": completed.operation_id.to_string(),
                    "replayed": completed.replayed,
                    "result": completed.result,
                }),
                result: None,
            },
            Err(CallError::Unsuccessful(reply) | CallError::Result(reply, _)) => answer(&reply),
            Err(error) => panic!("{error}"),
        }
    }
    match (version, process.kind) {
        (1, Kind::Old) => call::<tools::v1::pay_v1>(process, caller, prepared),
        (1, _) => call::<tools::wide::pay_wide>(process, caller, prepared),
        _ => call::<tools::v2::pay_v2>(process, caller, prepared),
    }
}

fn answer(reply: &Reply) -> Answer {
    Answer {
        json: serde_json::from_str(&reply.to_json()).unwrap_or(Value::Null),
        result: reply.result().map(|result| result.get().to_owned()),
    }
}

fn arm(failpoints: &Failpoints, fault: Option<Fault>) {
    failpoints.reset();
    let Some(fault) = fault else {
        return;
    };
    let action = match fault.how {
        How::Failed => Failpoint::Io,
        How::RolledBack => Failpoint::IoAndRollback,
        How::Lost => Failpoint::IoAfter,
        How::LostAndHidden => Failpoint::IoAfterAndHidden,
        How::Full => Failpoint::Full,
        How::FullAndRolledBack => Failpoint::FullAndRollback,
        How::FullAndHidden => Failpoint::FullAndHidden,
        How::Busy => Failpoint::Busy,
    };
    match fault.at {
        At::Statement(number) => failpoints.arm(action, number),
        At::Commit(times) => failpoints.arm_commits(action, 1, times),
    }
}
