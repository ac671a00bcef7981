//! How the ledger's layout was chosen: the writer's own work on one connection, in shared
//! commits, with one layout and one setting after the other.
//!
//! `layouts [SIZE] [SECONDS] [ROUNDS] [WORDS]`: receipts in the ledger beforehand, how long
//! each runs, how often, and which layouts by parts of their names.

#[allow(dead_code)]
#[path = "load.rs"]
mod load;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use rusqlite::{Connection, config::DbConfig};
use uuid::Uuid;

use crate::load::{Keys, length, process_time};

const BATCH: usize = 32;

struct Layout {
    name: &'static str,
    tables: &'static str,
    find: &'static str,
    insert: &'static [&'static str],
    key: Key,
    settings: &'static str,
    stable_plans: bool,
    savepoints: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Text,
    Bytes,
    /// As good as random, whatever the keys are.
    Digest,
}

const TABLE: &str = "CREATE TABLE operations (seq INTEGER PRIMARY KEY, operation_id BLOB, key ANY NOT NULL, scope INTEGER NOT NULL, tool INTEGER NOT NULL, version INTEGER NOT NULL, fingerprint BLOB, expires_at INTEGER NOT NULL, forget_at INTEGER NOT NULL, result TEXT) STRICT;";
const FIND: &str = "SELECT operation_id, version, fingerprint, expires_at, result FROM operations WHERE key = ?1 AND scope = ?2 AND tool = ?3";
const INSERT: &str = "INSERT INTO operations (key, scope, tool, operation_id, version, fingerprint, expires_at, forget_at, result) VALUES (?1, ?2, ?3, ?4, 1, ?5, ?6, ?7, ?8)";

const KEY_INDEX: Layout = Layout {
    name: "append + key index, UUID bytes",
    tables: "CREATE UNIQUE INDEX identity ON operations (key, scope, tool)",
    find: FIND,
    insert: &[INSERT],
    key: Key::Bytes,
    settings: "PRAGMA wal_autocheckpoint = 4000",
    stable_plans: true,
    savepoints: true,
};

const LAYOUTS: &[Layout] = &[
    KEY_INDEX,
    Layout {
        name: "the same, text",
        key: Key::Text,
        ..KEY_INDEX
    },
    Layout {
        name: "the same, no QPSG",
        stable_plans: false,
        ..KEY_INDEX
    },
    Layout {
        name: "the same, no savepoints",
        savepoints: false,
        ..KEY_INDEX
    },
    Layout {
        name: "the same, checkpoint 1000",
        settings: "PRAGMA wal_autocheckpoint = 1000",
        ..KEY_INDEX
    },
    Layout {
        name: "the same, checkpoint 7000",
        settings: "PRAGMA wal_autocheckpoint = 7000",
        ..KEY_INDEX
    },
    Layout {
        name: "the same, cache 16 MB",
        settings: "PRAGMA wal_autocheckpoint = 4000; PRAGMA cache_size = -16000",
        ..KEY_INDEX
    },
    Layout {
        name: "the same, mmap 1 GB",
        settings: "PRAGMA wal_autocheckpoint = 4000; PRAGMA mmap_size = 1000000000",
        ..KEY_INDEX
    },
    Layout {
        name: "the same, pages of 1 kB",
        settings: "PRAGMA wal_autocheckpoint = 16000; PRAGMA page_size = 1024",
        ..KEY_INDEX
    },
    Layout {
        name: "the same, pages of 2 kB",
        settings: "PRAGMA wal_autocheckpoint = 8000; PRAGMA page_size = 2048",
        ..KEY_INDEX
    },
    Layout {
        name: "the same, pages of 8 kB",
        settings: "PRAGMA wal_autocheckpoint = 2000; PRAGMA page_size = 8192",
        ..KEY_INDEX
    },
    Layout {
        name: "append + digest index",
        key: Key::Digest,
        ..KEY_INDEX
    },
    Layout {
        name: "without rowid, key first",
        tables: "DROP TABLE operations; CREATE TABLE operations (key ANY NOT NULL, scope INTEGER NOT NULL, tool INTEGER NOT NULL, operation_id BLOB, version INTEGER NOT NULL, fingerprint BLOB, expires_at INTEGER NOT NULL, forget_at INTEGER NOT NULL, result TEXT, PRIMARY KEY (key, scope, tool)) STRICT, WITHOUT ROWID",
        ..KEY_INDEX
    },
    Layout {
        name: "append, identity in a table of its own",
        tables: "DROP TABLE operations; CREATE TABLE operations (seq INTEGER PRIMARY KEY, operation_id BLOB, version INTEGER NOT NULL, fingerprint BLOB, expires_at INTEGER NOT NULL, forget_at INTEGER NOT NULL, result TEXT) STRICT; CREATE TABLE identities (key ANY NOT NULL, scope INTEGER NOT NULL, tool INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (key, scope, tool)) STRICT, WITHOUT ROWID",
        find: "SELECT operation_id, version, fingerprint, expires_at, result FROM identities JOIN operations USING (seq) WHERE key = ?1 AND scope = ?2 AND tool = ?3",
        insert: &[
            "INSERT INTO operations (operation_id, version, fingerprint, expires_at, forget_at, result) VALUES (?4, 1, ?5, ?6, ?7, ?8)",
            "INSERT INTO identities VALUES (?1, ?2, ?3, last_insert_rowid())",
        ],
        ..KEY_INDEX
    },
    Layout {
        name: "no receipt at all",
        tables: "SELECT 1",
        insert: &[],
        ..KEY_INDEX
    },
];

