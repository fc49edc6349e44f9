//! Pages of the tasks of plans that are over: found by the names of their records, and read by their keys.
//!
//! Nothing of such a plan changes any more. What is kept here says only where a page lies; what it shows is read each time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use fanfold_domain::ids::{PlanId, StageId, TargetId, TaskId};
use fanfold_domain::sets::TaskSet;
use fanfold_ledger::port::{Bucket, Ledger, LedgerError};
use fanfold_wire::api::TaskListRequest;
use fanfold_wire::record::{PlanRecord, TaskRecord, task_key};
use futures::StreamExt;
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::tasks::Page;

/// Plans kept, and bytes of all of them; a larger one is read anew for every page.
const PLANS_MAX: usize = 4_096;
const BYTES_MAX: usize = 64 << 20;
/// Of a plan with more tasks the records are listed; of others each is asked for by its key: for a list the server looks through all
/// there are of other plans, too.
const BY_KEY_MAX: usize = 20_000;

/// The tasks of a plan, in order.
struct Tasks {
    /// The targets, one behind the other, and where each ends.
    text: String,
    ends: Vec<u32>,
    /// The set of each; read when somebody asks for one.
    sets: OnceLock<Vec<TaskSet>>,
}

impl Tasks {
    fn of(targets: impl Iterator<Item = TargetId>) -> Self {
        let (mut text, mut ends) = (String::new(), Vec::new());
        for target in targets {
            text.push_str(target.as_str());
            ends.push(u32::try_from(text.len()).unwrap_or(u32::MAX));
        }
        Self { text, ends, sets: OnceLock::new() }
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn target(&self, index: usize) -> Option<&str> {
        let from = index.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())? as usize;
        self.text.get(from..*self.ends.get(index)? as usize)
    }

    fn bytes(&self) -> usize {
        // With room for the sets.
        self.text.len() + self.ends.len() * 5
    }
}

/// See the module. The plan used last is the last.
#[derive(Default)]
pub(crate) struct Closed {
    kept: Mutex<VecDeque<(PlanId, Arc<Tasks>)>>,
}

impl Closed {
    /// A page of a plan's tasks; `None`: its records are not all there, and the log must be asked.
    pub(crate) async fn page(
        &self,
        ledger: &dyn Ledger,
        plan: &PlanRecord,
        request: &TaskListRequest,
        limit: usize,
    ) -> Result<Option<Page>, LedgerError> {
        let Some(tasks) = self.tasks(ledger, plan).await? else { return Ok(None) };
        let offset = request.offset as usize;
        // Of a set that everything or nothing is in nobody needs to know what is in it.
        let of_set = request.set.map_or(plan.total, |set| plan.counts.get(set));
        let wanted: Vec<usize> = match request.set {
            Some(_) if of_set == 0 => Vec::new(),
            Some(set) if of_set < plan.total => {
                let Some(sets) = sets(ledger, &plan.plan_id, &tasks).await? else { return Ok(None) };
                let of_set = sets.iter().enumerate().skip(offset).filter(|(_, of)| **of == set);
                of_set.map(|(index, _)| index).take(limit + 1).collect()
            }
            _ => (offset..tasks.len()).take(limit + 1).collect(),
        };
        let more = wanted.get(limit).copied();
        let wanted = wanted.get(..limit).unwrap_or(&wanted);
        let keys: Option<Vec<String>> = wanted.iter().map(|index| key(&plan.plan_id, tasks.target(*index)?)).collect();
        let Some(keys) = keys else { return Ok(None) };
        let entries = ledger.get_many(Bucket::State, &keys).await?;
        let records: Vec<TaskRecord> = entries.iter().filter_map(|e| serde_json::from_slice(&e.value).ok()).collect();
        if records.len() < keys.len() || records.iter().any(|record| request.set.is_some_and(|set| set != record.set)) {
            // Lost, or put right since: it is not known any more where what lies.
            self.kept.lock().await.retain(|(id, _)| *id != plan.plan_id);
            return Ok(None);
        }
        Ok(Some((wanted.iter().copied().zip(records).collect(), more)))
    }

