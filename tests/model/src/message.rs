//! Reading a stored message: who speaks about what, from its subject; what is said, from its body.
//!
//! A message that can't be read is `None`: the log may hold anything, and nothing here may fail on it.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

/// What can be said about a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Dispatched,
    Deferred,
    Released,
    TimedOutDelivery,
    TimedOutRun,
    TimedOutProgress,
    Lost,
    StopRequested,
    CancelRequested,
    Cancelled,
    Expired,
    Requeued,
    Started,
    Progressed,
    SucceededValid,
    SucceededInvalid,
    Failed,
    Rejected,
    Stopped,
}

/// Decisions of HQ.
pub(crate) const DECISIONS: &[What] = &[
    What::Dispatched,
    What::Deferred,
    What::Released,
    What::TimedOutDelivery,
    What::TimedOutRun,
    What::TimedOutProgress,
    What::Lost,
    What::StopRequested,
    What::CancelRequested,
    What::Cancelled,
    What::Expired,
    What::Requeued,
];

/// Reports of terminals.
pub(crate) const REPORTS: &[What] =
    &[What::Started, What::Progressed, What::SucceededValid, What::SucceededInvalid, What::Failed, What::Rejected, What::Stopped];

/// Reports with which an attempt is over.
pub(crate) const END_REPORTS: &[What] =
    &[What::SucceededValid, What::SucceededInvalid, What::Failed, What::Rejected, What::Stopped];

/// One thing said about a task, and when.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    /// Sequence in the log.
    pub(crate) seq: u64,
    /// The log's timestamp, epoch ms.
    pub(crate) time_ms: i64,
    /// Id of the event as stored; empty if it has none.
    pub(crate) id: String,
    /// `task.dispatched`, `attempt.started` ...
    pub(crate) name: String,
    /// Name and verdict or clock together.
    pub(crate) what: What,
    /// The terminal that speaks; `None`: HQ.
    pub(crate) by: Option<String>,
    /// The last token of the subject, also of HQ's decisions.
    pub(crate) token: String,
    /// Which attempt it is about; 0: none.
    pub(crate) attempt: u32,
    /// Number of a step.
    pub(crate) k: u32,
    /// Error code of a report.
    pub(crate) code: String,
    /// The raw data, as stored.
    pub(crate) data: String,
    /// The data's fields.
    pub(crate) fields: Fields,
}

/// Fields of an object, each as stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields(BTreeMap<String, Box<RawValue>>);

impl Fields {
    fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().map(Self)
    }

    /// A field's JSON text.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|raw| raw.get())
    }

    /// A field's value; null if absent.
    pub(crate) fn value(&self, name: &str) -> Value {
        self.text(name).and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null)
    }

    fn string(&self, name: &str) -> Option<String> {
        self.value(name).as_str().map(str::to_owned)
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.value(name).as_u64().and_then(|n| u32::try_from(n).ok())
    }

    /// A number that may be left out (0) but must be one.
    fn number_or_0(&self, name: &str) -> Option<u32> {
        if self.text(name).is_none() { Some(0) } else { self.number(name) }
    }
}

/// One thing said about a plan, and when.
#[derive(Debug, Clone)]
pub(crate) struct PlanSaid {
    /// Sequence in the log.
    pub(crate) seq: u64,
    /// The log's timestamp, epoch ms.
    pub(crate) time_ms: i64,
    /// Id of the event as stored.
    pub(crate) id: String,
    /// `submitted`, `sealed` ..., from the subject.
    pub(crate) name: String,
    /// The raw data, as stored.
    pub(crate) data: String,
    /// The same, read.
    pub(crate) value: Value,
}

/// A message of the log.
#[derive(Debug, Clone)]
pub(crate) enum Message {
    /// About a plan.
    Plan(String, PlanSaid),
    /// About a task: plan, target, stage.
    Task([String; 3], Said),
    /// A role, and the id of the fence.
    Fence(String, String),
}

