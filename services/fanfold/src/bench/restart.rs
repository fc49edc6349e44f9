//! A restart of all services over a long log: how long until work is handed out again.

use clap::{ArgAction, Args};
use fanfold_domain::event::TaskEvent;
use fanfold_domain::ids::PlanId;
use fanfold_ledger::jetstream::JetStreamLedger;
use fanfold_ledger::port::{Log, TailItem};
use fanfold_process::clock::Clock;
use fanfold_terminal::crowd::CrowdSpec;
use fanfold_wire::event::{LogEvent, decode};
use fanfold_wire::subjects;
use futures::StreamExt;
use serde::Serialize;
use std::time::Duration;

use super::report::{median, percentile};
use super::stage::{Shown, Stage};
use super::{history, job};
use crate::error::CliError;
use crate::render::format::number;

/// How long a dispatch may take to come.
const DISPATCH_WITHIN: Duration = Duration::from_secs(300);
/// A log that has not grown for so long does not grow by itself.
const STILL: Duration = Duration::from_millis(300);

/// Time to the first dispatch after all services were killed
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  fanfold bench restart
  fanfold bench restart --history 100000 --open 10000
  fanfold bench restart --oldest true")]
pub struct RestartArgs {
    /// Finished tasks in the log
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    pub history: u32,
    /// Open tasks, of one plan, a terminal each
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(10..=200_000))]
    pub open: u32,
    /// Tasks out at once
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub window: u32,
    /// Time a task takes, in milliseconds
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(0..=600_000))]
    pub work_ms: u64,
    /// The open plan is older than the history
    #[arg(long, default_value_t = false, action = ArgAction::Set)]
    pub oldest: bool,
    /// Times the services are killed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
}

