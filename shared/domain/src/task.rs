//! One task as folded from the log.

use serde::{Deserialize, Serialize};

use crate::Json;

mod attempt;
mod journal;

pub use attempt::{Attempt, Attempts};
pub use journal::Journal;

/// States of the table in [`crate::fold`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TaskState {
    /// Nobody has it.
    Pending,
    /// Handed out, not known to have begun.
    Dispatched,
    /// Known to have begun.
    Running,
    /// Done; never changes again.
    Succeeded,
    /// Given up; may be requeued, or turn out to have succeeded late.
    Failed,
    /// Cancelled; never changes again.
    Cancelled,
}

impl TaskState {
    /// Whether the task has ended (FAILED can still be revised).
    pub fn is_final(self) -> bool {
        matches!(self, TaskState::Succeeded | TaskState::Failed | TaskState::Cancelled)
    }

    /// Whether it counts against the caps.
    pub fn is_live(self) -> bool {
        matches!(self, TaskState::Dispatched | TaskState::Running)
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Outcome {
    /// With a valid result.
    Succeeded,
    /// With a result that breaks its schema.
    Invalid,
    /// With an error of its own.
    Failed,
    /// The terminal would not start it.
    Rejected,
    /// Stopped at HQ's request.
    Stopped,
    /// HQ heard nothing of it.
    TimedOutDelivery,
    /// It ran too long.
    TimedOutRun,
    /// It fell silent.
    TimedOutProgress,
    /// The terminal has no memory of it.
    Lost,
}

/// Why a task waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Waiting {
    /// Its terminal is offline; when it was last seen (epoch ms), `None`: never.
    Offline(Option<i64>),
    /// Its terminal is back, the task waits for its turn.
    Turn,
}

/// Why a PENDING task that had an attempt is PENDING.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PendingSince {
    /// The attempt timed out undelivered, and nothing was decided since but deferred or released.
    DeliveryTimeout,
    /// The attempt ran too long, fell silent or was lost.
    TimedOutOrLost,
    /// It ended in another way, or was requeued.
    Other,
}

/// Why a task FAILED.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailReason {
    /// Its tries are used up.
    Exhausted,
    /// For a reason that must not be retried.
    Business,
    /// The plan expired or was closed first.
    Expired,
}

/// An error as shown with a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskError {
    /// Stable code.
    pub code: String,
    /// For people.
    pub message: String,
    /// Where a result breaks its schema.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// A step a handler named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Number within the attempt.
    pub k: u32,
    /// Name.
    pub step: String,
    /// How long it took, in milliseconds.
    pub ms: u64,
}

/// Steps kept of one attempt.
pub const STEPS_MAX: usize = 64;
/// Attempts kept at each end of the list.
pub const ATTEMPTS_KEPT: usize = 32;
/// Ends in a row that used no try, after which a person should look.
pub const NO_TRY_ENDS_ATTENTION: u32 = 20;

/// What was folded without effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Absorbed {
    /// Said before.
    pub duplicate: u32,
    /// About an attempt that is over.
    pub stale: u32,
    /// About a task that is over.
    pub late: u32,
    /// About an attempt that doesn't exist or is another terminal's.
    pub foreign: u32,
    /// HQ decisions that had nothing left to decide.
    pub ignored: u32,
}

impl Absorbed {
    /// Adds another count to this one.
    pub fn add(&mut self, other: &Absorbed) {
        self.duplicate += other.duplicate;
        self.stale += other.stale;
        self.late += other.late;
        self.foreign += other.foreign;
        self.ignored += other.ignored;
    }
}

/// What most tasks don't have.
#[derive(Debug, Clone, Default, PartialEq)]
struct Rare {
    cancel_ms: i64,
    attempts_dropped: u32,
    absorbed: Absorbed,
}

