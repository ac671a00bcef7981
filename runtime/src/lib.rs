//! Tools that an agent can call again after a lost answer, without a second effect.
//!
//! An agent calls a tool, the server commits, the answer is lost, the agent retries.
//! [`#[idempotent_tool]`](macro@idempotent_tool) on a handler makes that safe: the effect
//! and its receipt are one commit, and the same key gets the same result, byte for byte.
//!
//! ```
//! use idempotent_tool::{Caller, Failure, Scope, SqliteStore, Toolbox, Tx, idempotent_tool};
//! use serde_json::json;
//!
//! /// Create a note in the caller's project.
//! #[idempotent_tool(operation = "create_note:v1", retention = "30d")]
//! fn create_note(
//!     tx: &Tx,
//!     /// The text of the note.
//!     #[schemars(length(min = 1, max = 10_000))]
//!     body: String,
//! ) -> Result<i64, Failure> {
//!     tx.execute("INSERT INTO notes (scope, body) VALUES (?1, ?2)", (tx.scope(), &body))?;
//!     Ok(tx.last_insert_rowid())
//! }
//!
//! let store = SqliteStore::in_memory()?;
//! store.transact_blocking(|tx| tx.execute_batch("CREATE TABLE notes (scope TEXT, body TEXT)"))?;
//! let tools =
//!     Toolbox::builder(store).without_authorization().tool::<create_note>().build()?;
//!
//! let caller = Caller::new(Scope::builder().account("acme").principal("ada").build()?);
//! let arguments = json!({ "idempotency_key": "note-request-7b025dc8", "body": "Buy milk" });
//! let first = tools.call_blocking(&caller, "create_note", arguments.clone());
//! let again = tools.call_blocking(&caller, "create_note", arguments);
//! assert!(again.is_replayed());
//! assert_eq!(again.operation_id(), first.operation_id());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Toolbox`] holds the tools; [`call`](Toolbox::call) answers with a [`Reply`].
//! - [`SqliteStore`] is where effects and receipts are (feature `sqlite`, on by default);
//!   [`Tx`] is what a handler writes through.
//! - [`Caller`] and [`Scope`] say who calls, [`Access`] and [`Asked`] whether it may.
//! - `mcp::Adapter` serves a toolbox over MCP (feature `rmcp`).

pub use clock::{BootId, Clock, ManualClock, SystemClock};
#[cfg(feature = "sqlite")]
pub use effect::tx::{Transaction, Tx};
pub use effect::{
    external::{
        attempt::Attempt,
        error::AttemptError,
        incident::{Incident, IncidentKind},
        inquiry::{Inquiry, Reconciled},
        resolution::{Finding, Resolution, ResolveError},
    },
    failure::Failure,
};
pub use idempotent_tool_macros::idempotent_tool;
pub use operation::id::{MalformedOperationId, OperationId};
pub use reply::{
    Reply, Status,
    describe::{Annotations, ToolDescription},
};
pub use request::{
    authorize::{Access, Asked},
    caller::Caller,
    carrier::CarriedKeys,
    key::{IdempotencyKey, InvalidKey},
    scope::{EmptyScope, Scope, ScopeBuilder},
    tags::Tags,
};
#[cfg(feature = "sqlite")]
pub use store::sqlite::{
    OpenError, Pruned, SqliteOptions, SqliteStore, Synchronous, TransactError,
};
pub use store::{Store, StoreError};
pub use tool::{AsyncContext, AsyncHandler, Context, Handler, RunsOn, SyncContext, Tool};
pub use toolbox::{BuildError, CallError, Completed, Toolbox, ToolboxBuilder};

#[cfg(all(feature = "sqlite", feature = "failpoints"))]
#[doc(hidden)]
pub use store::sqlite::failpoints;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
mod clock;
mod definition;
mod effect;
mod finite;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
#[cfg_attr(
    not(feature = "sqlite"),
    allow(dead_code, reason = "a ledger's time is kept by its store")
)]
mod ledger_time;
#[cfg(feature = "rmcp")]
pub mod mcp;
mod operation;
mod panics;
mod reading;
mod reply;
mod request;
mod store;
mod tool;
mod toolbox;

/// The README's examples are tests, with the features that they need.
#[cfg(all(doctest, feature = "sqlite", feature = "reqwest"))]
#[doc = include_str!("../../README.md")]
struct Readme;
