//! Our side: the article's tool with everything on.

use std::{path::Path, sync::Arc};

use idempotent_tool::{
    Access, Asked, Caller, Failure, Scope, SqliteStore, Synchronous, Toolbox, Tx, idempotent_tool,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    hand::{BODY, INSERT_NOTE, NOTES},
    load::{AsyncCaller, Keys, Load, Measured, tasks, threads},
};

/// What `create_note` returns.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Note {
    /// The id of the note.
    note_id: String,
}

/// Create a note in the caller's project.
#[idempotent_tool(operation = "create_note:v1")]
fn create_note(
    tx: &Tx,
    /// The text of the note.
    #[schemars(length(min = 1, max = 10_000))]
    body: String,
) -> Result<Note, Failure> {
    let note_id = Uuid::now_v7().to_string();
    tx.execute(INSERT_NOTE, (&note_id, tx.scope(), &body))?;
    Ok(Note { note_id })
}

/// An opened store with the tool.
#[derive(Clone)]
pub(crate) struct Ours {
    pub toolbox: Toolbox,
    pub caller: Arc<Caller>,
}

impl Ours {
    pub(crate) fn open(path: &Path) -> Self {
        Self::open_with(path, Synchronous::Full)
    }

    pub(crate) fn open_with(path: &Path, synchronous: Synchronous) -> Self {
        let store = SqliteStore::options()
            .synchronous(synchronous)
            .open(path)
            .expect("a store");
        store
            .transact_blocking(|tx| tx.execute_batch(NOTES))
            .expect("the notes");
        let toolbox = Toolbox::builder(store)
            .authorize(|caller: &Caller, asked: &Asked<'_>| {
                Access::from(
                    caller.scope().account() == Some("account-17") && asked.tool() == "create_note",
                )
            })
            .tool::<create_note>()
            .build()
            .expect("a toolbox");
        let scope = Scope::builder()
            .account("account-17")
            .principal("user-42")
            .workspace("project-9")
            .build()
            .expect("a scope");
        Self {
            toolbox,
            caller: Arc::new(Caller::new(scope)),
        }
    }

    pub(crate) fn call_blocking(&self, key: &str) -> bool {
        let reply = self
            .toolbox
            .call_blocking(&self.caller, "create_note", arguments(key));
        assert!(
            reply.result().is_some(),
            "our side failed: {}",
            reply.explanation()
        );
        reply.is_replayed()
    }

    pub(crate) async fn call(&self, key: &str) -> bool {
        let reply = self
            .toolbox
            .call(&self.caller, "create_note", arguments(key))
            .await;
        assert!(
            reply.result().is_some(),
            "our side failed: {}",
            reply.explanation()
        );
        reply.is_replayed()
    }

    /// Receipts to ask for; returns their keys.
    pub(crate) fn fill(&self, count: usize) -> Vec<String> {
        let key = || {
            let key = Keys::Random.next();
            self.call_blocking(&key);
            key
        };
        (0..count).map(|_| key()).collect()
    }
}

fn arguments(key: &str) -> Value {
    json!({ "idempotency_key": key, "body": BODY })
}

struct NewKeys(Ours, Keys);

impl AsyncCaller for NewKeys {
    async fn call(&mut self) {
        let replayed = self.0.call(&self.1.next()).await;
        assert!(!replayed, "a new key was replayed");
    }
}

/// New keys from all callers, each of them in a task.
pub(crate) fn new_keys(path: &Path, load: Load) -> Measured {
    new_keys_on(&Ours::open(path), load)
}

pub(crate) fn new_keys_on(ours: &Ours, load: Load) -> Measured {
    tasks(load, |_| NewKeys(ours.clone(), load.keys))
}

/// New keys from all callers, each of them in a thread.
pub(crate) fn new_keys_blocking(path: &Path, load: Load) -> Measured {
    blocking_on(&Ours::open(path), load)
}

pub(crate) fn blocking_on(ours: &Ours, load: Load) -> Measured {
    threads(load, |_| {
        || {
            assert!(
                !ours.call_blocking(&load.keys.next()),
                "a new key was replayed"
            );
            0
        }
    })
}
