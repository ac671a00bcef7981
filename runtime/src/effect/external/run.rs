//! One run of an operation: its attempts, its questions and the pauses between them.
//!
//! The record decides what comes next; a run holds nothing that is not in it but its budget.

use std::{
    mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, value::RawValue};
use tokio::{sync::watch, task::JoinHandle};
use tracing::Instrument;
use uuid::Uuid;

use crate::{
    clock::{Moment, Timestamp},
    effect::external::{
        attempt::Attempt,
        budget::Budget,
        decide::{Beginning, Ended, Terms, guided},
        decided::{Undecided, decide_on},
        error::{AttemptError, Known},
        executor::{Executor, Registration, RunParts},
        inquiry::{Inquiry, Reconciled},
        recovery::{Ask, Recovery, RecoveryDeclaration},
        report::{Ending, report, too_late},
        tool::ExternalTool,
    },
    operation::{
        id::AttemptId,
        record::{Record, RecordedError},
        state::{By, Failed, Refusal, Report, Resend, Run as Goes, State, Verdict},
    },
    request::caller::Caller,
};

/// How long a run that is between two attempts keeps the operation at a time.
const KEPT: Duration = Duration::from_secs(30);

/// How long a stopped handler may take to be gone before nobody waits for it any more.
const STOPPING: Duration = Duration::from_secs(1);

/// What a run is to do.
pub(crate) struct Plan {
    pub(crate) tool: Arc<ExternalTool>,
    pub(crate) record: Record,
    pub(crate) caller: Caller,
    pub(crate) arguments: Arc<Value>,
    pub(crate) budget: Budget,
    pub(crate) run_until: Timestamp,
    /// Whether it may make attempts; else it asks once.
    pub(crate) may_send: bool,
    /// Who has its first attempt begin; the others follow by themselves.
    pub(crate) by: By,
}

/// A run under way, in a task of its own.
pub(crate) struct Run {
    executor: Arc<Executor>,
    registration: Registration,
    stopping: watch::Receiver<bool>,
    plan: Plan,
    terms: Terms,
    request: Arc<str>,
}

impl Run {
    pub(crate) fn new(parts: RunParts, plan: Plan) -> Self {
        Self {
            executor: parts.executor,
            registration: parts.registration,
            stopping: parts.stopping,
            terms: Terms::of(&plan.tool),
            request: plan.arguments.to_string().into(),
            plan,
        }
    }

    /// Runs to the end of the operation or of the budget.
    pub(crate) async fn go(mut self) {
        let span = tracing::info_span!(
            parent: None,
            "external_operation",
            tool = &*self.plan.tool.name,
            operation_id = %self.plan.record.operation_id,
        );
        async move {
            let mut record = Some(self.plan.record.clone());
            while let Some(current) = record {
                self.executor.observe(&current);
                record = self.next(current).await;
                self.registration
                    .changed
                    .send_modify(|changes| *changes += 1);
            }
        }
        .instrument(span)
        .await;
    }

    /// One step; `None` if the run is over.
    async fn next(&mut self, record: Record) -> Option<Record> {
        let doubtful = !record.operation.in_doubt.is_empty();
        match record.operation.state {
            // It failed under this run's hands, or another's: that is what its caller is told.
            State::Failed(Failed::NothingApplied) if self.plan.by == By::Itself => None,
            State::Accepted | State::Failed(Failed::NothingApplied) => {
                if self.plan.may_send {
                    self.attempt(record).await
                } else {
                    None
                }
            }
            State::Between if !doubtful => self.attempt(record).await,
            State::Between | State::OutcomeUnknown => match self.plan.tool.declared.recovery {
                RecoveryDeclaration::ProviderKey { .. } if self.plan.may_send => {
                    self.attempt(record).await
                }
                RecoveryDeclaration::Reconcile { ask, .. } => self.ask(record, ask).await,
                RecoveryDeclaration::ProviderKey { .. } | RecoveryDeclaration::Inspect { .. } => {
                    self.end(record).await
                }
            },
            State::Attempting
            | State::CancelRequested
            | State::Succeeded
            | State::Failed(Failed::Refused)
            | State::Cancelled => None,
        }
    }

