//! External tools: one effect, whatever gets lost, and the truth about it.

use std::{
    pin::Pin,
    sync::mpsc,
    task::{Context, Poll},
    time::Duration,
};

use idempotent_tool::{
    Clock, Failure, Finding, Resolution, ResolveError, SqliteStore, Status, Transaction,
};
use serde_json::json;
use tokio::task::{JoinHandle, yield_now};

use crate::{
    common::{Ledger, ada, assert_code, assert_succeeded, key, marked},
    pace::{alone, drive},
    process::Process,
    provider::{BY_ASKING, BY_HAND, BY_KEY, Lab, Provider, Takes, arguments, call, toolbox},
};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_success_is_replayed_byte_for_byte() {
    for tool in [BY_KEY, BY_ASKING, BY_HAND] {
        alone(async {
            let lab = Lab::new([]);
            let first = lab.call(tool, "one").await;
            assert_succeeded(&first, false);
            let again = lab.call(tool, "one").await;
            assert_succeeded(&again, true);
            assert_eq!(first.operation_id(), again.operation_id());
            assert_eq!(first.result().unwrap().get(), again.result().unwrap().get());
            assert_eq!(lab.provider.requests(), 1);
        });
    }
}

#[test]
fn a_lost_answer_is_settled_by_the_declared_recovery() {
    for takes in [
        Takes::AppliesSilently,
        Takes::AppliesAndHangs,
        Takes::AppliesAndBreaksTheTool,
        Takes::LosesIt,
        Takes::Hangs,
    ] {
        alone(async {
            let lab = Lab::new([takes]);
            let reply = lab.settle(BY_KEY, "by key").await;
            assert_eq!(reply.status(), Status::Succeeded, "{takes:?}");
            assert_eq!(
                (lab.provider.deployments(), lab.provider.requests()),
                (1, 2)
            );
        });
        alone(async {
            let lab = Lab::new([takes]);
            let reply = lab.settle(BY_ASKING, "by asking").await;
            assert_eq!(reply.status(), Status::Succeeded, "{takes:?}");
            assert_eq!(lab.provider.deployments(), 1, "{takes:?}");
        });
        alone(async {
            let lab = Lab::new([takes]);
            let reply = lab.settle(BY_HAND, "by hand").await;
            assert_eq!(reply.status(), Status::OutcomeUnknown, "{takes:?}");
            assert_eq!(
                reply.next_action(),
                Some("Look for the deployment in the provider's console")
            );
            assert!(!reply.is_retryable());
            lab.pass(100 * SECOND).await;
            let again = lab.call(BY_HAND, "by hand").await;
            assert_eq!(again.status(), Status::OutcomeUnknown);
            assert_eq!(
                lab.provider.requests(),
                1,
                "nothing is sent again by itself"
            );
        });
    }
}

#[test]
fn a_refusal_is_retained_and_replayed() {
    for tool in [BY_KEY, BY_ASKING, BY_HAND] {
        alone(async {
            let lab = Lab::new([Takes::Refuses]);
            let first = lab.call(tool, "refused").await;
            assert_eq!(first.status(), Status::Failed);
            assert_code(&first, "quota");
            assert!(!first.is_retryable() && !first.is_replayed());
            let again = lab.call(tool, "refused").await;
            assert!(again.is_replayed());
            assert_code(&again, "quota");
            assert_eq!(first.operation_id(), again.operation_id());
            assert_eq!(lab.provider.requests(), 1);
        });
    }
}

#[tokio::test]
async fn an_earlier_ambiguity_survives_a_later_refusal() {
    let lab = Lab::new([Takes::AppliesSilently, Takes::Conflicts]);
    let reply = lab.settle(BY_KEY, "conflict").await;
    assert_eq!(reply.status(), Status::OutcomeUnknown);
    assert!(reply.is_retryable());
    assert_eq!(lab.provider.deployments(), 1);
    // The same key inside the window settles it.
    let again = lab.settle(BY_KEY, "conflict").await;
    assert_eq!(again.status(), Status::Succeeded);
    assert_eq!(lab.provider.deployments(), 1);
}

