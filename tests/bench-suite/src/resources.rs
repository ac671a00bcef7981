//! What a store takes: bytes on the disk, memory, the write-ahead log.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::{
    load::{Keys, Load, length},
    ours::{self, Ours},
    report::{Asked, Report, Row},
};

/// How often the log's length is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// Bytes per receipt beside its key and result, all tables and indexes of the ledger
/// counted, as the pages are filled after that many calls.
pub(crate) fn bytes_per_receipt(receipts: i64, report: &mut Report) {
    for (keys, name) in [(Keys::Ordered, "ordered"), (Keys::Random, "random")] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("bench.sqlite3");
        let ours = Ours::open(&path);
        let load = Load {
            callers: 64,
            keys,
            time: Duration::from_millis(500),
        };
        while count(&path) < receipts {
            ours::new_keys_on(&ours, load);
        }
        drop(ours);
        let bytes = ledger_bytes(&path);
        report.row(Row::figure(
            format!("bytes per receipt, {name} keys"),
            64,
            "bytes beside key and result",
            Asked::AtMost(120.0),
            vec![bytes],
            &[f64::NAN],
            "",
        ));
    }
}

fn count(path: &Path) -> i64 {
    let connection = rusqlite::Connection::open(path).expect("the database");
    let count = connection.query_row("SELECT count(*) FROM notes", [], |row| row.get(0));
    count.expect("the notes")
}

fn ledger_bytes(path: &Path) -> f64 {
    let connection = rusqlite::Connection::open(path).expect("the database");
    connection
        .query_row(
            "SELECT (SELECT sum(pgsize) FROM dbstat WHERE name IN
                        (SELECT name FROM sqlite_schema WHERE tbl_name LIKE 'idempotent!_%' ESCAPE '!'))
                    * 1.0 / count(*) - avg(length(key)) - avg(length(result))
             FROM idempotent_receipts",
            [],
            |row| row.get(0),
        )
        .expect("the pages of the ledger")
}

/// The longest write-ahead log while callers write for `time`.
pub(crate) fn longest_log(time: Duration, report: &mut Report) {
    for (keys, name) in [(Keys::Ordered, "ordered"), (Keys::Random, "random")] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("bench.sqlite3");
        let log = folder.path().join("bench.sqlite3-wal");
        let stop = AtomicBool::new(false);
        let longest = thread::scope(|scope| {
            let longest = scope.spawn(|| {
                let mut longest = 0;
                while !stop.load(Ordering::Relaxed) {
                    longest = longest.max(length(&log));
                    thread::sleep(LOOK);
                }
                longest
            });
            let measured = ours::new_keys(
                &path,
                Load {
                    callers: 64,
                    keys,
                    time,
                },
            );
            stop.store(true, Ordering::Relaxed);
            println!(
                "    {name}: {:.0} calls/s for {:?}, p99 {:.1} us, longest {:.1} us",
                measured.per_second(),
                time,
                measured.permille(990),
                measured.permille(1000)
            );
            longest.join().expect("the log's watcher panicked")
        });
        let longest = longest as f64 / 1024.0 / 1024.0;
        report.row(Row::figure(
            format!("longest write-ahead log, {name} keys"),
            64,
            "MiB",
            Asked::AtMost(32.0),
            vec![longest],
            &[f64::NAN],
            "",
        ));
    }
}

/// Memory over the bare process, of a child with the database at `path`.
pub(crate) fn memory(path: &Path, report: &mut Report) {
    let bare = of_child("bare", path);
    for (what, asked) in [("idle", 10.0), ("load", 64.0)] {
        let used = of_child(what, path);
        report.row(Row::figure(
            format!("memory, {what}"),
            if what == "idle" { 0 } else { 64 },
            "MiB over the bare process",
            Asked::AtMost(asked),
            vec![used - bare],
            &[bare],
            "the bare process",
        ));
    }
}

fn of_child(what: &str, path: &Path) -> f64 {
    let this = std::env::current_exe().expect("this program");
    let output = Command::new(this)
        .arg("child")
        .arg(what)
        .arg(path)
        .output()
        .expect("a child");
    assert!(
        output.status.success(),
        "the child failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .expect("a number of MiB")
}

/// A child: does what it is told and prints the most memory it had, in MiB.
pub(crate) fn child(arguments: &[String]) -> ExitCode {
    let [what, path] = arguments else {
        return ExitCode::from(2);
    };
    let path = PathBuf::from(path);
    let ours = match what.as_str() {
        "bare" => None,
        "idle" | "load" => Some(Ours::open(&path)),
        _ => return ExitCode::from(2),
    };
    if let Some(ours) = &ours {
        if what == "load" {
            for keys in [Keys::Random, Keys::Ordered] {
                ours::new_keys_on(
                    ours,
                    Load {
                        callers: 64,
                        keys,
                        time: Duration::from_secs(5),
                    },
                );
            }
        } else {
            // Each path once, and the pruning that an idle store begins with.
            let key = Keys::Random.next();
            ours.call_blocking(&key);
            ours.call_blocking(&key);
            thread::sleep(Duration::from_secs(6));
        }
    }
    println!("{:.2}", most_memory());
    ExitCode::SUCCESS
}

/// The most resident memory of this process so far, in MiB.
fn most_memory() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap_or_default();
    let kib: f64 = line
        .split_whitespace()
        .next()
        .and_then(|kib| kib.parse().ok())
        .unwrap_or(0.0);
    kib / 1024.0
}