    async fn tasks(&self, ledger: &dyn Ledger, plan: &PlanRecord) -> Result<Option<Arc<Tasks>>, LedgerError> {
        let mut kept = self.kept.lock().await;
        let found = kept.iter().position(|(id, _)| *id == plan.plan_id).and_then(|at| kept.remove(at));
        let tasks = match found {
            Some((_, tasks)) => tasks,
            None => Arc::new(Tasks::of(targets(ledger, &plan.plan_id).await?.into_iter())),
        };
        // Where some are missing, or nothing ever happened to them, nothing can be said by their places.
        if tasks.len() != plan.total as usize {
            return Ok(None);
        }
        kept.push_back((plan.plan_id.clone(), Arc::clone(&tasks)));
        while kept.len() > PLANS_MAX || kept.iter().map(|(_, tasks)| tasks.bytes()).sum::<usize>() > BYTES_MAX {
            kept.pop_front();
        }
        Ok(Some(tasks))
    }
}

fn key(plan: &PlanId, target: &str) -> Option<String> {
    Some(task_key(&TaskId::new(plan.clone(), TargetId::new(target).ok()?, StageId::main())))
}

/// The targets that have a record, in their order. The server has the names in an index; the list itself lies somewhere in a compressed
/// block of the log.
async fn targets(ledger: &dyn Ledger, plan: &PlanId) -> Result<Vec<TargetId>, LedgerError> {
    let (from, stage) = (format!("task.{plan}."), format!(".{}", StageId::main()));
    let target = |key: &String| key.strip_prefix(from.as_str())?.strip_suffix(stage.as_str()).and_then(|t| TargetId::new(t).ok());
    let keys = ledger.keys(Bucket::State, &format!("{from}>")).await?;
    let mut targets: Vec<TargetId> = keys.iter().filter_map(target).collect();
    targets.sort_unstable();
    targets.dedup();
    Ok(targets)
}

/// The set of each task, from all records of the plan; `None`: some are missing.
async fn sets<'t>(ledger: &dyn Ledger, plan: &PlanId, tasks: &'t Tasks) -> Result<Option<&'t [TaskSet]>, LedgerError> {
    #[derive(Deserialize)]
    struct InSet {
        set: TaskSet,
    }
    if let Some(sets) = tasks.sets.get() {
        return Ok(Some(sets));
    }
    let set_of = |value: &[u8]| serde_json::from_slice::<InSet>(value).ok().map(|record| record.set);
    if tasks.len() <= BY_KEY_MAX {
        let keys: Option<Vec<String>> = (0..tasks.len()).map(|index| key(plan, tasks.target(index)?)).collect();
        let entries = ledger.get_many(Bucket::State, &keys.unwrap_or_default()).await?;
        let sets: Option<Vec<TaskSet>> = entries.iter().map(|entry| set_of(&entry.value)).collect();
        let sets = sets.filter(|sets| sets.len() == tasks.len());
        return Ok(sets.map(|sets| tasks.sets.get_or_init(|| sets).as_slice()));
    }
    let index: HashMap<&str, usize> = (0..tasks.len()).filter_map(|index| Some((tasks.target(index)?, index))).collect();
    let (from, stage) = (format!("task.{plan}."), format!(".{}", StageId::main()));
    let mut found: Vec<Option<TaskSet>> = vec![None; tasks.len()];
    let mut records = ledger.list_state(&format!("{from}>")).await?;
    while let Some(entry) = records.next().await {
        let entry = entry?;
        let target = entry.key.strip_prefix(from.as_str()).and_then(|rest| rest.strip_suffix(stage.as_str()));
        let place = target.and_then(|target| index.get(target)).and_then(|index| found.get_mut(*index));
        if let Some(place) = place {
            *place = set_of(&entry.value);
        }
    }
    let sets: Option<Vec<TaskSet>> = found.into_iter().collect();
    Ok(sets.map(|sets| tasks.sets.get_or_init(|| sets).as_slice()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_found_by_their_place() {
        let names = ["a", "SH_0312", "x-1"];
        let tasks = Tasks::of(names.iter().map(|name| TargetId::new(name).unwrap()));
        assert_eq!((0..3).map(|index| tasks.target(index).unwrap()).collect::<Vec<_>>(), names);
        assert_eq!((tasks.target(3), tasks.len()), (None, 3));
        assert_eq!(Tasks::of(std::iter::empty()).target(0), None);
    }
}