struct Envelope {
    id: String,
    name: String,
    data: String,
}

fn envelope(payload: &[u8]) -> Option<Envelope> {
    let outer: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(payload).ok()?;
    let text = |name: &str| outer.get(name).and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    if text("specversion")? != "1.0" {
        return None;
    }
    let name = text("type")?.strip_prefix("fanfold.")?.strip_suffix(".v1")?.to_owned();
    let data = outer.get("data")?.get().to_owned();
    Some(Envelope { id: text("id").unwrap_or_default(), name, data })
}

/// Reads a stored message.
pub(crate) fn read(seq: u64, time_ms: i64, subject: &str, payload: &[u8]) -> Option<Message> {
    let tokens: Vec<&str> = subject.split('.').collect();
    match tokens.as_slice() {
        ["ff", "fence", role] => {
            let id = envelope(payload).map(|e| e.id).unwrap_or_default();
            Some(Message::Fence((*role).to_owned(), id))
        }
        ["ff", "plan", plan, name] => {
            let Envelope { id, data, .. } = envelope(payload)?;
            let value = serde_json::from_str(&data).ok()?;
            Some(Message::Plan((*plan).to_owned(), PlanSaid { seq, time_ms, id, name: (*name).to_owned(), data, value }))
        }
        ["ff", "task", plan, target, stage, channel, token] => {
            let by = match *channel {
                "hq" => None,
                "by" => Some((*token).to_owned()),
                _ => return None,
            };
            let said = task_said(seq, time_ms, envelope(payload)?, by, token)?;
            Some(Message::Task([plan, target, stage].map(|t| (*t).to_owned()), said))
        }
        _ => None,
    }
}

fn task_said(seq: u64, time_ms: i64, envelope: Envelope, by: Option<String>, token: &str) -> Option<Said> {
    let Envelope { id, name, data } = envelope;
    let fields = Fields::read(&data)?;
    let what = what(&name, &fields)?;
    let needs_attempt = !matches!(
        what,
        What::Deferred | What::Released | What::Cancelled | What::Requeued | What::CancelRequested | What::Expired
    ) && !matches!(what, What::Started | What::Stopped | What::Lost | What::StopRequested);
    let attempt = if needs_attempt { fields.number("attempt")? } else { fields.number_or_0("attempt")? };
    let code = match what {
        What::Failed | What::Rejected => fields.string("code")?,
        _ => String::new(),
    };
    let k = if what == What::Progressed { fields.number_or_0("k")? } else { 0 };
    Some(Said { seq, time_ms, id, name, what, by, token: token.to_owned(), attempt, k, code, data, fields })
}

fn what(name: &str, fields: &Fields) -> Option<What> {
    Some(match name {
        "task.dispatched" => What::Dispatched,
        "task.deferred" => What::Deferred,
        "task.released" => What::Released,
        "task.attempt_timed_out" => match fields.string("kind")?.as_str() {
            "delivery" => What::TimedOutDelivery,
            "run" => What::TimedOutRun,
            "progress" => What::TimedOutProgress,
            _ => return None,
        },
        "task.attempt_lost" => What::Lost,
        "task.stop_requested" => What::StopRequested,
        "task.cancel_requested" => What::CancelRequested,
        "task.cancelled" => What::Cancelled,
        "task.expired" => What::Expired,
        "task.requeued" => What::Requeued,
        "attempt.started" => What::Started,
        "attempt.progressed" => What::Progressed,
        "attempt.succeeded" => {
            fields.text("result")?;
            // A result that nobody judged counts as valid.
            match fields.text("verdict").map(|_| fields.value("verdict")) {
                None => What::SucceededValid,
                Some(verdict) if verdict["valid"].as_bool()? => What::SucceededValid,
                Some(_) => What::SucceededInvalid,
            }
        }
        "attempt.failed" => What::Failed,
        "attempt.rejected" => What::Rejected,
        "attempt.stopped" => What::Stopped,
        _ => return None,
    })
}
