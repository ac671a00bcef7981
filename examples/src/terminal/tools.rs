//! The tools: `open_session` is one row, `run_command` has its effect outside the database.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use idempotent_tool::{
    Access, Asked, Attempt, AttemptError, BuildError, Caller, Failure, Inquiry, OperationId,
    Reconciled, SqliteStore, Toolbox, TransactError, Tx, idempotent_tool,
};
use rusqlite::OptionalExtension;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    evidence::{End, Evidence, Proven},
    keeper,
};

/// What `open_session` returns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// The id of the session.
    pub session_id: Uuid,
}

/// What `run_command` returns: the command has ended by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ended {
    /// The exit code; zero by custom means success.
    pub exit_code: i32,
    /// How much it has written; `read_output` shows it.
    pub output_bytes: u64,
}

/// A command, and the session that it runs in.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    /// The session, as `open_session` returned it.
    pub session_id: Uuid,
    /// The command, for `/bin/sh`.
    #[schemars(length(min = 1, max = 10_000))]
    pub command: String,
}

/// Open a session: a folder of its own, in which commands run.
///
/// # Errors
///
/// When the database refuses the row.
#[idempotent_tool(
    operation = "open_session:v1",
    title = "Open session",
    destructive = false
)]
pub fn open_session(tx: &Tx) -> Result<Session, Failure> {
    // The folder is made by the first command: it is no part of the transaction.
    let session_id = Uuid::now_v7();
    tx.execute(
        "INSERT INTO sessions (id, scope) VALUES (?1, ?2)",
        (session_id.to_string(), tx.scope()),
    )?;
    Ok(Session { session_id })
}

/// Run a command in a session's shell, at most once.
///
/// A command that was killed half way is never run again by itself: its outcome is unknown
/// until somebody has looked at what it did. `read_output` shows what it wrote until then.
///
/// # Errors
///
/// When there is no such session, or it can't be told whether the command came to its end.
// The times are short so that the demonstration is. A command that takes longer is followed
// by its evidence.
#[idempotent_tool(
    operation = "run_command:v1",
    title = "Run command",
    reconcile(
        find_end,
        settle = "1s",
        inspect = "Call read_output with session_id {session_id} and operation_id {operation_id}: \
                   it shows what the command has written, and whether it runs, has ended or was killed"
    ),
    deadline = "15s",
    attempt_timeout = "5s",
    wait = "2s"
)]
pub async fn run_command(
    attempt: &Attempt,
    #[arguments] task: Task,
    #[state] terminal: &Terminal,
) -> Result<Ended, AttemptError> {
    let known = terminal.knows(task.session_id, attempt.scope()).await;
    if !known.map_err(unreadable)? {
        return Err(AttemptError::refused(
            "no_such_session",
            "there is no such session; open one",
        ));
    }
    let folder = terminal.session(task.session_id);
    fs::create_dir_all(&folder).map_err(unreadable)?;
    let evidence = terminal.evidence(task.session_id, attempt.operation_id());
    // The look-up may have taken long.
    attempt.check().await?;
    keeper::start(&evidence, &folder, &task.command)
        .await
        .map_err(|error| {
            AttemptError::ambiguous("keeper_lost", "whether the command was run can't be told")
                .with_source(error)
        })?;
    match proven(&evidence).await {
        Ok(Proven::Ended(End::ExitCode(exit_code))) => of_code(&evidence, exit_code),
        Ok(Proven::NotStarted) => Err(AttemptError::not_applied(
            "not_started",
            "the command could not be started",
        )),
        Ok(Proven::Running) => Err(AttemptError::ambiguous(
            "running",
            "the command was started by an earlier attempt, and runs",
        )),
        Ok(Proven::Ended(End::Signal(_)) | Proven::Abandoned) => Err(AttemptError::ambiguous(
            "killed",
            "the command was killed before its end; what it did until then stands",
        )),
        Err(error) => Err(error),
    }
}

