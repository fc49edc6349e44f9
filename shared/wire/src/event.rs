//! Events as CloudEvents 1.0 JSON, and their computed ids.

use fanfold_domain::Json;
use fanfold_domain::event::{Dispatched, ExpiryReason, LoggedTaskEvent, TaskEvent, TimeoutKind, Verdict, Writer};
use fanfold_domain::ids::{PlanId, TargetId, TaskId};
use fanfold_domain::plan::{LoggedPlanEvent, PlanEvent};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::strict;
use crate::subjects::LogSubject;
use crate::timestamp::to_rfc3339;

mod ids;

pub use ids::{decision_id, plan_event_id, report_id, targets_id};

/// Why bytes are not an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// Not JSON, or not a CloudEvents 1.0 envelope.
    #[error("not a CloudEvent: {0}")]
    Envelope(String),
    /// A type nobody knows.
    #[error("unknown event type `{0}`")]
    UnknownType(String),
    /// Its data can't be read.
    #[error("bad data of {kind}: {reason}")]
    Data {
        /// Event name.
        kind: String,
        /// What is wrong.
        reason: String,
    },
    /// Its subject is none of the log's.
    #[error("`{0}` is not a subject of the log")]
    Subject(String),
    /// It could not be written.
    #[error("an event could not be written as JSON: {0}")]
    Unwritable(String),
}

/// A CloudEvents envelope, borrowed from the message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Envelope<'a> {
    /// Always `1.0`.
    pub specversion: &'a str,
    /// Computed id; equals `Nats-Msg-Id`. A terminal may leave it out: the recorder computes it.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    pub id: Option<std::borrow::Cow<'a, str>>,
    /// Who wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    pub source: Option<std::borrow::Cow<'a, str>>,
    /// `fanfold.<name>.v1`
    #[serde(rename = "type", borrow)]
    pub kind: std::borrow::Cow<'a, str>,
    /// taskId or planId.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    pub subject: Option<std::borrow::Cow<'a, str>>,
    /// The writer's claim.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    pub time: Option<std::borrow::Cow<'a, str>>,
    /// W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    pub traceparent: Option<std::borrow::Cow<'a, str>>,
    /// The event's own data.
    #[serde(borrow)]
    pub data: &'a RawValue,
}

impl<'a> Envelope<'a> {
    /// Reads an envelope.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, EventError> {
        let envelope: Self = strict::from_slice(bytes).map_err(|e| EventError::Envelope(e.to_string()))?;
        if envelope.specversion != "1.0" {
            return Err(EventError::Envelope(format!("specversion is `{}`, not 1.0", clip(envelope.specversion))));
        }
        Ok(envelope)
    }

    /// `task.dispatched` of `fanfold.task.dispatched.v1`.
    pub fn name(&self) -> Result<&str, EventError> {
        self.kind
            .strip_prefix("fanfold.")
            .and_then(|k| k.strip_suffix(".v1"))
            .ok_or_else(|| EventError::UnknownType(clip(&self.kind).to_owned()))
    }
}

/// The rules version a `plan.submitted` names, also where this build can't read the rest of it.
pub fn rules_of_submission(payload: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct Rules {
        rules: u32,
    }
    let envelope = Envelope::parse(payload).ok()?;
    serde_json::from_str::<Rules>(envelope.data.get()).ok().map(|data| data.rules)
}

fn clip(text: &str) -> &str {
    text.char_indices().nth(80).map_or(text, |(i, _)| text.get(..i).unwrap_or(text))
}

/// The CloudEvents type of an event name.
pub fn type_of(name: &str) -> String {
    format!("fanfold.{name}.v1")
}

/// What goes around an event's data.
#[derive(Debug, Clone, Copy)]
pub struct Header<'a> {
    /// Computed id.
    pub id: &'a str,
    /// Who writes it, e.g. `/fanfold/dispatcher`.
    pub source: &'a str,
    /// taskId or planId.
    pub subject: &'a str,
    /// The writer's clock, epoch ms; `None` leaves `time` out.
    pub time_ms: Option<i64>,
    /// W3C trace context.
    pub traceparent: Option<&'a str>,
}

/// Writes an event from its name and encoded data.
pub fn encode(name: &str, data: &RawValue, header: Header<'_>) -> Result<Vec<u8>, EventError> {
    let envelope = Envelope {
        specversion: "1.0",
        id: Some(header.id.into()),
        source: Some(header.source.into()),
        kind: type_of(name).into(),
        subject: Some(header.subject.into()),
        time: header.time_ms.map(|ms| to_rfc3339(ms).into()),
        traceparent: header.traceparent.map(Into::into),
        data,
    };
    serde_json::to_vec(&envelope).map_err(|e| EventError::Unwritable(e.to_string()))
}

