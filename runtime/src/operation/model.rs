//! The state machine explored exhaustively, against a provider and a network that do
//! their worst.
//!
//! The model has two or three attempts, each by a worker that can be paused, lost or late;
//! requests that arrive late or never; answers that get lost; a recoverer whose question
//! and whose use of the answer lie apart; somebody who cancels; a person who settles what
//! is unknown, truthfully. A lease may expire at any moment, as a clock that jumps makes it.
//!
//! What it assumes is what the documentation states: no send outlives `settle`, the
//! provider keeps keys for its window, people and providers tell the truth. In a world where
//! they don't, a person's finding may be false and a provider's "no" too early: there the
//! effect may come twice, but a success that is heard of is what counts from then on.
//!
//! The provider may ask to wait; what nobody takes up comes to its end; the ledger may be
//! lost, and an older copy take its place.

use std::{collections::BTreeSet, time::Duration};

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::state::{
    By, Event, Failed, Operation, Origin, Refusal, Report, Resend, Resolution, Run, State, Verdict,
};
use crate::{
    clock::{Moment as Time, Timestamp},
    effect::external::recovery::Recovery,
};

const WINDOW: Duration = Duration::from_hours(1);
const TIMEOUT: Duration = Duration::from_secs(8);

/// One operation, all that can happen to it, and the flaw that a test adds.
#[derive(Clone, Copy)]
struct World {
    recovery: Recovery,
    origin: Origin,
    max_attempts: u32,
    /// Findings may be false, and answers too early.
    misleads: bool,
    /// The ledger may be lost, once.
    restores: bool,
    flaw: Option<Flaw>,
}

/// A fence taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// An expired lease counts as "nothing was sent".
    ExpiryMeansNotApplied,
    /// A refusal speaks for the attempts before it.
    RefusalSettlesAll,
    /// An attempt's "not applied" speaks for the attempts before it.
    NotAppliedSettlesAll,
    /// Reports are taken from whatever attempt they are.
    ReportsUnfenced,
    /// Late reports are taken after the end, too.
    ReportsAfterTheEnd,
    /// A run begins whatever others have begun since it looked.
    BeginUnfenced,
    /// An answer is taken for attempts that began after the question.
    AnswerUnfenced,
    /// A "not applied" counts while a send is on its way.
    AnswerBeforeSettling,
    /// Cancelling an attempt under way is taken for having stopped it.
    CancelStops,
    /// A cancelled operation may be dispatched again.
    CancelForgotten,
    /// Attempts in doubt hinder no dispatch.
    ResendAlways,
    /// The provider's window is not looked at.
    WindowIgnored,
    /// An attempt sends without reading its lease.
    LeaseUnread,
    /// A person's finding is taken for attempts that it doesn't cover.
    ResolutionUnfenced,
    /// A run goes on though what it was for has failed.
    FailureIgnored,
    /// What was in doubt is tried again by itself once it turns out late that nothing was
    /// applied, whatever the recovery.
    DoubtForgotten,
    /// A success that comes after another end is dropped.
    LateSuccessDropped,
    /// An answer that the effect exists is dropped after another end.
    LateAnswerDropped,
    /// A success that comes late counts, and the attempt after it may send all the same.
    SendsAfterSuccess,
    /// Cancelling what failed with nothing applied does nothing.
    CancelAfterFailureIgnored,
    /// What has come to its end unsent is sent.
    EndIgnored,
    /// After a restore the provider is given another key.
    OtherKey,
    /// The provider's window is looked at by the clock that was set back alone.
    OneClock,
    /// What the provider asked for is not waited for.
    GuidanceIgnored,
    /// After a restore nothing is taken for possibly sent.
    RestoreForgotten,
}

/// Where the worker of an attempt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Step {
    /// It has recorded the attempt and hasn't read its lease yet.
    Recorded,
    /// It has read its lease and is about to send.
    Sending,
    /// Its request is under way.
    Sent,
    /// It was answered.
    Answered { applied: bool },
}

