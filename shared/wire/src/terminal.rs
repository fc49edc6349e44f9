//! The terminal protocol: commands, reports and their answers, sync, beats. Everything a terminal author needs is here and in
//! `docs/protocol.md`. Unknown fields are ignored on both sides; every message carries `protocolVersion`.

use fanfold_domain::event::{Dispatched, PROTOCOL_VERSION, TaskEvent};
use fanfold_domain::ids::{PlanId, TaskId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

mod identity;

use crate::event::{Envelope, EventError, decode_task};

pub use identity::{BEAT_INTERVAL_MS_MAX, Identity};

/// Largest result of a task, in bytes.
pub const RESULT_BYTES_MAX: usize = 256 * 1024;
/// Largest input of a plan, in bytes.
pub const INPUT_BYTES_MAX: usize = 64 * 1024;
/// Longest message for people, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 1024;
/// Most reports in one batch.
pub const BATCH_REPORTS_MAX: usize = 256;
/// Most commands handed out by one sync answer; the next sync gets the rest.
pub const SYNC_OPEN_MAX: usize = 256;

fn protocol_version() -> u32 {
    PROTOCOL_VERSION
}

/// What HQ tells a terminal about a task, on `ff.cmd.<terminal>.<task>` or in a sync answer.
#[derive(Debug, Clone)]
pub struct Command {
    /// The task.
    pub task: TaskId,
    /// Sequence in the log (`Nats-Sequence`).
    pub seq: u64,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// What to do.
    pub order: Order,
}

/// What to do.
#[derive(Debug, Clone)]
pub enum Order {
    /// Run this attempt.
    Run(Box<Dispatched>),
    /// End this attempt: superseded, cancelled, expired, timed out or concluded lost.
    Stop {
        /// The attempt.
        attempt: u32,
        /// Why: the event's name.
        reason: &'static str,
    },
    /// Nothing a terminal acts on.
    Ignore,
}

impl Command {
    /// Reads a command. `task` comes from the subject, `seq` from the header.
    pub fn decode(task: TaskId, seq: u64, payload: &[u8]) -> Result<Self, EventError> {
        let envelope = Envelope::parse(payload)?;
        let event = decode_task(envelope.name()?, envelope.data)?;
        let reason = event.name();
        let order = match event {
            TaskEvent::Dispatched(d) => Order::Run(d),
            TaskEvent::AttemptTimedOut { kind: fanfold_domain::event::TimeoutKind::Delivery, .. } => Order::Ignore,
            TaskEvent::AttemptTimedOut { attempt, .. }
            | TaskEvent::AttemptLost { attempt }
            | TaskEvent::StopRequested { attempt }
            | TaskEvent::CancelRequested { attempt }
            | TaskEvent::Expired { attempt, .. }
                if attempt > 0 =>
            {
                Order::Stop { attempt, reason }
            }
            _ => Order::Ignore,
        };
        Ok(Self { task, seq, traceparent: envelope.traceparent.map(|t| t.into_owned()), order })
    }
}

/// Names one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptRef {
    /// The task.
    pub task_id: TaskId,
    /// The attempt.
    pub attempt: u32,
}

/// What became of one report of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReportStatus {
    /// In the log. Settled.
    Recorded,
    /// The log had it already. Settled.
    Duplicate,
    /// Never will be in the log, see the code. Settled: the terminal keeps the code and forgets the body.
    Refused,
    /// Not now: send it again after a pause.
    Retry,
    /// Anything a newer HQ may say: send it again after a pause.
    #[serde(other)]
    Unknown,
}

impl ReportStatus {
    /// Whether the terminal may stop sending.
    pub fn is_settled(self) -> bool {
        matches!(self, ReportStatus::Recorded | ReportStatus::Duplicate | ReportStatus::Refused)
    }
}