/// Whether two stored or storable events say the same: equal bytes, or equal type, subject and data.
pub fn same_content(a: &[u8], b: &[u8]) -> bool {
    if a == b {
        return true;
    }
    match (Envelope::parse(a), Envelope::parse(b)) {
        (Ok(a), Ok(b)) => a.kind == b.kind && a.subject == b.subject && a.data.get() == b.data.get(),
        _ => false,
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Empty {}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeferredData {
    #[serde(default)]
    last_seen_ms: Option<i64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TimedOutData {
    attempt: u32,
    kind: TimeoutKind,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttemptData {
    #[serde(default)]
    attempt: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExpiredData {
    reason: ExpiryReason,
    #[serde(default)]
    attempt: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequeuedData {
    request_seq: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProgressedData {
    attempt: u32,
    #[serde(default)]
    k: u32,
    step: String,
    #[serde(default)]
    ms: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SucceededData {
    attempt: u32,
    result: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_ms: Option<u64>,
    #[serde(default = "unjudged")]
    verdict: Verdict,
}

/// A result nobody has judged counts as valid; the recorder always writes its own judgement over it.
fn unjudged() -> Verdict {
    Verdict { valid: true, errors: Vec::new() }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ErrorData {
    attempt: u32,
    code: String,
    #[serde(default)]
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_ms: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TargetsData {
    targets: Vec<TargetId>,
}

fn raw(value: &impl Serialize) -> Result<Box<RawValue>, EventError> {
    to_raw_value(value).map_err(|e| EventError::Unwritable(e.to_string()))
}

/// The data of a task event.
pub fn task_data(event: &TaskEvent) -> Result<Box<RawValue>, EventError> {
    match event {
        TaskEvent::Dispatched(d) => raw(d),
        TaskEvent::Deferred { last_seen_ms } => raw(&DeferredData { last_seen_ms: *last_seen_ms }),
        TaskEvent::Released | TaskEvent::Cancelled => raw(&Empty {}),
        TaskEvent::AttemptTimedOut { attempt, kind } => raw(&TimedOutData { attempt: *attempt, kind: *kind }),
        TaskEvent::AttemptLost { attempt }
        | TaskEvent::StopRequested { attempt }
        | TaskEvent::CancelRequested { attempt }
        | TaskEvent::Started { attempt }
        | TaskEvent::Stopped { attempt } => raw(&AttemptData { attempt: *attempt }),
        TaskEvent::Expired { reason, attempt } => raw(&ExpiredData { reason: *reason, attempt: *attempt }),
        TaskEvent::Requeued { request_seq } => raw(&RequeuedData { request_seq: *request_seq }),
        TaskEvent::Progressed { attempt, k, step, ms } => {
            raw(&ProgressedData { attempt: *attempt, k: *k, step: step.clone(), ms: *ms })
        }
        TaskEvent::Succeeded { attempt, result, run_ms, verdict } => {
            raw(&SucceededData { attempt: *attempt, result: result.clone(), run_ms: *run_ms, verdict: verdict.clone() })
        }
        TaskEvent::Failed { attempt, code, message, run_ms } => {
            raw(&ErrorData { attempt: *attempt, code: code.clone(), message: message.clone(), run_ms: *run_ms })
        }
        TaskEvent::Rejected { attempt, code, message } => {
            raw(&ErrorData { attempt: *attempt, code: code.clone(), message: message.clone(), run_ms: None })
        }
    }
}

fn read<'a, T: Deserialize<'a>>(name: &str, data: &'a RawValue) -> Result<T, EventError> {
    strict::from_str(data.get()).map_err(|e| EventError::Data { kind: name.to_owned(), reason: e.to_string() })
}

/// Reads a task event from its name and data.
pub fn decode_task(name: &str, data: &RawValue) -> Result<TaskEvent, EventError> {
    Ok(match name {
        "task.dispatched" => TaskEvent::Dispatched(Box::new(read::<Dispatched>(name, data)?)),
        "task.deferred" => TaskEvent::Deferred { last_seen_ms: read::<DeferredData>(name, data)?.last_seen_ms },
        "task.released" => TaskEvent::Released,
        "task.attempt_timed_out" => {
            let d: TimedOutData = read(name, data)?;
            TaskEvent::AttemptTimedOut { attempt: d.attempt, kind: d.kind }
        }
        "task.attempt_lost" => TaskEvent::AttemptLost { attempt: read::<AttemptData>(name, data)?.attempt },
        "task.stop_requested" => TaskEvent::StopRequested { attempt: read::<AttemptData>(name, data)?.attempt },
        "task.cancel_requested" => TaskEvent::CancelRequested { attempt: read::<AttemptData>(name, data)?.attempt },
        "task.cancelled" => TaskEvent::Cancelled,
        "task.expired" => {
            let d: ExpiredData = read(name, data)?;
            TaskEvent::Expired { reason: d.reason, attempt: d.attempt }
        }
        "task.requeued" => TaskEvent::Requeued { request_seq: read::<RequeuedData>(name, data)?.request_seq },
        "attempt.started" => TaskEvent::Started { attempt: read::<AttemptData>(name, data)?.attempt },
        "attempt.progressed" => {
            let d: ProgressedData = read(name, data)?;
            TaskEvent::Progressed { attempt: d.attempt, k: d.k, step: d.step, ms: d.ms }
        }
        "attempt.succeeded" => {
            let d: SucceededData = read(name, data)?;
            TaskEvent::Succeeded { attempt: d.attempt, result: d.result, run_ms: d.run_ms, verdict: d.verdict }
        }
        "attempt.failed" => {
            let d: ErrorData = read(name, data)?;
            TaskEvent::Failed { attempt: d.attempt, code: d.code, message: d.message, run_ms: d.run_ms }
        }
        "attempt.rejected" => {
            let d: ErrorData = read(name, data)?;
            TaskEvent::Rejected { attempt: d.attempt, code: d.code, message: d.message }
        }
        "attempt.stopped" => TaskEvent::Stopped { attempt: read::<AttemptData>(name, data)?.attempt },
        other => return Err(EventError::UnknownType(clip(other).to_owned())),
    })
}

/// The data of a plan event.
pub fn plan_data(event: &PlanEvent) -> Result<Box<RawValue>, EventError> {
    match event {
        PlanEvent::Submitted(spec) => raw(spec),
        PlanEvent::Targets { targets } => raw(&TargetsData { targets: targets.clone() }),
        PlanEvent::Sealed(seal) => raw(seal),
        PlanEvent::LimitsChanged(limits) => raw(limits),
        PlanEvent::CancelRequested(asked) | PlanEvent::CloseRequested(asked) => raw(asked),
        PlanEvent::RequeueRequested(selector) => raw(selector),
        PlanEvent::Summarised(summarised) => raw(summarised),
        PlanEvent::Paused | PlanEvent::Resumed | PlanEvent::Cancelled | PlanEvent::DeadlineReached | PlanEvent::Closed => {
            raw(&Empty {})
        }
    }
}

/// Reads a plan event from its name (`submitted`, not `plan.submitted`) and data.
pub fn decode_plan(name: &str, data: &RawValue) -> Result<PlanEvent, EventError> {
    Ok(match name {
        "submitted" => PlanEvent::Submitted(Box::new(read(name, data)?)),
        "targets" => PlanEvent::Targets { targets: read::<TargetsData>(name, data)?.targets },
        "sealed" => PlanEvent::Sealed(read(name, data)?),
        "paused" => PlanEvent::Paused,
        "resumed" => PlanEvent::Resumed,
        "limits_changed" => PlanEvent::LimitsChanged(read(name, data)?),
        "cancel_requested" => PlanEvent::CancelRequested(read(name, data)?),
        "requeue_requested" => PlanEvent::RequeueRequested(read(name, data)?),
        "close_requested" => PlanEvent::CloseRequested(read(name, data)?),
        "cancelled" => PlanEvent::Cancelled,
        "deadline_reached" => PlanEvent::DeadlineReached,
        "closed" => PlanEvent::Closed,
        "summarised" => PlanEvent::Summarised(Box::new(read(name, data)?)),
        other => return Err(EventError::UnknownType(format!("plan.{}", clip(other)))),
    })
}

/// A message of the log, read.
#[derive(Debug, Clone)]
pub enum LogEvent {
    /// About a plan.
    Plan(PlanId, LoggedPlanEvent),
    /// About a task.
    Task(TaskId, LoggedTaskEvent),
    /// Leadership; nothing to fold.
    Fence(String),
}

/// Reads a stored message. Identity comes from the subject; the envelope's own claims are not trusted.
pub fn decode(seq: u64, time_ms: i64, subject: &str, payload: &[u8]) -> Result<LogEvent, EventError> {
    decode_linked(seq, time_ms, subject, payload).map(|(event, _)| event)
}

/// As [`decode`], with the sequence of the decision or plan event before it, which HQ's own ids name; `None`: the first, or a report.
pub fn decode_linked(seq: u64, time_ms: i64, subject: &str, payload: &[u8]) -> Result<(LogEvent, Option<u64>), EventError> {
    let parsed = LogSubject::parse(subject).ok_or_else(|| EventError::Subject(clip(subject).to_owned()))?;
    match parsed {
        LogSubject::Fence { role } => Ok((LogEvent::Fence(role), None)),
        LogSubject::Plan { plan, event } => {
            let envelope = Envelope::parse(payload)?;
            let before_seq = if event == "targets" { None } else { before_of(&envelope) };
            let event = decode_plan(&event, envelope.data)?;
            Ok((LogEvent::Plan(plan, LoggedPlanEvent { seq, time_ms, event }), before_seq))
        }
        LogSubject::Task { task, writer, .. } => {
            let envelope = Envelope::parse(payload)?;
            let before_seq = if writer == Writer::Hq { before_of(&envelope) } else { None };
            let event = decode_task(envelope.name()?, envelope.data)?;
            Ok((LogEvent::Task(task, LoggedTaskEvent { seq, time_ms, writer, event }), before_seq))
        }
    }
}

/// Third part of an id `<about>/<event>/<sequence before it>...`; 0 is nothing.
fn before_of(envelope: &Envelope<'_>) -> Option<u64> {
    envelope.id.as_deref()?.split('/').nth(2)?.parse().ok().filter(|seq| *seq > 0)
}