/// One task. Absent from the state bucket means this default: PENDING, attempt 0.
///
/// Packed: HQ holds one of these for every target of every open plan (`shared/ledger/tests/memory.rs` says how large).
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// State.
    pub state: TaskState,
    /// A cancel was requested while an attempt was live.
    pub cancelling: bool,
    /// Why it is PENDING again.
    pub pending_since: PendingSince,
    /// Outcome of the last attempt that ended, until requeued.
    pub last_outcome: Option<Outcome>,
    /// Why it FAILED.
    pub failure: Option<FailReason>,
    /// It had FAILED and then succeeded after all.
    pub late: bool,
    /// Current attempt n; 0 before the first.
    pub attempt: u32,
    /// Highest number handed out; above `attempt` when the newest is superseded.
    pub last_attempt: u32,
    /// Tries used up.
    pub tries: u32,
    /// Ends in a row that used no try.
    pub no_try_ends: u32,
    /// Why it waits, or waited when it expired.
    pub waiting: Option<Waiting>,
    /// Not to be dispatched before, epoch ms.
    pub not_before_ms: i64,
    /// Attempts: the first and last [`ATTEMPTS_KEPT`].
    pub attempts: Attempts,
    /// The last error.
    pub error: Option<Box<TaskError>>,
    /// The result.
    pub result: Option<ResultJson>,
    /// Log time of the first event, epoch ms.
    pub created_ms: i64,
    /// Log time of the last change, epoch ms.
    pub updated_ms: i64,
    /// Sequence of the last event folded, 0 before the first.
    pub seq: u64,
    /// Sequence of the last decision folded: what the next one expects.
    pub decision_seq: u64,
    /// Sequence of the last event that changed what a summary's row shows.
    pub row_seq: u64,
    /// Sequence at which it became final, 0 while it isn't.
    pub final_seq: u64,
    /// Log time at which it became final, epoch ms; 0 while it isn't.
    pub final_ms: i64,
    rare: Option<Box<Rare>>,
}

/// A result, compared by its text.
#[derive(Debug, Clone)]
pub struct ResultJson(pub Json);

impl PartialEq for ResultJson {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Default for Task {
    fn default() -> Self {
        Self {
            state: TaskState::Pending,
            cancelling: false,
            pending_since: PendingSince::Other,
            last_outcome: None,
            failure: None,
            late: false,
            attempt: 0,
            last_attempt: 0,
            tries: 0,
            no_try_ends: 0,
            waiting: None,
            not_before_ms: 0,
            attempts: Attempts::default(),
            error: None,
            result: None,
            created_ms: 0,
            updated_ms: 0,
            seq: 0,
            decision_seq: 0,
            row_seq: 0,
            final_seq: 0,
            final_ms: 0,
            rare: None,
        }
    }
}

impl Task {
    /// Log time of the request to cancel it while an attempt was live, epoch ms; 0: there was none.
    pub fn cancel_ms(&self) -> i64 {
        self.rare.as_ref().map_or(0, |rare| rare.cancel_ms)
    }

    /// Attempts dropped from the middle.
    pub fn attempts_dropped(&self) -> u32 {
        self.rare.as_ref().map_or(0, |rare| rare.attempts_dropped)
    }

    /// What was folded without effect.
    pub fn absorbed(&self) -> Absorbed {
        self.rare.as_ref().map_or_else(Absorbed::default, |rare| rare.absorbed)
    }

    /// Notes that a cancel was requested while an attempt was live, at that log time (epoch ms).
    pub(crate) fn cancel(&mut self, time_ms: i64) {
        self.cancelling = true;
        self.rare.get_or_insert_default().cancel_ms = time_ms;
    }

    /// Takes an attempt out of the middle of the list.
    pub(crate) fn drop_attempt(&mut self, index: usize) {
        self.attempts.remove(index);
        self.rare.get_or_insert_default().attempts_dropped += 1;
    }

    /// What was folded without effect, to be counted.
    pub fn absorbed_mut(&mut self) -> &mut Absorbed {
        &mut self.rare.get_or_insert_default().absorbed
    }

    /// The record of an attempt, if it is still kept.
    pub fn attempt_record(&self, number: u32) -> Option<&Attempt> {
        self.attempts.iter().rev().find(|a| a.number == number)
    }

    /// The current attempt's record.
    pub fn current(&self) -> Option<&Attempt> {
        self.attempt_record(self.attempt)
    }

    /// Whether it waits for a terminal that is offline, or did when it expired.
    pub fn is_offline(&self) -> bool {
        matches!(self.waiting, Some(Waiting::Offline(_)))
    }

    /// Whether a person should look: it keeps being handed out and nothing begins.
    pub fn needs_attention(&self) -> bool {
        self.no_try_ends >= NO_TRY_ENDS_ATTENTION
    }

    /// Whether the last attempt timed out or was lost, by HQ's word or the terminal's own.
    pub fn last_timed_out_or_lost(&self) -> bool {
        match self.last_outcome {
            Some(Outcome::TimedOutDelivery | Outcome::TimedOutRun | Outcome::TimedOutProgress | Outcome::Lost) => true,
            Some(Outcome::Failed) => self.error.as_ref().is_some_and(|e| e.code == "TIMEOUT" || e.code == "LOST"),
            Some(Outcome::Succeeded | Outcome::Invalid | Outcome::Rejected | Outcome::Stopped) | None => false,
        }
    }

    /// Attempts that are open besides the current live one: each is to be stopped, and counts against the caps.
    pub fn superseded_open(&self) -> impl Iterator<Item = &Attempt> {
        let live = self.state.is_live().then_some(self.attempt);
        self.attempts.iter().filter(move |a| a.is_open() && Some(a.number) != live)
    }
}
