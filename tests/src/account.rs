//! The stores' own account of what their handlers ran, and what it comes to.

use std::path::Path;

use fanfold::demo::judge::{ExecutionCounts, count};
use fanfold_terminal::host::{Execution, Moment, read_executions};

/// Lines of one or more processes.
#[derive(Debug, Clone, Default)]
pub struct Account {
    lines: Vec<Execution>,
}

impl Account {
    /// Adds a file; one that is not there yet has no lines. `killed`: processes that died, and when (epoch microseconds): what they ran
    /// ended then, though nobody was left to write it down.
    pub fn add(&mut self, file: &Path, killed: &[(u32, i64)]) {
        let lines = read_executions(file).unwrap_or_default();
        for (process, at_us) in killed {
            let open: Vec<Execution> = lines
                .iter()
                .filter(|l| l.process == *process && l.moment == Moment::Begin)
                .filter(|l| !lines.iter().any(|e| e.process == *process && e.run == l.run && e.moment != Moment::Begin))
                .map(|l| Execution { moment: Moment::Ended, at_us: *at_us, ..l.clone() })
                .collect();
            self.lines.extend(open);
        }
        self.lines.extend(lines);
    }

    /// Whether a run of this process has begun and not ended.
    pub fn is_open(&self, process: u32) -> bool {
        let of = |moment: fn(&Execution) -> bool| self.lines.iter().filter(|l| l.process == process && moment(l)).count();
        of(|l| l.moment == Moment::Begin) > of(|l| l.moment != Moment::Begin)
    }

    /// How often things ran.
    pub fn counts(&self) -> ExecutionCounts {
        count(&self.lines)
    }

    /// Runs begun of a task, as attempt numbers in order.
    pub fn attempts_of(&self, task: &str) -> Vec<u32> {
        self.lines.iter().filter(|l| l.task == task && l.moment == Moment::Begin).map(|l| l.attempt).collect()
    }

    /// How many lines of a kind there are.
    pub fn seen(&self, moment: Moment) -> usize {
        self.lines.iter().filter(|l| l.moment == moment).count()
    }

    /// Every line.
    pub fn lines(&self) -> &[Execution] {
        &self.lines
    }

    /// Judges what must never be: an attempt run twice, two runs of a task at once, a run after a success.
    ///
    /// # Panics
    /// When any of it was.
    #[track_caller]
    pub fn assert_nothing_twice(&self) {
        let counts = self.counts();
        let never = (counts.double_runs, counts.overlapping_runs, counts.reruns_after_success);
        assert_eq!(never, (0, 0, 0), "double, overlapping, after success: {counts:?}");
    }
}