#[allow(
    clippy::struct_excessive_bools,
    reason = "each is true or not whatever the others are"
)]
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Moment {
    operation: Operation,
    workers: BTreeSet<(u32, Step)>,
    /// Requests that have left and not arrived.
    network: BTreeSet<u32>,
    /// Attempts whose answer is on its way.
    answers: BTreeSet<(u32, bool)>,
    effects: u8,
    /// Attempts were in doubt, and nobody has called with the key since.
    doubted: bool,
    window_over: bool,
    key_known: bool,
    /// An answer to the recoverer's question, not yet made use of.
    asked: Option<(u32, Verdict)>,
    /// What a person has found out, not yet recorded.
    found: Option<(u32, Resolution)>,
    /// The ledger has heard of a success while it knew the operation.
    proved: bool,
    /// The provider asked to wait, and the time is not over.
    guided: bool,
    /// Nobody took it up in its retention.
    ended: bool,
    restored: bool,
    /// Requests under way that the ledger which sent them has lost.
    strays: u8,
    broken: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    Begin(By),
    ReadLease(u32),
    Send(u32),
    GiveUpBeforeSending(u32, Run),
    Arrive(u32, Answer),
    Lose(u32),
    Answer(u32, bool),
    LoseAnswer(u32, bool),
    TellAnswer(u32, bool, Run),
    TellAmbiguous(u32, Run),
    /// It was told to come back later.
    TellWait(u32, Run),
    WaitIsOver,
    /// Its retention ends.
    End,
    /// A copy from before it takes the ledger's place.
    Restore,
    ArriveStray(Answer),
    LoseStray,
    CrashWorker(u32, Step),
    ExpireLease,
    EndRun,
    Ask,
    UseAnswer,
    Cancel,
    Find(Resolution),
    Resolve,
    EndWindow,
}

/// How the provider takes a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Answer {
    Apply,
    Refuse,
}

impl World {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn resend(&self, moment: &Moment) -> Resend {
        if self.has(Flaw::ResendAlways) {
            return Resend::SameIdentity;
        }
        let over = moment.window_over && !self.has(Flaw::WindowIgnored);
        let zero = Timestamp(0);
        // The wall clock was set back meanwhile.
        let now = Time {
            ledger: if over && !self.has(Flaw::OneClock) {
                zero.plus(WINDOW)
            } else {
                zero
            },
            wall: zero,
        };
        let first = Time {
            ledger: zero,
            wall: zero,
        };
        self.recovery.resend(first, now, TIMEOUT)
    }

    /// Whether no send can be on its way, as `settle` promises when it is over.
    fn quiet(moment: &Moment) -> bool {
        moment.network.is_empty()
            && moment.strays == 0
            && moment
                .workers
                .iter()
                .all(|(_, step)| *step != Step::Sending)
    }

    fn may_ask(&self) -> bool {
        matches!(self.recovery, Recovery::Reconcile { .. })
    }

