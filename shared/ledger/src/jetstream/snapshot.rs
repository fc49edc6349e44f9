//! Carrying a stream away and bringing it back, by the server's own snapshot API.
//!
//! The server sends a stream's blocks as they are, in chunks, and waits for an answer to each before it sends many more; restored, the
//! messages have the same sequences, times, headers and bytes. What stands in a chunk is the server's own format and not looked at: a
//! message that is damaged on the disk is counted, copied as it is, and missing when the copy is brought back (seen with 2.15.1, with and
//! without `jsck`). Who takes a copy reads the stream beside it.

use std::time::Duration;

use async_nats::Message;
use bytes::Bytes;
use futures::StreamExt;
use serde_json::{Map, Value, json};

use super::api::{ApiError, Failure, code};
use super::{JetStreamLedger, LOG};
use crate::port::{LedgerError, Room};

/// The streams that are carried away, in the order in which that must happen: the log first. An object is stored before the event
/// that names it, so whatever this log names is in the objects' later copy; plans carry what they use of their types in themselves.
/// `KV_fanfold-state` is not among them: it is folded from the log.
pub const CARRIED: [&str; 4] = [LOG, TYPES_STREAM, "OBJ_fanfold-artifacts", "KV_fanfold-terminals"];
/// The log.
pub const LOG_STREAM: &str = LOG;
/// Task types.
pub const TYPES_STREAM: &str = super::types::TYPES;
/// The view that is made anew from the log.
pub const STATE_STREAM: &str = "KV_fanfold-state";

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 256 * 1024;
/// How long the server may check a stream before the first chunk, and complete one after the last.
const WHOLE_STREAM: Duration = Duration::from_secs(600);
/// How long the next chunk, or the answer to one, may take.
const CHUNK_WITHIN: Duration = Duration::from_secs(30);

/// What a stream holds, as the server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamState {
    /// Messages.
    pub messages: u64,
    /// First sequence.
    pub first_seq: u64,
    /// Last sequence.
    pub last_seq: u64,
}

impl StreamState {
    fn of(state: &Value) -> Option<Self> {
        let number = |name: &str| state.get(name).and_then(Value::as_u64);
        Some(Self { messages: number("messages")?, first_seq: number("first_seq")?, last_seq: number("last_seq")? })
    }
}

/// A stream as its snapshot began.
#[derive(Debug, Clone)]
pub struct StreamHead {
    /// Its configuration, as the server words it.
    pub config: Value,
    /// Its state, as the server words it.
    pub state: Value,
    /// The same, read.
    pub summary: StreamState,
}

/// Why a stream could not be carried away or brought back.
#[derive(Debug, thiserror::Error)]
pub enum CarryError {
    /// The server failed or refused.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The place the bytes go to or come from failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl JetStreamLedger {
    /// State of a stream; `None` when there is none of that name.
    ///
    /// # Errors
    /// The server's.
    pub async fn stream_state(&self, stream: &str) -> Result<Option<StreamState>, LedgerError> {
        match self.api(&format!("STREAM.INFO.{stream}"), &json!({}), self.budget()).await? {
            Ok(answer) => {
                let info = parse(&answer)?;
                let state = info.get("state").and_then(StreamState::of);
                state.map(Some).ok_or_else(|| LedgerError::Corrupt(format!("the info of {stream} has no state")))
            }
            Err(error) if error.err_code == code::STREAM_NOT_FOUND => Ok(None),
            Err(error) => Err(error.into_error()),
        }
    }

    /// `Log::room`.
    pub(super) async fn log_room(&self) -> Result<Option<Room>, LedgerError> {
        let request = json!({});
        let answer = self.api(&format!("STREAM.INFO.{LOG}"), &request, self.budget()).await?.map_err(ApiError::into_error)?;
        let info = parse(&answer)?;
        let number = |pointer: &str| info.pointer(pointer).and_then(Value::as_i64).and_then(|n| u64::try_from(n).ok());
        // Without a limit `max_bytes` is -1.
        Ok(number("/config/max_bytes")
            .filter(|max| *max > 0)
            .map(|max_bytes| Room { used_bytes: number("/state/bytes").unwrap_or(0), max_bytes }))
    }

