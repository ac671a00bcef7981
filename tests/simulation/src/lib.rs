//! A simulation of whole ledgers: processes on one file, faults, restores, clocks, and an
//! oracle that says after every step what each answer may be.
//!
//! A run is many lives. A life is a list of steps drawn from a seed, and takes place in one
//! thread on files of its own; each step runs to rest. A step that finds nothing to do does
//! nothing, so that a life that fails can be shrunk by taking steps away.

pub mod clock;
pub mod coverage;
pub mod oracle;
pub mod random;
pub mod step;
pub mod tools;
pub mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use coverage::Coverage;
pub use step::Step;

use oracle::Open;
use world::World;

/// What is open: named here, and closed by what mends it.
pub const OPEN: Open = Open {
    late_success: false,
    own_authorizer: false,
    exact_numbers: false,
    accepted_stays: false,
    guidance: false,
    provider_key: false,
    cancel_failed: false,
    going_back: false,
};

/// How many steps a life has.
pub const LIFE: usize = 400;

/// A promise that was broken.
#[derive(Debug)]
pub struct Broken {
    pub step: usize,
    pub what: String,
}

/// Takes steps in a new life; returns what broke.
#[must_use]
pub fn run(steps: &[(usize, Step)], coverage: &mut Coverage) -> Option<Broken> {
    let mut world = match World::new(OPEN) {
        Ok(world) => world,
        Err(what) => return Some(Broken { step: 0, what }),
    };
    let mut broken = None;
    for (number, step) in steps {
        let taken = catch_unwind(AssertUnwindSafe(|| world.take(*number, step)));
        let taken = taken.unwrap_or_else(|_| Err("a panic".into()));
        if let Err(what) = taken {
            broken = Some(Broken {
                step: *number,
                what,
            });
            break;
        }
    }
    if broken.is_none()
        && let Err(what) = world.audit()
    {
        broken = Some(Broken {
            step: steps.len(),
            what,
        });
    }
    coverage.merge(std::mem::take(&mut world.coverage));
    broken
}

/// Takes steps away as long as it fails in the same way.
pub fn shrink(mut steps: Vec<(usize, Step)>, first: &Broken) -> (Vec<(usize, Step)>, String) {
    // What follows the first number or name differs from one run to the next.
    let alike = |what: &str| {
        let end = what.find(|letter: char| letter.is_ascii_digit() || "{[".contains(letter));
        what[..end.unwrap_or(what.len()).min(40)].to_owned()
    };
    let wanted = alike(&first.what);
    let mut said = first.what.clone();
    steps.retain(|(number, _)| *number <= first.step);
    let mut chunk = steps.len() / 2;
    while 0 < chunk {
        let mut from = 0;
        while from < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(from..(from + chunk).min(steps.len()));
            match run(&fewer, &mut Coverage::default()) {
                Some(broken) if alike(&broken.what) == wanted => {
                    said = broken.what;
                    fewer.retain(|(number, _)| *number <= broken.step);
                    steps = fewer;
                }
                _ => from += chunk,
            }
        }
        chunk /= 2;
    }
    (steps, said)
}

/// The steps of a life, with their numbers.
#[must_use]
pub fn life(seed: u64, life: u64) -> Vec<(usize, Step)> {
    step::life(seed, life, LIFE)
        .into_iter()
        .enumerate()
        .collect()
}

/// Keeps the panics quiet that steps ask for.
pub fn expect_planned_panics() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<tools::Planned>() {
            others(info);
        }
    }));
}
