//! The simulation is tested itself: each of these bugs is planted, and found within 2,000 seeds.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use fanfold_domain::planted::{Planted, plant};

use super::runner::{self, THREADS};

/// Seeds within which a bug must be found.
const SEEDS: u64 = 2_000;

/// Seeds it took to find a bug, and how it showed; `None`: it was not found.
fn hunt(bug: Planted, seeds: u64) -> Option<(u64, String)> {
    plant(Some(bug));
    let found = (0..seeds).find_map(|seed| runner::run(seed).err().map(|why| (seed, why)));
    plant(None);
    let (seed, why) = found?;
    // It must be the bug that shows.
    assert!(runner::run(seed).is_ok(), "seed {seed} fails without {bug:?}, too");
    Some((seed + 1, why))
}

#[test]
fn every_planted_bug_is_found() {
    let only = std::env::var("FANFOLD_SIM_PLANTED").ok();
    let seeds = runner::setting("FANFOLD_SIM_SEEDS").unwrap_or(if cfg!(debug_assertions) { 25 } else { SEEDS }).min(SEEDS);
    let bugs: Vec<Planted> =
        Planted::ALL.into_iter().filter(|bug| only.as_ref().is_none_or(|only| format!("{bug:?}") == *only)).collect();
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match hunt(*bug, seeds) {
                        Some((took, why)) => {
                            let shown: String =
                                why.lines().filter(|l| !l.contains("FANFOLD_SIM_SEED=")).collect::<Vec<_>>().join(" ");
                            println!("{took:>6} seeds  {bug:?}: {}", shown.chars().take(200).collect::<String>());
                        }
                        None => missed.lock().unwrap().push(*bug),
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    if cfg!(debug_assertions) && only.is_none() {
        // A debug build has no time for the rare ones.
        assert!(missed.len() <= 10, "not found within {seeds} seeds: {missed:?}");
    } else {
        assert!(missed.is_empty(), "not found within {seeds} seeds: {missed:?}");
    }
}
