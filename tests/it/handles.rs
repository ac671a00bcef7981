//! `get_operation` and `cancel_operation`.

use idempotent_tool::Status;
use serde_json::json;

use crate::{
    common::{ada, assert_code, caller},
    pace::drive,
    provider::{BY_ASKING, BY_HAND, BY_KEY, Lab, Takes, arguments},
};

#[tokio::test]
async fn only_the_scope_of_an_operation_sees_it() {
    let lab = Lab::new([]);
    let reply = lab.call(BY_KEY, "mine").await;
    let id = reply.operation_id().unwrap().to_string();
    for tool in ["get_operation", "cancel_operation"] {
        for id in [
            id.as_str(),
            "op_42",
            "",
            "op_0190163d8694739b8ab4a3c0d1f2e3a4",
        ] {
            let asked = json!({ "operation_id": id });
            let reply = lab.tools.call(&caller("eve"), tool, asked).await;
            assert_code(&reply, "not_found");
            assert!(reply.is_error());
        }
        for arguments in [
            json!({}),
            json!({ "operation_id": 7 }),
            json!({ "operation_id": id, "x": 1 }),
        ] {
            let reply = lab.tools.call(&ada(), tool, arguments).await;
            assert_code(&reply, "invalid_arguments");
        }
    }
    assert_eq!(lab.get(&reply).await["status"], "succeeded");
}

#[tokio::test]
async fn the_listing_has_both() {
    let lab = Lab::new([]);
    let names: Vec<_> = lab.tools.list().map(|tool| tool.name.clone()).collect();
    assert_eq!(
        names,
        [
            "cancel_operation",
            BY_ASKING,
            BY_HAND,
            BY_KEY,
            "get_operation"
        ]
    );
    let annotations = lab.tools.describe("get_operation").unwrap().annotations;
    assert!(annotations.read_only);
}

#[tokio::test]
async fn cancelling_after_the_end_changes_nothing() {
    let lab = Lab::new([]);
    let reply = lab.call(BY_KEY, "ended").await;
    let cancelled = lab.cancel(&reply).await;
    assert_eq!(cancelled.status(), Status::Succeeded);
    assert!(!cancelled.is_error());
}

#[tokio::test]
async fn cancelling_between_attempts_stops_and_is_replayed() {
    let lab = Lab::new([Takes::AsksToWait(std::time::Duration::from_secs(20))]);
    let reply = lab.call(BY_HAND, "between").await;
    assert_eq!(reply.status(), Status::Running);
    assert_eq!(lab.cancel(&reply).await.status(), Status::Cancelled);
    let again = lab.call(BY_HAND, "between").await;
    assert_eq!(again.status(), Status::Cancelled);
    assert!(again.is_replayed());
    lab.pass(std::time::Duration::from_secs(60)).await;
    assert_eq!(lab.provider.requests(), 1);
    assert_eq!(lab.provider.deployments(), 0);
}

#[tokio::test]
async fn cancelling_an_attempt_tells_what_really_happened() {
    let lab = Lab::new([Takes::Waits]);
    let tools = lab.tools.clone();
    let call = tokio::spawn(async move { tools.call(&ada(), BY_HAND, arguments("during")).await });
    lab.provider.arrived.notified().await;
    // Asked for by the key, since the first caller still waits.
    let handle = drive(
        &lab.ledger.clock,
        lab.tools.call(&ada(), BY_HAND, arguments("during")),
    )
    .await;
    assert_eq!(lab.cancel(&handle).await.status(), Status::CancelRequested);
    assert_eq!(lab.get(&handle).await["status"], "cancel_requested");
    lab.provider.go_on.notify_one();
    let clock = &lab.ledger.clock;
    let _ = drive(clock, clock.elsewhere(call)).await.unwrap();
    let reply = lab.call(BY_HAND, "during").await;
    assert_eq!(reply.status(), Status::Succeeded);
    assert_eq!(lab.provider.deployments(), 1);
}

#[tokio::test]
async fn a_cancelled_ambiguity_is_asked_about_and_never_sent_again() {
    let lab = Lab::new([Takes::Hangs]);
    let reply = lab.call(BY_ASKING, "hangs").await;
    assert_eq!(reply.status(), Status::Running);
    assert_eq!(lab.cancel(&reply).await.status(), Status::CancelRequested);
    lab.pass(std::time::Duration::from_secs(120)).await;
    assert_eq!(lab.get(&reply).await["status"], "cancelled");
    assert_eq!(lab.provider.requests(), 1);
}

#[tokio::test]
async fn an_attempt_hears_of_a_cancellation_in_another_process() {
    let lab = Lab::new([Takes::StopsWhenCancelled]);
    let other = lab.second();
    let call = tokio::spawn(async move { other.call(&ada(), BY_HAND, arguments("other")).await });
    lab.provider.arrived.notified().await;
    let clock = &lab.ledger.clock;
    let handle = drive(clock, clock.elsewhere(call)).await.unwrap();
    assert_eq!(handle.status(), Status::Running);
    assert_eq!(lab.cancel(&handle).await.status(), Status::CancelRequested);
    lab.pass(std::time::Duration::from_secs(1)).await;
    assert_eq!(lab.look(&handle).await.status(), Status::Cancelled);
}
