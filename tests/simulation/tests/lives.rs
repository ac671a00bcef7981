//! A few lives of the ledger's simulation, in this build; `tests/simulate` runs many.

use idempotent_tool_simulation::{Coverage, expect_planned_panics, life, run};

/// Of a seed that `tests/simulate` doesn't begin with.
const SEED: u64 = 54;

#[test]
fn every_answer_of_a_ledgers_life_is_one_that_the_promises_allow() {
    expect_planned_panics();
    let mut coverage = Coverage::default();
    for number in 0..4 {
        let broken = run(&life(SEED, number), &mut coverage);
        if let Some(broken) = broken {
            panic!(
                "life {number}, step {}: {}\ntests/simulate --seed {SEED} --life {number}",
                broken.step, broken.what
            );
        }
    }
    assert!(
        coverage
            .rarer_than(1, &["answer: replayed", "step: crash", "step: batch"])
            .is_empty()
    );
}