    async fn attempt(&mut self, record: Record) -> Option<Record> {
        if *self.stopping.borrow() {
            return self.end(record).await;
        }
        let now = self.monotonic();
        if let Some(wait) = guided(&record, self.executor.now()) {
            if self.plan.budget.remaining(now) <= wait {
                return self.end(record).await;
            }
            self.rest(wait).await;
            // Whoever cancelled it, or had it succeed, has left nothing to be sent.
            return (!*self.registration.cancelled.borrow()).then_some(record);
        }
        let Some(timeout) = self.plan.budget.take_attempt(now) else {
            return self.end(record).await;
        };
        let ends = now.saturating_add(timeout);
        let attempt_id = AttemptId::generate();
        let lease = self.executor.lease(timeout);
        let beginning = Beginning {
            attempt_id,
            lease,
            now: Moment {
                ledger: lease.began,
                ..self.executor.moment()
            },
            run_until: self.plan.run_until,
            seen: record.operation.attempts,
            by: mem::replace(&mut self.plan.by, By::Itself),
        };
        let (terms, request) = (self.terms, Arc::clone(&self.request));
        let begun = self
            .decide(move |record| terms.begin(record, beginning, &request))
            .await;
        let record = match begun {
            Ok(record) => record,
            // The provider's window has closed meanwhile.
            Err(Undecided::Refused(Refusal::InDoubt, record)) => return self.end(*record).await,
            // It has asked to wait meanwhile, by an attempt that was given up.
            Err(Undecided::Refused(Refusal::Guided, record)) => return Some(*record),
            Err(Undecided::Refused(..)) => return None,
            Err(Undecided::Gone) => {
                is_gone();
                return None;
            }
            Err(Undecided::Storage(error) | Undecided::Unknown(error)) => {
                // Nothing was sent; if the attempt is recorded all the same, its lease ends.
                tracing::error!(%error, "an attempt can't be recorded; it is not made");
                return None;
            }
        };
        self.executor.observe(&record);
        self.registration
            .changed
            .send_modify(|changes| *changes += 1);

        let number = record.operation.attempts;
        let attempt = Attempt::new(
            &record,
            attempt_id,
            lease,
            ends,
            self.plan.caller.clone(),
            Arc::clone(&self.executor.backend),
            self.registration.cancelled.clone(),
        );
        let outcome = self.execute(&record, attempt, attempt_id, ends).await;
        self.conclude(record, number, outcome).await
    }

    /// Calls the handler in a task of its own, until its time is over.
    async fn execute(
        &self,
        record: &Record,
        attempt: Attempt,
        attempt_id: AttemptId,
        ends: Duration,
    ) -> Outcome {
        let number = record.operation.attempts;
        let handler = self.plan.tool.handler.run;
        let (state, arguments) = (
            Arc::clone(&self.executor.state),
            Arc::clone(&self.plan.arguments),
        );
        let span = tracing::info_span!("attempt", %attempt_id, number);
        let called = Arc::new(AtomicBool::new(false));
        let calls = Arc::clone(&called);
        let work = async move {
            attempt.check().await?;
            calls.store(true, Ordering::SeqCst);
            handler(attempt, state, arguments).await
        };
        let outcome = self.bounded(Box::pin(work.instrument(span)), ends).await;
        let called = called.load(Ordering::SeqCst);
        let result = match outcome {
            Ok(result) => self.checked(result),
            // Its task is gone, and never came to the handler.
            Err(Stopped::TimedOut) if !called => Err(AttemptError::not_applied(
                "attempt_not_begun",
                "the server had no time for the attempt, and sent nothing",
            )),
            Err(Stopped::TimedOut) => Err(timed_out()),
            Err(Stopped::StillRuns(task)) => {
                self.listen(record.clone(), task);
                return Outcome {
                    result: Err(timed_out()),
                    called: true, // By now, or in a moment.
                };
            }
            Err(Stopped::Panicked) => Err(panicked()),
        };
        Outcome { result, called }
    }

