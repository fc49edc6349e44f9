//! One flush: from what changed to records.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use fanfold_domain::bits::Bits;
use fanfold_domain::ids::PlanId;
use fanfold_domain::planted::{self, Planted};
use fanfold_domain::view::PlanView;
use fanfold_ledger::open::{Changes, PlanChange, fold_plans};
use fanfold_ledger::port::LedgerError;
use fanfold_wire::record::{PlanRecord, TaskRecord, plan_key, task_key};

use crate::Deps;

/// Tasks encoded while the fold waits.
pub(crate) const TASKS_PER_LOCK: usize = 2_000;

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

/// Ended plans remembered; forgetting them costs a needless comparison at most.
const ENDED_REMEMBERED: usize = 4_096;
/// Plans that ended and are folded from the log at a time.
const ENDED_PER_READ: usize = 16;

/// Remembers what the last flush knew of each plan.
#[derive(Default)]
pub(crate) struct Flush {
    facts: HashMap<PlanId, Facts>,
    /// Tasks of each open plan that have a record.
    written: HashMap<PlanId, Bits>,
    /// Plans whose every record was written when they were over: nothing of them is new.
    ended: HashSet<PlanId>,
    /// Records put since the last look, and those of them whose key was new.
    pub(crate) puts: Puts,
}

/// How the bucket has grown by this writer's own puts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Puts {
    /// Records put.
    pub(crate) all: u64,
    /// Those whose key had no record before.
    pub(crate) new: u64,
}

impl Flush {
    /// Writes every record that changed; returns after every ack.
    pub(crate) async fn write(&mut self, deps: &Deps, taken: &Changes) -> Result<(), LedgerError> {
        for (plan, change) in taken {
            if deps.open.read().plan(plan).is_none() {
                // So many plans ended at once that the fold could not keep this one for us.
                self.facts.remove(plan);
                let seq = deps.open.read().seq();
                self.write_ended(deps, std::slice::from_ref(plan), seq).await?;
                continue;
            }
            let tasks = self.tasks(deps, plan, change);
            for chunk in tasks.chunks(TASKS_PER_LOCK) {
                let records = task_records(deps, plan, chunk);
                self.put_tasks(deps, plan, records).await?;
            }
            let record = deps.open.read().plan(plan).and_then(|v| plan_record(v).map(|record| (record, v.is_over())));
            if let Some((record, over)) = record {
                self.puts.new += u64::from(!self.written.contains_key(plan) && !self.ended.contains(plan));
                self.puts.all += 1;
                self.written.entry(plan.clone()).or_default();
                deps.ledger.put_state(vec![record]).await?;
                if over {
                    self.forget(plan);
                }
            }
        }
        Ok(())
    }

    fn forget(&mut self, plan: &PlanId) {
        self.written.remove(plan);
        if self.ended.len() >= ENDED_REMEMBERED {
            self.ended.clear();
        }
        self.ended.insert(plan.clone());
    }

    async fn put_tasks(&mut self, deps: &Deps, plan: &PlanId, records: Records) -> Result<(), LedgerError> {
        if records.is_empty() {
            return Ok(());
        }
        self.puts.all += records.len() as u64;
        if self.ended.contains(plan) {
            return deps.ledger.put_state(records.into_iter().map(|(_, record)| record).collect()).await;
        }
        if !self.written.contains_key(plan) {
            self.written.insert(plan.clone(), Bits::default());
            // Its own record has not been written yet; it is new, too.
            self.puts.new += 1;
        }
        let written = self.written.entry(plan.clone()).or_default();
        self.puts.new += records.iter().filter(|(index, _)| written.set(*index as usize, true)).count() as u64;
        deps.ledger.put_state(records.into_iter().map(|(_, record)| record).collect()).await
    }

    /// Writes every record of plans the fold no longer has, from the log.
    pub(crate) async fn write_ended(&mut self, deps: &Deps, plans: &[PlanId], seq: u64) -> Result<(), LedgerError> {
        for group in plans.chunks(ENDED_PER_READ) {
            for view in fold_plans(deps.ledger.as_ref(), group, seq).await? {
                let count = view.tasks.len();
                for begin in (0..count).step_by(TASKS_PER_LOCK) {
                    let tasks: Vec<u32> = (begin..count.min(begin + TASKS_PER_LOCK)).map(|i| i as u32).collect();
                    self.put_tasks(deps, view.plan.id(), records_of(&view, &tasks)).await?;
                }
                self.puts.all += 1;
                let known = self.written.contains_key(view.plan.id()) || self.ended.contains(view.plan.id());
                self.puts.new += u64::from(!known);
                self.forget(view.plan.id());
                deps.ledger.put_state(plan_record(&view).into_iter().collect()).await?;
            }
        }
        Ok(())
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
        if before != Some(now) && !planted::is(Planted::FactsNotProjected) {
            // These records show what the plan's own events imply: their set, whether they may be requeued, what happens next.
            let may_differ = |i: &usize| !view.finals.contains(*i) || view.not_succeeded.contains(*i);
            tasks.extend((0..view.tasks.len()).filter(may_differ).map(|i| i as u32));
        }
        tasks.into_iter().collect()
    }
}

/// Records of tasks with their indexes.
pub(crate) type Records = Vec<(u32, (String, Bytes))>;

fn task_records(deps: &Deps, plan: &PlanId, tasks: &[u32]) -> Records {
    let model = deps.open.read();
    model.plan(plan).map(|view| records_of(view, tasks)).unwrap_or_default()
}

/// The records of these tasks, as far as anything has happened to them.
pub(crate) fn records_of(view: &PlanView, tasks: &[u32]) -> Records {
    let touched = tasks.iter().filter(|i| view.tasks.get(**i as usize).is_some_and(|t| t.seq > 0));
    let record = |i: &u32| TaskRecord::of(view, *i as usize).and_then(|r| encode(task_key(&r.task_id), &r));
    touched.filter_map(|i| record(i).map(|record| (*i, record))).collect()
}

/// The plan's own record.
pub(crate) fn plan_record(view: &PlanView) -> Option<(String, Bytes)> {
    encode(plan_key(view.plan.id()), &PlanRecord::of(view))
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
