//! The barrier of a large plan: from its deadline until the partial summary is in the log, with stores that never answered.

use std::time::Duration;

use clap::Args;
use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::{PlanEvent, Summarised, SummaryKind};
use fanfold_ledger::jetstream::JetStreamLedger;
use fanfold_ledger::port::{Log, Objects, Stored};
use fanfold_process::clock::Clock;
use fanfold_terminal::crowd::crowd_id;
use fanfold_wire::api::{Submitted, TypeRegistered};
use fanfold_wire::event::{LogEvent, decode};
use fanfold_wire::subjects;
use serde::Serialize;
use serde_json::json;
use serde_json::value::to_raw_value;
use tokio::time::Instant;

use super::report::{median, percentile};
use super::stage::{Shown, Stage};
use super::{history, job};
use crate::client;
use crate::error::CliError;
use crate::render::format::number;

/// The task type of the plans, with an aggregate of every kind.
const TYPE: &str = "bench_partial";
/// Between two looks at the log.
const LOOK: Duration = Duration::from_millis(5);
/// How long after the deadline the summary may come.
const SUMMARY_WITHIN: Duration = Duration::from_secs(300);

/// Time from a plan's deadline to its partial summary
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  fanfold bench partial
  fanfold bench partial --targets 10000 --missing 50 --deadline-s 15

Results are written into the log as terminals would have sent them. The clock
runs from the deadline to the summary's event; its document is stored before.")]
pub struct PartialArgs {
    /// Stores of the plan
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub targets: u32,
    /// Of a hundred stores so many never answer
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub missing: u32,
    /// From the seal to the deadline, in seconds; by then all results must be written. Without it, long enough
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub deadline_s: Option<u32>,
    /// Plans, one after the other
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub runs: u32,
}

impl PartialArgs {
    fn answered(&self) -> u32 {
        u32::try_from(u64::from(self.targets) * u64::from(100 - self.missing) / 100).unwrap_or(self.targets)
    }

    fn deadline_s(&self) -> u32 {
        self.deadline_s.unwrap_or(15 + self.targets / 2_500)
    }
}

