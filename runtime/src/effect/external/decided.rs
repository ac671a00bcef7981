//! Decisions about operations, made and written by the store.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::{
    effect::external::{
        executor::Executor,
        incident::{Before, Incident},
    },
    operation::{
        id::OperationId,
        record::Record,
        state::{Refusal, State},
    },
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

/// Has a decision made and written, and tells of it what an operator has to know.
pub(crate) fn decide_on(
    executor: &Executor,
    id: OperationId,
    decide: Decide,
) -> BoxFuture<'_, Result<Record, Undecided>> {
    Box::pin(async move {
        let noted = Noted::default();
        let decided = executor
            .backend
            .decide(id, watched(executor, decide, &noted));
        let decided = match decided.await {
            Ok(Some(Ok(record))) => Ok(record),
            Ok(Some(Err((refusal, record)))) => Err(Undecided::Refused(refusal, Box::new(record))),
            Ok(None) => Err(Undecided::Gone),
            Err(WriteError::Nothing(error)) => Err(Undecided::Storage(error)),
            Err(WriteError::Unknown(error)) => Err(Undecided::Unknown(error)),
        };
        let now = match &decided {
            Ok(record) => Some(record),
            Err(Undecided::Refused(_, record)) => Some(&**record),
            Err(Undecided::Gone | Undecided::Storage(_) | Undecided::Unknown(_)) => None,
        };
        let incident = noted.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some((incident, left)), Some(now)) = (incident, now)
            && left == now.operation.state
        {
            executor.incidents.tell(&incident);
        }
        decided
    })
}

/// What a decision makes an operator know, and the state that it leaves.
type Noted = Arc<Mutex<Option<(Incident, State)>>>;

/// The decision, which notes what an operator has to know.
///
/// It may be made again after a commit whose answer was lost; what it finds done then it has
/// noted before.
fn watched(executor: &Executor, decide: Decide, noted: &Noted) -> Decide {
    let tools = Arc::clone(executor.tools());
    let noted = Arc::clone(noted);
    Box::new(move |record| {
        let before = Before::of(record);
        decide(record)?;
        if before.differs(record)
            && let Some(recovery) = tools.recovery(&record.tool, record.version)
        {
            let left = record.operation.state;
            let incident = before.incident(record, recovery);
            *noted.lock().unwrap_or_else(PoisonError::into_inner) =
                incident.map(|incident| (incident, left));
        }
        Ok(())
    })
}

/// The arguments that a record holds.
pub(crate) fn recorded_arguments(record: &Record) -> Option<Arc<Value>> {
    let request = record.request.as_deref()?;
    serde_json::from_str(request).ok().map(Arc::new)
}
