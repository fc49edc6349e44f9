//! The job of a run: plans submitted through the API, until every one has its complete summary. Times are the log's own.

use std::time::Duration;

use bytes::Bytes;
use fanfold_domain::event::TaskEvent;
use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::{PlanEvent, SummaryKind};
use fanfold_ledger::jetstream::{FloorSizes, JetStreamLedger};
use fanfold_ledger::port::{Buckets, Bus, Log, Objects, Stored};
use fanfold_process::clock::Clock;
use fanfold_terminal::crowd::crowd_id;
use fanfold_wire::api::{SubmitRequest, Submitted};
use fanfold_wire::digest::sha256_hex;
use fanfold_wire::event::{LogEvent, decode};
use fanfold_wire::subjects;
use futures::StreamExt;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use crate::client;
use crate::cmd::bench::BenchArgs;
use crate::error::CliError;

/// Between two looks at the log's last summary of a plan.
const LOOK: Duration = Duration::from_millis(2);
/// How long a run may take.
const RUN_WITHIN: Duration = Duration::from_secs(900);
/// Records whose size is looked at.
const SAMPLE: usize = 50;

/// What a run's job came to.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// From the first submission to the last summary.
    pub(crate) elapsed_ms: f64,
    /// From the first submission to the first result in the log.
    pub(crate) first_result_ms: f64,
    /// Of each plan: from its submission to its complete summary.
    pub(crate) plans_ms: Vec<f64>,
    /// Mean sizes of what a task needs.
    pub(crate) sizes: FloorSizes,
}

impl Job {
    /// Time of the slowest plan divided by the time of the fastest.
    pub(crate) fn spread(&self) -> f64 {
        let least = self.plans_ms.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.plans_ms.iter().copied().fold(0.0, f64::max);
        if least > 0.0 && least.is_finite() { most / least } else { 0.0 }
    }
}

fn internal(error: impl std::fmt::Display) -> CliError {
    CliError::Internal(error.to_string())
}

fn document(id: &PlanId, tasks: u32, window: u32) -> Result<Box<RawValue>, CliError> {
    let stores: Vec<String> = (0..tasks).map(crowd_id).collect();
    let value = json!({
        "planId": id, "type": "noop", "input": {}, "targets": { "stores": stores },
        "deadlineMs": 900_000, "expiresMs": 1_800_000, "limits": { "inFlight": window },
    });
    to_raw_value(&value).map_err(internal)
}

/// A request as a client makes it: a plan too large for a message goes by the object store.
pub(crate) async fn request(ledger: &JetStreamLedger, plan: Box<RawValue>) -> Result<SubmitRequest, CliError> {
    let mut request = SubmitRequest { plan: None, object: None, by: "bench".into(), traceparent: None };
    if plan.get().len() > ledger.max_payload() / 2 {
        let name = sha256_hex(plan.get().as_bytes());
        ledger.put_object(&name, Bytes::from(plan.get().to_owned())).await?;
        request.object = Some(name);
    } else {
        request.plan = Some(plan);
    }
    Ok(request)
}

/// Submits the plans of a run and waits for all of them.
pub(crate) async fn run(ledger: &JetStreamLedger, args: &BenchArgs, run: u32, done: impl Fn(u64)) -> Result<Job, CliError> {
    let nonce = uuid::Uuid::new_v4().simple().to_string();
    let nonce = nonce.get(..8).unwrap_or_default();
    let mut plans = Vec::new();
    for n in 0..args.plans {
        let id = PlanId::new(&format!("bench_{nonce}_{run}_{n:03}")).map_err(internal)?;
        let request = request(ledger, document(&id, args.tasks_of(n), args.window())?).await?;
        plans.push((id, request));
    }
    let clock = Clock::system();
    let begun_ms = clock.now_ms();
    let submits = plans.iter().map(|(_, request)| async {
        let at_ms = clock.now_ms();
        let submitted: Submitted = client::call(ledger, "plan", "submit", request, client::SUBMIT_WAIT).await?;
        Ok::<_, CliError>((at_ms, submitted))
    });
    let submitted = futures::future::try_join_all(submits).await?;
    let (mut plans_ms, mut last_ms, mut first_ms) = (Vec::new(), begun_ms, i64::MAX);
    for ((id, _), (at_ms, submitted)) in plans.iter().zip(&submitted) {
        let summary = summarised(ledger, id).await?;
        done(u64::from(submitted.targets));
        plans_ms.push((summary.time_ms - at_ms) as f64);
        last_ms = last_ms.max(summary.time_ms);
    }
    let mut sizes = None;
    for ((id, _), (_, submitted)) in plans.iter().zip(&submitted) {
        let (seen, first_result_ms) = looked_at(ledger, id, submitted.sealed_seq).await?;
        first_ms = first_ms.min(first_result_ms);
        sizes.get_or_insert(seen);
    }
    let sizes = sizes.ok_or_else(|| CliError::Internal("no plan was measured".into()))?;
    let sizes = FloorSizes { record: record_size(ledger, &plans[0].0).await?, ..sizes };
    Ok(Job { elapsed_ms: (last_ms - begun_ms) as f64, first_result_ms: (first_ms - begun_ms) as f64, plans_ms, sizes })
}

