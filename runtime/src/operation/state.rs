//! The state machine of an external operation: every transition, and nothing else.
//!
//! Stores persist what [`Operation::step`] decides. A transactional operation has no row
//! here: it goes straight to its receipt in one commit.

use std::collections::BTreeSet;

/// What is established of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum State {
    /// Recorded; no attempt is under way, and none is in doubt.
    Accepted,
    /// The latest attempt may be sending.
    Attempting,
    /// A run is between two attempts, or asks about the earlier ones.
    Between,
    /// The latest attempt may be sending; nothing more will be.
    CancelRequested,
    /// Attempts are in doubt and no run is about to settle them.
    OutcomeUnknown,
    /// The effect exists and its result is retained.
    Succeeded,
    /// There is no effect.
    Failed(Failed),
    /// There is no effect, and there will be none.
    Cancelled,
}

/// Why an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Failed {
    /// It was refused, by the handler or by a person: the answer to every retry.
    Refused,
    /// Nothing was applied: the same key may run again.
    NothingApplied,
}

/// Who waits for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// A caller, who repeats the key to have it tried again.
    Call,
    /// Nobody: a handler enqueued it, and the worker has it tried again.
    Enqueued,
}

/// What a ledger holds of an external operation, as far as transitions go.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Operation {
    pub(crate) origin: Origin,
    pub(crate) state: State,
    /// How many attempts have begun; the number of the latest, and the fence of all writes.
    pub(crate) attempts: u32,
    /// The attempts that may have had an effect, and of which no more is known.
    pub(crate) in_doubt: BTreeSet<u32>,
    /// Somebody cancelled after an attempt had begun: nothing more is dispatched.
    pub(crate) cancel: bool,
}

/// What happened to an operation, or is about to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// A run takes the operation and is about to send. Nothing is sent before this is durable.
    Begin {
        /// The attempts that the run has seen.
        seen: u32,
        by: By,
        /// What the declared recovery says of sending while attempts are in doubt.
        resend: Resend,
    },
    /// An attempt tells how it ended, in time or late.
    Report {
        /// The attempt's number.
        attempt: u32,
        report: Report,
        run: Run,
        /// Who has the operation tried again if this is heard late, after all was in doubt.
        again: By,
    },
    /// Nobody has been heard of for as long as the attempt's lease lasts.
    LeaseExpired {
        /// The attempts that the observer has seen.
        seen: u32,
    },
    /// The run stops between two attempts: its budget is spent, or the process shuts down.
    RunEnded {
        /// The run's latest attempt.
        seen: u32,
    },
    /// The declared reconciliation has answered.
    Reconciled {
        /// The attempts that had begun when it was asked.
        seen: u32,
        verdict: Verdict,
    },
    /// Somebody asks that nothing more is done.
    Cancel,
    /// A person has found out what happened.
    Resolve {
        /// The attempts that the person has judged.
        seen: u32,
        resolution: Resolution,
    },
}

/// Who has an attempt begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum By {
    /// A call with the operation's key, or a worker that stands for one.
    Key,
    /// A run or a worker, without being asked again.
    Itself,
}

/// Whether an attempt may begin while earlier ones are in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Resend {
    /// It would have the effect twice.
    Forbidden,
    /// The provider knows the request by its key and answers it once.
    SameIdentity,
}

/// How an attempt ended, as its handler knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Report {
    /// The effect exists.
    Succeeded,
    /// This attempt was refused for good.
    Refused,
    /// This attempt had no effect and will have none.
    NotApplied,
    /// This attempt may have an effect, now or later.
    Ambiguous,
}

/// Whether the run that reports goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Run {
    /// It means to try or to ask again.
    Continues,
    /// It has no budget, no attempt or no way left.
    Ends,
}

/// What a reconciliation establishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Verdict {
    /// The effect exists.
    Applied,
    /// There was no effect when it was asked, and no send can still be on its way.
    NotApplied,
    /// Nothing.
    Undetermined,
}

/// What a person has found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Resolution {
    /// The effect exists.
    Succeeded,
    /// There is no effect, and the key is not to run again.
    Failed,
    /// There is no effect, and the same key may run again.
    NotApplied,
}