    /// The result, if it can be retained.
    fn checked(
        &self,
        result: Result<Box<RawValue>, AttemptError>,
    ) -> Result<Box<RawValue>, AttemptError> {
        let result = result?;
        self.plan.tool.check_result(&result).map_err(|failure| {
            let (code, message) = (failure.code().to_owned(), failure.message().to_owned());
            AttemptError::ambiguous(code, message).with_source(failure)
        })?;
        Ok(result)
    }

    /// Hears of an attempt that can't be stopped, though its run goes on without it.
    fn listen(&self, record: Record, task: JoinHandle<Result<Box<RawValue>, AttemptError>>) {
        let (executor, terms) = (Arc::clone(&self.executor), self.terms);
        let tool = Arc::clone(&self.plan.tool);
        self.executor.spawn(async move {
            let Ok(result) = task.await else {
                return; // It is as ambiguous as it was.
            };
            let result = result.and_then(|result| match tool.check_result(&result) {
                Ok(()) => Ok(result),
                Err(failure) => Err(AttemptError::ambiguous(
                    failure.code().to_owned(),
                    failure.message().to_owned(),
                )),
            });
            let number = record.operation.attempts;
            let ending = Ending {
                record: &record,
                number,
                run: Goes::Ends,
                keeps: KEPT,
            };
            let outcome = Outcome {
                result,
                called: true,
            };
            let ended = outcome.ended(&executor, &tool, number);
            report(&executor, terms, ending, ended).await;
        });
    }

    /// Records how the attempt ended, and pauses before what comes next.
    async fn conclude(&mut self, record: Record, number: u32, outcome: Outcome) -> Option<Record> {
        let ended = outcome.ended(&self.executor, &self.plan.tool, number);
        let pause = self.pause_after(&record, ended.report, ended.wait);
        let ending = Ending {
            record: &record,
            number,
            run: match pause {
                Some(_) => Goes::Continues,
                None => Goes::Ends,
            },
            keeps: KEPT,
        };
        let record = report(&self.executor, self.terms, ending, ended).await?;
        self.executor.observe(&record);
        self.registration
            .changed
            .send_modify(|changes| *changes += 1);
        let pause = pause?; // Without one the run has ended with its report.
        if record.operation.attempts != number {
            return None; // Another run has gone on meanwhile.
        }
        if record.operation.state == State::Between {
            self.rest(pause).await;
        }
        Some(record)
    }

    /// How long to wait before the run goes on; `None` if it ends.
    fn pause_after(
        &mut self,
        record: &Record,
        report: Report,
        retry_after: Option<Duration>,
    ) -> Option<Duration> {
        let now = self.monotonic();
        let random = random(now);
        let budget = &mut self.plan.budget;
        let doubtful = !record.operation.in_doubt.is_empty();
        match report {
            Report::Succeeded | Report::Refused => None,
            Report::NotApplied if !doubtful => budget.pause(now, retry_after, random),
            Report::NotApplied | Report::Ambiguous => match self.terms.recovery {
                Recovery::ProviderKey { .. } => {
                    let pause = budget.pause(now, retry_after, random)?;
                    let then = self.executor.moment().plus(pause);
                    let allowed = self.terms.resend(record, then) == Resend::SameIdentity;
                    allowed.then_some(pause)
                }
                Recovery::Reconcile { .. } => budget.delay(now, None, random),
                Recovery::Inspect => None,
            },
        }
    }

