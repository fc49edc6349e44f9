//! Safety rules about plans and summaries that a log can break by itself: checked on each event, before it is taken.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use crate::message::PlanSaid;
use crate::plan::{Plan, Summary};
use crate::rules::requeue_due;

/// Most summaries of a plan.
const REVISIONS_MAX: u32 = 100;
/// Pause before the first update, in milliseconds; doubles with each revision.
const UPDATE_PAUSE_MS: i64 = 2_000;
/// Longest such pause, in milliseconds.
const UPDATE_PAUSE_MS_MAX: i64 = 300_000;

/// What is broken by an event of the plan that is about to be taken; `plan`: as it is before, `None` before its beginning.
pub(crate) fn broken_by_plan_event(id: &str, plan: Option<&Plan>, said: &PlanSaid) -> Vec<String> {
    let mut broken = Vec::new();
    broken_by_id(id, plan, said, &mut broken);
    let Some(plan) = plan else {
        if said.name != "submitted" {
            broken.push(format!("has {} before its submission", said.name));
        }
        return broken;
    };
    if plan.is_over() {
        broken.push(format!("has {} after its final summary", said.name));
    }
    let once = [
        ("submitted", Some(0)),
        ("sealed", plan.sealed.map(|s| s.0)),
        ("deadline_reached", plan.deadline_seq),
        ("cancelled", plan.cancel_seq),
        ("closed", plan.closed_seq),
    ];
    if let Some((name, Some(seq))) = once.iter().find(|(name, _)| *name == said.name) {
        broken.push(format!("has {name} twice; the first is at {seq}"));
    }
    match said.name.as_str() {
        "targets" if plan.sealed.is_some() => broken.push("has targets after its seal".to_owned()),
        "sealed" => broken_by_seal(plan, said, &mut broken),
        "deadline_reached" => match plan.moment_ms("deadline") {
            Some(deadline_ms) if said.time_ms + plan.policy.clocks_apart_ms < deadline_ms => {
                broken.push(format!("reached its deadline {} ms before it", deadline_ms - said.time_ms));
            }
            Some(_) => {}
            None => broken.push("reached a deadline it does not have".to_owned()),
        },
        "cancelled" => broken_by_cancelled(plan, &mut broken),
        "closed" => broken_by_closed(plan, &mut broken),
        "requeue_requested" if plan.cancel_request_seq.is_some() || plan.close_seq.is_some() => {
            broken.push("takes a requeue request after it was to be cancelled or closed".to_owned());
        }
        _ => {}
    }
    broken
}

/// Ids name the plan's event before; those of the batch that makes the plan name 0, and chunks only their number.
fn broken_by_id(id: &str, plan: Option<&Plan>, said: &PlanSaid, broken: &mut Vec<String>) {
    let digest = hex::encode(Sha256::digest(said.data.as_bytes()));
    let named = |seq: u64| format!("{id}/{}/{seq}/{}", said.name, digest.get(..16).unwrap_or_default());
    let before = plan.map_or(0, |p| p.plan_seq);
    let right = match said.name.as_str() {
        "targets" => said.id.strip_prefix(&format!("{id}/targets/")).is_some_and(|k| k.parse::<u64>().is_ok()),
        "sealed" => said.id == named(before) || said.id == named(0),
        _ => said.id == named(before),
    };
    if !right {
        broken.push(format!("has the id {:?} where the chain of its events asks for {:?}", said.id, named(before)));
    }
}

fn broken_by_seal(plan: &Plan, said: &PlanSaid, broken: &mut Vec<String>) {
    let (count, sha256) = (said.value["count"].as_u64(), said.value["sha256"].as_str().unwrap_or_default());
    if count != Some(plan.listed.len() as u64) {
        broken.push(format!("is sealed with {count:?} targets, but lists {}", plan.listed.len()));
    }
    let distinct: BTreeSet<&String> = plan.listed.iter().collect();
    if distinct.len() != plan.listed.len() {
        broken.push(format!("lists {} targets, but only {} different ones", plan.listed.len(), distinct.len()));
    }
    let mut hasher = Sha256::new();
    for target in &plan.listed {
        hasher.update(target.as_bytes());
        hasher.update(b"\n");
    }
    let ours = hex::encode(hasher.finalize());
    if ours != sha256 {
        broken.push(format!("is sealed with the digest {sha256:?}, but its list has {ours:?}"));
    }
}

fn broken_by_cancelled(plan: &Plan, broken: &mut Vec<String>) {
    if plan.cancel_request_seq.is_none() {
        broken.push("is cancelled, but nobody asked for it".to_owned());
    }
    let open: Vec<&str> = plan.tasks.values().filter(|t| !t.is_final() && !t.cancelling).map(|t| t.target.as_str()).collect();
    if let Some(first) = open.first() {
        broken.push(format!("is cancelled with {} tasks open that no cancel was decided for, such as {first}", open.len()));
    }
}

fn broken_by_closed(plan: &Plan, broken: &mut Vec<String>) {
    if plan.close_seq.is_none() {
        broken.push("is closed, but nobody asked for it".to_owned());
    }
    let open: Vec<&str> = plan.tasks.values().filter(|t| !t.is_final()).map(|t| t.target.as_str()).collect();
    if let Some(first) = open.first() {
        broken.push(format!("is closed with {} tasks that have not ended, such as {first}", open.len()));
    }
    if let Some(task) = plan.tasks.values().find(|t| requeue_due(plan, t)) {
        broken.push(format!("is closed while a requeue of {} is due", task.target));
    }
}