/// Why an event changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub(crate) enum Refusal {
    /// What the event was about is no longer the case.
    #[error("the operation has moved on; read it again")]
    Stale,
    /// The state is final.
    #[error("the operation has reached its final state")]
    Final,
    /// Another attempt might have the effect twice.
    #[error("an earlier attempt is in doubt, and nothing may be sent before it is settled")]
    InDoubt,
    /// Nothing more is dispatched.
    #[error("the operation was asked to stop; nothing more is sent")]
    Cancelled,
    /// The provider asked to wait, and the time is not over.
    #[error("the provider asked to wait; nothing is sent before that")]
    Guided,
}

impl Operation {
    /// An operation of which nothing but its request is recorded.
    pub(crate) fn accepted(origin: Origin) -> Self {
        Self {
            origin,
            state: State::Accepted,
            attempts: 0,
            in_doubt: BTreeSet::new(),
            cancel: false,
        }
    }

    /// An operation that another ledger may have had, and sent, which this one has taken the
    /// place of: that one's attempts are in doubt, as one.
    #[cfg(test)]
    pub(crate) fn perhaps_lost(origin: Origin) -> Self {
        Self {
            state: State::OutcomeUnknown,
            attempts: 1,
            in_doubt: BTreeSet::from([1]),
            ..Self::accepted(origin)
        }
    }

    /// The operation after `event`; the error says why it changes nothing.
    pub(crate) fn step(&self, event: Event) -> Result<Self, Refusal> {
        match event {
            Event::Begin { seen, by, resend } => self.begin(seen, by, resend),
            Event::Report {
                attempt,
                report,
                run,
                again,
            } => self.report(attempt, report, run, again),
            Event::LeaseExpired { seen } => self.lease_expired(seen),
            Event::RunEnded { seen } => self.run_ended(seen),
            Event::Reconciled { seen, verdict } => self.reconciled(seen, verdict),
            Event::Cancel => self.cancelled(),
            Event::Resolve { seen, resolution } => self.resolved(seen, resolution),
        }
    }

    fn begin(&self, seen: u32, by: By, resend: Resend) -> Result<Self, Refusal> {
        match self.state {
            // Whose run it was has been told that it failed.
            State::Failed(Failed::NothingApplied) if by == By::Itself => Err(Refusal::Final),
            State::Accepted
            | State::Between
            | State::OutcomeUnknown
            | State::Failed(Failed::NothingApplied) => {
                // Two runs that saw the same attempts race for the next; one of them wins.
                if seen != self.attempts {
                    return Err(Refusal::Stale);
                }
                if self.cancel {
                    return Err(Refusal::Cancelled);
                }
                if !self.in_doubt.is_empty() {
                    match resend {
                        Resend::SameIdentity => (),
                        Resend::Forbidden => return Err(Refusal::InDoubt),
                    }
                }
                let attempts = self.attempts.checked_add(1).ok_or(Refusal::Final)?;
                Ok(Self {
                    state: State::Attempting,
                    attempts,
                    ..self.clone()
                })
            }
            State::Attempting | State::CancelRequested => Err(Refusal::Stale),
            State::Succeeded | State::Failed(Failed::Refused) | State::Cancelled => {
                Err(Refusal::Final)
            }
        }
    }

    fn report(&self, attempt: u32, report: Report, run: Run, again: By) -> Result<Self, Refusal> {
        match self.state {
            State::Attempting | State::CancelRequested if attempt == self.attempts => {
                Ok(self.attempt_ended(attempt, report, run))
            }
            State::Accepted
            | State::Attempting
            | State::Between
            | State::CancelRequested
            | State::OutcomeUnknown => self.late_report(attempt, report, again),
            State::Failed(_) | State::Cancelled => match report {
                Report::Succeeded => Ok(self.succeeded()),
                Report::Refused | Report::NotApplied | Report::Ambiguous => Err(Refusal::Final),
            },
            State::Succeeded => Err(Refusal::Final),
        }
    }

    /// The latest attempt ended while the operation waited for it.
    fn attempt_ended(&self, attempt: u32, report: Report, run: Run) -> Self {
        match report {
            Report::Succeeded => self.succeeded(),
            // It says nothing of the attempts before it: they may still have had the effect.
            Report::Refused if self.in_doubt.is_empty() => self.to(State::Failed(Failed::Refused)),
            Report::Refused => self.to(State::OutcomeUnknown),
            Report::NotApplied => self.unsent(run),
            Report::Ambiguous => {
                let mut next = self.clone();
                next.in_doubt.insert(attempt);
                next.unsent(run)
            }
        }
    }