/// Codes of final refusals.
pub mod refusal {
    /// No such plan or task.
    pub const UNKNOWN_TASK: &str = "UNKNOWN_TASK";
    /// The task is another terminal's.
    pub const NOT_YOURS: &str = "NOT_YOURS";
    /// The plan is closed.
    pub const PLAN_CLOSED: &str = "PLAN_CLOSED";
    /// Larger than allowed.
    pub const TOO_LARGE: &str = "TOO_LARGE";
    /// Not JSON, not a CloudEvent, or not a report.
    pub const MALFORMED: &str = "MALFORMED";
    /// The same report with other content is in the log.
    pub const CONFLICT: &str = "CONFLICT";
    /// Too many in a short time; send again.
    pub const RATE_LIMITED: &str = "RATE_LIMITED";
    /// The log is full; send again.
    pub const LOG_FULL: &str = "LOG_FULL";
    /// HQ's recorder is too old for the plan; send again, a newer one will take it.
    pub const UNSUPPORTED_RULES: &str = "UNSUPPORTED_RULES";
    /// The log is away; send again.
    pub const UNAVAILABLE: &str = "UNAVAILABLE";
}

/// The recorder's answer about one report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportResult {
    /// Position of the report in the batch, from 0.
    pub index: u32,
    /// What became of it.
    pub status: ReportStatus,
    /// Its sequence in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// For a success: whether the result satisfies the output schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid: Option<bool>,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// For people: what was wrong with which value, what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The recorder's answer to a request on `ff.report.<terminal>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportAnswer {
    /// See [`PROTOCOL_VERSION`].
    #[serde(default = "protocol_version")]
    pub protocol_version: u32,
    /// One a report, in order.
    pub answers: Vec<ReportResult>,
    /// Pause before sending again what is to be retried, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// Splits a report request into its reports: one CloudEvent, or an array of them (CloudEvents batch mode).
pub fn split_batch(payload: &[u8]) -> Result<Vec<&RawValue>, String> {
    let first = payload.iter().find(|b| !b.is_ascii_whitespace());
    if first == Some(&b'[') {
        return serde_json::from_slice(payload).map_err(|e| format!("the batch is not a JSON array of events: {e}"));
    }
    let one: &RawValue = serde_json::from_slice(payload).map_err(|e| format!("the report is not JSON: {e}"))?;
    Ok(vec![one])
}

/// `ff.beat.<terminal>`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Beat {
    /// Who it is.
    #[serde(flatten)]
    pub identity: Identity,
    /// Attempts queued or running here, at most 256.
    #[serde(default)]
    pub holds: Vec<AttemptRef>,
    /// The terminal is about to stop: its successor needs not wait.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub goodbye: bool,
    /// The journal cannot be written: nothing new is taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub journal_unavailable: bool,
}

/// How far a terminal is with an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HoldState {
    /// Taken, not begun.
    Queued,
    /// Begun.
    Running,
    /// Ended; the report is not answered yet.
    Finished,
    /// Ended; the report is answered.
    Settled,
}

/// An attempt a terminal knows of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// Which.
    #[serde(flatten)]
    pub attempt: AttemptRef,
    /// How far.
    pub state: HoldState,
}

/// `ff.sync.<terminal>`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncRequest {
    /// Who it is.
    #[serde(flatten)]
    pub identity: Identity,
    /// Every attempt it holds, settled ones too.
    #[serde(default)]
    pub holds: Vec<Hold>,
    /// Highest log sequence known from commands and answers.
    #[serde(default)]
    pub known_seq: u64,
    /// Plans of which it keeps only the tasks' highest attempt numbers, at most 256: it asks whether they are closed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed_plans: Vec<PlanId>,
}

/// What a sync came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SyncStatus {
    /// The lists below are to be acted on.
    Ok,
    /// HQ is behind what the terminal knows, or just starting: ask again after `retryAfterMs`.
    Later,
    /// Another process uses this id: take nothing, keep everything, tell a person.
    TerminalIdInUse,
    /// Anything a newer HQ may say: ask again later.
    #[serde(other)]
    Unknown,
}

/// A command handed out again.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenCommand {
    /// The task.
    pub task_id: TaskId,
    /// Sequence of its `task.dispatched`.
    pub seq: u64,
    /// The event, as on `ff.cmd`.
    pub command: Box<RawValue>,
}

