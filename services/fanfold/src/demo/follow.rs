//! Following the plan while it runs: summaries the moment they are in the log, progress for people.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanfold_domain::event::TaskEvent;
use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::{PlanEvent, SummaryKind};
use fanfold_domain::sets::SetCounts;
use fanfold_ledger::port::{BoxStream, Ledger, LedgerError, TailItem};
use fanfold_wire::event::{LogEvent, decode};
use fanfold_wire::record::PlanRecord;
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::fleet::Fleet;
use crate::client;
use crate::cmd::demo::DemoArgs;
use crate::error::CliError;
use crate::out::Out;

/// Between two looks at the plan for the progress bar.
const LOOK: Duration = Duration::from_millis(100);

/// A summary as it came.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeenSummary {
    /// Number.
    pub revision: u32,
    /// Kind.
    pub kind: SummaryKind,
    /// Position of the log it is about.
    pub as_of_seq: u64,
    /// Digest.
    pub sha256: String,
    /// Log time after the seal, in milliseconds.
    pub emitted_ms: i64,
    /// Sum of the sets.
    pub total: u64,
    /// The eight sets.
    pub counts: SetCounts,
}

/// When things came into the log, in milliseconds after the seal by the log's own clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeline {
    /// The first task handed out.
    pub first_dispatch_ms: Option<i64>,
    /// The last first attempt handed out.
    pub last_dispatch_ms: Option<i64>,
    /// The first result.
    pub first_result_ms: Option<i64>,
    /// The last result.
    pub last_result_ms: Option<i64>,
}

impl Timeline {
    fn note(&mut self, after_seal_ms: i64, event: &TaskEvent) {
        let (first, last) = match event {
            TaskEvent::Dispatched(d) if d.attempt == 1 => (&mut self.first_dispatch_ms, &mut self.last_dispatch_ms),
            TaskEvent::Succeeded { .. } => (&mut self.first_result_ms, &mut self.last_result_ms),
            _ => return,
        };
        first.get_or_insert(after_seal_ms);
        *last = Some(after_seal_ms);
    }
}

/// What was seen of the plan.
pub(crate) struct Followed {
    /// From the submit request to the first complete or final summary, to the last one where there are faults.
    pub(crate) elapsed_ms: u64,
    /// Summaries in order.
    pub(crate) summaries: Vec<SeenSummary>,
    /// When things came into the log.
    pub(crate) timeline: Timeline,
}

pub(crate) struct Follow {
    ledger: Arc<dyn Ledger>,
    plan: PlanId,
    tail: BoxStream<TailItem>,
    bar: ProgressBar,
    out: Out,
}