    async fn ask(&mut self, record: Record, Ask(ask): Ask) -> Option<Record> {
        let seen = record.operation.attempts;
        // Before the question: the answer is of that moment.
        let settled = self
            .terms
            .recovery
            .settled(self.executor.quiet_for(&record));
        let now = self.monotonic();
        let timeout = self.plan.tool.declared.attempt_timeout;
        let timeout = timeout.min(self.plan.budget.remaining(now));
        if timeout.is_zero() || *self.stopping.borrow() {
            return self.end(record).await;
        }
        if record.operation.state == State::Between {
            let lease = self.executor.lease(timeout.saturating_add(KEPT));
            let renewed = self.decide(move |record| Terms::renew(record, seen, lease));
            if renewed.await.is_err() {
                return None; // It was cancelled or taken over, or can't be told.
            }
        }
        let inquiry = Inquiry::new(
            &record,
            self.plan.caller.clone(),
            Arc::clone(&self.executor.state),
            Arc::clone(&self.plan.arguments),
        );
        let answer = self
            .bounded(ask(inquiry), now.saturating_add(timeout))
            .await
            .unwrap_or_else(|stopped| {
                Err(match stopped {
                    Stopped::TimedOut | Stopped::StillRuns(_) => timed_out(),
                    Stopped::Panicked => panicked(),
                })
            });
        let for_good = matches!(answer, Ok(Reconciled::Undeterminable));
        let (verdict, result) = self.judge(answer, settled);
        if verdict == Verdict::Undetermined {
            if !self.plan.may_send {
                return None; // A worker asks again when it is due.
            }
            if for_good {
                return self.end(record).await;
            }
            let now = self.monotonic();
            let Some(pause) = self.plan.budget.delay(now, None, random(now)) else {
                return self.end(record).await;
            };
            self.rest(pause).await;
            return Some(record);
        }
        let (terms, now) = (self.terms, self.executor.moment());
        let result = result.map(Arc::<RawValue>::from);
        let settled = self
            .decide(move |record| terms.reconcile(record, seen, verdict, result.as_deref(), now))
            .await;
        match settled {
            Ok(record) => Some(record),
            Err(Undecided::Refused(_, now)) => {
                if verdict == Verdict::Applied && now.operation.state != State::Succeeded {
                    too_late(&self.executor, &now);
                }
                None
            }
            Err(Undecided::Gone) => {
                match verdict {
                    Verdict::Applied => too_late(&self.executor, &record),
                    Verdict::NotApplied | Verdict::Undetermined => is_gone(),
                }
                None
            }
            Err(Undecided::Storage(error) | Undecided::Unknown(error)) => {
                tracing::error!(%error, "a reconciliation can't be recorded; it is asked again later");
                None
            }
        }
    }

    /// What an answer establishes.
    fn judge(
        &self,
        answer: Result<Reconciled<Box<RawValue>>, AttemptError>,
        settled: bool,
    ) -> (Verdict, Option<Box<RawValue>>) {
        match answer {
            Ok(Reconciled::Applied(result)) => match self.plan.tool.check_result(&result) {
                Ok(()) => (Verdict::Applied, Some(result)),
                Err(failure) => {
                    tracing::error!(
                        code = failure.code(),
                        "a reconciled result can't be retained"
                    );
                    (Verdict::Undetermined, None)
                }
            },
            Ok(Reconciled::NotApplied) if settled => (Verdict::NotApplied, None),
            Ok(Reconciled::NotApplied | Reconciled::Undetermined | Reconciled::Undeterminable) => {
                (Verdict::Undetermined, None)
            }
            Err(error) => {
                tracing::info!(code = error.code(), "a reconciliation got no answer");
                self.executor.failures.tell(&self.plan.tool.name, &error);
                (Verdict::Undetermined, None)
            }
        }
    }

    /// The run stops. What it leaves is recoverable even if this can't be written.
    async fn end(&self, record: Record) -> Option<Record> {
        if record.operation.state != State::Between {
            return None;
        }
        let seen = record.operation.attempts;
        let (terms, now) = (self.terms, self.executor.moment());
        let ended = self
            .decide(move |record| terms.end_run(record, seen, now))
            .await;
        match ended {
            Ok(record) => self.executor.observe(&record),
            Err(Undecided::Refused(..)) => (),
            Err(Undecided::Gone) => is_gone(),
            Err(Undecided::Storage(error) | Undecided::Unknown(error)) => {
                tracing::error!(%error, "the end of a run can't be recorded; its lease ends");
            }
        }
        None
    }

