//! What a bench found: medians over its runs.

use serde::Serialize;

use super::job::Job;
use super::usage::Usage;
use crate::cmd::bench::BenchArgs;
use crate::render::format::number;

/// Two points of a distribution, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Half are below.
    pub p50: f64,
    /// 99 of 100 are below.
    pub p99: f64,
}

/// A figure for each of the three kinds of process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ByProcess {
    /// nats-server.
    pub server: f64,
    /// The services.
    pub hq: f64,
    /// All terminals together.
    pub terminals: f64,
}

/// The figures of one run.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) floor_per_s: f64,
    pub(crate) job: Job,
    pub(crate) state_writes: u64,
    pub(crate) log_bytes: u64,
    pub(crate) state_bytes: u64,
    pub(crate) cpu_s: ByProcess,
}

/// What was found, medians over the runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BenchReport {
    /// Tasks of a run, over all its plans.
    pub tasks: u32,
    /// Terminals.
    pub terminals: u32,
    /// Tasks out at once.
    pub window: u32,
    /// Plans at once.
    pub plans: u32,
    /// Whether the log was synced at every write; absent for a given server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durable: Option<bool>,
    /// Runs.
    pub runs: u32,
    /// Tasks a second of the bare publishes.
    pub floor_per_s: f64,
    /// Tasks a second from the submission to the last summary.
    pub tasks_per_s: f64,
    /// The second divided by the first, in each run.
    pub ratio: f64,
    /// Smallest and largest ratio of a run.
    pub ratio_range: (f64, f64),
    /// From the submission to the first result in the log, in milliseconds.
    pub first_result_ms: f64,
    /// From a plan's submission to its complete summary, over all plans of all runs.
    pub summary_ms: Percentiles,
    /// Time of the last plan divided by the time of the first.
    pub spread: f64,
    /// Records written.
    pub state_writes_per_task: f64,
    /// Bytes of the log.
    pub log_bytes_per_task: f64,
    /// Bytes added to the state bucket; 0 where records were only replaced.
    pub state_bytes_per_task: f64,
    /// Processor seconds of a run.
    pub cpu_s: ByProcess,
    /// Largest memory so far, in megabytes.
    pub peak_mb: ByProcess,
}

/// The middle of some figures; 0 of none.
pub(super) fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    percentile(figures, 0.5)
}

/// Nearest rank; 0 of none.
pub(super) fn percentile(figures: impl IntoIterator<Item = f64>, share: f64) -> f64 {
    let mut sorted: Vec<f64> = figures.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

fn rounded(figure: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (figure * scale).round() / scale
}

impl BenchReport {
    pub(crate) fn of(args: &BenchArgs, terminals: u32, durable: Option<bool>, runs: &[Run], peaks: [Usage; 3]) -> Self {
        let tasks = f64::from(args.tasks);
        let per_s = |run: &Run| tasks * 1_000.0 / run.job.elapsed_ms.max(1.0);
        let ratios = || runs.iter().map(|r| if r.floor_per_s > 0.0 { per_s(r) / r.floor_per_s } else { 0.0 });
        let over = |figure: &dyn Fn(&Run) -> f64| median(runs.iter().map(figure));
        let plans_ms = || runs.iter().flat_map(|r| r.job.plans_ms.iter().copied());
        let by = |server: f64, hq: f64, terminals: f64| ByProcess {
            server: rounded(server, 2),
            hq: rounded(hq, 2),
            terminals: rounded(terminals, 2),
        };
        Self {
            tasks: args.tasks,
            terminals,
            window: args.window(),
            plans: args.plans,
            durable,
            runs: args.runs,
            floor_per_s: over(&|r| r.floor_per_s).round(),
            tasks_per_s: over(&per_s).round(),
            ratio: rounded(median(ratios()), 3),
            ratio_range: (rounded(percentile(ratios(), 0.0), 3), rounded(percentile(ratios(), 1.0), 3)),
            first_result_ms: over(&|r| r.job.first_result_ms),
            summary_ms: Percentiles { p50: percentile(plans_ms(), 0.5), p99: percentile(plans_ms(), 0.99) },
            spread: rounded(over(&|r| r.job.spread()), 2),
            state_writes_per_task: rounded(over(&|r| r.state_writes as f64 / tasks), 2),
            log_bytes_per_task: over(&|r| r.log_bytes as f64 / tasks).round(),
            state_bytes_per_task: over(&|r| r.state_bytes as f64 / tasks).round(),
            cpu_s: by(over(&|r| r.cpu_s.server), over(&|r| r.cpu_s.hq), over(&|r| r.cpu_s.terminals)),
            peak_mb: by(peaks[0].peak_mb, peaks[1].peak_mb, peaks[2].peak_mb),
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let n = |figure: f64| number(figure.max(0.0) as u64);
        let durable = match self.durable {
            Some(true) => "log synced at every write",
            Some(false) => "log not synced at every write",
            None => "a given server",
        };
        format!(
            "{} tasks in {} plans for {} terminals, {} out at once, {durable}, median of {} runs\n\n\
             floor      {:>12} tasks/s  bare publishes of the same bytes\n\
             job        {:>12} tasks/s  from the submission to the summary\n\
             ratio      {:>12}          {} to {}\n\
             first      {:>12} ms       from the submission to the first result\n\
             summary    {:>12} ms       half of the plans; 99 of 100 within {} ms\n\
             spread     {:>12}          last plan against first\n\
             state      {:>12} writes a task\n\
             log        {:>12} bytes a task\n\n\
             {:<10} {:>10} {:>10} {:>10}\n{:<10} {:>10} {:>10} {:>10}\n{:<10} {:>10} {:>10} {:>10}",
            number(u64::from(self.tasks)),
            self.plans,
            number(u64::from(self.terminals)),
            number(u64::from(self.window)),
            self.runs,
            n(self.floor_per_s),
            n(self.tasks_per_s),
            self.ratio,
            self.ratio_range.0,
            self.ratio_range.1,
            self.first_result_ms,
            self.summary_ms.p50,
            self.summary_ms.p99,
            self.spread,
            self.state_writes_per_task,
            self.log_bytes_per_task,
            "",
            "server",
            "hq",
            "terminals",
            "cpu s",
            self.cpu_s.server,
            self.cpu_s.hq,
            self.cpu_s.terminals,
            "peak MB",
            self.peak_mb.server,
            self.peak_mb.hq,
            self.peak_mb.terminals,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_the_nearest() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!((percentile([1.0, 2.0, 3.0, 4.0], 0.0), percentile([1.0, 2.0, 3.0, 4.0], 1.0)), (1.0, 4.0));
        assert_eq!(percentile((1..=200).map(f64::from), 0.99), 198.0);
        assert_eq!(median([]), 0.0);
    }
}