impl Follow {
    /// Listens from the log's end on; call it before the plan is submitted.
    pub(crate) async fn start(ledger: Arc<dyn Ledger>, plan: PlanId, args: &DemoArgs, out: &Out) -> Result<Self, CliError> {
        let tail = ledger.tail(ledger.last_seq().await? + 1).await?;
        let bar = ProgressBar::new(u64::from(args.stores));
        if !out.interactive {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        if let Ok(style) = ProgressStyle::with_template("  {bar:40} {pos}/{len} in  {msg}") {
            bar.set_style(style);
        }
        Ok(Self { ledger, plan, tail, bar, out: out.clone() })
    }

    /// Until the final summary; brings the offline stores back once the partial one is out.
    pub(crate) async fn until_final(
        mut self,
        started: Instant,
        sealed_seq: u64,
        fleet: &mut Fleet,
        within: Duration,
    ) -> Result<Followed, CliError> {
        let deadline = started + within;
        let mut seen = Vec::new();
        let mut timeline = Timeline::default();
        let (mut sealed_ms, mut elapsed_ms) = (0, 0);
        let mut look = tokio::time::interval(LOOK);
        loop {
            let item = tokio::select! {
                item = self.tail.next() => item,
                _ = look.tick(), if self.out.interactive => { self.look().await; continue; }
                () = tokio::time::sleep_until(deadline) => {
                    return Err(CliError::Internal(format!("no final summary within {within:?}; {} summaries came", seen.len())));
                }
            };
            let Some(item) = item else { return Err(CliError::Internal("the log's tail ended".into())) };
            let messages = match item {
                TailItem::Messages(messages) => messages,
                TailItem::Reconnected => continue,
                // What is missing may be what is waited for.
                TailItem::Hole { from, to } => {
                    return Err(LedgerError::Damaged { from, to: to.saturating_sub(1) }.into());
                }
            };
            for message in messages {
                if message.seq == sealed_seq || message.subject.ends_with(".sealed") {
                    sealed_ms = message.time_ms;
                }
                let (id, logged) = match decode(message.seq, message.time_ms, &message.subject, &message.payload) {
                    Ok(LogEvent::Plan(id, logged)) => (id, logged),
                    Ok(LogEvent::Task(task, logged)) if task.plan == self.plan => {
                        timeline.note(logged.time_ms - sealed_ms, &logged.event);
                        continue;
                    }
                    _ => continue,
                };
                let PlanEvent::Summarised(summary) = logged.event else { continue };
                if id != self.plan {
                    continue;
                }
                let summary_seen = SeenSummary {
                    revision: summary.this.revision,
                    kind: summary.kind,
                    as_of_seq: summary.this.as_of_seq,
                    sha256: summary.this.sha256,
                    emitted_ms: logged.time_ms - sealed_ms,
                    total: summary.counts.total(),
                    counts: summary.counts,
                };
                self.tell(&summary_seen);
                let only_complete = seen.first().is_some_and(|s: &SeenSummary| s.kind == SummaryKind::Complete);
                if !only_complete {
                    elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
                }
                let kind = summary_seen.kind;
                seen.push(summary_seen);
                match kind {
                    SummaryKind::Partial => fleet.bring_back().await?,
                    SummaryKind::Final => {
                        self.bar.finish_and_clear();
                        return Ok(Followed { elapsed_ms, summaries: seen, timeline });
                    }
                    SummaryKind::Complete | SummaryKind::Update => {}
                }
            }
        }
    }

    async fn look(&self) {
        let record: Result<PlanRecord, _> =
            client::call(self.ledger.as_ref(), "plan", "get", &json!({ "planId": self.plan }), LOOK * 10).await;
        if let Ok(record) = record {
            let c = record.counts;
            self.bar.set_position(u64::from(c.succeeded));
            self.bar.set_message(format!(
                "{} running, {} pending, {} offline, {} timed out, {} failed, {} invalid",
                c.running, c.pending, c.offline, c.timed_out, c.failed, c.invalid
            ));
        }
    }

    fn tell(&self, summary: &SeenSummary) {
        let c = summary.counts;
        let kind = format!("{:?}", summary.kind).to_lowercase();
        let line = format!(
            "summary {} ({kind}) after {:.2} s: {} of {} succeeded, {} offline, {} timed out, {} failed, {} invalid, {} pending",
            summary.revision,
            summary.emitted_ms as f64 / 1000.0,
            c.succeeded,
            summary.total,
            c.offline,
            c.timed_out,
            c.failed,
            c.invalid,
            c.pending
        );
        self.bar.suspend(|| self.out.note(&line));
    }
}

/// The bytes of the plan's last summary.
pub(crate) async fn last_document(ledger: &dyn Ledger, plan: &PlanId) -> Result<Bytes, CliError> {
    let request = json!({ "planId": plan });
    let answer: fanfold_wire::api::SummaryAnswer = client::call(ledger, "summary", "get", &request, client::ANSWER_WAIT).await?;
    match ledger.get_object(&answer.object).await? {
        Some(bytes) => Ok(bytes),
        None => Err(CliError::Internal(format!("the document of summary {} is missing", answer.summary.this.revision))),
    }
}
