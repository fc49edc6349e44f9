//! Everything that can go wrong at the command line: a stable code, what was wrong, what to do, and the exit code.

use std::path::{Path, PathBuf};

use fanfold_ledger::port::{LedgerError, RequestError};
use fanfold_wire::api::{ApiError, Problem};
use serde_json::{Value, json};

use crate::exit::Exit;

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// What was handed over is wrong: every problem at once.
    #[error("{message}")]
    Input {
        /// Stable code.
        code: String,
        /// In one sentence.
        message: String,
        /// All of it.
        problems: Vec<Problem>,
    },
    /// A file can't be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The API answered no.
    #[error("{}", .0.message)]
    Api(ApiError),
    /// The API did not answer.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The log or a bucket did not answer.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The embedded server can't be found, started or kept alive.
    #[error("{message}")]
    Server {
        /// Stable code.
        code: &'static str,
        /// Why, and the ways out.
        message: String,
    },
    /// An answer can't be read.
    #[error("{subject} answered something unreadable: {reason} (are fanfold and its services of the same version?)")]
    Answer {
        /// Who answered.
        subject: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is nothing of that name.
    #[error("{message}")]
    NotFound {
        /// Stable code.
        code: &'static str,
        /// What was looked for, and where.
        message: String,
    },
    /// The answer is no.
    #[error("{message}")]
    No {
        /// Stable code.
        code: &'static str,
        /// Why.
        message: String,
    },
    /// The server takes what is sent and answers nothing.
    #[error("no answer for {waited_s} s while waiting for {what} (is the server frozen, its disk full, or its quorum lost?)")]
    NoAnswer {
        /// What was waited for.
        what: String,
        /// How long.
        waited_s: u64,
    },
    /// Something that should always work did not.
    #[error("{0}")]
    Internal(String),
    /// A person interrupted it.
    #[error("interrupted")]
    Interrupted,
    /// Whoever read our output has gone (`| head`): nothing to say any more.
    #[error("the output was closed")]
    OutputClosed,
}

impl CliError {
    /// A problem with what was handed over, alone.
    pub fn input(code: &str, message: impl Into<String>) -> Self {
        CliError::Input { code: code.to_owned(), message: message.into(), problems: Vec::new() }
    }

    /// Problems with what was handed over; the code is the first one's.
    pub fn problems(problems: Vec<Problem>) -> Self {
        let error = ApiError::of_problems(problems);
        CliError::Input { code: error.code, message: error.message, problems: error.problems }
    }

    /// A file that can't be read or written.
    pub fn file(path: &Path, source: std::io::Error) -> Self {
        CliError::File { path: path.to_owned(), source }
    }

    /// Stable code.
    pub fn code(&self) -> &str {
        match self {
            CliError::Usage(_) => "USAGE",
            CliError::Input { code, .. } => code,
            CliError::File { .. } => "FILE_UNREADABLE",
            CliError::Api(error) => &error.code,
            CliError::Request(RequestError::NoResponders(_)) => "NO_SERVICE",
            CliError::Request(RequestError::Timeout { .. }) => "NO_ANSWER",
            CliError::Request(RequestError::Send(_)) => "NOT_SENT",
            CliError::Ledger(error) => error.code(),
            CliError::Answer { .. } => "BAD_ANSWER",
            CliError::NotFound { code, .. } | CliError::No { code, .. } | CliError::Server { code, .. } => code,
            CliError::NoAnswer { .. } => "NO_ANSWER",
            CliError::Internal(_) => "INTERNAL",
            CliError::Interrupted => "INTERRUPTED",
            CliError::OutputClosed => "OUTPUT_CLOSED",
        }
    }

    /// What the process ends with.
    pub fn exit(&self) -> Exit {
        match self {
            CliError::Usage(_) => Exit::Usage,
            CliError::Input { code, .. } if COLLIDES.contains(&code.as_str()) => Exit::Conflict,
            CliError::Input { code, .. } if code.starts_with("NATS_") => Exit::Unreachable,
            CliError::Input { .. } | CliError::File { .. } => Exit::Refused,
            CliError::Api(error) => exit_of_api(&error.code),
            CliError::Request(_)
            | CliError::Ledger(_)
            | CliError::Server { .. }
            | CliError::Answer { .. }
            | CliError::NoAnswer { .. }
            | CliError::Internal(_) => Exit::Unreachable,
            CliError::NotFound { .. } => Exit::NotFound,
            CliError::No { .. } => Exit::No,
            CliError::Interrupted => Exit::Interrupted,
            CliError::OutputClosed => Exit::Ok,
        }
    }

    /// Everything that is wrong, where there is more than one thing.
    pub fn all_problems(&self) -> &[Problem] {
        match self {
            CliError::Input { problems, .. } => problems,
            CliError::Api(error) => &error.problems,
            _ => &[],
        }
    }

