//! The eight sets. A task is at every moment in exactly one; they add up to the sealed count, always.

use serde::{Deserialize, Serialize};

use crate::bits::Bits;
use crate::plan::Plan;
use crate::task::{FailReason, Outcome, Task, TaskState};

/// One of the eight sets of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TaskSet {
    /// SUCCEEDED.
    Succeeded,
    /// FAILED otherwise.
    Failed,
    /// FAILED with a result that breaks its schema.
    Invalid,
    /// Timed out or lost, or still out after the deadline.
    TimedOut,
    /// Waiting for a terminal that is offline, or expired while waiting.
    Offline,
    /// Handed out or running before the deadline.
    Running,
    /// Everything else.
    Pending,
    /// CANCELLED.
    Cancelled,
}

impl TaskSet {
    /// All eight, in the order of [`SetCounts`].
    pub const ALL: [TaskSet; 8] = [
        TaskSet::Succeeded,
        TaskSet::Failed,
        TaskSet::Invalid,
        TaskSet::TimedOut,
        TaskSet::Offline,
        TaskSet::Running,
        TaskSet::Pending,
        TaskSet::Cancelled,
    ];

    /// Stable name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            TaskSet::Succeeded => "succeeded",
            TaskSet::Failed => "failed",
            TaskSet::Invalid => "invalid",
            TaskSet::TimedOut => "timedOut",
            TaskSet::Offline => "offline",
            TaskSet::Running => "running",
            TaskSet::Pending => "pending",
            TaskSet::Cancelled => "cancelled",
        }
    }
}

/// How many tasks are in each set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetCounts {
    /// See [`TaskSet::Succeeded`].
    pub succeeded: u32,
    /// See [`TaskSet::Failed`].
    pub failed: u32,
    /// See [`TaskSet::Invalid`].
    pub invalid: u32,
    /// See [`TaskSet::TimedOut`].
    pub timed_out: u32,
    /// See [`TaskSet::Offline`].
    pub offline: u32,
    /// See [`TaskSet::Running`].
    pub running: u32,
    /// See [`TaskSet::Pending`].
    pub pending: u32,
    /// See [`TaskSet::Cancelled`].
    pub cancelled: u32,
}

impl SetCounts {
    /// The count of one set.
    pub fn get(&self, set: TaskSet) -> u32 {
        match set {
            TaskSet::Succeeded => self.succeeded,
            TaskSet::Failed => self.failed,
            TaskSet::Invalid => self.invalid,
            TaskSet::TimedOut => self.timed_out,
            TaskSet::Offline => self.offline,
            TaskSet::Running => self.running,
            TaskSet::Pending => self.pending,
            TaskSet::Cancelled => self.cancelled,
        }
    }

    /// Counts one task.
    pub fn count(&mut self, set: TaskSet) {
        *self.slot(set) += 1;
    }

    fn slot(&mut self, set: TaskSet) -> &mut u32 {
        match set {
            TaskSet::Succeeded => &mut self.succeeded,
            TaskSet::Failed => &mut self.failed,
            TaskSet::Invalid => &mut self.invalid,
            TaskSet::TimedOut => &mut self.timed_out,
            TaskSet::Offline => &mut self.offline,
            TaskSet::Running => &mut self.running,
            TaskSet::Pending => &mut self.pending,
            TaskSet::Cancelled => &mut self.cancelled,
        }
    }

    /// The sum of all eight.
    pub fn total(&self) -> u64 {
        TaskSet::ALL.iter().map(|s| u64::from(self.get(*s))).sum()
    }
}

/// Which tasks of a plan are in which set, as if its deadline had not been reached: the tasks themselves, not numbers of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members([Bits; 8]);

impl Members {
    /// The tasks of one set.
    pub fn of(&self, set: TaskSet) -> &Bits {
        &self.0[set as usize]
    }

    /// Puts a task into a set, out of the one it was in.
    pub(crate) fn put(&mut self, task: usize, before: Option<TaskSet>, now: TaskSet) {
        if let Some(before) = before.filter(|set| *set != now) {
            self.0[before as usize].set(task, false);
        }
        self.0[now as usize].set(task, true);
    }

    /// How many are in each set of this plan.
    pub fn counts(&self, plan: &Plan) -> SetCounts {
        let mut counts = SetCounts::default();
        for set in TaskSet::ALL {
            *counts.slot(in_plan(plan, set)) += u32::try_from(self.of(set).count()).unwrap_or(u32::MAX);
        }
        counts
    }
}

/// The set of a task as if its plan's deadline had not been reached; first match wins.
pub fn base_set(task: &Task) -> TaskSet {
    match task.state {
        TaskState::Succeeded => TaskSet::Succeeded,
        TaskState::Cancelled => TaskSet::Cancelled,
        TaskState::Failed if task.last_outcome == Some(Outcome::Invalid) => TaskSet::Invalid,
        TaskState::Pending if task.is_offline() => TaskSet::Offline,
        TaskState::Failed if task.failure == Some(FailReason::Expired) && task.is_offline() => TaskSet::Offline,
        TaskState::Pending | TaskState::Failed if task.last_timed_out_or_lost() => TaskSet::TimedOut,
        TaskState::Failed => TaskSet::Failed,
        TaskState::Dispatched | TaskState::Running => TaskSet::Running,
        TaskState::Pending => TaskSet::Pending,
    }
}

/// The set of a task of this plan.
pub fn set_of(plan: &Plan, task: &Task) -> TaskSet {
    in_plan(plan, base_set(task))
}

/// What a set is once the plan's deadline is reached.
fn in_plan(plan: &Plan, set: TaskSet) -> TaskSet {
    match set {
        TaskSet::Running if plan.deadline_seq.is_some() => TaskSet::TimedOut,
        set => set,
    }
}

/// Sequence of the last change of what the summary's row of this task shows.
pub fn row_changed_seq(plan: &Plan, task: &Task) -> u64 {
    match plan.deadline_seq {
        Some(deadline) if task.state.is_live() => task.row_seq.max(deadline),
        _ => task.row_seq,
    }
}

#[cfg(test)]
mod tests;
