//! Deadlines, locks of other processes, and callers that leave.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Barrier, Mutex, mpsc},
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use idempotent_tool::{Failure, SqliteStore, Toolbox, Tx, idempotent_tool};
use idempotent_tool_tests::caller;
use serde_json::{Value, json};

use super::Driver;
use crate::common::{self, Ledger, assert_code, assert_succeeded, create_notes, key, watch_logs};

/// What a handler waits for, so that calls queue behind it.
pub(super) struct Gate {
    entered: Mutex<mpsc::Sender<()>>,
    leave: Mutex<mpsc::Receiver<()>>,
}

/// The test's side of a [`Gate`].
pub(super) struct Keeper {
    pub(super) entered: mpsc::Receiver<()>,
    pub(super) leave: mpsc::Sender<()>,
}

pub(super) fn gate() -> (Gate, Keeper) {
    let (entered, keeper_entered) = mpsc::channel();
    let (keeper_leave, leave) = mpsc::channel();
    let gate = Gate {
        entered: Mutex::new(entered),
        leave: Mutex::new(leave),
    };
    (
        gate,
        Keeper {
            entered: keeper_entered,
            leave: keeper_leave,
        },
    )
}

#[idempotent_tool(operation = "wait_at_gate:v1", deadline = "60s")]
pub(super) fn wait_at_gate(tx: &Tx, #[state] gate: &Gate) -> Result<(), Failure> {
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, 'gate')",
        [tx.scope()],
    )?;
    gate.entered.lock().unwrap().send(()).unwrap();
    gate.leave.lock().unwrap().recv().unwrap();
    Ok(())
}

#[idempotent_tool(operation = "write_soon:v1", deadline = "1s")]
fn write_soon(tx: &Tx, body: String) -> Result<i64, Failure> {
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, ?2)",
        (tx.scope(), &body),
    )?;
    Ok(tx.last_insert_rowid())
}

#[idempotent_tool(operation = "count_forever:v1", deadline = "300ms")]
fn count_forever(tx: &Tx) -> Result<i64, Failure> {
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, 'lost')",
        [tx.scope()],
    )?;
    let endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                   SELECT count(*) FROM n";
    // Swallowed: the call fails all the same.
    Ok(tx.query_row(endless, (), |row| row.get(0)).unwrap_or(0))
}

#[idempotent_tool(operation = "write_forever:v1", deadline = "300ms")]
fn write_forever(tx: &Tx) -> Result<(), Failure> {
    let endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                   INSERT INTO notes (scope, body) SELECT 'x', i FROM n";
    tx.execute(endless, ())?;
    Ok(())
}

pub(super) fn tools_with_gate(store: &SqliteStore) -> (Toolbox, Keeper) {
    let (gate, keeper) = gate();
    let tools = Toolbox::builder(store.clone())
        .without_authorization()
        .state(gate)
        .tool::<wait_at_gate>()
        .tool::<write_soon>()
        .tool::<count_forever>()
        .tool::<write_forever>()
        .tool::<idempotent_tool_tests::write_note>()
        .build()
        .unwrap();
    (tools, keeper)
}

/// When a busy machine too has seen that a deadline of a second is over. What is waited for
/// would go on for ever.
const SOON: Duration = Duration::from_secs(20);

/// A store whose clock runs, unlike [`Ledger`]'s.
fn running_store(ledger: &Ledger) -> SqliteStore {
    SqliteStore::open(ledger.path()).unwrap()
}

fn soon(name: &str) -> Value {
    json!({ "idempotency_key": key(name), "body": "milk" })
}

#[test]
fn a_lock_of_another_process_is_busy_within_the_deadline() {
    let ledger = Ledger::new();
    let store = running_store(&ledger);
    let (tools, _keeper) = tools_with_gate(&store);
    let path = ledger.path();
    let mut holder = Driver::start(&["hold", path.to_str().unwrap()], None);
    holder.go();
    holder.expect("held");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let ada = caller().unwrap();
    for wait in ["blocking", "async"] {
        let began = Instant::now();
        let reply = match wait {
            "blocking" => tools.call_blocking(&ada, "write_soon", soon("locked")),
            _ => runtime.block_on(tools.call(&ada, "write_soon", soon("locked"))),
        };
        let took = began.elapsed();
        assert_code(&reply, "busy");
        assert_eq!(common::json(&reply)["status"], "rejected");
        assert!(reply.is_retryable());
        assert!(Duration::from_secs(1) <= took, "{wait}: {took:?}");
        assert!(took <= SOON, "{wait}: {took:?}");
    }
    holder.go();
    assert!(holder.end().1.success());
    assert_succeeded(
        &tools.call_blocking(&ada, "write_soon", soon("locked")),
        false,
    );
    assert_succeeded(
        &tools.call_blocking(&ada, "write_soon", soon("locked")),
        true,
    );
    assert_eq!(ledger.rows(), (1, 1));
}

