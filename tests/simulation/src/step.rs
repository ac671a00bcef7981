//! The steps of a life, and how they are chosen.

use serde_json::{Map, Value, json};

use crate::{
    random::Random,
    tools::{News, Takes},
};

/// How a transactional handler behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    Works,
    Fails,
    Panics,
    RollsBack,
    Lingers,
    Enqueues,
    EnqueuesAndFails,
}

/// A fault of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub how: How,
    pub at: At,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// It is not run.
    Failed,
    /// It is not run, and the transaction is gone.
    RolledBack,
    /// It is run, and the answer is lost.
    Lost,
    /// As that, and what it did can't be read.
    LostAndHidden,
    /// The disk is full.
    Full,
    FullAndRolledBack,
    FullAndHidden,
    Busy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Statement(u64),
    /// The first commit, and how many after it.
    Commit(u64),
}

/// Which call, of whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct What {
    pub tool: &'static str,
    pub tenant: u64,
    pub key: u64,
    /// Which arguments; the key's own are `key`.
    pub arguments: u64,
    /// How they are written.
    pub spelling: u64,
    /// The version of a typed call.
    pub typed: Option<u32>,
    pub does: Does,
}

impl What {
    /// Whether a number of its arguments is an integer that no double stands for.
    pub fn is_beyond_doubles(&self) -> bool {
        let arguments = payment(self.arguments, self.spelling);
        let mut numbers = arguments.values().filter_map(Value::as_i64);
        numbers.any(|number| number.unsigned_abs() > 1 << 53)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    Open {
        place: usize,
        kind: usize,
    },
    /// A process ends; in good order or not.
    Close {
        place: usize,
        orderly: bool,
    },
    /// All processes are killed, and leave their logs behind.
    Crash,
    Call {
        place: usize,
        what: What,
        fault: Option<Fault>,
        takes: Vec<Takes>,
    },
    /// Calls that share a commit.
    Batch {
        place: usize,
        whats: Vec<What>,
        fault: Option<Fault>,
    },
    /// A caller leaves after so many turns.
    Leave {
        place: usize,
        what: What,
        turns: u64,
    },
    Transact {
        place: usize,
        fails: bool,
        fault: Option<Fault>,
    },
    Prune {
        place: usize,
        limit: usize,
        fault: Option<Fault>,
    },
    Copy {
        place: usize,
    },
    RestoreStopped {
        copy: usize,
    },
    RestoreRunning {
        copy: usize,
    },
    /// An operator deletes a receipt, the newest ones first.
    Delete {
        which: usize,
    },
    /// An operator tries to delete what receipts refer to.
    DeleteNames {
        table: &'static str,
        which: usize,
    },
    Pass {
        milliseconds: u64,
    },
    Jump {
        milliseconds: i64,
    },
    SetRight,
    Deny {
        tenant: u64,
        version: u32,
        denies: bool,
    },
    // Of external operations.
    GoOn {
        place: usize,
    },
    Hear {
        which: usize,
        news: News,
    },
    Arrive {
        which: usize,
    },
    Get {
        place: usize,
        which: usize,
    },
    Cancel {
        place: usize,
        which: usize,
        fault: Option<Fault>,
    },
    Resolve {
        place: usize,
        which: usize,
        finding: usize,
        fault: Option<Fault>,
    },
    Mute {
        is_mute: bool,
    },
}

pub const PLACES: usize = 3;
pub const COPIES: usize = 3;
pub const HOUR: u64 = 3_600_000;
pub const DAY: u64 = 24 * HOUR;

const TENANTS: u64 = 5;

pub fn scope_of(tenant: u64) -> [String; 2] {
    // Scopes whose parts would be one text if they were joined.
    let name = ["a", "ab", "bob", "carol", "new"][usize::try_from(tenant.min(4)).unwrap_or(0)];
    match tenant {
        0 => ["a".into(), "bc".into()],
        1 => ["ab".into(), "c".into()],
        2..4 => [name.into(), "lab".into()],
        _ => [format!("new-{tenant}"), "lab".into()],
    }
}

pub fn key_of(key: u64) -> String {
    if key.is_multiple_of(2) {
        format!("key {key}")
    } else {
        format!("0190163d-8694-739b-8ab4-{key:012x}")
    }
}

const NUMBERS: [i64; 8] = [
    1,
    2,
    (1 << 53) - 1,
    1 << 53,
    (1 << 53) + 1,
    (1 << 53) + 2,
    -(1 << 53) - 1,
    i64::MAX,
];

/// The arguments of `pay` with this number, written in one of several ways.
pub fn payment(arguments: u64, spelling: u64) -> Map<String, Value> {
    let at = |shift: u64| usize::try_from((arguments >> shift) % 8).unwrap_or(0);
    let mut made = Map::new();
    let amount = NUMBERS[at(0)];
    #[allow(clippy::cast_precision_loss)]
    let amount = match spelling % 4 {
        1 if amount < 1 << 53 && -(1 << 53) < amount => json!(amount as f64),
        _ => json!(amount),
    };
    made.insert("amount".into(), amount);
    let exact = match at(3) {
        0 => (spelling & 4 != 0).then_some(Value::Null),
        1 => Some(if spelling & 4 == 0 {
            json!(7)
        } else {
            json!(7.0)
        }),
        2 => Some(json!(0.5)),
        3 => Some(json!(1_u64 << 53)),
        4 => Some(json!((1_u64 << 53) + 1)),
        5 => Some(json!(u64::MAX)),
        6 => Some(json!((1_u64 << 53) + 2)),
        _ => None,
    };
    if let Some(exact) = exact {
        made.insert("exact".into(), exact);
    }
    if spelling & 8 != 0 {
        made.insert(
            "ratio".into(),
            if spelling & 16 == 0 {
                json!(0)
            } else {
                json!(-0.0)
            },
        );
    } else if at(6) == 1 {
        made.insert("ratio".into(), json!(1.5));
    }
    if at(9) == 1 {
        made.insert("tag".into(), json!("blue"));
    } else if spelling & 32 != 0 {
        made.insert("tag".into(), Value::Null);
    }
    if at(12) == 1 {
        made.insert("currency".into(), json!("usd"));
    } else if spelling & 64 != 0 {
        made.insert("currency".into(), json!("eur"));
    }
    if at(15) == 1 {
        made.insert("colour".into(), json!("red"));
    }
    made
}

pub fn memo(arguments: u64) -> Map<String, Value> {
    let mut made = Map::new();
    made.insert("memo".into(), json!(format!("memo {arguments}")));
    made
}

/// The arguments that a key goes with.
pub fn own_arguments(key: u64) -> u64 {
    let mut random = Random::new(key, 7);
    // Most have neither a tag nor a currency, nor an unknown member.
    let mut arguments = random.below(1 << 9);
    if random.percent(15) {
        arguments |= 1 << 9;
    }
    if random.percent(10) {
        arguments |= 1 << 12;
    }
    arguments
}

pub fn life(seed: u64, life: u64, length: usize) -> Vec<Step> {
    let mut random = Random::new(seed, life);
    let mut steps = vec![Step::Open {
        place: 0,
        kind: random.index(3),
    }];
    while steps.len() < length {
        let so_far = steps.len() as u64;
        steps.push(step(&mut random, so_far));
    }
    steps
}

fn what(random: &mut Random, so_far: u64) -> What {
    let tool = random.pick(&["pay", "pay", "pay", "charge", "deploy", "letter"]);
    let newest = so_far / 12;
    let key = match random.below(10) {
        0 => random.below(newest + 4),
        _ => newest.saturating_sub(4) + random.below(6),
    };
    let tenant = match random.below(100) {
        0..6 => TENANTS + random.below(newest + 2),
        6..20 => random.below(TENANTS),
        _ => key % 3,
    };
    let own = own_arguments(key);
    let arguments = match random.below(12) {
        0 => own ^ (1 << random.below(9)),
        1 => own ^ (1 << (9 + 3 * random.below(3))),
        _ => own,
    };
    What {
        tool,
        tenant,
        key,
        arguments,
        spelling: if random.percent(40) {
            random.below(128)
        } else {
            0
        },
        typed: random
            .percent(12)
            .then(|| 1 + u32::from(random.percent(50))),
        does: match random.below(40) {
            0 | 1 => Does::Fails,
            2 | 3 => Does::Panics,
            4 | 5 => Does::RollsBack,
            6 => Does::Lingers,
            7..11 => Does::Enqueues,
            11 | 12 => Does::EnqueuesAndFails,
            _ => Does::Works,
        },
    }
}

fn fault(random: &mut Random, percent: u64) -> Option<Fault> {
    let how = random.pick(&[
        How::Failed,
        How::RolledBack,
        How::Lost,
        How::LostAndHidden,
        How::Full,
        How::FullAndRolledBack,
        How::FullAndHidden,
        How::Busy,
    ]);
    let at = if random.percent(55) {
        At::Commit(random.pick(&[1, 1, 2, 3, 4]))
    } else {
        At::Statement(1 + random.below(12))
    };
    random.percent(percent).then_some(Fault { how, at })
}

fn takes(random: &mut Random) -> Vec<Takes> {
    let several = random.below(3);
    (0..several)
        .map(|_| match random.below(20) {
            0..3 => Takes::AppliesSilently,
            3..6 => Takes::LosesIt,
            6 => Takes::Refuses,
            7..9 => Takes::IsAway,
            9 => Takes::AsksToWait(random.pick(&[1, 60, 600])),
            10..13 => Takes::Hangs,
            13 => Takes::AppliesAndPanics,
            14 => Takes::AppliesTwice,
            _ => Takes::Applies,
        })
        .collect()
}

#[allow(clippy::too_many_lines)]
fn step(random: &mut Random, so_far: u64) -> Step {
    let place = random.index(PLACES);
    let which = random.index(12);
    match random.below(1000) {
        0..30 => Step::Open {
            place,
            kind: random.index(4),
        },
        30..45 => Step::Close {
            place,
            orderly: random.percent(50),
        },
        45..52 => Step::Crash,
        52..560 => Step::Call {
            place,
            what: what(random, so_far),
            fault: fault(random, 22),
            takes: takes(random),
        },
        560..640 => {
            let several = 2 + random.below(2);
            let whats = (0..several)
                .map(|_| {
                    let mut what = what(random, so_far);
                    what.tool = "pay";
                    what.typed = None;
                    if random.percent(30) {
                        what.tenant = TENANTS + random.below(so_far + 2);
                    }
                    if random.percent(25) {
                        what.does = Does::RollsBack;
                    }
                    what
                })
                .collect();
            Step::Batch {
                place,
                whats,
                fault: fault(random, 50),
            }
        }
        640..660 => Step::Leave {
            place,
            what: what(random, so_far),
            turns: random.below(4),
        },
        660..685 => Step::Transact {
            place,
            fails: random.percent(30),
            fault: fault(random, 50),
        },
        685..715 => Step::Prune {
            place,
            limit: random.pick(&[1, 10, 1000]),
            fault: fault(random, 20),
        },
        715..725 => Step::Copy { place },
        725..730 => Step::RestoreStopped {
            copy: random.index(COPIES),
        },
        730..737 => Step::RestoreRunning {
            copy: random.index(COPIES),
        },
        737..743 => Step::Delete {
            which: random.index(3),
        },
        743..747 => Step::DeleteNames {
            table: random.pick(&["scopes", "tools"]),
            which: random.index(2),
        },
        747..780 => Step::Pass {
            milliseconds: match random.below(24) {
                0..10 => random.below(2_000),
                10..17 => random.below(120_000),
                17..21 => random.below(2 * HOUR),
                21 => random.below(2 * DAY),
                _ => random.below(10 * DAY),
            },
        },
        780..792 => {
            let by = random.pick(&[5 * 60_000, 2 * HOUR, 9 * DAY, 730 * DAY]);
            let by = i64::try_from(by).unwrap_or(0);
            Step::Jump {
                milliseconds: if random.percent(50) { by } else { -by },
            }
        }
        792..800 => Step::SetRight,
        800..812 => Step::Deny {
            tenant: random.below(TENANTS),
            version: 1 + u32::from(random.percent(50)),
            denies: random.percent(50),
        },
        812..860 => Step::GoOn { place },
        860..885 => Step::Hear {
            which,
            news: random.pick(&[
                News::Applied,
                News::Applied,
                News::Refused,
                News::NotApplied,
                News::Silence,
            ]),
        },
        885..890 => Step::Arrive { which },
        890..925 => Step::Get { place, which },
        925..955 => Step::Cancel {
            place,
            which,
            fault: fault(random, 20),
        },
        955..990 => Step::Resolve {
            place,
            which,
            finding: random.index(3),
            fault: fault(random, 20),
        },
        _ => Step::Mute {
            is_mute: random.percent(50),
        },
    }
}
