//! A past for a server: finished plans, written into the log as the product writes them, only faster.
//!
//! Plans are submitted through the API; hand-outs and results go into the log by atomic batches, and convergence and projector do what
//! they do. No terminal takes part, and no dispatcher may run meanwhile.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use fanfold_domain::Json;
use fanfold_domain::event::{Dispatched, PROTOCOL_VERSION, TaskEvent, Verdict};
use fanfold_domain::ids::{PlanId, StageId, TargetId, TaskId, TerminalId};
use fanfold_ledger::jetstream::JetStreamLedger;
use fanfold_ledger::port::{Append, Appended, Expect, Log};
use fanfold_terminal::crowd::{crowd_id, crowd_result};
use fanfold_wire::api::{Noted, PlanList, PlanListRequest, PlanRequest, Submitted};
use fanfold_wire::event::{Header, decision_id, encode, report_id, task_data};
use fanfold_wire::subjects;
use futures::{StreamExt, TryStreamExt};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use super::job;
use crate::client;
use crate::error::CliError;

/// Tasks of one batch: two events each.
const BATCH_TASKS: u32 = 500;
const BATCHES_IN_FLIGHT: usize = 4;
/// Tasks of the smallest plans.
const SMALL_MIN: u32 = 20;
/// One task of so many fails.
pub(crate) const FAILS_EVERY: u32 = 100;
/// How long the services may take to end all plans once their tasks have ended.
const ENDED_WITHIN: Duration = Duration::from_secs(900);
const LOOK: Duration = Duration::from_millis(100);

fn internal(error: impl std::fmt::Display) -> CliError {
    CliError::Internal(error.to_string())
}

/// Sizes of plans of together so many tasks: half of them in large plans, half in plans a hundredth of their size, or of 20.
pub(crate) fn sizes(tasks: u32) -> Vec<u32> {
    let large = (tasks / 10).clamp(1, 100_000);
    let small = (large / 100).max(SMALL_MIN);
    let mut sizes = vec![large; (tasks / 2 / large) as usize];
    let rest = tasks - sizes.iter().sum::<u32>();
    sizes.extend(vec![small; (rest / small) as usize]);
    sizes.extend(Some(rest % small).filter(|left| *left > 0));
    sizes
}

/// Writes finished plans of these sizes and waits until all plans but so many have ended and their records are written; `done` hears
/// of tasks.
///
/// # Errors
/// What the API or the log refuses.
pub(crate) async fn write(
    ledger: &JetStreamLedger,
    sizes: &[u32],
    open: u32,
    done: impl Fn(u64),
) -> Result<Vec<(PlanId, u32)>, CliError> {
    let nonce = uuid::Uuid::new_v4().simple().to_string();
    let nonce = nonce.get(..6).unwrap_or_default();
    let mut plans = Vec::with_capacity(sizes.len());
    for (n, size) in sizes.iter().enumerate() {
        let id = PlanId::new(&format!("past_{nonce}_{n:06}")).map_err(internal)?;
        submit(ledger, &id, *size, None).await?;
        finish(ledger, &id, *size, &done).await?;
        if *size >= FAILS_EVERY {
            // What failed may be tried again until somebody closes the plan.
            let request = PlanRequest { plan_id: id.clone(), by: "bench".into(), reason: String::new() };
            let _: Noted = client::call(ledger, "plan", "close", &request, client::SUBMIT_WAIT).await?;
        }
        plans.push((id, *size));
    }
    ended(ledger, open).await?;
    Ok(plans)
}

/// Submits a plan for the first stores of a crowd.
///
/// # Errors
/// What the API refuses.
pub(crate) async fn submit(
    ledger: &JetStreamLedger,
    id: &PlanId,
    tasks: u32,
    window: Option<u32>,
) -> Result<Submitted, CliError> {
    let stores: Vec<String> = (0..tasks).map(crowd_id).collect();
    let mut document = json!({
        "planId": id, "type": "noop", "input": {}, "targets": { "stores": stores },
        "deadlineMs": 3_600_000, "expiresMs": 7_200_000, "retry": { "maxAttempts": 1 },
    });
    if let Some(window) = window {
        document["limits"] = json!({ "inFlight": window });
    }
    let request = job::request(ledger, to_raw_value(&document).map_err(internal)?).await?;
    client::call(ledger, "plan", "submit", &request, client::SUBMIT_WAIT).await
}

