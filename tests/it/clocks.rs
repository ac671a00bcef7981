//! Wall clocks that go wrong: no jump that a process lives through buries a result, frees a
//! key, or changes how long anything lasts.

use std::{
    mem,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use idempotent_tool::{
    BootId, Clock, Failure, ManualClock, Reply, SqliteStore, Status, Toolbox, Tx, idempotent_tool,
};
use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

use crate::{
    common::{ada, assert_code, assert_succeeded, create_notes, key, marked, watch_logs},
    pace::{alone, drive},
    provider::{BY_ASKING, BY_HAND, Lab, Takes, arguments},
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const DAY: Duration = Duration::from_hours(24);
const YEAR: Duration = Duration::from_hours(365 * 24);

/// Kept for ten days, refused for a hundred more.
#[idempotent_tool(operation = "create_note:v1", retention = "10d", tombstone = "100d")]
fn create_note(tx: &Tx, body: String) -> Result<i64, Failure> {
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, ?2)",
        (tx.scope(), &body),
    )?;
    Ok(tx.last_insert_rowid())
}

/// Kept for a day, refused for a week more.
#[idempotent_tool(operation = "jot:v1", retention = "1d", tombstone = "7d")]
fn jot(tx: &Tx, body: String) -> Result<i64, Failure> {
    create_note(tx, body)
}

/// A file, and the processes that open it.
struct Disk(TempDir);

impl Disk {
    fn new() -> Self {
        watch_logs();
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("db")
    }

    fn open(&self, clock: &(impl Clock + Clone)) -> Process {
        let options = SqliteStore::options().clock(clock.clone());
        let store = options.background_pruning(false).open(self.path()).unwrap();
        Process::new(store)
    }

    fn ask<T: rusqlite::types::FromSql>(&self, query: &str) -> T {
        let connection = Connection::open(self.path()).unwrap();
        connection.query_row(query, (), |row| row.get(0)).unwrap()
    }

    /// Rows in `notes` and rows in the ledger.
    fn rows(&self) -> (i64, i64) {
        (
            self.ask("SELECT count(*) FROM notes"),
            self.ask("SELECT count(*) FROM idempotent_receipts"),
        )
    }
}

struct Process {
    store: SqliteStore,
    tools: Toolbox,
}

impl Process {
    fn new(store: SqliteStore) -> Self {
        create_notes(&store);
        let tools = Toolbox::builder(store.clone()).without_authorization();
        let tools = tools.tool::<create_note>().tool::<jot>();
        Self {
            tools: tools.build().unwrap(),
            store,
        }
    }

    fn call(&self, tool: &str, name: &str) -> Reply {
        let arguments = json!({ "idempotency_key": key(name), "body": marked("milk") });
        self.tools.call_blocking(&ada(), tool, arguments)
    }

    /// All that pruning would do.
    fn prune(&self) {
        for _ in 0..3 {
            self.store.prune(100).unwrap();
        }
    }
}

/// Wednesday, 2027-01-13.
fn today() -> SystemTime {
    SystemTime::UNIX_EPOCH + 57 * YEAR - DAY
}

#[track_caller]
fn check_that_one_call_in_the_wrong_time_is_as_any(
    process: &Process,
    clock: &ManualClock,
    wrong: SystemTime,
) {
    for (tool, retention, tombstone) in [("create_note", 10, 100), ("jot", 1, 7)] {
        let right = clock.wall();
        clock.set_wall(wrong);
        assert_succeeded(&process.call(tool, "meanwhile"), false);
        clock.set_wall(right);
        assert_succeeded(&process.call(tool, "meanwhile"), true);
        process.prune();
        assert_succeeded(&process.call(tool, "meanwhile"), true);
        clock.advance(retention * DAY - SECOND);
        process.prune();
        assert_succeeded(&process.call(tool, "meanwhile"), true);
        clock.advance(SECOND);
        assert_code(&process.call(tool, "meanwhile"), "key_expired");
        clock.advance(MINUTE);
        process.prune();
        clock.advance(tombstone * DAY - SECOND);
        process.prune();
        assert_code(&process.call(tool, "meanwhile"), "key_expired");
    }
}

