//! The transport over a NATS client.

use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, Message, Request};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;

use super::{Incoming, Transport, TransportError};

fn incoming(message: Message) -> Incoming {
    let header = message.headers.as_ref().and_then(|headers| headers.get(async_nats::header::NATS_SEQUENCE));
    let seq = header.and_then(|value| value.as_str().parse().ok());
    Incoming { subject: message.subject.as_str().to_owned(), payload: message.payload, seq }
}

#[async_trait]
impl Transport for Client {
    async fn subscribe(&self, subject: &str) -> Result<BoxStream<'static, Incoming>, TransportError> {
        match Client::subscribe(self, subject.to_owned()).await {
            Ok(subscriber) => Ok(subscriber.map(incoming).boxed()),
            Err(error) => Err(TransportError::Closed { subject: subject.into(), reason: error.to_string() }),
        }
    }

    async fn request(&self, subject: &str, payload: Bytes, timeout: Duration) -> Result<Bytes, TransportError> {
        let request = Request::new().payload(payload).timeout(Some(timeout));
        match self.send_request(subject.to_owned(), request).await {
            Ok(message) => Ok(message.payload),
            Err(error) => Err(TransportError::NoAnswer { subject: subject.into(), reason: error.to_string() }),
        }
    }

    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), TransportError> {
        let sent = Client::publish(self, subject.to_owned(), payload).await;
        sent.map_err(|error| TransportError::NotSent { subject: subject.into(), reason: error.to_string() })
    }

    async fn flush(&self) -> Result<(), TransportError> {
        let flushed = Client::flush(self).await;
        flushed.map_err(|error| TransportError::NotSent { subject: String::new(), reason: error.to_string() })
    }

    fn is_connected(&self) -> bool {
        self.connection_state() == State::Connected
    }
}
