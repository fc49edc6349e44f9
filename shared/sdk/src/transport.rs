//! How a terminal reaches HQ: the few things it does on the wire, so that it runs the same over NATS and over anything a test makes.

mod nats;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

/// Why something could not be sent, or got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// The connection is closed for good.
    #[error("`{subject}`: the connection is closed: {reason}")]
    Closed {
        /// What was wanted there.
        subject: String,
        /// What the client said.
        reason: String,
    },
    /// It could not be sent now.
    #[error("`{subject}`: not sent: {reason}")]
    NotSent {
        /// Where to.
        subject: String,
        /// What the client said.
        reason: String,
    },
    /// It was sent, as far as is known, and nobody answered in time.
    #[error("`{subject}`: no answer: {reason}")]
    NoAnswer {
        /// Where to.
        subject: String,
        /// What the client said.
        reason: String,
    },
}

/// A message on a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    /// Subject it came in on.
    pub subject: String,
    /// Body.
    pub payload: Bytes,
    /// The log's sequence, from the header `Nats-Sequence` that the server puts on a stored decision; `None`: it is none.
    pub seq: Option<u64>,
}

/// What a terminal needs of its connection; many terminals may share one. Waiting is bounded by whoever calls.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Messages on `subject` (wildcards allowed) until the stream is dropped; it outlives reconnects and ends when the connection is
    /// closed for good.
    async fn subscribe(&self, subject: &str) -> Result<BoxStream<'static, Incoming>, TransportError>;

    /// Sends a request and waits at most `timeout` for its answer.
    async fn request(&self, subject: &str, payload: Bytes, timeout: Duration) -> Result<Bytes, TransportError>;

    /// Sends a message that nobody answers.
    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), TransportError>;

    /// Waits until what was published has left.
    async fn flush(&self) -> Result<(), TransportError>;

    /// Whether the connection is up. While it is not, a terminal sends nothing: it would arrive much later, or block.
    fn is_connected(&self) -> bool;
}
