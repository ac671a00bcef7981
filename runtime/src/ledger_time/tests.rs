//! The time of a ledger against a model: a machine, two processes, one file, and what really
//! passed.

use proptest::prelude::*;

use super::*;

const START: i64 = 1_800_000_000_000;
const SECOND: i64 = 1_000;
const DAY: i64 = 86_400 * SECOND;
const YEAR: i64 = 365 * DAY;

/// How long a step of the model lasts at most: processes look far more often than the
/// [`MARGIN`] ends.
const LONGEST_PASS: i64 = 15 * SECOND;

fn boot(number: u8) -> BootId {
    BootId::from_bytes([number; 16])
}

/// A machine, the file on its disk, and what its processes know.
#[derive(Debug)]
struct World {
    /// Whether processes know that they read one monotonic clock.
    tells_boots: bool,
    boots: u8,
    monotonic: i64,
    /// Each process has a wall clock of its own.
    walls: [i64; 2],
    file: Option<Pair>,
    processes: [Option<LedgerTime>; 2],
    /// What the ledger's time is, if everything is counted that really passes.
    truth: i64,
    /// For how long nothing ran.
    down: i64,
    /// How many openings had the wall clock alone to go by.
    believed: i64,
}

impl World {
    fn new(tells_boots: bool) -> Self {
        let mut world = Self {
            tells_boots,
            boots: 0,
            monotonic: 40 * SECOND,
            walls: [START; 2],
            file: None,
            processes: [None, None],
            truth: START,
            down: 0,
            believed: 0,
        };
        world.file = Some(Pair::beginning(&world.reading(0)));
        world
    }

    fn reading(&self, which: usize) -> Reading {
        Reading {
            wall: Timestamp(self.walls[which]),
            monotonic: self.monotonic,
            boot: self.tells_boots.then(|| boot(self.boots)),
        }
    }

    fn lives(&self) -> bool {
        self.processes.iter().any(Option::is_some)
    }

    fn open(&mut self, which: usize) {
        let reading = self.reading(which);
        if let Some(file) = self.file.filter(|_| self.processes[which].is_none()) {
            self.believed += i64::from(!file.reckoned(&reading).1);
            self.processes[which] = Some(LedgerTime::open(Some(file), &reading));
        }
    }

    fn on(&mut self, which: usize, occasion: Occasion) {
        let reading = self.reading(which);
        let Some(process) = &mut self.processes[which] else {
            return;
        };
        if occasion != Occasion::Commit {
            process.meet(self.file, &reading);
        }
        if process.is_due(&reading, occasion) {
            process.meet(self.file, &reading);
            self.file = Some(process.write(&reading));
            process.committed();
        }
    }

    /// A commit that is rolled back, or one whose answer is lost though it happened.
    fn fail(&mut self, which: usize, happened: bool) {
        let reading = self.reading(which);
        if let Some(process) = &mut self.processes[which] {
            process.meet(self.file, &reading);
            let pair = process.write(&reading);
            if happened {
                self.file = Some(pair);
            }
        }
    }

    fn heal(&mut self, which: usize) {
        let reading = self.reading(which);
        if let Some(process) = &mut self.processes[which] {
            process.meet(self.file, &reading);
            self.file = Some(process.reset_wall(&reading));
            process.committed();
        }
    }

    fn pass(&mut self, milliseconds: i64) {
        self.monotonic += milliseconds;
        for wall in &mut self.walls {
            *wall += milliseconds;
        }
        self.truth += milliseconds;
        if !self.lives() {
            self.down += milliseconds;
        }
    }

