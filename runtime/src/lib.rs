//! Tools that an agent can call again after a lost answer, without a second effect.

pub use clock::{Clock, ManualClock, SystemClock};
pub use effect::failure::Failure;
#[cfg(feature = "sqlite")]
pub use effect::tx::{Transaction, Tx};
pub use idempotent_tool_macros::idempotent_tool;
pub use operation::id::{MalformedOperationId, OperationId};
pub use reply::{
    Reply, Status,
    describe::{Annotations, ToolDescription},
};
pub use request::{
    authorize::{Access, Asked},
    caller::Caller,
    key::{IdempotencyKey, InvalidKey},
    scope::{EmptyScope, Scope, ScopeBuilder},
};
#[cfg(feature = "sqlite")]
pub use store::sqlite::{
    OpenError, Pruned, SqliteOptions, SqliteStore, Synchronous, TransactError,
};
pub use store::{Store, StoreError};
pub use tool::{AsyncContext, Context, Handler, RunsOn, SyncContext, Tool};
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
#[cfg(feature = "rmcp")]
pub mod mcp;
mod operation;
mod reply;
mod request;
mod store;
mod tool;
mod toolbox;
