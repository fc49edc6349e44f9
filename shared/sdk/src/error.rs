//! Why a terminal can't be started.

use crate::journal::JournalError;

/// See the module.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TerminalError {
    /// A value of the configuration can't be used.
    #[error("TERMINAL_CONFIG_INVALID: `{field}` is {value}: {reason}")]
    Config {
        /// Which.
        field: &'static str,
        /// What it was.
        value: String,
        /// What is wrong and what to do.
        reason: &'static str,
    },
    /// Its journal can't be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The first connection failed.
    #[error(
        "NATS_CONNECT: no connection to {url}: {reason}; check that nats-server runs there and that the credentials are right"
    )]
    Connect {
        /// Where.
        url: String,
        /// What the client said.
        reason: String,
    },
    /// The connection is closed for good.
    #[error("NATS_CLOSED: can't subscribe to `{subject}`: {reason}; connect again")]
    Subscribe {
        /// What it wanted to listen to.
        subject: String,
        /// What the client said.
        reason: String,
    },
}

impl TerminalError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            TerminalError::Config { .. } => "TERMINAL_CONFIG_INVALID",
            TerminalError::Journal(error) => error.code(),
            TerminalError::Connect { .. } => "NATS_CONNECT",
            TerminalError::Subscribe { .. } => "NATS_CLOSED",
        }
    }
}