#[test]
fn nothing_applied_runs_again_with_the_same_key() {
    for tool in [BY_KEY, BY_ASKING, BY_HAND] {
        alone(async {
            let lab = Lab::new([Takes::IsAway, Takes::IsAway, Takes::IsAway]);
            let reply = lab.settle(tool, "away").await;
            assert_eq!(reply.status(), Status::Failed);
            assert!(reply.is_retryable());
            assert_code(&reply, "away");
            assert_eq!(lab.provider.requests(), 3);
            let again = lab.settle(tool, "away").await;
            assert_succeeded(&again, false);
            assert_eq!(reply.operation_id(), again.operation_id());
            assert_eq!(lab.provider.deployments(), 1);
        });
    }
}

/// Whoever waited for a run gets what it came to, and begins no other.
#[tokio::test]
async fn callers_of_one_key_share_one_runs_failure() {
    let lab = Lab::new([Takes::IsAway, Takes::IsAway, Takes::IsAway]);
    let call = || {
        let tools = lab.tools.clone();
        tokio::spawn(async move { tools.call(&ada(), BY_KEY, arguments("shared")).await })
    };
    let callers = [call(), call(), call()];
    let clock = &lab.ledger.clock;
    for caller in callers {
        let reply = drive(clock, clock.elsewhere(caller)).await.unwrap();
        assert_code(&reply, "away");
        assert!(reply.is_retryable());
    }
    assert_eq!(lab.provider.requests(), 3);
    assert_succeeded(&lab.settle(BY_KEY, "shared").await, false);
}

#[tokio::test]
async fn an_attempt_is_capped_and_all_stay_within_the_deadline() {
    let lab = Lab::new([Takes::Hangs, Takes::Hangs, Takes::Hangs, Takes::Hangs]);
    let began = lab.ledger.clock.monotonic();
    let reply = lab.call(BY_KEY, "slow").await;
    assert_eq!(reply.status(), Status::Running);
    assert!(
        lab.ledger.clock.monotonic() - began < 6 * SECOND,
        "the wait is bounded"
    );
    let reply = lab.settle(BY_KEY, "slow").await;
    assert_eq!(reply.status(), Status::OutcomeUnknown);
    let times = lab.provider.request_times();
    assert_eq!(times.len(), 3);
    for pair in times.windows(2) {
        // The time-out of 8 s, then a jittered backoff of at most 400 ms.
        let apart = pair[1] - pair[0];
        assert!(8 * SECOND <= apart && apart < 10 * SECOND, "{apart:?}");
    }
    assert!(lab.ledger.clock.monotonic() - began < 31 * SECOND);
}

#[tokio::test]
async fn the_providers_guidance_is_kept() {
    let lab = Lab::new([Takes::AsksToWait(3 * SECOND)]);
    let reply = lab.settle(BY_KEY, "guided").await;
    assert_eq!(reply.status(), Status::Succeeded);
    let times = lab.provider.request_times();
    assert!(3 * SECOND <= times[1] - times[0]);
}

#[tokio::test]
async fn guidance_beyond_the_budget_ends_at_once() {
    let lab = Lab::new([Takes::AsksToWait(60 * SECOND)]);
    let began = lab.ledger.clock.monotonic();
    let reply = lab.settle(BY_KEY, "beyond").await;
    assert_eq!(reply.status(), Status::Failed);
    assert!(reply.is_retryable());
    assert_eq!(lab.ledger.clock.monotonic(), began, "it ends at once");
    assert_eq!(lab.provider.requests(), 1);
}

