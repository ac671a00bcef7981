//! Calls by the generated type: typed arguments in, typed result out.

use std::fmt;

use serde::{Serialize, de::DeserializeOwned};

use super::{Input, Toolbox};
use crate::{
    finite,
    operation::id::OperationId,
    reply::Reply,
    request::{caller::Caller, carrier::CarriedKeys},
    store::Wait,
    tool::Tool,
};

/// The result of a call that succeeded, now or earlier.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completed<T> {
    /// The operation's durable handle.
    pub operation_id: OperationId,
    /// Whether the result is that of an earlier call with the same key.
    pub replayed: bool,
    /// The handler's output, read from the retained bytes.
    pub result: T,
}

/// Why a typed call has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallError {
    /// The call did not succeed; the reply says what happened and what to do.
    Unsuccessful(Box<Reply>),
    /// The arguments can't be written as JSON, as when a number among them is not finite.
    /// Nothing was called.
    Arguments(serde_json::Error),
    /// The operation succeeded, but its result can't be read as the tool's output type,
    /// as when another version executed it. The reply has the result as JSON.
    Result(Box<Reply>, serde_json::Error),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsuccessful(reply) => f.write_str(&reply.explanation()),
            Self::Arguments(_) => {
                f.write_str("the arguments can't be written as JSON; nothing was called")
            }
            Self::Result(..) => f.write_str(
                "the operation succeeded, but its result is not of the tool's output type; read it from the reply",
            ),
        }
    }
}

impl std::error::Error for CallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unsuccessful(_) => None,
            Self::Arguments(error) | Self::Result(_, error) => Some(error),
        }
    }
}

impl Toolbox {
    /// Calls the tool that `T` names, under its version, and reads its result.
    ///
    /// `keys` is an [`IdempotencyKey`](crate::IdempotencyKey), owned or borrowed, or what the
    /// request carries; if that is malformed, missing or several, the call is refused with
    /// `invalid_key`, as [`call_carrying`](Self::call_carrying) refuses it.
    /// `arguments` is anything that serializes to the arguments' object, without the key.
    /// A key that was used under another version is served by that one's contract.
    ///
    /// # Errors
    ///
    /// When the call did not succeed, or its result is not a `T::Output`.
    pub async fn call_typed<T: Tool>(
        &self,
        caller: &Caller,
        keys: impl Into<CarriedKeys>,
        arguments: &(impl Serialize + Sync + ?Sized),
    ) -> Result<Completed<T::Output>, CallError>
    where
        T::Output: DeserializeOwned,
    {
        let input = typed_input::<T>(keys.into(), arguments)?;
        let tool = T::declaration().name;
        completed(self.inner.call(caller, tool, input, Wait::Async).await)
    }

    /// Calls the tool that `T` names from a thread that may block.
    ///
    /// See [`call_typed`](Self::call_typed) and [`call_blocking`](Self::call_blocking).
    ///
    /// # Errors
    ///
    /// When the call did not succeed, or its result is not a `T::Output`.
    pub fn call_typed_blocking<T: Tool>(
        &self,
        caller: &Caller,
        keys: impl Into<CarriedKeys>,
        arguments: &(impl Serialize + ?Sized),
    ) -> Result<Completed<T::Output>, CallError>
    where
        T::Output: DeserializeOwned,
    {
        let input = typed_input::<T>(keys.into(), arguments)?;
        let tool = T::declaration().name;
        completed(self.inner.block_on(caller, tool, input))
    }
}

fn typed_input<T: Tool>(
    keys: CarriedKeys,
    arguments: &(impl Serialize + ?Sized),
) -> Result<Input, CallError> {
    Ok(Input::Typed {
        keys,
        arguments: finite::to_value(arguments)
            .map_err(|error| CallError::Arguments(error.into()))?,
        version: T::declaration().version,
    })
}

fn completed<T: DeserializeOwned>(reply: Reply) -> Result<Completed<T>, CallError> {
    let (Some(operation_id), Some(result)) = (reply.operation_id(), reply.result()) else {
        return Err(CallError::Unsuccessful(Box::new(reply)));
    };
    match serde_json::from_str(result.get()) {
        Ok(result) => Ok(Completed {
            operation_id,
            replayed: reply.is_replayed(),
            result,
        }),
        Err(error) => Err(CallError::Result(Box::new(reply), error)),
    }
}