fn number<N: std::str::FromStr>(argument: Option<&String>, otherwise: N) -> N {
    argument.map_or(otherwise, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("`{text}` is no such number"))
    })
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let size = number(arguments.first(), 0_usize);
    let time = Duration::from_secs_f64(number(arguments.get(1), 1.0));
    let rounds = number(arguments.get(2), 3_usize);
    let word = arguments.get(3).map_or("", String::as_str);
    println!(
        "{:<42} {:>8} {:>10} {:>10} {:>9} {:>8}",
        "layout", "keys", "calls/s", "us cpu", "bytes", "log MB"
    );
    for keys in [Keys::Random, Keys::Ordered] {
        let layouts: Vec<_> = LAYOUTS
            .iter()
            .filter(|layout| layout.name.contains(word))
            .collect();
        let folders: Vec<_> = layouts
            .iter()
            .map(|layout| {
                let folder = tempfile::tempdir().expect("a folder");
                let database = Database::create(layout, &folder.path().join("db"));
                database.fill(keys, size);
                (folder, database)
            })
            .collect();
        let mut results = vec![Vec::new(); layouts.len()];
        for _ in 0..rounds {
            for (place, (folder, database)) in folders.iter().enumerate() {
                let (rate, cpu) = database.run(keys, time);
                results[place].push((rate, cpu, length(&folder.path().join("db-wal"))));
            }
        }
        for (place, (_, database)) in folders.iter().enumerate() {
            let runs = &mut results[place];
            runs.sort_by(|one, other| one.0.total_cmp(&other.0));
            let (rate, cpu, _) = runs[runs.len() / 2];
            let log = runs.iter().map(|run| run.2).max().unwrap_or(0);
            println!(
                "{:<42} {:>8} {:>10.0} {:>10.2} {:>9.1} {:>8.1}",
                layouts[place].name,
                if keys == Keys::Random {
                    "random"
                } else {
                    "ordered"
                },
                rate,
                cpu,
                database.bytes(),
                log as f64 / 1e6
            );
        }
    }
}

struct Database<'a> {
    layout: &'a Layout,
    connection: Connection,
}

