//! Random schedules over the whole toolbox, under `inspect`: real files, executors and
//! workers, two processes that are paused and killed anywhere, callers who come and leave,
//! cancellations, storage that fails, and clocks that jump.
//!
//! A turn that finds nothing to do does nothing. What the turns are is drawn from a seed,
//! which a failure prints; how far the threads of a store come between two is not.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, SystemTime},
};

use idempotent_tool::{
    Attempt, AttemptError, Clock, Failure, Reply, SqliteStore, Toolbox, Tx, failpoints::Failpoint,
    idempotent_tool,
};
use proptest::prelude::*;
use rusqlite::{Connection, OptionalExtension, types::FromSql};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{
    common::{ada, key, marked, watch_logs},
    pace::PacedClock,
    process::Process,
};

/// How many processes there are at most.
const PROCESSES: usize = 2;

/// What happens next; the numbers choose among what there is.
#[derive(Debug, Clone, Copy)]
enum Turn {
    /// A process starts, if there is room for one.
    Start,
    /// Somebody calls with the key, in a process.
    Call(usize),
    /// Whoever waits for a call leaves.
    Leave(usize),
    GoOn(usize),
    Stumble(usize, usize),
    Kill(usize),
    /// A handler hears what it waits for.
    Tell(usize, News),
    /// A request arrives, whoever sent it and whether or not that is still there.
    Arrive(usize),
    Cancel(usize),
    /// The store of a process fails soon, once.
    Fail(usize, Failpoint, u64),
    /// In milliseconds.
    Pass(u64),
    /// In seconds; the time of day alone, and it may go back.
    Jump(i64),
}

/// What a handler hears.
#[derive(Debug, Clone, Copy)]
enum News {
    /// Before it has sent: it may; after: it is done.
    Good,
    /// It was refused.
    Refused,
    /// It was not sent, or was lost for certain.
    NotApplied,
    /// Nothing for certain.
    Silence,
}

/// Who takes the letters, with its own books.
#[derive(Clone)]
struct Post {
    books: Arc<Mutex<Books>>,
    /// The process's, that the handlers are in.
    clock: PacedClock,
}

#[derive(Default)]
struct Books {
    /// Handlers that wait to hear something.
    waiting: Vec<oneshot::Sender<News>>,
    sent: usize,
    /// Requests that have neither arrived nor are known to be lost.
    under_way: BTreeSet<usize>,
    /// Requests that may have an effect, or have one.
    unaccounted: BTreeSet<usize>,
    effects: usize,
    /// The outcome was in doubt, and nobody has called with the key since.
    doubted: bool,
    broken: Option<&'static str>,
}

impl Post {
    async fn hears(&self) -> News {
        let (tell, told) = oneshot::channel();
        self.books().waiting.push(tell);
        // Nobody tells it anything any more when the test is over.
        self.clock.elsewhere(told).await.unwrap_or(News::Silence)
    }

    fn send(&self) -> usize {
        let mut books = self.books();
        books.sent += 1;
        let request = books.sent;
        if !books.unaccounted.is_empty() {
            books.broken = Some("sent again while one was in doubt");
        } else if books.doubted {
            books.broken = Some("sent again by itself");
        }
        books.unaccounted.insert(request);
        books.under_way.insert(request);
        request
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap()
    }
}

impl Books {
    fn arrive(&mut self, request: usize) {
        if self.under_way.remove(&request) {
            self.effects += 1;
        }
    }

    /// The request will never have an effect; `false` if it has one.
    fn lose(&mut self, request: usize) -> bool {
        let lost = self.under_way.remove(&request);
        if lost {
            self.unaccounted.remove(&request);
        }
        lost
    }
}

/// Post a letter that can't be asked about afterwards.
#[idempotent_tool(
    operation = "post_letter:v1",
    inspect = "Ask the addressee whether the letter has come"
)]
async fn post_letter(
    attempt: &Attempt,
    text: String,
    #[state] post: &Post,
) -> Result<String, AttemptError> {
    match post.hears().await {
        News::Good | News::Silence => (),
        News::Refused => return Err(AttemptError::refused("unwanted", "it is not wanted")),
        News::NotApplied => return Err(AttemptError::not_applied("away", "nobody is there")),
    }
    attempt.check().await?;
    let request = post.send();
    let news = post.hears().await;
    let mut books = post.books();
    match news {
        News::Good => {
            books.arrive(request);
            Ok(text)
        }
        News::Refused if books.lose(request) => {
            Err(AttemptError::refused("unwanted", "it is not wanted"))
        }
        News::NotApplied if books.lose(request) => {
            Err(AttemptError::not_applied("away", "nobody is there"))
        }
        News::Refused | News::NotApplied | News::Silence => {
            Err(AttemptError::ambiguous("silence", "nothing was heard"))
        }
    }
}

/// Have a letter posted.
#[idempotent_tool(operation = "order_letter:v1")]
fn order_letter(tx: &Tx) -> Result<String, Failure> {
    let id = tx.enqueue::<post_letter>(&key("letter"), &json!({ "text": marked("hello") }))?;
    Ok(id.to_string())
}

