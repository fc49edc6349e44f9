//! Putting messages on the wire: one event, or an atomic batch (ADR-50), once, with the answer as it came.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use serde::Deserialize;

use super::JetStreamLedger;
use super::api::{ApiError, Failure};
use crate::port::{Append, Expect};

/// The stream's answer to a publish.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct PubAck {
    /// Of the message, or of the last one of a batch.
    #[serde(default)]
    pub(super) seq: u64,
    #[serde(default)]
    pub(super) duplicate: bool,
    #[serde(default)]
    pub(super) count: Option<u64>,
    #[serde(default)]
    pub(super) error: Option<ApiError>,
}

/// A message on its way into a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub(super) subject: &'a str,
    pub(super) id: &'a str,
    pub(super) payload: &'a Bytes,
    pub(super) expect: Option<(&'a str, u64)>,
}

impl<'a> From<&'a Append> for Outgoing<'a> {
    fn from(event: &'a Append) -> Self {
        let expect = event.expect.as_ref().map(|Expect { filter, last_seq }| (filter.as_str(), *last_seq));
        Self { subject: &event.subject, id: &event.id, payload: &event.payload, expect }
    }
}

impl Outgoing<'_> {
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", self.id);
        if let Some((filter, last_seq)) = self.expect {
            headers.insert("Nats-Expected-Last-Subject-Sequence", last_seq.to_string());
            headers.insert("Nats-Expected-Last-Subject-Sequence-Subject", filter);
        }
        headers
    }
}

impl JetStreamLedger {
    /// Publishes one message and waits for the stream's answer.
    pub(super) async fn send_one(&self, message: Outgoing<'_>) -> Result<PubAck, Failure> {
        self.publish_acked(message.subject.to_owned(), message.headers(), message.payload.clone(), self.timeout(0)).await
    }

    /// Publishes an atomic batch under a batch id; all of it is stored, contiguous and in order, or nothing.
    pub(super) async fn send_batch(&self, batch_id: &str, messages: &[Outgoing<'_>]) -> Result<PubAck, Failure> {
        let Some((last, before)) = messages.split_last() else {
            return Err(Failure::NotSent("an empty batch".into()));
        };
        let bytes = messages.iter().map(|message| message.payload.len()).sum();
        let timeout = self.timeout(bytes);
        let part_headers = |message: &Outgoing<'_>, number: usize| {
            let mut headers = message.headers();
            headers.insert("Nats-Batch-Id", batch_id);
            headers.insert("Nats-Batch-Sequence", number.to_string());
            headers
        };
        let send_parts = async {
            // Batches sent at once go out one behind the other: their sequences keep the order in which they were begun.
            let turn = self.inner.sending.lock().await;
            for (index, message) in before.iter().enumerate() {
                let headers = part_headers(message, index + 1);
                let sent =
                    self.inner.client.publish_with_headers(message.subject.to_owned(), headers, message.payload.clone()).await;
                sent.map_err(|error| Failure::NotSent(error.to_string()))?;
            }
            Ok(turn)
        };
        // While disconnected the client's buffer fills up and publishing waits; a batch without its end is never stored.
        let turn = match tokio::time::timeout(timeout, send_parts).await {
            Ok(sent) => sent?,
            Err(_) => return Err(Failure::Unknown("the batch could not be handed to the connection".into())),
        };
        let mut headers = part_headers(last, messages.len());
        headers.insert("Nats-Batch-Commit", "1");
        let commit =
            tokio::task::unconstrained(self.publish_acked(last.subject.to_owned(), headers, last.payload.clone(), timeout));
        let mut commit = pin!(commit);
        // The first poll hands the message to the connection, or queues for it; the answer is awaited without the turn.
        let first = futures::poll!(commit.as_mut());
        drop(turn);
        let ack = match first {
            Poll::Ready(answer) => answer?,
            Poll::Pending => commit.await?,
        };
        if ack.count.is_some_and(|count| count != messages.len() as u64) || ack.seq < messages.len() as u64 {
            return Err(Failure::Unknown(format!("the batch of {} was answered with {ack:?}", messages.len())));
        }
        Ok(ack)
    }

    /// Publishes to a stream's subject and waits for the answer.
    pub(super) async fn publish_acked(
        &self,
        subject: String,
        headers: HeaderMap,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<PubAck, Failure> {
        let answer = self.ask(subject, Some(headers), payload, timeout).await?.payload;
        let ack: PubAck = serde_json::from_slice(&answer)
            .map_err(|error| Failure::Unknown(format!("unreadable answer to a publish: {error}")))?;
        match ack.error {
            Some(error) => Err(Failure::Refused(error)),
            None => Ok(ack),
        }
    }

    /// How long an answer to so many bytes is waited for: a slow disk writes at least a few megabytes a second.
    pub(super) fn timeout(&self, bytes: usize) -> Duration {
        Duration::from_millis(self.inner.policy.ack_timeout_ms) + Duration::from_micros(bytes as u64 / 4)
    }
}
