//! What a transactional handler enqueues.

use std::{
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use idempotent_tool::{Clock, Failure, Reply, Status, Toolbox, Tx, idempotent_tool};
use serde_json::json;
use tokio::task::yield_now;

use crate::{
    common::{Ledger, ada, assert_code, assert_succeeded, key, marked},
    pace::{PacedClock, alone, drive},
    provider::{BY_KEY, Provider, Takes, call, deploy_by_hand, deploy_by_key},
};

/// Create a note and have it deployed, and then go wrong in the way that is told.
#[idempotent_tool(operation = "create_and_deploy:v1")]
fn create_and_deploy(
    tx: &Tx,
    body: String,
    how: String,
    #[state] clock: &PacedClock,
) -> Result<i64, Failure> {
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, ?2)",
        (tx.scope(), &body),
    )?;
    let note = tx.last_insert_rowid();
    let image = json!({ "image": marked("web:9") });
    let first = tx.enqueue::<deploy_by_key>(&key(&format!("deploy {note}")), &image)?;
    let again = tx.enqueue::<deploy_by_key>(&key(&format!("deploy {note}")), &image)?;
    assert_eq!(first, again);
    assert_eq!(tx.last_insert_rowid(), note);
    assert_eq!(
        tx.changes(),
        0,
        "the runtime's own rows are not the handler's"
    );
    match how.as_str() {
        "well" => return Ok(note),
        "panic" => panic!("it goes wrong"),
        "rollback" => {
            let again = "INSERT OR ROLLBACK INTO notes (id, scope, body) VALUES (?1, '', '')";
            tx.execute(again, [note])?;
        }
        "deadline" => {
            clock.advance(Duration::from_secs(60));
            let endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                           SELECT count(*) FROM n";
            tx.query_row(endless, (), |_| Ok(()))?;
        }
        _ => (),
    }
    Err(Failure::new("unwanted", "it was not wanted"))
}

/// How a handler goes wrong, and what is said of it.
const WAYS: [(&str, &str); 4] = [
    ("error", "unwanted"),
    ("panic", "handler_panicked"),
    ("rollback", "constraint_violated"),
    ("deadline", "deadline_exceeded"),
];

/// Enqueue many.
#[idempotent_tool(operation = "deploy_often:v1")]
fn deploy_often(tx: &Tx, times: usize) -> Result<usize, Failure> {
    for number in 0..times {
        let image = json!({ "image": marked("web:9") });
        tx.enqueue::<deploy_by_key>(&key(&number.to_string()), &image)?;
    }
    Ok(times)
}

/// Enqueue one for another tool.
#[idempotent_tool(operation = "deploy_otherwise:v1")]
fn deploy_otherwise(tx: &Tx) -> Result<(), Failure> {
    tx.enqueue::<deploy_by_hand>(&key("otherwise"), &json!({ "image": marked("web:9") }))?;
    Ok(())
}

/// Enqueue under a key that has other arguments.
#[idempotent_tool(operation = "deploy_twice:v1")]
fn deploy_twice(tx: &Tx) -> Result<bool, Failure> {
    tx.enqueue::<deploy_by_key>(&key("twice"), &json!({ "image": marked("web:1") }))?;
    tx.enqueue::<deploy_by_key>(&key("twice"), &json!({ "image": marked("web:2") }))?;
    Ok(true)
}

/// Enqueue under a key that a direct call may have used.
#[idempotent_tool(operation = "deploy_known:v1")]
fn deploy_known(tx: &Tx) -> Result<String, Failure> {
    let id = tx.enqueue::<deploy_by_key>(&key("known"), &json!({ "image": marked("web:7") }))?;
    Ok(id.to_string())
}

/// Enqueue what doesn't fit, in this many places.
#[idempotent_tool(operation = "deploy_unfit:v1")]
fn deploy_unfit(tx: &Tx, places: usize) -> Result<(), Failure> {
    let members = (0..places).map(|place| (format!("m{place:05}"), json!(marked("unfit"))));
    let arguments = serde_json::Value::Object(members.collect());
    tx.enqueue::<deploy_by_key>(&key("unfit"), &arguments)?;
    Ok(())
}

struct Outbox {
    ledger: Ledger,
    provider: Provider,
    tools: Toolbox,
}

fn outbox(script: impl IntoIterator<Item = Takes>) -> Outbox {
    let ledger = Ledger::new();
    let provider = Provider::new(&ledger.clock, script);
    let tools = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .state(provider.clone())
        .state(ledger.clock.clone())
        .tool::<deploy_by_key>()
        .tool::<create_and_deploy>()
        .tool::<deploy_twice>()
        .tool::<deploy_known>()
        .build()
        .unwrap();
    Outbox {
        ledger,
        provider,
        tools,
    }
}

