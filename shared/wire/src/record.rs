//! Records of the state bucket and the registry: what readers of `fanfold-state` and `fanfold-terminals` see.

use std::collections::BTreeMap;

use fanfold_domain::Json;
use fanfold_domain::dispatch::requeue_due;
use fanfold_domain::ids::{PlanId, TaskId, TerminalId};
use fanfold_domain::plan::{SummaryKind, SummaryRef};
use fanfold_domain::retry::ErrorClass;
use fanfold_domain::sets::{SetCounts, TaskSet, set_of};
use fanfold_domain::summary::{NextStep, PlanVerdict, next, verdict};
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
            started_at: a.started_ms,
            ended_at: a.ended_ms,
            steps: a.steps.clone(),
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
        let can_retry = task.state == TaskState::Failed && plan.close.is_none() && plan.cancel.is_none() && requeue_due(view, index).is_none();
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
            attempts_dropped: task.attempts_dropped,
            absorbed: task.absorbed,
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

/// How far a plan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PlanStatus {
    /// Its tasks are being done.
    Open,
    /// Nothing more is dispatched; what is out is awaited or given up.
    Closing,
    /// Being cancelled.
    Cancelling,
    /// Its final summary is in the log.
    Closed,
}

/// `plan.<plan>` of the state bucket.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanRecord {
    /// The plan.
    pub plan_id: PlanId,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The caller's own key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub business_key: Option<String>,
    /// Task type, `name@version`.
    #[serde(rename = "type")]
    pub kind: String,
    /// How far it is.
    pub status: PlanStatus,
    /// Sealed count.
    pub total: u32,
    /// The eight sets.
    pub counts: SetCounts,
    /// Verdict as it stands.
    pub verdict: PlanVerdict,
    /// Log time of the seal, epoch ms.
    #[serde(default)]
    pub sealed_at: Option<i64>,
    /// Deadline, epoch ms.
    #[serde(default)]
    pub deadline: Option<i64>,
    /// Expiry, epoch ms.
    #[serde(default)]
    pub expires: Option<i64>,
    /// Who sealed it.
    #[serde(default)]
    pub by: String,
    /// The last summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<SummaryRef>,
    /// Its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary_kind: Option<SummaryKind>,
    /// What was folded without effect, over all tasks.
    pub absorbed: Absorbed,
    /// SHA-256 of its content.
    pub content_sha256: String,
    /// SHA-256 of its target list.
    #[serde(default)]
    pub targets_sha256: String,
    /// Sequence of the last event folded.
    pub seq: u64,
    /// Sequence of the plan's own last event.
    pub plan_seq: u64,
}

impl PlanRecord {
    /// The record of a plan as it stands.
    pub fn of(view: &PlanView) -> Self {
        let plan = &view.plan;
        let counts = view.counts();
        let status = match (plan.final_seq, &plan.close, &plan.cancel) {
            (Some(_), _, _) => PlanStatus::Closed,
            (None, Some(_), _) => PlanStatus::Closing,
            (None, None, Some(_)) => PlanStatus::Cancelling,
            (None, None, None) => PlanStatus::Open,
        };
        Self {
            plan_id: plan.id().clone(),
            title: plan.spec.title.clone(),
            business_key: plan.spec.business_key.clone(),
            kind: format!("{}@{}", plan.spec.kind.name, plan.spec.kind.version),
            status,
            total: plan.seal.as_ref().map_or(0, |(s, _, _)| s.count),
            verdict: verdict(plan, &counts),
            counts,
            sealed_at: plan.sealed_ms(),
            deadline: plan.deadline_ms(),
            expires: plan.expires_ms(),
            by: plan.seal.as_ref().map(|(s, _, _)| s.by.clone()).unwrap_or_default(),
            summary: plan.summary.as_ref().map(|(s, _, _)| s.this.clone()),
            summary_kind: plan.summary.as_ref().map(|(s, _, _)| s.kind),
            absorbed: view.absorbed(),
            content_sha256: plan.spec.content_sha256.clone(),
            targets_sha256: plan.seal.as_ref().map(|(s, _, _)| s.sha256.clone()).unwrap_or_default(),
            seq: view.last_seq,
            plan_seq: plan.plan_seq,
        }
    }
}

/// Key of a plan's record.
pub fn plan_key(plan: &PlanId) -> String {
    format!("plan.{plan}")
}

/// Key of a task's record.
pub fn task_key(task: &TaskId) -> String {
    format!("task.{task}")
}

/// `checkpoint` of the state bucket: up to where records are written, and which plans were open there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// Every record is written up to this sequence.
    pub seq: u64,
    /// Plans open there, with the sequence of their `plan.submitted`.
    pub open: BTreeMap<PlanId, u64>,
    /// SHA-256 over the two, to notice damage.
    pub sha256: String,
}

impl Checkpoint {
    /// A checkpoint with its checksum.
    pub fn new(seq: u64, open: BTreeMap<PlanId, u64>) -> Self {
        let sha256 = Self::digest(seq, &open);
        Self { seq, open, sha256 }
    }

    fn digest(seq: u64, open: &BTreeMap<PlanId, u64>) -> String {
        let lines: String = open.iter().map(|(plan, at)| format!("{plan} {at}\n")).collect();
        crate::digest::sha256_hex(format!("{seq}\n{lines}").as_bytes())
    }

    /// Reads a checkpoint; `None` when it is damaged.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let checkpoint: Self = serde_json::from_slice(bytes).ok()?;
        (checkpoint.sha256 == Self::digest(checkpoint.seq, &checkpoint.open)).then_some(checkpoint)
    }
}

/// Counts of what the recorder answered one terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportCounts {
    /// Written into the log.
    #[serde(default)]
    pub recorded: u64,
    /// Known already.
    #[serde(default)]
    pub duplicate: u64,
    /// Refused for good, by code.
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
    /// Told to come again, by code.
    #[serde(default)]
    pub deferred: BTreeMap<String, u64>,
}

/// `terminal.<id>` of `fanfold-terminals`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminalRecord {
    /// The terminal.
    pub id: TerminalId,
    /// Heard of within three beats.
    #[serde(default)]
    pub online: bool,
    /// Last heard of, epoch ms; on a change of `online`, not at each beat.
    #[serde(default)]
    pub last_seen_ms: Option<i64>,
    /// Its software's version.
    #[serde(default)]
    pub version: String,
    /// How many tasks it runs at once.
    #[serde(default)]
    pub slots: u32,
    /// How often it beats, in milliseconds.
    #[serde(default)]
    pub beat_interval_ms: u64,
    /// Its journal.
    #[serde(default)]
    pub journal: String,
    /// Its boot.
    #[serde(default)]
    pub boot: String,
    /// The only journal allowed under this id, after a `terminal replace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_journal: Option<String>,
    /// Two processes use this id: nothing is dispatched to it.
    #[serde(default)]
    pub id_in_use: bool,
    /// Labels it gives itself.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Task types it can run.
    #[serde(default)]
    pub types: Vec<String>,
    /// What its reports came to.
    #[serde(default)]
    pub reports: ReportCounts,
}

/// Key of a terminal's record.
pub fn terminal_key(terminal: &TerminalId) -> String {
    format!("terminal.{terminal}")
}

/// `store.<id>` of `fanfold-terminals`: what HQ knows of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoreRecord {
    /// The store.
    pub id: TerminalId,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its region.
    #[serde(default)]
    pub region: String,
    /// IANA time zone.
    #[serde(default)]
    pub time_zone: String,
    /// Labels HQ gives it.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// Key of a store's record.
pub fn store_key(store: &TerminalId) -> String {
    format!("store.{store}")
}
