//! Tools that an agent can call again after a lost answer, without a second effect.

pub use clock::{Clock, ManualClock, SystemClock};
pub use effect::failure::Failure;
#[cfg(feature = "sqlite")]
pub use effect::tx::Tx;
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
pub use store::Store;
#[cfg(feature = "sqlite")]
pub use store::sqlite::SqliteStore;
pub use tool::{AsyncContext, Context, Handler, RunsOn, SyncContext, Tool};
pub use toolbox::{BuildError, Toolbox, ToolboxBuilder};

mod tool;
mod toolbox;
mod request;
mod operation;
mod effect;
mod store;
mod reply;
mod clock;
#[cfg(feature = "rmcp")]
pub mod mcp;
#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
