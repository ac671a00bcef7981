//! Decisions about operations, made and written by the store.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    effect::external::executor::Executor,
    operation::{id::OperationId, record::Record, state::Refusal},
    store::{BoxFuture, Decide, StoreError},
};

/// Why a decision changed nothing.
pub(crate) enum Undecided {
    /// The state machine refuses it; the record as it is.
    Refused(Refusal, Box<Record>),
    /// There is no such operation any more.
    Gone,
    Storage(StoreError),
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
            Err(error) => Err(Undecided::Storage(error)),
        }
    })
}

/// The arguments that a record holds.
pub(crate) fn recorded_arguments(record: &Record) -> Option<Arc<Value>> {
    let request = record.request.as_deref()?;
    serde_json::from_str(request).ok().map(Arc::new)
}