#[tokio::test]
async fn eight_callers_make_one_request() {
    let lab = Lab::new([Takes::Waits]);
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let tools = lab.tools.clone();
            tokio::spawn(async move { tools.call(&ada(), BY_HAND, arguments("eight")).await })
        })
        .collect();
    lab.provider.arrived.notified().await;
    let conflict = json!({ "idempotency_key": key("eight"), "image": marked("web:8") });
    assert_code(
        &lab.tools.call(&ada(), BY_HAND, conflict).await,
        "payload_conflict",
    );
    let mut replies = Vec::new();
    let gathered = async {
        for caller in callers {
            replies.push(caller.await.unwrap());
        }
    };
    let clock = &lab.ledger.clock;
    drive(clock, clock.elsewhere(gathered)).await;
    for reply in &replies {
        assert_eq!(reply.status(), Status::Running, "{}", reply.to_json());
        assert_eq!(reply.operation_id(), replies[0].operation_id());
    }
    let state = lab.get(&replies[0]).await;
    assert_eq!(state["status"], "running");
    assert_eq!(state["attempts"][0]["outcome"], "unreported");
    lab.provider.go_on.notify_one();
    let reply = lab.call(BY_HAND, "eight").await;
    assert_eq!(reply.status(), Status::Succeeded);
    let state = lab.get(&reply).await;
    assert_eq!(state["status"], "succeeded");
    assert_eq!(
        state["result"],
        serde_json::from_str::<serde_json::Value>(reply.result().unwrap().get()).unwrap()
    );
    assert!(state["key_expires_at"].is_string());
    assert_eq!(
        (lab.provider.requests(), lab.provider.deployments()),
        (1, 1)
    );
}

#[tokio::test]
async fn a_caller_that_leaves_changes_nothing() {
    let lab = Lab::new([Takes::Waits]);
    let tools = lab.tools.clone();
    let caller = tokio::spawn(async move { tools.call(&ada(), BY_HAND, arguments("left")).await });
    lab.provider.arrived.notified().await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    lab.provider.go_on.notify_one();
    let reply = lab.call(BY_HAND, "left").await;
    assert_eq!(reply.status(), Status::Succeeded);
    assert_eq!(lab.provider.requests(), 1);
}

/// Polls a future so many times at most.
pub(crate) struct Polls<F>(pub(crate) F, pub(crate) usize);

impl<F: Future + Unpin> Future for Polls<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.1 == 0 {
            return Poll::Ready(None);
        }
        self.1 -= 1;
        match Pin::new(&mut self.0).poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.1 == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// It is dropped after each number of polls: before it is recorded, before the dispatch,
