//! Callers that leave, and calls from inside a handler.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, OnceLock, mpsc},
    task::{Context, Waker},
    thread,
    time::{Duration, SystemTime},
};

use idempotent_tool::{
    Caller, Clock, Failure, SqliteStore, SystemClock, Toolbox, Tx, idempotent_tool,
};
use idempotent_tool_tests::{caller, create_notes, toolbox};
use serde_json::{Value, json};

use super::waiting::{block_on, gate, tools_with_gate, wait_at_gate};
use crate::common::{Ledger, assert_code, assert_succeeded, key, watch_logs};

fn note(name: &str) -> Value {
    json!({ "idempotency_key": key(name), "body": "milk" })
}

/// Waits until everything queued so far has run.
fn drain(store: &SqliteStore) {
    block_on(store.transact(|_| Ok::<_, Failure>(()))).unwrap();
}

/// P10, trap 26: the caller leaves at each poll in turn; nothing is open, lost or doubled.
#[test]
fn a_caller_that_leaves_at_any_poll_loses_or_keeps_the_whole_call() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger.store).unwrap();
    let ada = caller().unwrap();
    for polls in 0..4 {
        let before = ledger.rows();
        let arguments = note(&format!("left-{polls}"));
        {
            let mut call = pin!(tools.call(&ada, "write_note", arguments.clone()));
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..polls {
                if call.as_mut().poll(&mut context).is_ready() {
                    break;
                }
            }
        }
        drain(&ledger.store);
        let after = ledger.rows();
        assert!(
            after == before || after == (before.0 + 1, before.1 + 1),
            "{polls}: {after:?}"
        );
        let kept = after != before;
        assert_succeeded(&tools.call_blocking(&ada, "write_note", arguments), kept);
        assert_eq!(ledger.rows(), (before.0 + 1, before.1 + 1));
    }
}

#[test]
fn a_queued_call_whose_caller_left_never_runs() {
    let ledger = Ledger::new();
    let (tools, keeper) = tools_with_gate(&ledger.store);
    let ada = caller().unwrap();
    thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let arguments = json!({ "idempotency_key": key("slow") });
            tools.call_blocking(&ada, "wait_at_gate", arguments)
        });
        keeper.entered.recv().unwrap();
        {
            let mut left = pin!(tools.call(&ada, "write_note", note("left")));
            assert!(
                left.as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()))
                    .is_pending()
            );
        }
        keeper.leave.send(()).unwrap();
        assert_succeeded(&slow.join().unwrap(), false);
    });
    drain(&ledger.store);
    assert_eq!(ledger.rows(), (1, 1));
}

#[test]
fn a_begun_call_whose_caller_left_commits_and_is_replayed() {
    let ledger = Ledger::new();
    let (tools, keeper) = tools_with_gate(&ledger.store);
    let ada = caller().unwrap();
    let arguments = json!({ "idempotency_key": key("begun") });
    {
        let mut call = pin!(tools.call(&ada, "wait_at_gate", arguments.clone()));
        assert!(
            call.as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        keeper.entered.recv().unwrap();
    }
    keeper.leave.send(()).unwrap();
    drain(&ledger.store);
    assert_eq!(ledger.rows(), (1, 1));
    assert_succeeded(&tools.call_blocking(&ada, "wait_at_gate", arguments), true);
}

/// What a handler calls although it must not.
#[derive(Default)]
struct Outside(OnceLock<(Toolbox, SqliteStore, Caller)>);

#[idempotent_tool(operation = "call_another:v1")]
fn call_another(tx: &Tx, how: String, #[state] outside: &Arc<Outside>) -> Result<String, Failure> {
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, 'outer')",
        [tx.scope()],
    )?;
    let (tools, store, caller) = outside.0.get().unwrap();
    let inner = note("inner");
    Ok(match how.as_str() {
        "blocking" => tools.call_blocking(caller, "write_note", inner).to_json(),
        "async" => block_on(tools.call(caller, "write_note", inner)).to_json(),
        "transact" => store
            .transact_blocking(|_| Ok::<_, Failure>(()))
            .unwrap_err()
            .to_string(),
        _ => store.prune(1).unwrap_err().to_string(),
    })
}