    /// The product's transition, or a flawed one.
    #[allow(clippy::too_many_lines, reason = "one place for all flaws")]
    fn step(&self, operation: &Operation, event: Event) -> Result<Operation, Refusal> {
        let mut operation = operation.clone();
        match (self.flaw, event) {
            (Some(Flaw::ExpiryMeansNotApplied), Event::LeaseExpired { seen })
                if operation.state == State::Attempting && seen == operation.attempts =>
            {
                Ok(Operation {
                    state: State::Accepted,
                    ..operation
                })
            }
            (
                Some(Flaw::RefusalSettlesAll),
                Event::Report {
                    report: Report::Refused,
                    ..
                },
            )
            | (
                Some(Flaw::NotAppliedSettlesAll),
                Event::Report {
                    report: Report::NotApplied,
                    ..
                },
            ) => {
                operation.in_doubt.clear();
                operation.step(event)
            }
            (
                Some(Flaw::ReportsUnfenced),
                Event::Report {
                    report, run, again, ..
                },
            ) => {
                let attempt = operation.attempts;
                operation.step(Event::Report {
                    attempt,
                    report,
                    run,
                    again,
                })
            }
            (
                Some(Flaw::DoubtForgotten),
                Event::Report {
                    attempt,
                    report,
                    run,
                    ..
                },
            ) => operation.step(Event::Report {
                attempt,
                report,
                run,
                again: By::Itself,
            }),
            (Some(Flaw::ReportsAfterTheEnd), Event::Report { attempt, .. })
                if operation.state.is_final() =>
            {
                operation.state = State::OutcomeUnknown;
                operation.in_doubt.insert(attempt);
                operation.step(event)
            }
            (Some(Flaw::BeginUnfenced), Event::Begin { by, resend, .. }) => {
                if operation.state == State::Attempting {
                    operation.state = State::Between;
                }
                operation.step(Event::Begin {
                    seen: operation.attempts,
                    by,
                    resend,
                })
            }
            (Some(Flaw::FailureIgnored), Event::Begin { seen, resend, .. }) => {
                operation.step(Event::Begin {
                    seen,
                    by: By::Key,
                    resend,
                })
            }
            (Some(Flaw::AnswerUnfenced), Event::Reconciled { verdict, .. }) => {
                operation.step(Event::Reconciled {
                    seen: operation.attempts,
                    verdict,
                })
            }
            (Some(Flaw::CancelStops), Event::Cancel) if operation.state == State::Attempting => {
                Ok(Operation {
                    state: State::Cancelled,
                    ..operation
                })
            }
            (Some(Flaw::CancelForgotten), Event::Begin { .. }) => {
                operation.cancel = false;
                operation.step(event)
            }
            (
                Some(Flaw::LateSuccessDropped),
                Event::Report {
                    report: Report::Succeeded,
                    ..
                },
            )
            | (
                Some(Flaw::LateAnswerDropped),
                Event::Reconciled {
                    verdict: Verdict::Applied,
                    ..
                },
            ) if operation.state.is_final() => Err(Refusal::Final),
            (Some(Flaw::CancelAfterFailureIgnored), Event::Cancel)
                if operation.state == State::Failed(Failed::NothingApplied) =>
            {
                Ok(operation)
            }
            (Some(Flaw::ResolutionUnfenced), Event::Resolve { resolution, .. }) => {
                operation.step(Event::Resolve {
                    seen: operation.attempts,
                    resolution,
                })
            }
            _ => operation.step(event),
        }
    }

    /// Applies an event, and keeps watch over what must never happen on the way.
    fn apply(&self, moment: &mut Moment, event: Event) -> bool {
        if moment.ended && !self.has(Flaw::EndIgnored) {
            return false;
        }
        let Ok(next) = self.step(&moment.operation, event) else {
            return false;
        };
        let before = &moment.operation;
        let by = match event {
            Event::Begin { by, .. } => Some(by),
            _ => None,
        };
        let nothing = before.state == State::Failed(Failed::NothingApplied);
        let allowed = match event {
            Event::Begin { by, .. } => nothing && by == By::Key,
            Event::Cancel => nothing && next.state == State::Cancelled,
            // Proof overrules every end but a success.
            Event::Report {
                report: Report::Succeeded,
                ..
            }
            | Event::Reconciled {
                verdict: Verdict::Applied,
                ..
            }
            | Event::Resolve {
                resolution: Resolution::Succeeded,
                ..
            } => before.state != State::Succeeded && next.state == State::Succeeded,
            Event::Report { .. }
            | Event::Reconciled { .. }
            | Event::Resolve { .. }
            | Event::LeaseExpired { .. }
            | Event::RunEnded { .. } => false,
        };
        if before.state.is_final() && next.state != before.state && !allowed {
            moment.broken = Some("a final state changed");
        }
        if matches!(event, Event::Cancel) && nothing && next.state != State::Cancelled {
            moment.broken = Some("what was cancelled may be sent");
        }
        if next.attempts > before.attempts {
            if moment.proved {
                moment.broken = Some("dispatched after a success was heard of");
            }
            if moment.guided {
                moment.broken = Some("dispatched before the provider wants it");
            }
            if moment.ended {
                moment.broken = Some("dispatched after its end");
            }
            if before.cancel {
                moment.broken = Some("dispatched after it was cancelled");
            }
            if self.recovery == Recovery::Inspect && !before.in_doubt.is_empty() {
                moment.broken = Some("dispatched while an attempt was in doubt");
            }
            if self.recovery == Recovery::Inspect && moment.doubted && by == Some(By::Itself) {
                moment.broken = Some("dispatched by itself after it was in doubt");
            }
        }
        moment.doubted = match by {
            Some(By::Key) => false,
            Some(By::Itself) | None => moment.doubted,
        } || !next.in_doubt.is_empty();
        let accounted = !next.in_doubt.is_empty();
        if (next.state == State::OutcomeUnknown) != accounted
            && !matches!(
                next.state,
                State::Between | State::Attempting | State::CancelRequested
            )
        {
            moment.broken = Some("doubt and state disagree");
        }
        moment.operation = next;
        true
    }