/// One operation, and all that happens to it.
struct World {
    _folder: TempDir,
    path: PathBuf,
    /// Open all the time, so that a process that is killed leaves its log behind.
    observer: Connection,
    clock: PacedClock,
    /// The latest time of day that there was.
    latest: SystemTime,
    books: Arc<Mutex<Books>>,
    processes: Vec<Process>,
    calls: Vec<Call>,
    /// The tool that the next call is of, and its arguments.
    first: Option<(&'static str, Value)>,
}

struct Call {
    /// The process's clock, which no other has.
    process: PacedClock,
    /// It may not have looked at the operation yet.
    is_new: bool,
    handle: JoinHandle<Reply>,
}

impl World {
    fn new(enqueued: bool) -> Self {
        watch_logs();
        let folder = tempfile::tempdir().unwrap();
        let start = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
        let path = folder.path().join("db");
        let mut world = Self {
            observer: Connection::open(&path).unwrap(),
            path,
            _folder: folder,
            clock: PacedClock::new(start),
            latest: start,
            books: Arc::default(),
            processes: Vec::new(),
            calls: Vec::new(),
            first: enqueued.then(|| {
                let arguments = json!({ "idempotency_key": key("order") });
                ("order_letter", arguments)
            }),
        };
        world.start();
        world
    }

    fn start(&mut self) {
        if self.processes.len() == PROCESSES {
            return;
        }
        let books = Arc::clone(&self.books);
        let build = |store: SqliteStore, clock: PacedClock| {
            Toolbox::builder(store)
                .without_authorization()
                .state(Post { books, clock })
                .tool::<post_letter>()
                .tool::<order_letter>()
                .build()
                .unwrap()
        };
        let process = Process::start(&self.path, &self.clock, build);
        self.processes.push(process);
    }

    fn take(&mut self, turn: Turn) {
        match turn {
            Turn::Start => self.start(),
            Turn::Call(which) => self.call(which),
            Turn::Leave(which) => {
                if let Some(call) = choose(&self.calls, which) {
                    call.handle.abort();
                }
            }
            Turn::GoOn(which) => self.go_on(which),
            Turn::Stumble(which, turns) => {
                if let Some(process) = choose(&self.processes, which) {
                    process.stumble(turns);
                }
            }
            Turn::Kill(which) => self.kill(which),
            Turn::Tell(which, news) => {
                let mut books = self.books();
                books.waiting.retain(|waiting| !waiting.is_closed());
                if !books.waiting.is_empty() {
                    let place = which % books.waiting.len();
                    // It is there: the process is not going on.
                    let _ = books.waiting.swap_remove(place).send(news);
                }
            }
            Turn::Arrive(which) => {
                let mut books = self.books();
                let requests: Vec<_> = books.under_way.iter().copied().collect();
                if let Some(request) = choose(&requests, which) {
                    books.arrive(*request);
                }
            }
            Turn::Cancel(which) => self.cancel(which),
            Turn::Fail(which, failpoint, number) => {
                if let Some(process) = choose(&self.processes, which) {
                    process.failpoints.arm(failpoint, number);
                }
            }
            Turn::Pass(milliseconds) => self.clock.advance(Duration::from_millis(milliseconds)),
            Turn::Jump(seconds) => {
                let by = Duration::from_secs(seconds.unsigned_abs());
                let wall = self.clock.wall();
                let wall = if seconds < 0 { wall - by } else { wall + by };
                self.clock.set_wall(wall);
            }
        }
        self.latest = self.latest.max(self.clock.wall());
        self.observe();
    }

    fn call(&mut self, which: usize) {
        let Some(process) = choose(&self.processes, which) else {
            return;
        };
        let (tool, arguments) = self.first.take().unwrap_or_else(|| {
            let arguments = json!({ "idempotency_key": key("letter"), "text": marked("hello") });
            self.books.lock().unwrap().doubted = false;
            ("post_letter", arguments)
        });
        let tools = process.tools.clone();
        let handle = process.spawn(async move { tools.call(&ada(), tool, arguments).await });
        self.calls.push(Call {
            process: process.clock.clone(),
            is_new: tool == "post_letter",
            handle,
        });
    }

    fn go_on(&mut self, which: usize) {
        let Some(process) = choose(&self.processes, which) else {
            return;
        };
        process.go_on();
        self.calls.retain(|call| !call.handle.is_finished());
        for call in &mut self.calls {
            call.is_new &= !call.process.is(&process.clock);
        }
    }

    fn kill(&mut self, which: usize) {
        if self.processes.is_empty() {
            return;
        }
        let process = self.processes.swap_remove(which % self.processes.len());
        self.calls.retain(|call| !call.process.is(&process.clock));
    }

    fn cancel(&mut self, which: usize) {
        let (Some(process), Some(id)) = (choose(&self.processes, which), self.operation_id())
        else {
            return;
        };
        let tools = process.tools.clone();
        let arguments = json!({ "operation_id": id });
        process.spawn(async move { tools.call(&ada(), "cancel_operation", arguments).await });
    }

