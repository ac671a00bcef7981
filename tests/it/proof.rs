//! A success that is heard of wins over whatever was told before, and what stands for an
//! operation towards its provider outlives everything else.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use idempotent_tool::{
    Attempt, AttemptError, Failure, Finding, Incident, IncidentKind, OperationId, Resolution,
    ResolveError, SqliteStore, Status, Toolbox, Tx, idempotent_tool,
};
use rusqlite::{Connection, OptionalExtension};
use serde_json::{Value, json};

use crate::{
    common::{Ledger, ada, assert_code, assert_succeeded, json as shape, key, marked},
    external::Polls,
    pace::{PacedClock, alone, drive},
    process::Process,
    provider::{
        BY_ASKING, BY_HAND, BY_KEY, Lab, Provider, Takes, arguments, call, deploy_by_asking,
        deploy_by_hand, deploy_by_key, toolbox,
    },
};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_hours(24);

type Incidents = Arc<Mutex<Vec<Incident>>>;

/// The three tools, and a list of what an operator is told.
fn watched(store: SqliteStore, provider: &Provider, incidents: &Incidents) -> Toolbox {
    let incidents = Arc::clone(incidents);
    Toolbox::builder(store)
        .without_authorization()
        .state(provider.clone())
        .tool::<deploy_by_key>()
        .tool::<deploy_by_asking>()
        .tool::<deploy_by_hand>()
        .tool::<order>()
        .on_incident(move |incident| incidents.lock().unwrap().push(incident.clone()))
        .build()
        .unwrap()
}

/// Have a deployment started by the tool that is named.
#[idempotent_tool(operation = "order:v1")]
fn order(tx: &Tx, tool: String) -> Result<String, Failure> {
    let image = json!({ "image": marked("web:7") });
    let key = key("ordered");
    let id = match tool.as_str() {
        BY_KEY => tx.enqueue::<deploy_by_key>(&key, &image)?,
        BY_ASKING => tx.enqueue::<deploy_by_asking>(&key, &image)?,
        _ => tx.enqueue::<deploy_by_hand>(&key, &image)?,
    };
    Ok(id.to_string())
}

/// A process that stands still, a ledger, and the incidents of all processes on it.
struct Two {
    ledger: Ledger,
    provider: Provider,
    incidents: Incidents,
}

impl Two {
    fn new(script: impl IntoIterator<Item = Takes>) -> Self {
        let ledger = Ledger::new();
        let provider = Provider::new(&ledger.clock, script);
        Self {
            ledger,
            provider,
            incidents: Arc::default(),
        }
    }

    fn start(&self) -> Process {
        Process::start(&self.ledger.path(), &self.ledger.clock, |store, clock| {
            watched(store, &self.provider.seen_from(clock), &self.incidents)
        })
    }

    /// A process whose attempt has sent and is about to hear of its success, but stands still
    /// past its lease; and the operation.
    fn stopped_before_its_success(&self, tool: &'static str, name: &'static str) -> Process {
        let first = self.start();
        let tools = first.tools.clone();
        let caller = first.spawn(async move { tools.call(&ada(), tool, arguments(name)).await });
        first.go_on();
        assert_eq!(self.provider.requests(), 1);
        // Whoever calls has left; the attempt's handler comes first when the process goes on.
        drop(caller);
        self.provider.go_on.notify_one();
        self.ledger.clock.advance(60 * SECOND);
        first
    }

    fn kinds(&self) -> Vec<IncidentKind> {
        let incidents = self.incidents.lock().unwrap();
        incidents.iter().map(|it| it.kind.clone()).collect()
    }
}

fn finding(operation_id: OperationId, attempts: u32, finding: Finding) -> Resolution {
    Resolution {
        operation_id,
        attempts,
        finding,
        by: "grace".into(),
        why: "the console lists none".into(),
    }
}

fn ask(process: &Process, tool: &str, id: OperationId) -> Value {
    let asked = json!({ "operation_id": id.to_string() });
    let reply = process.block_on(async { process.tools.call(&ada(), tool, asked).await });
    shape(&reply)
}

