//! Seeded histories of all of HQ and its terminals, in virtual time: see `docs/architecture.md`, "Simulation".
//!
//! `FANFOLD_SIM_SEEDS=n` sets how many (default 2,000 in release, 60 in a debug build), `FANFOLD_SIM_SEED=n` replays one with a trace.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub)]

#[path = "sim/chance.rs"]
mod chance;
#[path = "sim/confused.rs"]
mod confused;
#[path = "sim/coverage.rs"]
mod coverage;
#[path = "sim/executions.rs"]
mod executions;
#[path = "sim/history.rs"]
mod history;
#[path = "sim/lies.rs"]
mod lies;
#[path = "sim/misfortunes.rs"]
mod misfortunes;
#[path = "sim/people.rs"]
mod people;
#[path = "sim/phase.rs"]
mod phase;
#[path = "sim/planted.rs"]
mod planted;
#[path = "sim/rules.rs"]
mod rules;
#[path = "sim/runner.rs"]
mod runner;
#[path = "sim/safety.rs"]
mod safety;
#[path = "sim/script.rs"]
mod script;
#[path = "sim/tills.rs"]
mod tills;
#[path = "sim/trace.rs"]
mod trace;
#[path = "sim/weather.rs"]
mod weather;

use coverage::Counts;
use fanfold_model::ALL_ROWS;

#[test]
fn every_history_ends_with_a_true_account() {
    if let Some(seed) = runner::setting("FANFOLD_SIM_SEED") {
        trace::turn_on(true);
        match runner::run(seed) {
            Ok(told) => println!("seed {seed}: {} events, {} misfortunes, {}", told.events, told.misfortunes, told.hash),
            Err(why) => panic!("{why}"),
        }
        return;
    }
    let seeds = runner::setting("FANFOLD_SIM_SEEDS").unwrap_or(if cfg!(debug_assertions) { 60 } else { 2_000 });
    let run = runner::run_all(0..seeds);
    println!("{} seeds, {} events, {} misfortunes", run.seeds, run.events, run.misfortunes);
    print(&run.faults);
    print(&run.rows);
    assert!(run.failed.is_empty(), "{} of {seeds} seeds failed, the first:\n{}", run.failed.len(), runner::shown(&run.failed));
    assert!(run.fewest_events >= history::EVENTS_MIN, "a history of {} events only", run.fewest_events);
    assert!(run.fewest_misfortunes >= 5, "a history of {} misfortunes only", run.fewest_misfortunes);
    if seeds >= 500 {
        assert_eq!(coverage::missed(coverage::faults(), &run.faults), Vec::<&str>::new(), "faults that never happened");
        assert_eq!(coverage::missed(ALL_ROWS.iter().copied(), &run.rows), Vec::<&str>::new(), "rows that were never taken");
    }
}

fn print(counts: &Counts) {
    counts.iter().for_each(|(name, count)| println!("{count:>9}  {name}"));
}

#[test]
fn the_same_seed_makes_the_same_log() {
    for seed in 0..if cfg!(debug_assertions) { 8 } else { 40 } {
        let (once, again) = (runner::run(seed).unwrap(), runner::run(seed).unwrap());
        assert_eq!(once.hash, again.hash, "seed {seed}");
        assert_eq!(once.faults, again.faults, "seed {seed}");
        println!("seed {seed}: {}", once.hash);
    }
}
