//! A plan with its tasks, folded in memory: what every policy looks at.

use crate::bits::Bits;
use crate::event::LoggedTaskEvent;
use crate::fold::{self, Effect};
use crate::ids::{StageId, TargetId, TaskId};
use crate::plan::{LoggedPlanEvent, Plan, PlanEvent};
use crate::sets::{Members, SetCounts, TaskSet, base_set};
use crate::task::{Absorbed, TaskState};
use crate::tasks::Tasks;

/// A plan and one task a target, in target order.
#[derive(Debug, Clone)]
pub struct PlanView {
    /// The plan.
    pub plan: Plan,
    /// Its tasks; same order as `plan.targets`.
    pub tasks: Tasks,
    /// The one stage.
    pub stage: StageId,
    /// Which tasks are in which of the eight sets.
    pub members: Members,
    /// Tasks that have ended.
    pub finals: Bits,
    /// Tasks DISPATCHED or RUNNING.
    pub live: Bits,
    /// Tasks that are FAILED or CANCELLED.
    pub not_succeeded: Bits,
    /// Tasks that are live and to be cancelled.
    pub cancelling: Bits,
    /// Tasks with an open attempt besides the live one.
    pub superseded: Bits,
    /// Sequence of the last event that changed what a summary's row shows, of any task.
    pub row_seq: u64,
    /// Sequence of the last event of this plan, of its own or of its tasks.
    pub last_seq: u64,
    /// Events about targets that are not in the sealed list: counted, nothing else.
    pub unknown: u32,
    absorbed: Absorbed,
}

impl PlanView {
    /// Begins a view with `plan.submitted`; `None` for any other event (the log does not hold the plan's beginning), and for a plan
    /// whose rules this build does not have (see [`crate::rules`]): there is no view of it.
    pub fn begin(logged: &LoggedPlanEvent) -> Option<Self> {
        let PlanEvent::Submitted(spec) = &logged.event else { return None };
        Some(Self {
            plan: Plan::begin((**spec).clone(), logged.seq, logged.time_ms).ok()?,
            tasks: Tasks::default(),
            stage: StageId::main(),
            members: Members::default(),
            finals: Bits::default(),
            live: Bits::default(),
            not_succeeded: Bits::default(),
            cancelling: Bits::default(),
            superseded: Bits::default(),
            row_seq: 0,
            last_seq: logged.seq,
            unknown: 0,
            absorbed: Absorbed::default(),
        })
    }

    /// Folds a plan event.
    pub fn apply_plan(&mut self, logged: &LoggedPlanEvent) {
        self.apply_plan_after(logged, None);
    }

    /// Folds a plan event that says which of the plan's events is the last before it; one that is not there is a hole.
    pub fn apply_plan_after(&mut self, logged: &LoggedPlanEvent, before_seq: Option<u64>) {
        if logged.seq <= self.last_seq {
            return;
        }
        if self.is_over() && !self.plan.takes_final(&logged.event) {
            self.plan.ignored += 1;
            return;
        }
        if let Some(missing) = before_seq.filter(|seq| *seq > self.plan.plan_seq) {
            self.plan.note_hole(missing, missing);
        }
        self.last_seq = logged.seq;
        self.plan.apply(logged);
        let known = self.tasks.len();
        self.tasks.grow(self.plan.targets.len());
        (known..self.tasks.len()).for_each(|index| self.members.put(index, None, TaskSet::Pending));
    }

    /// Folds a task event; gives the task's index and what it did.
    pub fn apply_task(&mut self, target: &TargetId, logged: &LoggedTaskEvent) -> Option<(usize, Effect)> {
        self.apply_task_after(target, logged, None)
    }

    /// Folds a task event; a decision says which decision is the last before it, and one that is not there is a hole. Nothing is folded
    /// into a plan that is over: what every service may have forgotten must not depend on who still remembers it.
    pub fn apply_task_after(
        &mut self,
        target: &TargetId,
        logged: &LoggedTaskEvent,
        before_seq: Option<u64>,
    ) -> Option<(usize, Effect)> {
        if logged.seq <= self.last_seq || self.is_over() {
            return None;
        }
        self.last_seq = logged.seq;
        let Some(index) = self.plan.index_of(target.as_str()) else {
            self.unknown += 1;
            return None;
        };
        // The plan's own name of it: what the task holds of it is held once.
        let (target, task) = (self.plan.targets.get(index)?, self.tasks.get_mut(index)?);
        let missing = before_seq.filter(|seq| *seq > task.decision_seq);
        let before = base_set(task);
        let effect = fold::fold(&self.plan, target, &self.stage, task, logged);
        self.members.put(index, Some(before), base_set(task));
        self.finals.set(index, task.state.is_final());
        self.live.set(index, task.state.is_live());
        self.not_succeeded.set(index, matches!(task.state, TaskState::Failed | TaskState::Cancelled));
        self.cancelling.set(index, task.cancelling);
        self.superseded.set(index, task.superseded_open().next().is_some());
        self.row_seq = self.row_seq.max(task.row_seq);
        self.absorbed.count(effect);
        if let Some(missing) = missing {
            self.plan.note_hole(missing, missing);
        }
        Some((index, effect))
    }

    /// The id of the task at an index.
    pub fn task_id(&self, index: usize) -> Option<TaskId> {
        let target = self.plan.targets.get(index)?;
        Some(TaskId::new(self.plan.id().clone(), target.clone(), self.stage.clone()))
    }

    /// Whether every task has ended.
    pub fn all_final(&self) -> bool {
        self.plan.seal.is_some() && self.finals.count() == self.tasks.len()
    }

    /// The eight sets, counted from the tasks that are in them.
    pub fn counts(&self) -> SetCounts {
        self.members.counts(&self.plan)
    }

    /// What was folded without effect, over all tasks.
    pub fn absorbed(&self) -> Absorbed {
        Absorbed { foreign: self.absorbed.foreign + self.unknown, ..self.absorbed }
    }

    /// Whether every service may forget the plan: its final summary is in the log.
    pub fn is_over(&self) -> bool {
        self.plan.final_seq.is_some()
    }
}

#[cfg(test)]
mod tests;