/// Waits for a plan's first summary; anything but `complete` is an error.
async fn summarised(ledger: &JetStreamLedger, plan: &PlanId) -> Result<Stored, CliError> {
    let subject = subjects::plan_event(plan, "summarised");
    let begun = Instant::now();
    let last = loop {
        match ledger.last_under(&subject).await? {
            Some(last) => break last,
            None if begun.elapsed() > RUN_WITHIN => {
                return Err(CliError::Internal(format!("{plan} has no summary after {RUN_WITHIN:?}")));
            }
            None => tokio::time::sleep(LOOK).await,
        }
    };
    // The final one may follow at once; what counts is when the first was there.
    let mut summaries = ledger.read(vec![subject], 1, last.seq).await?;
    let first = summaries.next().await.ok_or_else(|| CliError::Internal("the summary has gone".into()))??;
    match decode(first.seq, first.time_ms, &first.subject, &first.payload).map_err(internal)? {
        LogEvent::Plan(_, logged) => match logged.event {
            PlanEvent::Summarised(s) if s.kind == SummaryKind::Complete && u64::from(s.counts.succeeded) == s.counts.total() => {
                Ok(first)
            }
            PlanEvent::Summarised(s) => Err(CliError::Internal(format!("{plan} ended {:?} with {:?}", s.kind, s.counts))),
            other => Err(CliError::Internal(format!("{plan}: {} is no summary", other.name()))),
        },
        _ => Err(CliError::Internal(format!("#{} is no plan event", first.seq))),
    }
}

/// Mean sizes of a plan's first messages, and when its first result came.
async fn looked_at(ledger: &JetStreamLedger, plan: &PlanId, from: u64) -> Result<(FloorSizes, i64), CliError> {
    let mut events = ledger.read(vec![subjects::plan_tasks_filter(plan)], from, u64::MAX).await?;
    let (mut dispatches, mut results, mut first_ms) = (Vec::new(), Vec::new(), i64::MAX);
    while let Some(message) = events.next().await {
        let message = message?;
        let LogEvent::Task(_, logged) =
            decode(message.seq, message.time_ms, &message.subject, &message.payload).map_err(internal)?
        else {
            continue;
        };
        match logged.event {
            TaskEvent::Dispatched(_) if dispatches.len() < SAMPLE => dispatches.push(message.payload.len()),
            TaskEvent::Succeeded { .. } => {
                first_ms = first_ms.min(message.time_ms);
                results.push(message.payload.len());
                if results.len() >= SAMPLE {
                    break;
                }
            }
            _ => {}
        }
    }
    Ok((FloorSizes { dispatch: mean(&dispatches), result: mean(&results), record: 0 }, first_ms))
}

fn mean(sizes: &[usize]) -> usize {
    sizes.iter().sum::<usize>() / sizes.len().max(1)
}

async fn record_size(ledger: &JetStreamLedger, plan: &PlanId) -> Result<usize, CliError> {
    let records = ledger.list_state(&format!("task.{plan}.>")).await?.take(SAMPLE);
    let sizes: Vec<usize> = records.filter_map(|r| async { r.ok().map(|r| r.value.len()) }).collect().await;
    Ok(mean(&sizes))
}

/// Waits until the projector's checkpoint is at the log's end: what a run costs has been spent by then.
pub(crate) async fn settled(ledger: &JetStreamLedger) -> Result<(), CliError> {
    let begun = Instant::now();
    let last_seq = ledger.last_seq().await?;
    loop {
        let checkpoint = ledger.get_checkpoint().await?;
        let parsed = checkpoint.and_then(|e| fanfold_wire::record::Checkpoint::parse(&e.value));
        if parsed.is_some_and(|c| c.seq >= last_seq) {
            return Ok(());
        }
        if begun.elapsed() > RUN_WITHIN {
            return Err(CliError::Internal(format!("the state bucket did not reach #{last_seq}")));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