    fn tell(&self, moment: &mut Moment, attempt: u32, report: Report, run: Run) {
        if report == Report::Succeeded && !moment.ended {
            moment.proved = true;
        }
        // A report that the machine refuses is simply of no effect.
        let _ = self.apply(
            moment,
            Event::Report {
                attempt,
                report,
                run,
                again: self.recovery.again(),
            },
        );
    }
}

impl Model for World {
    type State = Moment;
    type Action = Action;

    fn init_states(&self) -> Vec<Moment> {
        vec![Moment {
            operation: Operation::accepted(self.origin),
            workers: BTreeSet::new(),
            network: BTreeSet::new(),
            answers: BTreeSet::new(),
            effects: 0,
            doubted: false,
            window_over: false,
            key_known: false,
            asked: None,
            found: None,
            proved: false,
            guided: false,
            ended: false,
            restored: false,
            strays: 0,
            broken: None,
        }]
    }

    fn actions(&self, moment: &Moment, actions: &mut Vec<Action>) {
        if moment.operation.attempts < self.max_attempts {
            actions.extend([Action::Begin(By::Key), Action::Begin(By::Itself)]);
        }
        for &(attempt, step) in &moment.workers {
            match step {
                Step::Recorded => {
                    actions.push(Action::ReadLease(attempt));
                    actions.push(Action::GiveUpBeforeSending(attempt, Run::Continues));
                    actions.push(Action::GiveUpBeforeSending(attempt, Run::Ends));
                }
                Step::Sending => actions.push(Action::Send(attempt)),
                Step::Sent => {
                    actions.push(Action::TellAmbiguous(attempt, Run::Continues));
                    actions.push(Action::TellAmbiguous(attempt, Run::Ends));
                }
                Step::Answered { applied } => {
                    actions.push(Action::TellAnswer(attempt, applied, Run::Continues));
                    if !applied {
                        actions.push(Action::TellWait(attempt, Run::Continues));
                        actions.push(Action::TellWait(attempt, Run::Ends));
                    }
                }
            }
            actions.push(Action::CrashWorker(attempt, step));
        }
        for &attempt in &moment.network {
            actions.push(Action::Arrive(attempt, Answer::Apply));
            actions.push(Action::Arrive(attempt, Answer::Refuse));
            actions.push(Action::Lose(attempt));
        }
        for &(attempt, applied) in &moment.answers {
            actions.push(Action::Answer(attempt, applied));
            actions.push(Action::LoseAnswer(attempt, applied));
        }
        actions.extend([Action::ExpireLease, Action::EndRun, Action::Cancel]);
        if self.may_ask() && moment.asked.is_none() {
            actions.push(Action::Ask);
        }
        if moment.asked.is_some() {
            actions.push(Action::UseAnswer);
        }
        match moment.found {
            Some(_) => actions.push(Action::Resolve),
            None => actions.extend(
                [
                    Resolution::Succeeded,
                    Resolution::Failed,
                    Resolution::NotApplied,
                ]
                .map(Action::Find),
            ),
        }
        if matches!(self.recovery, Recovery::ProviderKey { .. }) {
            actions.push(Action::EndWindow);
        }
        if moment.guided {
            actions.push(Action::WaitIsOver);
        }
        if !moment.ended {
            actions.push(Action::End);
        }
        if self.restores && !moment.restored {
            actions.push(Action::Restore);
        }
        if moment.strays > 0 {
            actions.extend([
                Action::ArriveStray(Answer::Apply),
                Action::ArriveStray(Answer::Refuse),
                Action::LoseStray,
            ]);
        }
    }