/// Writes hand-out and end of the first so many tasks of a plan nobody has begun; `done` hears of them.
///
/// # Errors
/// What the log refuses.
pub(crate) async fn finish(ledger: &JetStreamLedger, plan: &PlanId, tasks: u32, done: &impl Fn(u64)) -> Result<(), CliError> {
    let input: Json = RawValue::from_string("{}".into()).map_err(internal)?.into();
    let batches = (0..tasks).step_by(BATCH_TASKS as usize).map(|from| {
        let input = Json::clone(&input);
        async move {
            let numbers = from..(from + BATCH_TASKS).min(tasks);
            let written = u64::from(numbers.end - numbers.start);
            let mut events = Vec::with_capacity(numbers.len() * 2);
            for n in numbers {
                events.extend(both(plan, n, &input)?);
            }
            match ledger.append_atomic(events).await? {
                Appended::Stored { .. } | Appended::Duplicate { .. } => Ok(written),
                other => Err(internal(format!("a batch of {plan} was refused: {other:?}"))),
            }
        }
    });
    let mut written = futures::stream::iter(batches).buffer_unordered(BATCHES_IN_FLIGHT);
    while let Some(tasks) = written.try_next().await? {
        done(tasks);
    }
    Ok(())
}

/// A task's hand-out and its end.
fn both(plan: &PlanId, n: u32, input: &Json) -> Result<[Append; 2], CliError> {
    let name = crowd_id(n);
    let terminal = TerminalId::new(&name).map_err(internal)?;
    let task = TaskId::new(plan.clone(), TargetId::new(&name).map_err(internal)?, StageId::main());
    let dispatched = TaskEvent::Dispatched(Box::new(Dispatched {
        protocol_version: PROTOCOL_VERSION,
        attempt: 1,
        terminal: terminal.clone(),
        journal: "0123456789abcdef0123456789abcdef".into(),
        boot: "fedcba9876543210fedcba9876543210".into(),
        kind: "noop".into(),
        version: 1,
        input: Json::clone(input),
        run_timeout_ms: 600_000,
    }));
    let ended = if n % FAILS_EVERY == FAILS_EVERY - 1 {
        TaskEvent::Failed {
            attempt: 1,
            code: "NO_FOLDER".into(),
            message: "there is no folder of that day".into(),
            run_ms: Some(3),
        }
    } else {
        let result = crowd_result(&name).map_err(internal)?.into();
        TaskEvent::Succeeded { attempt: 1, result, run_ms: Some(3), verdict: Verdict { valid: true, errors: Vec::new() } }
    };
    let (decision, report) = (decision_id(&task, &dispatched, 0), report_id(&task, &terminal, &ended));
    let expect = Expect { filter: subjects::task_decision_filter(&task), last_seq: 0 };
    let handed_out = subjects::task_decision(&task, Some(&terminal));
    Ok([
        append(&task, &dispatched, decision, handed_out, "/fanfold/dispatcher", Some(expect))?,
        append(&task, &ended, report, subjects::task_report(&task, &terminal), "/fanfold/terminal", None)?,
    ])
}

fn append(
    task: &TaskId,
    event: &TaskEvent,
    id: String,
    subject: String,
    source: &str,
    expect: Option<Expect>,
) -> Result<Append, CliError> {
    let name = task.to_string();
    let header = Header { id: &id, source, subject: &name, time_ms: None, traceparent: None };
    let payload = task_data(event).and_then(|data| encode(event.name(), &data, header)).map_err(internal)?;
    Ok(Append { subject, id, payload: Bytes::from(payload), expect })
}

/// Waits until no plan but so many is open and every record is written.
async fn ended(ledger: &JetStreamLedger, left: u32) -> Result<(), CliError> {
    let begun = Instant::now();
    let request = PlanListRequest { open: true, limit: Some(left + 1), after: None };
    loop {
        let open: PlanList = client::call(ledger, "plan", "list", &request, client::SUBMIT_WAIT).await?;
        if open.plans.len() <= left as usize {
            return job::settled(ledger).await;
        }
        if begun.elapsed() > ENDED_WITHIN {
            return Err(internal(format!("{} plans did not end in {ENDED_WITHIN:?}", open.plans.len())));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Every store that failed in a plan of a history, or none.
pub(crate) fn failed(size: u32) -> HashSet<String> {
    (0..size).filter(|n| n % FAILS_EVERY == FAILS_EVERY - 1).map(crowd_id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_the_tasks_are_in_large_plans() {
        let million = sizes(1_000_000);
        assert_eq!((million.iter().sum::<u32>(), million.len(), million.first()), (1_000_000, 505, Some(&100_000)));
        for tasks in [1, 7, 99, 400, 12_345, 3_000_000] {
            assert_eq!(sizes(tasks).iter().sum::<u32>(), tasks);
            assert!(sizes(tasks).iter().all(|size| *size > 0), "{tasks}");
        }
        assert_eq!(failed(250), HashSet::from([crowd_id(99), crowd_id(199)]));
    }
}
