//! What a transactional handler enqueues.

use std::time::Duration;

use idempotent_tool::{Failure, Reply, Toolbox, Tx, idempotent_tool};
use serde_json::json;

use crate::{
    common::{Ledger, ada, assert_code, assert_succeeded, key, marked},
    provider::{Provider, Takes, deploy_by_key, drive},
};

/// Create a note and have it deployed.
#[idempotent_tool(operation = "create_and_deploy:v1")]
fn create_and_deploy(tx: &Tx, body: String, fails: bool) -> Result<i64, Failure> {
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
    if fails {
        return Err(Failure::new("unwanted", "it was not wanted"));
    }
    Ok(note)
}

/// Enqueue under a key that has other arguments.
#[idempotent_tool(operation = "deploy_twice:v1")]
fn deploy_twice(tx: &Tx) -> Result<bool, Failure> {
    tx.enqueue::<deploy_by_key>(&key("twice"), &json!({ "image": marked("web:1") }))?;
    tx.enqueue::<deploy_by_key>(&key("twice"), &json!({ "image": marked("web:2") }))?;
    Ok(true)
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
        .tool::<deploy_by_key>()
        .tool::<create_and_deploy>()
        .tool::<deploy_twice>()
        .build()
        .unwrap();
    Outbox {
        ledger,
        provider,
        tools,
    }
}

impl Outbox {
    async fn create(&self, name: &str, fails: bool) -> Reply {
        let arguments =
            json!({ "idempotency_key": key(name), "body": marked("milk"), "fails": fails });
        self.tools
            .call(&ada(), "create_and_deploy", arguments)
            .await
    }

    async fn pass(&self, time: Duration) {
        use idempotent_tool::Clock;
        let clock = &self.ledger.clock;
        let until = clock.monotonic() + time;
        drive(clock, async { clock.reached(until).await }).await;
    }
}

#[tokio::test]
async fn what_is_enqueued_is_dispatched_once_after_the_commit() {
    let outbox = outbox([]);
    assert_succeeded(&outbox.create("one", false).await, false);
    assert_succeeded(&outbox.create("one", false).await, true);
    outbox.pass(Duration::from_secs(5)).await;
    assert_eq!(outbox.provider.requests(), 1);
    assert_eq!(outbox.provider.deployments(), 1);
}

#[tokio::test]
async fn a_rolled_back_handler_enqueues_nothing() {
    let outbox = outbox([]);
    assert_code(&outbox.create("undone", true).await, "unwanted");
    outbox.pass(Duration::from_secs(5)).await;
    assert_eq!(outbox.provider.requests(), 0);
    assert_eq!(outbox.ledger.rows(), (0, 0));
}

#[tokio::test]
async fn a_provider_that_is_away_gets_it_when_it_is_back() {
    let outbox = outbox(vec![Takes::IsAway; 7]);
    assert_succeeded(&outbox.create("patient", false).await, false);
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
    assert_succeeded(&outbox.create("lost", false).await, false);
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