    #[allow(clippy::too_many_lines, reason = "one place for all that can happen")]
    fn next_state(&self, before: &Moment, action: Action) -> Option<Moment> {
        let mut moment = before.clone();
        match action {
            Action::Begin(by) => {
                if moment.guided && !self.has(Flaw::GuidanceIgnored) {
                    return None;
                }
                // The run looked at some moment up to now; all of them are tried.
                let seen = match self.flaw {
                    Some(Flaw::BeginUnfenced) => 0,
                    _ => moment.operation.attempts,
                };
                let event = Event::Begin {
                    seen,
                    by,
                    resend: self.resend(&moment),
                };
                if !self.apply(&mut moment, event) {
                    return None;
                }
                moment
                    .workers
                    .insert((moment.operation.attempts, Step::Recorded));
            }
            Action::ReadLease(attempt) => {
                let holds = moment.operation.state == State::Attempting
                    && moment.operation.attempts == attempt;
                let forgets =
                    self.has(Flaw::SendsAfterSuccess) && moment.operation.state == State::Succeeded;
                if !holds && !self.has(Flaw::LeaseUnread) && !forgets {
                    return None;
                }
                if moment.proved {
                    moment.broken = Some("sent after a success was heard of");
                }
                moment.workers.remove(&(attempt, Step::Recorded));
                moment.workers.insert((attempt, Step::Sending));
            }
            Action::Send(attempt) => {
                moment.workers.remove(&(attempt, Step::Sending));
                moment.workers.insert((attempt, Step::Sent));
                moment.network.insert(attempt);
            }
            Action::GiveUpBeforeSending(attempt, run) => {
                moment.workers.remove(&(attempt, Step::Recorded));
                self.tell(&mut moment, attempt, Report::NotApplied, run);
            }
            Action::Arrive(attempt, answer) => {
                moment.network.remove(&attempt);
                let applied = self.arrive(&mut moment, answer);
                moment.answers.insert((attempt, applied));
            }
            Action::ArriveStray(answer) => {
                moment.strays -= 1;
                self.arrive(&mut moment, answer);
            }
            Action::LoseStray => moment.strays -= 1,
            Action::TellWait(attempt, run) => {
                moment
                    .workers
                    .remove(&(attempt, Step::Answered { applied: false }));
                moment.guided = true;
                self.tell(&mut moment, attempt, Report::NotApplied, run);
            }
            Action::WaitIsOver => moment.guided = false,
            Action::End => match moment.operation.state {
                State::Accepted | State::Failed(Failed::NothingApplied) => moment.ended = true,
                State::Attempting
                | State::Between
                | State::CancelRequested
                | State::OutcomeUnknown
                | State::Succeeded
                | State::Failed(Failed::Refused)
                | State::Cancelled => return None,
            },
            // Past the window the provider knows no key any more, whatever ledger there is.
            Action::Restore if moment.window_over => return None,
            // A restore takes longer than a send that a provider is to know again.
            Action::Restore if self.recovery == KEY && !Self::quiet(&moment) => return None,
            Action::Restore => {
                moment = self.restore(&moment);
            }
            Action::Lose(attempt) => {
                moment.network.remove(&attempt);
            }
            Action::Answer(attempt, applied) => {
                moment.answers.remove(&(attempt, applied));
                if !moment.workers.remove(&(attempt, Step::Sent)) {
                    return None;
                }
                moment.workers.insert((attempt, Step::Answered { applied }));
            }
            Action::LoseAnswer(attempt, applied) => {
                moment.answers.remove(&(attempt, applied));
            }
            Action::TellAnswer(attempt, applied, run) => {
                moment
                    .workers
                    .remove(&(attempt, Step::Answered { applied }));
                let report = if applied {
                    Report::Succeeded
                } else {
                    Report::Refused
                };
                self.tell(&mut moment, attempt, report, run);
            }
            Action::TellAmbiguous(attempt, run) => {
                moment.workers.remove(&(attempt, Step::Sent));
                self.tell(&mut moment, attempt, Report::Ambiguous, run);
            }
            Action::CrashWorker(attempt, step) => {
                moment.workers.remove(&(attempt, step));
            }
            Action::ExpireLease => {
                let seen = moment.operation.attempts;
                if !self.apply(&mut moment, Event::LeaseExpired { seen }) {
                    return None;
                }
            }
            Action::EndRun => {
                let seen = moment.operation.attempts;
                if !self.apply(&mut moment, Event::RunEnded { seen }) {
                    return None;
                }
            }
            Action::Ask => {
                match moment.operation.state {
                    State::Between | State::OutcomeUnknown => (),
                    State::Accepted
                    | State::Attempting
                    | State::CancelRequested
                    | State::Succeeded
                    | State::Failed(_)
                    | State::Cancelled => return None,
                }
                let settled = Self::quiet(&moment) || self.has(Flaw::AnswerBeforeSettling);
                let verdict = match (moment.effects, settled) {
                    _ if self.misleads && moment.asked.is_none() && !settled => Verdict::NotApplied,
                    (0, true) => Verdict::NotApplied,
                    (0, false) => Verdict::Undetermined,
                    _ => Verdict::Applied,
                };
                moment.asked = Some((moment.operation.attempts, verdict));
            }
            Action::UseAnswer => {
                let (seen, verdict) = moment.asked.take()?;
                if verdict == Verdict::Applied && !moment.ended {
                    moment.proved = true;
                }
                let _ = self.apply(&mut moment, Event::Reconciled { seen, verdict });
            }
            Action::Cancel => {
                if !self.apply(&mut moment, Event::Cancel) {
                    return None;
                }
            }
            Action::Find(resolution) => {
                if moment.operation.state != State::OutcomeUnknown {
                    return None;
                }
                if !self.misleads && !Self::quiet(&moment) {
                    return None;
                }
                match resolution {
                    Resolution::Failed | Resolution::NotApplied if self.misleads => (),
                    Resolution::Succeeded if moment.effects == 0 => return None,
                    Resolution::Failed | Resolution::NotApplied if moment.effects > 0 => {
                        return None;
                    }
                    Resolution::Succeeded | Resolution::Failed | Resolution::NotApplied => (),
                }
                moment.found = Some((moment.operation.attempts, resolution));
            }
            Action::Resolve => {
                let (seen, resolution) = moment.found.take()?;
                let _ = self.apply(&mut moment, Event::Resolve { seen, resolution });
            }
            Action::EndWindow => {
                if moment.restored {
                    return None; // What the lost ledger sent is older than this one knows.
                }
                // A send that was allowed inside the window arrives inside it.
                if !moment.window_over {
                    moment.window_over = true;
                } else if Self::quiet(&moment) && !Self::recorded(&moment) {
                    moment.key_known = false;
                } else {
                    return None;
                }
            }
        }
        (moment != *before).then_some(moment)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("at most one effect", |world: &Self, moment: &Moment| {
                world.misleads || moment.effects <= 1
            }),
            Property::always(
                "no failure after an effect",
                |world: &Self, moment: &Moment| {
                    let failed = matches!(moment.operation.state, State::Failed(_));
                    world.ignores_effects(moment) || !failed || moment.effects == 0
                },
            ),
            Property::always(
                "nothing cancelled after an effect",
                |world: &Self, moment: &Moment| {
                    let cancelled = moment.operation.state == State::Cancelled;
                    world.ignores_effects(moment) || !cancelled || moment.effects == 0
                },
            ),
            Property::always("proof wins", |_, moment: &Moment| {
                !moment.proved || moment.operation.state == State::Succeeded
            }),
            Property::always("no success without an effect", |_, moment: &Moment| {
                moment.operation.state != State::Succeeded || moment.effects > 0
            }),
            Property::always("no rule broken on the way", |_, moment: &Moment| {
                moment.broken.is_none()
            }),
            Property::sometimes("it succeeds", |_, moment: &Moment| {
                moment.operation.state == State::Succeeded
            }),
            Property::sometimes("it is refused", |_, moment: &Moment| {
                moment.operation.state == State::Failed(Failed::Refused)
            }),
            Property::sometimes("nothing is applied", |_, moment: &Moment| {
                moment.operation.state == State::Failed(Failed::NothingApplied)
            }),
            Property::sometimes("it is cancelled before an attempt", |_, moment: &Moment| {
                moment.operation.state == State::Cancelled && moment.operation.attempts == 0
            }),
            Property::sometimes("it is cancelled after an attempt", |_, moment: &Moment| {
                moment.operation.state == State::Cancelled && moment.operation.attempts > 0
            }),
            Property::sometimes("it succeeds though cancelled", |_, moment: &Moment| {
                moment.operation.state == State::Succeeded && moment.operation.cancel
            }),
            Property::sometimes("it is unknown", |_, moment: &Moment| {
                moment.operation.state == State::OutcomeUnknown
            }),
            Property::sometimes("a second attempt succeeds", |_, moment: &Moment| {
                moment.operation.state == State::Succeeded && moment.operation.attempts > 1
            }),
        ]
    }
}

