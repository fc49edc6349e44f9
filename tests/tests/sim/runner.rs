//! Running seeds: each on a runtime of its own with a clock of its own, two threads at a time.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use super::coverage::{self, Counts};
use super::history::{Told, history};
use super::phase;

/// Threads that run seeds.
pub const THREADS: usize = 2;

thread_local! {
    /// Whether panics of this thread are told by the runner alone.
    static QUIET: Cell<bool> = const { Cell::new(false) };
    /// Where the last of them was.
    static WHERE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// What many seeds came to.
#[derive(Default)]
pub struct Run {
    pub seeds: u64,
    pub events: u64,
    pub misfortunes: u64,
    pub fewest_events: u64,
    pub fewest_misfortunes: u64,
    pub faults: Counts,
    pub rows: Counts,
    /// Seed and why.
    pub failed: Vec<(u64, String)>,
}

/// A number from the environment.
pub fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// One seed; `Err`: what was broken, and how to see it again.
pub fn run(seed: u64) -> Result<Told, String> {
    hush();
    QUIET.set(true);
    let _ = coverage::take();
    let replay = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let told = runtime.block_on(history(seed));
        // What was left hanging by a crash hangs for ever.
        runtime.shutdown_background();
        told
    };
    let told = catch_unwind(AssertUnwindSafe(replay));
    QUIET.set(false);
    told.map_err(|why| {
        let text = why.downcast_ref::<String>().cloned().or_else(|| why.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        let replay = format!("FANFOLD_SIM_SEED={seed} cargo test -p fanfold-tests --test sim -- every_history --nocapture");
        format!("{}: seed {seed}; replay it with\n  {replay}\n{}: {}", phase::current(), WHERE.take(), text.unwrap_or_default())
    })
}

/// Every seed of a range.
pub fn run_all(seeds: Range<u64>) -> Run {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut run = Run { fewest_events: u64::MAX, fewest_misfortunes: u64::MAX, ..Run::default() };
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return run;
            }
            run.add(seed, self::run(seed));
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).reduce(Run::with).unwrap_or_default()
    })
}

/// The failures, for people: the first in full, the numbers of all.
pub fn shown(failed: &[(u64, String)]) -> String {
    let seeds: Vec<u64> = failed.iter().map(|(seed, _)| *seed).collect();
    format!("{}\nall: {seeds:?}", failed.first().map_or("", |(_, why)| why))
}

impl Run {
    fn add(&mut self, seed: u64, told: Result<Told, String>) {
        self.seeds += 1;
        match told {
            Ok(told) => {
                self.events += told.events;
                self.misfortunes += told.misfortunes;
                self.fewest_events = self.fewest_events.min(told.events);
                self.fewest_misfortunes = self.fewest_misfortunes.min(told.misfortunes);
                let faults = told.faults.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
                coverage::add(&mut self.faults, &faults);
                coverage::add(&mut self.rows, &told.rows);
            }
            Err(why) => self.failed.push((seed, why)),
        }
    }

    fn with(mut self, other: Self) -> Self {
        self.seeds += other.seeds;
        self.events += other.events;
        self.misfortunes += other.misfortunes;
        self.fewest_events = self.fewest_events.min(other.fewest_events);
        self.fewest_misfortunes = self.fewest_misfortunes.min(other.fewest_misfortunes);
        coverage::add(&mut self.faults, &other.faults);
        coverage::add(&mut self.rows, &other.rows);
        self.failed.extend(other.failed);
        self.failed.sort_unstable();
        self
    }
}

/// Panics of histories are told once, by the runner.
fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if QUIET.get() {
                WHERE.set(info.location().map_or_else(String::new, ToString::to_string));
            } else {
                loud(info);
            }
        }));
    });
}
