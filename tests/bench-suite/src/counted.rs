//! One replay and one new call, for counting their instructions under callgrind.

#[allow(dead_code)]
mod bound;
#[allow(dead_code)]
mod hand;
#[allow(dead_code)]
mod load;
#[allow(dead_code)]
mod ours;

use std::hint::black_box;

use crate::{load::Keys, ours::Ours};

/// How many calls are counted, for an even figure.
const CALLS: usize = 200;

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let ours = Ours::open(&folder.path().join("counted.sqlite3"));
    let keys = ours.fill(CALLS);
    for key in &keys {
        ours.call_blocking(key); // What is opened and prepared once.
    }
    let new: Vec<String> = (0..CALLS).map(|_| Keys::Ordered.next()).collect();
    for key in &keys {
        counted_replay(&ours, key);
    }
    for key in &new {
        counted_new_call(&ours, key);
    }
}

/// Callgrind collects inside this function only.
#[inline(never)]
fn counted_replay(ours: &Ours, key: &str) {
    assert!(
        ours.call_blocking(black_box(key)),
        "a receipt was not replayed"
    );
}

/// Callgrind collects inside this function only.
#[inline(never)]
fn counted_new_call(ours: &Ours, key: &str) {
    assert!(
        !ours.call_blocking(black_box(key)),
        "a new key was replayed"
    );
}
