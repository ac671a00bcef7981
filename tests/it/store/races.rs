//! One key from many threads and processes, and many keys at once.

use std::{sync::Barrier, thread};

use idempotent_tool_tests::{caller, toolbox};
use serde_json::{Value, json};

use super::Driver;
use crate::common::{self, Ledger, key};

/// Replies that all carry one operation's result; one of them is the first.
#[track_caller]
fn assert_one_effect(replies: &[Value]) {
    for reply in replies {
        assert_eq!(reply["status"], "succeeded", "{reply}");
        assert_eq!(reply["result"], replies[0]["result"]);
        assert_eq!(reply["operation_id"], replies[0]["operation_id"]);
    }
    let first = replies.iter().filter(|reply| reply["replayed"] == false);
    assert_eq!(first.count(), 1);
}

#[test]
fn eight_threads_with_one_key_write_once() {
    let ledger = Ledger::new();
    let tools = toolbox(&ledger.store).unwrap();
    let ada = caller().unwrap();
    for round in 0..20 {
        let barrier = Barrier::new(8);
        let call = || {
            let arguments = json!({ "idempotency_key": key(&round.to_string()), "body": "milk" });
            barrier.wait();
            common::json(&tools.call_blocking(&ada, "write_note", arguments))
        };
        let replies: Vec<Value> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(call)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert_one_effect(&replies);
        assert_eq!(ledger.rows(), (round + 1, round + 1));
    }
}

#[test]
fn four_processes_of_eight_threads_with_one_key_write_once() {
    let ledger = Ledger::new();
    let path = ledger.path();
    let db = path.to_str().unwrap();
    let mut drivers: Vec<Driver> = (0..4)
        .map(|_| Driver::start(&["race", db, "one-key", "8"], None))
        .collect();
    drivers.iter_mut().for_each(Driver::go);
    let mut replies = Vec::new();
    for driver in drivers {
        let (printed, status) = driver.end();
        assert!(status.success());
        replies.extend(printed);
    }
    assert_eq!(replies.len(), 32);
    assert_one_effect(&replies);
    assert_eq!(ledger.rows(), (1, 1));
}

#[test]
fn four_processes_with_400_keys_write_400_rows() {
    let ledger = Ledger::new();
    let path = ledger.path();
    let db = path.to_str().unwrap();
    let mut drivers: Vec<Driver> = ["a", "b", "c", "d"]
        .iter()
        .map(|prefix| Driver::start(&["distinct", db, prefix, "4", "25"], None))
        .collect();
    drivers.iter_mut().for_each(Driver::go);
    for driver in drivers {
        let (replies, status) = driver.end();
        assert!(status.success());
        assert_eq!(replies.len(), 100);
        for reply in replies {
            assert_eq!(reply["status"], "succeeded", "{reply}");
            assert_eq!(reply["replayed"], false, "{reply}");
        }
    }
    assert_eq!(ledger.rows(), (400, 400));
}
