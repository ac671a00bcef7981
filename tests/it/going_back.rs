//! Deployments that go back, or never went all the way: builds of one version that differ by
//! their optional arguments, on one ledger.

use std::{
    future::pending,
    sync::{Arc, Barrier, Mutex},
    thread,
    time::Duration,
};

use idempotent_tool::{
    Attempt, AttemptError, BuildError, Clock, Failure, Reply, RunsOn, SqliteStore, Status, Tool,
    Toolbox, Tx, idempotent_tool,
};
use rusqlite::Connection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    common::{Ledger, ada, assert_code, assert_succeeded, json, key, marked},
    pace::{PacedClock, drive},
    process::Process,
};

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
struct Style {
    #[serde(default)]
    bold: bool,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
struct Sized {
    #[serde(default)]
    bold: bool,
    #[serde(default)]
    size: u8,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
struct Colored {
    #[serde(default)]
    bold: bool,
    color: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
struct SizedByText {
    #[serde(default)]
    bold: bool,
    #[serde(default)]
    size: String,
}

/// Its default has a member that [`Style`] doesn't have, and not at that member's default.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Enlarged {
    #[serde(default)]
    bold: bool,
    #[serde(default)]
    size: u8,
}

impl Default for Enlarged {
    fn default() -> Self {
        Self {
            bold: false,
            size: 7,
        }
    }
}

/// Builds that all have `create_note:v1`: a module's name, then the parameters beside `body`.
macro_rules! builds {
    ($($module:ident($($parameters:tt)*);)*) => {
        $(mod $module {
            use super::*;

            #[allow(unused_variables, reason = "only the ledger's part matters")]
            #[idempotent_tool(operation = "create_note:v1")]
            pub(super) fn create_note(
                tx: &Tx,
                body: String,
                $($parameters)*
            ) -> Result<i64, Failure> {
                tx.execute(
                    "INSERT INTO notes (scope, body) VALUES (?1, ?2)",
                    (tx.scope(), &body),
                )?;
                Ok(tx.last_insert_rowid())
            }
        })*
    };
}

fn one() -> u8 {
    1
}

builds! {
    plain();
    pinned(#[serde(default)] pinned: bool);
    in_folder(folder: Option<String>);
    pinned_in_folder(#[serde(default)] pinned: bool, folder: Option<String>);
    pinned_by_number(#[serde(default)] pinned: u8);
    pinned_by_default(#[serde(default = "pin")] pinned: bool);
    pinned_always(pinned: bool);
    priority(#[serde(default = "one")] priority: u8);
    styled(#[serde(default)] style: Style);
    sized(#[serde(default)] style: Sized);
    colored(#[serde(default)] style: Colored);
    sized_by_text(#[serde(default)] style: SizedByText);
    enlarged(#[serde(default)] style: Enlarged);
    many(#[serde(default)] styles: Vec<Style>);
    many_sized(#[serde(default)] styles: Vec<Sized>);
    many_colored(#[serde(default)] styles: Vec<Colored>);
    many_sized_by_text(#[serde(default)] styles: Vec<SizedByText>);
}

fn pin() -> bool {
    true
}

fn build<T: Tool>(store: SqliteStore) -> Result<Toolbox, BuildError>
where
    T::Context: RunsOn<SqliteStore>,
{
    Toolbox::builder(store)
        .without_authorization()
        .tool::<T>()
        .build()
}

#[track_caller]
fn starts<T: Tool>(ledger: &Ledger) -> Toolbox
where
    T::Context: RunsOn<SqliteStore>,
{
    build::<T>(ledger.reopen()).unwrap()
}

#[track_caller]
fn refused<T: Tool>(ledger: &Ledger, change: &str)
where
    T::Context: RunsOn<SqliteStore>,
{
    let before = contract(ledger);
    let error = build::<T>(ledger.reopen()).unwrap_err();
    let BuildError::ContractChanged { changes, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(changes, &[change]);
    assert_eq!(contract(ledger), before);
}

/// The contract of `create_note:v1` as the ledger has it.
fn contract(ledger: &Ledger) -> Value {
    let connection = Connection::open(ledger.path()).unwrap();
    let sql = "SELECT contract FROM idempotent_contracts";
    let text: String = connection.query_row(sql, (), |row| row.get(0)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The names of the arguments that the ledger knows.
fn arguments(ledger: &Ledger) -> Vec<String> {
    let contract = contract(ledger);
    let properties = contract["arguments"]["properties"].as_object().unwrap();
    let mut names: Vec<_> = properties.keys().cloned().collect();
    names.sort();
    names
}

fn create(tools: &Toolbox, name: &str, arguments: Value) -> Reply {
    let mut arguments = arguments;
    arguments["idempotency_key"] = key(name).into();
    arguments["body"] = marked("milk").into();
    tools.call_blocking(&ada(), "create_note", arguments)
}

#[test]
fn a_build_without_the_newer_arguments_starts_and_the_ledger_keeps_the_widest() {
    let ledger = Ledger::new();
    starts::<plain::create_note>(&ledger);
    assert_eq!(arguments(&ledger), ["body"]);
    starts::<pinned::create_note>(&ledger);
    assert_eq!(arguments(&ledger), ["body", "pinned"]);
    // A canary and the old build, by turns.
    for _ in 0..3 {
        starts::<plain::create_note>(&ledger);
        starts::<pinned::create_note>(&ledger);
        assert_eq!(arguments(&ledger), ["body", "pinned"]);
    }
    // Each adds an argument that the other doesn't know.
    starts::<in_folder::create_note>(&ledger);
    assert_eq!(arguments(&ledger), ["body", "folder", "pinned"]);
    for _ in 0..3 {
        starts::<pinned::create_note>(&ledger);
        starts::<plain::create_note>(&ledger);
        starts::<in_folder::create_note>(&ledger);
        starts::<pinned_in_folder::create_note>(&ledger);
        assert_eq!(arguments(&ledger), ["body", "folder", "pinned"]);
    }
}

#[test]
fn an_argument_that_comes_back_as_another_is_refused_whatever_ran_between() {
    let ledger = Ledger::new();
    starts::<pinned::create_note>(&ledger);
    starts::<plain::create_note>(&ledger);
    starts::<in_folder::create_note>(&ledger);
    let place = "argument `/pinned`";
    let refused_number = build::<pinned_by_number::create_note>(ledger.reopen()).unwrap_err();
    assert!(refused_number.to_string().contains(place));
    refused::<pinned_by_default::create_note>(
        &ledger,
        "argument `/pinned` changed `default` from `false` to `true`",
    );
    let required = build::<pinned_always::create_note>(ledger.reopen()).unwrap_err();
    assert!(required.to_string().contains("`/pinned` became required"));
    assert_eq!(arguments(&ledger), ["body", "folder", "pinned"]);
    starts::<plain::create_note>(&ledger);
    starts::<pinned_in_folder::create_note>(&ledger);
}

#[test]
fn an_argument_is_no_other_version_of_it_only_because_it_was_away() {
    let ledger = Ledger::new();
    starts::<priority::create_note>(&ledger);
    starts::<plain::create_note>(&ledger);
    starts::<priority::create_note>(&ledger);
    assert_eq!(arguments(&ledger), ["body", "priority"]);
}

#[test]
fn nested_members_are_kept_as_well() {
    let ledger = Ledger::new();
    let members = |ledger: &Ledger| {
        let style = contract(ledger)["arguments"]["properties"]["style"].clone();
        let mut names: Vec<_> = style["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        names.sort();
        names
    };
    starts::<styled::create_note>(&ledger);
    starts::<sized::create_note>(&ledger);
    starts::<colored::create_note>(&ledger);
    starts::<styled::create_note>(&ledger);
    assert_eq!(members(&ledger), ["bold", "color", "size"]);
    let error = build::<sized_by_text::create_note>(ledger.reopen()).unwrap_err();
    assert!(error.to_string().contains("`/style/size`"), "{error}");
    starts::<sized::create_note>(&ledger);
    // Its default means another style than that of the others.
    let error = build::<enlarged::create_note>(ledger.reopen()).unwrap_err();
    assert!(
        error.to_string().contains("`/style` changed `default`"),
        "{error}"
    );
    // The whole argument may be missing too, and others may stand beside it.
    starts::<pinned::create_note>(&ledger);
    assert_eq!(arguments(&ledger), ["body", "pinned", "style"]);
    assert_eq!(members(&ledger), ["bold", "color", "size"]);
}

/// The default of the build that came first is not that of one with fewer members.
#[test]
fn a_default_that_needs_a_missing_member_is_refused() {
    let ledger = Ledger::new();
    starts::<enlarged::create_note>(&ledger);
    let error = build::<styled::create_note>(ledger.reopen()).unwrap_err();
    assert!(
        error.to_string().contains("`/style` changed `default`"),
        "{error}"
    );
}

#[test]
fn members_of_elements_are_kept_as_well() {
    let ledger = Ledger::new();
    starts::<many_sized::create_note>(&ledger);
    starts::<many::create_note>(&ledger);
    starts::<many_colored::create_note>(&ledger);
    starts::<many::create_note>(&ledger);
    let error = build::<many_sized_by_text::create_note>(ledger.reopen()).unwrap_err();
    assert!(error.to_string().contains("`/styles/*/size`"), "{error}");
    starts::<many_sized::create_note>(&ledger);
}

/// Builds that start at once add what each of them has.
#[test]
fn builds_that_start_together_lose_none_of_their_arguments() {
    for _ in 0..20 {
        let ledger = Ledger::new();
        let stores: Vec<_> = (0..4).map(|_| ledger.reopen()).collect();
        let barrier = Barrier::new(stores.len());
        thread::scope(|scope| {
            for (number, store) in stores.into_iter().enumerate() {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    match number {
                        0 => drop(build::<plain::create_note>(store).unwrap()),
                        1 => drop(build::<pinned::create_note>(store).unwrap()),
                        2 => drop(build::<in_folder::create_note>(store).unwrap()),
                        _ => drop(build::<priority::create_note>(store).unwrap()),
                    }
                });
            }
        });
        assert_eq!(arguments(&ledger), ["body", "folder", "pinned", "priority"]);
    }
}

#[test]
fn a_build_that_changes_nothing_needs_no_lock() {
    let ledger = Ledger::new();
    starts::<pinned::create_note>(&ledger);
    // With a clock that runs, a wait for the lock has an end.
    let store = SqliteStore::options().budget(Duration::from_secs(1));
    let store = store.open(ledger.path()).unwrap();
    let other = Connection::open(ledger.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    build::<plain::create_note>(store.clone()).unwrap();
    let error = build::<pinned_by_default::create_note>(store).unwrap_err();
    assert!(
        matches!(error, BuildError::ContractChanged { .. }),
        "{error}"
    );
}

#[test]
fn what_a_newer_build_was_given_is_never_replayed_or_done_again_by_an_older_one() {
    let ledger = Ledger::new();
    let newer = starts::<pinned_in_folder::create_note>(&ledger);
    let older = starts::<plain::create_note>(&ledger);
    assert_succeeded(&create(&newer, "with", json!({ "pinned": true })), false);
    assert_succeeded(
        &create(&newer, "default", json!({ "pinned": false })),
        false,
    );
    assert_succeeded(&create(&newer, "without", json!({})), false);
    assert_eq!(ledger.rows(), (3, 3));

    for name in ["with", "default", "without", "unused"] {
        let reply = create(&older, name, json!({ "pinned": true }));
        assert_code(&reply, "invalid_arguments");
        assert_eq!(json(&reply)["error"]["details"][0]["path"], "/pinned");
    }
    assert_code(&create(&older, "with", json!({})), "payload_conflict");
    assert_succeeded(&create(&older, "default", json!({})), true);
    assert_succeeded(&create(&older, "without", json!({})), true);
    assert_eq!(ledger.rows(), (3, 3));

    // And the other way round, for what the older one did.
    assert_succeeded(&create(&older, "older", json!({})), false);
    assert_succeeded(
        &create(&newer, "older", json!({ "pinned": false, "folder": null })),
        true,
    );
    assert_code(
        &create(&newer, "older", json!({ "pinned": true })),
        "payload_conflict",
    );
    assert_eq!(ledger.rows(), (4, 4));
}

/// What each build's handler was called with.
#[derive(Debug, Clone, Default)]
struct Sent(Arc<Mutex<Vec<String>>>);

impl Sent {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

mod old_mail {
    use super::*;

    #[idempotent_tool(operation = "mail:v1", provider_key(window = "24h"))]
    pub(super) async fn mail(
        _attempt: &Attempt,
        to: String,
        #[state] sent: &Sent,
    ) -> Result<(), AttemptError> {
        sent.note(format!("old: {to}"));
        Ok(())
    }
}

mod new_mail {
    use super::*;

    #[idempotent_tool(operation = "mail:v1", provider_key(window = "24h"))]
    pub(super) async fn mail(
        _attempt: &Attempt,
        to: String,
        copy: Option<String>,
        #[state] sent: &Sent,
        #[state] clock: &PacedClock,
    ) -> Result<(), AttemptError> {
        sent.note(format!("new: {to}, {copy:?}"));
        if to == "nobody" {
            clock.elsewhere(pending::<()>()).await;
        }
        Ok(())
    }

    /// Enqueue a mail, with a copy if one is asked for.
    #[idempotent_tool(operation = "announce:v1")]
    pub(super) fn announce(tx: &Tx, name: String, copy: Option<String>) -> Result<(), Failure> {
        let arguments = match copy {
            Some(copy) => json!({ "to": "ada", "copy": copy }),
            None => json!({ "to": "ada" }),
        };
        tx.enqueue::<mail>(&key(&name), &arguments)?;
        Ok(())
    }
}

fn announce(tools: &Toolbox, name: &str, copy: Option<&str>) -> Reply {
    let arguments = json!({
        "idempotency_key": key(&format!("announce {name}")), "name": name, "copy": copy,
    });
    tools.call_blocking(&ada(), "announce", arguments)
}

/// An older build's worker doesn't send a mail without the copy that was asked for, nor
/// records a refusal of what it can't read.
#[tokio::test]
async fn an_older_build_leaves_to_a_newer_one_what_it_cannot_read() {
    let ledger = Ledger::new();
    let sent = Sent::default();
    let pass = async |time: Duration| {
        let clock = &ledger.clock;
        drive(clock, clock.reached(clock.monotonic() + time)).await;
    };
    let newer = || {
        Toolbox::builder(ledger.reopen())
            .without_authorization()
            .state(sent.clone())
            .state(ledger.clock.clone())
            .tool::<new_mail::mail>()
            .tool::<new_mail::announce>()
            .build()
            .unwrap()
    };
    let first = newer();
    // It stops before its worker has taken anything up.
    first.shut_down(Duration::ZERO).await;
    assert_succeeded(&announce(&first, "with", Some("bob")), false);
    assert_succeeded(&announce(&first, "without", None), false);
    drop(first);

    let older = Toolbox::builder(ledger.reopen())
        .without_authorization()
        .state(sent.clone())
        .tool::<old_mail::mail>()
        .build()
        .unwrap();
    pass(Duration::from_hours(2)).await;
    assert_eq!(sent.all(), ["old: ada"]);
    // By its key it isn't sent either.
    let mail = async |arguments: Value| older.call(&ada(), "mail", arguments).await;
    let with = json!({ "idempotency_key": key("with"), "to": "ada", "copy": "bob" });
    assert_code(&mail(with).await, "invalid_arguments");
    let with = json!({ "idempotency_key": key("with"), "to": "ada" });
    assert_code(&mail(with).await, "payload_conflict");
    assert_eq!(sent.all(), ["old: ada"]);
    older.shut_down(Duration::ZERO).await;
    drop(older);

    let _newer = newer();
    pass(Duration::from_secs(5)).await;
    assert_eq!(sent.all(), ["old: ada", "new: ada, Some(\"bob\")"]);
}

/// What a lost process was sending, and what it asked for that this build can't read: it is
/// unknown for everybody then, and not sent without the copy.
#[test]
fn an_older_build_gives_up_a_lost_attempt_and_does_not_repeat_what_it_cannot_read() {
    let ledger = Ledger::new();
    let sent = Sent::default();
    let newer = Process::start(&ledger.path(), &ledger.clock, |store, clock| {
        Toolbox::builder(store)
            .without_authorization()
            .state(sent.clone())
            .state(clock)
            .tool::<new_mail::mail>()
            .build()
            .unwrap()
    });
    let tools = newer.tools.clone();
    let arguments = json!({ "idempotency_key": key("lost"), "to": "nobody", "copy": "bob" });
    let call = newer.spawn(async move { tools.call(&ada(), "mail", arguments).await });
    newer.go_on();
    assert_eq!(sent.all(), ["new: nobody, Some(\"bob\")"]);
    drop((call, newer));

    let older = Process::start(&ledger.path(), &ledger.clock, |store, _| {
        Toolbox::builder(store)
            .without_authorization()
            .state(sent.clone())
            .tool::<old_mail::mail>()
            .build()
            .unwrap()
    });
    let state = || {
        let connection = Connection::open(ledger.path()).unwrap();
        let sql = "SELECT state FROM idempotent_external";
        connection
            .query_row(sql, (), |row| row.get::<_, String>(0))
            .unwrap()
    };
    assert_eq!(state(), "attempting");
    for _ in 0..60 {
        ledger.clock.advance(Duration::from_millis(500));
        older.go_on();
    }
    assert_eq!(state(), "outcome_unknown");
    assert_eq!(sent.all().len(), 1);
}

/// A bank that notes each transfer it is sent, and answers as it is told.
#[derive(Debug, Clone, Default)]
struct Bank(Arc<Mutex<Books>>);

#[derive(Debug, Default)]
struct Books {
    answers: Vec<Answer>,
    /// The transfers, each with its key.
    sent: Vec<(String, Value)>,
}

#[derive(Debug, Clone, Copy)]
enum Answer {
    /// The transfer may have been made.
    IsLost,
    /// It was not made.
    IsAway,
}

impl Bank {
    fn answers_first(answer: Answer) -> Self {
        let answers = vec![answer];
        let sent = Vec::new();
        Self(Arc::new(Mutex::new(Books { answers, sent })))
    }

    fn send(&self, attempt: &Attempt, transfer: Value) -> Result<(), AttemptError> {
        let mut bank = self.0.lock().unwrap();
        bank.sent
            .push((attempt.provider_key().to_owned(), transfer));
        match bank.answers.pop() {
            None => Ok(()),
            Some(Answer::IsLost) => Err(AttemptError::ambiguous("lost", "the answer was lost")),
            Some(Answer::IsAway) => Err(AttemptError::not_applied("away", "nobody is there")),
        }
    }

    /// The transfers that it was sent; all had one key.
    fn transfers(&self) -> Vec<Value> {
        let sent = self.0.lock().unwrap().sent.clone();
        assert!(sent.windows(2).all(|two| two[0].0 == two[1].0), "{sent:?}");
        sent.into_iter().map(|(_, transfer)| transfer).collect()
    }
}

mod old_transfer {
    use super::*;

    #[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub(super) struct How {
        #[serde(default)]
        slowly: bool,
    }

    #[idempotent_tool(
        operation = "transfer:v1",
        provider_key(window = "24h"),
        max_attempts = 1
    )]
    pub(super) async fn transfer(
        attempt: &Attempt,
        to: String,
        #[serde(default)] how: How,
        #[state] bank: &Bank,
    ) -> Result<(), AttemptError> {
        let mut transfer = json!({ "to": to });
        if how.slowly {
            transfer["slowly"] = true.into();
        }
        bank.send(attempt, transfer)
    }
}

mod new_transfer {
    use super::*;

    #[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub(super) struct How {
        #[serde(default)]
        slowly: bool,
        #[serde(default)]
        urgent: bool,
    }

    fn usual() -> String {
        "usual".into()
    }

    #[idempotent_tool(
        operation = "transfer:v1",
        provider_key(window = "24h"),
        max_attempts = 1
    )]
    pub(super) async fn transfer(
        attempt: &Attempt,
        to: String,
        note: Option<String>,
        #[serde(default = "usual")] pace: String,
        #[serde(default)] how: How,
        #[state] bank: &Bank,
    ) -> Result<(), AttemptError> {
        let transfer = json!({ "to": to, "note": note, "pace": pace, "urgent": how.urgent });
        bank.send(attempt, transfer)
    }
}

async fn transfer(ledger: &Ledger, tools: &Toolbox, mut arguments: Value) -> Reply {
    arguments["idempotency_key"] = key("transfer").into();
    arguments["to"] = "bob".into();
    drive(&ledger.clock, tools.call(&ada(), "transfer", arguments)).await
}

fn bank_build<T: Tool>(ledger: &Ledger, bank: &Bank) -> Toolbox
where
    T::Context: RunsOn<SqliteStore>,
{
    Toolbox::builder(ledger.reopen())
        .without_authorization()
        .state(bank.clone())
        .tool::<T>()
        .build()
        .unwrap()
}

/// The newer build has sent something that the older one can't be asked for: it is no call of
/// the older one's, which neither sends nor says that it was the same.
#[tokio::test]
async fn a_call_that_leaves_out_what_a_newer_build_was_asked_for_sends_nothing() {
    for answer in [Answer::IsLost, Answer::IsAway] {
        for asked in [
            json!({ "note": "rent" }),
            json!({ "pace": "instant" }),
            json!({ "how": { "urgent": true } }),
        ] {
            let ledger = Ledger::new();
            let bank = Bank::answers_first(answer);
            let newer = bank_build::<new_transfer::transfer>(&ledger, &bank);
            let first = transfer(&ledger, &newer, asked.clone()).await;
            newer.shut_down(Duration::ZERO).await;
            drop(newer);
            let sent = bank.transfers();
            assert_eq!(sent.len(), 1);

            let older = bank_build::<old_transfer::transfer>(&ledger, &bank);
            let told = transfer(&ledger, &older, json!({})).await;
            assert_code(&told, "payload_conflict");
            let told = transfer(&ledger, &older, asked.clone()).await;
            assert_code(&told, "invalid_arguments");
            assert_eq!(bank.transfers(), sent);
            older.shut_down(Duration::ZERO).await;
            drop(older);

            // Whoever asks the newer one again has the same sent again.
            let newer = bank_build::<new_transfer::transfer>(&ledger, &bank);
            let again = transfer(&ledger, &newer, asked).await;
            assert_succeeded(&again, false);
            assert_eq!(again.operation_id(), first.operation_id());
            assert_eq!(bank.transfers(), [sent.clone(), sent].concat());
        }
    }
}

/// The newer build was given nothing that the older one doesn't know: either sends it.
#[tokio::test]
async fn a_call_without_the_newer_arguments_is_the_same_call_for_either_build() {
    for answer in [Answer::IsLost, Answer::IsAway] {
        for asked in [json!({}), json!({ "note": null }), json!({ "how": {} })] {
            let ledger = Ledger::new();
            let bank = Bank::answers_first(answer);
            let newer = bank_build::<new_transfer::transfer>(&ledger, &bank);
            let first = transfer(&ledger, &newer, asked.clone()).await;
            newer.shut_down(Duration::ZERO).await;
            drop(newer);

            let older = bank_build::<old_transfer::transfer>(&ledger, &bank);
            let told = transfer(&ledger, &older, json!({})).await;
            assert_succeeded(&told, false);
            assert_eq!(told.operation_id(), first.operation_id());
            let [was, is] = &bank.transfers()[..] else {
                panic!("{:?}", bank.transfers());
            };
            let usual = json!({ "to": "bob", "note": null, "pace": "usual", "urgent": false });
            assert_eq!((was, is), (&usual, &json!({ "to": "bob" })));
            older.shut_down(Duration::ZERO).await;
            drop(older);

            let newer = bank_build::<new_transfer::transfer>(&ledger, &bank);
            let again = transfer(&ledger, &newer, asked).await;
            assert_succeeded(&again, true);
            assert_eq!(bank.transfers().len(), 2);
        }
    }
}

/// What was recorded names a default that the older build doesn't know. To leave it out
/// is the same call, but only a newer build sends what was sent: until then nothing is sent,
/// and no refusal of the older one's is kept.
#[tokio::test]
async fn an_older_build_called_again_leaves_to_a_newer_one_what_it_cannot_read() {
    for (answer, status) in [
        (Answer::IsLost, Status::OutcomeUnknown),
        (Answer::IsAway, Status::Failed),
    ] {
        for asked in [
            json!({ "pace": "usual" }),
            json!({ "how": { "urgent": false } }),
            json!({ "how": { "slowly": false, "urgent": false } }),
        ] {
            let ledger = Ledger::new();
            let bank = Bank::answers_first(answer);
            let newer = bank_build::<new_transfer::transfer>(&ledger, &bank);
            let first = transfer(&ledger, &newer, asked).await;
            newer.shut_down(Duration::ZERO).await;
            drop(newer);
            let sent = bank.transfers();

            let older = bank_build::<old_transfer::transfer>(&ledger, &bank);
            for _ in 0..2 {
                let told = transfer(&ledger, &older, json!({})).await;
                assert_eq!(told.operation_id(), first.operation_id());
                assert_eq!(told.status(), status, "{}", told.to_json());
                assert!(told.is_retryable(), "{}", told.to_json());
            }
            assert_eq!(bank.transfers(), sent);
            let attempts: i64 = Connection::open(ledger.path())
                .unwrap()
                .query_row("SELECT attempts FROM idempotent_external", (), |row| {
                    row.get(0)
                })
                .unwrap();
            assert_eq!(attempts, 1, "the older build began one");
            older.shut_down(Duration::ZERO).await;
            drop(older);

            let newer = bank_build::<new_transfer::transfer>(&ledger, &bank);
            let again = transfer(&ledger, &newer, json!({})).await;
            assert_succeeded(&again, false);
            assert_eq!(bank.transfers(), [sent.clone(), sent].concat());
        }
    }
}
