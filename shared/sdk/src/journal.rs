//! What a terminal must remember across restarts, and the contract of the places it can be kept in.
//!
//! One row an attempt: begun, finished (with the whole report, ready to be sent again byte for byte) or settled; and one number a
//! task, the highest attempt known, that outlives its attempts until the plan is closed. What was given up because HQ's view included
//! it leaves one number a terminal behind, the sequence of that view. One journal serves many terminals, each with a journal id of its
//! own that is made the first time the terminal is loaded from it.

mod codec;
mod disk;
mod memory;

use std::path::PathBuf;

use async_trait::async_trait;
use bytes::Bytes;
use fanfold_wire::domain::ids::{TaskId, TerminalId};

pub use disk::{DiskJournal, DiskOptions};
pub use memory::MemoryJournal;

/// Why a journal can't be opened, read or written. Cheap to clone: one failed commit answers every caller in its group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// Another process, or this one, has the file open.
    #[error(
        "JOURNAL_LOCKED: the journal `{path}` is in use by another process; stop that one, or give this terminal a file of its own"
    )]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a journal, or its contents don't match their checksums.
    #[error(
        "JOURNAL_DAMAGED: the journal `{path}` is damaged: {reason}; move it away, or start once with the option that does (`terminal run --move-damaged-journal`): attempts it held are then concluded lost"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// The file was written by another version of this software.
    #[error(
        "JOURNAL_VERSION: the journal `{path}` has format `{found}`, this version reads `{expected}`; use the version that wrote it"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// What the file says.
        found: String,
        /// What is understood here.
        expected: &'static str,
    },
    /// It can't be written or read now: disk full, an I/O error, no permission.
    #[error(
        "JOURNAL_UNAVAILABLE: the journal can't be used: {reason}; free disk space or repair the disk; new work is refused until then"
    )]
    Unavailable {
        /// What the system said.
        reason: String,
    },
}

impl JournalError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            JournalError::Locked { .. } => "JOURNAL_LOCKED",
            JournalError::Damaged { .. } => "JOURNAL_DAMAGED",
            JournalError::Version { .. } => "JOURNAL_VERSION",
            JournalError::Unavailable { .. } => "JOURNAL_UNAVAILABLE",
        }
    }
}

/// How an attempt ended here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndKind {
    /// With a result.
    Succeeded,
    /// With an error.
    Failed,
    /// Because HQ asked.
    Stopped,
    /// It was never begun.
    Rejected,
}

/// What is kept about one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Its handler was started, or was about to be.
    Begun {
        /// W3C trace context of the command.
        traceparent: Option<String>,
    },
    /// It ended; the report is not answered yet.
    Finished {
        /// How.
        end: EndKind,
        /// The report, byte for byte as it is sent.
        report: Bytes,
    },
    /// It ended and the report is answered; the report itself is forgotten.
    Settled {
        /// How it ended.
        end: EndKind,
        /// The report's sequence in the log, 0 if it was refused.
        seq: u64,
        /// A success that HQ holds for valid.
        valid: bool,
        /// Code of a final refusal.
        code: Option<String>,
    },
}

/// A change of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Writes an attempt's row.
    Put {
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: u32,
        /// Its new contents.
        record: Record,
    },
    /// Drops an attempt's row and keeps its number as known.
    Reduce {
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: u32,
    },
    /// Drops everything about a task.
    Forget {
        /// The task.
        task: TaskId,
    },
    /// Sets the log sequence that answers must include from now on: rows were dropped because a view included that much.
    Known {
        /// Log sequence; it may be lower than before, when HQ was restored from an older backup.
        seq: u64,
    },
}

/// One attempt's row, read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The task.
    pub task: TaskId,
    /// The attempt.
    pub attempt: u32,
    /// Its contents; `None`: only the number is known.
    pub record: Option<Record>,
}

/// A terminal's part of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// Random, made when the terminal was first loaded from this journal.
    pub journal_id: String,
    /// Every row, in order of task and attempt.
    pub rows: Vec<Row>,
    /// What [`Op::Known`] set last; 0: nothing yet.
    pub known_seq: u64,
}

/// A place attempts are remembered in.
#[async_trait]
pub trait Journal: Send + Sync + 'static {
    /// Reads a terminal's rows, making its journal id (durably) the first time.
    async fn load(&self, terminal: &TerminalId) -> Result<Loaded, JournalError>;

    /// Applies all of `ops` or none; resolves when they are durable. No operations: a probe whether the journal can be written.
    async fn write(&self, terminal: &TerminalId, ops: Vec<Op>) -> Result<(), JournalError>;

    /// Applies `ops` some time later, in the order of the calls. They may be lost by a crash: only for what can be found out again
    /// (that a report is answered, that an attempt is no longer asked for).
    fn write_lazily(&self, terminal: &TerminalId, ops: Vec<Op>);
}

#[cfg(test)]
mod tests;
