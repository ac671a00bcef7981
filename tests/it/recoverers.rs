//! Two processes on one file find many operations that a third has left: each is settled once.

use std::{collections::BTreeMap, thread, time::Duration};

use idempotent_tool::Reply;
use rusqlite::Connection;
use tokio::task::JoinHandle;

use crate::{
    common::{Ledger, ada},
    process::Process,
    provider::{BY_ASKING, BY_HAND, BY_KEY, Provider, Takes, arguments, toolbox},
};

/// More than a worker takes up at a time.
const OPERATIONS: usize = 100;

/// How many rounds are over then, each of half a second.
const BEFORE_THE_LEASES_END: usize = 18;

struct Lab {
    ledger: Ledger,
    provider: Provider,
}

impl Lab {
    fn process(&self) -> Process {
        Process::start(&self.ledger.path(), &self.ledger.clock, |store, clock| {
            toolbox(&store, &self.provider.seen_from(clock))
        })
    }

    /// The states that each operation goes through from now on.
    fn record_steps(&self) {
        let connection = Connection::open(self.ledger.path()).unwrap();
        connection
            .execute_batch(
                "CREATE TABLE steps (operation_id BLOB, state TEXT);
                 CREATE TRIGGER step AFTER UPDATE OF state ON idempotent_external
                 WHEN old.state <> new.state
                 BEGIN INSERT INTO steps VALUES (new.operation_id, new.state); END;",
            )
            .unwrap();
    }

    fn steps(&self) -> BTreeMap<Vec<u8>, Vec<String>> {
        let connection = Connection::open(self.ledger.path()).unwrap();
        let query = "SELECT operation_id, state FROM steps ORDER BY rowid";
        let mut statement = connection.prepare(query).unwrap();
        let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?)));
        let mut steps: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for row in rows.unwrap() {
            let (id, state) = row.unwrap();
            steps.entry(id).or_default().push(state);
        }
        steps
    }
}

fn call_all(process: &Process, tool: &'static str) -> Vec<JoinHandle<Reply>> {
    (0..OPERATIONS)
        .map(|number| {
            let (tools, arguments) = (process.tools.clone(), arguments(&number.to_string()));
            process.spawn(async move { tools.call(&ada(), tool, arguments).await })
        })
        .collect()
}

#[track_caller]
fn check(tool: &'static str, expected: &[&str], requests: usize) {
    let ledger = Ledger::new();
    // What is sent again is under way while both go on.
    let mut script = vec![Takes::AppliesAndHangs; OPERATIONS];
    script.extend([Takes::Waits; 2 * OPERATIONS]);
    let provider = Provider::new(&ledger.clock, script);
    let lab = Lab { ledger, provider };
    let first = lab.process();
    let calls = call_all(&first, tool);
    first.go_on();
    assert_eq!(lab.provider.requests(), OPERATIONS);
    drop((calls, first));
    lab.record_steps();

    let recoverers = [lab.process(), lab.process()];
    for round in 0.. {
        assert!(round < 120, "{:?}", lab.steps());
        if round == BEFORE_THE_LEASES_END {
            // Callers of the same keys wait in both, beside the workers.
            for recoverer in &recoverers {
                drop(call_all(recoverer, tool));
            }
        }
        // In turns, then at once.
        for _ in 0..20 {
            for recoverer in &recoverers {
                recoverer.stumble(1);
            }
        }
        thread::scope(|scope| {
            for recoverer in &recoverers {
                scope.spawn(|| recoverer.go_on());
            }
        });
        let steps = lab.steps();
        let done = |steps: &Vec<String>| steps.len() == expected.len();
        if steps.len() == OPERATIONS && steps.values().all(done) {
            break;
        }
        lab.provider.go_on.notify_waiters();
        lab.ledger.clock.advance(Duration::from_millis(500));
    }
    // Nobody settles anything a second time.
    for _ in 0..30 {
        lab.ledger.clock.advance(Duration::from_secs(1));
        for recoverer in &recoverers {
            recoverer.go_on();
        }
    }
    for steps in lab.steps().values() {
        assert_eq!(steps, expected);
    }
    assert_eq!(lab.provider.requests(), requests);
    assert_eq!(lab.provider.deployments(), OPERATIONS);
}

#[test]
fn each_operation_that_can_be_asked_about_is_settled_once() {
    check(BY_ASKING, &["outcome_unknown", "succeeded"], OPERATIONS);
}

#[test]
fn each_operation_that_is_sent_again_is_settled_once() {
    let steps = ["outcome_unknown", "attempting", "succeeded"];
    check(BY_KEY, &steps, 2 * OPERATIONS);
}

#[test]
fn each_operation_that_people_must_settle_is_given_up_once() {
    check(BY_HAND, &["outcome_unknown"], OPERATIONS);
}
