//! What can be written into the log about a task, and who wrote it.

use serde::{Deserialize, Serialize};

use crate::Json;
use crate::ids::TerminalId;

/// Version of the messages exchanged with terminals; unknown fields are ignored on both sides.
pub const PROTOCOL_VERSION: u32 = 1;

fn protocol_version() -> u32 {
    PROTOCOL_VERSION
}

/// HQ hands an attempt to a terminal.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dispatched {
    /// See [`PROTOCOL_VERSION`].
    #[serde(default = "protocol_version")]
    pub protocol_version: u32,
    /// Number of the attempt; only rises.
    pub attempt: u32,
    /// Who is to execute it.
    pub terminal: TerminalId,
    /// The terminal's journal it was dispatched to; another journal must not run it.
    pub journal: String,
    /// The terminal's boot it was dispatched to live.
    pub boot: String,
    /// Task type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Version of the task type.
    pub version: u32,
    /// The plan's input, as submitted.
    pub input: Json,
    /// How long a run may take, from its start, in milliseconds.
    pub run_timeout_ms: u64,
}

/// What ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeoutKind {
    /// The terminal never said it has the command.
    Delivery,
    /// The run took too long.
    Run,
    /// No progress was reported for too long.
    Progress,
}

/// Why a task was ended by HQ without an outcome of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExpiryReason {
    /// The plan's expiry passed.
    Expired,
    /// The plan was closed by a person.
    Closed,
}

/// The recorder's judgement of a result against the type's output schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// Whether the result satisfies the schema.
    pub valid: bool,
    /// Where it does not: `"/files/0/lines: -1 is less than 0"`; at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

/// An event about one task.
#[derive(Debug, Clone)]
pub enum TaskEvent {
    /// `task.dispatched`
    Dispatched(Box<Dispatched>),
    /// `task.deferred`: the terminal is offline; once an episode.
    Deferred {
        /// When it was last seen, epoch ms; `None`: never.
        last_seen_ms: Option<i64>,
    },
    /// `task.released`: the terminal is back, the task waits for its turn.
    Released,
    /// `task.attempt_timed_out`
    AttemptTimedOut {
        /// The attempt.
        attempt: u32,
        /// What ran out.
        kind: TimeoutKind,
    },
    /// `task.attempt_lost`: the terminal has no memory of it.
    AttemptLost {
        /// The attempt.
        attempt: u32,
    },
    /// `task.stop_requested`: a superseded attempt must end.
    StopRequested {
        /// The attempt.
        attempt: u32,
    },
    /// `task.cancel_requested`
    CancelRequested {
        /// The attempt that is live, 0 if none.
        attempt: u32,
    },
    /// `task.cancelled`: the grace of a cancel request is over.
    Cancelled,
    /// `task.expired`
    Expired {
        /// Why.
        reason: ExpiryReason,
        /// The attempt that is live, 0 if none.
        attempt: u32,
    },
    /// `task.requeued`
    Requeued {
        /// Sequence of the `plan.requeue_requested` that asked for it.
        request_seq: u64,
    },
    /// `attempt.started`
    Started {
        /// The attempt.
        attempt: u32,
    },
    /// `attempt.progressed`
    Progressed {
        /// The attempt.
        attempt: u32,
        /// Number of the step within the attempt, from 0: tells a repeat from a second step of the same name.
        k: u32,
        /// Name of the step that ended.
        step: String,
        /// How long it took, in milliseconds.
        ms: u64,
    },
    /// `attempt.succeeded`
    Succeeded {
        /// The attempt.
        attempt: u32,
        /// The result, as the terminal wrote it.
        result: Json,
        /// How long the run took, in milliseconds.
        run_ms: Option<u64>,
        /// The recorder's judgement.
        verdict: Verdict,
    },
    /// `attempt.failed`
    Failed {
        /// The attempt.
        attempt: u32,
        /// Error code.
        code: String,
        /// For people, at most 1 kB.
        message: String,
        /// How long the run took, in milliseconds.
        run_ms: Option<u64>,
    },
    /// `attempt.rejected`: the terminal would not start it.
    Rejected {
        /// The attempt.
        attempt: u32,
        /// `BUSY`, `ALREADY_DONE`, `UNKNOWN_TYPE`, `BAD_INPUT`, `JOURNAL_UNAVAILABLE` ...
        code: String,
        /// For people, at most 1 kB.
        message: String,
    },
    /// `attempt.stopped`: it ended because HQ asked.
    Stopped {
        /// The attempt.
        attempt: u32,
    },
}

impl TaskEvent {
    /// Short stable name: the last tokens of the CloudEvents type, e.g. `task.dispatched`.
    pub fn name(&self) -> &'static str {
        match self {
            TaskEvent::Dispatched(_) => "task.dispatched",
            TaskEvent::Deferred { .. } => "task.deferred",
            TaskEvent::Released => "task.released",
            TaskEvent::AttemptTimedOut { .. } => "task.attempt_timed_out",
            TaskEvent::AttemptLost { .. } => "task.attempt_lost",
            TaskEvent::StopRequested { .. } => "task.stop_requested",
            TaskEvent::CancelRequested { .. } => "task.cancel_requested",
            TaskEvent::Cancelled => "task.cancelled",
            TaskEvent::Expired { .. } => "task.expired",
            TaskEvent::Requeued { .. } => "task.requeued",
            TaskEvent::Started { .. } => "attempt.started",
            TaskEvent::Progressed { .. } => "attempt.progressed",
            TaskEvent::Succeeded { .. } => "attempt.succeeded",
            TaskEvent::Failed { .. } => "attempt.failed",
            TaskEvent::Rejected { .. } => "attempt.rejected",
            TaskEvent::Stopped { .. } => "attempt.stopped",
        }
    }

    /// Whether only HQ writes it.
    pub fn is_decision(&self) -> bool {
        self.name().starts_with("task.")
    }

    /// The attempt it speaks of; `None` where it speaks of the task.
    pub fn attempt(&self) -> Option<u32> {
        match self {
            TaskEvent::Dispatched(d) => Some(d.attempt),
            TaskEvent::AttemptTimedOut { attempt, .. }
            | TaskEvent::AttemptLost { attempt }
            | TaskEvent::StopRequested { attempt }
            | TaskEvent::Started { attempt }
            | TaskEvent::Progressed { attempt, .. }
            | TaskEvent::Succeeded { attempt, .. }
            | TaskEvent::Failed { attempt, .. }
            | TaskEvent::Rejected { attempt, .. }
            | TaskEvent::Stopped { attempt } => Some(*attempt),
            TaskEvent::CancelRequested { attempt } | TaskEvent::Expired { attempt, .. } => (*attempt > 0).then_some(*attempt),
            TaskEvent::Deferred { .. } | TaskEvent::Released | TaskEvent::Cancelled | TaskEvent::Requeued { .. } => None,
        }
    }
}

/// Who wrote an event, taken from its subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Writer {
    /// HQ's dispatcher.
    Hq,
    /// What a terminal reported, written by the recorder.
    Terminal(TerminalId),
}

/// A task event with its place in the log.
#[derive(Debug, Clone)]
pub struct LoggedTaskEvent {
    /// Sequence in the log.
    pub seq: u64,
    /// The log's timestamp, epoch ms.
    pub time_ms: i64,
    /// Who wrote it.
    pub writer: Writer,
    /// What it says.
    pub event: TaskEvent,
}
