//! What a durable call costs, beside what a user would write or pick instead.
//!
//! Run it with `tests/bench`, which builds it in release; `--help` tells the options.

mod bound;
mod canonical;
mod cases;
mod compile;
mod grown;
mod hand;
mod load;
mod ours;
mod peers;
mod replays;
mod report;
mod resources;
mod vfs;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use crate::{cases::Plan, load::Keys, report::Report};

const HELP: &str = "\
usage: tests/bench [options] [words]
  --quick        fewer and shorter rounds, under a minute; the hand-written side waits for
                 the lock for a quarter of a second, not for five
  --grown        also ledgers of up to 10 million receipts, and a minute of load
  --peers        also what a user could pick instead: durare, dbos, powertools, the article
  --json FILE    also write the table as JSON lines
  --rounds N     so many rounds of each side
  --seconds S    so long for each side in each round
  --counts       only count the instructions of one replay and one new call, and fail
                 if they are more than 5 % above the committed figures
  words          only the groups whose names contain one of them:
                 disk one random ordered many slow replay bytes canonical compile";

struct Options {
    plan: Plan,
    quick: bool,
    grown: bool,
    peers: bool,
    json: Option<PathBuf>,
    words: Vec<String>,
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "child") {
        return resources::child(&arguments.split_off(1));
    }
    let options = match parse(&arguments) {
        Ok(options) => options,
        Err(complaint) => {
            eprintln!("{complaint}\n{HELP}");
            return ExitCode::from(2);
        }
    };
    vfs::install();
    let mut report = Report::new(options.json.as_deref());
    run(&options, &mut report);
    report.finish();
    ExitCode::SUCCESS
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        plan: Plan {
            rounds: 5,
            time: Duration::from_millis(1500),
        },
        quick: false,
        grown: false,
        peers: false,
        json: None,
        words: Vec::new(),
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .ok_or_else(|| format!("`{argument}` needs a value"))
        };
        match argument.as_str() {
            "--quick" => {
                options.quick = true;
                hand::hurry();
                options.plan = Plan {
                    rounds: 3,
                    time: Duration::from_millis(250),
                };
            }
            "--grown" => options.grown = true,
            "--peers" => options.peers = true,
            "--json" => options.json = Some(value()?.into()),
            "--rounds" => {
                let rounds = value()?.parse();
                options.plan.rounds = rounds.map_err(|_| "`--rounds` needs a number")?;
            }
            "--seconds" => {
                let seconds = value()?.parse();
                let seconds = seconds.map_err(|_| "`--seconds` needs a number")?;
                options.plan.time = Duration::try_from_secs_f64(seconds)
                    .map_err(|_| "`--seconds` needs a positive number")?;
            }
            option if option.starts_with('-') => return Err(format!("unknown option `{option}`")),
            word => options.words.push(word.to_owned()),
        }
    }
    if options.plan.rounds == 0 {
        return Err("`--rounds` needs at least one".to_owned());
    }
    Ok(options)
}

fn run(options: &Options, report: &mut Report) {
    let plan = options.plan;
    let wanted = |group: &str| {
        options.words.is_empty()
            || options
                .words
                .iter()
                .any(|word| group.contains(word.as_str()))
    };
    if wanted("disk") {
        cases::disk(report);
    }
    if wanted("one") {
        cases::one_caller(plan, report);
    }
    if wanted("random") {
        cases::many_callers(plan, Keys::Random, report);
    }
    if wanted("ordered") {
        cases::many_callers(plan, Keys::Ordered, report);
    }
    if wanted("many") {
        cases::very_many_callers(plan, report);
    }
    if wanted("slow") {
        cases::slow_syncs(plan, 1, report);
        if !options.quick {
            cases::slow_syncs(plan, 5, report);
        }
    }
    if wanted("replay") {
        cases::replays(plan, report);
    }
    if wanted("bytes") {
        resources::bytes_per_receipt(if options.quick { 20_000 } else { 200_000 }, report);
    }
    if wanted("canonical") {
        canonical::run(plan, report);
    }
    if wanted("compile") && !options.quick {
        compile::run(report);
    }
    if options.grown {
        grown::run(plan, report);
    }
    if options.peers {
        peers::run(report);
    }
}
