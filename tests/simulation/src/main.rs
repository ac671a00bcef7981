//! Simulates ledgers; see `--help`.

use std::{process::ExitCode, time::Instant};

use idempotent_tool_simulation::{
    Coverage, Step, coverage::WANTED, expect_planned_panics, life, run, shrink,
};

const HELP: &str = "\
simulation [--seed N] [--steps N] [--enough N]
simulation --seed N --life N [--keep N,N,…]

  --seed N       the seed of all that is drawn, 1 if not given
  --steps N      how many steps that find something to do, 100000 if not given
  --enough N     fails unless each kind of step and of fault occurred as often
  --life N       one life of the seed alone
  --keep N,N,…   its steps with these numbers alone, as a failure prints them
  --without T;T  no steps whose text contains one of these";

struct Options {
    seed: u64,
    steps: u64,
    enough: u64,
    life: Option<u64>,
    keep: Option<Vec<usize>>,
    without: Vec<String>,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        seed: 1,
        steps: 100_000,
        enough: 0,
        life: None,
        keep: None,
        without: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or(HELP)?;
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| format!("{name} takes a number"))
        };
        match name.as_str() {
            "--seed" => options.seed = number()?,
            "--steps" => options.steps = number()?,
            "--enough" => options.enough = number()?,
            "--life" => options.life = Some(number()?),
            "--without" => options.without = value.split(';').map(ToOwned::to_owned).collect(),
            "--keep" => {
                let kept: Result<_, _> = value.split(',').map(str::parse).collect();
                options.keep = Some(kept.map_err(|_| "--keep takes numbers".to_owned())?);
            }
            _ => return Err(HELP.into()),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    match options().and_then(|options| simulate(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn simulate(options: &Options) -> Result<(), String> {
    expect_planned_panics();
    let began = Instant::now();
    let mut coverage = Coverage::default();
    let lives = match options.life {
        Some(life) => life..life + 1,
        None => 0..u64::MAX,
    };
    for number in lives {
        if options.life.is_none() && options.steps <= coverage.steps {
            break;
        }
        let is_wanted = |(number, step): &(usize, Step)| {
            let text = format!("{step:?}");
            options
                .keep
                .as_ref()
                .is_none_or(|keep| keep.contains(number))
                && !options
                    .without
                    .iter()
                    .any(|unwanted| text.contains(unwanted.as_str()))
        };
        let steps: Vec<_> = life(options.seed, number)
            .into_iter()
            .filter(is_wanted)
            .collect();
        if let Some(broken) = run(&steps, &mut coverage) {
            eprintln!("life {number}, step {}: {}", broken.step, broken.what);
            return Err(tell(options.seed, number, steps, &broken));
        }
    }
    for (name, count) in coverage.counts() {
        println!("{count:8} {name}");
    }
    println!(
        "{} steps, {} looks at all there is; {:.1?}",
        coverage.steps,
        coverage.audits,
        began.elapsed()
    );
    let rare = coverage.rarer_than(options.enough, WANTED);
    if rare.is_empty() {
        return Ok(());
    }
    Err(format!(
        "these occurred fewer than {} times: {}",
        options.enough,
        rare.join("; ")
    ))
}

/// What is left of a life that fails, and how to repeat it.
fn tell(
    seed: u64,
    life: u64,
    steps: Vec<(usize, Step)>,
    broken: &idempotent_tool_simulation::Broken,
) -> String {
    let (steps, said) = shrink(steps, broken);
    let mut told = format!("\nshrunk to {} steps: {said}\n\n", steps.len());
    let lines: Vec<_> = steps
        .iter()
        .map(|(number, step)| format!("{number:4} {step:?}"))
        .collect();
    told.push_str(&lines.join("\n"));
    let kept: Vec<_> = steps.iter().map(|(number, _)| number.to_string()).collect();
    told + &format!(
        "\ntests/simulate --seed {seed} --life {life} --keep {}",
        kept.join(",")
    )
}
