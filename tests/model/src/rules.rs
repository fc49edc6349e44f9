//! Safety rules about tasks that a log can break by itself: checked on each event, before it is taken.
//!
//! A writer may be behind the log, so a decision is held against what it must have seen: its own decision before (its id names it),
//! the end that made the task PENDING, and the fence with which its writer began to lead.

use std::collections::BTreeSet;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::message::{Said, What};
use crate::plan::Plan;
use crate::table::{CANCELLED, DISPATCHED, FAILED, PENDING, RUNNING};
use crate::task::Task;

/// In which states a task may be for a decision to be made about it.
const FITS: &[(What, &[&str])] = &[
    (What::Dispatched, &[PENDING]),
    (What::Deferred, &[PENDING]),
    (What::Released, &[PENDING]),
    (What::TimedOutDelivery, &[DISPATCHED]),
    (What::TimedOutRun, &[DISPATCHED, RUNNING]),
    (What::TimedOutProgress, &[RUNNING]),
    (What::Lost, &[DISPATCHED, RUNNING]),
    (What::CancelRequested, &[PENDING, DISPATCHED, RUNNING]),
    (What::Cancelled, &[DISPATCHED, RUNNING]),
    (What::Expired, &[PENDING, DISPATCHED, RUNNING]),
    (What::Requeued, &[FAILED]),
];

/// What is broken by an event about a task that is about to be taken. `leads_since`: the first fence of who leads dispatching.
pub(crate) fn broken_by_task_event(plan: &mut Plan, target: &str, said: &Said, leads_since: u64) -> Vec<String> {
    if said.by.is_some() {
        return broken_by_report(plan, target, said);
    }
    let Some(task) = plan.tasks.get(target) else {
        return vec![format!("decides {} about a target that is not in the list", said.name)];
    };
    let mut broken = Vec::new();
    let expected = format!("{}/{}/{}", task.id, said.name, task.decision_seq);
    if said.id != expected {
        broken.push(format!("has the id {:?} where the chain of decisions asks for {expected:?}", said.id));
    }
    let fits = FITS.iter().find(|(what, _)| *what == said.what).map(|(_, states)| *states);
    if let Some(states) = fits
        && !states.iter().any(|state| task.states_since_decision.contains(state))
    {
        let (name, seen) = (&said.name, &task.states_since_decision);
        broken.push(format!("decides {name}, but since the decision before the task was never {states:?}, only {seen:?}"));
    }
    match said.what {
        What::Dispatched => broken_by_dispatch(plan, task, said, leads_since, &mut broken),
        What::TimedOutDelivery | What::TimedOutRun | What::TimedOutProgress | What::Lost => {
            broken_by_conclusion(plan, task, said, &mut broken);
        }
        What::Deferred if task.state == PENDING && task.waiting == Some("offline") => {
            broken.push("defers a task that is deferred already".to_owned());
        }
        What::Cancelled if !task.cancelling && task.state != CANCELLED && task.is_live() => {
            broken.push("cancels an attempt that nobody was asked to stop".to_owned());
        }
        What::Expired if plan.close_seq.is_none() => broken.push("expires a task of a plan nobody asked to close".to_owned()),
        What::CancelRequested if plan.cancel_request_seq.is_none() => {
            broken.push("cancels a task of a plan nobody asked to cancel".to_owned());
        }
        What::Requeued => broken_by_requeue(plan, task, said, &mut broken),
        _ => {}
    }
    broken
}

fn broken_by_report(plan: &mut Plan, target: &str, said: &Said) -> Vec<String> {
    let mut broken = Vec::new();
    let (by, attempt) = (said.by.as_deref().unwrap_or_default(), said.attempt);
    let mut expected = format!("{}.{target}.main/{attempt}/{by}/{}", plan.id, said.name);
    if said.what == What::Progressed {
        expected = format!("{expected}/{}", said.k);
    }
    if said.id != expected {
        broken.push(format!("has the id {:?} where its subject and content ask for {expected:?}", said.id));
    }
    let content: [u8; 32] = Sha256::digest(said.data.as_bytes()).into();
    let first = *plan.report_ids.entry(said.id.clone()).or_insert(content);
    if first != content {
        broken.push(format!("stores another content under the id {:?}", said.id));
    }
    broken
}

fn broken_by_dispatch(plan: &Plan, task: &Task, said: &Said, leads_since: u64, broken: &mut Vec<String>) {
    let number = said.attempt;
    if task.attempt_of(number).is_some() {
        broken.push(format!("hands out attempt {number} a second time"));
    } else if number.checked_sub(1) != Some(task.last_attempt) {
        broken.push(format!("hands out attempt {number} after {}", task.last_attempt));
    }
    let terminal = said.fields.value("terminal");
    if terminal.as_str() != Some(&task.target) || said.token != task.target {
        broken.push(format!("hands the task out to {terminal} by the subject of {}", said.token));
    }
    if plan.sealed.is_none() {
        broken.push("hands out a task of a plan that is not sealed".to_owned());
    }
    let wanted = &plan.submitted;
    let same = said.fields.value("type") == wanted["type"]["name"]
        && said.fields.value("version") == wanted["type"]["version"]
        && said.fields.value("input") == wanted["input"]
        && said.fields.value("runTimeoutMs") == wanted["timeouts"]["runMs"];
    if !same {
        broken.push("hands out another work than the plan's: type, version, input or run timeout differ".to_owned());
    }
    if task.tries >= plan.policy.max_attempts {
        broken.push(format!("hands out after {} tries of {}", task.tries, plan.policy.max_attempts));
    }
    // Absent while it is out or over: then the wait was judged when it was PENDING, which the states say.
    let early = task.not_before_ms.0.saturating_sub(said.time_ms);
    if task.state == PENDING && early > plan.policy.clocks_apart_ms {
        broken.push(format!("hands out {early} ms before the pause after the last end is over"));
    }
    broken_by_plan_state(plan, task, said, leads_since, broken);
}