    /// An attempt that was given up is heard of after all.
    fn late_report(&self, attempt: u32, report: Report, again: By) -> Result<Self, Refusal> {
        match report {
            Report::Succeeded => Ok(self.succeeded()),
            Report::Refused | Report::NotApplied => {
                let mut next = self.clone();
                if !next.in_doubt.remove(&attempt) {
                    return Err(Refusal::Stale);
                }
                if next.state == State::OutcomeUnknown && next.in_doubt.is_empty() {
                    return Ok(match report {
                        Report::Refused => next.to(State::Failed(Failed::Refused)),
                        Report::NotApplied | Report::Succeeded | Report::Ambiguous => {
                            next.nothing_applied(again)
                        }
                    });
                }
                Ok(next)
            }
            Report::Ambiguous => Err(Refusal::Stale),
        }
    }

    fn lease_expired(&self, seen: u32) -> Result<Self, Refusal> {
        if seen != self.attempts {
            return Err(Refusal::Stale);
        }
        match self.state {
            // Expiry says that nobody was heard of, not that nothing was sent.
            State::Attempting | State::CancelRequested => {
                let mut next = self.clone();
                next.in_doubt.insert(self.attempts);
                Ok(next.to(State::OutcomeUnknown))
            }
            State::Between if self.in_doubt.is_empty() => Ok(self.to(State::Accepted)),
            State::Between => Ok(self.to(State::OutcomeUnknown)),
            State::Accepted | State::OutcomeUnknown => Err(Refusal::Stale),
            State::Succeeded | State::Failed(_) | State::Cancelled => Err(Refusal::Final),
        }
    }

    fn run_ended(&self, seen: u32) -> Result<Self, Refusal> {
        if seen != self.attempts {
            return Err(Refusal::Stale);
        }
        match self.state {
            State::Between => Ok(self.unsent(Run::Ends)),
            // The worker has tried an enqueued operation for as long as it ever will.
            State::Accepted => Ok(self.to(State::Failed(Failed::NothingApplied))),
            State::Attempting | State::CancelRequested | State::OutcomeUnknown => {
                Err(Refusal::Stale)
            }
            State::Succeeded | State::Failed(_) | State::Cancelled => Err(Refusal::Final),
        }
    }

    fn reconciled(&self, seen: u32, verdict: Verdict) -> Result<Self, Refusal> {
        match self.state {
            State::Accepted
            | State::Attempting
            | State::Between
            | State::CancelRequested
            | State::OutcomeUnknown => (),
            State::Failed(_) | State::Cancelled => match verdict {
                Verdict::Applied => (),
                Verdict::NotApplied | Verdict::Undetermined => return Err(Refusal::Final),
            },
            State::Succeeded => return Err(Refusal::Final),
        }
        match verdict {
            Verdict::Applied => Ok(self.succeeded()),
            Verdict::Undetermined => Ok(self.clone()),
            Verdict::NotApplied => match self.state {
                // An attempt that began after the question is not what was answered.
                State::Between | State::OutcomeUnknown if seen == self.attempts => {
                    let next = Self {
                        in_doubt: BTreeSet::new(),
                        ..self.clone()
                    };
                    Ok(match self.state {
                        State::OutcomeUnknown => next.nothing_applied(By::Itself),
                        State::Between
                        | State::Accepted
                        | State::Attempting
                        | State::CancelRequested
                        | State::Succeeded
                        | State::Failed(_)
                        | State::Cancelled => next,
                    })
                }
                State::Accepted
                | State::Attempting
                | State::Between
                | State::CancelRequested
                | State::OutcomeUnknown
                | State::Succeeded
                | State::Failed(_)
                | State::Cancelled => Err(Refusal::Stale),
            },
        }
    }

    fn cancelled(&self) -> Result<Self, Refusal> {
        let next = Self {
            cancel: true,
            ..self.clone()
        };
        match self.state {
            // Nothing is in doubt, and the same key is to send nothing any more.
            State::Accepted | State::Failed(Failed::NothingApplied) => {
                Ok(next.to(State::Cancelled))
            }
            State::Between if self.in_doubt.is_empty() => Ok(next.to(State::Cancelled)),
            State::Between | State::OutcomeUnknown => Ok(next.to(State::OutcomeUnknown)),
            State::Attempting | State::CancelRequested => Ok(next.to(State::CancelRequested)),
            State::Succeeded | State::Failed(Failed::Refused) | State::Cancelled => {
                Err(Refusal::Final)
            }
        }
    }

