//! What a task costs: of a small plan, of a large one, and of both after a long history.

use clap::{ArgAction, Args};
use fanfold_terminal::crowd::CrowdSpec;
use serde::Serialize;

use super::fair::job_args;
use super::report::median;
use super::stage::{Shown, Stage};
use super::{history, job};
use crate::error::CliError;
use crate::render::format::number;

/// CPU a task: of small plans, of large ones, after a long history
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  fanfold bench cost
  fanfold bench cost --history 100000 --large 20000 --runs 1")]
pub struct CostArgs {
    /// Tasks of the small plan
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    pub small: u32,
    /// Tasks of the large plan
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    pub large: u32,
    /// Finished tasks in the log before the second half
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub history: u32,
    /// Runs of each; figures are medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Heartbeat interval of the terminals, in milliseconds
    #[arg(long, default_value_t = 15_000, value_parser = clap::value_parser!(u64).range(50..=600_000))]
    pub beat_ms: u64,
    /// Sync the log to disk at every write
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    pub durable: bool,
}

/// Microseconds of processor time a task.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
struct Cost {
    server: f64,
    hq: f64,
    terminals: f64,
    /// Server and services.
    both: f64,
    tasks_per_s: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CostReport {
    small: u32,
    large: u32,
    history: u32,
    durable: bool,
    runs: u32,
    /// Microseconds a task.
    small_us: Cost,
    large_us: Cost,
    small_after_us: Cost,
    large_after_us: Cost,
    /// Server and services: the large plan against the small one; both after the history against before it.
    large_to_small: f64,
    small_after_to_before: f64,
    large_after_to_before: f64,
}

/// Runs small and large plans before and after a history.
pub(super) async fn measure(args: &CostArgs, stage: &mut Stage<'_>) -> Result<Shown, CliError> {
    let [small_us, large_us] = plans(args, stage, "before the history").await?;
    stage.ground.stop_terminals();
    stage.ground.serve("", &["api", "projector", "convergence"]).await?;
    let counting = stage.counting("writing the history", args.history.into());
    history::write(&stage.ground.ledger, &history::sizes(args.history), 0, counting).await?;
    let [small_after_us, large_after_us] = plans(args, stage, "after the history").await?;
    let to = |a: Cost, b: Cost| if b.both > 0.0 { (a.both / b.both * 100.0).round() / 100.0 } else { 0.0 };
    let report = CostReport {
        small: args.small,
        large: args.large,
        history: args.history,
        durable: args.durable,
        runs: args.runs,
        small_us,
        large_us,
        small_after_us,
        large_after_us,
        large_to_small: to(large_us, small_us),
        small_after_to_before: to(small_after_us, small_us),
        large_after_to_before: to(large_after_us, large_us),
    };
    let cost = |c: Cost| format!("{} µs", c.both);
    let parts = |c: Cost| {
        format!("a task: server {}, services {} µs (terminals {} µs; {} tasks/s)", c.server, c.hq, c.terminals, c.tasks_per_s)
    };
    let (s, l, sa, la) = (parts(small_us), parts(large_us), parts(small_after_us), parts(large_after_us));
    Shown::of(
        &report,
        &format!(
            "processor time a task of plans of {} and {}, before and after {} tasks, {} runs",
            number(args.small.into()),
            number(args.large.into()),
            number(args.history.into()),
            args.runs
        ),
        &[
            ("small", cost(small_us), &s),
            ("large", cost(large_us), &l),
            ("small after", cost(small_after_us), &sa),
            ("large after", cost(large_after_us), &la),
            ("large/small", report.large_to_small.to_string(), "before the history"),
            ("small after/before", report.small_after_to_before.to_string(), "the history"),
            ("large after/before", report.large_after_to_before.to_string(), "the history"),
        ],
    )
}

/// Starts services and terminals anew; small and large plans by turns.
async fn plans(args: &CostArgs, stage: &mut Stage<'_>, when: &str) -> Result<[Cost; 2], CliError> {
    let terminals = args.small.max(args.large);
    stage.say(format!("starting {} terminals", number(terminals.into())));
    stage.ground.serve(&format!("[dispatcher]\ninFlight = {terminals}\nbeatMs = {}\n", args.beat_ms), &[]).await?;
    let spec = CrowdSpec { terminals, connections: 50, beat_interval_ms: args.beat_ms, slots: 1, ..CrowdSpec::default() };
    stage.ground.crowd(spec).await?;
    job::settled(&stage.ground.ledger).await?;
    let (mut small, mut large) = (Vec::new(), Vec::new());
    for n in 0..args.runs {
        for (tasks, costs) in [(args.small, &mut small), (args.large, &mut large)] {
            stage.say(format!("run {} of {} {when}: {} tasks", n + 1, args.runs, number(tasks.into())));
            costs.push(one(args, stage, n, tasks).await?);
        }
    }
    Ok([medians(&small), medians(&large)])
}

async fn one(args: &CostArgs, stage: &Stage<'_>, run: u32, tasks: u32) -> Result<Cost, CliError> {
    let before = stage.used();
    let job = job::run(&stage.ground.ledger, &job_args(tasks, 1, args.durable), run, |_| ()).await?;
    job::settled(&stage.ground.ledger).await?;
    let after = stage.used();
    let us = |before: f64, after: f64| (after - before) * 1e6 / f64::from(tasks);
    let server = us(before.server.cpu_s, after.server.cpu_s);
    let hq = us(before.hq.cpu_s, after.hq.cpu_s);
    Ok(Cost {
        server,
        hq,
        terminals: us(before.terminals.cpu_s, after.terminals.cpu_s),
        both: server + hq,
        tasks_per_s: f64::from(tasks) * 1_000.0 / job.elapsed_ms.max(1.0),
    })
}

fn medians(costs: &[Cost]) -> Cost {
    let over = |figure: &dyn Fn(&Cost) -> f64| (median(costs.iter().map(figure)) * 10.0).round() / 10.0;
    Cost {
        server: over(&|c| c.server),
        hq: over(&|c| c.hq),
        terminals: over(&|c| c.terminals),
        both: over(&|c| c.both),
        tasks_per_s: over(&|c| c.tasks_per_s).round(),
    }
}
