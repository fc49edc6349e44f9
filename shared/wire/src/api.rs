//! Messages of the API `ff.api.<noun>.<verb>`: JSON in, JSON out, errors with stable codes.

use fanfold_domain::ids::{PlanId, TaskId, TerminalId};
use fanfold_domain::plan::RequeueSelector;
use fanfold_domain::sets::TaskSet;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::record::{PlanRecord, TaskRecord, TerminalRecord};
use crate::schema::{ERRORS_MAX, Violation};

/// One thing wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// Stable code.
    pub code: String,
    /// JSON pointer to the value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The value, cut short.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// What is wrong with it and what to do.
    pub message: String,
}

impl Problem {
    /// Puts one together; the value is cut to 120 characters, the path (it may hold a made-up name of any length) to 200.
    pub fn new(code: &str, path: &str, value: &str, message: &str) -> Self {
        let cut = |text: &str, characters: usize| text.chars().take(characters).collect();
        Self { code: code.to_owned(), path: cut(path, 200), value: cut(value, 120), message: message.to_owned() }
    }

    /// The problems a schema violation stands for.
    pub fn of_violation(violation: &Violation) -> Vec<Self> {
        if !violation.unknown.is_empty() {
            let one = |name: &String| {
                Self::new("UNKNOWN_FIELD", &format!("{}/{name}", violation.path), name, "no such field; check its spelling")
            };
            return violation.unknown.iter().take(ERRORS_MAX).map(one).collect();
        }
        if let Some(missing) = &violation.missing {
            return vec![Self::new(
                "MISSING_FIELD",
                &format!("{}/{missing}", violation.path),
                missing,
                "this field must be there",
            )];
        }
        let code = if violation.out_of_range { "LIMIT_OUT_OF_RANGE" } else { "INVALID_PLAN" };
        vec![Self::new(code, &violation.path, "", &violation.message)]
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.code)?;
        if !self.path.is_empty() {
            write!(f, " at {}", self.path)?;
        }
        if !self.value.is_empty() {
            write!(f, " (`{}`)", self.value)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// A request that was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{code}: {message}")]
pub struct ApiError {
    /// Stable code.
    pub code: String,
    /// What was wrong with which value, what to do.
    pub message: String,
    /// Everything that is wrong, where there is more than one thing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}

impl ApiError {
    /// An error of one thing.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), problems: Vec::new() }
    }

    /// An error of several problems; its code is the first one's.
    pub fn of_problems(problems: Vec<Problem>) -> Self {
        let code = problems.first().map_or("INVALID_PLAN", |p| p.code.as_str()).to_owned();
        let message = match problems.as_slice() {
            [one] => one.to_string(),
            many => format!("{} problems, the first: {}", many.len(), many.first().map(ToString::to_string).unwrap_or_default()),
        };
        Self { code, message, problems }
    }
}

/// Every answer: one of the two.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ApiAnswer<T> {
    /// It was carried out.
    Ok(T),
    /// It was not.
    Error(ApiError),
}

/// `plan.submit`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubmitRequest {
    /// The plan document; at most what one message holds. Or:
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Box<RawValue>>,
    /// The name of an object that holds the document, for one that is too large for a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Who submits.
    #[serde(default)]
    pub by: String,
    /// W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// Answer to `plan.submit`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Submitted {
    /// The plan.
    pub plan_id: PlanId,
    /// False: the same plan was there already.
    pub created: bool,
    /// Sealed count.
    pub targets: u32,
    /// Sequence of `plan.sealed`.
    pub sealed_seq: u64,
    /// SHA-256 of its content.
    pub content_sha256: String,
}

/// A request about one plan: `plan.get`, `plan.cancel`, `plan.close`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanRequest {
    /// The plan.
    pub plan_id: PlanId,
    /// Who asks.
    #[serde(default)]
    pub by: String,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// `plan.list`
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanListRequest {
    /// Most plans of the answer, 1 to 1,000; default 100.
    #[serde(default)]
    pub limit: Option<u32>,
    /// Only plans after this id.
    #[serde(default)]
    pub after: Option<PlanId>,
    /// Only plans that aren't over.
    #[serde(default)]
    pub open: bool,
}

/// Answer to `plan.list`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanList {
    /// Plans by id.
    pub plans: Vec<PlanRecord>,
    /// More after this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<PlanId>,
    /// The records of plans that are over are behind the log, and this list lacks something for it. Absent: nothing is lacking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<Behind>,
}