struct Run {
    serving_ms: f64,
    first_dispatch_ms: f64,
    hq_cpu_s: f64,
    hq_peak_mb: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RestartReport {
    history: u32,
    open: u32,
    window: u32,
    oldest: bool,
    runs: u32,
    log_events: u64,
    /// From the services' start to the first dispatch in the log: median, fastest, slowest.
    first_dispatch_ms: f64,
    first_dispatch_ms_range: (f64, f64),
    /// From their start until the services say that they serve.
    serving_ms: f64,
    hq_cpu_s: f64,
    hq_peak_mb: f64,
}

/// Writes the history, opens a plan, and kills the services again and again.
pub(super) async fn measure(args: &RestartArgs, stage: &mut Stage<'_>) -> Result<Shown, CliError> {
    let plan = PlanId::new("open").map_err(|e| CliError::Internal(e.to_string()))?;
    stage.say("starting the services");
    stage.ground.serve("", &["api", "projector", "convergence"]).await?;
    if args.oldest {
        history::submit(&stage.ground.ledger, &plan, args.open, Some(args.window)).await?;
    }
    if args.history > 0 {
        let counting = stage.counting("writing the history", args.history.into());
        history::write(&stage.ground.ledger, &history::sizes(args.history), u32::from(args.oldest), counting).await?;
    }
    stage.say("starting the terminals");
    stage.ground.serve("", &[]).await?;
    let spec = CrowdSpec {
        terminals: args.open,
        connections: 100,
        beat_interval_ms: 15_000,
        slots: 1,
        work_ms: args.work_ms,
        ..CrowdSpec::default()
    };
    stage.ground.crowd(spec).await?;
    if !args.oldest {
        history::submit(&stage.ground.ledger, &plan, args.open, Some(args.window)).await?;
    }
    job::settled(&stage.ground.ledger).await?;
    let mut runs = Vec::new();
    for n in 0..args.runs {
        // Work is under way as it was before.
        dispatched(stage, &plan).await?;
        stage.say(format!("kill {} of {}", n + 1, args.runs));
        runs.push(kill(stage, &plan).await?);
    }
    report(args, stage, &runs).await
}

async fn kill(stage: &mut Stage<'_>, plan: &PlanId) -> Result<Run, CliError> {
    let clock = Clock::system();
    stage.ground.kill_services();
    let ledger = stage.ground.ledger.clone();
    let from = still(&ledger).await?;
    let (begun, begun_ms) = (tokio::time::Instant::now(), clock.now_ms());
    let first = first_dispatch(&ledger, plan, from + 1);
    let serving = async {
        stage.ground.serve("", &[]).await?;
        Ok::<_, CliError>(begun.elapsed().as_secs_f64() * 1_000.0)
    };
    let (first_ms, serving_ms) = futures::future::try_join(first, serving).await?;
    let used = stage.used();
    Ok(Run { serving_ms, first_dispatch_ms: (first_ms - begun_ms) as f64, hq_cpu_s: used.hq.cpu_s, hq_peak_mb: used.hq.peak_mb })
}

/// Waits until nothing of the killed services is on its way into the log any more; gives its last sequence.
async fn still(ledger: &JetStreamLedger) -> Result<u64, CliError> {
    let mut last = ledger.last_seq().await?;
    loop {
        tokio::time::sleep(STILL).await;
        match ledger.last_seq().await? {
            now if now == last => return Ok(now),
            now => last = now,
        }
    }
}

/// Waits for the next dispatch.
async fn dispatched(stage: &Stage<'_>, plan: &PlanId) -> Result<i64, CliError> {
    let ledger = &stage.ground.ledger;
    first_dispatch(ledger, plan, ledger.last_seq().await? + 1).await
}

/// Log time of the plan's first dispatch from a sequence on.
async fn first_dispatch(ledger: &JetStreamLedger, plan: &PlanId, from: u64) -> Result<i64, CliError> {
    let found = async {
        let mut tail = ledger.tail(from).await?;
        while let Some(item) = tail.next().await {
            let TailItem::Messages(messages) = item else { continue };
            for message in messages {
                if subjects::plan_of(&message.subject) != Some(plan.as_str()) {
                    continue;
                }
                let decoded = decode(message.seq, message.time_ms, &message.subject, &message.payload);
                if let Ok(LogEvent::Task(_, logged)) = decoded
                    && matches!(logged.event, TaskEvent::Dispatched(_))
                {
                    return Ok(message.time_ms);
                }
            }
        }
        Err(CliError::Internal("the log's tail ended".into()))
    };
    let late = |_| CliError::Internal(format!("nothing was dispatched in {DISPATCH_WITHIN:?}"));
    tokio::time::timeout(DISPATCH_WITHIN, found).await.map_err(late)?
}

async fn report(args: &RestartArgs, stage: &Stage<'_>, runs: &[Run]) -> Result<Shown, CliError> {
    let over = |figure: &dyn Fn(&Run) -> f64| median(runs.iter().map(figure));
    let first = || runs.iter().map(|r| r.first_dispatch_ms);
    let report = RestartReport {
        history: args.history,
        open: args.open,
        window: args.window,
        oldest: args.oldest,
        runs: args.runs,
        log_events: stage.written().await?.log,
        first_dispatch_ms: median(first()).round(),
        first_dispatch_ms_range: (percentile(first(), 0.0).round(), percentile(first(), 1.0).round()),
        serving_ms: over(&|r| r.serving_ms).round(),
        hq_cpu_s: over(&|r| r.hq_cpu_s),
        hq_peak_mb: over(&|r| r.hq_peak_mb).round(),
    };
    let ms = |figure: f64| format!("{} ms", number(figure.max(0.0) as u64));
    let age = if args.oldest { "older" } else { "younger" };
    Shown::of(
        &report,
        &format!(
            "{} finished tasks and {} open ones of a {age} plan, all services killed {} times",
            number(args.history.into()),
            number(args.open.into()),
            args.runs
        ),
        &[
            ("first dispatch", ms(report.first_dispatch_ms), "from the start of the services"),
            ("fastest", ms(report.first_dispatch_ms_range.0), "of the runs"),
            ("slowest", ms(report.first_dispatch_ms_range.1), "of the runs"),
            ("serving", ms(report.serving_ms), "from their start until the services serve"),
            ("services cpu", format!("{:.2} s", report.hq_cpu_s), "from their start to the first dispatch"),
            ("services memory", format!("{} MB", report.hq_peak_mb), "largest until then"),
            ("log", number(report.log_events), "events"),
        ],
    )
}
