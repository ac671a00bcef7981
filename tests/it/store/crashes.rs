//! A process that is killed before or after each statement of a call.

use std::os::unix::process::ExitStatusExt;

use serde_json::Value;

use super::Driver;
use crate::common::Ledger;

const SIGKILL: i32 = 9;

/// Calls in a process that kills itself at the place; whether it did.
fn killed_at(ledger: &Ledger, place: &str) -> bool {
    let path = ledger.path();
    let mut driver = Driver::start(&["call", path.to_str().unwrap(), "crash"], Some(place));
    driver.go();
    let (replies, status) = driver.end();
    if status.success() {
        assert_eq!(replies.len(), 1);
        return false;
    }
    assert_eq!(status.signal(), Some(SIGKILL), "{place}");
    assert_eq!(replies.len(), 0, "{place}");
    true
}

fn call(ledger: &Ledger) -> Value {
    let path = ledger.path();
    let mut driver = Driver::start(&["call", path.to_str().unwrap(), "crash"], None);
    driver.go();
    let (mut replies, status) = driver.end();
    assert!(status.success());
    replies.remove(0)
}

/// Kills at each statement in turn; returns whether the effect was there after each kill.
fn kill_everywhere(action: &str) -> Vec<bool> {
    let mut kept = Vec::new();
    for number in 1.. {
        let ledger = Ledger::new();
        let place = format!("{action}:{number}");
        if !killed_at(&ledger, &place) {
            break;
        }
        let rows = ledger.rows();
        assert!(rows == (0, 0) || rows == (1, 1), "{place}: {rows:?}");
        let committed = rows == (1, 1);
        let reply = call(&ledger);
        assert_eq!(reply["status"], "succeeded", "{place}: {reply}");
        assert_eq!(reply["replayed"], committed, "{place}: {reply}");
        assert_eq!(ledger.rows(), (1, 1), "{place}");
        kept.push(committed);
    }
    kept
}

#[test]
fn killed_before_any_statement_a_call_is_whole_or_absent() {
    let kept = kill_everywhere("kill-before");
    // BEGIN, scope, upgrade, note, scope again, its row, receipt, COMMIT.
    assert!(8 <= kept.len(), "{kept:?}");
    assert!(kept.iter().all(|kept| !kept), "{kept:?}");
}

#[test]
fn killed_after_any_statement_a_call_is_whole_or_absent() {
    let kept = kill_everywhere("kill-after");
    assert!(8 <= kept.len(), "{kept:?}");
    // After the commit alone the effect is there.
    assert_eq!(kept.iter().filter(|kept| **kept).count(), 1, "{kept:?}");
    assert_eq!(kept.last(), Some(&true), "{kept:?}");
}

#[test]
fn a_server_killed_after_its_commit_replays() {
    let ledger = Ledger::new();
    assert!(killed_at(&ledger, "kill:after-commit"));
    assert_eq!(ledger.rows(), (1, 1));
    assert_eq!(call(&ledger)["replayed"], true);
}

const BATCH: i64 = 8;

/// Calls in one batch, in a process that may kill itself, and so many in their midst that are
/// refused after they wrote; the replies of the others, and whether it was killed.
fn batch(ledger: &Ledger, place: Option<&str>, refused: usize) -> (Vec<Value>, bool) {
    let path = ledger.path();
    let (calls, refused) = (BATCH.to_string(), refused.to_string());
    let arguments = ["batch", path.to_str().unwrap(), &calls, &refused];
    let mut driver = Driver::start(&arguments, place);
    driver.go();
    let (mut replies, status) = driver.end();
    replies.retain(|reply| reply["status"] != "failed");
    let killed = status.signal() == Some(SIGKILL);
    assert!(killed || status.success(), "{place:?}");
    (replies, killed)
}

/// Kills a batch at each of its statements; returns how often its calls were there.
fn kill_a_batch_everywhere(action: &str, refused: usize) -> (usize, usize) {
    let (mut kills, mut kept) = (0, 0);
    for number in 1.. {
        let ledger = Ledger::new();
        let place = format!("{action}:{number}");
        let (acknowledged, killed) = batch(&ledger, Some(&place), refused);
        if !killed {
            assert_eq!(acknowledged.len(), 8);
            break;
        }
        let rows = ledger.rows();
        assert!(
            rows == (0, 0) || rows == (BATCH, BATCH),
            "{place}: {rows:?}"
        );
        assert!(
            acknowledged.is_empty() || rows == (BATCH, BATCH),
            "{place}: {rows:?}"
        );
        let (replies, _) = batch(&ledger, None, 0);
        assert_eq!(replies.len(), 8, "{place}");
        for reply in replies {
            assert_eq!(reply["status"], "succeeded", "{place}: {reply}");
            assert_eq!(
                reply["replayed"],
                rows == (BATCH, BATCH),
                "{place}: {reply}"
            );
        }
        assert_eq!(ledger.rows(), (BATCH, BATCH), "{place}");
        kills += 1;
        kept += usize::from(rows == (BATCH, BATCH));
    }
    (kills, kept)
}

/// Look-up, note and receipt of each call.
const STATEMENTS: usize = 3 * 8;

/// Look-up, savepoint, note, receipt and release of each call in the second transaction,
/// after a first one that did without savepoints.
const STATEMENTS_BESIDE_A_REFUSAL: usize = 5 * 8 + 3 * 4;

#[test]
fn killed_before_any_statement_of_a_batch_nothing_of_it_remains() {
    for (refused, statements) in [(0, STATEMENTS), (1, STATEMENTS_BESIDE_A_REFUSAL)] {
        let (kills, kept) = kill_a_batch_everywhere("kill-before", refused);
        assert!(statements <= kills, "{kills}");
        assert_eq!(kept, 0);
    }
}

#[test]
fn killed_after_any_statement_of_a_batch_it_is_whole_or_absent() {
    for (refused, statements) in [(0, STATEMENTS), (1, STATEMENTS_BESIDE_A_REFUSAL)] {
        let (kills, kept) = kill_a_batch_everywhere("kill-after", refused);
        assert!(statements <= kills, "{kills}");
        // After the commit alone the effects are there.
        assert_eq!(kept, 1);
    }
}

#[test]
fn a_server_killed_after_a_batchs_commit_replays_all_of_it() {
    let ledger = Ledger::new();
    let (_, killed) = batch(&ledger, Some("kill:after-commit"), 0);
    assert!(killed);
    assert_eq!(ledger.rows(), (BATCH, BATCH));
    let (replies, _) = batch(&ledger, None, 0);
    assert!(
        replies.iter().all(|reply| reply["replayed"] == true),
        "{replies:?}"
    );
}