/// Trap 27: refused at once, never dead-locked, and the outer call is not disturbed.
#[test]
fn a_call_from_inside_a_handler_is_refused() {
    for in_memory in [false, true] {
        watch_logs();
        let ledger = Ledger::new();
        let store = if in_memory {
            let store = SqliteStore::in_memory().unwrap();
            crate::common::create_notes(&store);
            store
        } else {
            ledger.store.clone()
        };
        let outside = Arc::new(Outside::default());
        let tools = Toolbox::builder(store.clone())
            .without_authorization()
            .state(Arc::clone(&outside))
            .tool::<call_another>()
            .tool::<idempotent_tool_tests::write_note>()
            .build()
            .unwrap();
        let ada = caller().unwrap();
        let set = outside.0.set((tools.clone(), store, ada.clone()));
        assert!(set.is_ok());
        for how in ["blocking", "async", "transact", "prune"] {
            let arguments = json!({ "idempotency_key": key(how), "how": how });
            let reply = tools.call_blocking(&ada, "call_another", arguments);
            assert_succeeded(&reply, false);
            let inner: String = serde_json::from_str(reply.result().unwrap().get()).unwrap();
            let refused = inner.contains("storage") || inner.contains("inside a handler");
            assert!(refused, "{how}: {inner}");
        }
        assert_succeeded(
            &tools.call_blocking(&ada, "write_note", note("inner")),
            false,
        );
    }
}

#[test]
fn a_conflict_while_the_first_runs_is_a_conflict() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger.store).unwrap();
    let ada = caller().unwrap();
    assert_succeeded(
        &tools.call_blocking(&ada, "write_note", note("taken")),
        false,
    );
    let other = json!({ "idempotency_key": key("taken"), "body": "honey" });
    assert_code(
        &tools.call_blocking(&ada, "write_note", other),
        "payload_conflict",
    );
    assert_eq!(ledger.rows(), (1, 1));
}

/// A clock that says when the store has let it go, which is when its threads have ended.
#[derive(Debug)]
struct LastClock(SystemClock, Mutex<mpsc::Sender<()>>);

impl Clock for LastClock {
    fn wall(&self) -> SystemTime {
        self.0.wall()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }
}

impl Drop for LastClock {
    fn drop(&mut self) {
        self.1.lock().unwrap().send(()).unwrap();
    }
}

/// State that keeps the store alive, in calls that nobody waits for any more.
struct Reading(#[allow(dead_code, reason = "kept, not read")] SqliteStore);

#[test]
fn a_store_that_its_last_call_holds_ends_with_that_call() {
    watch_logs();
    let (ended, wait) = mpsc::channel();
    let store = SqliteStore::options()
        .clock(LastClock(SystemClock::new(), Mutex::new(ended)))
        .open_in_memory()
        .unwrap();
    create_notes(&store).unwrap();
    let (gate, keeper) = gate();
    let tools = Toolbox::builder(store.clone())
        .without_authorization()
        .state(gate)
        .state(Reading(store.clone()))
        .tool::<wait_at_gate>()
        .tool::<idempotent_tool_tests::write_note>()
        .build()
        .unwrap();
    drop(store);
    let ada = caller().unwrap();
    {
        let arguments = json!({ "idempotency_key": key("begun") });
        let mut begun = pin!(tools.call(&ada, "wait_at_gate", arguments));
        let mut context = Context::from_waker(Waker::noop());
        assert!(begun.as_mut().poll(&mut context).is_pending());
        keeper.entered.recv().unwrap();
        let mut queued = pin!(tools.call(&ada, "write_note", note("queued")));
        assert!(queued.as_mut().poll(&mut context).is_pending());
    }
    drop(tools);
    keeper.leave.send(()).unwrap();
    wait.recv_timeout(Duration::from_secs(300)).unwrap();
}
