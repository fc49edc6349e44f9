//! What goes into the rules and what comes out of them.

use bytes::Bytes;
use fanfold_wire::domain::Json;
use fanfold_wire::domain::event::TaskEvent;
use fanfold_wire::domain::ids::TerminalId;
use fanfold_wire::terminal::AttemptRef;

use crate::journal::{EndKind, Op};

/// Stable codes of rejections and failures the terminal itself makes.
pub mod code {
    /// As many attempts are held as the terminal takes.
    pub const BUSY: &str = "BUSY";
    /// A success of the task is unanswered or was answered valid.
    pub const ALREADY_DONE: &str = "ALREADY_DONE";
    /// No handler for this type and version.
    pub const UNKNOWN_TYPE: &str = "UNKNOWN_TYPE";
    /// The handler does not take this input.
    pub const BAD_INPUT: &str = "BAD_INPUT";
    /// The journal can't be written.
    pub const JOURNAL_UNAVAILABLE: &str = "JOURNAL_UNAVAILABLE";
    /// The terminal was restarted in the middle of the run.
    pub const LOST: &str = "LOST";
    /// The run took longer than allowed.
    pub const TIMEOUT: &str = "TIMEOUT";
    /// The handler panicked.
    pub const HANDLER_PANIC: &str = "HANDLER_PANIC";
    /// The result is larger than allowed.
    pub const RESULT_TOO_LARGE: &str = "RESULT_TOO_LARGE";
    /// A success was refused without a code.
    pub const REFUSED: &str = "REFUSED";
}

/// An attempt to run.
#[derive(Debug, Clone)]
pub struct RunOrder {
    /// Which.
    pub attempt: AttemptRef,
    /// Task type.
    pub kind: String,
    /// Version of the task type.
    pub version: u32,
    /// The plan's input.
    pub input: Json,
    /// How long the run may take, in milliseconds.
    pub run_timeout_ms: u64,
    /// W3C trace context.
    pub traceparent: Option<String>,
}

/// What is to be done.
#[derive(Debug, Clone)]
pub enum Action {
    /// Write `Begun` durably, then run; tell [`super::Holds::ended`] or [`super::Holds::not_begun`].
    Run(Box<RunOrder>),
    /// Cancel a run; its end comes as any other.
    Stop(AttemptRef),
    /// Write a report, durably if asked, then send it until it is answered.
    Report {
        /// Of which attempt.
        attempt: AttemptRef,
        /// How it ended.
        end: EndKind,
        /// What to say.
        event: Box<TaskEvent>,
        /// W3C trace context of its command.
        traceparent: Option<String>,
        /// Put it into the journal first.
        durable: bool,
    },
    /// Send a report that is in the journal already until it is answered.
    Send {
        /// Of which attempt.
        attempt: AttemptRef,
        /// How it ended.
        end: EndKind,
        /// The report.
        report: Bytes,
    },
    /// A report waiting for its turn is to go with the next batch.
    Expedite(AttemptRef),
    /// Write into the journal some time.
    Note(Op),
}

/// How a command came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// On `ff.cmd`: must name this boot.
    Live,
    /// In a sync answer.
    Sync,
}

/// Whether there is a handler that takes a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Yes.
    Taken,
    /// No handler of that type and version.
    UnknownType,
    /// Its handler refuses the input, for this reason.
    BadInput(String),
}

/// What was counted since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Commands to run, however they came.
    pub offered: u64,
    /// Of them, known already.
    pub duplicates: u64,
    /// Of them, meant for another terminal, journal or boot.
    pub foreign: u64,
    /// Of them, left to a later sync: too much is unanswered, the terminal is stopping, or it may be a repeat of what is forgotten.
    pub left_to_sync: u64,
    /// Runs begun.
    pub runs: u64,
    /// Ended with a result.
    pub succeeded: u64,
    /// Ended with an error.
    pub failed: u64,
    /// Ended because HQ asked, begun or not.
    pub stopped: u64,
    /// Not begun, with a code.
    pub rejected: u64,
    /// Found begun at the start.
    pub lost: u64,
    /// Reports refused for good.
    pub refused: u64,
    /// Sync answers that were older than what is known.
    pub syncs_discarded: u64,
    /// Times HQ said that its log was restored from an older backup.
    pub restores_seen: u64,
}

/// Who the terminal is and how much it takes.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Its id.
    pub terminal: TerminalId,
    /// Its journal's id.
    pub journal: String,
    /// This start's id.
    pub boot: String,
    /// Runs at once, at least 1.
    pub slots: usize,
    /// Attempts queued or running at once.
    pub held_max: usize,
}