impl World {
    /// Whether an end without effect may be told though there is one: what was found out is
    /// false, or a ledger that was lost had it and the same key will be told of it.
    fn ignores_effects(&self, moment: &Moment) -> bool {
        self.misleads || (moment.restored && self.recovery == KEY)
    }

    /// The provider takes a request, or doesn't; whether it says that the effect exists.
    fn arrive(&self, moment: &mut Moment, answer: Answer) -> bool {
        let dedupes = matches!(self.recovery, Recovery::ProviderKey { .. });
        if dedupes && moment.key_known {
            return true;
        }
        match answer {
            Answer::Apply => {
                moment.effects += 1;
                moment.key_known = dedupes;
                true
            }
            Answer::Refuse => false,
        }
    }

    /// The first call after an older copy took the ledger's place, which knows nothing of it.
    fn restore(&self, before: &Moment) -> Moment {
        let knows_again = match self.recovery {
            Recovery::ProviderKey { .. } => true,
            Recovery::Reconcile { .. } | Recovery::Inspect => self.has(Flaw::RestoreForgotten),
        };
        let requests = before.network.len();
        let sends = |(_, step): &&(u32, Step)| *step == Step::Sending;
        let leaving = before.workers.iter().filter(sends).count();
        Moment {
            operation: if knows_again {
                Operation::accepted(self.origin)
            } else {
                Operation::perhaps_lost(self.origin)
            },
            workers: BTreeSet::new(),
            network: BTreeSet::new(),
            answers: BTreeSet::new(),
            strays: u8::try_from(requests + leaving).unwrap_or(u8::MAX),
            doubted: false,
            asked: None,
            found: None,
            proved: false,
            guided: false,
            ended: false,
            restored: true,
            key_known: before.key_known && !self.has(Flaw::OtherKey),
            ..before.clone()
        }
    }

