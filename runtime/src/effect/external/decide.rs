//! What each event makes of a record: the state machine's step, and all that goes with it.
//!
//! Pure: stores run these inside the transaction that reads and writes the record.

use std::time::Duration;

use serde_json::value::RawValue;

use crate::{
    clock::{Moment, Timestamp},
    effect::external::{
        recovery::{Recovery, lease_is_over},
        tool::ExternalTool,
    },
    operation::{
        id::AttemptId,
        record::{AttemptOutcome, AttemptRecord, Called, Ends, Lease, Record, RecordedError},
        state::{By, Event, Failed, Origin, Refusal, Report, Resend, Run, State, Verdict},
    },
};

/// The longest rest between two looks of a worker at one operation.
const LONGEST_REST: Duration = Duration::from_hours(1);

/// For how long after its last run a worker looks at an operation.
const HORIZON: Duration = Duration::from_hours(7 * 24);

/// The longest that a provider's guidance is kept.
const LONGEST_GUIDANCE: Duration = Duration::from_hours(24);

/// What of a tool's declaration decides about its operations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) recovery: Recovery,
    attempt_timeout: Duration,
    retention: Duration,
    tombstone: Duration,
    keep_request: bool,
}

/// Who had an operation when somebody looked at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    attempts: u32,
    lease: Option<Lease>,
}

impl Seen {
    pub(crate) fn of(record: &Record) -> Self {
        Self {
            attempts: record.operation.attempts,
            lease: record.lease,
        }
    }
}

/// An attempt that is about to begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beginning {
    pub(crate) attempt_id: AttemptId,
    pub(crate) lease: Lease,
    /// When the lease begins.
    pub(crate) now: Moment,
    pub(crate) run_until: Timestamp,
    /// The attempts that the run has seen.
    pub(crate) seen: u32,
    pub(crate) by: By,
}

/// What an attempt that ended leaves to be recorded.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) report: Report,
    /// Present if it succeeded.
    pub(crate) result: Option<Box<RawValue>>,
    /// Present if it did not.
    pub(crate) error: Option<RecordedError>,
    /// How long the provider asked to wait.
    pub(crate) wait: Option<Duration>,
    /// Whether its handler may have been called.
    pub(crate) called: bool,
}

impl Terms {
    pub(crate) fn of(tool: &ExternalTool) -> Self {
        Self {
            recovery: tool.recovery(),
            attempt_timeout: tool.declared.attempt_timeout,
            retention: tool.retention,
            tombstone: tool.tombstone,
            keep_request: tool.declared.keep_request,
        }
    }

    /// When an operation ends that was recorded at `now` and that nobody takes up.
    pub(crate) fn ends(&self, now: Timestamp) -> Ends {
        let expires_at = now.plus(self.retention);
        Ends {
            expires_at,
            forget_at: expires_at.plus(self.tombstone),
        }
    }

    /// Whether an attempt may begin at `now` while earlier ones are in doubt.
    pub(crate) fn resend(&self, record: &Record, now: Moment) -> Resend {
        let other_key = |attempt: &AttemptRecord| attempt.called == Called::Otherwise;
        if record.attempts.iter().any(other_key) {
            return Resend::Forbidden; // The provider would take it for another request.
        }
        match record.first_called() {
            Some(first) => self.recovery.resend(first, now, self.attempt_timeout),
            None => Resend::SameIdentity, // Nothing was sent yet.
        }
    }

    /// An attempt is about to begin.
    pub(crate) fn begin(
        &self,
        record: &mut Record,
        beginning: Beginning,
        request: &str,
    ) -> Result<(), Refusal> {
        let Beginning {
            attempt_id,
            lease,
            now,
            run_until,
            seen,
            by,
        } = beginning;
        let latest = record.attempts.last();
        if latest.is_some_and(|latest| latest.attempt_id == attempt_id) {
            return Ok(()); // The commit was lost and happened.
        }
        if guided(record, now.ledger).is_some() {
            return Err(Refusal::Guided);
        }
        let resend = self.resend(record, now);
        self.step(record, Event::Begin { seen, by, resend }, now)?;
        record.attempts.push(AttemptRecord {
            number: record.operation.attempts,
            attempt_id,
            started_at: now.ledger,
            started_wall: now.wall,
            outcome: AttemptOutcome::Unreported,
            called: Called::Perhaps,
        });
        // What is sent again is what was sent, in the same words.
        record.request.get_or_insert_with(|| request.into());
        record.not_before = None;
        record.error = None;
        record.run_until = run_until;
        if record.operation.origin == Origin::Call {
            record.checks = 0; // An enqueued operation's runs come ever more rarely.
        }
        record.lease = Some(lease);
        self.schedule(record, now);
        Ok(())
    }

