//! Pages: how long the API takes for one page of a list where much is listed.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use fanfold_domain::ids::{PlanId, TerminalId};
use fanfold_domain::sets::TaskSet;
use fanfold_ledger::jetstream::JetStreamLedger;
use fanfold_ledger::port::Buckets;
use fanfold_terminal::crowd::crowd_id;
use fanfold_wire::api::{PlanList, PlanListRequest, PlanRequest, TaskList, TaskListRequest, TerminalList, TerminalListRequest};
use fanfold_wire::record::{PlanRecord, ReportCounts, TerminalRecord, terminal_key};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::history;
use super::report::percentile;
use super::stage::{Shown, Stage};
use crate::client;
use crate::error::CliError;
use crate::render::format::number;

/// Records of a page.
const PAGE: u32 = 100;
/// Records of the registry written at once.
const REGISTERED_AT_ONCE: u32 = 2_000;
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// Latency of one page of tasks, of plans, of terminals
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  fanfold bench pages
  fanfold bench pages --history 100000 --pages 200 --json")]
pub struct PagesArgs {
    /// Finished tasks in the log
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    pub history: u32,
    /// Terminals in the registry
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    pub terminals: u32,
    /// Pages of each kind, one after the other
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(5..=100_000))]
    pub pages: u32,
}

/// Of one kind of page, in milliseconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Latency {
    p50: f64,
    p95: f64,
    max: f64,
    /// The very first one after the services' start.
    first: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PagesReport {
    history: u32,
    plans: usize,
    terminals: u32,
    pages: u32,
    page: u32,
    latency_ms: BTreeMap<&'static str, Latency>,
    hq_peak_mb: f64,
}

/// Writes the history and the registry, starts the services anew, and asks.
pub(super) async fn measure(args: &PagesArgs, stage: &mut Stage<'_>) -> Result<Shown, CliError> {
    stage.say("starting the services");
    stage.ground.serve("", &["api", "projector", "convergence"]).await?;
    let counting = stage.counting("writing the history", args.history.into());
    let ledger = stage.ground.ledger.clone();
    let plans = history::write(&ledger, &history::sizes(args.history), 0, counting).await?;
    stage.say("writing the registry");
    register(&ledger, args.terminals).await?;
    stage.ground.serve("", &[]).await?;
    let mut latency_ms = BTreeMap::new();
    let mut draw = Draw(0x2545_f491_4f6c_dd1d);
    for kind in [Kind::Tasks, Kind::FailedTasks, Kind::Plans, Kind::Plan, Kind::Terminals] {
        stage.say(format!("asking for {}", kind.name()));
        let mut took_ms = Vec::with_capacity(args.pages as usize);
        for _ in 0..args.pages {
            let begun = Instant::now();
            kind.ask(&ledger, &plans, args.terminals, &mut draw).await?;
            took_ms.push(begun.elapsed().as_secs_f64() * 1_000.0);
        }
        latency_ms.insert(kind.name(), latency(&took_ms));
    }
    let report = PagesReport {
        history: args.history,
        plans: plans.len(),
        terminals: args.terminals,
        pages: args.pages,
        page: PAGE,
        latency_ms,
        hq_peak_mb: stage.used().hq.peak_mb.round(),
    };
    shown(&report)
}

fn latency(took_ms: &[f64]) -> Latency {
    let at = |share| (percentile(took_ms.iter().copied(), share) * 100.0).round() / 100.0;
    let first = took_ms.first().copied().unwrap_or(0.0);
    Latency { p50: at(0.5), p95: at(0.95), max: at(1.0), first: (first * 100.0).round() / 100.0 }
}

fn shown(report: &PagesReport) -> Result<Shown, CliError> {
    let mut rows = Vec::new();
    for kind in [Kind::Tasks, Kind::FailedTasks, Kind::Plans, Kind::Plan, Kind::Terminals] {
        let Some(latency) = report.latency_ms.get(kind.name()) else { continue };
        let figure = format!("{:.2} / {:.2} ms", latency.p50, latency.p95);
        rows.push((kind.name(), figure, format!("p50 / p95; first {:.1} ms, worst {:.1} ms", latency.first, latency.max)));
    }
    rows.push(("memory", format!("{} MB", report.hq_peak_mb), "services, largest so far".to_owned()));
    let rows: Vec<(&str, String, &str)> =
        rows.iter().map(|(name, figure, what)| (*name, figure.clone(), what.as_str())).collect();
    let title = format!(
        "pages of {PAGE}: {} finished tasks in {} plans, {} terminals",
        number(report.history.into()),
        number(report.plans as u64),
        number(report.terminals.into())
    );
    Shown::of(report, &title, &rows)
}