#[test]
fn a_clock_that_is_two_years_back_for_one_call_changes_nothing() {
    let (disk, clock) = (Disk::new(), ManualClock::new(today()));
    let process = disk.open(&clock);
    check_that_one_call_in_the_wrong_time_is_as_any(&process, &clock, today() - 2 * YEAR);
    assert_eq!(
        disk.rows(),
        (2, 1),
        "one key of the first tool is forgotten"
    );
}

#[test]
fn a_clock_that_is_eight_days_back_for_one_call_changes_nothing() {
    let (disk, clock) = (Disk::new(), ManualClock::new(today()));
    let process = disk.open(&clock);
    let right = clock.wall();
    clock.set_wall(right - 8 * DAY);
    assert_succeeded(&process.call("jot", "back"), false);
    clock.set_wall(right);
    for _ in 0..3 {
        assert_succeeded(&process.call("jot", "back"), true);
        process.prune();
    }
    assert_eq!(disk.rows(), (1, 1));
}

#[test]
fn a_clock_that_is_years_ahead_for_one_call_changes_nothing() {
    let (disk, clock) = (Disk::new(), ManualClock::new(today()));
    let process = disk.open(&clock);
    check_that_one_call_in_the_wrong_time_is_as_any(&process, &clock, today() + 9 * YEAR);
}

#[test]
fn a_store_in_memory_has_its_own_time_too() {
    let clock = ManualClock::new(today());
    let options = SqliteStore::options().clock(clock.clone());
    let store = options.background_pruning(false).open_in_memory().unwrap();
    let process = Process::new(store);
    check_that_one_call_in_the_wrong_time_is_as_any(&process, &clock, today() - 2 * YEAR);
    check_that_one_call_in_the_wrong_time_is_as_any(&process, &clock, today() + 9 * YEAR);
}

#[tokio::test]
async fn an_external_tool_sends_once_whatever_the_wall_clock_does() {
    let lab = Lab::new([]);
    let right = lab.ledger.clock.wall();
    lab.ledger.clock.set_wall(right - 2 * YEAR);
    assert_succeeded(&lab.call(BY_HAND, "back").await, false);
    lab.ledger.clock.set_wall(right);
    for _ in 0..3 {
        let again = lab.call(BY_HAND, "back").await;
        assert_succeeded(&again, true);
        lab.ledger.store.prune(100).unwrap();
    }
    assert_eq!(lab.provider.requests(), 1);
}

/// A process that starts in 2020 by a clock which is then set right, and starts again.
#[test]
fn a_clock_that_is_set_right_after_the_start_frees_nothing_at_the_next() {
    let long_ago = today() - 7 * YEAR;
    for (restart, crashes) in [(false, false), (false, true), (true, false), (true, true)] {
        let (disk, clock) = (Disk::new(), ManualClock::new(long_ago));
        let process = disk.open(&clock);
        assert_succeeded(&process.call("jot", "early"), false);
        clock.set_wall(today());
        clock.advance(MINUTE);
        if crashes {
            // Whatever commits, or a look within a second, records it.
            assert_succeeded(&process.call("jot", "late"), false);
            mem::forget(process);
        } else {
            drop(process);
        }
        let clock = if restart {
            ManualClock::new(clock.wall() + MINUTE)
        } else {
            clock.advance(MINUTE);
            clock
        };
        let process = disk.open(&clock);
        for _ in 0..3 {
            assert_succeeded(&process.call("jot", "early"), true);
            process.prune();
            clock.advance(MINUTE);
        }
        // It lasts as long as it was to.
        clock.advance(DAY);
        assert_code(&process.call("jot", "early"), "key_expired");
    }
}

