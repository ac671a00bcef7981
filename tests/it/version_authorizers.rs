//! Each version's own authorizer: whichever version is called, a record of another is told to
//! nobody whom that one's authorizer refuses.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use idempotent_tool::{
    Access, Asked, Attempt, AttemptError, BuildError, Caller, Failure, IdempotencyKey, Reply,
    Status, Toolbox, ToolboxBuilder, Tx, idempotent_tool,
};
use serde_json::{Value, json};

use crate::{
    common::{Ledger, ada, assert_code, assert_succeeded, key, marked},
    pace::drive,
};

/// What only some versions want of a caller.
struct Treasurer;

fn nobody(_: &Caller, _: &Asked<'_>) -> Access {
    Access::Denied
}

fn treasurers(caller: &Caller, _: &Asked<'_>) -> Access {
    Access::from(caller.get::<Treasurer>().is_some())
}

fn treasurer() -> Caller {
    ada().with(Treasurer)
}

/// Pay at once.
#[idempotent_tool(operation = "pay:v1", authorize = treasurers)]
fn pay_v1(tx: &Tx, to: String) -> Result<u8, Failure> {
    write(tx, &to)?;
    Ok(1)
}

/// Pay at once, in some currency.
#[idempotent_tool(operation = "pay:v2")]
fn pay_v2(tx: &Tx, to: String, currency: Option<String>) -> Result<u8, Failure> {
    drop(currency);
    write(tx, &to)?;
    Ok(2)
}

/// The same with an authorizer of its own, for the toolbox of another day.
#[idempotent_tool(operation = "pay:v2", authorize = treasurers)]
fn guarded_v2(tx: &Tx, to: String, currency: Option<String>) -> Result<u8, Failure> {
    pay_v2(tx, to, currency)
}

#[idempotent_tool(operation = "pay:v1", authorize = nobody)]
fn closed_v1(tx: &Tx, to: String) -> Result<u8, Failure> {
    pay_v1(tx, to)
}

fn write(tx: &Tx, to: &str) -> Result<(), Failure> {
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, ?2)",
        (tx.scope(), to),
    )?;
    Ok(())
}

/// An older version that everybody may call.
#[idempotent_tool(operation = "pay:v1")]
fn open_v1(tx: &Tx, to: String) -> Result<u8, Failure> {
    pay_v1(tx, to)
}

/// Pay through a provider.
#[idempotent_tool(
    operation = "send_money:v1",
    authorize = treasurers,
    inspect = "Look for the payment in the bank's books"
)]
async fn send_money_v1(_attempt: &Attempt, to: String) -> Result<u8, AttemptError> {
    drop(to);
    Ok(1)
}

/// Pay through a provider, in some currency.
#[idempotent_tool(
    operation = "send_money:v2",
    inspect = "Look for the payment in the bank's books"
)]
async fn send_money_v2(
    _attempt: &Attempt,
    to: String,
    currency: Option<String>,
) -> Result<u8, AttemptError> {
    drop((to, currency));
    Ok(2)
}

/// Have money sent, under the version that is told.
#[idempotent_tool(operation = "order:v1")]
fn order(tx: &Tx, version: u32, name: String, to: String) -> Result<String, Failure> {
    let arguments = json!({ "to": to });
    let id = match version {
        1 => tx.enqueue::<send_money_v1>(&name, &arguments)?,
        _ => tx.enqueue::<send_money_v2>(&name, &arguments)?,
    };
    Ok(id.to_string())
}

fn open(ledger: &Ledger) -> ToolboxBuilder<idempotent_tool::SqliteStore> {
    Toolbox::builder(ledger.store.clone()).authorize(|_, _| Access::Allowed)
}

fn call(tools: &Toolbox, caller: &Caller, name: &str, to: &Value) -> Reply {
    let arguments = json!({ "idempotency_key": key(name), "to": to });
    tools.call_blocking(caller, "pay", arguments)
}

