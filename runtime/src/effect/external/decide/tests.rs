//! Random schedules of crashes, retries, cancels, late reports and clocks that jump.

use std::{collections::BTreeSet, sync::Arc};

use proptest::prelude::*;

use super::*;
use crate::{
    operation::{id::OperationId, state::Operation},
    request::arguments::fingerprint::Fingerprint,
};

const TIMEOUT: Duration = Duration::from_secs(8);

/// What may happen next; the numbers choose among what there is.
#[derive(Debug, Clone, Copy)]
enum Turn {
    /// Somebody sends the same key.
    Call,
    /// A run goes on by itself.
    GoOn,
    Work,
    Send(u8),
    Report(u8, Report),
    Crash(u8),
    Cancel,
    /// In seconds, by both clocks.
    Pass(u64),
    /// In seconds; the time of day alone, and it may go back.
    Jump(i64),
}

struct Attempt {
    number: u32,
    lease: Lease,
    sent: bool,
}

struct World {
    terms: Terms,
    record: Record,
    now: Moment,
    attempts: Vec<Attempt>,
    /// Attempts were in doubt, and nobody has called with the key since.
    doubted: bool,
    /// Attempts whose requests have left and are not known to be without effect.
    unaccounted: BTreeSet<u32>,
}

impl World {
    fn new(recovery: Recovery) -> Self {
        let now = Timestamp(1_800_000_000_000);
        let terms = Terms {
            recovery,
            attempt_timeout: TIMEOUT,
            retention: Duration::from_hours(24),
            tombstone: Duration::from_hours(24),
            keep_request: false,
        };
        Self {
            terms,
            record: Record {
                era: 0,
                operation_id: OperationId::generate(),
                scope: Arc::from("[]"),
                tool: Arc::from("send"),
                version: 1,
                fingerprint: Fingerprint::of_bytes(b"{}"),
                operation: Operation::accepted(Origin::Call),
                request: Some("{}".into()),
                provider_key: Some("k".into()),
                not_before: None,
                tags: None,
                latest_at: now,
                lease: None,
                run_until: now.plus(Duration::from_secs(30)),
                due_at: None,
                checks: 0,
                attempts: Vec::new(),
                result: None,
                error: None,
                resolved: None,
                ends: Some(terms.ends(now)),
            },
            now: Moment {
                ledger: now,
                wall: now,
            },
            attempts: Vec::new(),
            doubted: false,
            unaccounted: BTreeSet::new(),
        }
    }

    fn lease(&self) -> Lease {
        Lease {
            owner: [0; 16],
            began: self.now.ledger,
            until: self.now.ledger.plus(TIMEOUT),
        }
    }

    fn take(&mut self, turn: Turn) {
        let before = self.record.operation.state;
        // What changes nothing is as good a turn as any.
        let _refused = match turn {
            Turn::Call => {
                let _held = self.expire();
                self.begin(By::Key)
            }
            Turn::GoOn => self.begin(By::Itself),
            Turn::Work => {
                let seen = self.record.due_at;
                let (terms, now) = (self.terms, self.now);
                self.expire()
                    .or_else(|_| terms.claim(&mut self.record, seen, now))
            }
            Turn::Send(which) => {
                self.send(which);
                Ok(())
            }
            Turn::Report(which, report) => self.report(which, report),
            Turn::Crash(which) => {
                if !self.attempts.is_empty() {
                    let place = usize::from(which) % self.attempts.len();
                    self.attempts.remove(place);
                }
                Ok(())
            }
            Turn::Cancel => self.terms.cancel(&mut self.record, self.now),
            Turn::Pass(seconds) => {
                self.now = self.now.plus(Duration::from_secs(seconds));
                Ok(())
            }
            Turn::Jump(seconds) => {
                let Timestamp(wall) = self.now.wall;
                self.now.wall = Timestamp(wall.saturating_add(seconds * 1_000));
                Ok(())
            }
        };
        let after = self.record.operation.state;
        let nothing = before == State::Failed(Failed::NothingApplied);
        let allowed = match (turn, after) {
            (Turn::Call, State::Attempting) | (Turn::Cancel, State::Cancelled) => nothing,
            (Turn::Report(..), State::Succeeded) => before != State::Succeeded,
            _ => false,
        };
        assert!(
            !before.is_final() || before == after || allowed,
            "{before:?} became {after:?}"
        );
        self.check_record();
    }

    fn expire(&mut self) -> Result<(), Refusal> {
        let seen = Seen::of(&self.record);
        self.terms.expire(&mut self.record, seen, self.now)
    }