#[test]
fn a_replay_needs_no_lock() {
    let ledger = Ledger::new();
    let store = running_store(&ledger);
    let (tools, _keeper) = tools_with_gate(&store);
    let ada = caller().unwrap();
    assert_succeeded(
        &tools.call_blocking(&ada, "write_soon", soon("replayed")),
        false,
    );
    let path = ledger.path();
    let mut holder = Driver::start(&["hold", path.to_str().unwrap()], None);
    holder.go();
    holder.expect("held");
    assert_succeeded(
        &tools.call_blocking(&ada, "write_soon", soon("replayed")),
        true,
    );
    // Nor does a process that has never seen the key, nor opening the file and building.
    let (fresh, _keeper) = tools_with_gate(&running_store(&ledger));
    assert_succeeded(
        &fresh.call_blocking(&ada, "write_soon", soon("replayed")),
        true,
    );
    holder.go();
    assert!(holder.end().1.success());
}

/// A store that has never seen the key, whose writer is held by a slow handler.
#[test]
fn a_replay_waits_for_no_slow_handler() {
    let ledger = Ledger::new();
    let ada = caller().unwrap();
    let (first, _keeper) = tools_with_gate(&ledger.store);
    assert_succeeded(
        &first.call_blocking(&ada, "write_soon", soon("replayed")),
        false,
    );
    let (tools, keeper) = tools_with_gate(&ledger.reopen());
    thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let arguments = json!({ "idempotency_key": key("slow") });
            tools.call_blocking(&ada, "wait_at_gate", arguments)
        });
        keeper.entered.recv().unwrap();
        ledger.clock.advance(Duration::from_millis(50));
        let replay = pin!(tools.call(&ada, "write_soon", soon("replayed")));
        let polled = replay.poll(&mut Context::from_waker(Waker::noop()));
        keeper.leave.send(()).unwrap();
        let Poll::Ready(reply) = polled else {
            panic!("the replay queued behind the handler");
        };
        assert_succeeded(&reply, true);
        assert_succeeded(&slow.join().unwrap(), false);
    });
}

#[test]
fn a_statement_past_the_deadline_is_stopped_and_undone() {
    let ledger = Ledger::new();
    let store = running_store(&ledger);
    let (tools, _keeper) = tools_with_gate(&store);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let ada = caller().unwrap();
    for tool in ["count_forever", "write_forever"] {
        let arguments = json!({ "idempotency_key": key("slow") });
        let began = Instant::now();
        assert_code(
            &tools.call_blocking(&ada, tool, arguments.clone()),
            "deadline_exceeded",
        );
        assert_code(
            &runtime.block_on(tools.call(&ada, tool, arguments)),
            "deadline_exceeded",
        );
        assert!(began.elapsed() < SOON);
        assert_eq!(ledger.rows(), (0, 0));
    }
    assert_succeeded(
        &tools.call_blocking(&ada, "write_soon", soon("next")),
        false,
    );
}

#[test]
fn a_call_behind_a_slow_handler_is_busy_at_its_deadline() {
    let ledger = Ledger::new();
    let store = running_store(&ledger);
    let (tools, keeper) = tools_with_gate(&store);
    let ada = caller().unwrap();
    thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let arguments = json!({ "idempotency_key": key("slow") });
            tools.call_blocking(&ada, "wait_at_gate", arguments)
        });
        keeper.entered.recv().unwrap();
        let began = Instant::now();
        assert_code(
            &tools.call_blocking(&ada, "write_soon", soon("behind")),
            "busy",
        );
        // Without a runtime as well.
        assert_code(
            &block_on(tools.call(&ada, "write_soon", soon("behind"))),
            "busy",
        );
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        keeper.leave.send(()).unwrap();
        assert_succeeded(&slow.join().unwrap(), false);
    });
    assert_eq!(ledger.rows(), (1, 1));
    assert_succeeded(
        &tools.call_blocking(&ada, "write_soon", soon("behind")),
        false,
    );
}

/// The injected clock ends a handler's call while the handler is still at the gate.
#[test]
fn a_condemned_call_is_never_committed() {
    let ledger = Ledger::new();
    let (tools, keeper) = tools_with_gate(&ledger.store);
    let ada = caller().unwrap();
    let arguments = json!({ "idempotency_key": key("condemned") });
    let queued = tools.call(&ada, "wait_at_gate", arguments.clone());
    let mut queued = pin!(queued);
    assert!(
        queued
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    keeper.entered.recv().unwrap();
    ledger.clock.advance(Duration::from_mins(1));
    // Answered while the handler still holds the transaction.
    assert_code(&block_on(queued), "deadline_exceeded");
    keeper.leave.send(()).unwrap();
    ledger
        .store
        .transact_blocking(|_| Ok::<_, Failure>(()))
        .unwrap();
    assert_eq!(ledger.rows(), (0, 0));
    keeper.leave.send(()).unwrap();
    assert_succeeded(&tools.call_blocking(&ada, "wait_at_gate", arguments), false);
}

#[test]
fn a_full_queue_is_busy_at_once() {
    watch_logs();
    let store = SqliteStore::options()
        .queued_calls(2)
        .open_in_memory()
        .unwrap();
    create_notes(&store);
    let (tools, keeper) = tools_with_gate(&store);
    let ada = caller().unwrap();
    thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let arguments = json!({ "idempotency_key": key("slow") });
            tools.call_blocking(&ada, "wait_at_gate", arguments)
        });
        keeper.entered.recv().unwrap();
        let mut waiting: Vec<_> = ["one", "two"]
            .map(|name| Box::pin(tools.call(&ada, "write_note", soon(name))))
            .into();
        let mut context = Context::from_waker(Waker::noop());
        for call in &mut waiting {
            assert!(call.as_mut().poll(&mut context).is_pending());
        }
        let mut third = pin!(tools.call(&ada, "write_note", soon("three")));
        let Poll::Ready(reply) = third.as_mut().poll(&mut context) else {
            panic!("it waits")
        };
        assert_code(&reply, "busy");
        assert!(reply.retry_after().is_some());
        keeper.leave.send(()).unwrap();
        for call in waiting {
            assert_succeeded(&block_on(call), false);
        }
        assert_succeeded(&slow.join().unwrap(), false);
    });
}