#[test]
fn a_jump_is_recorded_by_a_process_that_does_nothing() {
    let (disk, clock) = (Disk::new(), ManualClock::new(today()));
    let process = disk.open(&clock);
    assert_succeeded(&process.call("jot", "idle"), false);
    clock.set_wall(today() + YEAR);
    let milliseconds = (today() + YEAR)
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    let milliseconds = i64::try_from(milliseconds.as_millis()).unwrap();
    while disk.ask::<i64>("SELECT wall_time FROM idempotent_clock") < milliseconds {
        std::thread::yield_now();
    }
    mem::forget(process);
    let process = disk.open(&ManualClock::new(clock.wall()));
    assert_succeeded(&process.call("jot", "idle"), true);
}

#[test]
fn a_start_counts_how_long_nothing_ran() {
    for down in [9 * DAY, 10 * DAY] {
        let (disk, clock) = (Disk::new(), ManualClock::new(today()));
        let process = disk.open(&clock);
        assert_succeeded(&process.call("create_note", "down"), false);
        drop(process);
        clock.reboot(down);
        let reply = disk.open(&clock).call("create_note", "down");
        if down < 10 * DAY {
            assert_succeeded(&reply, true);
        } else {
            assert_code(&reply, "key_expired");
        }
    }
}

/// Without a start of the machine, a jump while nothing runs is told from time that passed.
#[test]
fn a_jump_between_two_processes_of_one_boot_changes_nothing() {
    let (disk, clock) = (Disk::new(), ManualClock::new(today()));
    assert_succeeded(&disk.open(&clock).call("jot", "between"), false);
    clock.set_wall(today() + 9 * YEAR);
    let process = disk.open(&clock);
    process.prune();
    assert_succeeded(&process.call("jot", "between"), true);
    drop(process);
    clock.set_wall(today() - 9 * YEAR);
    clock.advance(DAY);
    assert_code(&disk.open(&clock).call("jot", "between"), "key_expired");
}

/// What can't be told: the machine starts anew, and nobody else has the ledger open.
#[test]
fn an_opening_that_believes_the_wall_clock_prunes_nothing_for_a_minute() {
    let (disk, clock) = (Disk::new(), ManualClock::new(today()));
    assert_succeeded(&disk.open(&clock).call("jot", "trial"), false);
    clock.reboot(2 * DAY);
    let process = disk.open(&clock);
    assert_code(&process.call("jot", "trial"), "key_expired");
    let kept = "SELECT count(*) FROM idempotent_receipts WHERE result IS NOT NULL";
    assert!(process.store.prune(100).unwrap().halted);
    assert_eq!(disk.ask::<i64>(kept), 1);
    clock.advance(MINUTE);
    assert!(!process.store.prune(100).unwrap().halted);
    assert_eq!(disk.ask::<i64>(kept), 0);
}

#[test]
fn a_start_with_a_wall_clock_that_is_behind_loses_nothing() {
    let (disk, clock) = (Disk::new(), ManualClock::new(today()));
    assert_succeeded(&disk.open(&clock).call("create_note", "before"), false);
    let behind = ManualClock::new(today() - YEAR);
    let process = disk.open(&behind);
    assert_succeeded(&process.call("create_note", "before"), true);
    assert_succeeded(&process.call("create_note", "during"), false);
    behind.advance(DAY);
    process.prune();
    drop(process);
    let process = disk.open(&ManualClock::new(today() + 2 * DAY));
    process.prune();
    for name in ["before", "during"] {
        assert_succeeded(&process.call("create_note", name), true);
    }
    assert_eq!(disk.rows(), (2, 2));
}

/// A clock with another idea of the time of day than its machine's others.
#[derive(Debug, Clone)]
struct Elsewhere {
    clock: ManualClock,
    ahead: Duration,
    tells_boot: bool,
}

