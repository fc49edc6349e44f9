//! A plan with its tasks, folded in memory: what every policy looks at.

use crate::bits::Bits;
use crate::event::LoggedTaskEvent;
use crate::fold::{self, Effect};
use crate::ids::{StageId, TargetId, TaskId};
use crate::plan::{LoggedPlanEvent, Plan, PlanEvent};
use crate::sets::{SetCounts, set_of};
use crate::task::{Absorbed, Task, TaskState};

/// A plan and one task a target, in target order.
#[derive(Debug, Clone)]
pub struct PlanView {
    /// The plan.
    pub plan: Plan,
    /// Its tasks; same order as `plan.targets`.
    pub tasks: Vec<Task>,
    /// The one stage.
    pub stage: StageId,
    /// Tasks that have ended.
    pub finals: Bits,
    /// Tasks DISPATCHED or RUNNING.
    pub live: Bits,
    /// Tasks that are FAILED or CANCELLED.
    pub not_succeeded: Bits,
    /// Tasks with an open attempt besides the live one.
    pub superseded: Bits,
    /// Sequence of the last event of this plan, of its own or of its tasks.
    pub last_seq: u64,
    /// Events about targets that are not in the sealed list: counted, nothing else.
    pub unknown: u32,
}

impl PlanView {
    /// Begins a view with `plan.submitted`; `None` for any other event (the log does not hold the plan's beginning), and for a plan
    /// whose rules this build does not have (see [`crate::rules`]): there is no view of it.
    pub fn begin(logged: &LoggedPlanEvent) -> Option<Self> {
        let PlanEvent::Submitted(spec) = &logged.event else { return None };
        Some(Self {
            plan: Plan::begin((**spec).clone(), logged.seq, logged.time_ms).ok()?,
            tasks: Vec::new(),
            stage: StageId::main(),
            finals: Bits::default(),
            live: Bits::default(),
            not_succeeded: Bits::default(),
            superseded: Bits::default(),
            last_seq: logged.seq,
            unknown: 0,
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
        self.tasks.resize_with(self.plan.targets.len(), Task::default);
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
        let Some(index) = self.plan.index.get(target).map(|i| *i as usize) else {
            self.unknown += 1;
            return None;
        };
        let task = self.tasks.get_mut(index)?;
        if let Some(missing) = before_seq.filter(|seq| *seq > task.decision_seq) {
            self.plan.note_hole(missing, missing);
        }
        let effect = fold::fold(&self.plan, target, &self.stage, task, logged);
        self.finals.set(index, task.state.is_final());
        self.live.set(index, task.state.is_live());
        self.not_succeeded.set(index, matches!(task.state, TaskState::Failed | TaskState::Cancelled));
        let superseded = task.superseded_open().next().is_some();
        self.superseded.set(index, superseded);
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

    /// The eight sets, counted from the tasks.
    pub fn counts(&self) -> SetCounts {
        let mut counts = SetCounts::default();
        for task in &self.tasks {
            counts.count(set_of(&self.plan, task));
        }
        counts
    }

    /// What was folded without effect, over all tasks.
    pub fn absorbed(&self) -> Absorbed {
        let mut sum = Absorbed::default();
        for task in &self.tasks {
            sum.add(&task.absorbed);
        }
        sum.foreign += self.unknown;
        sum
    }

    /// Whether every service may forget the plan: its final summary is in the log.
    pub fn is_over(&self) -> bool {
        self.plan.final_seq.is_some()
    }
}

#[cfg(test)]
mod tests;
