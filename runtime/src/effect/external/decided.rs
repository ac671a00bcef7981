//! Decisions about operations, made and written by the store.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    effect::external::executor::Executor,
    operation::{id::OperationId, record::Record, state::Refusal},
    store::{BoxFuture, Decide, StoreError, WriteError},
};

/// Why a decision changed nothing, or may have.
pub(crate) enum Undecided {
    /// The state machine refuses it; the record as it is.
    Refused(Refusal, Box<Record>),
    /// There is no such operation any more.
    Gone,
    /// Nothing was written.
    Storage(StoreError),
    /// It may have been written: another decision finds it, or finds it missing.
    Unknown(StoreError),
}

/// Has a decision made and written.
pub(crate) fn decide_on(
    executor: &Executor,
    id: OperationId,
    decide: Decide,
) -> BoxFuture<'_, Result<Record, Undecided>> {
    Box::pin(async move {
        match executor.backend.decide(id, decide).await {
            Ok(Some(Ok(record))) => Ok(record),
            Ok(Some(Err((refusal, record)))) => Err(Undecided::Refused(refusal, Box::new(record))),
            Ok(None) => Err(Undecided::Gone),
            Err(WriteError::Nothing(error)) => Err(Undecided::Storage(error)),
            Err(WriteError::Unknown(error)) => Err(Undecided::Unknown(error)),
        }
    })
}

/// The arguments that a record holds.
pub(crate) fn recorded_arguments(record: &Record) -> Option<Arc<Value>> {
    let request = record.request.as_deref()?;
    serde_json::from_str(request).ok().map(Arc::new)
}
