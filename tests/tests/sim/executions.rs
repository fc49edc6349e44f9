//! The handlers' own account against what HQ was told and what it made of it.

use std::collections::{BTreeMap, BTreeSet};

use fanfold_domain::task::TaskState;
use fanfold_tests::world::terminal::{Act, How};
use fanfold_wire::event::Envelope;
use fanfold_wire::terminal::{ReportStatus, split_batch};
use serde_json::Value;

use super::history::{Fate, Sim};
use super::script::act_of;

/// Ends of attempts that HQ has answered for good, `task/attempt`, and when it did first, ms.
fn settled(sim: &Sim) -> BTreeMap<String, u64> {
    let mut settled = BTreeMap::new();
    for answered in &sim.weather.lock().unwrap().answered {
        let reports = split_batch(&answered.request).unwrap_or_default();
        for result in answered.answer.answers.iter().filter(|r| r.status != ReportStatus::Retry) {
            let Some(Ok(envelope)) = reports.get(result.index as usize).map(|r| Envelope::parse(r.get().as_bytes())) else {
                continue;
            };
            if matches!(envelope.name(), Ok("attempt.succeeded" | "attempt.failed" | "attempt.stopped")) {
                let data: Value = serde_json::from_str(envelope.data.get()).unwrap();
                let key = format!("{}/{}", envelope.subject.as_deref().unwrap_or(""), data["attempt"]);
                settled.entry(key).or_insert(answered.at_ms);
            }
        }
    }
    settled
}

/// Of terminals that never lost power, disk or name: what they finished was answered, and no task ran again while a success of it was
/// not. (Afterwards it may: a hand-out that was decided before the success was in view can arrive when the terminal has been told that it
/// may forget it. It is asked to stop.)
pub fn are_accounted_for(sim: &Sim) {
    let settled = settled(sim);
    let mut succeeded: BTreeMap<String, (u32, u64)> = BTreeMap::new();
    for execution in sim.w.account.executions() {
        let (store, task) = (execution.terminal.as_str(), execution.task.to_string());
        if sim.tainted.contains(store) || sim.fates[store] != Fate::Ordinary {
            continue;
        }
        if let Some((before, answered_ms)) = succeeded.get(&task) {
            assert!(execution.begun_ms > *answered_ms, "{execution:?}, and attempt {before} had succeeded there unanswered");
        }
        if matches!(execution.ended, Some((_, How::Done | How::Failed))) {
            let key = format!("{task}/{}", execution.attempt);
            assert!(settled.contains_key(&key), "{execution:?} was never answered");
        }
        let good = matches!(
            act_of(sim.seed, &execution.task, execution.attempt),
            Act::Succeed(_) | Act::SucceedQuietly(_) | Act::Steps(_)
        );
        if good && matches!(execution.ended, Some((_, How::Done))) {
            let answered_ms = settled.get(&format!("{task}/{}", execution.attempt)).copied().unwrap_or(u64::MAX);
            succeeded.insert(task, (execution.attempt, answered_ms));
        }
    }
}

/// A result that counts is one that a handler returned.
pub async fn results_are_real(sim: &Sim) {
    let done: BTreeSet<(String, u64)> = sim
        .w
        .account
        .executions()
        .into_iter()
        .filter(|e| matches!(e.ended, Some((_, How::Done))))
        .map(|e| (e.task.to_string(), u64::from(e.attempt)))
        .collect();
    for plan in &sim.plans {
        let view = sim.w.view(plan).await;
        for (i, task) in view.tasks.iter().enumerate().filter(|(_, t)| t.state == TaskState::Succeeded) {
            let id = view.task_id(i).unwrap().to_string();
            let result: Value = serde_json::from_str(task.result.as_ref().unwrap().0.get()).unwrap();
            let n = result["n"].as_u64().unwrap_or_else(|| panic!("{id} SUCCEEDED with {result}"));
            assert!(done.contains(&(id.clone(), n)), "{id} SUCCEEDED with the result of attempt {n}, which no handler returned");
        }
    }
}