#[test]
fn a_queue_full_of_bytes_is_busy_at_once() {
    watch_logs();
    let store = SqliteStore::options()
        .queued_bytes(10_000)
        .open_in_memory()
        .unwrap();
    create_notes(&store);
    let (tools, keeper) = tools_with_gate(&store);
    let ada = caller().unwrap();
    thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let arguments = json!({ "idempotency_key": key("slow") });
            tools.call_blocking(&ada, "wait_at_gate", arguments)
        });
        keeper.entered.recv().unwrap();
        let large = json!({ "idempotency_key": key("large"), "body": "m".repeat(10_000) });
        let mut call = pin!(tools.call(&ada, "write_note", large));
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(reply) = call.as_mut().poll(&mut context) else {
            panic!("it waits")
        };
        assert_code(&reply, "busy");
        keeper.leave.send(()).unwrap();
        assert_succeeded(&slow.join().unwrap(), false);
    });
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, without a runtime.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        thread::park();
    }
}

#[test]
fn callers_of_one_process_are_not_in_each_others_threads() {
    let ledger = Ledger::new();
    let tools = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .tool::<tell_thread>()
        .build()
        .unwrap();
    let ada = caller().unwrap();
    let barrier = Barrier::new(8);
    thread::scope(|scope| {
        for thread in 0..8 {
            let (tools, ada, barrier) = (&tools, &ada, &barrier);
            scope.spawn(move || {
                let own = format!("{:?}", thread::current().id());
                barrier.wait();
                for number in 0..20 {
                    let arguments =
                        json!({ "idempotency_key": key(&format!("{thread}-{number}")) });
                    let reply = tools.call_blocking(ada, "tell_thread", arguments);
                    let (id, name): (String, Option<String>) =
                        serde_json::from_str(reply.result().unwrap().get()).unwrap();
                    assert!(
                        id == own || name.as_deref() == Some("idempotent-writer"),
                        "{id}"
                    );
                }
            });
        }
    });
}

#[idempotent_tool(operation = "tell_thread:v1")]
fn tell_thread(tx: &Tx) -> Result<(String, Option<String>), Failure> {
    tx.execute("INSERT INTO notes (scope, body) VALUES ('x', 'y')", ())?;
    let thread = thread::current();
    Ok((
        format!("{:?}", thread.id()),
        thread.name().map(str::to_owned),
    ))
}

/// Queues calls in a process of their own: how many were busy at once, by how many KiB its
/// memory grew, and how many succeeded.
fn queue(ledger: &Ledger, calls: usize, bytes: usize) -> [usize; 3] {
    let path = ledger.path();
    let (calls, bytes) = (calls.to_string(), bytes.to_string());
    let mut driver = Driver::start(&["queue", path.to_str().unwrap(), &calls, &bytes], None);
    driver.go();
    let (mut lines, status) = driver.end();
    assert!(status.success());
    serde_json::from_value(lines.remove(0)).unwrap()
}

#[test]
fn ten_thousand_calls_wait_behind_a_slow_one_and_all_succeed() {
    let ledger = Ledger::new();
    let [busy, grown, succeeded] = queue(&ledger, 10_000, 50);
    assert_eq!((busy, succeeded), (0, 10_000));
    assert!(grown <= 64 * 1024, "{grown} KiB");
    assert_eq!(ledger.rows(), (10_000, 10_000));
}

#[test]
fn waiting_calls_take_no_more_memory_than_the_queue_may_have() {
    let ledger = Ledger::new();
    let [busy, grown, succeeded] = queue(&ledger, 10_000, 2_000);
    // 20 MB came, and the queue takes 8 MiB; each caller has its future and its own copy.
    assert!((2_000..4_200).contains(&succeeded), "{succeeded}");
    assert_eq!(busy + succeeded, 10_000);
    assert!(grown <= 40 * 1024, "{grown} KiB");
}