    /// Reads a whole stream as the server's snapshot; `sink` gets the chunks in order. Consumers are left out: nothing here lives in one.
    /// A bucket that is written to meanwhile may hold fewer messages in it than the head says, because each takes the place of another.
    ///
    /// # Errors
    /// The server's, and the sink's.
    pub async fn snapshot_stream(
        &self,
        stream: &str,
        sink: &mut (dyn FnMut(&[u8]) -> std::io::Result<()> + Send),
    ) -> Result<StreamHead, CarryError> {
        let inbox = self.inner.client.new_inbox();
        let failed = |reason: String| unavailable(stream, reason);
        let mut chunks = self.inner.client.subscribe(inbox.clone()).await.map_err(|e| failed(e.to_string()))?;
        let request = json!({ "deliver_subject": inbox, "no_consumers": true, "chunk_size": CHUNK_BYTES });
        let verb = format!("$JS.API.STREAM.SNAPSHOT.{stream}");
        let head = head_of(stream, &self.carry_request(verb, Bytes::from(request.to_string()), WHOLE_STREAM).await?)?;
        let mut index = 0_u64;
        loop {
            let chunk = match tokio::time::timeout(CHUNK_WITHIN, chunks.next()).await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Err(failed("the subscription ended".into()).into()),
                Err(_) => return Err(failed(format!("no chunk came within {} s", CHUNK_WITHIN.as_secs())).into()),
            };
            if chunk.payload.is_empty() {
                return end_of_snapshot(stream, &chunk).map(|()| head);
            }
            index += 1;
            if !is_number(&chunk, index) {
                return Err(failed(format!("chunk {index} was lost on the way")).into());
            }
            sink(&chunk.payload)?;
            if let Some(reply) = chunk.reply {
                self.inner.client.publish(reply, Bytes::new()).await.map_err(|e| failed(e.to_string()))?;
            }
        }
    }

    /// Makes a stream from a snapshot, with the configuration given; `source` gives the chunks in order and then nothing.
    ///
    /// # Errors
    /// The server's (there is such a stream already, the configuration is refused), and the source's.
    pub async fn restore_stream(
        &self,
        config: &Map<String, Value>,
        state: &Value,
        source: &mut (dyn FnMut(&mut Vec<u8>) -> std::io::Result<()> + Send),
    ) -> Result<StreamState, CarryError> {
        let stream = config.get("name").and_then(Value::as_str).unwrap_or_default();
        let request = json!({ "config": config, "state": state });
        let verb = format!("$JS.API.STREAM.RESTORE.{stream}");
        let answer = self.carry_request(verb, Bytes::from(request.to_string()), WHOLE_STREAM).await?;
        let to = answer.get("deliver_subject").and_then(Value::as_str);
        let to = to.ok_or_else(|| LedgerError::Corrupt(format!("restoring {stream}: no place to send it to")))?.to_owned();
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        loop {
            chunk.clear();
            source(&mut chunk)?;
            if chunk.is_empty() {
                break;
            }
            self.send_chunk(stream, &to, Bytes::copy_from_slice(&chunk)).await?;
        }
        let info = self.carry_request(to, Bytes::new(), WHOLE_STREAM).await?;
        let restored = info.get("state").and_then(StreamState::of);
        Ok(restored.ok_or_else(|| LedgerError::Corrupt(format!("restoring {stream}: the answer has no state")))?)
    }

    async fn send_chunk(&self, stream: &str, to: &str, chunk: Bytes) -> Result<(), LedgerError> {
        let answer = self.ask(to.to_owned(), None, chunk, CHUNK_WITHIN).await.map_err(|f| carry_failure(stream, f))?.payload;
        // An empty answer asks for the next one; anything else is the end of it.
        if answer.is_empty() { Ok(()) } else { parse_or_refused(&answer).map(drop) }
    }

    async fn carry_request(&self, subject: String, payload: Bytes, within: Duration) -> Result<Value, LedgerError> {
        let answer = self.ask(subject.clone(), None, payload, within).await.map_err(|f| carry_failure(&subject, f))?;
        parse_or_refused(&answer.payload)
    }
}

fn carry_failure(what: &str, failure: Failure) -> LedgerError {
    match failure {
        Failure::Refused(error) => error.into_error(),
        Failure::Unknown(reason) | Failure::NotSent(reason) => unavailable(what, reason),
    }
}

fn unavailable(stream: &str, reason: String) -> LedgerError {
    LedgerError::Unavailable { waited_ms: 0, reason: format!("{stream}: {reason}") }
}

fn parse(answer: &[u8]) -> Result<Value, LedgerError> {
    serde_json::from_slice(answer).map_err(|error| LedgerError::Corrupt(error.to_string()))
}

fn parse_or_refused(answer: &[u8]) -> Result<Value, LedgerError> {
    let answer = parse(answer)?;
    match answer.get("error") {
        Some(error) => match serde_json::from_value::<ApiError>(error.clone()) {
            Ok(error) => Err(error.into_error()),
            Err(_) => Err(LedgerError::Other(error.to_string())),
        },
        None => Ok(answer),
    }
}

fn head_of(stream: &str, answer: &Value) -> Result<StreamHead, LedgerError> {
    let part = |name: &str| answer.get(name).cloned().filter(Value::is_object);
    let (Some(config), Some(state)) = (part("config"), part("state")) else {
        return Err(LedgerError::Corrupt(format!("the snapshot of {stream} came without its configuration or state")));
    };
    let summary = StreamState::of(&state).ok_or_else(|| LedgerError::Corrupt(format!("the snapshot's state of {stream}")))?;
    Ok(StreamHead { config, state, summary })
}

/// The last message of a snapshot is empty; a status other than "end of file" says what went wrong.
fn end_of_snapshot(stream: &str, message: &Message) -> Result<(), CarryError> {
    match message.status {
        None => Ok(()),
        Some(status) if status.as_u16() == 204 => Ok(()),
        Some(status) => {
            let told = message.description.as_deref().unwrap_or_default();
            Err(unavailable(stream, format!("the server ended the snapshot with {status} {told}")).into())
        }
    }
}

/// Whether a chunk is the one awaited: its reply subject ends with its length and its number.
fn is_number(chunk: &Message, index: u64) -> bool {
    let mut tokens = chunk.reply.as_deref().unwrap_or_default().rsplit('.');
    let number = |token: Option<&str>| token.and_then(|t| t.parse::<u64>().ok());
    match (number(tokens.next()), number(tokens.next())) {
        (Some(found), Some(length)) => found == index && length == chunk.payload.len() as u64,
        // A server that does not number its chunks.
        _ => true,
    }
}