    /// The power fails, and comes back after a while.
    fn reboot(&mut self, down: i64) {
        self.processes = [None, None];
        self.pass(down);
        self.boots += 1;
        self.monotonic = SECOND;
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Open(which) => self.open(which),
            Step::Close(which) => {
                self.on(which, Occasion::Close);
                self.processes[which] = None;
            }
            Step::Crash(which) => self.processes[which] = None,
            Step::Commit(which) => self.on(which, Occasion::Commit),
            Step::Fail(which, happened) => self.fail(which, happened),
            // It would be counted when a clock that is ahead comes back.
            Step::Heal(which) if self.walls[0] == self.walls[1] => self.heal(which),
            Step::Pass(milliseconds) if self.lives() => {
                for _ in 0..=milliseconds / LONGEST_PASS {
                    self.pass(milliseconds.min(LONGEST_PASS));
                    self.look();
                }
            }
            Step::Pass(milliseconds) => self.pass(milliseconds),
            // A jump while nothing runs can't be told from time that passed, nor one of a
            // clock of its own that nobody who runs reads.
            Step::Jump(by) if self.lives() => {
                let is_one = self.walls[0] == self.walls[1];
                for (wall, process) in self.walls.iter_mut().zip(&self.processes) {
                    if is_one || process.is_some() {
                        *wall += by;
                    }
                }
            }
            Step::JumpOf(which, by) if self.processes[which].is_some() => self.walls[which] += by,
            Step::Heal(_) | Step::Jump(_) | Step::JumpOf(..) => (),
            Step::OpenWrong(which, by) => {
                if self.processes[which].is_none() && self.lives() {
                    self.walls[which] += by;
                    self.open(which);
                }
            }
            Step::Reboot(down) => self.reboot(down),
        }
        self.look();
        self.check();
    }

    /// Two seconds or three, in which nothing else happens.
    fn look(&mut self) {
        for which in [0, 1, 0, 1] {
            self.on(which, Occasion::Look);
        }
    }

    fn check_exactly(&self) {
        for (which, process) in self.processes.iter().enumerate() {
            if let Some(process) = process {
                assert_eq!(process.now(&self.reading(which)).0, self.truth);
            }
        }
    }

    /// No process buries or frees anything before its time.
    fn check(&mut self) {
        for which in [0, 1] {
            let reading = self.reading(which);
            let Some(process) = &mut self.processes[which] else {
                continue;
            };
            process.meet(self.file, &reading);
            if process.is_on_trial(&reading) {
                continue;
            }
            let now = process.now(&reading).0;
            assert!(
                now <= self.truth + self.believed * AHEAD,
                "{} ms too much after {} openings",
                now - self.truth,
                self.believed
            );
            if self.tells_boots {
                let lost = self.down + self.believed * BEHIND;
                assert!(self.truth - lost <= now, "{} ms lost", self.truth - now);
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Open(usize),
    Close(usize),
    Crash(usize),
    Commit(usize),
    Fail(usize, bool),
    Heal(usize),
    Pass(i64),
    Jump(i64),
    JumpOf(usize, i64),
    /// A process starts beside the other, with a wall clock that was set meanwhile.
    OpenWrong(usize, i64),
    Reboot(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = 0..2_usize;
    let jump = prop_oneof![
        -10 * YEAR..10 * YEAR,
        -2 * DAY..2 * DAY,
        -90 * SECOND..90 * SECOND,
        -AHEAD..AHEAD,
        -20..20_i64,
    ];
    let step = prop_oneof![
        4 => which.clone().prop_map(Step::Open),
        1 => which.clone().prop_map(Step::Close),
        1 => which.clone().prop_map(Step::Crash),
        4 => which.clone().prop_map(Step::Commit),
        1 => (which.clone(), any::<bool>()).prop_map(|(which, kept)| Step::Fail(which, kept)),
        1 => which.clone().prop_map(Step::Heal),
        4 => prop_oneof![0..2 * SECOND, 0..90 * SECOND, 0..1_800 * SECOND].prop_map(Step::Pass),
        3 => jump.clone().prop_map(Step::Jump),
        1 => (which.clone(), jump.clone()).prop_map(|(which, by)| Step::JumpOf(which, by)),
        1 => (which, jump).prop_map(|(which, by)| Step::OpenWrong(which, by)),
        1 => prop_oneof![0..90 * SECOND, 0..30 * DAY].prop_map(Step::Reboot),
    ];
    prop::collection::vec(step, 1..60)
}

fn run(tells_boots: bool, steps: Vec<Step>) -> World {
    let mut world = World::new(tells_boots);
    world.open(0);
    for step in steps {
        world.step(step);
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_jump_that_a_process_lives_through_is_counted(steps in steps()) {
        run(true, steps);
    }

    #[test]
    fn nor_where_nothing_tells_one_start_of_the_machine_from_another(steps in steps()) {
        run(false, steps);
    }

    /// Without a start of the machine in between, nothing at all is believed to a wall clock.
    #[test]
    fn until_the_machine_starts_anew_the_time_is_exact(steps in steps()) {
        let mut world = World::new(true);
        for step in steps {
            match step {
                // While nothing runs too.
                Step::Jump(by) => world.walls.iter_mut().for_each(|wall| *wall += by),
                Step::Reboot(down) => world.pass(down),
                step => world.step(step),
            }
            world.check_exactly();
        }
    }

    /// Clocks that are right lose nothing, whatever crashes.
    #[test]
    fn beside_a_right_wall_clock_the_time_is_exact(
        steps in steps(),
        tells_boots in any::<bool>(),
    ) {
        let mut world = World::new(tells_boots);
        for step in steps {
            if !matches!(step, Step::Jump(_) | Step::JumpOf(..) | Step::OpenWrong(..)) {
                world.step(step);
            }
            world.check_exactly();
        }
    }
}

fn at(wall: i64, monotonic: i64, boot: Option<BootId>) -> Reading {
    Reading {
        wall: Timestamp(wall),
        monotonic,
        boot,
    }
}

/// A process that opened a ledger that begins with it.
fn fresh(reading: &Reading) -> LedgerTime {
    LedgerTime::open(Some(Pair::beginning(reading)), reading)
}

#[test]
fn an_idle_look_writes_nothing_unless_the_clocks_drift_apart() {
    let opened = at(START, 0, Some(boot(1)));
    let is_due = |drift: i64, passed: i64| {
        let reading = at(START + passed + drift, passed, Some(boot(1)));
        fresh(&opened).is_due(&reading, Occasion::Look)
    };
    for passed in [0, SECOND, DAY, YEAR] {
        for drift in [0, -SECOND, AHEAD, -AHEAD, -59 * SECOND, -61 * SECOND] {
            assert!(!is_due(drift, passed), "{drift} ms after {passed} ms");
        }
        for drift in [AHEAD + 1, 59 * SECOND, 61 * SECOND, YEAR] {
            assert!(is_due(drift, passed), "{drift} ms after {passed} ms");
        }
    }
    // Behind, it is what has passed meanwhile that an opening would not count.
    assert!(is_due(-YEAR, BEHIND + 1) && !is_due(-YEAR, BEHIND));
}

#[test]
fn a_commit_writes_the_pair_once_a_minute() {
    let mut time = fresh(&at(START, 0, None));
    let minute = milliseconds(MARGIN);
    for passed in [minute, 2 * minute] {
        let early = at(START + passed - 1, passed - 1, None);
        assert!(!time.is_due(&early, Occasion::Commit));
        let reading = at(START + passed, passed, None);
        assert!(time.is_due(&reading, Occasion::Commit));
        let pair = time.write(&reading);
        assert_eq!((pair.ledger, pair.wall), (reading.wall, reading.wall));
        assert!(time.is_due(&reading, Occasion::Commit), "not yet committed");
        time.committed();
    }
}

#[test]
fn a_close_records_a_drift_that_a_look_leaves() {
    let time = fresh(&at(START, 0, None));
    let drifted = at(START + 2 * SECOND, 0, None);
    assert!(!time.is_due(&drifted, Occasion::Look));
    assert!(time.is_due(&drifted, Occasion::Close));
    assert!(!time.is_due(&at(START + DAY, DAY, None), Occasion::Close));
}

#[test]
fn an_opening_that_believes_the_wall_clock_is_on_trial_for_a_minute() {
    let pair = Pair::beginning(&at(START, 5, Some(boot(1))));
    let later = |boot| at(START + YEAR, 10, boot);
    for boot in [None, Some(boot(2))] {
        let mut time = LedgerTime::open(Some(pair), &later(boot));
        assert_eq!(time.now(&later(boot)).0, START + YEAR);
        assert!(time.is_due(&later(boot), Occasion::Look));
        let minute = milliseconds(MARGIN);
        assert!(time.is_on_trial(&at(START + YEAR, 10 + minute - 1, boot)));
        assert!(!time.is_on_trial(&at(START + YEAR, 10 + minute, boot)));
        assert!(!time.is_on_trial(&later(boot)), "it ends once");
    }
    let mut certain = LedgerTime::open(Some(pair), &later(Some(boot(1))));
    assert_eq!(certain.now(&later(Some(boot(1)))).0, START + 5);
    assert!(!certain.is_on_trial(&later(Some(boot(1)))));
}

#[test]
fn of_two_processes_the_one_that_is_behind_is_right() {
    let right = at(START, 0, None);
    let ahead = at(START + YEAR, 0, None);
    let file = Pair::beginning(&right);
    let mut first = LedgerTime::open(Some(file), &right);
    let mut second = LedgerTime::open(Some(file), &ahead);
    let file = second.write(&ahead);
    second.committed();
    first.meet(Some(file), &right);
    assert_eq!(first.now(&right).0, START);
    assert!(first.is_due(&right, Occasion::Look), "it is written back");
    let file = first.write(&right);
    first.committed();
    assert_eq!((file.ledger.0, file.wall.0), (START, START + YEAR));
    second.meet(Some(file), &ahead);
    assert_eq!(second.now(&ahead).0, START);
    assert!(!second.is_due(&ahead, Occasion::Look), "they agree");
}

#[test]
fn a_reset_is_undone_by_no_process_whose_clock_is_right() {
    let opened = at(START, 0, None);
    let mut other = fresh(&opened);
    let wrong = at(START + YEAR, SECOND, None);
    let file = other.write(&wrong);
    other.committed();
    assert_eq!(file.wall.0, START + YEAR);
    let right = at(START + 2 * SECOND, 2 * SECOND, None);
    let mut healer = LedgerTime::open(Some(file), &right);
    let file = healer.reset_wall(&right);
    assert_eq!((file.ledger.0, file.wall.0), (START + SECOND, right.wall.0));
    let later = at(START + 70 * SECOND, 70 * SECOND, None);
    other.meet(Some(file), &later);
    assert_eq!(other.write(&later).wall, later.wall);
    // Time in which nothing runs counts again.
    let down = at(START + DAY, 0, None);
    let time = LedgerTime::open(Some(other.write(&later)), &down);
    assert!(START + DAY - 3 * SECOND < time.now(&down).0);
}

#[test]
fn a_jump_is_told_of_once() {
    let opened = at(START, 0, None);
    let mut time = fresh(&opened);
    let minute = milliseconds(MARGIN);
    for (drift, told) in [(minute, None), (YEAR, Some(YEAR)), (YEAR + SECOND, None)] {
        assert_eq!(
            time.jump(&at(START + DAY + drift, DAY, None)),
            told,
            "{drift}"
        );
    }
    time.write(&at(START + YEAR + DAY, DAY, None));
    time.committed();
    assert_eq!(
        time.jump(&at(START + YEAR + DAY, DAY, None)),
        None,
        "counted"
    );
    let right = at(START + 2 * DAY, 2 * DAY, None);
    assert_eq!(time.jump(&right), Some(-YEAR));
    assert_eq!(time.jump(&right), None);
}