    /// Whether an attempt that was allowed has yet to send.
    fn recorded(moment: &Moment) -> bool {
        let current = moment.operation.attempts;
        moment.operation.state == State::Attempting
            && moment.workers.contains(&(current, Step::Recorded))
    }
}

const KEY: Recovery = Recovery::ProviderKey { window: WINDOW };
const RECONCILE: Recovery = Recovery::Reconcile {
    settle: Duration::from_secs(30),
};
const INSPECT: Recovery = Recovery::Inspect;

fn world(recovery: Recovery) -> World {
    World {
        recovery,
        origin: Origin::Call,
        max_attempts: 3,
        misleads: false,
        restores: false,
        flaw: None,
    }
}

/// A world where what is found out may be false.
fn misleading(recovery: Recovery) -> World {
    World {
        max_attempts: 2,
        misleads: true,
        ..world(recovery)
    }
}

/// A world where the ledger may be lost.
fn restoring(recovery: Recovery) -> World {
    World {
        max_attempts: 2,
        restores: true,
        ..world(recovery)
    }
}

#[track_caller]
fn check(world: World) {
    let checker = world.checker().threads(2).spawn_bfs().join();
    assert!(checker.is_done());
    checker.assert_properties();
}

/// Explores with the flaw until the invariant that it breaks is seen broken.
#[track_caller]
fn check_flaw(flaw: Flaw, recovery: Recovery, broken: &'static str) {
    check_flaw_in(world(recovery), flaw, broken);
}

#[track_caller]
fn check_flaw_in(world: World, flaw: Flaw, broken: &'static str) {
    let world = World {
        flaw: Some(flaw),
        ..world
    };
    let found = HasDiscoveries::AnyOf(BTreeSet::from([broken]));
    let checker = world.checker().threads(2).finish_when(found);
    let checker = checker.spawn_bfs().join();
    assert!(
        checker.discovery(broken).is_some(),
        "{flaw:?} went unnoticed by `{broken}`"
    );
}

