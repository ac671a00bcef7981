//! Callers that call for a while, and what that came to.

use std::{
    fs,
    path::Path,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use uuid::Uuid;

/// What kind of idempotency keys the callers make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// UUIDs of version 4.
    Random,
    /// UUIDs of version 7: later ones sort after earlier ones.
    Ordered,
}

impl Keys {
    pub(crate) fn next(self) -> String {
        self.uuid().to_string()
    }

    pub(crate) fn uuid(self) -> Uuid {
        match self {
            Self::Random => Uuid::new_v4(),
            Self::Ordered => Uuid::now_v7(),
        }
    }
}

/// How many callers, with what keys, for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub callers: usize,
    pub keys: Keys,
    pub time: Duration,
}

/// What a load came to.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub calls: u64,
    /// Calls that ended within the time of the load, and that time.
    pub timely: u64,
    pub time: Duration,
    /// Sorted, in nanoseconds.
    pub latencies: Vec<u64>,
    /// Calls of the caller that was served least, and of the one that was served most.
    pub poorest: u64,
    pub richest: u64,
    /// What a caller had to try again.
    pub repeated: u64,
    /// Processor time of the whole process.
    pub cpu: Duration,
}

/// What one caller did.
#[derive(Debug, Default)]
pub(crate) struct Served {
    latencies: Vec<u64>,
    late: u64,
    repeated: u64,
}

impl Served {
    /// Notes a call that began at `began` and ends now, which is late if the load is over.
    pub(crate) fn note(&mut self, began: Instant, repeated: u64, stop: &AtomicBool) {
        self.latencies
            .push(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        self.late += u64::from(stop.load(Ordering::Relaxed));
        self.repeated += repeated;
    }
}

impl Measured {
    pub(crate) fn from_served(served: Vec<Served>, time: Duration, cpu: Duration) -> Self {
        let counts = || served.iter().map(|served| served.latencies.len() as u64);
        let calls: u64 = counts().sum();
        let mut measured = Self {
            calls,
            timely: calls - served.iter().map(|served| served.late).sum::<u64>(),
            time,
            poorest: counts().min().unwrap_or(0),
            richest: counts().max().unwrap_or(0),
            repeated: served.iter().map(|served| served.repeated).sum(),
            cpu,
            latencies: Vec::new(),
        };
        measured.latencies = served
            .into_iter()
            .flat_map(|served| served.latencies)
            .collect();
        measured.latencies.sort_unstable();
        measured
    }

    pub(crate) fn per_second(&self) -> f64 {
        // None at all says no more than fewer than one.
        self.timely.max(1) as f64 / self.time.as_secs_f64()
    }

    /// The latency in microseconds that so many thousandths of the calls stay within.
    pub(crate) fn permille(&self, permille: usize) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let place = (self.latencies.len() * permille / 1000).min(last);
        self.latencies
            .get(place)
            .map_or(0.0, |latency| *latency as f64 / 1e3)
    }

    pub(crate) fn longest_to_median(&self) -> f64 {
        self.permille(1000) / self.permille(500)
    }

    pub(crate) fn cpu_per_call_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.calls as f64
    }
}

/// Runs `callers` threads. Each has a caller of its own from `make`, which makes one call
/// and says how often it had to be repeated.
pub(crate) fn threads<C>(load: Load, make: impl Fn(usize) -> C + Sync) -> Measured
where
    C: FnMut() -> u64,
{
    let stop = AtomicBool::new(false);
    let ready = Barrier::new(load.callers + 1);
    thread::scope(|scope| {
        let callers: Vec<_> = (0..load.callers)
            .map(|number| {
                let (stop, ready, make) = (&stop, &ready, &make);
                scope.spawn(move || {
                    let mut call = make(number);
                    let mut served = Served::default();
                    ready.wait();
                    while !stop.load(Ordering::Relaxed) {
                        let began = Instant::now();
                        let repeated = call();
                        served.note(began, repeated, stop);
                    }
                    served
                })
            })
            .collect();
        ready.wait();
        let (began, cpu) = (Instant::now(), process_time());
        thread::sleep(load.time);
        stop.store(true, Ordering::Relaxed);
        let time = began.elapsed();
        let served: Vec<_> = callers
            .into_iter()
            .map(|caller| caller.join().expect("a caller panicked"))
            .collect();
        Measured::from_served(served, time, process_time().saturating_sub(cpu))
    })
}

/// Runs `callers` tasks on a runtime with two threads.
pub(crate) fn tasks<C>(load: Load, make: impl Fn(usize) -> C) -> Measured
where
    C: AsyncCaller,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime");
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    runtime.block_on(async {
        let (began, cpu) = (Instant::now(), process_time());
        let callers: Vec<_> = (0..load.callers)
            .map(|number| {
                let stop = std::sync::Arc::clone(&stop);
                let mut caller = make(number);
                tokio::spawn(async move {
                    let mut served = Served::default();
                    while !stop.load(Ordering::Relaxed) {
                        let began = Instant::now();
                        caller.call().await;
                        served.note(began, 0, &stop);
                    }
                    served
                })
            })
            .collect();
        tokio::time::sleep(load.time).await;
        stop.store(true, Ordering::Relaxed);
        let time = began.elapsed();
        let mut served = Vec::new();
        for caller in callers {
            served.push(caller.await.expect("a caller panicked"));
        }
        Measured::from_served(served, time, process_time().saturating_sub(cpu))
    })
}

/// A caller in a task.
pub(crate) trait AsyncCaller: Send + 'static {
    fn call(&mut self) -> impl Future<Output = ()> + Send;
}

/// Processor time of this process so far.
pub(crate) fn process_time() -> Duration {
    // Clock ticks of 10 ms: fields 14 and 15, after a name in parentheses.
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 10)
}

/// The length of a file; zero if there is none.
pub(crate) fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}
