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
    /// In seconds; the time of day may go back.
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
    now: Timestamp,
    attempts: Vec<Attempt>,
    /// Attempts were in doubt, and nobody has called with the key since.
    doubted: bool,
    /// Attempts whose requests have left and are not known to be without effect.
    unaccounted: BTreeSet<u32>,
}

impl World {
    fn new(recovery: Recovery) -> Self {
        let now = Timestamp(1_800_000_000_000);
        Self {
            terms: Terms {
                recovery,
                attempt_timeout: TIMEOUT,
                retention: Duration::from_hours(24),
                tombstone: Duration::from_hours(24),
                keep_request: false,
            },
            record: Record {
                operation_id: OperationId::generate(),
                scope: Arc::from("[]"),
                tool: Arc::from("send"),
                version: 1,
                fingerprint: Fingerprint::of(b"{}"),
                operation: Operation::accepted(Origin::Call),
                request: Some("{}".into()),
                tags: None,
                first_attempt_at: None,
                latest_at: now,
                lease: None,
                run_until: now.plus(Duration::from_secs(30)),
                due_at: None,
                checks: 0,
                attempts: Vec::new(),
                result: None,
                error: None,
                resolved: None,
                ends: None,
            },
            now,
            attempts: Vec::new(),
            doubted: false,
            unaccounted: BTreeSet::new(),
        }
    }

    fn lease(&self) -> Lease {
        Lease {
            owner: [0; 16],
            began: self.now,
            until: self.now.plus(TIMEOUT),
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
            Turn::Jump(seconds) => {
                self.now = Timestamp(self.now.0.saturating_add(seconds * 1_000));
                Ok(())
            }
        };
        let after = self.record.operation.state;
        let again = before == State::Failed(Failed::NothingApplied)
            && after == State::Attempting
            && matches!(turn, Turn::Call);
        assert!(
            !before.is_final() || before == after || again,
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
            run_until: self.now.plus(Duration::from_secs(30)),
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
            && attempt.lease.began <= self.now
            && self.now < attempt.lease.until;
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
        let ended = Ended {
            report,
            result: None,
            error: None,
        };
        let lease = self.lease();
        self.terms
            .report(&mut self.record, attempt.number, &ended, Run::Ends, lease)
    }

    fn check_record(&mut self) {
        let record = &self.record;
        let state = record.operation.state;
        assert_eq!(record.ends.is_some(), state.is_final(), "{state:?}");
        assert_eq!(record.request.is_none(), state.is_final(), "{state:?}");
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

#[test]
fn a_lease_that_has_begun_since_is_not_over() {
    let mut world = World::new(Recovery::Inspect);
    world.begin(By::Key).unwrap();
    let (seen, then) = (Seen::of(&world.record), world.now.plus(2 * TIMEOUT));
    world.now = then.plus(Duration::from_secs(1));
    let ended = Ended {
        report: Report::NotApplied,
        result: None,
        error: None,
    };
    let (terms, lease) = (world.terms, world.lease());
    let record = &mut world.record;
    terms
        .report(record, 1, &ended, Run::Continues, lease)
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
        2 => prop_oneof![0..20_i64, -100_000..100_000_i64].prop_map(Turn::Jump),
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
                let first = *first.get_or_insert(world.now);
                prop_assert!(
                    before == 0 || world.now < first.plus(window),
                    "sent again when the key may be forgotten"
                );
            }
        }
    }
}