    /// Waits, unless the operation is cancelled or the process stops.
    async fn rest(&mut self, pause: Duration) {
        let until = self.monotonic().saturating_add(pause);
        let clock = self.executor.clock();
        let cancelled = &mut self.registration.cancelled;
        // One that is known already shortens no later rest: the provider would be asked
        // without a pause until the budget is spent.
        let is_news = !*cancelled.borrow();
        tokio::select! {
            () = clock.reached(until) => (),
            // Their senders live as long as the executor.
            _ = cancelled.wait_for(|cancelled| *cancelled), if is_news => (),
            _ = self.stopping.wait_for(|stopping| *stopping) => (),
        }
    }

    /// Runs application code in a task of its own, until `ends` on the monotonic clock.
    async fn bounded<T: Send + 'static>(
        &self,
        work: Pin<Box<dyn Future<Output = T> + Send>>,
        ends: Duration,
    ) -> Result<T, Stopped<T>> {
        let mut task = self.executor.runtime.spawn(work);
        let done = tokio::select! {
            biased;
            done = &mut task => done,
            () = self.executor.clock().reached(ends) => {
                task.abort();
                // It may have come to its end meanwhile, and is gone when nothing more can
                // come of it. A handler that blocks its thread can't be waited for.
                match tokio::time::timeout(STOPPING, &mut task).await {
                    Ok(done) => done,
                    Err(_) => return Err(Stopped::StillRuns(task)),
                }
            }
        };
        done.map_err(|error| {
            if error.is_panic() {
                Stopped::Panicked
            } else {
                Stopped::TimedOut
            }
        })
    }

    async fn decide(
        &self,
        decide: impl Fn(&mut Record) -> Result<(), Refusal> + Send + Sync + 'static,
    ) -> Result<Record, Undecided> {
        let id = self.plan.record.operation_id;
        decide_on(&self.executor, id, Box::new(decide)).await
    }

    fn monotonic(&self) -> Duration {
        self.executor.clock().monotonic()
    }
}

/// The row of the operation is gone, and no success with it.
fn is_gone() {
    tracing::warn!(
        "the row of an operation under way is gone; the ledger was changed from outside"
    );
}

/// Why application code came to no end of its own.
enum Stopped<T> {
    TimedOut,
    /// Nor can it be stopped; what it comes to is still heard of.
    StillRuns(JoinHandle<T>),
    Panicked,
}

fn timed_out() -> AttemptError {
    AttemptError::ambiguous("attempt_timed_out", "the attempt took too long")
}

fn panicked() -> AttemptError {
    AttemptError::ambiguous("handler_panicked", "the tool failed unexpectedly")
}

/// What came of an attempt.
struct Outcome {
    result: Result<Box<RawValue>, AttemptError>,
    /// Whether its handler may have been called.
    called: bool,
}

impl Outcome {
    /// What is to be recorded of it. The application is told of an error.
    fn ended(self, executor: &Executor, tool: &ExternalTool, number: u32) -> Ended {
        let called = self.called;
        match self.result {
            Ok(result) => Ended {
                report: Report::Succeeded,
                result: Some(result),
                error: None,
                wait: None,
                called,
            },
            Err(error) => {
                tracing::info!(number, code = error.code(), known = ?error.known, "an attempt ended");
                executor.failures.tell(&tool.name, &error);
                Ended {
                    report: match error.known {
                        Known::Refused => Report::Refused,
                        Known::NotApplied => Report::NotApplied,
                        Known::Ambiguous => Report::Ambiguous,
                    },
                    result: None,
                    error: Some(RecordedError {
                        code: error.code().into(),
                        message: error.message().into(),
                    }),
                    wait: error.retry_after,
                    called,
                }
            }
        }
    }
}

/// Chooses the jitter. With failpoints the clock does, so that a simulation can be repeated.
fn random(now: Duration) -> u64 {
    if cfg!(feature = "failpoints") {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let mixed = now.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        return mixed ^ (mixed >> 31);
    }
    let (high, low) = Uuid::new_v4().as_u64_pair();
    high ^ low
}