    /// Looks whether the outcome is in doubt, and whether what was sent is as it should be.
    fn observe(&mut self) {
        let doubted = self.ask::<bool>(
            "SELECT state = 'outcome_unknown' OR EXISTS
                 (SELECT 1 FROM idempotent_attempts AS a WHERE a.seq = e.seq AND in_doubt)
             FROM idempotent_external AS e",
        );
        let called = self.calls.iter().any(|call| call.is_new);
        let mut books = self.books();
        books.doubted |= doubted == Some(true) && !called;
        assert_eq!(books.broken, None);
        assert!(books.effects <= 1, "{} effects", books.effects);
    }

    /// Whatever is under way comes to its end, and everybody who might act has time to.
    fn end(&mut self) {
        self.start();
        // A worker looks at nothing before its time, so a clock that was set back delays it.
        self.clock.set_wall(self.latest);
        for _ in 0..6 {
            // Before it has sent, after it, and what comes of it.
            for _ in 0..3 {
                for process in 0..self.processes.len() {
                    self.take(Turn::GoOn(process));
                }
                let waiting = self.books().waiting.len();
                for handler in 0..waiting {
                    self.take(Turn::Tell(handler, News::Silence));
                }
            }
            self.take(Turn::Pass(20_000));
        }
        for process in 0..self.processes.len() {
            self.take(Turn::GoOn(process));
        }
        let requests = self.books().under_way.len();
        for _ in 0..requests {
            self.take(Turn::Arrive(0));
        }
        let state = self.ask::<String>("SELECT state FROM idempotent_external");
        let effects = self.books().effects;
        match state.as_deref() {
            None | Some("accepted" | "refused" | "nothing_applied" | "cancelled") => {
                assert_eq!(effects, 0, "{state:?}");
            }
            Some("succeeded") => assert_eq!(effects, 1),
            Some("outcome_unknown") => assert!(effects <= 1),
            Some(_) => panic!("{state:?} after everything has ended"),
        }
        self.observe();
    }

    fn operation_id(&self) -> Option<String> {
        self.ask("SELECT 'op_' || lower(hex(operation_id)) FROM idempotent_external")
    }

    /// What the only external operation in the ledger says, if there is one.
    fn ask<T: FromSql>(&self, query: &str) -> Option<T> {
        let found = self.observer.query_row(query, (), |row| row.get(0));
        found.optional().unwrap()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap()
    }
}

fn choose<T>(from: &[T], which: usize) -> Option<&T> {
    from.get(which.checked_rem(from.len())?)
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let which = 0..4_usize;
    let news = prop_oneof![
        4 => Just(News::Good),
        1 => Just(News::Refused),
        2 => Just(News::NotApplied),
        2 => Just(News::Silence),
    ];
    let failure = prop_oneof![
        Just(Failpoint::Busy),
        Just(Failpoint::Io),
        Just(Failpoint::IoAndRollback),
        Just(Failpoint::IoAfter),
        Just(Failpoint::IoAfterAndHidden),
    ];
    let turn = prop_oneof![
        2 => Just(Turn::Start),
        5 => which.clone().prop_map(Turn::Call),
        1 => which.clone().prop_map(Turn::Leave),
        20 => which.clone().prop_map(Turn::GoOn),
        2 => (which.clone(), 1..12_usize).prop_map(|(which, turns)| Turn::Stumble(which, turns)),
        2 => which.clone().prop_map(Turn::Kill),
        10 => (which.clone(), news).prop_map(|(which, news)| Turn::Tell(which, news)),
        1 => which.clone().prop_map(Turn::Arrive),
        1 => which.clone().prop_map(Turn::Cancel),
        1 => (which, failure, 1..8_u64)
            .prop_map(|(which, failure, number)| Turn::Fail(which, failure, number)),
        4 => prop_oneof![2 => 0..1_000_u64, 1 => 0..20_000_u64].prop_map(Turn::Pass),
        1 => prop_oneof![-20..20_i64, -100_000..100_000_i64].prop_map(Turn::Jump),
    ];
    prop::collection::vec(turn, 1..60)
}

fn run(turns: Vec<Turn>, enqueued: bool) {
    let mut world = World::new(enqueued);
    world.take(Turn::Call(0));
    for turn in turns {
        world.take(turn);
    }
    world.end();
}

fn schedules() -> ProptestConfig {
    ProptestConfig {
        // A schedule is a second of a slow machine's time, and most turns matter.
        max_shrink_iters: 500,
        ..ProptestConfig::with_cases(500)
    }
}

proptest! {
    #![proptest_config(schedules())]

    #[test]
    fn what_was_in_doubt_is_never_sent_again_by_itself(turns in turns()) {
        run(turns, false);
    }

    #[test]
    fn what_was_enqueued_and_in_doubt_is_never_sent_again_by_itself(turns in turns()) {
        run(turns, true);
    }
}
