//! Core NATS: plain messages, requests, and the discoverable service.

use std::time::Duration;

use async_nats::service::ServiceExt;
use async_nats::{Message, RequestErrorKind};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};

use super::JetStreamLedger;
use super::api::header;
use crate::port::{BoxStream, Bus, BusMessage, LedgerError, RequestError};
use crate::watch;

/// How long a publish may wait for room in the client's buffer while the connection is gone.
const PUBLISH_WAIT: Duration = Duration::from_secs(5);

/// Subjects that terminals write to, heard on a connection of their own.
const FROM_TERMINALS: [&str; 3] = ["ff.report.", "ff.beat.", "ff.sync."];

fn bus_message(message: Message) -> BusMessage {
    let seq = message.headers.as_ref().and_then(|headers| header(headers, "Nats-Sequence").parse().ok());
    BusMessage {
        subject: message.subject.into_string(),
        reply: message.reply.map(async_nats::Subject::into_string),
        payload: message.payload,
        seq,
    }
}

fn other(error: impl std::fmt::Display) -> LedgerError {
    LedgerError::Other(error.to_string())
}

#[async_trait]
impl Bus for JetStreamLedger {
    async fn subscribe(&self, subject: &str, queue: Option<&str>) -> Result<BoxStream<BusMessage>, LedgerError> {
        let client =
            if FROM_TERMINALS.iter().any(|s| subject.starts_with(s)) { self.outside().await? } else { &self.inner.client };
        let subscriber = match queue {
            Some(queue) => client.queue_subscribe(subject.to_owned(), queue.to_owned()).await,
            None => client.subscribe(subject.to_owned()).await,
        };
        let subscriber = subscriber.map_err(other)?;
        // Until the server has seen it, a message could pass by unseen.
        let _ = tokio::time::timeout(PUBLISH_WAIT, self.settle(client)).await;
        Ok(subscriber.map(bus_message).boxed())
    }

    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), LedgerError> {
        match tokio::time::timeout(PUBLISH_WAIT, self.inner.client.publish(subject.to_owned(), payload)).await {
            Ok(sent) => sent.map_err(other),
            Err(_) => {
                let waited_ms = u64::try_from(PUBLISH_WAIT.as_millis()).unwrap_or(u64::MAX);
                Err(LedgerError::Unavailable { waited_ms, reason: "the connection is gone and its buffer full".into() })
            }
        }
    }

    async fn request(&self, subject: &str, payload: Bytes, timeout: Duration) -> Result<Bytes, RequestError> {
        let request = async_nats::Request::new().payload(payload).timeout(Some(timeout));
        let timed_out = || RequestError::Timeout {
            subject: subject.to_owned(),
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        };
        // The outer bound holds even when the request cannot leave the process.
        match tokio::time::timeout(timeout, self.inner.client.send_request(subject.to_owned(), request)).await {
            Ok(Ok(message)) => Ok(message.payload),
            Ok(Err(error)) => Err(match error.kind() {
                RequestErrorKind::NoResponders => RequestError::NoResponders(subject.to_owned()),
                RequestErrorKind::TimedOut => timed_out(),
                _ => RequestError::Send(error.to_string()),
            }),
            Err(_) => Err(timed_out()),
        }
    }

    async fn serve(
        &self,
        service: &str,
        version: &str,
        endpoints: Vec<(String, String)>,
    ) -> Result<BoxStream<BusMessage>, LedgerError> {
        let builder = self.inner.client.service_builder().description("fanfold");
        let service = builder.start(service, version).await.map_err(other)?;
        let mut all = Vec::with_capacity(endpoints.len());
        for (name, subject) in endpoints {
            all.push(service.endpoint_builder().name(name).add(subject).await.map_err(other)?);
        }
        let _ = tokio::time::timeout(PUBLISH_WAIT, self.settle(&self.inner.client)).await;
        let requests = stream::select_all(all).map(move |request| {
            // The service answers PING and INFO for as long as somebody takes its requests.
            let _ = &service;
            bus_message(request.message)
        });
        Ok(requests.boxed())
    }

    fn max_payload(&self) -> usize {
        self.inner.client.max_payload()
    }

    fn connections(&self) -> watch::Receiver<u64> {
        self.inner.connections.clone()
    }
}

impl JetStreamLedger {
    /// Waits until the server has seen everything sent so far: a round trip, where a flush only empties a buffer.
    async fn settle(&self, client: &async_nats::Client) {
        let request = async_nats::Request::new().payload(Bytes::new()).timeout(Some(PUBLISH_WAIT));
        // Nobody listens there: the server says so at once, after all that came before.
        let _ = client.send_request(format!("_ff.settle.{}", self.inner.nonce), request).await;
    }
}
