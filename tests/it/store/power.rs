//! Commits that fail, a full disk, and losses of power after them: what is told absent stays
//! absent, and what is told stays.

use std::{
    collections::BTreeMap,
    sync::mpsc,
    thread,
    time::{Duration, SystemTime},
};

use idempotent_tool::{
    Attempt, AttemptError, Failure, Finding, Reply, Resolution, ResolveError, SqliteStore, Status,
    Synchronous, Toolbox, TransactError, Tx, idempotent_tool,
};
use rusqlite::{Connection, ffi};
use serde_json::{Value, json};

use super::disk::{Disk, Fault, File, Operation, Random, on_both};
use crate::{
    common::{self, ada, assert_succeeded, create_notes, key, marked, watch_logs},
    pace::{PacedClock, alone},
    provider::{BY_HAND, BY_KEY, Provider, Takes, call, deploy_by_key, toolbox},
};

/// How many losses are tried at each moment, besides those of all and of nothing.
const LOSSES: u64 = 2;

/// Write a note.
#[idempotent_tool(operation = "note:v1")]
fn note(tx: &Tx, body: String) -> Result<i64, Failure> {
    let insert = "INSERT INTO notes (scope, body) VALUES (?1, ?2)";
    tx.execute(insert, (tx.scope(), &body))?;
    Ok(tx.last_insert_rowid())
}

/// Write a note and have something deployed.
#[idempotent_tool(operation = "note_and_deploy:v1")]
fn note_and_deploy(tx: &Tx, body: String) -> Result<i64, Failure> {
    let insert = "INSERT INTO notes (scope, body) VALUES (?1, ?2)";
    tx.execute(insert, (tx.scope(), &body))?;
    let id = tx.last_insert_rowid();
    tx.enqueue::<deploy_by_key>(&key("enqueued"), &json!({ "image": marked("web:9") }))?;
    Ok(id)
}

fn body(name: &str) -> Value {
    json!({ "idempotency_key": key(name), "body": marked(name) })
}

fn fault(file: File, operation: Operation, after: u32, times: u32, code: i32) -> Fault {
    Fault {
        file,
        operation,
        after,
        times,
        code,
    }
}

fn failed_syncs(times: u32) -> Fault {
    fault(
        File::Log,
        Operation::Sync,
        0,
        times,
        ffi::SQLITE_IOERR_FSYNC,
    )
}

/// A store on a disk, with a table for notes, and what was told of them.
struct Story {
    disk: Disk,
    store: SqliteStore,
    tools: Toolbox,
    level: Synchronous,
    told: Vec<Told>,
}

/// From one moment on, until another, this must be so after a loss of power.
struct Told {
    from: usize,
    until: Option<usize>,
    name: String,
    is_there: bool,
}

impl Story {
    fn new(level: Synchronous) -> Self {
        watch_logs();
        let disk = Disk::new();
        let options = SqliteStore::options().background_pruning(false);
        let store = disk.open(options.synchronous(level));
        create_notes(&store);
        let tools = Toolbox::builder(store.clone())
            .without_authorization()
            .tool::<note>()
            .build()
            .unwrap();
        Self {
            disk,
            store,
            tools,
            level,
            told: Vec::new(),
        }
    }

    fn call(&mut self, name: &str) -> Reply {
        self.asks(name);
        let reply = self.tools.call_blocking(&ada(), "note", body(name));
        match reply.status() {
            Status::Succeeded => self.tells(name, true),
            Status::Rejected => {
                assert_eq!(reply.error_code(), Some("storage"), "{}", reply.to_json());
                self.tells(name, false);
            }
            Status::OutcomeUnknown => assert!(reply.is_retryable()),
            _ => panic!("{}", reply.to_json()),
        }
        reply
    }

    /// The application's own write.
    fn transact(&mut self, name: &str) -> Result<(), TransactError<rusqlite::Error>> {
        self.asks(name);
        let text = marked(name);
        let written = self.store.transact_blocking(move |tx| {
            tx.execute("INSERT INTO notes (scope, body) VALUES ('', ?1)", [&text])
                .map(drop)
        });
        match &written {
            Ok(()) => self.tells(name, true),
            Err(TransactError::Storage(_) | TransactError::Refused(_)) => self.tells(name, false),
            Err(TransactError::Unknown(_)) => (),
            Err(error) => panic!("{error:?}"),
        }
        written
    }