#[test]
fn a_typed_call_asks_its_own_versions_authorizer() {
    let ledger = Ledger::new();
    let tools = open(&ledger)
        .tool::<closed_v1>()
        .tool::<pay_v2>()
        .build()
        .unwrap();
    let arguments = json!({ "to": marked("bob") });
    let key = IdempotencyKey::new(key("typed")).unwrap();
    let denied = tools.call_typed_blocking::<closed_v1>(&ada(), &key, &arguments);
    let Err(idempotent_tool::CallError::Unsuccessful(denied)) = denied else {
        panic!("{denied:?}");
    };
    assert_code(&denied, "denied");
    assert_eq!(ledger.rows(), (0, 0));
    let paid = tools.call_typed_blocking::<pay_v2>(&ada(), &key, &arguments);
    assert_eq!(paid.unwrap().result, 2);
}

#[test]
fn what_an_older_version_recorded_is_denied_in_the_same_words_whatever_is_asked() {
    let ledger = Ledger::new();
    let tools = open(&ledger).tool::<pay_v1>().build().unwrap();
    let first = call(&tools, &treasurer(), "old", &marked("bob").into());
    assert_succeeded(&first, false);

    let tools = open(&ledger)
        .tool::<pay_v1>()
        .tool::<pay_v2>()
        .build()
        .unwrap();
    let denied = call(&tools, &ada(), "old", &marked("bob").into());
    assert_code(&denied, "denied");
    assert!(!denied.is_retryable());
    // Other arguments, and such as neither version takes: nothing is told of either.
    for to in [marked("eve").into(), json!(7)] {
        let other = call(&tools, &ada(), "old", &to);
        assert_eq!(other.to_json(), denied.to_json());
    }
    assert_succeeded(
        &call(&tools, &treasurer(), "old", &marked("bob").into()),
        true,
    );
    // The same caller has a key of the newer version to itself.
    assert_succeeded(&call(&tools, &ada(), "new", &marked("bob").into()), false);

    // After the retention, too, and when a tombstone is all there is.
    ledger.clock.advance(Duration::from_hours(24 * 31));
    for buried in [0, 2] {
        let expired = call(&tools, &ada(), "old", &marked("bob").into());
        assert_eq!(expired.to_json(), denied.to_json());
        let expired = call(&tools, &treasurer(), "old", &marked("bob").into());
        assert_code(&expired, "key_expired");
        assert_eq!(ledger.rows(), (2, 2));
        assert_eq!(ledger.store.prune(100).unwrap().expired, 2 - buried);
    }
}

#[test]
fn a_newer_versions_record_is_guarded_against_calls_of_an_older_one() {
    let ledger = Ledger::new();
    let tools = open(&ledger)
        .tool::<guarded_v2>()
        .tool::<closed_v1>()
        .build()
        .unwrap();
    let key = IdempotencyKey::new(key("newer")).unwrap();
    let arguments = json!({ "to": marked("bob") });
    let paid = tools.call_typed_blocking::<guarded_v2>(&treasurer(), &key, &arguments);
    assert_eq!(paid.unwrap().result, 2);

    let tools = open(&ledger)
        .tool::<guarded_v2>()
        .tool::<open_v1>()
        .build()
        .unwrap();
    let denied = tools.call_typed_blocking::<open_v1>(&ada(), &key, &arguments);
    let Err(idempotent_tool::CallError::Unsuccessful(denied)) = denied else {
        panic!("{denied:?}");
    };
    assert_code(&denied, "denied");
    let replayed = tools.call_typed_blocking::<open_v1>(&treasurer(), &key, &arguments);
    assert!(replayed.unwrap().replayed);
}