/// Its caller was told to call again with the same key: that must not send.
#[test]
fn a_success_after_a_false_finding_wins() {
    for found in [
        Finding::NotApplied,
        Finding::Failed {
            code: "gone".into(),
            message: "it is not there".into(),
        },
    ] {
        let two = Two::new([Takes::Waits]);
        let first = two.stopped_before_its_success(BY_HAND, "late");
        let second = two.start();
        let unknown = second.block_on(call(&second.tools, &second.clock, BY_HAND, "late"));
        assert_eq!(unknown.status(), Status::OutcomeUnknown);
        let id = unknown.operation_id().unwrap();
        let resolved = second.tools.resolve(finding(id, 1, found));
        let settled = second.block_on(resolved).unwrap();
        assert_eq!(settled.status(), Status::Failed);

        first.go_on();
        let told = ask(&second, "get_operation", id);
        assert_eq!(told["status"], "succeeded", "{told}");
        assert_eq!(told["attempts"][0]["outcome"], "succeeded");
        let again = second.block_on(call(&second.tools, &second.clock, BY_HAND, "late"));
        assert_succeeded(&again, true);
        assert_eq!(
            (two.provider.requests(), two.provider.deployments()),
            (1, 1)
        );
        assert_eq!(
            two.kinds(),
            [IncidentKind::Overruled {
                was_cancelled: false,
                settled_by: Some("grace".into()),
            }]
        );
        // The retention begins with the success.
        two.ledger.clock.advance(29 * DAY);
        assert_eq!(ask(&second, "get_operation", id)["status"], "succeeded");
    }
}

/// To cancel takes back nothing that was sent.
#[test]
fn a_success_after_a_cancellation_wins() {
    let two = Two::new([Takes::Waits]);
    let first = two.stopped_before_its_success(BY_HAND, "cancelled");
    let second = two.start();
    let unknown = second.block_on(call(&second.tools, &second.clock, BY_HAND, "cancelled"));
    let id = unknown.operation_id().unwrap();
    assert_eq!(
        ask(&second, "cancel_operation", id)["status"],
        "outcome_unknown"
    );
    let resolved = second.tools.resolve(finding(id, 1, Finding::NotApplied));
    let settled = second.block_on(resolved).unwrap();
    assert_eq!(settled.status(), Status::Cancelled);

    first.go_on();
    let told = ask(&second, "get_operation", id);
    assert_eq!(told["status"], "succeeded", "{told}");
    let again = second.block_on(call(&second.tools, &second.clock, BY_HAND, "cancelled"));
    assert_succeeded(&again, true);
    assert_eq!(two.provider.requests(), 1);
    assert_eq!(
        two.kinds(),
        [IncidentKind::Overruled {
            was_cancelled: true,
            settled_by: Some("grace".into()),
        }]
    );
}

/// The same key has begun to send again when the first attempt is heard of.
#[test]
fn a_later_attempt_is_asked_to_stop_when_the_first_has_succeeded() {
    let two = Two::new([Takes::Waits, Takes::StopsWhenCancelled]);
    let first = two.stopped_before_its_success(BY_HAND, "late");
    let second = two.start();
    let unknown = second.block_on(call(&second.tools, &second.clock, BY_HAND, "late"));
    let id = unknown.operation_id().unwrap();
    let resolved = second.tools.resolve(finding(id, 1, Finding::NotApplied));
    let _settled = second.block_on(resolved).unwrap();
    let tools = second.tools.clone();
    let again = second.spawn(async move { tools.call(&ada(), BY_HAND, arguments("late")).await });
    second.go_on();
    assert_eq!(two.provider.requests(), 2, "the same key sends again");

    first.go_on();
    // The second process hears of it when its worker looks.
    for _ in 0..4 {
        two.ledger.clock.advance(SECOND / 2);
        second.go_on();
    }
    let reply = second.block_on(again).unwrap();
    assert_eq!(reply.status(), Status::Succeeded, "{}", reply.to_json());
    assert_eq!(
        (two.provider.requests(), two.provider.deployments()),
        (2, 1)
    );
}

#[test]
fn a_second_success_is_recorded_and_changes_nothing() {
    let two = Two::new([Takes::Waits, Takes::Applies]);
    let first = two.stopped_before_its_success(BY_HAND, "twice");
    let second = two.start();
    let unknown = second.block_on(call(&second.tools, &second.clock, BY_HAND, "twice"));
    let id = unknown.operation_id().unwrap();
    let resolved = second.tools.resolve(finding(id, 1, Finding::NotApplied));
    let _settled = second.block_on(resolved).unwrap();
    let again = second.block_on(call(&second.tools, &second.clock, BY_HAND, "twice"));
    assert_succeeded(&again, false);
    let before = ask(&second, "get_operation", id);

    first.go_on();
    let after = ask(&second, "get_operation", id);
    assert_eq!(after["result"], before["result"]);
    assert_eq!(after["key_expires_at"], before["key_expires_at"]);
    assert_eq!(after["attempts"][0]["outcome"], "succeeded");
    assert_eq!(
        two.kinds(),
        [IncidentKind::SucceededTwice {
            settled_by: Some("grace".into())
        }]
    );
}