/// Asks the evidence what became of a command.
async fn find_end(inquiry: &Inquiry) -> Result<Reconciled<Ended>, AttemptError> {
    let terminal = inquiry.state::<Terminal>()?;
    let task: Task = inquiry.arguments()?;
    let evidence = terminal.evidence(task.session_id, inquiry.operation_id());
    Ok(match proven(&evidence).await? {
        Proven::NotStarted => Reconciled::NotApplied,
        Proven::Ended(End::ExitCode(code)) => Reconciled::Applied(of_code(&evidence, code)?),
        Proven::Running => Reconciled::Undetermined,
        // Whatever it did until then stands, and only a person can tell what is missing.
        Proven::Ended(End::Signal(_)) | Proven::Abandoned => Reconciled::Undeterminable,
    })
}

async fn proven(evidence: &Evidence) -> Result<Proven, AttemptError> {
    let unreadable = |error: io::Error| {
        AttemptError::ambiguous(
            "evidence_unreadable",
            "the command's evidence can't be read",
        )
        .with_source(error)
    };
    let evidence = evidence.clone();
    let read = tokio::task::spawn_blocking(move || evidence.read());
    let read = read.await.map_err(|error| unreadable(error.into()))?;
    read.map_err(unreadable)
}

fn of_code(evidence: &Evidence, exit_code: i32) -> Result<Ended, AttemptError> {
    let output_bytes = evidence.output_bytes().map_err(|error| {
        AttemptError::ambiguous("output_unreadable", "the command's output can't be read")
            .with_source(error)
    })?;
    Ok(Ended {
        exit_code,
        output_bytes,
    })
}

/// Nothing was sent before this failed.
fn unreadable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> AttemptError {
    AttemptError::not_applied("sessions_unreadable", "the sessions can't be read now")
        .with_source(error)
}

/// Where sessions and their commands' evidence are.
#[derive(Debug, Clone)]
pub struct Terminal {
    store: SqliteStore,
    root: PathBuf,
}

impl Terminal {
    /// The terminal whose ledger is `db`; the sessions' folders are beside it.
    #[must_use]
    pub fn new(store: SqliteStore, db: &Path) -> Self {
        Self {
            store,
            root: db.with_extension("sessions"),
        }
    }

    /// Whether a session is this scope's.
    ///
    /// # Errors
    ///
    /// When the database can't be read.
    pub async fn knows(&self, session_id: Uuid, scope: &str) -> io::Result<bool> {
        let (store, scope) = (self.store.clone(), scope.to_owned());
        let found = tokio::task::spawn_blocking(move || {
            store.read(|connection| {
                connection
                    .query_row(
                        "SELECT 1 FROM sessions WHERE id = ?1 AND scope = ?2",
                        (session_id.to_string(), scope),
                        |_| Ok(()),
                    )
                    .optional()
            })
        });
        let found = found.await?.map_err(io::Error::other)?;
        Ok(found.is_some())
    }

    /// The folder in which a session's commands run.
    #[must_use]
    pub fn session(&self, session_id: Uuid) -> PathBuf {
        self.root.join(session_id.to_string()).join("work")
    }

    /// What is kept of a command.
    #[must_use]
    pub fn evidence(&self, session_id: Uuid, operation_id: OperationId) -> Evidence {
        let folder = self.root.join(session_id.to_string());
        Evidence::in_folder(folder.join(operation_id.to_string()))
    }
}

/// Creates the application's own table, beside the ledger's, if the file is new.
///
/// # Errors
///
/// When the file can't be written.
pub fn create_table(store: &SqliteStore) -> Result<(), TransactError<rusqlite::Error>> {
    store.transact_blocking(|tx| {
        tx.execute_batch(
            "CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, scope TEXT NOT NULL)",
        )
    })
}

/// The toolbox of the server. It must be built inside a tokio runtime, where attempts run.
///
/// # Errors
///
/// When the ledger in `store` can't be used with these tools.
pub fn toolbox(store: &SqliteStore, terminal: Terminal) -> Result<Toolbox, BuildError> {
    Toolbox::builder(store.clone())
        // One caller, who started the server and may do all of it.
        .authorize(|_: &Caller, _: &Asked<'_>| Access::Allowed)
        .state(terminal)
        .tool::<open_session>()
        .tool::<run_command>()
        .build()
}