impl<'a> Database<'a> {
    fn create(layout: &'a Layout, path: &Path) -> Self {
        let connection = Connection::open(path).expect("a database");
        let batch = |sql: &str| connection.execute_batch(sql).expect("settings");
        batch(layout.settings);
        batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
        batch("CREATE TABLE notes (id TEXT PRIMARY KEY, scope TEXT NOT NULL, body TEXT NOT NULL)");
        batch(TABLE);
        batch(layout.tables);
        connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, layout.stable_plans)
            .expect("settings");
        connection.set_prepared_statement_cache_capacity(64);
        Self { layout, connection }
    }

    fn fill(&self, keys: Keys, size: usize) {
        self.connection
            .execute_batch("PRAGMA synchronous = OFF; BEGIN")
            .expect("a transaction");
        for _ in 0..size {
            self.receipt(keys);
        }
        self.connection
            .execute_batch("COMMIT; PRAGMA synchronous = FULL")
            .expect("a commit");
        self.connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .expect("a checkpoint");
    }

    fn run(&self, keys: Keys, time: Duration) -> (f64, f64) {
        let (began, cpu) = (Instant::now(), process_time());
        let mut calls = 0;
        while began.elapsed() < time {
            self.execute("BEGIN IMMEDIATE");
            for _ in 0..BATCH {
                self.call(keys);
            }
            self.execute("COMMIT");
            calls += BATCH;
        }
        let calls = calls as f64;
        (
            calls / began.elapsed().as_secs_f64(),
            process_time().saturating_sub(cpu).as_secs_f64() * 1e6 / calls,
        )
    }

    fn call(&self, keys: Keys) {
        if self.layout.savepoints {
            self.execute("SAVEPOINT one");
        }
        self.connection
            .prepare_cached("INSERT INTO notes (id, scope, body) VALUES (?1, ?2, ?3)")
            .expect("a statement")
            .execute((
                Uuid::now_v7().to_string(),
                "[\"account-17\",\"user-42\",\"project-9\"]",
                "Investigate the failing parser fixture.",
            ))
            .expect("a note");
        self.receipt(keys);
        if self.layout.savepoints {
            self.execute("RELEASE one");
        }
    }

    fn receipt(&self, keys: Keys) {
        let id = Uuid::now_v7();
        let key = match self.layout.key {
            Key::Bytes | Key::Digest => {
                let uuid = if self.layout.key == Key::Digest {
                    Keys::Random
                } else {
                    keys
                }
                .uuid();
                rusqlite::types::Value::Blob(uuid.as_bytes().to_vec())
            }
            Key::Text => rusqlite::types::Value::Text(keys.next()),
        };
        if self.layout.insert.is_empty() {
            return;
        }
        let found = self
            .connection
            .prepare_cached(self.layout.find)
            .expect("a statement")
            .exists((&key, 1, 1))
            .expect("a look-up");
        assert!(!found, "a new key is there");
        for insert in self.layout.insert {
            let mut insert = self.connection.prepare_cached(insert).expect("a statement");
            let result = format!(r#"{{"note_id":"{id}"}}"#);
            let values: [&dyn rusqlite::ToSql; 8] = [
                &key,
                &1,
                &1,
                id.as_bytes(),
                &[7_u8; 33],
                &1_800_000_000_000_i64,
                &1_900_000_000_000_i64,
                &result,
            ];
            for (place, value) in values.iter().take(insert.parameter_count()).enumerate() {
                // A statement that takes only some of them numbers them all the same.
                insert
                    .raw_bind_parameter(place + 1, value)
                    .expect("a value");
            }
            insert.raw_execute().expect("a receipt");
        }
    }

    fn execute(&self, sql: &str) {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut sql| sql.execute([]))
            .expect("a statement");
    }

    /// Bytes of the ledger per receipt, beside the result.
    fn bytes(&self) -> f64 {
        if self.layout.insert.is_empty() {
            return 0.0;
        }
        self.connection
            .query_row(
                "SELECT (SELECT sum(pgsize) FROM dbstat WHERE name IN ('operations', 'identities', 'identity', 'sqlite_autoindex_operations_1')) * 1.0
                     / count(*) - avg(length(result)) FROM operations",
                [],
                |row| row.get(0),
            )
            .expect("the pages")
    }
}