/// Nothing was in doubt: to cancel it is to have nothing sent any more.
#[test]
fn what_failed_with_nothing_applied_can_be_cancelled() {
    for tool in [BY_KEY, BY_ASKING, BY_HAND] {
        alone(async {
            let lab = Lab::new([Takes::IsAway, Takes::IsAway, Takes::IsAway]);
            let failed = lab.settle(tool, "cancelled").await;
            assert_code(&failed, "away");
            assert_eq!(lab.cancel(&failed).await.status(), Status::Cancelled);
            let again = lab.settle(tool, "cancelled").await;
            assert_eq!(again.status(), Status::Cancelled, "{}", again.to_json());
            assert_eq!(lab.provider.requests(), 3);
        });
    }
}

#[test]
fn a_person_may_find_a_success_after_every_other_end() {
    alone(async {
        let found = || Finding::Succeeded(json!({ "deployment_id": marked("found") }));
        let lab = Lab::new(vec![Takes::Refuses]);
        let refused = lab.settle(BY_HAND, "refused").await;
        let id = refused.operation_id().unwrap();
        let unseen = lab.tools.resolve(finding(id, 2, found())).await;
        assert!(matches!(unseen, Err(ResolveError::MovedOn)));
        let reply = lab.tools.resolve(finding(id, 1, found())).await.unwrap();
        assert_eq!(reply.status(), Status::Succeeded);
        assert_succeeded(&lab.call(BY_HAND, "refused").await, true);
        // A success stays what it is.
        let again = lab.tools.resolve(finding(id, 1, found())).await;
        assert!(matches!(again, Err(ResolveError::MovedOn)));
    });
}

/// A success that the ledger can't keep any more is not dropped in silence.
#[test]
fn a_success_whose_row_is_gone_is_told_to_the_operator() {
    let two = Two::new([Takes::Waits]);
    let first = two.stopped_before_its_success(BY_HAND, "gone");
    Connection::open(two.ledger.path())
        .unwrap()
        .execute_batch("DELETE FROM idempotent_external")
        .unwrap();
    first.go_on();
    assert_eq!(two.kinds(), [IncidentKind::SuccessTooLate]);
}

#[test]
fn a_success_revives_no_key_that_has_expired() {
    let two = Two::new([Takes::Waits]);
    let first = two.stopped_before_its_success(BY_HAND, "expired");
    let second = two.start();
    let unknown = second.block_on(call(&second.tools, &second.clock, BY_HAND, "expired"));
    let id = unknown.operation_id().unwrap();
    let resolved = second.tools.resolve(finding(id, 1, Finding::NotApplied));
    let _settled = second.block_on(resolved).unwrap();
    two.ledger.clock.advance(30 * DAY);
    first.go_on();
    assert_eq!(two.kinds(), [IncidentKind::SuccessTooLate]);
    let again = second.block_on(call(&second.tools, &second.clock, BY_HAND, "expired"));
    assert_code(&again, "key_expired");
    // Nor is anything of it handed out before pruning has come to it.
    for tool in ["get_operation", "cancel_operation"] {
        assert_eq!(ask(&second, tool, id)["error"]["code"], "not_found");
    }
    let found = Finding::Succeeded(json!({ "deployment_id": marked("found") }));
    let resolved = second.block_on(second.tools.resolve(finding(id, 1, found)));
    assert!(matches!(resolved, Err(ResolveError::NotFound)));
}

/// A ledger in which a process has recorded a call, and ended before it sent anything: how
/// many polls that takes depends on the store's thread.
fn accepted_and_left(name: &str) -> Two {
    for polls in (1..5).cycle() {
        let two = Two::new([]);
        let process = two.start();
        let ada = ada();
        let leaves = Box::pin(process.tools.call(&ada, BY_KEY, arguments(name)));
        let left = process.block_on(Polls(leaves, polls));
        drop((left, process));
        let state: Option<String> = Connection::open(two.ledger.path())
            .unwrap()
            .query_row("SELECT state FROM idempotent_external", (), |row| {
                row.get(0)
            })
            .optional()
            .unwrap();
        if state.as_deref() == Some("accepted") {
            assert_eq!(two.provider.requests(), 0);
            return two;
        }
    }
    unreachable!("it polls for ever");
}

