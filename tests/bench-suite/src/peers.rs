//! What a user could pick instead, in its own process and its own settings.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use idempotent_tool::Synchronous;

use crate::{
    load::{Keys, Load, Measured},
    ours,
    report::{Asked, Report, Row, median},
};

const ROUNDS: usize = 3;
const SECONDS: u64 = 3;

/// A peer, what it is asked to be beaten by, and how its commits are synced.
const PEERS: [(&str, f64, Synchronous, &str); 4] = [
    (
        "durare",
        3.0,
        Synchronous::Normal,
        "both with synchronous NORMAL",
    ),
    (
        "article",
        8.0,
        Synchronous::Full,
        "the article's Python, a connection per call",
    ),
    (
        "dbos",
        100.0,
        Synchronous::Full,
        "dbos for Python over SQLite",
    ),
    (
        "powertools",
        3.0,
        Synchronous::Full,
        "aws-lambda-powertools over SQLite",
    ),
];

/// Runs every peer; `tests/bench --peers` has built and installed them.
pub(crate) fn run(report: &mut Report) {
    for (peer, asked, synchronous, note) in PEERS {
        for callers in [1, 8] {
            let (mut ours, mut rates) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                ours.push(ours_with(synchronous, callers));
                let folder = tempfile::tempdir().expect("a folder");
                rates.push(run_peer(peer, &folder.path().join("peer.sqlite3"), callers));
            }
            let mut row = Row::throughput(
                format!("new random, {peer}"),
                callers,
                peer,
                Asked::AtLeast(asked),
                &ours,
                &[],
            );
            row.other = median(&rates);
            row.ratios = ours
                .iter()
                .zip(&rates)
                .map(|(ours, peer)| ours.per_second() / peer)
                .collect();
            report.row(row.with_note(format!("({note})")));
        }
    }
}

fn ours_with(synchronous: Synchronous, callers: usize) -> Measured {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bench.sqlite3");
    let load = Load {
        callers,
        keys: Keys::Random,
        time: Duration::from_secs(SECONDS),
    };
    let ours = ours::Ours::open_with(&path, synchronous);
    // What each caller would use: the thread's own call alone, tasks when there are more.
    if callers == 1 {
        ours::blocking_on(&ours, load)
    } else {
        ours::new_keys_on(&ours, load)
    }
}

fn run_peer(peer: &str, path: &Path, callers: usize) -> f64 {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target: PathBuf = root.join("../../target/bench");
    let mut command = if peer == "durare" {
        Command::new(target.join("durare/release/peer-durare"))
    } else {
        let mut python = Command::new(target.join("python/bin/python"));
        python.arg(root.join("peers/peers.py")).arg(peer);
        python
    };
    let output = command
        .arg(path)
        .arg(callers.to_string())
        .arg(SECONDS.to_string())
        .output()
        .expect("a peer; start the bench with `tests/bench --peers`, which installs them");
    assert!(
        output.status.success(),
        "`{peer}` failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text
        .lines()
        .last()
        .and_then(|line| line.split_whitespace().next());
    rate.and_then(|rate| rate.parse().ok())
        .expect("the peer's rate")
}