    fn begin(&mut self, by: By) -> Result<(), Refusal> {
        let lease = self.lease();
        let beginning = Beginning {
            attempt_id: AttemptId::generate(),
            lease,
            now: self.now,
            run_until: self.now.ledger.plus(Duration::from_secs(30)),
            seen: self.record.operation.attempts,
            by,
        };
        self.terms.begin(&mut self.record, beginning, "{}")?;
        match by {
            By::Key => self.doubted = false,
            By::Itself => assert!(
                !self.doubted || self.terms.recovery != Recovery::Inspect,
                "sent by itself after it was in doubt"
            ),
        }
        self.attempts.push(Attempt {
            number: self.record.operation.attempts,
            lease,
            sent: false,
        });
        Ok(())
    }

    /// An attempt reads its lease, and sends if that holds.
    fn send(&mut self, which: u8) {
        if self.attempts.is_empty() {
            return;
        }
        let place = usize::from(which) % self.attempts.len();
        let attempt = &mut self.attempts[place];
        let holds = self.record.operation.state == State::Attempting
            && self.record.operation.attempts == attempt.number
            && attempt.lease.began <= self.now.ledger
            && self.now.ledger < attempt.lease.until;
        if holds && !attempt.sent {
            attempt.sent = true;
            self.unaccounted.insert(attempt.number);
        }
    }

    fn report(&mut self, which: u8, report: Report) -> Result<(), Refusal> {
        if self.attempts.is_empty() {
            return Err(Refusal::Stale);
        }
        let place = usize::from(which) % self.attempts.len();
        let attempt = self.attempts.remove(place);
        // Nobody claims a success without having sent.
        let report = match report {
            Report::Succeeded if !attempt.sent => Report::NotApplied,
            report => report,
        };
        match report {
            Report::Refused | Report::NotApplied => {
                self.unaccounted.remove(&attempt.number);
            }
            Report::Succeeded | Report::Ambiguous => (),
        }
        let lease = self.lease();
        self.terms.report(
            &mut self.record,
            attempt.number,
            &ended(report),
            Run::Ends,
            lease,
            self.now,
        )
    }

    fn check_record(&mut self) {
        let record = &self.record;
        let state = record.operation.state;
        let may_be_sent = state == State::Failed(Failed::NothingApplied);
        assert_eq!(
            record.ends.is_some(),
            state.is_final() || state == State::Accepted,
            "{state:?}"
        );
        assert_eq!(
            record.request.is_none(),
            state.is_final() && !may_be_sent,
            "{state:?}"
        );
        let held = matches!(
            state,
            State::Attempting | State::Between | State::CancelRequested
        );
        assert_eq!(
            record.lease.is_some(),
            held,
            "a lease is missing or left: {state:?}"
        );
        assert!(
            record.due_at.is_some() || !held,
            "nobody would look at it again"
        );
        let number = u32::try_from(record.attempts.len()).unwrap();
        assert_eq!(number, record.operation.attempts);
        self.doubted |= !record.operation.in_doubt.is_empty();
    }
}

fn ended(report: Report) -> Ended {
    Ended {
        report,
        result: None,
        error: None,
        wait: None,
        called: true,
    }
}