#[test]
fn the_toolboxs_authorizer_is_asked_for_each_version_it_stands_for() {
    #[idempotent_tool(operation = "pay:v1")]
    fn plain_v1(tx: &Tx, to: String) -> Result<u8, Failure> {
        pay_v1(tx, to)
    }

    let ledger = Ledger::new();
    let closed = Arc::new(AtomicBool::new(false));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (is_closed, seen) = (Arc::clone(&closed), Arc::clone(&asked));
    let tools = Toolbox::builder(ledger.store.clone())
        .authorize(move |_, asked| {
            seen.lock().unwrap().push(asked.version());
            Access::from(asked.version() != 1 || !is_closed.load(Ordering::SeqCst))
        })
        .tool::<plain_v1>()
        .tool::<pay_v2>()
        .build()
        .unwrap();
    let key_of_v1 = IdempotencyKey::new(key("old")).unwrap();
    let arguments = json!({ "to": marked("bob") });
    let paid = tools.call_typed_blocking::<plain_v1>(&ada(), &key_of_v1, &arguments);
    assert_eq!(paid.unwrap().result, 1);
    assert_succeeded(&call(&tools, &ada(), "old", &marked("bob").into()), true);
    assert_eq!(*asked.lock().unwrap(), [1, 2, 1]);

    closed.store(true, Ordering::SeqCst);
    assert_code(
        &call(&tools, &ada(), "old", &marked("bob").into()),
        "denied",
    );
    assert_eq!(asked.lock().unwrap()[3..], [2, 1]);
}

#[test]
fn a_record_of_a_version_that_is_gone_is_only_said_to_be_one() {
    let ledger = Ledger::new();
    let tools = open(&ledger).tool::<pay_v1>().build().unwrap();
    assert_succeeded(
        &call(&tools, &treasurer(), "old", &marked("bob").into()),
        false,
    );
    let tools = open(&ledger).tool::<pay_v2>().build().unwrap();
    let conflict = call(&tools, &ada(), "old", &marked("bob").into());
    assert_code(&conflict, "version_conflict");
}

#[test]
fn every_version_needs_an_authorizer() {
    let ledger = Ledger::new();
    for (built, missing) in [
        (
            Toolbox::builder(ledger.store.clone())
                .tool::<closed_v1>()
                .tool::<pay_v2>()
                .build(),
            2,
        ),
        (
            Toolbox::builder(ledger.store.clone())
                .tool::<guarded_v2>()
                .tool::<older_without>()
                .build(),
            1,
        ),
    ] {
        let error = built.unwrap_err();
        assert!(
            matches!(
                &error,
                BuildError::MissingAuthorizer { tool, version, .. }
                    if tool == "pay" && *version == missing
            ),
            "{error}"
        );
    }
}

/// An older version that relies on the toolbox's authorizer.
#[idempotent_tool(operation = "pay:v1")]
fn older_without(tx: &Tx, to: String) -> Result<u8, Failure> {
    pay_v1(tx, to)
}

fn money(ledger: &Ledger) -> Toolbox {
    open(ledger)
        .tool::<send_money_v1>()
        .tool::<send_money_v2>()
        .tool::<order>()
        .build()
        .unwrap()
}

#[tokio::test]
async fn an_external_operation_of_an_older_version_is_denied_hidden_and_not_run_again() {
    let ledger = Ledger::new();
    let arguments = json!({ "idempotency_key": key("sent"), "to": marked("bob") });
    let first = {
        let tools = open(&ledger).tool::<send_money_v1>().build().unwrap();
        let treasurer = treasurer();
        let call = tools.call(&treasurer, "send_money", arguments.clone());
        drive(&ledger.clock, call).await
    };
    assert_succeeded(&first, false);

    let tools = money(&ledger);
    let denied = tools.call(&ada(), "send_money", arguments.clone()).await;
    assert_code(&denied, "denied");
    let mut other = arguments.clone();
    other["to"] = marked("eve").into();
    let other = tools.call(&ada(), "send_money", other).await;
    assert_eq!(other.to_json(), denied.to_json());
    let id = first.operation_id().unwrap().to_string();
    for own in ["get_operation", "cancel_operation"] {
        let asked = json!({ "operation_id": id });
        let hidden = tools.call(&ada(), own, asked.clone()).await;
        assert_code(&hidden, "not_found");
        let unknown = json!({ "operation_id": "op_0190163d8694739b8ab4a3c0d1f2e3a4" });
        let unknown = tools.call(&ada(), own, unknown).await;
        assert_eq!(hidden.to_json(), unknown.to_json());
        let shown = tools.call(&treasurer(), own, asked).await;
        assert_eq!(shown.status(), Status::Succeeded, "{}", shown.to_json());
    }
    let replayed = tools.call(&treasurer(), "send_money", arguments).await;
    assert_succeeded(&replayed, true);
}