    /// A call that is made again may be there from now on, whatever was told before.
    fn asks(&mut self, name: &str) {
        let now = self.disk.now();
        let earlier = self
            .told
            .iter_mut()
            .filter(|told| told.name == name && !told.is_there);
        earlier.for_each(|told| told.until = told.until.or(Some(now)));
    }

    fn tells(&mut self, name: &str, is_there: bool) {
        if is_there && self.level == Synchronous::Normal {
            return; // There, a loss of power may undo it.
        }
        self.told.push(Told {
            from: self.disk.now(),
            until: None,
            name: name.to_owned(),
            is_there,
        });
    }

    /// Loses power at every moment from `begin` on; returns how many images it looked at.
    fn lose_power(&self, begin: usize, losses: u64) -> usize {
        let mut images = 0;
        for moment in begin..=self.disk.now() {
            for mut random in Random::several(moment as u64, losses) {
                images += 1;
                let image = self.disk.image(moment, &mut random);
                let notes = notes(&image.connect());
                for told in &self.told {
                    if told.from <= moment && told.until.is_none_or(|until| moment <= until) {
                        let found = notes.get(&marked(&told.name)).copied().unwrap_or(0);
                        assert_eq!(found, u32::from(told.is_there), "{} at {moment}", told.name);
                    }
                }
            }
        }
        images
    }

    /// The last image as a store of ours sees it: every key is served once.
    fn opens_again(&self, names: &[&str]) {
        for mut random in Random::several(7, 0) {
            let image = self.disk.image(self.disk.now(), &mut random);
            let store = SqliteStore::open(image.path()).unwrap();
            let tools = Toolbox::builder(store)
                .without_authorization()
                .tool::<note>()
                .build()
                .unwrap();
            for name in names {
                let reply = tools.call_blocking(&ada(), "note", body(name));
                let told = self.told.iter().rev().find(|told| told.name == *name);
                match told {
                    Some(told) => assert_succeeded(&reply, told.is_there),
                    None => assert_eq!(reply.status(), Status::Succeeded),
                }
            }
            let found = notes(&image.connect());
            assert!(found.values().all(|rows| *rows == 1), "{found:?}");
        }
    }
}

