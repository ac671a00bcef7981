//! The tools, their table, and the toolbox that has both versions.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, RwLock},
};

use idempotent_tool::{
    Access, Asked, BuildError, Caller, Failure, SqliteStore, Toolbox, ToolboxBuilder,
    TransactError, Tx, idempotent_tool,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::support::tokens;

/// What `create_note` returns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Note {
    /// The id of the note.
    pub note_id: Uuid,
}

/// Create a note in the caller's project.
///
/// # Errors
///
/// When the database refuses the row.
#[idempotent_tool(
    operation = "create_note:v1",
    title = "Create note",
    destructive = false
)]
pub fn create_note_v1(
    tx: &Tx,
    /// The text of the note.
    #[schemars(length(min = 1, max = 10_000))]
    body: String,
) -> Result<Note, Failure> {
    insert(tx, &body, false)
}

/// Create a note: writes its `body` to the caller's project, listed first if `pinned`.
/// Returns its id.
///
/// # Errors
///
/// When the database refuses the row.
#[idempotent_tool(
    operation = "create_note:v2",
    title = "Create note",
    destructive = false
)]
pub fn create_note(
    tx: &Tx,
    /// The text of the note.
    #[schemars(
        length(min = 1, max = 10_000),
        example = "Investigate the failing parser fixture."
    )]
    body: String,
    /// Whether the note stays on top of the list.
    #[serde(default)]
    pinned: bool,
) -> Result<Note, Failure> {
    insert(tx, &body, pinned)
}

/// The effect of both versions: one row, under an id made here.
///
/// # Errors
///
/// When the database refuses the row.
pub fn insert(tx: &Tx, body: &str, pinned: bool) -> Result<Note, Failure> {
    let note_id = Uuid::now_v7();
    tx.execute(
        "INSERT INTO notes (id, scope, body, pinned) VALUES (?1, ?2, ?3, ?4)",
        (note_id.to_string(), tx.scope(), body, pinned),
    )?;
    Ok(Note { note_id })
}

/// Creates the application's own table, beside the ledger's, if the file is new.
///
/// # Errors
///
/// When the file can't be written.
pub fn create_table(store: &SqliteStore) -> Result<(), TransactError<rusqlite::Error>> {
    store.transact_blocking(|tx| {
        tx.execute_batch(
            "CREATE TABLE IF NOT EXISTS notes (
                 id TEXT PRIMARY KEY,
                 scope TEXT NOT NULL,
                 body TEXT NOT NULL,
                 pinned INTEGER NOT NULL DEFAULT 0
             )",
        )
    })
}

/// The tools that nobody may call now. Clones share the list.
#[derive(Debug, Clone, Default)]
pub struct Revoked(Arc<RwLock<BTreeSet<String>>>);

impl Revoked {
    /// Takes the permission for `tool` from everybody.
    pub fn revoke(&self, tool: impl Into<String>) {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(tool.into());
    }

    /// Gives the permission for `tool` back.
    pub fn restore(&self, tool: &str) {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(tool);
    }

    /// The answer to every call: asked on replays too, so that a revoked permission
    /// hides old results.
    pub fn authorize(&self, asked: &Asked<'_>) -> Access {
        let revoked = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Access::from(!revoked.contains(asked.tool()))
    }
}

/// A toolbox without tools yet, which asks `revoked` about every call.
pub fn builder(store: &SqliteStore, revoked: Revoked) -> ToolboxBuilder<SqliteStore> {
    Toolbox::builder(store.clone())
        .authorize(move |_: &Caller, asked: &Asked<'_>| revoked.authorize(asked))
}

/// The toolbox of one trusted caller: all tools but the revoked ones.
///
/// # Errors
///
/// When the ledger in `store` can't be used with these tools.
pub fn toolbox(store: &SqliteStore, revoked: Revoked) -> Result<Toolbox, BuildError> {
    register(builder(store, revoked))
}

/// The toolbox of many callers: each may call the tools that its token names.
///
/// # Errors
///
/// When the ledger in `store` can't be used with these tools.
pub fn toolbox_for_tokens(store: &SqliteStore) -> Result<Toolbox, BuildError> {
    register(Toolbox::builder(store.clone()).authorize(tokens::authorize))
}

/// Both versions, so that a key used under v1 stays good.
fn register(builder: ToolboxBuilder<SqliteStore>) -> Result<Toolbox, BuildError> {
    builder
        .tool::<create_note_v1>()
        .tool::<create_note>()
        .build()
}