/// What is broken by a summary; `plan`: before it is taken.
pub(crate) fn broken_by_summary(plan: &Plan, summary: &Summary) -> Vec<String> {
    let mut broken = Vec::new();
    let before = plan.summaries.last();
    let revision = before.map_or(0, |s| s.revision) + 1;
    if summary.revision != revision {
        broken.push(format!("publishes revision {} where {revision} is next", summary.revision));
    }
    let named = summary.previous.clone();
    let wanted = before.map(|s| (s.revision, s.as_of_seq, s.sha256.clone()));
    if named != wanted {
        broken.push(format!("publishes a summary that follows {named:?}, but the one before is {wanted:?}"));
    }
    if summary.sha256.len() != 64 || !summary.sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        broken.push(format!("publishes a summary with {:?} for a digest", summary.sha256));
    }
    let as_of = summary.as_of_seq;
    if plan.event_seqs.binary_search(&as_of).is_err() {
        broken.push(format!("publishes a summary as of {as_of}, where no event of it is"));
    } else if as_of < plan.plan_seq {
        broken.push(format!("publishes a summary as of {as_of}, before its own event at {}", plan.plan_seq));
    }
    let (sets, open) = plan.sets_at(as_of);
    let differs: Vec<String> = (sets.iter())
        .filter(|(set, n)| summary.counts.get(**set) != Some(n))
        .map(|(set, n)| format!("{set} is {n}, not {:?}", summary.counts.get(*set)))
        .collect();
    if !differs.is_empty() || summary.counts.len() != sets.len() {
        broken.push(format!("publishes a summary that is wrong as of {as_of}: {}", differs.join(", ")));
    }
    broken_by_kind(plan, summary, open, &mut broken);
    broken_by_verdict(plan, summary, &mut broken);
    broken
}

fn broken_by_kind(plan: &Plan, summary: &Summary, open: i64, broken: &mut Vec<String>) {
    let before = plan.summaries.last();
    let lawful = matches!(
        (before.map(|s| s.kind.as_str()), summary.kind.as_str()),
        (None, "complete" | "partial") | (Some("complete" | "partial" | "update"), "update" | "final")
    );
    if !lawful {
        broken.push(format!("publishes a {} summary after {:?}", summary.kind, before.map(|s| &s.kind)));
    }
    match summary.kind.as_str() {
        "complete" => {
            if open > 0 {
                broken.push(format!("publishes a complete summary with {open} tasks that have not ended"));
            }
            if let Some(deadline_ms) = plan.moment_ms("deadline")
                && let Some(task) = plan
                    .tasks
                    .values()
                    .find(|t| t.ended().is_some_and(|(_, at_ms)| at_ms - plan.policy.clocks_apart_ms >= deadline_ms))
            {
                broken.push(format!("publishes a complete summary, but {} ended after the deadline", task.target));
            }
        }
        "partial" if plan.deadline_seq.is_none_or(|seq| seq > summary.as_of_seq) => {
            broken.push("publishes a partial summary before its deadline was reached".to_owned());
        }
        "update" => broken_by_pace(plan, summary, broken),
        "final" if plan.closed_seq != Some(summary.as_of_seq) => {
            broken.push(format!("publishes a final summary as of {}, but is closed at {:?}", summary.as_of_seq, plan.closed_seq));
        }
        _ => {}
    }
    if summary.revision > REVISIONS_MAX {
        broken.push(format!("publishes more than {REVISIONS_MAX} summaries"));
    }
}

fn broken_by_pace(plan: &Plan, summary: &Summary, broken: &mut Vec<String>) {
    let Some(before) = plan.summaries.last() else { return };
    let doublings = before.revision.saturating_sub(1).min(20);
    let due_ms = before.time_ms + (UPDATE_PAUSE_MS << doublings).min(UPDATE_PAUSE_MS_MAX);
    if summary.time_ms + plan.policy.clocks_apart_ms < due_ms {
        broken.push(format!("publishes an update {} ms before it is due", due_ms - summary.time_ms));
    }
    let tasks_said = |seq: &&u64| **seq > before.as_of_seq && **seq <= summary.as_of_seq && **seq != before.seq;
    if plan.event_seqs.iter().rev().take_while(|seq| **seq > before.as_of_seq).find(tasks_said).is_none() {
        broken.push("publishes an update though nothing was said since the summary before".to_owned());
    }
}

fn broken_by_verdict(plan: &Plan, summary: &Summary, broken: &mut Vec<String>) {
    let total = plan.tasks.len() as f64;
    let succeeded = summary.counts.get("succeeded").map_or(0.0, |n| *n as f64);
    let converge = &plan.submitted["converge"];
    let too_few = converge["below"] == "fail" && succeeded / total < converge["minSuccess"].as_f64().unwrap_or(1.0);
    let verdict = match (succeeded >= total, too_few) {
        (true, _) => "full",
        (false, true) => "failed",
        (false, false) => "reserved",
    };
    if summary.verdict != verdict {
        broken.push(format!("publishes the verdict {} where {succeeded} of {total} make it {verdict}", summary.verdict));
    }
}