/// The notes, by their texts. A receipt without its note, or the other way round, is a fault.
fn notes(connection: &Connection) -> BTreeMap<String, u32> {
    let sound: String = connection
        .query_row("PRAGMA integrity_check", (), |row| row.get(0))
        .unwrap();
    assert_eq!(sound, "ok");
    let is_new = "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'notes')";
    if connection.query_row(is_new, (), |row| row.get(0)).unwrap() {
        return BTreeMap::new();
    }
    let (receipts, effects): (u32, u32) = connection
        .query_row(
            "SELECT (SELECT count(*) FROM idempotent_receipts WHERE result IS NOT NULL),
                    (SELECT count(*) FROM notes WHERE scope <> '')",
            (),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!(receipts, effects);
    let mut statement = connection
        .prepare("SELECT body, count(*) FROM notes GROUP BY body")
        .unwrap();
    let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().collect::<rusqlite::Result<_>>().unwrap()
}

/// Every way in which the commit of one call can fail that needs no space to settle, or that
/// a write settles.
fn settled_faults() -> Vec<Vec<Fault>> {
    let mut faults = vec![
        vec![failed_syncs(1)],
        // The log can't be cut: a write takes the place of what was left.
        vec![
            failed_syncs(1),
            fault(
                File::Log,
                Operation::Truncate,
                0,
                9,
                ffi::SQLITE_IOERR_TRUNCATE,
            ),
        ],
    ];
    for after in 0..3 {
        let full = fault(File::Log, Operation::Write, after, 99, ffi::SQLITE_FULL);
        let broken = fault(
            File::Log,
            Operation::Write,
            after,
            1,
            ffi::SQLITE_IOERR_WRITE,
        );
        faults.extend([vec![full], vec![broken]]);
    }
    faults
}

#[test]
fn what_is_told_absent_is_in_no_image() {
    on_both("store::power::what_is_told_absent_is_in_no_image", || {
        let (mut images, mut storage) = (0, 0);
        for level in [Synchronous::Full, Synchronous::Normal] {
            for restarts in [false, true] {
                for faults in settled_faults() {
                    let mut story = Story::new(level);
                    assert_succeeded(&story.call("before"), false);
                    if restarts {
                        // The failing commit begins the log again.
                        let checkpoint = "PRAGMA wal_checkpoint(FULL)";
                        story
                            .disk
                            .connect()
                            .query_row(checkpoint, (), |_| Ok(()))
                            .unwrap();
                    }
                    let begin = story.disk.now();
                    story.disk.fail(&faults);
                    let reply = story.call("failing");
                    // At `Normal` a commit doesn't sync, and one that is gathered writes once.
                    let failed = story.disk.heal() > 0;
                    assert!(failed || reply.status() == Status::Succeeded, "{faults:?}");
                    if reply.status() != Status::Succeeded {
                        assert_eq!(reply.error_code(), Some("storage"), "{faults:?}");
                        storage += 1;
                    }
                    let text = marked("failing");
                    let absent = !notes(&story.disk.connect()).contains_key(&text);
                    assert_eq!(absent, reply.status() != Status::Succeeded);
                    assert_succeeded(&story.call("other"), false);
                    assert_eq!(story.call("failing").status(), Status::Succeeded);
                    images += story.lose_power(begin, LOSSES);
                    if !restarts && level == Synchronous::Full {
                        story.opens_again(&["before", "failing", "other"]);
                    }
                }
            }
        }
        println!("{storage} settled, {images} images");
        assert!(storage > 10 && images > 1_000, "{storage} in {images}");
    });
}

/// A region of the index that can't be had is found out when the commit is on the disk.
#[test]
fn a_commit_that_can_not_be_published_is_in_no_image() {
    on_both(
        "store::power::a_commit_that_can_not_be_published_is_in_no_image",
        || {
            let mut story = Story::new(Synchronous::Full);
            let index = fault(
                File::Log,
                Operation::MapIndex,
                0,
                99,
                ffi::SQLITE_IOERR_SHMSIZE,
            );
            story.disk.fail(&[index]);
            // The first region of the index has room for 4,062 pages.
            let filled = story.store.transact_blocking(|tx| {
                tx.execute_batch(
                    "CREATE TABLE filling AS WITH RECURSIVE n (i) AS
                 (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)
                 SELECT randomblob(3500) FROM n",
                )
            });
            filled.unwrap();
            let mut unpublished = None;
            for number in 0..40 {
                let name = format!("call {number}");
                if story.call(&name).status() != Status::Succeeded {
                    unpublished = Some(name);
                    break;
                }
            }
            let unpublished = unpublished.expect("no commit needed a second region");
            assert_eq!(story.told.last().map(|told| told.is_there), Some(false));
            story.lose_power(story.disk.now(), 1);
            assert!(story.disk.heal() > 0);
            assert_succeeded(&story.call(&unpublished), false);
            story.lose_power(story.disk.now(), 1);
        },
    );
}

#[test]
fn a_commit_is_unknown_only_where_the_disk_says_nothing() {
    on_both(
        "store::power::a_commit_is_unknown_only_where_the_disk_says_nothing",
        || {
            let uncut = fault(
                File::Log,
                Operation::Truncate,
                0,
                9,
                ffi::SQLITE_IOERR_TRUNCATE,
            );
            for faults in [
                vec![failed_syncs(2)],
                vec![failed_syncs(99)],
                vec![failed_syncs(2), uncut],
            ] {
                let mut story = Story::new(Synchronous::Full);
                let begin = story.disk.now();
                story.disk.fail(&faults);
                assert_eq!(
                    story.call("failing").status(),
                    Status::OutcomeUnknown,
                    "{faults:?}"
                );
                assert!(matches!(story.transact("own"), Err(_) | Ok(())));
                story.disk.heal();
                assert_eq!(story.call("failing").status(), Status::Succeeded);
                story.lose_power(begin, LOSSES);
                story.opens_again(&["failing"]);
            }
        },
    );
}

#[test]
fn an_own_transaction_is_told_absent_or_kept() {
    on_both(
        "store::power::an_own_transaction_is_told_absent_or_kept",
        || {
            for level in [Synchronous::Full, Synchronous::Normal] {
                for faults in settled_faults() {
                    let mut story = Story::new(level);
                    story.transact("before").unwrap();
                    let begin = story.disk.now();
                    story.disk.fail(&faults);
                    let written = story.transact("failing");
                    let failed = story.disk.heal() > 0;
                    // At `Normal` a commit doesn't sync, and one that is gathered writes once.
                    assert!(failed || written.is_ok());
                    if let Err(error) = &written {
                        assert!(matches!(error, TransactError::Storage(_)), "{error:?}");
                    }
                    let is_there = notes(&story.disk.connect()).contains_key(&marked("failing"));
                    assert_eq!(is_there, written.is_ok(), "{faults:?}");
                    story.transact("after").unwrap();
                    story.lose_power(begin, LOSSES);
                }
            }
            let mut story = Story::new(Synchronous::Full);
            story.disk.fail(&[failed_syncs(99)]);
            let unknown = story.transact("unknown").unwrap_err();
            assert!(matches!(unknown, TransactError::Unknown(_)), "{unknown:?}");
        },
    );
}

/// Settling needs no space: what fails on a full disk is known to have written nothing.
#[test]
fn on_a_full_disk_everything_is_told_absent() {
    on_both(
        "store::power::on_a_full_disk_everything_is_told_absent",
        || {
            for left in [0, 3_000, 9_000, 40_000] {
                let mut story = Story::new(Synchronous::Full);
                let names: Vec<_> = (0..12).map(|number| format!("call {number}")).collect();
                let begin = story.disk.now();
                story.disk.fill_up(left);
                let failing: Vec<_> = names
                    .iter()
                    .filter(|name| {
                        let status = story.call(name).status();
                        assert_ne!(status, Status::OutcomeUnknown, "{name}");
                        status != Status::Succeeded
                    })
                    .collect();
                assert!(4 < failing.len(), "{left}: {failing:?}");
                story.disk.fill_up(0);
                let own = story.transact("own").unwrap_err();
                assert!(
                    matches!(own, TransactError::Storage(_) | TransactError::Refused(_)),
                    "{own:?}"
                );
                let built = Toolbox::builder(story.store.clone())
                    .without_authorization()
                    .tool::<note>()
                    .tool::<idempotent_tool_tests::write_note>()
                    .build();
                assert!(built.is_err());
                let end = story.disk.now();
                story.lose_power(begin, 1);
                story.disk.heal();
                for name in failing {
                    assert_succeeded(&story.call(name), false);
                }
                story.lose_power(end, 0);
                let contracts = "SELECT count(*) FROM idempotent_contracts";
                let contracts: u32 = story
                    .disk
                    .connect()
                    .query_row(contracts, (), |row| row.get(0))
                    .unwrap();
                assert_eq!(contracts, 1, "a build that failed left its contracts");
            }
        },
    );
}

/// External tools on a disk.
struct Outside {
    disk: Disk,
    clock: PacedClock,
    provider: Provider,
    tools: Toolbox,
}

impl Outside {
    fn new(level: Synchronous, script: impl IntoIterator<Item = Takes>) -> Self {
        watch_logs();
        let disk = Disk::new();
        let clock = PacedClock::new(SystemTime::UNIX_EPOCH + Duration::from_hours(500_000));
        let options = SqliteStore::options()
            .background_pruning(false)
            .clock(clock.clone());
        let store = disk.open(options.synchronous(level));
        create_notes(&store);
        let provider = Provider::new(&clock, script);
        let tools = toolbox(&store, &provider);
        Self {
            disk,
            clock,
            provider,
            tools,
        }
    }

    async fn call(&self, tool: &str, name: &str) -> Reply {
        call(&self.tools, &self.clock, tool, name).await
    }

    async fn about(&self, tool: &str, id: &str) -> Value {
        let arguments = json!({ "operation_id": id });
        common::json(&self.tools.call(&ada(), tool, arguments).await)
    }

    /// What every loss of power since a moment leaves of the one operation.
    fn after_losses(&self, since: usize, check: impl Fn(&Connection)) {
        for moment in since..=self.disk.now() {
            for mut random in Random::several(moment as u64, LOSSES) {
                check(&self.disk.image(moment, &mut random).connect());
            }
        }
    }
}

fn operations(connection: &Connection) -> u32 {
    let is_new =
        "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'idempotent_external')";
    if connection.query_row(is_new, (), |row| row.get(0)).unwrap() {
        return 0;
    }
    let count = "SELECT count(*) FROM idempotent_external";
    connection.query_row(count, (), |row| row.get(0)).unwrap()
}

#[test]
fn an_external_call_that_can_not_be_recorded_is_absent_or_unknown() {
    on_both(
        "store::power::an_external_call_that_can_not_be_recorded_is_absent_or_unknown",
        || {
            let mut seen = BTreeMap::new();
            for failing in 1..=8 {
                alone(async {
                    let outside = Outside::new(Synchronous::Full, []);
                    outside.disk.fail(&[failed_syncs(failing)]);
                    let reply = outside.call(BY_KEY, "failing").await;
                    let told = outside.disk.now();
                    *seen.entry(reply.status().as_str()).or_insert(0) += 1;
                    match reply.status() {
                        Status::Rejected => {
                            assert_eq!(reply.error_code(), Some("storage"));
                            assert_eq!(outside.provider.requests(), 0);
                            outside.disk.heal();
                            outside.after_losses(told, |image| assert_eq!(operations(image), 0));
                        }
                        Status::OutcomeUnknown => {
                            assert!(reply.is_retryable() && reply.operation_id().is_some());
                            assert_eq!(outside.provider.requests(), 0);
                        }
                        // A further run found out, or did it.
                        _ => assert_eq!(outside.provider.requests(), 1, "{}", reply.to_json()),
                    }
                    outside.disk.heal();
                    let again = outside.call(BY_KEY, "failing").await;
                    assert_eq!(again.status(), Status::Succeeded, "{failing}");
                    assert_eq!(outside.provider.requests(), 1);
                    outside
                        .after_losses(outside.disk.now(), |image| assert_eq!(operations(image), 1));
                });
            }
            assert!(
                seen["rejected"] >= 2 && seen["outcome_unknown"] >= 2,
                "{seen:?}"
            );
        },
    );
}

/// Has a thing done outside.
#[idempotent_tool(
    operation = "outside:v1",
    inspect = "Look for it",
    deadline = "2s",
    attempt_timeout = "1s"
)]
async fn outside(attempt: &Attempt) -> Result<String, AttemptError> {
    Ok(attempt.operation_id().to_string())
}

