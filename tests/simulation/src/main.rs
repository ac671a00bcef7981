//! A simulation of whole ledgers: see `--help`.

mod clock;
mod coverage;
mod oracle;
mod random;
mod step;
mod tools;
mod world;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    time::Instant,
};

use coverage::Coverage;
use oracle::Open;
use step::Step;
use world::World;

const OPEN: Open = Open {
    late_success: true,
    own_authorizer: true,
    exact_numbers: true,
    accepted_stays: true,
    guidance: true,
    provider_key: true,
    cancel_failed: true,
    going_back: true,
};

const LIFE: usize = 400;

struct Broken {
    step: usize,
    what: String,
}

fn run(steps: &[(usize, Step)], coverage: &mut Coverage) -> Option<Broken> {
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
fn shrink(mut steps: Vec<(usize, Step)>, first: &Broken) -> (Vec<(usize, Step)>, String) {
    let alike = |what: &str| {
        what.lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(40)
            .collect::<String>()
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

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|info| {
        if !info.payload().is::<tools::Planned>() {
            eprintln!("{info}");
        }
    }));
    let mut seed = 1;
    let mut count = 100_000;
    let mut only = None;
    let mut keep: Option<Vec<usize>> = None;
    let mut without: Vec<String> = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().unwrap_or_default();
        match name.as_str() {
            "--seed" => seed = value.parse().unwrap_or(1),
            "--steps" => count = value.parse().unwrap_or(count),
            "--life" => only = value.parse().ok(),
            "--without" => without = value.split(';').map(ToOwned::to_owned).collect(),
            "--keep" => {
                keep = Some(
                    value
                        .split(',')
                        .filter_map(|one| one.parse().ok())
                        .collect(),
                )
            }
            _ => {
                eprintln!(
                    "simulation --seed N --steps N [--life N [--keep N,N,…]] [--without Step,…]"
                );
                return ExitCode::FAILURE;
            }
        }
    }
    let began = Instant::now();
    let mut coverage = Coverage::default();
    let lives = match only {
        Some(life) => life..life + 1,
        None => 0..(count / LIFE as u64).max(1),
    };
    for life in lives {
        let steps: Vec<_> = step::life(seed, life, LIFE)
            .into_iter()
            .enumerate()
            .collect();
        let steps: Vec<_> = match &keep {
            Some(keep) => steps
                .into_iter()
                .filter(|(number, _)| keep.contains(number))
                .collect(),
            None => steps,
        };
        let is_wanted = |step: &Step| {
            let name = format!("{step:?}");
            !without
                .iter()
                .any(|unwanted| name.contains(unwanted.as_str()))
        };
        let steps: Vec<_> = steps
            .into_iter()
            .filter(|(_, step)| is_wanted(step))
            .collect();
        if let Some(broken) = run(&steps, &mut coverage) {
            eprintln!("life {life}, step {}: {}", broken.step, broken.what);
            let (steps, said) = if keep.is_some() {
                (steps, broken.what)
            } else {
                shrink(steps, &broken)
            };
            eprintln!("\nshrunk to {} steps: {said}\n", steps.len());
            for (number, step) in &steps {
                eprintln!("{number:4} {step:?}");
            }
            let kept: Vec<_> = steps.iter().map(|(number, _)| number.to_string()).collect();
            eprintln!(
                "\nsimulation --seed {seed} --life {life} --keep {}",
                kept.join(",")
            );
            return ExitCode::FAILURE;
        }
    }
    for (name, count) in coverage.counts() {
        println!("{count:8} {name}");
    }
    println!("{} audits, {:?}", coverage.audits, began.elapsed());
    ExitCode::SUCCESS
}
