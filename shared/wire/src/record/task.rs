//! `task.<taskId>` of the state bucket.

use fanfold_domain::Json;
use fanfold_domain::dispatch::requeue_due;
use fanfold_domain::ids::{PlanId, TaskId, TerminalId};
use fanfold_domain::retry::ErrorClass;
use fanfold_domain::sets::{TaskSet, set_of};
use fanfold_domain::summary::{NextStep, next};
use fanfold_domain::task::{Absorbed, Attempt, FailReason, Outcome, Step, TaskError, TaskState, Waiting};
use fanfold_domain::view::PlanView;
use serde::{Deserialize, Serialize};

/// One attempt of a task's record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptRecord {
    /// Number.
    pub number: u32,
    /// Who had it.
    pub terminal: TerminalId,
    /// Log time, epoch ms.
    pub dispatched_at: i64,
    /// Log time of the first sign of a run, epoch ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<i64>,
    /// Log time of its end, epoch ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<i64>,
    /// Named steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<TaskError>,
    /// How that was classed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ErrorClass>,
    /// HQ has asked for its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stop_requested: bool,
    /// It was handed out while another was live.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub superseded: bool,
}

impl From<&Attempt> for AttemptRecord {
    fn from(a: &Attempt) -> Self {
        Self {
            number: a.number,
            terminal: a.terminal.clone(),
            dispatched_at: a.dispatched_ms,
            started_at: a.started_ms(),
            ended_at: a.ended_ms(),
            steps: a.steps().to_vec(),
            outcome: a.outcome,
            error: a.error.as_deref().cloned(),
            class: a.class,
            stop_requested: a.stop_requested,
            superseded: a.superseded,
        }
    }
}

/// `task.<taskId>` of the state bucket.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskRecord {
    /// The task.
    pub task_id: TaskId,
    /// Its plan.
    pub parent_id: PlanId,
    /// Its target.
    pub store_id: String,
    /// Task type, `name@version`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The plan's input.
    pub input: Json,
    /// State.
    pub status: TaskState,
    /// Which of the eight sets it is in.
    pub set: TaskSet,
    /// Current attempt.
    pub attempt: u32,
    /// The result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// What went wrong last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<TaskError>,
    /// Why it FAILED.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailReason>,
    /// The plan's deadline, epoch ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<i64>,
    /// Stage.
    pub stage: String,
    /// The caller's own key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub business_key: Option<String>,
    /// Tries used up.
    pub retry_count: u32,
    /// Tries there are.
    pub max_retries: u32,
    /// Not before, epoch ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_trigger_time: Option<i64>,
    /// Log time of its first event, epoch ms.
    pub created_at: i64,
    /// Log time of its last change, epoch ms.
    pub updated_at: i64,
    /// Why it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// Who has or had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalId>,
    /// The whole chain: first and last 32.
    pub attempts: Vec<AttemptRecord>,
    /// Attempts left out of the middle.
    #[serde(default)]
    pub attempts_dropped: u32,
    /// What was folded without effect.
    pub absorbed: Absorbed,
    /// It came in after it had been given up.
    #[serde(default)]
    pub late: bool,
    /// A person may requeue it.
    pub can_retry: bool,
    /// A person should look.
    pub needs_attention: bool,
    /// What happens next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextStep>,
    /// Sequence of the last event folded.
    pub seq: u64,
    /// Sequence of the last decision folded.
    pub decision_seq: u64,
    /// W3C trace context of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

impl TaskRecord {
    /// The record of the task at `index`.
    pub fn of(view: &PlanView, index: usize) -> Option<Self> {
        let (task, plan) = (view.tasks.get(index)?, &view.plan);
        let task_id = view.task_id(index)?;
        let can_retry = task.state == TaskState::Failed
            && plan.close.is_none()
            && plan.cancel.is_none()
            && requeue_due(view, index).is_none();
        Some(Self {
            parent_id: plan.id().clone(),
            store_id: task_id.target.to_string(),
            stage: task_id.stage.to_string(),
            task_id,
            kind: format!("{}@{}", plan.spec.kind.name, plan.spec.kind.version),
            input: plan.spec.input.clone(),
            status: task.state,
            set: set_of(plan, task),
            attempt: task.attempt,
            result: task.result.as_ref().map(|r| r.0.clone()),
            error: task.error.as_deref().cloned(),
            failure: task.failure,
            deadline: plan.deadline_ms(),
            business_key: plan.spec.business_key.clone(),
            retry_count: task.tries,
            max_retries: plan.spec.retry.max_attempts,
            next_trigger_time: (task.not_before_ms > 0).then_some(task.not_before_ms),
            created_at: task.created_ms,
            updated_at: task.updated_ms,
            waiting: task.waiting,
            terminal: task.current().map(|a| a.terminal.clone()),
            attempts: task.attempts.iter().map(AttemptRecord::from).collect(),
            attempts_dropped: task.attempts_dropped(),
            absorbed: task.absorbed(),
            late: task.late,
            can_retry,
            needs_attention: task.needs_attention() && !task.state.is_final(),
            next: next(plan, task),
            seq: task.seq,
            decision_seq: task.decision_seq,
            traceparent: plan.spec.traceparent.clone(),
        })
    }
}

/// Key of a task's record.
pub fn task_key(task: &TaskId) -> String {
    format!("task.{task}")
}