    /// What to do.
    pub fn hints(&self) -> Vec<&'static str> {
        match self {
            CliError::Usage(_) => vec!["`fanfold COMMAND --help` shows examples"],
            CliError::Request(RequestError::Timeout { .. }) => {
                vec!["it may have been carried out: ask again before doing it again", "`fanfold doctor` says what is running"]
            }
            CliError::Request(_) | CliError::Ledger(LedgerError::Unavailable { .. }) => {
                vec![
                    "start everything with `fanfold up`, or name a server with --nats / FANFOLD_NATS",
                    "`fanfold doctor` says what is missing",
                ]
            }
            CliError::Api(error) => hints_of_api(&error.code),
            CliError::NotFound { code: "UNKNOWN_PLAN", .. } => vec!["`fanfold plan ls` lists plans"],
            CliError::No { code: "VERIFY_FAILED", .. } => {
                vec![
                    "the log is the truth; `fanfold rebuild` writes records anew; what the log has lost only a backup brings back",
                ]
            }
            _ => Vec::new(),
        }
    }

    /// What was wrong, without the code in front of it that some errors carry in their text.
    pub fn message(&self) -> String {
        let text = self.to_string();
        let own = text.strip_prefix(self.code()).and_then(|rest| rest.strip_prefix(": "));
        own.map(str::to_owned).unwrap_or(text)
    }

    /// The error as JSON: `{"error":{"code","message","problems"}}`.
    pub fn to_json(&self) -> Value {
        json!({"error": {"code": self.code(), "message": self.message(), "problems": self.all_problems()}})
    }
}

/// Codes of commands' own that say: there is something where nothing may be.
const COLLIDES: [&str; 2] = ["STREAMS_EXIST", "DIR_NOT_EMPTY"];

fn exit_of_api(code: &str) -> Exit {
    match code {
        "UNAVAILABLE" | "LOG_FULL" | "SERVER_TOO_OLD" | "UNAUTHORIZED" | "LEDGER_ERROR" | "INTERNAL" | "LATER" | "CORRUPT"
        | "TYPE_DAMAGED" | "BUSY" | "UNKNOWN_ENDPOINT" => Exit::Unreachable,
        "UNKNOWN_FIELD" | "UNKNOWN_TARGET" => Exit::Refused,
        "NOT_FOUND" | "PLAN_LOST" | "NO_SUMMARY" | "SUMMARY_LOST" | "OBJECT_MISSING" => Exit::NotFound,
        "NOT_FAILED" | "PLAN_DAMAGED" => Exit::Conflict,
        "SUMMARY_DAMAGED" => Exit::No,
        _ if code.starts_with("UNKNOWN_") || code.ends_with("_NOT_FOUND") => Exit::NotFound,
        _ if ["CONFLICT", "CLOSED", "CANCELLED", "EXISTS", "TAKEN", "IN_USE"].iter().any(|end| code.ends_with(end)) => {
            Exit::Conflict
        }
        _ => Exit::Refused,
    }
}

fn hints_of_api(code: &str) -> Vec<&'static str> {
    match code {
        "UNKNOWN_PLAN" => vec!["`fanfold plan ls` lists plans"],
        "UNKNOWN_TASK" => vec!["`fanfold task ls PLAN` lists a plan's tasks"],
        "UNKNOWN_TYPE" => vec!["`fanfold type ls` lists task types, `fanfold type register` adds one"],
        "PLAN_CLOSED" => vec!["a closed plan stays as it is: submit a follow-up plan for what is missing"],
        "PLAN_EXISTS" => vec!["an id is used once for ever: submit this plan under another --plan-id"],
        "NO_SUMMARY" => vec!["the first summary comes at the deadline, or when every target is in: `fanfold plan watch PLAN`"],
        "SUMMARY_LOST" => vec!["`fanfold doctor` names what the log has lost; a backup or a replica may have it"],
        "LOG_FULL" => vec!["free disk space or raise the stream's max_bytes"],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_collides_or_is_not_reached_is_not_called_a_wrong_input() {
        for code in ["STREAMS_EXIST", "DIR_NOT_EMPTY"] {
            assert_eq!(CliError::input(code, "x").exit(), Exit::Conflict, "{code}");
        }
        assert_eq!(CliError::input("NATS_CONNECT", "x").exit(), Exit::Unreachable);
        assert_eq!(CliError::input("BAD_ROOT", "x").exit(), Exit::Refused);
    }

    #[test]
    fn api_codes_become_exit_codes() {
        let cases = [
            ("UNKNOWN_PLAN", Exit::NotFound),
            ("UNKNOWN_FIELD", Exit::Refused),
            ("INVALID_PLAN", Exit::Refused),
            ("PLAN_CLOSED", Exit::Conflict),
            ("PLAN_ID_TAKEN", Exit::Conflict),
            ("CONFLICT", Exit::Conflict),
            ("LOG_FULL", Exit::Unreachable),
            ("BUSY", Exit::Unreachable),
            ("NOT_FAILED", Exit::Conflict),
            ("SUMMARY_NOT_FOUND", Exit::NotFound),
            ("UNKNOWN_JOURNAL", Exit::NotFound),
            ("AMBIGUOUS_JOURNAL", Exit::Refused),
            ("SUMMARY_DAMAGED", Exit::No),
            ("PLAN_DAMAGED", Exit::Conflict),
            ("PLAN_LOST", Exit::NotFound),
            ("TYPE_DAMAGED", Exit::Unreachable),
        ];
        for (code, exit) in cases {
            assert_eq!(CliError::Api(ApiError::new(code, "x")).exit(), exit, "{code}");
        }
    }
}
