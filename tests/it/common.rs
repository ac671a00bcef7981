//! What the tests share: marked values, a store on a real file, callers, and the
//! subscriber that no marked value may reach.

use std::{
    fmt::{self, Write as _},
    path::PathBuf,
    sync::Once,
    time::{Duration, SystemTime},
};

use idempotent_tool::{Caller, Reply, Scope, SqliteStore};
use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;
use tracing::{Event, Subscriber, field::Visit, span};
use tracing_subscriber::{Layer, layer::Context, layer::SubscriberExt};

use crate::pace::PacedClock;

/// In every key, argument and result of the suite that is text; in no log line.
pub(crate) const MARK: &str = "m4rk3d-v4lu3";

/// A text that must reach no log.
pub(crate) fn marked(text: &str) -> String {
    format!("{MARK} {text}")
}

/// A key that must reach no log.
pub(crate) fn key(name: &str) -> String {
    format!("{MARK}-{name}")
}

/// A ledger on a real file with the application's table `notes`, and a clock that stands still.
pub(crate) struct Ledger {
    pub(crate) folder: TempDir,
    pub(crate) clock: PacedClock,
    pub(crate) store: SqliteStore,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        watch_logs();
        let folder = tempfile::tempdir().unwrap();
        let clock = PacedClock::new(SystemTime::UNIX_EPOCH + Duration::from_hours(500_000));
        let store = SqliteStore::options()
            .clock(clock.clone())
            .background_pruning(false)
            .open(folder.path().join("db"))
            .unwrap();
        create_notes(&store);
        Self {
            folder,
            clock,
            store,
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("db")
    }

    /// Another store on the same file, as another process would open it.
    pub(crate) fn reopen(&self) -> SqliteStore {
        SqliteStore::options()
            .clock(self.clock.clone())
            .open(self.path())
            .unwrap()
    }

    /// Rows in `notes` and rows in the ledger.
    pub(crate) fn rows(&self) -> (i64, i64) {
        Connection::open(self.path())
            .unwrap()
            .query_row(
                "SELECT (SELECT count(*) FROM notes), (SELECT count(*) FROM idempotent_receipts)",
                (),
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .unwrap()
    }
}

pub(crate) fn create_notes(store: &SqliteStore) {
    store
        .transact_blocking(|tx| {
            tx.execute_batch(
                "CREATE TABLE IF NOT EXISTS notes (
                     id INTEGER PRIMARY KEY,
                     scope TEXT NOT NULL,
                     body TEXT NOT NULL
                 )",
            )
        })
        .unwrap();
}

pub(crate) fn caller(principal: &str) -> Caller {
    let scope = Scope::builder()
        .account("acme")
        .principal(principal)
        .workspace("lab");
    Caller::new(scope.build().unwrap())
}

pub(crate) fn ada() -> Caller {
    caller("ada")
}

/// The reply as a caller reads it.
pub(crate) fn json(reply: &Reply) -> Value {
    serde_json::from_str(&reply.to_json()).unwrap()
}

#[track_caller]
pub(crate) fn assert_code(reply: &Reply, code: &str) {
    assert_eq!(reply.error_code(), Some(code), "{}", reply.to_json());
}

#[track_caller]
pub(crate) fn assert_succeeded(reply: &Reply, replayed: bool) {
    assert!(reply.result().is_some(), "{}", reply.to_json());
    assert_eq!(reply.is_replayed(), replayed, "{}", reply.to_json());
}

/// Makes every later log line of the process, at any level, stop it if a marked value is
/// in it. A panic would be caught where handlers are called, so it aborts.
pub(crate) fn watch_logs() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::registry().with(Watch);
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
}

struct Watch;

impl<S: Subscriber> Layer<S> for Watch {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, _: &span::Id, _: Context<'_, S>) {
        let mut text = Text::of(attributes.metadata());
        attributes.record(&mut text);
        text.check();
    }

    fn on_record(&self, _: &span::Id, values: &span::Record<'_>, _: Context<'_, S>) {
        let mut text = Text {
            target: String::new(),
            fields: String::new(),
        };
        values.record(&mut text);
        text.check();
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::of(event.metadata());
        event.record(&mut text);
        text.check();
    }
}

struct Text {
    target: String,
    fields: String,
}

impl Text {
    fn of(metadata: &tracing::Metadata<'_>) -> Self {
        Self {
            target: metadata.target().to_owned(),
            fields: metadata.name().to_owned(),
        }
    }

    /// Ours only: the MCP SDK logs whole requests, which is why applications silence it.
    fn check(&self) {
        if self.fields.contains(MARK) && !self.target.starts_with("rmcp") {
            eprintln!(
                "a marked value reached the log: {}: {}",
                self.target, self.fields
            );
            std::process::abort();
        }
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        write!(self.fields, " {field}={value:?}").unwrap();
    }
}