impl Outbox {
    async fn create(&self, name: &str, how: &str) -> Reply {
        create(&self.tools, name, how).await
    }

    async fn pass(&self, time: Duration) {
        let clock = &self.ledger.clock;
        drive(clock, clock.reached(clock.monotonic() + time)).await;
    }
}

async fn create(tools: &Toolbox, name: &str, how: &str) -> Reply {
    let arguments = json!({ "idempotency_key": key(name), "body": marked("milk"), "how": how });
    tools.call(&ada(), "create_and_deploy", arguments).await
}

#[tokio::test]
async fn what_is_enqueued_is_dispatched_once_after_the_commit() {
    let outbox = outbox([]);
    assert_succeeded(&outbox.create("one", "well").await, false);
    assert_succeeded(&outbox.create("one", "well").await, true);
    outbox.pass(Duration::from_secs(5)).await;
    assert_eq!(outbox.provider.requests(), 1);
    assert_eq!(outbox.provider.deployments(), 1);
}

#[tokio::test]
async fn a_replay_enqueues_nothing() {
    let outbox = outbox([]);
    assert_succeeded(&outbox.create("one", "well").await, false);
    assert_eq!(outbox.ledger.rows(), (1, 2), "a receipt and an operation");
    assert_succeeded(&outbox.create("one", "well").await, true);
    assert_eq!(outbox.ledger.rows(), (1, 2));
    outbox.pass(Duration::from_secs(5)).await;
    assert_succeeded(&outbox.create("one", "well").await, true);
    assert_eq!(outbox.ledger.rows(), (1, 2));
}

#[test]
fn a_rolled_back_handler_enqueues_nothing() {
    for (how, code) in WAYS {
        alone(async {
            let outbox = outbox([]);
            assert_code(&outbox.create("undone", how).await, code);
            assert_eq!(outbox.ledger.rows(), (0, 0), "{how}");
            outbox.pass(Duration::from_secs(5)).await;
            assert_eq!(outbox.provider.requests(), 0, "{how}");
        });
    }
}

#[test]
fn a_rolled_back_handler_takes_nothing_of_its_batch_along() {
    for (how, code) in WAYS {
        alone(takes_nothing_along(how, code));
    }
}

async fn takes_nothing_along(how: &'static str, code: &str) {
    let outbox = outbox([]);
    let (leave, wait) = mpsc::channel::<()>();
    let store = outbox.ledger.store.clone();
    let first = tokio::spawn(async move { store.transact(move |_| wait.recv()).await });
    yield_now().await;
    // Queued behind it, they share a commit.
    let calls: Vec<_> = (0..7)
        .map(|call| {
            let (tools, name) = (outbox.tools.clone(), call.to_string());
            let how = if call == 3 { how } else { "well" };
            tokio::spawn(async move { create(&tools, &name, how).await })
        })
        .collect();
    yield_now().await;
    leave.send(()).unwrap();
    first.await.unwrap().unwrap();
    for (call, reply) in calls.into_iter().enumerate() {
        let reply = reply.await.unwrap();
        match call {
            3 => assert_code(&reply, code),
            // The time that the one takes is over for those behind it, too.
            _ if how == "deadline" && reply.is_error() => assert!(reply.is_retryable()),
            _ => assert_succeeded(&reply, false),
        }
    }
    let (notes, operations) = outbox.ledger.rows();
    assert_eq!(operations, 2 * notes, "{how}");
    assert!(notes == 6 || how == "deadline", "{how}: {notes}");
    outbox.pass(Duration::from_secs(5)).await;
    let requests = i64::try_from(outbox.provider.requests()).unwrap();
    assert_eq!(requests, notes, "{how}");
}

/// More than a pass looks at, all of them due for longer than the one that can be run.
#[tokio::test]
async fn operations_of_a_tool_that_is_gone_keep_no_other_back() {
    const GONE: usize = 1_100;
    let ledger = Ledger::new();
    let provider = Provider::new(&ledger.clock, []);
    let before = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .state(provider.clone())
        .tool::<deploy_by_key>()
        .tool::<deploy_often>()
        .build()
        .unwrap();
    let arguments = json!({ "idempotency_key": key("often"), "times": GONE });
    let reply = before.call(&ada(), "deploy_often", arguments).await;
    assert_succeeded(&reply, false);
    drop(before);
    ledger.clock.advance(Duration::from_secs(1));

    let after = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .state(provider.clone())
        .tool::<deploy_by_hand>()
        .tool::<deploy_otherwise>()
        .build()
        .unwrap();
    let arguments = json!({ "idempotency_key": key("one") });
    let reply = after.call(&ada(), "deploy_otherwise", arguments).await;
    assert_succeeded(&reply, false);
    let clock = &ledger.clock;
    drive(
        clock,
        clock.reached(clock.monotonic() + Duration::from_secs(3)),
    )
    .await;
    assert_eq!(provider.requests(), 1);
}