    /// An attempt ended; a run that continues keeps the operation for as long as `lease`.
    pub(crate) fn report(
        &self,
        record: &mut Record,
        attempt: u32,
        ended: &Ended,
        run: Run,
        lease: Lease,
        now: Moment,
    ) -> Result<(), Refusal> {
        let report = ended.report;
        let before = record.operation.state;
        if before == State::Succeeded && report == Report::Succeeded {
            return second_success(record, attempt, now);
        }
        let event = Event::Report {
            attempt,
            report,
            run,
            again: self.recovery.again(),
        };
        self.step(record, event, now)?;
        if let Some(recorded) = record.attempts.iter_mut().find(|it| it.number == attempt) {
            if !ended.called {
                recorded.called = Called::Never;
            }
            recorded.outcome = match report {
                Report::Succeeded => AttemptOutcome::Succeeded,
                Report::Refused => AttemptOutcome::Refused,
                Report::NotApplied => AttemptOutcome::NotApplied,
                Report::Ambiguous => AttemptOutcome::Ambiguous,
            };
        }
        match record.operation.state {
            State::Succeeded => record.result.clone_from(&ended.result),
            State::Between if before != State::Between => record.lease = Some(lease),
            State::Accepted
            | State::Attempting
            | State::Between
            | State::CancelRequested
            | State::OutcomeUnknown
            | State::Failed(_)
            | State::Cancelled => (),
        }
        if record.operation.state == State::Succeeded {
            record.error = None;
        } else {
            record.error.clone_from(&ended.error);
            if let Some(wait) = ended.wait {
                let until = now.ledger.plus(wait.min(LONGEST_GUIDANCE));
                record.not_before = record.not_before.max(Some(until));
            }
        }
        self.schedule(record, now);
        Ok(())
    }

    /// Nobody has been heard of for as long as the lease lasts that was seen.
    ///
    /// One that has begun since is later than `now`, as after a clock that has gone back, and
    /// would seem over.
    pub(crate) fn expire(
        &self,
        record: &mut Record,
        seen: Seen,
        now: Moment,
    ) -> Result<(), Refusal> {
        if seen != Seen::of(record) || !is_over(record, now.ledger) {
            return Err(Refusal::Stale);
        }
        let seen = seen.attempts;
        self.step(record, Event::LeaseExpired { seen }, now)
    }

    /// The run stops between two attempts.
    pub(crate) fn end_run(
        &self,
        record: &mut Record,
        seen: u32,
        now: Moment,
    ) -> Result<(), Refusal> {
        self.step(record, Event::RunEnded { seen }, now)
    }

    /// A run that is between two attempts keeps the operation.
    pub(crate) fn renew(record: &mut Record, seen: u32, lease: Lease) -> Result<(), Refusal> {
        if record.operation.state != State::Between || record.operation.attempts != seen {
            return Err(Refusal::Stale);
        }
        record.lease = Some(lease);
        record.due_at = Some(lease.until);
        Ok(())
    }

    /// The reconciliation has answered.
    pub(crate) fn reconcile(
        &self,
        record: &mut Record,
        seen: u32,
        verdict: Verdict,
        result: Option<&RawValue>,
        now: Moment,
    ) -> Result<(), Refusal> {
        self.step(record, Event::Reconciled { seen, verdict }, now)?;
        if record.operation.state == State::Succeeded {
            record.result = result.map(ToOwned::to_owned);
            record.error = None;
        }
        Ok(())
    }

    /// Somebody asks that nothing more is done.
    pub(crate) fn cancel(&self, record: &mut Record, now: Moment) -> Result<(), Refusal> {
        self.step(record, Event::Cancel, now)
    }

    /// A worker takes an operation that is due; the next one comes later.
    pub(crate) fn claim(
        &self,
        record: &mut Record,
        seen: Option<Timestamp>,
        now: Moment,
    ) -> Result<(), Refusal> {
        if record.due_at != seen || seen.is_none_or(|due| now.ledger < due) {
            return Err(Refusal::Stale);
        }
        record.checks = record.checks.saturating_add(1);
        self.schedule(record, now);
        Ok(())
    }

    /// A step, and what follows from the state it leads to.
    pub(crate) fn step(
        &self,
        record: &mut Record,
        event: Event,
        now: Moment,
    ) -> Result<(), Refusal> {
        if record.has_expired(now.ledger) {
            return Err(Refusal::Final); // Its key is refused, whatever is heard of it.
        }
        let before = record.operation.state;
        record.operation = record.operation.step(event)?;
        record.latest_at = record.latest_at.max(now.ledger);
        match record.operation.state {
            State::Attempting | State::Between | State::CancelRequested => record.ends = None,
            State::Accepted | State::OutcomeUnknown => {
                record.lease = None;
                record.ends = None;
            }
            State::Succeeded | State::Failed(_) | State::Cancelled => {
                record.lease = None;
                if record.operation.state != before {
                    record.ends = Some(self.ends(now.ledger));
                }
                // The same key may send once more what applied nothing.
                let may_be_sent = record.operation.state == State::Failed(Failed::NothingApplied);
                if !may_be_sent {
                    record.not_before = None;
                    if !self.keep_request {
                        record.request = None;
                    }
                }
            }
        }
        self.schedule(record, now);
        Ok(())
    }

