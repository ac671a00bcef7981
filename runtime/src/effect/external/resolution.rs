//! An unknown outcome that a person settles.

use serde_json::Value;

use crate::{effect::failure::Failure, operation::id::OperationId, store::StoreError};

/// What a person has found out about an operation whose outcome is unknown.
///
/// That the effect exists may be said of one that has failed or was cancelled, too: it has
/// succeeded then, whatever was told before.
///
/// ```
/// use idempotent_tool::{Finding, OperationId, Resolution};
///
/// # let operation_id: OperationId = "op_0190163d8694739b8ab4a3c0d1f2e3a4".parse()?;
/// let resolution = Resolution {
///     operation_id,
///     attempts: 1,
///     finding: Finding::NotApplied,
///     by: "ada".into(),
///     why: "the provider's list has no such deployment".into(),
/// };
/// # Ok::<(), idempotent_tool::MalformedOperationId>(())
/// ```
#[derive(Debug, Clone)]
pub struct Resolution {
    /// The operation that is settled.
    pub operation_id: OperationId,
    /// How many attempts had begun when the person looked, as `get_operation` lists them. If
    /// there are more by now, what was found out doesn't cover them, and is refused.
    pub attempts: u32,
    /// What was found out.
    pub finding: Finding,
    /// Who found it out; recorded.
    pub by: String,
    /// How; recorded.
    pub why: String,
}

/// What became of the effect.
#[derive(Clone)]
pub enum Finding {
    /// It exists, and this is the tool's result, which must fit the tool's schema.
    Succeeded(Value),
    /// It doesn't exist, and the same key is not to run again: a code for programs and a
    /// message for the caller.
    Failed {
        /// The code.
        code: String,
        /// The message.
        message: String,
    },
    /// It doesn't exist, and the same key may run again. A cancelled operation becomes
    /// `cancelled`.
    NotApplied,
}

/// Why an operation is not settled, or may be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// There is no such external operation in the ledger.
    #[error("there is no such operation; use the id that a reply gave")]
    NotFound,
    /// The operation's tool is not registered under its version.
    #[error("the operation's tool is not registered; register the version that recorded it")]
    NotRegistered,
    /// Its outcome is not unknown, or attempts began that the finding doesn't cover.
    #[error(
        "the operation's outcome is not unknown, or newer attempts have begun; inspect it again"
    )]
    MovedOn,
    /// The result doesn't fit the tool's schema or limit.
    #[error("the result can't be the tool's: {0}")]
    InvalidResult(#[source] Failure),
    /// The ledger can't be read or written; nothing was written.
    #[error("the ledger can't be read or written: {0}")]
    Store(#[from] StoreError),
    /// The database failed at the commit, and whether the finding is recorded can't be
    /// established.
    #[error("whether the finding is recorded can't be established; inspect the operation again")]
    Unknown(#[source] StoreError),
}

impl std::fmt::Debug for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Succeeded(_) => "Succeeded",
            Self::Failed { .. } => "Failed",
            Self::NotApplied => "NotApplied",
        })
    }
}