#[tokio::test]
async fn a_provider_that_is_away_gets_it_when_it_is_back() {
    let outbox = outbox(vec![Takes::IsAway; 7]);
    assert_succeeded(&outbox.create("patient", "well").await, false);
    outbox.pass(Duration::from_secs(60)).await;
    assert_eq!(outbox.provider.deployments(), 1);
    assert_eq!(outbox.provider.requests(), 8);
}

#[tokio::test]
async fn a_lost_answer_is_sent_again_under_the_same_identity() {
    let outbox = outbox([
        Takes::AppliesSilently,
        Takes::LosesIt,
        Takes::AppliesSilently,
    ]);
    assert_succeeded(&outbox.create("lost", "well").await, false);
    outbox.pass(Duration::from_secs(60)).await;
    assert_eq!(outbox.provider.deployments(), 1);
    assert_eq!(outbox.provider.requests(), 4);
}

#[tokio::test]
async fn a_key_with_other_arguments_is_the_handlers_error() {
    let outbox = outbox([]);
    let reply = outbox
        .tools
        .call(
            &ada(),
            "deploy_twice",
            json!({ "idempotency_key": key("t") }),
        )
        .await;
    assert_code(&reply, "enqueue_conflict");
    outbox.pass(Duration::from_secs(5)).await;
    assert_eq!(outbox.provider.requests(), 0);
}

#[tokio::test]
async fn a_key_whose_operation_came_to_nothing_is_the_handlers_error() {
    let outbox = outbox([Takes::Refuses]);
    let clock = &outbox.ledger.clock;
    let refused = call(&outbox.tools, clock, BY_KEY, "known").await;
    assert_eq!(refused.status(), Status::Failed, "{}", refused.to_json());
    let arguments = json!({ "idempotency_key": key("after") });
    let reply = outbox.tools.call(&ada(), "deploy_known", arguments).await;
    assert_code(&reply, "operation_ended");
    outbox.pass(Duration::from_secs(5)).await;
    assert_eq!(outbox.provider.requests(), 1);
}

/// Nothing would be dispatched for it, so the handler must hear of it, as a caller does.
#[tokio::test]
async fn a_key_that_has_expired_is_the_handlers_error() {
    let outbox = outbox([]);
    let known = async |name: &str| {
        let arguments = json!({ "idempotency_key": key(name) });
        let caller = ada();
        outbox.tools.call(&caller, "deploy_known", arguments).await
    };
    let clock = &outbox.ledger.clock;
    assert_succeeded(&call(&outbox.tools, clock, BY_KEY, "known").await, false);
    assert_succeeded(&known("early").await, false);
    clock.advance(Duration::from_hours(10 * 24));
    assert_code(
        &call(&outbox.tools, clock, BY_KEY, "known").await,
        "key_expired",
    );
    assert_code(&known("late").await, "key_expired");
}

/// Whoever called the handler learns where; the operator learns what as well.
#[tokio::test]
async fn arguments_that_do_not_fit_are_told_by_their_paths() {
    let ledger = Ledger::new();
    let causes = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&causes);
    let tools = Toolbox::builder(ledger.store.clone())
        .without_authorization()
        .state(Provider::new(&ledger.clock, []))
        .on_failure(move |tool, error| {
            let cause = error.source().map(ToString::to_string);
            heard.lock().unwrap().push((tool.to_owned(), cause));
        })
        .tool::<deploy_by_key>()
        .tool::<deploy_unfit>()
        .build()
        .unwrap();
    for (places, told) in [
        (0, "at `/image`"),
        (1, "at `/image`; `/m00000`"),
        (5_000, "`/m00030`; and 4969 more"),
    ] {
        let arguments = json!({ "idempotency_key": key("unfit"), "places": places });
        let reply = tools.call(&ada(), "deploy_unfit", arguments).await;
        assert_code(&reply, "invalid_arguments");
        let message = reply.error_message().unwrap();
        assert!(message.ends_with(told), "{message}");
        let (tool, cause) = causes.lock().unwrap().pop().unwrap();
        let cause = cause.unwrap();
        assert_eq!(tool, "deploy_unfit");
        assert!(cause.starts_with("`/image` is required"), "{cause}");
        assert!(message.len().max(cause.len()) < 10_000);
    }
    assert_eq!(ledger.rows(), (0, 0));
}
