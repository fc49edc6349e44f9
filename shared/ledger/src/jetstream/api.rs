//! The JetStream API as plain requests: JSON in, JSON or an error code out.

use std::time::Duration;

use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::RawMessage;
use async_nats::{HeaderMap, Message, RequestErrorKind};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use super::{Budget, JetStreamLedger, LOG};
use crate::port::{LedgerError, Stored};

/// Between two requests for the same, while the first one is not answered.
const READ_AGAIN: Duration = Duration::from_millis(300);

/// Error codes of the server; the numbers are its API, the texts are not.
pub(super) mod code {
    pub(crate) const NOT_ENOUGH_RESOURCES: u64 = 10023;
    pub(crate) const MEMORY_EXCEEDED: u64 = 10028;
    pub(crate) const STORAGE_EXCEEDED: u64 = 10047;
    pub(crate) const ACCOUNT_RESOURCES_EXCEEDED: u64 = 10002;
    pub(crate) const STORE_FAILED: u64 = 10077;
    pub(crate) const NO_MESSAGE_FOUND: u64 = 10037;
    pub(crate) const STREAM_NOT_FOUND: u64 = 10059;
    pub(crate) const WRONG_LAST_SEQUENCE: u64 = 10071;
    pub(crate) const WRONG_LAST_SEQUENCE_CONSTANT: u64 = 10164;
    pub(crate) const MESSAGE_TOO_LARGE: u64 = 10054;
    pub(crate) const HEADER_TOO_LARGE: u64 = 10097;
    pub(crate) const BATCH_INCOMPLETE: u64 = 10176;
    pub(crate) const BATCH_DUPLICATE: u64 = 10201;
    /// Answers that only say "not now": no leader or peers yet, stream offline, same id in flight, too many open batches.
    pub(crate) const NOT_NOW: [u64; 8] = [10005, 10008, 10009, 10118, 10158, 10163, 10167, 10210];
    pub(crate) const FULL: [u64; 5] =
        [STORE_FAILED, NOT_ENOUGH_RESOURCES, MEMORY_EXCEEDED, STORAGE_EXCEEDED, ACCOUNT_RESOURCES_EXCEEDED];
}

/// An error as the server words it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ApiError {
    #[serde(default)]
    pub(super) err_code: u64,
    #[serde(default)]
    pub(super) description: String,
}

impl ApiError {
    /// Whether nothing is decided yet and the same may be asked again. Among it: another write under the same filter is still being
    /// replicated (whether it will be stored nobody knows, so it is no conflict yet; one node never says so to us, because no group
    /// of ours holds two events that concern each other), and an error without a code.
    pub(super) fn is_not_now(&self) -> bool {
        self.err_code == 0 || self.err_code == code::WRONG_LAST_SEQUENCE_CONSTANT || code::NOT_NOW.contains(&self.err_code)
    }

    pub(super) fn is_full(&self) -> bool {
        code::FULL.contains(&self.err_code)
    }

    pub(super) fn is_conflict(&self) -> bool {
        self.err_code == code::WRONG_LAST_SEQUENCE
    }

    pub(super) fn text(&self) -> String {
        format!("{} (error {})", self.description, self.err_code)
    }

    /// As an error of the port, about a stream.
    pub(super) fn about(self, stream: &str) -> LedgerError {
        if self.err_code == code::STREAM_NOT_FOUND {
            return LedgerError::AssetMissing { asset: stream.to_owned() };
        }
        self.into_error()
    }

    /// As an error of the port, when it is not an answer about an event.
    pub(super) fn into_error(self) -> LedgerError {
        if self.is_full() { LedgerError::Full(self.text()) } else { LedgerError::Other(self.text()) }
    }
}

/// Why a message or request has no proper answer.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// The server refused.
    Refused(ApiError),
    /// Nobody said what became of it.
    Unknown(String),
    /// It never left this process.
    NotSent(String),
}

#[derive(Deserialize)]
struct MaybeError {
    error: Option<ApiError>,
}