#[test]
fn what_was_recorded_and_never_sent_ends_with_its_retention() {
    let two = accepted_and_left("dropped");
    two.ledger.clock.advance(10 * DAY);
    let second = two.start();
    let late = second.block_on(call(&second.tools, &second.clock, BY_KEY, "dropped"));
    assert_code(&late, "key_expired");
    // Pruning takes a row a minute after its time.
    two.ledger.clock.advance(60 * SECOND);
    let pruned = two.ledger.store.prune(100).unwrap();
    assert_eq!(pruned.expired, 1);
    let left: i64 = Connection::open(two.ledger.path())
        .unwrap()
        .query_row("SELECT count(*) FROM idempotent_external", (), |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(
        (left, two.provider.requests()),
        (0, 0),
        "its arguments are gone"
    );
}

#[test]
fn what_was_recorded_and_never_sent_is_taken_up_until_then() {
    let two = accepted_and_left("dropped");
    two.ledger.clock.advance(10 * DAY - SECOND);
    let second = two.start();
    let late = second.block_on(call(&second.tools, &second.clock, BY_KEY, "dropped"));
    assert_succeeded(&late, false);
    // An attempt that began has no end before its operation has.
    two.ledger.clock.advance(2 * SECOND);
    let again = second.block_on(call(&second.tools, &second.clock, BY_KEY, "dropped"));
    assert_succeeded(&again, true);
}

/// What the provider knows an operation by is the same in every copy of the ledger.
#[tokio::test]
async fn a_copy_of_the_ledger_gives_the_provider_the_same_key() {
    let lab = Lab::new([]);
    let copy = lab.ledger.folder.path().join("copy");
    Connection::open(lab.ledger.path())
        .unwrap()
        .execute("VACUUM INTO ?1", [copy.to_str().unwrap()])
        .unwrap();
    let first = lab.call(BY_KEY, "one").await;
    assert_succeeded(&first, false);
    let keys = lab.provider.keys();
    let id: uuid::Uuid = keys[0].parse().unwrap();
    assert_eq!((keys.len(), id.get_version_num()), (1, 8));

    let store = SqliteStore::options()
        .clock(lab.ledger.clock.clone())
        .background_pruning(false)
        .open(&copy)
        .unwrap();
    let restored = toolbox(&store, &lab.provider);
    let again = call(&restored, &lab.ledger.clock, BY_KEY, "one").await;
    assert_succeeded(&again, false);
    assert_ne!(first.operation_id(), again.operation_id());
    assert_eq!(lab.provider.keys(), keys);
    assert_eq!(lab.provider.deployments(), 1, "the provider knows it again");
    assert_succeeded(&lab.call(BY_KEY, "two").await, false);
    assert_eq!(lab.provider.keys().len(), 2);
    let told = lab.get(&first).await.to_string();
    assert!(!told.contains(&keys[0]), "{told}");
}

/// What was recorded before there were such keys goes on with what it has sent.
#[tokio::test]
async fn an_operation_from_before_keeps_what_it_has_sent() {
    let lab = Lab::new([Takes::AppliesSilently, Takes::Conflicts]);
    let unknown = lab.settle(BY_KEY, "old").await;
    let sent = lab.provider.keys();
    Connection::open(lab.ledger.path())
        .unwrap()
        .execute_batch("UPDATE idempotent_external SET provider_key = NULL")
        .unwrap();
    let _known = lab.settle(BY_KEY, "old").await;
    let id = unknown.operation_id().unwrap().to_string();
    let mut keys = [sent, vec![id]].concat();
    keys.sort();
    assert_eq!(lab.provider.keys(), keys);
}

#[tokio::test]
async fn the_providers_guidance_outlives_the_call() {
    let lab = Lab::new(vec![Takes::AsksToWait(600 * SECOND)]);
    for passes in [0, 1, 2] {
        let reply = lab.call(BY_KEY, "guided").await;
        assert_eq!(reply.status(), Status::Failed, "{}", reply.to_json());
        assert!(reply.is_retryable());
        assert_eq!(reply.retry_after(), Some((600 - passes) * SECOND));
        assert_eq!(shape(&lab.look(&reply).await)["retryable"], true);
        lab.ledger.clock.advance(SECOND);
    }
    assert_eq!(lab.provider.requests(), 1);
    lab.ledger.clock.advance(597 * SECOND);
    assert_succeeded(&lab.call(BY_KEY, "guided").await, false);
    assert_eq!(lab.provider.requests(), 2);
}

#[tokio::test]
async fn a_call_waits_for_guidance_that_fits_its_budget() {
    let lab = Lab::new(vec![Takes::AsksToWait(40 * SECOND)]);
    assert_eq!(lab.call(BY_KEY, "fits").await.status(), Status::Failed);
    lab.ledger.clock.advance(15 * SECOND);
    let waiting = lab.call(BY_KEY, "fits").await;
    assert_eq!(waiting.status(), Status::Running, "{}", waiting.to_json());
    assert_eq!(lab.provider.requests(), 1);
    let reply = lab.settle(BY_KEY, "fits").await;
    assert_eq!(reply.status(), Status::Succeeded);
    let times = lab.provider.request_times();
    assert!(40 * SECOND <= times[1] - times[0], "{times:?}");
}

/// An ordered deployment, after time has passed, and what an operator was told.
async fn ordered(
    tool: &'static str,
    script: Vec<Takes>,
    time: Duration,
) -> (Vec<IncidentKind>, Provider) {
    let ledger = Ledger::new();
    let provider = Provider::new(&ledger.clock, script);
    let incidents = Incidents::default();
    let tools = watched(ledger.store.clone(), &provider, &incidents);
    let arguments = json!({ "idempotency_key": key("order"), "tool": tool });
    assert_succeeded(&tools.call(&ada(), "order", arguments).await, false);
    pass(&ledger.clock, time).await;
    let kinds = incidents.lock().unwrap();
    (kinds.iter().map(|it| it.kind.clone()).collect(), provider)
}

async fn pass(clock: &PacedClock, time: Duration) {
    use idempotent_tool::Clock;
    drive(clock, clock.reached(clock.monotonic() + time)).await;
}

#[tokio::test]
async fn a_worker_obeys_the_providers_guidance() {
    let script = vec![Takes::AsksToWait(600 * SECOND)];
    let (told, provider) = ordered(BY_KEY, script, 1_200 * SECOND).await;
    let times = provider.request_times();
    assert_eq!(times.len(), 2);
    assert!(600 * SECOND <= times[1] - times[0], "{times:?}");
    assert_eq!(told, []);
}

#[test]
fn an_operator_is_told_what_came_of_what_nobody_waits_for() {
    for (tool, takes, expected) in [
        (BY_KEY, Takes::Applies, None),
        (BY_KEY, Takes::Refuses, Some(IncidentKind::Failed)),
        (BY_ASKING, Takes::Refuses, Some(IncidentKind::Failed)),
        (BY_HAND, Takes::Refuses, Some(IncidentKind::Failed)),
        (BY_HAND, Takes::LosesIt, Some(IncidentKind::OutcomeUnknown)),
        (BY_ASKING, Takes::LosesIt, None),
    ] {
        alone(async {
            let (told, _) = ordered(tool, vec![takes], 60 * SECOND).await;
            assert_eq!(told, Vec::from_iter(expected), "{tool}: {takes:?}");
        });
    }
}

/// Waits in its thread, which nothing can stop.
#[idempotent_tool(
    operation = "block:v1",
    inspect = "Look whether it is there",
    attempt_timeout = "100ms"
)]
async fn block(
    attempt: &Attempt,
    #[state] go_on: &Arc<Mutex<std::sync::mpsc::Receiver<()>>>,
) -> Result<u32, AttemptError> {
    let _held = go_on.lock().unwrap().recv();
    Ok(attempt.number())
}

/// Its run goes on without it; what it comes to is heard of all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_cant_be_stopped_is_heard_of() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("db")).unwrap();
    let (go_on, wait) = std::sync::mpsc::channel();
    let tools = Toolbox::builder(store)
        .without_authorization()
        .state(Arc::new(Mutex::new(wait)))
        .tool::<block>()
        .build()
        .unwrap();
    let arguments = json!({ "idempotency_key": key("blocks") });
    let mut reply = tools.call(&ada(), "block", arguments.clone()).await;
    while reply.status() == Status::Running {
        reply = tools.call(&ada(), "block", arguments.clone()).await;
    }
    assert_eq!(reply.status(), Status::OutcomeUnknown);
    go_on.send(()).unwrap();
    while reply.status() == Status::OutcomeUnknown {
        tokio::task::yield_now().await;
        reply = tools.call(&ada(), "block", arguments.clone()).await;
    }
    assert_succeeded(&reply, true);
}
