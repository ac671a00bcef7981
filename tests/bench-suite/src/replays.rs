//! Calls whose receipts are there.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use serde_json::json;

use crate::{
    hand::{self, BODY, Layout},
    load::{AsyncCaller, Keys, Load, Measured, tasks, threads},
    ours::Ours,
};

/// How many receipts are asked for in turn.
const RECEIPTS: usize = 1_000;

/// How many writers saturate the write lock beside the replays.
const WRITERS: usize = 8;

/// Replays in the caller's thread.
pub(crate) fn ours_blocking(path: &Path, load: Load) -> Measured {
    let ours = Ours::open(path);
    let keys = ours.fill(RECEIPTS);
    threads(load, |_| ours_caller(&ours, &keys))
}

fn ours_caller(ours: &Ours, keys: &[String]) -> impl FnMut() -> u64 {
    let mut keys = keys.iter().cycle();
    move || {
        let key = keys.next().expect("a key");
        assert!(ours.call_blocking(key), "a receipt was not replayed");
        0
    }
}

/// Replays in a task.
pub(crate) fn ours(path: &Path, load: Load) -> Measured {
    let ours = Ours::open(path);
    let keys = ours.fill(RECEIPTS);
    tasks(load, |_| Replays {
        ours: ours.clone(),
        keys: keys.clone(),
        next: 0,
    })
}

struct Replays {
    ours: Ours,
    keys: Vec<String>,
    next: usize,
}

impl AsyncCaller for Replays {
    async fn call(&mut self) {
        self.next = (self.next + 1) % self.keys.len();
        assert!(
            self.ours.call(&self.keys[self.next]).await,
            "a receipt was not replayed"
        );
    }
}

/// The least that a replay can be: the arguments validated, the receipt selected.
pub(crate) fn bare(path: &Path, load: Load) -> Measured {
    let keys = hand::fill(path, Layout::Article, RECEIPTS);
    let schema = json!({
        "type": "object",
        "properties": { "body": { "type": "string", "minLength": 1, "maxLength": 10_000 } },
        "required": ["body"],
        "additionalProperties": false,
    });
    threads(load, |_| {
        let connection = Layout::Article.open(path);
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        let mut keys = keys.iter().cycle();
        move || {
            let key = keys.next().expect("a key");
            let arguments = json!({ "body": BODY });
            assert!(validator.is_valid(&arguments), "invalid arguments");
            let found = hand::find(&connection, key).expect("a look-up");
            assert!(found.is_some(), "a receipt is missing");
            0
        }
    })
}

/// Replays while writers saturate the store.
pub(crate) fn ours_under_writers(path: &Path, load: Load) -> Measured {
    let ours = Ours::open(path);
    let keys = ours.fill(RECEIPTS);
    beside(
        || {
            ours.call_blocking(&Keys::Random.next());
        },
        || threads(load, |_| ours_caller(&ours, &keys)),
    )
}

/// Look-ups under the write lock while writers saturate it.
pub(crate) fn locked_under_writers(path: &Path, load: Load) -> Measured {
    let keys = hand::fill(path, Layout::Article, RECEIPTS);
    thread_local! {
        static CONNECTION: std::cell::OnceCell<rusqlite::Connection> = const { std::cell::OnceCell::new() };
    }
    beside(
        || {
            CONNECTION.with(|connection| {
                let connection = connection.get_or_init(|| Layout::Article.open(path));
                hand::create_note(connection, &Keys::Random.next(), BODY);
            });
        },
        || {
            threads(load, |_| {
                let connection = Layout::Article.open(path);
                let mut keys = keys.iter().cycle();
                move || hand::locked_replay(&connection, keys.next().expect("a key"))
            })
        },
    )
}

/// Runs `measure` while writers write as fast as they can.
fn beside(write: impl Fn() + Sync, measure: impl FnOnce() -> Measured) -> Measured {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    write();
                }
            });
        }
        let measured = measure();
        stop.store(true, Ordering::Relaxed);
        measured
    })
}
