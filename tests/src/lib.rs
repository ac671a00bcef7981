//! What the integration tests share with the processes that they start, and kill.

use idempotent_tool::{
    BuildError, Caller, EmptyScope, Failure, Scope, SqliteStore, Toolbox, TransactError, Tx,
    idempotent_tool,
};

/// Writes one note.
///
/// # Errors
///
/// When the database refuses it.
#[idempotent_tool(operation = "write_note:v1", deadline = "60s")]
pub fn write_note(tx: &Tx, body: String) -> Result<i64, Failure> {
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, ?2)",
        (tx.scope(), &body),
    )?;
    Ok(tx.last_insert_rowid())
}

/// Writes a note and then refuses it.
///
/// # Errors
///
/// Always.
#[idempotent_tool(operation = "refuse_note:v1", deadline = "60s")]
pub fn refuse_note(tx: &Tx, body: String) -> Result<(), Failure> {
    tx.execute(
        "INSERT INTO notes (scope, body) VALUES (?1, ?2)",
        (tx.scope(), &body),
    )?;
    Err(Failure::new("refused", "no such note"))
}

/// The application's table.
///
/// # Errors
///
/// When it can't be made.
pub fn create_notes(store: &SqliteStore) -> Result<(), TransactError<rusqlite::Error>> {
    store.transact_blocking(|tx| {
        tx.execute_batch(
            "CREATE TABLE IF NOT EXISTS notes (
                 id INTEGER PRIMARY KEY,
                 scope TEXT NOT NULL,
                 body TEXT NOT NULL
             )",
        )
    })
}

/// A toolbox with [`write_note`].
///
/// # Errors
///
/// When the ledger can't be read or written.
pub fn toolbox(store: &SqliteStore) -> Result<Toolbox, BuildError> {
    Toolbox::builder(store.clone())
        .without_authorization()
        .tool::<write_note>()
        .tool::<refuse_note>()
        .build()
}

/// The caller of every process.
///
/// # Errors
///
/// Never: it names a principal.
pub fn caller() -> Result<Caller, EmptyScope> {
    Ok(Caller::new(
        Scope::builder().account("acme").principal("ada").build()?,
    ))
}

/// A page of the guide, whose program is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/existing-rmcp-server.md")]
pub struct ExistingRmcpServer;
