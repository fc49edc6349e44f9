//! The handlers' own accounts, judged: what ran how often, and what ran at once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use fanfold_terminal::host::{Execution, Moment, read_executions};
use serde::Serialize;

use crate::error::CliError;

/// What the handlers' files say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionCounts {
    /// Tasks that ran at all.
    pub tasks: u64,
    /// Attempts that ran.
    pub attempts: u64,
    /// Runs of a handler.
    pub handler_runs: u64,
    /// Runs of an attempt that had run before.
    pub double_runs: u64,
    /// Runs of a task that began before an earlier one had ended.
    pub overlapping_runs: u64,
    /// Runs of a task that began after one had succeeded.
    pub reruns_after_success: u64,
    /// Most runs at once.
    pub peak_in_flight: u64,
}

/// Judges the accounts of all processes.
///
/// # Errors
/// A file that can't be read.
pub fn judge(files: &[PathBuf]) -> Result<ExecutionCounts, CliError> {
    let mut all = Vec::new();
    for file in files {
        all.extend(read_executions(file).map_err(|e| CliError::file(file, e))?);
    }
    Ok(count(&all))
}

struct Run {
    begin_us: i64,
    end_us: i64,
    attempt: u32,
    done: bool,
}

/// Judges an account.
pub fn count(all: &[Execution]) -> ExecutionCounts {
    let mut ends = BTreeMap::new();
    for line in all.iter().filter(|l| l.moment != Moment::Begin) {
        ends.insert((line.process, line.run), line);
    }
    let mut tasks: BTreeMap<&str, Vec<Run>> = BTreeMap::new();
    let mut moments: Vec<(i64, i32)> = Vec::new();
    for line in all.iter().filter(|l| l.moment == Moment::Begin) {
        let end = ends.get(&(line.process, line.run));
        let end_us = end.map_or(i64::MAX, |e| e.at_us);
        moments.push((line.at_us, 1));
        moments.push((end_us, -1));
        let run =
            Run { begin_us: line.at_us, end_us, attempt: line.attempt, done: end.is_some_and(|e| e.moment == Moment::Done) };
        tasks.entry(&line.task).or_default().push(run);
    }
    let mut counts = ExecutionCounts { tasks: tasks.len() as u64, ..ExecutionCounts::default() };
    for runs in tasks.values_mut() {
        runs.sort_by_key(|r| r.begin_us);
        let attempts: BTreeSet<u32> = runs.iter().map(|r| r.attempt).collect();
        counts.attempts += attempts.len() as u64;
        counts.handler_runs += runs.len() as u64;
        counts.double_runs += (runs.len() - attempts.len()) as u64;
        counts.overlapping_runs += runs.windows(2).filter(|w| matches!(w, [a, b] if b.begin_us < a.end_us)).count() as u64;
        let first_done = runs.iter().filter(|r| r.done).map(|r| r.end_us).min();
        counts.reruns_after_success += first_done.map_or(0, |done| runs.iter().filter(|r| r.begin_us >= done).count() as u64);
    }
    // An end and a begin in one microsecond: the end first.
    moments.sort_unstable();
    let (mut now, mut peak) = (0_i64, 0_i64);
    for (_, step) in moments {
        now += i64::from(step);
        peak = peak.max(now);
    }
    counts.peak_in_flight = peak.unsigned_abs();
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(task: &str, attempt: u32, run: u64, moment: Moment, at_us: i64) -> Execution {
        Execution { task: task.into(), attempt, terminal: "S".into(), run, process: 1, moment, at_us, result: None }
    }

    #[test]
    fn what_should_never_be_is_counted() {
        let all = [
            line("a", 1, 1, Moment::Begin, 10),
            line("a", 1, 1, Moment::Ended, 20),
            line("a", 2, 2, Moment::Begin, 20),
            line("a", 2, 2, Moment::Done, 30),
            line("b", 1, 3, Moment::Begin, 12),
            line("b", 1, 4, Moment::Begin, 15),
            line("b", 1, 3, Moment::Done, 18),
            line("b", 1, 4, Moment::Ended, 40),
            line("c", 1, 5, Moment::Begin, 50),
            line("c", 1, 5, Moment::Done, 51),
            line("c", 2, 6, Moment::Begin, 52),
        ];
        let expected = ExecutionCounts {
            tasks: 3,
            attempts: 5,
            handler_runs: 6,
            double_runs: 1,
            overlapping_runs: 1,
            reruns_after_success: 1,
            peak_in_flight: 3,
        };
        assert_eq!(count(&all), expected);
    }
}