#[test]
fn a_deduplicating_provider_has_one_effect() {
    check(world(KEY));
}

#[test]
fn a_provider_that_can_be_asked_has_one_effect() {
    check(world(RECONCILE));
}

#[test]
fn what_only_people_can_find_out_is_never_repeated() {
    check(world(INSPECT));
}

#[test]
fn enqueued_operations_are_as_safe() {
    for recovery in [KEY, RECONCILE, INSPECT] {
        check(World {
            origin: Origin::Enqueued,
            max_attempts: 2,
            ..world(recovery)
        });
    }
}

#[test]
fn a_success_counts_whatever_was_found_out_before() {
    for recovery in [KEY, RECONCILE, INSPECT] {
        check(misleading(recovery));
    }
}

#[test]
fn a_restored_ledger_has_no_second_effect() {
    for recovery in [KEY, RECONCILE, INSPECT] {
        check(restoring(recovery));
    }
}

#[test]
fn every_fence_of_proof_is_needed() {
    const RULE: &str = "no rule broken on the way";
    for recovery in [KEY, RECONCILE, INSPECT] {
        let world = misleading(recovery);
        check_flaw_in(world, Flaw::LateSuccessDropped, "proof wins");
        check_flaw_in(world, Flaw::SendsAfterSuccess, RULE);
        check_flaw(Flaw::CancelAfterFailureIgnored, recovery, RULE);
        check_flaw(Flaw::EndIgnored, recovery, RULE);
        check_flaw(Flaw::GuidanceIgnored, recovery, RULE);
    }
    check_flaw_in(misleading(RECONCILE), Flaw::LateAnswerDropped, "proof wins");
    check_flaw(Flaw::OneClock, KEY, "at most one effect");
    check_flaw_in(restoring(KEY), Flaw::OtherKey, "at most one effect");
    for recovery in [RECONCILE, INSPECT] {
        let world = restoring(recovery);
        check_flaw_in(world, Flaw::RestoreForgotten, "at most one effect");
    }
}

#[test]
fn every_fence_is_needed() {
    check_flaw(Flaw::ExpiryMeansNotApplied, INSPECT, "at most one effect");
    check_flaw(Flaw::ExpiryMeansNotApplied, RECONCILE, "at most one effect");
    check_flaw(Flaw::RefusalSettlesAll, KEY, "no failure after an effect");
    check_flaw(
        Flaw::NotAppliedSettlesAll,
        KEY,
        "no failure after an effect",
    );
    check_flaw(Flaw::ReportsUnfenced, KEY, "no failure after an effect");
    check_flaw(
        Flaw::ReportsAfterTheEnd,
        INSPECT,
        "no rule broken on the way",
    );
    check_flaw(Flaw::BeginUnfenced, RECONCILE, "at most one effect");
    check_flaw(
        Flaw::AnswerUnfenced,
        RECONCILE,
        "no failure after an effect",
    );
    check_flaw(Flaw::AnswerBeforeSettling, RECONCILE, "at most one effect");
    check_flaw(
        Flaw::CancelStops,
        INSPECT,
        "nothing cancelled after an effect",
    );
    check_flaw(Flaw::CancelForgotten, KEY, "no rule broken on the way");
    check_flaw(Flaw::ResendAlways, INSPECT, "no rule broken on the way");
    check_flaw(Flaw::ResendAlways, RECONCILE, "at most one effect");
    check_flaw(Flaw::WindowIgnored, KEY, "at most one effect");
    check_flaw(Flaw::LeaseUnread, RECONCILE, "at most one effect");
    check_flaw(Flaw::ResolutionUnfenced, KEY, "no failure after an effect");
    for recovery in [KEY, RECONCILE, INSPECT] {
        check_flaw(Flaw::FailureIgnored, recovery, "no rule broken on the way");
    }
    let enqueued = World {
        origin: Origin::Enqueued,
        ..world(INSPECT)
    };
    check_flaw_in(enqueued, Flaw::DoubtForgotten, "no rule broken on the way");
}