/// What an answer lacks because the state bucket is behind the log (is the projector running?).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Behind {
    /// Records are written up to this sequence; 0: there is no checkpoint, so any plan that is over may be lacking.
    pub written_seq: u64,
    /// The log is at this sequence.
    pub log_seq: u64,
    /// Plans that are over and left out: too many for one answer. Each can be asked for by its id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<PlanId>,
}

/// `task.get`, `task.history`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskRequest {
    /// The task.
    pub task_id: TaskId,
    /// `task.history`: only events from this sequence of the log on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
}

/// One event of a task, as the log holds it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEvent {
    /// Sequence in the log.
    pub seq: u64,
    /// Log time, epoch ms.
    pub time_ms: i64,
    /// Subject it is stored under: who wrote it, and about which terminal.
    pub subject: String,
    /// The CloudEvent, as stored.
    pub event: Box<RawValue>,
}

/// Answer to `task.history`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryAnswer {
    /// What happened to the task, in the log's order.
    pub events: Vec<HistoryEvent>,
    /// One message does not hold more; ask again from this sequence on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// `task.list`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskListRequest {
    /// The plan.
    pub plan_id: PlanId,
    /// Only this set.
    #[serde(default)]
    pub set: Option<TaskSet>,
    /// Most tasks of the answer, 1 to 1,000; default 100.
    #[serde(default)]
    pub limit: Option<u32>,
    /// Skip so many targets of the list.
    #[serde(default)]
    pub offset: u32,
}

/// Answer to `task.list`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskList {
    /// Tasks in target order.
    pub tasks: Vec<TaskRecord>,
    /// More from this offset on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
}

/// `task.requeue`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequeueRequest {
    /// The plan.
    pub plan_id: PlanId,
    /// Which of its tasks.
    pub selector: RequeueSelector,
    /// Who asks.
    #[serde(default)]
    pub by: String,
}

/// Answer to a request that was written down: `plan.cancel`, `plan.close`, `task.requeue`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Noted {
    /// The plan.
    pub plan_id: PlanId,
    /// Sequence of the request in the log; where nothing was written, of the plan's last event.
    pub seq: u64,
    /// False: it had been asked before, or there was nothing to ask for.
    pub created: bool,
    /// `task.requeue`: how many tasks it means, as far as the API knew; 0: nothing was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
}

/// `summary.get`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SummaryRequest {
    /// The plan.
    pub plan_id: PlanId,
    /// Which; `None`: the last.
    #[serde(default)]
    pub revision: Option<u32>,
}

/// Answer to `summary.get`: the document itself is the object of that name.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SummaryAnswer {
    /// What the log says about it.
    pub summary: fanfold_domain::plan::Summarised,
    /// Sequence of the `plan.summarised`.
    pub seq: u64,
    /// Log time of the `plan.summarised`, epoch ms.
    pub emitted_ms: i64,
    /// The document, where it fits the message; its bytes have the stated sha256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<Box<RawValue>>,
    /// Name of the object that holds it.
    pub object: String,
}

/// `type.list`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TypeList {
    /// Registrations, by name and version.
    pub types: Vec<Box<RawValue>>,
    /// `name@version` of those the store counts and can't give: register them again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
}

/// Answer to `type.register`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TypeRegistered {
    /// Name.
    #[serde(rename = "type")]
    pub name: String,
    /// Version.
    pub version: u32,
    /// False: the same registration was there already.
    pub created: bool,
}

/// `terminal.list`
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminalListRequest {
    /// Most terminals of the answer, 1 to 10,000; default 1,000.
    #[serde(default)]
    pub limit: Option<u32>,
    /// Only terminals after this id.
    #[serde(default)]
    pub after: Option<TerminalId>,
}

/// Answer to `terminal.list`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminalList {
    /// Terminals by id.
    pub terminals: Vec<TerminalRecord>,
    /// More after this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<TerminalId>,
}

/// `terminal.replace`: from now on only this journal may act under the id.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplaceRequest {
    /// The terminal.
    pub terminal: TerminalId,
    /// The allowed journal: the id, or the beginning of it, of one that was heard of under the terminal's id. `None`: the one that
    /// beats next.
    #[serde(default)]
    pub journal: Option<String>,
    /// Let a journal in by its whole id that was never heard of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Who asks.
    #[serde(default)]
    pub by: String,
}

/// Answer to `terminal.replace`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Replaced {
    /// The terminal.
    pub terminal: TerminalId,
    /// The allowed journal's whole id.
    pub journal: Option<String>,
}