/// Another connection gets the lock after the commit failed, and keeps it until the settling
/// and the call's deadline are over: then nobody has looked for what the commit left.
#[test]
fn a_commit_that_nobody_could_look_for_is_unknown_and_not_busy() {
    // Who gets the lock is left to chance.
    let lost = (0..50).find_map(|_| commit_under_contention());
    let Some((reply, was_left)) = lost else {
        return;
    };
    assert_eq!(
        reply.status(),
        Status::OutcomeUnknown,
        "{}",
        reply.to_json()
    );
    assert!(reply.is_retryable() && reply.operation_id().is_some());
    assert!(was_left, "a loss of power would not have brought it back");
}

/// What is told of a call whose commit failed, and whether a loss of power can bring it back;
/// `None` if the settling got the lock first.
fn commit_under_contention() -> Option<(Reply, bool)> {
    watch_logs();
    let disk = Disk::new();
    let store = disk.open(SqliteStore::options().background_pruning(false));
    let other = disk.connect();
    // The accepting takes long enough to be seen.
    other
        .execute_batch(
            "CREATE TABLE numbers (n); WITH RECURSIVE n (i) AS
                 (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
                 INSERT INTO numbers SELECT i FROM n;
             CREATE TRIGGER slow AFTER INSERT ON idempotent_external
             BEGIN SELECT count(*) FROM numbers AS a, numbers AS b; END",
        )
        .unwrap();
    other.busy_timeout(Duration::ZERO).unwrap();
    let (end, ends) = mpsc::channel::<()>();
    let (begin, begins) = mpsc::channel();
    let keeper = thread::spawn(move || {
        begins.recv().unwrap();
        // Until the store has the lock, and from when it gives it back.
        while other.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok() {}
        while other.execute_batch("BEGIN IMMEDIATE").is_err() {}
        ends.recv().unwrap_err();
        other.execute_batch("ROLLBACK").unwrap();
    });
    let told = alone(async {
        let tools = Toolbox::builder(store)
            .without_authorization()
            .tool::<outside>()
            .build()
            .unwrap();
        disk.fail(&[failed_syncs(1)]);
        begin.send(()).unwrap();
        let arguments = json!({ "idempotency_key": key("kept") });
        let reply = tools.call(&ada(), "outside", arguments).await;
        let told = disk.now();
        drop(end);
        keeper.join().unwrap();
        let has_failed = disk.heal() == 1;
        (has_failed && reply.error_code() != Some("storage")).then_some((reply, told))
    });
    let (reply, told) = told?;
    let was_left = Random::several(told as u64, 20)
        .any(|mut random| operations(&disk.image(told, &mut random).connect()) != 0);
    Some((reply, was_left))
}

#[test]
fn what_is_asked_of_an_operation_is_recorded_absent_or_unknown() {
    on_both(
        "store::power::what_is_asked_of_an_operation_is_recorded_absent_or_unknown",
        || {
            for failing in [1, 99] {
                alone(async {
                    let outside = Outside::new(Synchronous::Full, [Takes::AppliesSilently]);
                    let reply = outside.call(BY_HAND, "by hand").await;
                    assert_eq!(reply.status(), Status::OutcomeUnknown);
                    let id = reply.operation_id().unwrap();
                    let resolution = Resolution {
                        operation_id: id,
                        attempts: 1,
                        finding: Finding::NotApplied,
                        by: marked("ada"),
                        why: marked("it isn't there"),
                    };
                    outside.disk.fail(&[failed_syncs(failing)]);
                    let cancelled = outside.about("cancel_operation", &id.to_string()).await;
                    outside.disk.heal();
                    let count = "SELECT count(*) FROM idempotent_external WHERE cancel";
                    let is_asked =
                        |image: &Connection| image.query_row(count, (), |row| row.get(0));
                    if failing == 1 {
                        assert_eq!(cancelled["error"]["code"], "storage", "{cancelled}");
                        outside.after_losses(outside.disk.now(), |image| {
                            assert_eq!(is_asked(image), Ok(0));
                        });
                    } else {
                        assert_eq!(cancelled["status"], "outcome_unknown", "{cancelled}");
                        assert_eq!(cancelled["retryable"], true);
                        let next = cancelled["next_action"].as_str().unwrap();
                        assert!(next.contains("cancel_operation"), "{next}");
                    }
                    outside.disk.fail(&[failed_syncs(failing)]);
                    let error = outside.tools.resolve(resolution.clone()).await.unwrap_err();
                    outside.disk.heal();
                    let count =
                        "SELECT count(*) FROM idempotent_external WHERE resolved_by IS NOT NULL";
                    let is_found =
                        |image: &Connection| image.query_row(count, (), |row| row.get(0));
                    if failing == 1 {
                        assert!(matches!(error, ResolveError::Store(_)), "{error:?}");
                        outside.after_losses(outside.disk.now(), |image| {
                            assert_eq!(is_found(image), Ok(0));
                        });
                    } else {
                        assert!(matches!(error, ResolveError::Unknown(_)), "{error:?}");
                    }
                    let resolved = outside.tools.resolve(resolution).await;
                    assert!(resolved.is_ok());
                    outside.after_losses(outside.disk.now(), |image| {
                        assert_eq!(is_found(image), Ok(1));
                    });
                });
            }
        },
    );
}

/// Whatever the level for calls: what is sent, told of an operation or found out of it is on
/// the disk before.
#[test]
fn at_normal_no_transition_is_undone_by_a_loss_of_power() {
    on_both(
        "store::power::at_normal_no_transition_is_undone_by_a_loss_of_power",
        || {
            alone(async {
                let outside =
                    Outside::new(Synchronous::Normal, [Takes::Waits, Takes::AppliesSilently]);
                let attempts = |image: &Connection| {
                    let count = "SELECT count(*) FROM idempotent_attempts";
                    image
                        .query_row::<u32, _, _>(count, (), |row| row.get(0))
                        .unwrap()
                };
                let state = |image: &Connection, id: &str| {
                    let state = "SELECT state || cancel FROM idempotent_external
                             WHERE lower(hex(operation_id)) = ?1";
                    image
                        .query_row::<String, _, _>(state, [id], |row| row.get(0))
                        .unwrap()
                };
                let hex = |reply: &Reply| reply.operation_id().unwrap().to_string()[3..].to_owned();
                // An attempt that is sent has begun in every image.
                let waiting = tokio::spawn({
                    let (tools, clock) = (outside.tools.clone(), outside.clock.clone());
                    async move {
                        clock
                            .elsewhere(tools.call(
                                &ada(),
                                BY_KEY,
                                crate::provider::arguments("sent"),
                            ))
                            .await
                    }
                });
                outside.provider.arrived.notified().await;
                assert_eq!(outside.provider.requests(), 1);
                outside.after_losses(outside.disk.now(), |image| {
                    assert_eq!((operations(image), attempts(image)), (1, 1));
                });
                outside.provider.go_on.notify_one();
                let reply = waiting.await.unwrap();
                assert_succeeded(&reply, false);
                let id = hex(&reply);
                outside.after_losses(outside.disk.now(), |image| {
                    assert_eq!(state(image, &id), "succeeded0");
                });
                // What was asked and found out stays.
                let reply = outside.call(BY_HAND, "by hand").await;
                assert_eq!(reply.status(), Status::OutcomeUnknown);
                let id = hex(&reply);
                outside
                    .about(
                        "cancel_operation",
                        &reply.operation_id().unwrap().to_string(),
                    )
                    .await;
                outside.after_losses(outside.disk.now(), |image| {
                    assert_eq!(state(image, &id), "outcome_unknown1");
                });
                let resolution = Resolution {
                    operation_id: reply.operation_id().unwrap(),
                    attempts: 1,
                    finding: Finding::NotApplied,
                    by: marked("ada"),
                    why: marked("it isn't there"),
                };
                let resolved = outside.tools.resolve(resolution).await;
                assert!(resolved.is_ok());
                outside.after_losses(outside.disk.now(), |image| {
                    assert_eq!(state(image, &id), "cancelled1");
                });
            });
        },
    );
}

/// A call's own commit doesn't sync at `Normal`, what it enqueues included.
#[test]
fn at_normal_a_call_of_a_transactional_tool_syncs_nothing() {
    let disk = Disk::new();
    let clock = PacedClock::new(SystemTime::UNIX_EPOCH + Duration::from_hours(500_000));
    let options = SqliteStore::options()
        .background_pruning(false)
        .clock(clock.clone());
    let store = disk.open(options.synchronous(Synchronous::Normal));
    create_notes(&store);
    alone(async {
        let tools = Toolbox::builder(store.clone())
            .without_authorization()
            .state(Provider::new(&clock, []))
            .tool::<note_and_deploy>()
            .tool::<deploy_by_key>()
            .build()
            .unwrap();
        // The worker has nothing to do with it before this thread lets it.
        let before = disk.now();
        let reply = tools.call_blocking(&ada(), "note_and_deploy", body("enqueues"));
        assert_succeeded(&reply, false);
        assert_eq!(disk.syncs_since(before), 0);
        let before = disk.now();
        let reply = call(&tools, &clock, BY_KEY, "direct").await;
        assert_succeeded(&reply, false);
        clock.rest().await;
        assert!(
            disk.syncs_since(before) >= 3,
            "accepted, begun and reported"
        );
        let before = disk.now();
        let reply = tools.call_blocking(&ada(), "note_and_deploy", body("enqueues too"));
        assert_succeeded(&reply, false);
        assert_eq!(disk.syncs_since(before), 0);
    });
}

/// If only the look-up failed, an earlier call may have succeeded, and the caller is told.
#[test]
fn a_look_up_that_fails_says_that_an_earlier_call_may_have_succeeded() {
    let mut story = Story::new(Synchronous::Full);
    assert_succeeded(&story.call("earlier"), false);
    let path = story.disk.name();
    drop(story.tools);
    drop(story.store);
    let store = SqliteStore::options()
        .background_pruning(false)
        .on_connection(|connection| {
            // What a reader finds is not what the writer left.
            if connection.is_readonly(rusqlite::MAIN_DB)? {
                return Err(rusqlite::Error::InvalidQuery);
            }
            Ok(())
        })
        .open(path)
        .unwrap();
    let tools = Toolbox::builder(store)
        .without_authorization()
        .tool::<note>()
        .build()
        .unwrap();
    // Arguments that don't fit are looked up first: they may fit what is recorded.
    let wrong = json!({ "idempotency_key": key("earlier"), "body": 7 });
    let reply = tools.call_blocking(&ada(), "note", wrong);
    assert_eq!(reply.error_code(), Some("storage"));
    let reply = common::json(&reply);
    assert_eq!(
        reply["error"]["message"],
        "the ledger can't be read; this call did nothing, but an earlier call with this key may \
         have succeeded"
    );
    assert_eq!(
        reply["next_action"],
        "Call note again with the same idempotency_key and arguments"
    );
}