/// during it, and when all is done.
#[test]
fn a_caller_that_leaves_at_any_moment_changes_nothing() {
    for tool in [BY_KEY, BY_ASKING, BY_HAND] {
        for polls in 0.. {
            let ledger = Ledger::new();
            let provider = Provider::new(&ledger.clock, []);
            let process = Process::start(&ledger.path(), &ledger.clock, |store, clock| {
                toolbox(&store, &provider.seen_from(clock))
            });
            let ada = ada();
            let leaves = Box::pin(process.tools.call(&ada, tool, arguments("leaves")));
            let reply = process.block_on(Polls(leaves, polls));
            process.go_on();
            let sent = provider.requests();
            let again = process.block_on(call(&process.tools, &process.clock, tool, "leaves"));
            assert_eq!(again.status(), Status::Succeeded, "{tool} after {polls}");
            assert_eq!(again.is_replayed(), sent == 1, "{tool} after {polls}");
            assert_eq!((provider.requests(), provider.deployments()), (1, 1));
            if reply.is_some() {
                // To be recorded, and to be done.
                assert!(2 <= polls, "{polls}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn past_the_providers_window_nothing_is_sent_again() {
    let lab = Lab::new([Takes::AppliesSilently, Takes::Conflicts]);
    let reply = lab.settle(BY_KEY, "window").await;
    assert_eq!(reply.status(), Status::OutcomeUnknown);
    lab.ledger.clock.advance(Duration::from_secs(24 * 60 * 60));
    let late = lab.settle(BY_KEY, "window").await;
    assert_eq!(late.status(), Status::OutcomeUnknown);
    assert!(!late.is_retryable());
    assert_eq!(lab.provider.requests(), 2);
}

#[tokio::test]
async fn a_small_step_back_of_the_clock_closes_no_window() {
    let lab = Lab::new([Takes::AppliesSilently, Takes::Conflicts]);
    let reply = lab.settle(BY_KEY, "back").await;
    assert_eq!(reply.status(), Status::OutcomeUnknown);
    let wall = lab.ledger.clock.wall();
    lab.ledger.clock.set_wall(wall - 30 * SECOND);
    let late = lab.settle(BY_KEY, "back").await;
    assert_eq!(late.status(), Status::Succeeded);
    assert_eq!(lab.provider.deployments(), 1);
}

#[tokio::test]
async fn a_no_counts_after_settling_and_then_the_same_call_sends_again() {
    let lab = Lab::new([Takes::LosesIt]);
    let began = lab.ledger.clock.monotonic();
    let reply = lab.settle(BY_ASKING, "settle").await;
    assert_eq!(reply.status(), Status::Succeeded);
    let times = lab.provider.request_times();
    assert_eq!(times.len(), 2);
    assert!(10 * SECOND <= times[1] - times[0], "{times:?}");
    assert!(lab.ledger.clock.monotonic() - began < 31 * SECOND);
    assert_eq!(lab.provider.deployments(), 1);
}

#[tokio::test]
async fn the_worker_asks_until_it_is_told() {
    let lab = Lab::new([Takes::AppliesSilently]);
    lab.provider.is_mute(true);
    let reply = lab.call(BY_ASKING, "mute").await;
    assert_eq!(reply.status(), Status::Running);
    lab.pass(60 * SECOND).await;
    let state = lab.get(&reply).await;
    assert_eq!(state["status"], "outcome_unknown");
    assert!(state["next_check_at"].is_string());
    lab.provider.is_mute(false);
    lab.pass(120 * SECOND).await;
    let state = lab.get(&reply).await;
    assert_eq!(state["status"], "succeeded");
    assert_eq!(
        (lab.provider.requests(), lab.provider.deployments()),
        (1, 1)
    );
    assert!(lab.provider.asked() < 40, "the intervals grow");
}

#[tokio::test]
async fn after_the_deadline_the_worker_settles_and_sends_nothing() {
    let lab = Lab::new([Takes::LosesIt]);
    lab.provider.is_mute(true);
    let reply = lab.call(BY_ASKING, "later").await;
    lab.pass(60 * SECOND).await;
    lab.provider.is_mute(false);
    lab.pass(120 * SECOND).await;
    let state = lab.get(&reply).await;
    assert_eq!(state["status"], "failed");
    assert_eq!(state["retryable"], true);
    assert_eq!(lab.provider.requests(), 1);
    let again = lab.call(BY_ASKING, "later").await;
    assert_succeeded(&again, false);
    assert_eq!(lab.provider.deployments(), 1);
}

#[test]
fn another_process_recovers_what_the_first_left() {
    for (tool, requests) in [(BY_KEY, 2), (BY_ASKING, 1), (BY_HAND, 1)] {
        let ledger = Ledger::new();
        let provider = Provider::new(&ledger.clock, [Takes::AppliesAndHangs]);
        let start = || {
            Process::start(&ledger.path(), &ledger.clock, |store, clock| {
                toolbox(&store, &provider.seen_from(clock))
            })
        };
        let first = start();
        let tools = first.tools.clone();
        let left = first.spawn(async move { tools.call(&ada(), tool, arguments("left")).await });
        first.go_on();
        drop((left, first));

        let second = start();
        let again = || second.block_on(call(&second.tools, &second.clock, tool, "left"));
        let mut reply = again();
        assert_eq!(reply.status(), Status::Running, "its lease is not over");
        while reply.status() == Status::Running || reply.is_retryable() {
            reply = again();
        }
        let expected = match tool {
            BY_HAND => Status::OutcomeUnknown,
            _ => Status::Succeeded,
        };
        assert_eq!(reply.status(), expected, "{tool}");
        assert_eq!(provider.deployments(), 1);
        assert_eq!(provider.requests(), requests);
    }
}

#[tokio::test]
async fn a_late_success_settles_what_was_unknown() {
    let lab = Lab::new([Takes::Waits]);
    let slow = lab.second();
    let first = tokio::spawn(async move {
        // Polled on while the other process takes the operation over.
        slow.call(&ada(), BY_HAND, arguments("late")).await
    });
    lab.provider.arrived.notified().await;
    // The lease is over for everybody else, as if the process had stood still; the attempt
    // goes on.
    let ends = "UPDATE idempotent_external SET lease_until = lease_began";
    let ledger = rusqlite::Connection::open(lab.ledger.path()).unwrap();
    assert_eq!(ledger.execute(ends, ()).unwrap(), 1);
    let taken = lab.tools.call(&ada(), BY_HAND, arguments("late")).await;
    assert_eq!(taken.status(), Status::OutcomeUnknown);
    lab.provider.go_on.notify_one();
    let clock = &lab.ledger.clock;
    let first = drive(clock, clock.elsewhere(first)).await.unwrap();
    assert_eq!(first.status(), Status::Succeeded, "{}", first.to_json());
    let reply = call(&lab.tools, &lab.ledger.clock, BY_HAND, "late").await;
    assert_succeeded(&reply, true);
    assert_eq!(lab.provider.deployments(), 1);
}

#[tokio::test]
async fn a_person_settles_what_nobody_else_can() {
    let lab = Lab::new([Takes::LosesIt]);
    let reply = lab.call(BY_HAND, "person").await;
    let id = reply.operation_id().unwrap();
    let resolution = |attempts, finding| Resolution {
        operation_id: id,
        attempts,
        finding,
        by: "ada".into(),
        why: "the console lists none".into(),
    };
    let unseen = lab.tools.resolve(resolution(0, Finding::NotApplied)).await;
    assert!(matches!(unseen, Err(ResolveError::MovedOn)));
    let unfit = Finding::Succeeded(json!({ "deployment": 7 }));
    let unfit = lab.tools.resolve(resolution(1, unfit)).await;
    assert!(matches!(unfit, Err(ResolveError::InvalidResult(_))));
    let settled = lab.tools.resolve(resolution(1, Finding::NotApplied)).await;
    assert_eq!(settled.unwrap().status(), Status::Failed);
    let again = lab.call(BY_HAND, "person").await;
    assert_succeeded(&again, false);
    assert_eq!(lab.provider.deployments(), 1);
    let late = lab.tools.resolve(resolution(2, Finding::NotApplied)).await;
    assert!(matches!(late, Err(ResolveError::MovedOn)));
}

#[tokio::test]
async fn a_person_knows_the_result() {
    let lab = Lab::new([Takes::AppliesSilently]);
    let reply = lab.call(BY_HAND, "found").await;
    let found = Resolution {
        operation_id: reply.operation_id().unwrap(),
        attempts: 1,
        finding: Finding::Succeeded(json!({ "deployment_id": marked("found") })),
        by: "ada".into(),
        why: "the console lists it".into(),
    };
    assert_eq!(
        lab.tools.resolve(found).await.unwrap().status(),
        Status::Succeeded
    );
    assert_succeeded(&lab.call(BY_HAND, "found").await, true);
}

#[tokio::test]
async fn a_finished_operation_keeps_its_fingerprint_alone() {
    let lab = Lab::new([]);
    assert_succeeded(&lab.call(BY_KEY, "reduced").await, false);
    let path = lab.ledger.path();
    let requests: i64 = rusqlite::Connection::open(path)
        .unwrap()
        .query_row(
            "SELECT count(*) FROM idempotent_external WHERE request IS NOT NULL",
            (),
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(requests, 0);
    let other = json!({ "idempotency_key": key("reduced"), "image": marked("web:8") });
    assert_code(
        &lab.tools.call(&ada(), BY_KEY, other).await,
        "payload_conflict",
    );
}

#[tokio::test]
async fn a_shut_down_toolbox_leaves_everything_recoverable() {
    let lab = Lab::new([Takes::Waits, Takes::Applies]);
    let tools = lab.tools.clone();
    let caller = tokio::spawn(async move { tools.call(&ada(), BY_KEY, arguments("down")).await });
    lab.provider.arrived.notified().await;
    let left = drive(&lab.ledger.clock, lab.tools.shut_down(SECOND)).await;
    assert_eq!(left, 1, "the attempt under way is still there");
    let refused = lab.tools.call(&ada(), BY_KEY, arguments("new")).await;
    assert_code(&refused, "busy");
    lab.provider.go_on.notify_one();
    let clock = &lab.ledger.clock;
    let reply = drive(clock, clock.elsewhere(caller)).await.unwrap();
    assert_eq!(reply.status(), Status::Succeeded);
    assert_eq!(lab.tools.shut_down(SECOND).await, 0);
}

/// Keeps the store's writer busy until the sender is used or dropped.
async fn hold(store: &SqliteStore) -> (mpsc::Sender<()>, JoinHandle<()>) {
    let (entered, enter) = mpsc::channel();
    let (leave, wait) = mpsc::channel::<()>();
    let store = store.clone();
    let held = tokio::spawn(async move {
        let hold = move |_: &Transaction| {
            entered.send(()).unwrap();
            wait.recv()
        };
        store.transact(hold).await.unwrap();
    });
    yield_now().await;
    enter.recv().unwrap();
    (leave, held)
}

/// An attempt of this tool may take eight seconds, and there may be three; the call has thirty.
#[tokio::test]
async fn waiting_for_the_store_counts_as_attempts_do() {
    let lab = Lab::new([Takes::Hangs, Takes::Hangs, Takes::Hangs]);
    let clock = &lab.ledger.clock;
    let began = clock.monotonic();
    let (leave, held) = hold(&lab.ledger.store).await;
    let tools = lab.tools.clone();
    let caller = tokio::spawn(async move { tools.call(&ada(), BY_KEY, arguments("late")).await });
    yield_now().await;
    clock.advance(25 * SECOND);
    leave.send(()).unwrap();
    held.await.unwrap();
    let reply = drive(clock, clock.elsewhere(caller)).await.unwrap();
    assert_eq!(reply.status(), Status::Accepted, "{}", reply.to_json());
    lab.pass(60 * SECOND).await;
    let times = lab.provider.request_times();
    assert_eq!(times.len(), 1, "{times:?}");
    assert!(began + 25 * SECOND <= times[0] && times[0] < began + 30 * SECOND);
}

#[tokio::test]
async fn a_full_queue_is_busy_as_for_any_tool() {
    let lab = Lab::new([]);
    let store = SqliteStore::options()
        .clock(lab.ledger.clock.clone())
        .queued_calls(1)
        .open(lab.ledger.path())
        .unwrap();
    let tools = toolbox(&store, &lab.provider);
    let (leave, first) = hold(&store).await;
    let second = store.clone();
    let second = tokio::spawn(async move { second.transact(|_| Ok::<_, Failure>(())).await });
    yield_now().await;
    let reply = tools.call(&ada(), BY_KEY, arguments("full")).await;
    assert_code(&reply, "busy");
    assert!(reply.is_retryable() && reply.retry_after().is_some());
    leave.send(()).unwrap();
    first.await.unwrap();
    second.await.unwrap().unwrap();
    let reply = call(&tools, &lab.ledger.clock, BY_KEY, "full").await;
    assert_succeeded(&reply, false);
    assert_eq!(lab.provider.requests(), 1);
}

/// It was recorded and sent: an answer that nothing was written would be a lie.
#[tokio::test]
async fn a_ledger_that_cannot_be_read_any_more_is_no_sign_that_nothing_happened() {
    let lab = Lab::new([Takes::Waits]);
    let rename = |from: &str, to: &str| {
        let connection = rusqlite::Connection::open(lab.ledger.path()).unwrap();
        let rename = format!("ALTER TABLE {from} RENAME TO {to}");
        connection.execute_batch(&rename).unwrap();
    };
    let tools = lab.tools.clone();
    let call = tokio::spawn(async move { tools.call(&ada(), BY_HAND, arguments("blind")).await });
    lab.provider.arrived.notified().await;
    rename("idempotent_attempts", "hidden");
    let clock = &lab.ledger.clock;
    let reply = drive(clock, clock.elsewhere(call)).await.unwrap();
    assert_eq!(
        reply.status(),
        Status::OutcomeUnknown,
        "{}",
        reply.to_json()
    );
    assert!(reply.is_retryable() && reply.operation_id().is_some());
    rename("hidden", "idempotent_attempts");
    lab.provider.go_on.notify_one();
    let again = lab.settle(BY_HAND, "blind").await;
    assert_eq!(again.status(), Status::Succeeded, "{}", again.to_json());
    assert_eq!(again.operation_id(), reply.operation_id());
    assert_eq!(
        (lab.provider.requests(), lab.provider.deployments()),
        (1, 1)
    );
}
