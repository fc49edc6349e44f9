//! One flush: from what changed to records.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use fanfold_domain::ids::PlanId;
use fanfold_domain::view::PlanView;
use fanfold_ledger::open::{Changes, PlanChange, fold_plan};
use fanfold_ledger::port::LedgerError;
use fanfold_wire::record::{PlanRecord, TaskRecord, plan_key, task_key};

use crate::Deps;

/// Tasks encoded while the fold waits.
const TASKS_PER_LOCK: usize = 2_000;

/// What of a plan its tasks' records depend on.
type Facts = (bool, bool, bool, bool, Option<u64>);

fn facts(view: &PlanView) -> Facts {
    let plan = &view.plan;
    (
        plan.deadline_seq.is_some(),
        plan.close.is_some(),
        plan.cancel.is_some(),
        plan.closed_seq.is_some(),
        plan.requeues.last().map(|r| r.seq),
    )
}

/// Plans that aren't over, with the sequence of their submission; with them every plan this build can't fold, over or not: a build
/// that can has still to write their records.
pub(crate) fn open_plans(deps: &Deps) -> BTreeMap<PlanId, u64> {
    let model = deps.open.read();
    let unsupported = model.unsupported().map(|(id, plan)| (id.clone(), plan.submitted_seq));
    model.open().map(|v| (v.plan.id().clone(), v.plan.submitted_seq)).chain(unsupported).collect()
}

/// Remembers what the last flush knew of each plan.
#[derive(Default)]
pub(crate) struct Flush {
    facts: HashMap<PlanId, Facts>,
}

impl Flush {
    /// Writes every record that changed; returns after every ack.
    pub(crate) async fn write(&mut self, deps: &Deps, taken: &Changes) -> Result<(), LedgerError> {
        for (plan, change) in taken {
            if deps.open.read().plan(plan).is_none() {
                // So many plans ended at once that the fold could not keep this one for us.
                self.facts.remove(plan);
                let seq = deps.open.read().seq();
                self.write_ended(deps, plan, seq).await?;
                continue;
            }
            let tasks = self.tasks(deps, plan, change);
            for chunk in tasks.chunks(TASKS_PER_LOCK) {
                let records = task_records(deps, plan, chunk);
                deps.ledger.put_state(records).await?;
            }
            let record = deps.open.read().plan(plan).and_then(|v| encode(plan_key(plan), &PlanRecord::of(v)));
            if let Some(record) = record {
                deps.ledger.put_state(vec![record]).await?;
            }
        }
        Ok(())
    }

    /// Writes every record of a plan the fold no longer has, from the log.
    pub(crate) async fn write_ended(&self, deps: &Deps, plan: &PlanId, seq: u64) -> Result<(), LedgerError> {
        let Some(view) = fold_plan(deps.ledger.as_ref(), plan, seq).await? else { return Ok(()) };
        for begin in (0..view.tasks.len()).step_by(TASKS_PER_LOCK) {
            let tasks: Vec<u32> = (begin..view.tasks.len().min(begin + TASKS_PER_LOCK)).map(|i| i as u32).collect();
            deps.ledger.put_state(records_of(&view, &tasks)).await?;
        }
        deps.ledger.put_state(encode(plan_key(plan), &PlanRecord::of(&view)).into_iter().collect()).await
    }

    /// Indexes of the tasks whose records may differ from what is written.
    fn tasks(&mut self, deps: &Deps, plan: &PlanId, change: &PlanChange) -> Vec<u32> {
        let model = deps.open.read();
        let Some(view) = model.plan(plan) else {
            self.facts.remove(plan);
            return Vec::new();
        };
        let now = facts(view);
        let before = self.facts.insert(plan.clone(), now);
        if view.is_over() {
            self.facts.remove(plan);
        }
        if change.whole {
            return (0..view.tasks.len() as u32).collect();
        }
        let mut tasks: BTreeSet<u32> = change.tasks.iter().copied().collect();
        if before != Some(now) {
            // These records show what the plan's own events imply: their set, whether they may be requeued, what happens next.
            let may_differ = |i: &usize| !view.finals.contains(*i) || view.not_succeeded.contains(*i);
            tasks.extend((0..view.tasks.len()).filter(may_differ).map(|i| i as u32));
        }
        tasks.into_iter().collect()
    }
}

fn task_records(deps: &Deps, plan: &PlanId, tasks: &[u32]) -> Vec<(String, Bytes)> {
    let model = deps.open.read();
    model.plan(plan).map(|view| records_of(view, tasks)).unwrap_or_default()
}

fn records_of(view: &PlanView, tasks: &[u32]) -> Vec<(String, Bytes)> {
    let touched = tasks.iter().filter(|i| view.tasks.get(**i as usize).is_some_and(|t| t.seq > 0));
    touched.filter_map(|i| TaskRecord::of(view, *i as usize)).filter_map(|r| encode(task_key(&r.task_id), &r)).collect()
}

fn encode(key: String, record: &impl serde::Serialize) -> Option<(String, Bytes)> {
    match serde_json::to_vec(record) {
        Ok(text) => Some((key, Bytes::from(text))),
        Err(error) => {
            tracing::error!(key, %error, "a record can't be encoded; readers will not see it");
            None
        }
    }
}
