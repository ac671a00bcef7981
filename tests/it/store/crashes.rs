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
    assert!(6 <= kept.len(), "{kept:?}");
    assert!(kept.iter().all(|kept| !kept), "{kept:?}");
}

#[test]
fn killed_after_any_statement_a_call_is_whole_or_absent() {
    let kept = kill_everywhere("kill-after");
    assert!(6 <= kept.len(), "{kept:?}");
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