impl JetStreamLedger {
    /// One request, its raw answer, and nothing more: no retry. A reconnect while waiting cuts the wait short, because
    /// the answer would have gone to the old connection.
    pub(super) async fn ask(
        &self,
        subject: String,
        headers: Option<HeaderMap>,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Message, Failure> {
        let mut request = async_nats::Request::new().payload(payload).timeout(Some(timeout));
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        let mut connections = self.inner.connections.clone();
        connections.mark_unchanged();
        let reconnected = async {
            let _ = connections.changed().await;
            // What was sent on the new connection is answered within this.
            tokio::time::sleep(Duration::from_millis(250)).await;
        };
        tokio::select! {
            answer = self.inner.client.send_request(subject, request) => answer.map_err(|error| match error.kind() {
                RequestErrorKind::MaxPayloadExceeded | RequestErrorKind::InvalidSubject => Failure::NotSent(error.to_string()),
                _ => Failure::Unknown(error.to_string()),
            }),
            () = reconnected => Err(Failure::Unknown("the connection was lost before the answer".into())),
        }
    }

    /// One API request without retry; an error answer becomes `Refused`.
    pub(super) async fn api_once(&self, verb: &str, request: &Value) -> Result<Bytes, Failure> {
        self.api_within(verb, request, Duration::from_millis(self.inner.policy.ack_timeout_ms.max(2_000))).await
    }

    /// As [`Self::api_once`], with a wait of its own.
    pub(super) async fn api_within(&self, verb: &str, request: &Value, timeout: Duration) -> Result<Bytes, Failure> {
        let payload = if request.is_null() { Bytes::new() } else { Bytes::from(request.to_string()) };
        let answer = self.ask(format!("$JS.API.{verb}"), None, payload, timeout).await?.payload;
        match serde_json::from_slice::<MaybeError>(&answer) {
            Ok(MaybeError { error: Some(error) }) => Err(Failure::Refused(error)),
            Ok(MaybeError { error: None }) => Ok(answer),
            Err(error) => Err(Failure::Unknown(format!("unreadable answer to {verb}: {error}"))),
        }
    }

    /// One API request, tried until it is answered or the budget is used up. `Ok(Err(..))` is a refusal.
    pub(super) async fn api(&self, verb: &str, request: &Value, budget: Budget) -> Result<Result<Bytes, ApiError>, LedgerError> {
        loop {
            let reason = match self.api_once(verb, request).await {
                Ok(answer) => return Ok(Ok(answer)),
                Err(Failure::Refused(error)) if !error.is_not_now() => return Ok(Err(error)),
                Err(Failure::NotSent(reason)) => return Err(LedgerError::Other(reason)),
                Err(Failure::Refused(error)) => error.text(),
                Err(Failure::Unknown(reason)) => format!("{verb}: {reason}"),
            };
            budget.pause(&reason).await?;
        }
    }

    /// As [`Self::api`] for what changes nothing. While a stream has no leader nobody answers at all, and who asked just before one is
    /// elected would wait for its whole time-out: so it is asked again meanwhile, and the first answer counts.
    pub(super) async fn api_read(
        &self,
        verb: &str,
        request: &Value,
        budget: Budget,
    ) -> Result<Result<Bytes, ApiError>, LedgerError> {
        let mut asked = FuturesUnordered::new();
        let mut reason = String::new();
        let mut again = tokio::time::interval(READ_AGAIN);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                Some(answer) = asked.next() => match answer {
                    Ok(answer) => return Ok(Ok(answer)),
                    Err(Failure::Refused(error)) if !error.is_not_now() => return Ok(Err(error)),
                    Err(Failure::NotSent(reason)) => return Err(LedgerError::Other(reason)),
                    Err(Failure::Refused(error)) => reason = error.text(),
                    Err(Failure::Unknown(why)) => reason = format!("{verb}: {why}"),
                },
                // Each ends by its own time-out, which bounds how many there are.
                _ = again.tick() => {
                    budget.allows(&reason)?;
                    asked.push(self.api_once(verb, request));
                }
            }
        }
    }

    /// What the leader of a stream says about it.
    pub(super) async fn stream_info(&self, stream: &str, request: &Value) -> Result<Value, LedgerError> {
        let answer = self.api_read(&format!("STREAM.INFO.{stream}"), request, self.budget()).await?;
        let answer = answer.map_err(|error| error.about(stream))?;
        serde_json::from_slice(&answer).map_err(|error| LedgerError::Corrupt(error.to_string()))
    }

    /// Last sequence of a stream, from its leader.
    pub(super) async fn stream_last_seq(&self, stream: &str) -> Result<u64, LedgerError> {
        let info = self.stream_info(stream, &json!({})).await?;
        info.pointer("/state/last_seq")
            .and_then(Value::as_u64)
            .ok_or_else(|| LedgerError::Corrupt(format!("no state.last_seq in the info of {stream}")))
    }

    /// A message of a stream, read from its leader: never stale, unlike a direct get.
    async fn leader_get(&self, stream: &str, request: Value, budget: Budget) -> Result<Option<StreamMessage>, LedgerError> {
        match self.api_read(&format!("STREAM.MSG.GET.{stream}"), &request, budget).await? {
            Ok(answer) => read_message(stream, &answer).map(Some),
            Err(error) if error.err_code == code::NO_MESSAGE_FOUND => Ok(None),
            Err(error) => Err(error.about(stream)),
        }
    }

    /// The last message under a filter if the stream's leader says so now; `Err` when there is no leader to ask.
    pub(super) async fn leader_last_now(
        &self,
        stream: &str,
        filter: &str,
    ) -> Result<Result<Option<StreamMessage>, LedgerError>, Failure> {
        match self.api_once(&format!("STREAM.MSG.GET.{stream}"), &json!({ "last_by_subj": filter })).await {
            Ok(answer) => Ok(read_message(stream, &answer).map(Some)),
            Err(Failure::Refused(error)) if error.err_code == code::NO_MESSAGE_FOUND => Ok(Ok(None)),
            Err(failure) => Err(failure),
        }
    }

    pub(super) async fn leader_last(
        &self,
        stream: &str,
        filter: &str,
        budget: Budget,
    ) -> Result<Option<StreamMessage>, LedgerError> {
        self.leader_get(stream, json!({ "last_by_subj": filter }), budget).await
    }

    pub(super) async fn leader_seq(&self, seq: u64, budget: Budget) -> Result<Option<StreamMessage>, LedgerError> {
        self.leader_get(LOG, json!({ "seq": seq }), budget).await
    }

    /// First message of a stream under a filter after a sequence.
    pub(super) async fn leader_next(
        &self,
        stream: &str,
        filter: &str,
        after: u64,
        budget: Budget,
    ) -> Result<Option<StreamMessage>, LedgerError> {
        self.leader_get(stream, json!({ "seq": after + 1, "next_by_subj": filter }), budget).await
    }
}

/// The message in an answer of `STREAM.MSG.GET`.
fn read_message(stream: &str, answer: &[u8]) -> Result<StreamMessage, LedgerError> {
    #[derive(Deserialize)]
    struct Answer {
        message: RawMessage,
    }
    let corrupt = |error: &dyn std::fmt::Display| LedgerError::Corrupt(format!("a message of {stream}: {error}"));
    let answer: Answer = serde_json::from_slice(answer).map_err(|error| corrupt(&error))?;
    StreamMessage::try_from(answer.message).map_err(|error| corrupt(&error))
}

/// Value of a header, empty when there is none.
pub(super) fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).map_or("", |value| value.as_str())
}

pub(super) fn message_id(message: &StreamMessage) -> &str {
    header(&message.headers, "Nats-Msg-Id")
}

pub(super) fn stored(message: StreamMessage) -> Stored {
    let time_ms = i64::try_from(message.time.unix_timestamp_nanos() / 1_000_000).unwrap_or(0);
    Stored {
        seq: message.sequence,
        time_ms,
        subject: message.subject.to_string(),
        id: message_id(&message).to_owned(),
        payload: message.payload,
    }
}