/// A registry as a dispatcher leaves it behind.
async fn register(ledger: &JetStreamLedger, terminals: u32) -> Result<(), CliError> {
    for from in (0..terminals).step_by(REGISTERED_AT_ONCE as usize) {
        let mut records = Vec::new();
        for n in from..(from + REGISTERED_AT_ONCE).min(terminals) {
            let id = TerminalId::new(&crowd_id(n)).map_err(|e| CliError::Internal(e.to_string()))?;
            let record = TerminalRecord {
                online: false,
                last_seen_ms: Some(1_789_000_000_000),
                version: "1.4.2".into(),
                slots: 1,
                beat_interval_ms: 15_000,
                journal: format!("{n:032x}"),
                boot: format!("{n:032x}"),
                allowed_journal: None,
                id_in_use: false,
                replace_with_next: false,
                rival_journal: None,
                journal_unavailable: false,
                messages_limited: 0,
                messages_unreadable: 0,
                labels: BTreeMap::from([("region".to_owned(), format!("R{:02}", n % 32))]),
                types: vec!["collect_log@1".into(), "noop@1".into()],
                reports: ReportCounts { recorded: 12, ..ReportCounts::default() },
                id: id.clone(),
            };
            let text = serde_json::to_vec(&record).map_err(|e| CliError::Internal(e.to_string()))?;
            records.push((terminal_key(&id), Bytes::from(text)));
        }
        ledger.put_terminals(records).await?;
    }
    Ok(())
}

/// Numbers that are the same in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 33) % u64::from(bound.max(1))) as u32
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Tasks,
    FailedTasks,
    Plans,
    Plan,
    Terminals,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Tasks => "tasks",
            Kind::FailedTasks => "failedTasks",
            Kind::Plans => "plans",
            Kind::Plan => "plan",
            Kind::Terminals => "terminals",
        }
    }

    /// Asks for a page somewhere, and sees to it that it is the right one.
    async fn ask(
        self,
        ledger: &JetStreamLedger,
        plans: &[(PlanId, u32)],
        terminals: u32,
        draw: &mut Draw,
    ) -> Result<(), CliError> {
        let wrong = |what: String| CliError::Internal(format!("a page of {} is not what it should be: {what}", self.name()));
        // As often a large plan as a small one: the large ones come first.
        let largest = plans.first().map_or(0, |(_, size)| *size);
        let large = plans.iter().take_while(|(_, size)| *size == largest).count() as u32;
        let n = if draw.below(2) == 0 { draw.below(large) } else { draw.below(plans.len() as u32) };
        let Some((plan, size)) = plans.get(n as usize) else { return Err(wrong("no plans".into())) };
        match self {
            Kind::Tasks | Kind::FailedTasks => {
                let set = matches!(self, Kind::FailedTasks).then_some(TaskSet::Failed);
                let offset = draw.below(*size);
                let request = TaskListRequest { plan_id: plan.clone(), set, limit: Some(PAGE), offset };
                let page: TaskList = client::call(ledger, "task", "list", &request, ANSWER_WAIT).await?;
                let got: Vec<&str> = page.tasks.iter().map(|t| t.store_id.as_str()).collect();
                let failed = history::failed(*size);
                let wanted = |n: &u32| set.is_none() || failed.contains(&crowd_id(*n));
                let expected: Vec<String> = (offset..*size).filter(wanted).take(PAGE as usize).map(crowd_id).collect();
                if got != expected {
                    return Err(wrong(format!("{plan} at {offset}: {} of {} tasks, or others", got.len(), expected.len())));
                }
            }
            Kind::Plans => {
                let request = PlanListRequest { limit: Some(PAGE), after: Some(plan.clone()), open: false };
                let page: PlanList = client::call(ledger, "plan", "list", &request, ANSWER_WAIT).await?;
                let expected = plans.iter().skip(n as usize + 1).take(PAGE as usize).map(|(id, _)| id);
                if !page.plans.iter().map(|p| &p.plan_id).eq(expected) {
                    return Err(wrong(format!("after {plan} came {} plans", page.plans.len())));
                }
            }
            Kind::Plan => {
                let request = PlanRequest { plan_id: plan.clone(), by: "bench".into(), reason: String::new() };
                let record: PlanRecord = client::call(ledger, "plan", "get", &request, ANSWER_WAIT).await?;
                if record.total != *size {
                    return Err(wrong(format!("{plan} has {} tasks", record.total)));
                }
            }
            Kind::Terminals => {
                let n = draw.below(terminals);
                let after = TerminalId::new(&crowd_id(n)).ok();
                let request = TerminalListRequest { limit: Some(PAGE), after };
                let page: TerminalList = client::call(ledger, "terminal", "list", &request, ANSWER_WAIT).await?;
                let expected = (n + 1..terminals).take(PAGE as usize).map(crowd_id);
                if !page.terminals.iter().map(|t| t.id.as_str().to_owned()).eq(expected) {
                    return Err(wrong(format!("after {n} came {} terminals", page.terminals.len())));
                }
            }
        }
        Ok(())
    }
}