/// Answer to a sync.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncAnswer {
    /// See [`PROTOCOL_VERSION`].
    #[serde(default = "protocol_version")]
    pub protocol_version: u32,
    /// What it came to.
    pub status: SyncStatus,
    /// Position of the log this answer was made from. A terminal discards an answer below what it knows.
    #[serde(default)]
    pub as_of_seq: u64,
    /// What is open for this terminal and not among its holds.
    #[serde(default)]
    pub open: Vec<OpenCommand>,
    /// Attempts among the holds that must end.
    #[serde(default)]
    pub stop: Vec<AttemptRef>,
    /// Settled attempts among the holds that HQ still counts as open (its view has not got the report yet): keep them.
    #[serde(default)]
    pub keep: Vec<AttemptRef>,
    /// Of the plans asked about, those that are closed: forget them.
    #[serde(default)]
    pub closed_plans: Vec<PlanId>,
    /// When to ask again, in milliseconds. With OK: there is more, or more is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Only where the log ends before what the terminal knows: HQ was restored from an older backup, and this is its last sequence. What
    /// the terminal knows of later ones does not count any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_end_seq: Option<u64>,
    /// Why there are no lists: `MALFORMED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// For people: what was wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl SyncAnswer {
    /// The answer to a request that can't be read.
    pub fn unreadable(reason: &str, retry_after_ms: u64) -> Self {
        Self {
            code: Some(refusal::MALFORMED.to_owned()),
            message: Some(clip_message(&format!("the sync can't be read: {reason}")).to_owned()),
            ..Self::bare(SyncStatus::Later, 0, Some(retry_after_ms))
        }
    }

    /// An answer without lists.
    pub fn bare(status: SyncStatus, as_of_seq: u64, retry_after_ms: Option<u64>) -> Self {
        Self {
            protocol_version: PROTOCOL_VERSION,
            status,
            as_of_seq,
            open: Vec::new(),
            stop: Vec::new(),
            keep: Vec::new(),
            closed_plans: Vec::new(),
            retry_after_ms,
            log_end_seq: None,
            code: None,
            message: None,
        }
    }
}

/// Cuts a text for people to [`MESSAGE_BYTES_MAX`] bytes at a character boundary.
pub fn clip_message(text: &str) -> &str {
    if text.len() <= MESSAGE_BYTES_MAX {
        return text;
    }
    let end = (0..=MESSAGE_BYTES_MAX).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    text.get(..end).unwrap_or("")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn unknown_statuses_and_fields_do_not_break_a_terminal() {
        let answer: ReportAnswer =
            serde_json::from_str(r#"{"protocolVersion":9,"answers":[{"index":0,"status":"postponed","new":1}],"x":2}"#).unwrap();
        assert_eq!(answer.answers[0].status, ReportStatus::Unknown);
        assert!(!answer.answers[0].status.is_settled());
        let sync: SyncAnswer = serde_json::from_str(r#"{"status":"WHO_KNOWS"}"#).unwrap();
        assert_eq!(sync.status, SyncStatus::Unknown);
    }

    #[test]
    fn an_old_beat_without_most_fields_still_counts() {
        let beat: Beat = serde_json::from_str(r#"{"journal":"j","boot":"b","extra":true}"#).unwrap();
        assert_eq!((beat.identity.slots, beat.identity.protocol_version, beat.holds.len()), (1, PROTOCOL_VERSION, 0));
    }

    #[test]
    fn batches_are_one_event_or_an_array() {
        assert_eq!(split_batch(b" {\"a\":1}").unwrap().len(), 1);
        assert_eq!(split_batch(b" [{\"a\":1},{}]").unwrap().len(), 2);
        assert!(split_batch(b"nonsense").is_err() && split_batch(b"[{]").is_err() && split_batch(b"").is_err());
    }

    #[test]
    fn messages_are_clipped_at_a_character() {
        let long = "é".repeat(1000);
        assert!(clip_message(&long).len() <= MESSAGE_BYTES_MAX && clip_message(&long).chars().all(|c| c == 'é'));
    }
}
