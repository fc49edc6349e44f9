//! Plain messages and what can go wrong with a request.

use bytes::Bytes;

/// A message of core NATS (not stored).
#[derive(Debug, Clone)]
pub struct BusMessage {
    /// Subject it came in on.
    pub subject: String,
    /// Where an answer goes, if one is wanted.
    pub reply: Option<String>,
    /// Body.
    pub payload: Bytes,
    /// Sequence in the log, on messages the log itself republished (`ff.cmd.>`, header `Nats-Sequence`).
    pub seq: Option<u64>,
}

/// Why a request had no answer.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum RequestError {
    /// Nobody listens there.
    #[error("nobody answers on {0} (is `fanfold up` or `fanfold serve --role api` running on this server?)")]
    NoResponders(String),
    /// No answer in time.
    #[error("no answer on {subject} within {timeout_ms} ms")]
    Timeout {
        /// Subject asked.
        subject: String,
        /// Time waited.
        timeout_ms: u64,
    },
    /// The connection is gone, or the payload is over the server's limit.
    #[error("the request could not be sent: {0}")]
    Send(String),
}
