//! The cases that compare throughput, each side by side in interleaved rounds.

use std::{path::Path, time::Duration};

use crate::{
    bound,
    hand::{self, Layout},
    load::{Keys, Load, Measured},
    ours, replays,
    report::{Asked, Report, Row},
    vfs,
};

/// How long and how often each side runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub rounds: usize,
    pub time: Duration,
}

/// What runs on a side, in a new folder each time.
pub(crate) type Side<'a> = &'a dyn Fn(&Path) -> Measured;

impl Plan {
    /// Runs the sides in turn, round after round, each round in another order; returns
    /// each side's runs.
    pub(crate) fn interleave<const N: usize>(self, sides: [Side<'_>; N]) -> [Vec<Measured>; N] {
        let mut runs = [const { Vec::new() }; N];
        for round in 0..self.rounds {
            for turn in 0..N {
                let side = (round + turn) % N;
                let folder = tempfile::tempdir().expect("a folder");
                runs[side].push(sides[side](&folder.path().join("bench.sqlite3")));
            }
        }
        runs
    }

    pub(crate) fn load(self, callers: usize, keys: Keys) -> Load {
        Load {
            callers,
            keys,
            time: self.time,
        }
    }
}

const HAND: &str = "hand-written";
const HAND_TUNED: &str = "hand-written, our layout and settings";
const PLAIN: &str = "grouped plain insert";

pub(crate) fn one_caller(plan: Plan, report: &mut Report) {
    let load = plan.load(1, Keys::Random);
    let [blocking, tasks, hand, tuned] = plan.interleave([
        &|path| ours::new_keys_blocking(path, load),
        &|path| ours::new_keys(path, load),
        &|path| hand::new_keys(path, Layout::Article, load),
        &|path| hand::new_keys(path, Layout::Ours, load),
    ]);
    let row = |case: &str, against, asked, ours: &[Measured], other: &[Measured]| {
        Row::throughput(case, 1, against, asked, ours, other)
    };
    report.row(row(
        "new call_blocking",
        HAND,
        Asked::AtLeast(0.9),
        &blocking,
        &hand,
    ));
    report.row(row("new call", HAND, Asked::AtLeast(0.8), &tasks, &hand));
    report.row(row(
        "new call_blocking (tuned)",
        HAND_TUNED,
        Asked::Stated,
        &blocking,
        &tuned,
    ));
    report.row(row(
        "new call (tuned)",
        HAND_TUNED,
        Asked::Stated,
        &tasks,
        &tuned,
    ));
}

/// Many callers with new keys of one kind, against the hand-written side and the bound.
pub(crate) fn many_callers(plan: Plan, keys: Keys, report: &mut Report) {
    let callers = 64;
    let load = plan.load(callers, keys);
    let [tasks, blocking, hand, tuned, bound] = plan.interleave([
        &|path| ours::new_keys(path, load),
        &|path| ours::new_keys_blocking(path, load),
        &|path| hand::new_keys(path, Layout::Article, load),
        &|path| hand::new_keys(path, Layout::Ours, load),
        &|path| bound::insert_from_tasks(path, load),
    ]);
    let (name, least, of_bound) = match keys {
        Keys::Random => ("new random", 3.5, 0.4),
        Keys::Ordered => ("new ordered", 6.0, 0.6),
    };
    let row = |case: String, against, asked, ours: &[Measured], other: &[Measured]| {
        Row::throughput(case, callers, against, asked, ours, other)
    };
    report.row(row(name.into(), HAND, Asked::AtLeast(least), &tasks, &hand));
    report.row(row(
        format!("{name} (tuned)"),
        HAND_TUNED,
        Asked::Stated,
        &tasks,
        &tuned,
    ));
    report.row(row(
        format!("{name} call_blocking"),
        HAND,
        Asked::Stated,
        &blocking,
        &hand,
    ));
    report.row(row(
        format!("{name} against grouped plain insert"),
        PLAIN,
        Asked::AtLeast(of_bound),
        &tasks,
        &bound,
    ));
    let waits = |side: &[Measured]| side.iter().map(Measured::longest_to_median).collect();
    let fairness = |side: &[Measured]| {
        side.iter()
            .map(|run| run.poorest as f64 / run.richest as f64)
            .collect::<Vec<_>>()
    };
    let hand_waits: Vec<f64> = waits(&hand);
    let repeated: u64 = hand.iter().map(|run| run.repeated).sum();
    report.row(
        Row::figure(
            format!("longest wait, {name}"),
            callers,
            "times the median",
            Asked::AtMost(15.0),
            waits(&tasks),
            &hand_waits,
            HAND,
        )
        .with_note(format!("({repeated} BUSY errors there)")),
    );
    report.row(Row::figure(
        format!("longest wait, {name} call_blocking"),
        callers,
        "times the median",
        Asked::AtMost(15.0),
        waits(&blocking),
        &hand_waits,
        HAND,
    ));
    report.row(Row::figure(
        format!("poorest to richest caller, {name}"),
        callers,
        "of the richest",
        Asked::AtLeast(0.8),
        fairness(&tasks),
        &fairness(&hand),
        HAND,
    ));
    report.row(Row::figure(
        format!("poorest to richest caller, {name} call_blocking"),
        callers,
        "of the richest",
        Asked::AtLeast(0.8),
        fairness(&blocking),
        &fairness(&hand),
        HAND,
    ));
}

pub(crate) fn very_many_callers(plan: Plan, report: &mut Report) {
    let load = plan.load(256, Keys::Ordered);
    let [ours, hand] = plan.interleave([&|path| ours::new_keys(path, load), &|path| {
        hand::new_keys(path, Layout::Article, load)
    }]);
    report.row(Row::throughput(
        "new ordered",
        256,
        HAND,
        Asked::AtLeast(6.5),
        &ours,
        &hand,
    ));
}

/// The same on a disk whose syncs take longer.
pub(crate) fn slow_syncs(plan: Plan, delay_ms: u64, report: &mut Report) {
    vfs::delay_syncs(Duration::from_millis(delay_ms));
    for (keys, name) in [(Keys::Random, "random"), (Keys::Ordered, "ordered")] {
        let load = plan.load(64, keys);
        let [ours, hand] = plan.interleave([&|path| ours::new_keys(path, load), &|path| {
            hand::new_keys(path, Layout::Article, load)
        }]);
        let asked = if delay_ms == 1 {
            Asked::AtLeast(20.0)
        } else {
            Asked::Stated
        };
        let case = format!("new {name} {delay_ms} ms sync");
        report.row(Row::throughput(case, 64, HAND, asked, &ours, &hand));
    }
    vfs::delay_syncs(Duration::ZERO);
}

pub(crate) fn replays(plan: Plan, report: &mut Report) {
    let load = plan.load(1, Keys::Random);
    let [ours, tasks, bare] = plan.interleave([
        &|path| replays::ours_blocking(path, load),
        &|path| replays::ours(path, load),
        &|path| replays::bare(path, load),
    ]);
    let against = "bare cached SELECT and JSON validation";
    report.row(Row::throughput(
        "replay",
        1,
        against,
        Asked::AtLeast(0.9),
        &ours,
        &bare,
    ));
    report.row(Row::throughput(
        "replay call",
        1,
        against,
        Asked::Stated,
        &tasks,
        &bare,
    ));
    let load = plan.load(8, Keys::Random);
    let [ours, hand] = plan
        .interleave([&|path| replays::ours_under_writers(path, load), &|path| {
            replays::locked_under_writers(path, load)
        }]);
    let against = "hand-written look-up in BEGIN IMMEDIATE";
    report.row(Row::throughput(
        "replay under writers",
        8,
        against,
        Asked::AtLeast(3.0),
        &ours,
        &hand,
    ));
}

/// What a sync costs here.
pub(crate) fn disk(report: &mut Report) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sync");
    let mut took: Vec<f64> = (0..200).map(|_| sync_once(&path)).collect();
    took.sort_by(f64::total_cmp);
    let median = took[took.len() / 2];
    report.row(
        Row::figure(
            "sync of the disk",
            1,
            "us",
            Asked::Stated,
            vec![median],
            &[f64::NAN],
            "",
        )
        .with_note(format!(
            "us for 4 KiB and fdatasync; p99 {:.0} us",
            took[took.len() * 99 / 100]
        )),
    );
}

fn sync_once(path: &Path) -> f64 {
    use std::{fs::OpenOptions, io::Write as _, time::Instant};
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .expect("a file");
    file.write_all(&[7; 4096]).expect("a page");
    let began = Instant::now();
    file.sync_data().expect("a sync");
    began.elapsed().as_secs_f64() * 1e6
}