#[test]
fn a_lease_that_has_begun_since_is_not_over() {
    let mut world = World::new(Recovery::Inspect);
    world.begin(By::Key).unwrap();
    let (seen, then) = (Seen::of(&world.record), world.now.plus(2 * TIMEOUT));
    world.now = then.plus(Duration::from_secs(1));
    let (terms, lease, now) = (world.terms, world.lease(), world.now);
    let record = &mut world.record;
    terms
        .report(
            record,
            1,
            &ended(Report::NotApplied),
            Run::Continues,
            lease,
            now,
        )
        .unwrap();
    let expired = terms.expire(&mut record.clone(), seen, then);
    assert_eq!(expired, Err(Refusal::Stale), "it is between two attempts");
    world.begin(By::Itself).unwrap();
    let expired = terms.expire(&mut world.record, seen, then);
    assert_eq!(expired, Err(Refusal::Stale), "another attempt has begun");
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let report = prop_oneof![
        Just(Report::Succeeded),
        Just(Report::Refused),
        Just(Report::NotApplied),
        Just(Report::Ambiguous),
    ];
    let turn = prop_oneof![
        3 => Just(Turn::Call),
        2 => Just(Turn::GoOn),
        2 => Just(Turn::Work),
        4 => any::<u8>().prop_map(Turn::Send),
        3 => (any::<u8>(), report).prop_map(|(which, report)| Turn::Report(which, report)),
        1 => any::<u8>().prop_map(Turn::Crash),
        1 => Just(Turn::Cancel),
        1 => prop_oneof![0..20_u64, 0..100_000_u64].prop_map(Turn::Pass),
        1 => prop_oneof![-20..20_i64, -100_000..100_000_i64].prop_map(Turn::Jump),
    ];
    prop::collection::vec(turn, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_people_must_find_out_is_sent_once(turns in turns()) {
        let mut world = World::new(Recovery::Inspect);
        for turn in turns {
            world.take(turn);
            prop_assert!(world.unaccounted.len() <= 1, "sent again while one was in doubt");
        }
    }

    #[test]
    fn what_can_be_asked_about_is_sent_once_without_an_answer(turns in turns()) {
        let mut world = World::new(Recovery::Reconcile { settle: TIMEOUT });
        for turn in turns {
            world.take(turn);
            prop_assert!(world.unaccounted.len() <= 1, "sent again while one was in doubt");
        }
    }

    #[test]
    fn a_keys_window_bounds_what_is_sent(turns in turns()) {
        let window = Duration::from_hours(1);
        let mut world = World::new(Recovery::ProviderKey { window });
        let mut first = None;
        for turn in turns {
            let before = world.unaccounted.len();
            world.take(turn);
            if before < world.unaccounted.len() {
                // The provider's clock goes on as the ledger's own.
                let now = world.now.ledger;
                let first = *first.get_or_insert(now);
                prop_assert!(
                    before == 0 || now < first.plus(window),
                    "sent again when the key may be forgotten"
                );
            }
        }
    }
}

/// The steps at which the property above once failed: the window was counted from an attempt
/// that had said that it had no effect, by a clock that was set back before the next one.
#[test]
fn a_window_counts_from_the_first_attempt_by_the_clock_that_says_more() {
    let window = Duration::from_hours(1);
    for (back, forth) in [
        (Turn::Jump(-62_845), [Turn::Pass(46), Turn::Pass(62_799)]),
        (Turn::Jump(-30), [Turn::Pass(46), Turn::Pass(62_799)]),
    ] {
        let mut world = World::new(Recovery::ProviderKey { window });
        for turn in [
            Turn::Call,
            Turn::Report(0, Report::NotApplied),
            back,
            Turn::Call,
            Turn::Send(0),
            Turn::Report(0, Report::Ambiguous),
            forth[0],
            forth[1],
            Turn::Call,
            Turn::Send(0),
        ] {
            world.take(turn);
        }
        assert_eq!(world.unaccounted.len(), 1, "sent again after {back:?}");
    }
}

#[test]
fn a_small_step_back_closes_no_window() {
    let mut world = World::new(Recovery::ProviderKey {
        window: Duration::from_hours(1),
    });
    for turn in [
        Turn::Call,
        Turn::Send(0),
        Turn::Report(0, Report::Ambiguous),
        Turn::Jump(-50),
        Turn::Call,
        Turn::Send(0),
    ] {
        world.take(turn);
    }
    assert_eq!(world.unaccounted.len(), 2);
}

#[test]
fn an_attempt_that_was_stopped_before_its_handler_opens_no_window() {
    let mut world = World::new(Recovery::ProviderKey {
        window: Duration::from_hours(1),
    });
    world.begin(By::Key).unwrap();
    let stopped = Ended {
        called: false,
        ..ended(Report::NotApplied)
    };
    let (terms, lease, now) = (world.terms, world.lease(), world.now);
    terms
        .report(&mut world.record, 1, &stopped, Run::Ends, lease, now)
        .unwrap();
    world.attempts.clear();
    for turn in [
        Turn::Pass(2 * 3_600),
        Turn::Call,
        Turn::Send(0),
        Turn::Report(0, Report::Ambiguous),
        Turn::Call,
    ] {
        world.take(turn);
    }
    assert_eq!(world.record.operation.attempts, 3);
}

#[test]
fn guidance_is_kept_for_a_day_at_most_and_obeyed() {
    let mut world = World::new(Recovery::Inspect);
    world.begin(By::Key).unwrap();
    let asked = Ended {
        wait: Some(Duration::from_hours(100)),
        ..ended(Report::NotApplied)
    };
    let (terms, lease, now) = (world.terms, world.lease(), world.now);
    terms
        .report(&mut world.record, 1, &asked, Run::Ends, lease, now)
        .unwrap();
    world.attempts.clear();
    assert_eq!(world.begin(By::Key), Err(Refusal::Guided));
    world.record.ends = None; // A day is this tool's retention, too.
    world.now = world.now.plus(Duration::from_hours(24));
    world.begin(By::Key).unwrap();
    assert_eq!(world.record.not_before, None);
}

#[test]
fn what_nobody_takes_up_ends_and_takes_no_event_any_more() {
    let mut world = World::new(Recovery::Inspect);
    world.now = world.now.plus(Duration::from_hours(24));
    assert_eq!(world.begin(By::Key), Err(Refusal::Final));
    assert_eq!(
        world.terms.cancel(&mut world.record, world.now),
        Err(Refusal::Final)
    );
}
