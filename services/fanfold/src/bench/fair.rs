//! Many plans at once for the same stores, against one plan of as many tasks.

use clap::{ArgAction, Args};
use fanfold_terminal::crowd::CrowdSpec;
use serde::Serialize;

use super::job;
use super::report::{median, percentile};
use super::stage::{Shown, Stage};
use crate::cmd::bench::BenchArgs;
use crate::error::CliError;
use crate::render::format::number;

/// Many plans at once against one of as many tasks
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  fanfold bench fair
  fanfold bench fair --tasks 10000 --plans 20")]
pub struct FairArgs {
    /// Tasks of a run, in one plan and in many
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(2..=200_000))]
    pub tasks: u32,
    /// Plans at once, for the same stores
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(2..=1_000))]
    pub plans: u32,
    /// Runs of each, by turns; figures are medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Sync the log to disk at every write
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    pub durable: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FairReport {
    tasks: u32,
    plans: u32,
    durable: bool,
    runs: u32,
    /// Tasks a second of one plan, and of many at once.
    one_per_s: f64,
    many_per_s: f64,
    /// The second divided by the first, in each run: median, lowest, highest.
    ratio: f64,
    ratio_range: (f64, f64),
    /// Time of the last plan to finish divided by that of the first.
    spread: f64,
    spread_max: f64,
}

pub(super) fn job_args(tasks: u32, plans: u32, durable: bool) -> BenchArgs {
    BenchArgs { tasks, plans, durable, terminals: None, window: None, runs: 1, connections: 50, beat_ms: 60_000, scenario: None }
}

/// Runs one and many by turns.
pub(super) async fn measure(args: &FairArgs, stage: &mut Stage<'_>) -> Result<Shown, CliError> {
    if args.plans > args.tasks {
        return Err(CliError::Usage(format!("{} plans for {} tasks: some would have none", args.plans, args.tasks)));
    }
    stage.say("starting the services");
    stage.ground.serve(&format!("[dispatcher]\ninFlight = {}\nbeatMs = 60000\n", args.tasks), &[]).await?;
    stage.say(format!("starting {} terminals", number(args.tasks.into())));
    let spec = CrowdSpec {
        terminals: args.tasks,
        connections: 50,
        beat_interval_ms: 60_000,
        slots: args.plans.min(64),
        ..CrowdSpec::default()
    };
    stage.ground.crowd(spec).await?;
    let (one, many) = (job_args(args.tasks, 1, args.durable), job_args(args.tasks, args.plans, args.durable));
    let (mut one_per_s, mut many_per_s, mut spreads) = (Vec::new(), Vec::new(), Vec::new());
    let per_s = |job: &job::Job| f64::from(args.tasks) * 1_000.0 / job.elapsed_ms.max(1.0);
    for n in 0..args.runs {
        stage.say(format!("run {} of {}: one plan", n + 1, args.runs));
        one_per_s.push(per_s(&job::run(&stage.ground.ledger, &one, n, |_| ()).await?));
        job::settled(&stage.ground.ledger).await?;
        stage.say(format!("run {} of {}: {} plans", n + 1, args.runs, args.plans));
        let job = job::run(&stage.ground.ledger, &many, n, |_| ()).await?;
        job::settled(&stage.ground.ledger).await?;
        many_per_s.push(per_s(&job));
        spreads.push(job.spread());
    }
    let ratios = || many_per_s.iter().zip(&one_per_s).map(|(many, one)| many / one);
    let hundredth = |figure: f64| (figure * 100.0).round() / 100.0;
    let report = FairReport {
        tasks: args.tasks,
        plans: args.plans,
        durable: args.durable,
        runs: args.runs,
        one_per_s: median(one_per_s.iter().copied()).round(),
        many_per_s: median(many_per_s.iter().copied()).round(),
        ratio: hundredth(median(ratios())),
        ratio_range: (hundredth(percentile(ratios(), 0.0)), hundredth(percentile(ratios(), 1.0))),
        spread: hundredth(median(spreads.iter().copied())),
        spread_max: hundredth(percentile(spreads.iter().copied(), 1.0)),
    };
    let n = |figure: f64| number(figure.max(0.0) as u64);
    Shown::of(
        &report,
        &format!("{} tasks in one plan and in {} at once, {} runs", number(args.tasks.into()), args.plans, args.runs),
        &[
            ("one", n(report.one_per_s), "tasks/s of one plan"),
            ("many", n(report.many_per_s), "tasks/s of all plans at once"),
            ("ratio", format!("{}", report.ratio), "many against one"),
            ("lowest", format!("{}", report.ratio_range.0), "of the runs"),
            ("spread", format!("{}", report.spread), "time of the last plan to finish against the first"),
            ("widest", format!("{}", report.spread_max), "of the runs"),
        ],
    )
}
