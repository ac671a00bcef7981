//! Ledgers that have grown: what a call costs on top of millions of receipts.

use std::{fs, path::Path, time::Duration};

use rusqlite::Connection;
use uuid::Uuid;

use crate::{
    cases::Plan,
    load::{Keys, Load, Measured},
    ours::{self, Ours},
    report::{Asked, Report, Row, median},
    resources,
};

/// A minute, as the log's length is asked about.
const MINUTE: Duration = Duration::from_mins(1);

pub(crate) fn run(plan: Plan, report: &mut Report) {
    resources::longest_log(MINUTE, report);
    for (keys, name, most) in [
        (Keys::Ordered, "ordered", 1.4),
        (Keys::Random, "random", 2.3),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let small = folder.path().join("10k.sqlite3");
        fill(&small, keys, 0, 10_000);
        let large = folder.path().join("grown.sqlite3");
        let mut filled = 0;
        for (size, label) in [(1_000_000, "1M"), (10_000_000, "10M")] {
            fill(&large, keys, filled, size);
            filled = size;
            let (mut at_small, mut at_large) = (Vec::new(), Vec::new());
            for _ in 0..plan.rounds {
                let copy = folder.path().join("copy.sqlite3");
                fs::copy(&small, &copy).expect("a copy");
                at_small.push(grouped(&copy, keys));
                remove(&copy);
                at_large.push(grouped(&large, keys));
            }
            let cpu = |side: &[Measured]| {
                side.iter()
                    .map(Measured::cpu_per_call_us)
                    .collect::<Vec<_>>()
            };
            let mut row = Row::throughput(
                format!("grown {label} {name}"),
                64,
                "at 10 k receipts",
                if label == "10M" {
                    Asked::AtMost(most)
                } else {
                    Asked::Stated
                },
                &at_large,
                &at_small,
            );
            let rates = format!("({:.0} calls/s, at 10 k {:.0})", row.ours, row.other);
            row.unit = "us of processor per call";
            row.ours = median(&cpu(&at_large));
            row.other = median(&cpu(&at_small));
            row.ratios = cpu(&at_large)
                .iter()
                .zip(cpu(&at_small))
                .map(|(large, small)| large / small)
                .collect();
            report.row(row.with_note(rates));
        }
        if keys == Keys::Random {
            resources::memory(&large, report);
        }
    }
}

fn grouped(path: &Path, keys: Keys) -> Measured {
    let ours = Ours::open(path);
    ours::new_keys_on(
        &ours,
        Load {
            callers: 64,
            keys,
            time: Duration::from_millis(1500),
        },
    )
}

fn remove(path: &Path) {
    for end in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        // What the store has removed itself is gone already.
        let _ = fs::remove_file(name);
    }
}

/// Receipts as calls would have left them, `from` to `to`, straight into the tables.
pub(crate) fn fill(path: &Path, keys: Keys, from: u64, to: u64) {
    {
        // One call makes the tables, and the rows that receipts refer to.
        let ours = Ours::open(path);
        ours.call_blocking(&Keys::Random.next());
    }
    let connection = Connection::open(path).expect("the database");
    connection
        .execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -1000000; PRAGMA wal_autocheckpoint = 100000")
        .expect("settings");
    let (scope, tool): (i64, i64) = connection
        .query_row(
            "SELECT scope, tool FROM idempotent_receipts LIMIT 1",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .expect("a receipt");
    for start in (from..to).step_by(100_000) {
        connection.execute_batch("BEGIN").expect("a transaction");
        {
            let mut insert = connection
                .prepare_cached(
                    "INSERT INTO idempotent_receipts (operation_id, key, scope, tool, version, \
                     fingerprint, expires_at, forget_at, result) \
                     VALUES (?1, ?2, ?3, ?4, 1, ?5, 1000000000000000, 2000000000000000, ?6)",
                )
                .expect("the ledger");
            for _ in start..(start + 100_000).min(to) {
                let id = Uuid::now_v7();
                insert
                    .execute((
                        id.as_bytes(),
                        keys.uuid().as_bytes(),
                        scope,
                        tool,
                        [1_u8; 33],
                        format!(r#"{{"note_id":"{id}"}}"#),
                    ))
                    .expect("a receipt");
            }
        }
        connection.execute_batch("COMMIT").expect("a commit");
    }
    connection
        .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .expect("a checkpoint");
}
