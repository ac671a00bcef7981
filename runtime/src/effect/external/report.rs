//! Writing down how an attempt ended: it must not be lost to a moment's failure.

use std::{sync::Arc, time::Duration};

use crate::{
    effect::external::{
        decide::{Ended, Terms},
        decided::{Undecided, decide_on},
        executor::Executor,
        incident::{Incident, IncidentKind},
    },
    operation::{
        record::Record,
        state::{Report, Run, State},
    },
};

/// The pause after the first try that failed, and the longest; they double in between.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Which attempt ended, and what its run makes of it.
pub(super) struct Ending<'a> {
    /// The operation, as it was when the attempt began.
    pub(super) record: &'a Record,
    pub(super) number: u32,
    pub(super) run: Run,
    /// How long a run that goes on keeps the operation at a time.
    pub(super) keeps: Duration,
}

/// Writes a report, for as long as it takes; `None` if the operation has gone on without it.
pub(super) async fn report(
    executor: &Arc<Executor>,
    terms: Terms,
    ending: Ending<'_>,
    ended: Ended,
) -> Option<Record> {
    let Ending {
        record,
        number,
        run,
        keeps,
    } = ending;
    let id = record.operation_id;
    let ended = Arc::new(ended);
    let mut pause = FIRST_PAUSE;
    loop {
        let (report, lease, now) = (Arc::clone(&ended), executor.lease(keeps), executor.moment());
        let decide =
            move |record: &mut Record| terms.report(record, number, &report, run, lease, now);
        match decide_on(executor, id, Box::new(decide)).await {
            Ok(record) => {
                if record.operation.state == State::Succeeded && record.operation.attempts != number
                {
                    executor.signal_cancel(id); // Nothing more is to be sent.
                }
                return Some(record);
            }
            Err(Undecided::Refused(_, now)) => {
                if ended.report == Report::Succeeded {
                    too_late(executor, &now);
                }
                return None;
            }
            Err(Undecided::Gone) => {
                gone(executor, record, ended.report);
                return None;
            }
            Err(Undecided::Storage(error) | Undecided::Unknown(error)) => tracing::error!(
                %error, operation_id = %id, number,
                "an attempt's report can't be written; it is tried until it is"
            ),
        }
        let clock = executor.clock();
        clock.reached(clock.monotonic().saturating_add(pause)).await;
        pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
    }
}

/// An attempt ended whose operation isn't recorded any more.
fn gone(executor: &Executor, record: &Record, report: Report) {
    match report {
        Report::Succeeded => too_late(executor, record),
        Report::Ambiguous => tracing::error!(
            operation_id = %record.operation_id, tool = &*record.tool,
            "the row of an operation under way is gone, and its effect may exist; the ledger was \
             changed from outside"
        ),
        Report::Refused | Report::NotApplied => tracing::warn!(
            operation_id = %record.operation_id, tool = &*record.tool,
            "the row of an operation under way is gone; the ledger was changed from outside"
        ),
    }
}

/// An effect exists that the ledger can't tell of any more.
pub(super) fn too_late(executor: &Executor, record: &Record) {
    let incident = Incident::of(record, IncidentKind::SuccessTooLate);
    executor.incidents.tell(&incident);
}