/// What stopped before it was sent runs again under the version that recorded it: only for
/// whom that one allows.
#[tokio::test]
async fn a_recorded_operation_is_resumed_for_nobody_whom_its_version_refuses() {
    /// Fail until it is let through.
    #[idempotent_tool(
        operation = "knock:v1",
        authorize = treasurers,
        max_attempts = 1,
        inspect = "Look whether somebody has knocked"
    )]
    async fn knock_v1(
        _attempt: &Attempt,
        #[state] knocks: &Arc<Mutex<u32>>,
    ) -> Result<u32, AttemptError> {
        let mut knocks = knocks.lock().unwrap();
        *knocks += 1;
        match *knocks {
            1 => Err(AttemptError::not_applied("away", "nobody is there")),
            knocks => Ok(knocks),
        }
    }

    /// Knock at a newer door.
    #[idempotent_tool(operation = "knock:v2", inspect = "Look whether somebody has knocked")]
    async fn knock_v2(_attempt: &Attempt) -> Result<u32, AttemptError> {
        Ok(0)
    }

    let ledger = Ledger::new();
    let knocks = Arc::new(Mutex::new(0_u32));
    let tools = open(&ledger)
        .state(Arc::clone(&knocks))
        .tool::<knock_v1>()
        .tool::<knock_v2>()
        .build()
        .unwrap();
    let name = IdempotencyKey::new(key("knock")).unwrap();
    let nothing = json!({});
    let treasurer = treasurer();
    let call = tools.call_typed::<knock_v1>(&treasurer, &name, &nothing);
    let failed = drive(&ledger.clock, call).await.unwrap_err();
    assert!(failed.to_string().contains("nobody is there"), "{failed}");

    let arguments = json!({ "idempotency_key": key("knock") });
    let denied = drive(
        &ledger.clock,
        tools.call(&ada(), "knock", arguments.clone()),
    )
    .await;
    assert_code(&denied, "denied");
    assert_eq!(*knocks.lock().unwrap(), 1);
    let resumed = drive(&ledger.clock, tools.call(&treasurer, "knock", arguments)).await;
    assert_eq!(resumed.result().unwrap().get(), "2", "under v1");
}

#[tokio::test]
async fn an_enqueue_asks_its_own_versions_authorizer_and_the_recorded_ones() {
    let ledger = Ledger::new();
    let tools = money(&ledger);
    let enqueue = async |caller: Caller, number: u32, version: u32, name: &str, to: &str| {
        let arguments = json!({
            "idempotency_key": key(&number.to_string()),
            "version": version,
            "name": key(name),
            "to": marked(to),
        });
        tools.call(&caller, "order", arguments).await
    };
    let denied = enqueue(ada(), 1, 1, "first", "bob").await;
    assert_code(&denied, "denied");
    assert_eq!(ledger.rows().1, 0);
    assert_succeeded(&enqueue(treasurer(), 2, 1, "first", "bob").await, false);

    // Through the newer version, whatever the arguments are: the same words.
    let behind = enqueue(ada(), 3, 2, "first", "bob").await;
    let other = enqueue(ada(), 4, 2, "first", "eve").await;
    assert_eq!(behind.to_json(), denied.to_json());
    assert_eq!(other.to_json(), denied.to_json());
    let conflict = enqueue(treasurer(), 5, 2, "first", "bob").await;
    assert_code(&conflict, "enqueue_conflict");
    assert_succeeded(&enqueue(ada(), 6, 2, "second", "bob").await, false);
}