    fn resolved(&self, seen: u32, resolution: Resolution) -> Result<Self, Refusal> {
        let to = match resolution {
            Resolution::Succeeded => return self.found(seen),
            Resolution::Failed => State::Failed(Failed::Refused),
            Resolution::NotApplied if self.cancel => State::Cancelled,
            Resolution::NotApplied => State::Failed(Failed::NothingApplied),
        };
        match self.state {
            State::OutcomeUnknown if seen == self.attempts => Ok(Self {
                in_doubt: BTreeSet::new(),
                ..self.to(to)
            }),
            State::Accepted
            | State::Attempting
            | State::Between
            | State::CancelRequested
            | State::OutcomeUnknown => Err(Refusal::Stale),
            State::Succeeded | State::Failed(_) | State::Cancelled => Err(Refusal::Final),
        }
    }

    /// A person has found that one of the attempts up to `seen` had its effect. It is no
    /// less a proof if more has been sent or settled since.
    fn found(&self, seen: u32) -> Result<Self, Refusal> {
        let covers = 0 < seen && seen <= self.attempts;
        match self.state {
            State::Accepted
            | State::Between
            | State::OutcomeUnknown
            | State::Failed(_)
            | State::Cancelled
                if covers =>
            {
                Ok(self.succeeded())
            }
            // The attempt under way has yet to say what becomes of it.
            State::Attempting | State::CancelRequested if covers && seen < self.attempts => {
                Ok(self.succeeded())
            }
            State::Accepted
            | State::Attempting
            | State::Between
            | State::CancelRequested
            | State::OutcomeUnknown
            | State::Failed(_)
            | State::Cancelled => Err(Refusal::Stale),
            State::Succeeded => Err(Refusal::Final),
        }
    }

    /// No attempt is under way any more and none succeeded.
    fn unsent(&self, run: Run) -> Self {
        if !self.in_doubt.is_empty() {
            return match run {
                Run::Continues if !self.cancel => self.to(State::Between),
                Run::Continues | Run::Ends => self.to(State::OutcomeUnknown),
            };
        }
        match run {
            Run::Continues if !self.cancel => self.to(State::Between),
            Run::Continues | Run::Ends => self.nothing_applied(By::Itself),
        }
    }

    /// It is established that no attempt had an effect, and no run goes on.
    fn nothing_applied(&self, again: By) -> Self {
        if self.cancel {
            return self.to(State::Cancelled);
        }
        match (self.origin, again) {
            (Origin::Call, _) | (Origin::Enqueued, By::Key) => {
                self.to(State::Failed(Failed::NothingApplied))
            }
            (Origin::Enqueued, By::Itself) => self.to(State::Accepted),
        }
    }

    fn succeeded(&self) -> Self {
        Self {
            in_doubt: BTreeSet::new(),
            ..self.to(State::Succeeded)
        }
    }

    fn to(&self, state: State) -> Self {
        Self {
            state,
            ..self.clone()
        }
    }
}

impl Origin {
    /// The name under which it is recorded.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Enqueued => "enqueued",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Call, Self::Enqueued]
            .into_iter()
            .find(|origin| origin.as_str() == name)
    }
}

impl State {
    const ALL: [Self; 9] = [
        Self::Accepted,
        Self::Attempting,
        Self::Between,
        Self::CancelRequested,
        Self::OutcomeUnknown,
        Self::Succeeded,
        Self::Failed(Failed::Refused),
        Self::Failed(Failed::NothingApplied),
        Self::Cancelled,
    ];

    /// The name under which it is recorded.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Attempting => "attempting",
            Self::Between => "between",
            Self::CancelRequested => "cancel_requested",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Succeeded => "succeeded",
            Self::Failed(Failed::Refused) => "refused",
            Self::Failed(Failed::NothingApplied) => "nothing_applied",
            Self::Cancelled => "cancelled",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether nothing but a resolution or the same key changes it.
    #[cfg(test)]
    pub(crate) fn is_final(self) -> bool {
        match self {
            Self::Succeeded | Self::Failed(_) | Self::Cancelled => true,
            Self::Accepted
            | Self::Attempting
            | Self::Between
            | Self::CancelRequested
            | Self::OutcomeUnknown => false,
        }
    }
}