fn broken_by_plan_state(plan: &Plan, task: &Task, said: &Said, leads_since: u64, broken: &mut Vec<String>) {
    for (what, seq) in [("plan.cancelled", plan.cancel_seq), ("plan.closed", plan.closed_seq)] {
        if let Some(seq) = seq {
            broken.push(format!("hands out after {what} at {seq}"));
        }
    }
    let opened = task.history.iter().rev().find(|e| e.to == PENDING && e.from != PENDING).map_or(0, |e| e.seq);
    let seen = task.decision_seq.max(opened).max(leads_since).max(plan.sealed.map_or(0, |s| s.0));
    let stops = [
        ("plan.cancel_requested", plan.cancel_request_seq),
        ("plan.close_requested", plan.close_seq),
        ("plan.paused", plan.paused_seq),
    ];
    for (what, seq) in stops {
        if let Some(seq) = seq.filter(|seq| *seq < seen) {
            broken.push(format!("hands out at {} by who had seen {what} at {seq}: its view reached {seen}", said.seq));
        }
    }
}

fn broken_by_conclusion(plan: &Plan, task: &Task, said: &Said, broken: &mut Vec<String>) {
    let number = said.attempt;
    if number != task.attempt {
        broken.push(format!("concludes about attempt {number} where the current one is {}", task.attempt));
    }
    let Some(attempt) = task.attempt_of(number) else { return };
    let after = match said.what {
        What::TimedOutDelivery => "deliverMs",
        What::TimedOutRun => "runMs",
        What::TimedOutProgress => "progressMs",
        _ => return,
    };
    match plan.submitted["timeouts"][after].as_i64() {
        Some(ms) if said.time_ms.saturating_add(plan.policy.clocks_apart_ms) < attempt.dispatched_ms.saturating_add(ms) => {
            let passed = said.time_ms - attempt.dispatched_ms;
            broken.push(format!("{} of attempt {number} after {passed} ms where {after} is {ms}", said.name));
        }
        Some(_) => {}
        None => broken.push(format!("{} of attempt {number} where the plan has no {after}", said.name)),
    }
}

fn broken_by_requeue(plan: &Plan, task: &Task, said: &Said, broken: &mut Vec<String>) {
    let asked = said.fields.value("requestSeq").as_u64().unwrap_or(0);
    let Some((seq, selector)) = plan.requeues.iter().find(|(seq, _)| *seq == asked) else {
        broken.push(format!("requeues for a request at {asked} that is not there"));
        return;
    };
    if task.decision_seq > *seq {
        broken.push(format!("requeues for the request at {seq}, but decided at {} since", task.decision_seq));
    }
    // It may have succeeded late meanwhile; then there is nothing to hold against.
    if task.state == FAILED && !applies(plan, task, *seq, selector) {
        broken.push(format!("requeues for the request at {seq}, which does not mean this task"));
    }
    for (what, stop) in [("plan.cancelled", plan.cancel_seq), ("plan.closed", plan.closed_seq)] {
        if let Some(stop) = stop {
            broken.push(format!("requeues after {what} at {stop}"));
        }
    }
}

/// Whether a requeue request means this task: FAILED before it, and named by it.
fn applies(plan: &Plan, task: &Task, seq: u64, selector: &Value) -> bool {
    let failed_before = task.state == FAILED && task.ended().is_some_and(|(ended, _)| ended < seq);
    let named = match (&selector["tasks"], &selector["failed"]["codes"]) {
        (Value::Array(tasks), _) => tasks.iter().any(|t| t.as_str() == Some(&task.id)),
        (_, Value::Array(codes)) if !codes.is_empty() => codes.iter().any(|c| c.as_str() == task.error_code.as_deref()),
        _ => true,
    };
    failed_before && named && plan.closed_seq.is_none()
}

/// Whether a requeue of this task is asked for and not done.
pub(crate) fn requeue_due(plan: &Plan, task: &Task) -> bool {
    plan.requeues.iter().any(|(seq, selector)| task.decision_seq < *seq && applies(plan, task, *seq, selector))
}

/// What is broken by how much is out, after a dispatch was taken.
pub(crate) fn broken_by_caps(plan: &Plan, time_ms: i64) -> Option<String> {
    let former = plan.former_limits.iter().filter(|(_, until_ms)| time_ms < *until_ms).map(|(limit, _)| *limit);
    let limit = former.chain([plan.in_flight]).max()?;
    if (plan.out.len() + plan.out_beside.len()) as u64 <= limit {
        return None;
    }
    // Whoever was only slow comes on top: nobody could know when the next one was handed out.
    let tasks = |targets: &BTreeSet<String>| -> Vec<&Task> { targets.iter().filter_map(|t| plan.tasks.get(t)).collect() };
    let live = tasks(&plan.out).into_iter().filter(|t| !t.attempt_of(t.attempt).is_some_and(|a| a.revived)).count();
    let timeouts = &plan.submitted["timeouts"];
    let longest_ms = timeouts["deliverMs"].as_i64()?.saturating_add(timeouts["runMs"].as_i64()?);
    let counts = |t: &&Task| t.open_beside().any(|a| a.dispatched_ms.saturating_add(longest_ms) > time_ms);
    let beside = tasks(&plan.out_beside).into_iter().filter(counts).count();
    let out = (live + beside) as u64;
    (out > limit).then(|| format!("{out} tasks are out where the limit is {limit}: {live} live, {beside} with one to be stopped"))
}