impl Clock for Elsewhere {
    fn wall(&self) -> SystemTime {
        self.clock.wall() + self.ahead
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn boot_id(&self) -> Option<BootId> {
        self.clock.boot_id().filter(|_| self.tells_boot)
    }
}

#[test]
fn two_processes_with_different_wall_clocks_agree() {
    for tells_boot in [true, false] {
        let (disk, clock) = (Disk::new(), ManualClock::new(today()));
        let elsewhere = |ahead| Elsewhere {
            clock: clock.clone(),
            ahead,
            tells_boot,
        };
        let right = disk.open(&elsewhere(Duration::ZERO));
        assert_succeeded(&right.call("create_note", "theirs"), false);
        let wrong = disk.open(&elsewhere(2 * YEAR));
        // Each looks once a second, and before it prunes.
        wrong.prune();
        right.prune();
        wrong.prune();
        for process in [&wrong, &right] {
            assert_succeeded(&process.call("create_note", "theirs"), true);
        }
        assert_succeeded(&wrong.call("jot", "ours"), false);
        clock.advance(DAY - SECOND);
        for _ in 0..2 {
            for process in [&wrong, &right] {
                process.prune();
                assert_succeeded(&process.call("jot", "ours"), true);
            }
        }
        clock.advance(SECOND);
        for process in [&wrong, &right] {
            assert_code(&process.call("jot", "ours"), "key_expired");
            assert_succeeded(&process.call("create_note", "theirs"), true);
        }
    }
}

#[test]
fn a_wall_time_that_was_far_ahead_can_be_reset() {
    for resets in [true, false] {
        let (disk, future) = (Disk::new(), ManualClock::new(today() + 10 * YEAR));
        assert_succeeded(&disk.open(&future).call("create_note", "future"), false);
        let clock = ManualClock::new(today());
        let process = disk.open(&clock);
        assert_succeeded(&process.call("create_note", "future"), true);
        if resets {
            process.store.reset_wall_time().unwrap();
        }
        drop(process);
        clock.reboot(11 * DAY);
        let reply = disk.open(&clock).call("create_note", "future");
        if resets {
            assert_code(&reply, "key_expired");
        } else {
            assert_succeeded(&reply, true); // The time in which nothing ran doesn't count.
        }
    }
}

/// A monotonic clock that stands still while the machine is suspended.
#[test]
fn a_suspended_machine_keeps_for_longer_what_it_keeps() {
    let (disk, clock) = (Disk::new(), ManualClock::new(today()));
    let process = disk.open(&clock);
    assert_succeeded(&process.call("jot", "asleep"), false);
    clock.set_wall(today() + 30 * DAY);
    process.prune();
    assert_succeeded(&process.call("jot", "asleep"), true);
    drop(process);
    clock.reboot(DAY);
    assert_code(&disk.open(&clock).call("jot", "asleep"), "key_expired");
}

#[test]
fn a_copy_that_is_put_back_goes_on_with_the_time() {
    for restart in [true, false] {
        let (disk, clock) = (Disk::new(), ManualClock::new(today()));
        let process = disk.open(&clock);
        assert_succeeded(&process.call("create_note", "copied"), false);
        let copy = disk.0.path().join("copy");
        Connection::open(disk.path())
            .unwrap()
            .execute("VACUUM INTO ?1", [copy.to_str().unwrap()])
            .unwrap();
        clock.advance(5 * DAY);
        drop(process);
        std::fs::rename(copy, disk.path()).unwrap();
        let clock = if restart {
            ManualClock::new(clock.wall())
        } else {
            clock
        };
        let process = disk.open(&clock);
        clock.advance(5 * DAY - SECOND);
        assert_succeeded(&process.call("create_note", "copied"), true);
        clock.advance(SECOND);
        assert_code(&process.call("create_note", "copied"), "key_expired");
    }
}

#[test]
fn a_tombstone_lasts_its_time_from_when_it_became_one() {
    let (disk, clock) = (Disk::new(), ManualClock::new(today()));
    let process = disk.open(&clock);
    assert_succeeded(&process.call("jot", "buried"), false);
    clock.advance(100 * DAY);
    process.prune();
    clock.advance(7 * DAY - SECOND);
    process.prune();
    assert_code(&process.call("jot", "buried"), "key_expired");
    clock.advance(SECOND + MINUTE);
    process.prune();
    assert_eq!(disk.rows(), (1, 0));
}

/// A lease ends neither early nor years late.
#[test]
fn a_lease_lasts_as_long_as_it_was_to_whatever_the_wall_clock_does() {
    for jump in [2 * YEAR, Duration::ZERO] {
        alone(async {
            let lab = Lab::new([Takes::AppliesAndHangs]);
            let clock = lab.ledger.clock.clone();
            let right = clock.wall();
            clock.set_wall(right - YEAR + jump);
            let second = lab.second();
            let tools = lab.tools.clone();
            let caller = async move { tools.call(&ada(), BY_HAND, arguments("lease")).await };
            let first = tokio::spawn(caller);
            lab.provider.arrived.notified().await;
            clock.set_wall(right);
            // The other process finds that somebody has it.
            let other = drive(&clock, second.call(&ada(), BY_HAND, arguments("lease"))).await;
            assert_eq!(other.status(), Status::Running, "{}", other.to_json());
            let first = drive(&clock, clock.elsewhere(first)).await.unwrap();
            assert_eq!(first.status(), Status::Running);
            lab.pass(60 * SECOND).await;
            let reply = lab.look(&first).await;
            assert_eq!(
                reply.status(),
                Status::OutcomeUnknown,
                "{}",
                reply.to_json()
            );
            assert_eq!(lab.provider.requests(), 1);
        });
    }
}

#[test]
fn a_worker_looks_when_it_is_time_whatever_the_wall_clock_does() {
    for jump in [2 * YEAR, Duration::ZERO] {
        alone(async {
            let lab = Lab::new([Takes::AppliesSilently]);
            lab.provider.is_mute(true);
            let reply = lab.settle(BY_ASKING, "due").await;
            assert_eq!(reply.status(), Status::OutcomeUnknown);
            let clock = &lab.ledger.clock;
            clock.set_wall(clock.wall() - YEAR + jump);
            lab.provider.is_mute(false);
            // Its rests grow: two minutes hold the next one.
            lab.pass(120 * SECOND).await;
            let reply = lab.look(&reply).await;
            assert_eq!(reply.status(), Status::Succeeded, "{}", reply.to_json());
            assert_eq!(lab.provider.requests(), 1);
        });
    }
}

#[tokio::test]
async fn replies_show_the_time_of_day() {
    let lab = Lab::new([]);
    let reply = lab.call(BY_HAND, "shown").await;
    let clock = &lab.ledger.clock;
    clock.set_wall(SystemTime::UNIX_EPOCH + 20 * DAY);
    let shown = lab.get(&reply).await;
    assert_eq!(
        shown["attempts"][0]["started_at"],
        "1970-01-21T00:00:00.000Z"
    );
    assert_eq!(shown["key_expires_at"], "1970-02-20T00:00:00.000Z");
    clock.advance(10 * DAY);
    let shown = lab.get(&reply).await;
    assert_eq!(
        shown["attempts"][0]["started_at"],
        "1970-01-21T00:00:00.000Z"
    );
    assert_eq!(shown["key_expires_at"], "1970-02-20T00:00:00.000Z");
}

#[test]
fn a_store_that_another_process_reads_is_healed_for_it_too() {
    let (disk, clock) = (Disk::new(), ManualClock::new(today()));
    let process = disk.open(&clock);
    clock.set_wall(today() + YEAR);
    assert_succeeded(&process.call("create_note", "ahead"), false);
    clock.set_wall(today());
    let other = disk.open(&clock);
    other.store.reset_wall_time().unwrap();
    // The process remembers the wrong time, and writes the pair again.
    clock.advance(2 * MINUTE);
    assert_succeeded(&process.call("create_note", "again"), false);
    let milliseconds = clock.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(
        disk.ask::<i64>("SELECT wall_time FROM idempotent_clock"),
        i64::try_from(milliseconds.as_millis()).unwrap()
    );
}
