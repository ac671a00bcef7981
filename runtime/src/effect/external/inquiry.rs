//! Asking a provider what became of an operation.

use std::{fmt, sync::Arc};

use serde::de::DeserializeOwned;
use serde_json::{Value, value::RawValue};

use crate::{
    definition::AsyncFn,
    effect::external::error::AttemptError,
    operation::{id::OperationId, record::Record},
    request::caller::Caller,
    store::BoxFuture,
    tool::{ExternalError, HandlerResult, State, ToolOutput},
};

/// The question what became of an operation: the parameter of the function that
/// `reconcile(path, settle = "…")` names.
///
/// The function asks the provider by [`provider_key`](Self::provider_key), the reference
/// that the tool gave with its request, and answers with [`Reconciled`]. It must change
/// nothing.
///
/// Don't ask by [`operation_id`](Self::operation_id): after the ledger was restored from a
/// backup, an operation that it had lost gets another one, and the provider's "unknown" would
/// count as [`NotApplied`](Reconciled::NotApplied).
#[derive(Clone)]
pub struct Inquiry {
    operation_id: OperationId,
    attempts: u32,
    provider_key: String,
    caller: Caller,
    state: Arc<State>,
    arguments: Arc<Value>,
}

/// What a provider says of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reconciled<T> {
    /// The effect exists, and this is the tool's result.
    Applied(T),
    /// The provider knows nothing of the operation. It counts once no send can be on its way
    /// any more: `settle` after the last one.
    NotApplied,
    /// The provider can't tell now.
    Undetermined,
    /// The provider can't tell, and nothing will change that: the outcome is unknown at once.
    Undeterminable,
}

/// An answer with its types erased.
pub(crate) type ErasedAnswer = Result<Reconciled<Box<RawValue>>, AttemptError>;

/// How the function is kept.
pub(crate) type AskFn = fn(Inquiry) -> BoxFuture<'static, ErasedAnswer>;

impl Inquiry {
    pub(crate) fn new(
        record: &Record,
        caller: Caller,
        state: Arc<State>,
        arguments: Arc<Value>,
    ) -> Self {
        Self {
            operation_id: record.operation_id,
            attempts: record.operation.attempts,
            provider_key: record.provider_key(),
            caller,
            state,
            arguments,
        }
    }

    /// The operation that is asked about.
    #[must_use]
    pub fn operation_id(&self) -> OperationId {
        self.operation_id
    }

    /// What the provider knows the operation by: the
    /// [`provider_key`](crate::Attempt::provider_key) of its attempts.
    #[must_use]
    pub fn provider_key(&self) -> &str {
        &self.provider_key
    }

    /// How many attempts have begun.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Who called; after a restart, with the scope alone.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The operation's arguments, as a type that can be read from them.
    ///
    /// # Errors
    ///
    /// When `T` refuses them.
    pub fn arguments<T: DeserializeOwned>(&self) -> Result<T, AttemptError> {
        T::deserialize(&*self.arguments).map_err(|_| {
            // The error's text may quote the value.
            AttemptError::not_applied("invalid_arguments", "the arguments are of another type")
        })
    }

    /// The toolbox's state of type `T`.
    ///
    /// # Errors
    ///
    /// When the toolbox was not given any.
    pub fn state<T: 'static>(&self) -> Result<&T, AttemptError> {
        self.state.get().map_err(|failure| {
            let (code, message) = (failure.code().to_owned(), failure.message().to_owned());
            AttemptError::not_applied(code, message)
        })
    }
}

/// The answer of the function that the attribute names, with its types erased.
#[doc(hidden)]
pub fn answer<R, E, F>(future: F) -> BoxFuture<'static, ErasedAnswer>
where
    R: HandlerResult<AsyncFn>,
    E: ExternalError,
    F: Future<Output = Result<Reconciled<R::Output>, E>> + Send + 'static,
{
    Box::pin(async move {
        let answer = future.await.map_err(ExternalError::into_attempt_error)?;
        Ok(match answer {
            Reconciled::Applied(result) => {
                let result = result.to_json();
                Reconciled::Applied(result.map_err(AttemptError::unwritable_result)?)
            }
            Reconciled::NotApplied => Reconciled::NotApplied,
            Reconciled::Undetermined => Reconciled::Undetermined,
            Reconciled::Undeterminable => Reconciled::Undeterminable,
        })
    })
}

impl fmt::Debug for Inquiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inquiry")
            .field("operation_id", &self.operation_id)
            .finish_non_exhaustive()
    }
}