struct Run {
    deadline_reached_ms: f64,
    summary_ms: f64,
    document_bytes: f64,
    hq_cpu_s: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PartialReport {
    targets: u32,
    answered: u32,
    runs: u32,
    /// From the deadline to the summary's event: median, fastest, slowest.
    summary_ms: f64,
    summary_ms_range: (f64, f64),
    /// From the deadline until the log says that it is reached.
    deadline_reached_ms: f64,
    document_bytes: f64,
    /// Processor seconds of the services for it.
    hq_cpu_s: f64,
    hq_peak_mb: f64,
}

fn internal(error: impl std::fmt::Display) -> CliError {
    CliError::Internal(error.to_string())
}

/// Lets plans meet their deadline, one after the other.
pub(super) async fn measure(args: &PartialArgs, stage: &mut Stage<'_>) -> Result<Shown, CliError> {
    stage.say("starting the services");
    // Nobody may hand anything out: what has not answered never will.
    stage.ground.serve("", &["api", "projector", "convergence"]).await?;
    register(&stage.ground.ledger).await?;
    let mut runs = Vec::new();
    for n in 0..args.runs {
        runs.push(run(args, n, stage).await?);
    }
    let over = |figure: &dyn Fn(&Run) -> f64| median(runs.iter().map(figure));
    let summary = || runs.iter().map(|r| r.summary_ms);
    let report = PartialReport {
        targets: args.targets,
        answered: args.answered(),
        runs: args.runs,
        summary_ms: median(summary()),
        summary_ms_range: (percentile(summary(), 0.0), percentile(summary(), 1.0)),
        deadline_reached_ms: over(&|r| r.deadline_reached_ms),
        document_bytes: over(&|r| r.document_bytes),
        hq_cpu_s: (over(&|r| r.hq_cpu_s) * 100.0).round() / 100.0,
        hq_peak_mb: stage.used().hq.peak_mb.round(),
    };
    let n = |figure: f64| number(figure.max(0.0) as u64);
    let title = format!(
        "{} targets of which {} have answered at the deadline, {} plans",
        number(args.targets.into()),
        number(report.answered.into()),
        args.runs
    );
    Shown::of(
        &report,
        &title,
        &[
            ("summary", format!("{} ms", n(report.summary_ms)), "from the deadline to the partial summary in the log"),
            ("fastest", format!("{} ms", n(report.summary_ms_range.0)), "of the plans"),
            ("slowest", format!("{} ms", n(report.summary_ms_range.1)), "of the plans"),
            ("deadline", format!("{} ms", n(report.deadline_reached_ms)), "until the log says that it is reached"),
            ("document", format!("{} bytes", n(report.document_bytes)), "stored before the summary is in the log"),
            ("services cpu", format!("{:.2} s", report.hq_cpu_s), "for the summary"),
            ("services memory", format!("{} MB", n(report.hq_peak_mb)), "largest"),
        ],
    )
}

async fn register(ledger: &JetStreamLedger) -> Result<(), CliError> {
    let document = json!({
        "type": TYPE, "version": 1, "title": "Results of the bench", "inputSchema": {}, "outputSchema": {},
        "aggregates": [
            { "name": "lines", "op": "sum", "pointer": "/lines" },
            { "name": "errors", "op": "max", "pointer": "/levels/ERROR" },
            { "name": "byVersion", "op": "count_by", "pointer": "/appVersion" },
            { "name": "configs", "op": "distinct", "pointer": "/configSha256" },
            { "name": "p99", "op": "percentile", "pointer": "/warnings", "p": 99 },
            { "name": "topErrors", "op": "top_k", "pointer": "/errors", "k": 5 },
        ],
    });
    let _: TypeRegistered = client::call(ledger, "type", "register", &document, client::ANSWER_WAIT).await?;
    Ok(())
}

async fn run(args: &PartialArgs, n: u32, stage: &mut Stage<'_>) -> Result<Run, CliError> {
    let ledger = stage.ground.ledger.clone();
    let plan = PlanId::new(&format!("partial_{n}")).map_err(internal)?;
    let deadline_ms = i64::from(args.deadline_s()) * 1_000;
    let stores: Vec<String> = (0..args.targets).map(crowd_id).collect();
    let document = json!({
        "planId": plan, "type": TYPE, "input": {}, "targets": { "stores": stores }, "deadlineMs": deadline_ms,
        "expiresMs": 86_400_000, "retry": { "maxAttempts": 1 },
    });
    let request = job::request(&ledger, to_raw_value(&document).map_err(internal)?).await?;
    let _: Submitted = client::call(ledger.as_ref(), "plan", "submit", &request, client::SUBMIT_WAIT).await?;
    let sealed = last(&ledger, &plan, "sealed").await?.ok_or_else(|| internal("the plan has no seal"))?;
    let due_ms = sealed.time_ms + deadline_ms;
    history::finish(&ledger, &plan, args.answered(), &stage.counting("writing results", args.answered().into())).await?;
    job::settled(&ledger).await?;
    let left_ms = due_ms - Clock::system().now_ms();
    if left_ms <= 0 {
        let message = format!("the results took {} ms longer than the deadline; raise --deadline-s", -left_ms);
        return Err(CliError::Usage(message));
    }
    stage.say(format!("run {} of {}: the deadline is near", n + 1, args.runs));
    let before = stage.used().hq.cpu_s;
    let (stored, summary) = summarised(&ledger, &plan, Duration::from_millis(left_ms.unsigned_abs())).await?;
    let hq_cpu_s = stage.used().hq.cpu_s - before;
    check(args, &summary)?;
    let reached = last(&ledger, &plan, "deadline_reached").await?.ok_or_else(|| internal("the deadline was not reached"))?;
    let document = ledger.get_object(&summary.this.sha256).await?.ok_or_else(|| internal("the summary has no document"))?;
    Ok(Run {
        deadline_reached_ms: (reached.time_ms - due_ms) as f64,
        summary_ms: (stored.time_ms - due_ms) as f64,
        document_bytes: document.len() as f64,
        hq_cpu_s,
    })
}

async fn last(ledger: &JetStreamLedger, plan: &PlanId, event: &str) -> Result<Option<Stored>, CliError> {
    Ok(ledger.last_under(&subjects::plan_event(plan, event)).await?)
}

/// Waits for a plan's summary, which is due in a while.
async fn summarised(ledger: &JetStreamLedger, plan: &PlanId, due: Duration) -> Result<(Stored, Summarised), CliError> {
    let until = Instant::now() + due + SUMMARY_WITHIN;
    let stored = loop {
        match last(ledger, plan, "summarised").await? {
            Some(stored) => break stored,
            None if Instant::now() > until => {
                return Err(internal(format!("{plan} has no summary {SUMMARY_WITHIN:?} after its deadline")));
            }
            None => tokio::time::sleep(LOOK).await,
        }
    };
    match decode(stored.seq, stored.time_ms, &stored.subject, &stored.payload).map_err(internal)? {
        LogEvent::Plan(_, logged) => match logged.event {
            PlanEvent::Summarised(summarised) => Ok((stored, *summarised)),
            other => Err(internal(format!("{} is no summary", other.name()))),
        },
        _ => Err(internal("a summary is no plan event")),
    }
}

/// What was measured must be what was meant.
fn check(args: &PartialArgs, summary: &Summarised) -> Result<(), CliError> {
    let failed = u32::try_from(history::failed(args.answered()).len()).unwrap_or(u32::MAX);
    let (counts, missing) = (summary.counts, args.targets - args.answered());
    let right = (counts.succeeded, counts.failed, counts.pending) == (args.answered() - failed, failed, missing);
    if summary.kind == SummaryKind::Partial && right {
        return Ok(());
    }
    Err(internal(format!("the summary is {:?} with {counts:?}", summary.kind)))
}