    /// When a worker looks at it next, and when it ends if it was left before it was sent.
    fn schedule(&self, record: &mut Record, now: Moment) {
        if record.has_expired(now.ledger) {
            record.due_at = None;
            return;
        }
        record.due_at = self.due(record, now);
        if record.operation.state == State::Accepted {
            let latest = record
                .due_at
                .map_or(record.latest_at, |due| due.max(record.latest_at));
            record.ends = Some(self.ends(latest));
        }
    }

    /// When a worker has something to do, counted from `now`.
    fn due(&self, record: &Record, now: Moment) -> Option<Timestamp> {
        let operation = &record.operation;
        let wait = rest(record.checks).max(guided(record, now.ledger).unwrap_or_default());
        let later = now.plus(wait);
        let in_horizon = later.ledger < record.run_until.plus(HORIZON);
        match operation.state {
            State::Attempting | State::Between | State::CancelRequested => {
                record.lease.map(|lease| lease.until)
            }
            State::Accepted => match operation.origin {
                Origin::Call => None,
                Origin::Enqueued => Some(later.ledger),
            },
            State::OutcomeUnknown if operation.cancel => match self.recovery {
                Recovery::Reconcile { .. } => in_horizon.then_some(later.ledger),
                Recovery::ProviderKey { .. } | Recovery::Inspect => None,
            },
            State::OutcomeUnknown => match self.recovery {
                Recovery::Reconcile { .. } => in_horizon.then_some(later.ledger),
                // For a call it takes the same key: its run has ended, or its lease has.
                Recovery::ProviderKey { .. } => {
                    let wanted = operation.origin == Origin::Enqueued;
                    let possible = self.resend(record, later) == Resend::SameIdentity;
                    (wanted && possible).then_some(later.ledger)
                }
                Recovery::Inspect => None,
            },
            State::Succeeded | State::Failed(_) | State::Cancelled => None,
        }
    }

    /// Whether a worker has tried an enqueued operation for as long as it ever will.
    pub(crate) fn is_past_horizon(record: &Record, now: Timestamp) -> bool {
        let is_enqueued = record.operation.origin == Origin::Enqueued;
        is_enqueued && record.run_until.plus(HORIZON) <= now && !record.has_expired(now)
    }
}

/// A success that is heard of after another one: the result stays the first one's.
fn second_success(record: &mut Record, attempt: u32, now: Moment) -> Result<(), Refusal> {
    if record.has_expired(now.ledger) {
        return Err(Refusal::Final);
    }
    let recorded = record.attempts.iter_mut().find(|it| it.number == attempt);
    let recorded = recorded.ok_or(Refusal::Final)?;
    recorded.outcome = AttemptOutcome::Succeeded;
    Ok(())
}

/// How long the provider asks to wait yet, if it does.
pub(crate) fn guided(record: &Record, now: Timestamp) -> Option<Duration> {
    let wait = now.until(record.not_before?).min(LONGEST_GUIDANCE);
    (!wait.is_zero()).then_some(wait)
}

/// Whether a run of this process or another still has the operation.
pub(crate) fn is_over(record: &Record, now: Timestamp) -> bool {
    match record.lease {
        Some(lease) => lease_is_over(lease.began, lease.until, now),
        None => true,
    }
}

/// Whether somebody has the operation in hand, as far as its state tells.
pub(crate) fn is_held(state: State) -> bool {
    match state {
        State::Attempting | State::Between | State::CancelRequested => true,
        State::Accepted
        | State::OutcomeUnknown
        | State::Succeeded
        | State::Failed(_)
        | State::Cancelled => false,
    }
}

/// Growing rests: 1 s, 2 s, 4 s, to an hour.
fn rest(checks: u32) -> Duration {
    let seconds = 1_u64.checked_shl(checks).unwrap_or(u64::MAX);
    match checks {
        0 => Duration::ZERO,
        _ => Duration::from_secs(seconds / 2).min(LONGEST_REST),
    }
}

/// Whether the same key may run the operation again.
pub(crate) fn may_run_again(state: State) -> bool {
    match state {
        State::Accepted | State::Failed(Failed::NothingApplied) => true,
        State::Attempting
        | State::Between
        | State::CancelRequested
        | State::OutcomeUnknown
        | State::Succeeded
        | State::Failed(Failed::Refused)
        | State::Cancelled => false,
    }
}

#[cfg(test)]
mod tests;
