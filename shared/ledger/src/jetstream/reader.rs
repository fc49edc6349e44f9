//! An ordered reader of one stream: an ephemeral pull consumer in memory that acknowledges nothing.
//!
//! The reader knows its own position, so the consumer is disposable: whatever looks wrong - a gap in the consumer's own
//! numbering, a missing heartbeat, a new connection, an odd status - the consumer is thrown away and another one starts
//! at the next sequence. (The client's ordered consumers need 10 to 15 s for that after a server restart.)

use std::time::Duration;

use async_nats::jetstream::message::StreamMessage;
use async_nats::{Message, StatusCode, Subscriber};
use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::JetStreamLedger;
use super::api::{Failure, header};
use super::position::Position;
use crate::port::Stored;
use crate::watch;

/// Most messages handed out at once.
pub(super) const BATCH_MAX: usize = 1_000;
/// Messages asked for at a time; the next request goes out when half of them have come.
const PULL_MESSAGES: usize = 8_000;
/// Bytes asked for at a time: bounds what waits in memory.
const PULL_BYTES: usize = 32 << 20;
const HEARTBEAT: Duration = Duration::from_millis(500);
/// No sign of life for so long and the consumer is lost.
const ALIVE: Duration = Duration::from_secs(2);
/// After so long without one the log is also read without a consumer, and again after each pause.
const QUIET: Duration = Duration::from_millis(700);
const QUIET_AGAIN: Duration = Duration::from_millis(200);
/// A consumer that is alive and stands still for so long may stand in front of something it can't read.
pub(super) const STUCK: Duration = Duration::from_secs(2);
/// How long the first try to make a consumer may take; the second twice, later ones four times as long.
const CREATE_WAIT: Duration = Duration::from_millis(500);
const PULL_EXPIRES: Duration = Duration::from_secs(30);
/// Messages asked for at a time where there is no consumer, and how long each may take.
const DIRECT_MESSAGES: usize = 500;
const DIRECT_WAIT: Duration = Duration::from_millis(500);
/// The server removes a consumer nobody pulls from after this.
const INACTIVE: Duration = Duration::from_secs(30);

/// A message and how many more were waiting behind it for this reader, `u64::MAX` where that was not said.
pub(super) struct Delivered {
    pub(super) stored: Stored,
    pub(super) pending: u64,
}

/// What a new consumer has before it.
pub(super) struct Opened {
    /// Messages waiting for it.
    pub(super) pending: u64,
    /// Whether it may run on a replica that lags behind the leader.
    pub(super) clustered: bool,
}

/// A consumer nobody reads from yet.
pub(super) struct Made {
    consumer: Consumer,
    opened: Opened,
}

pub(super) struct Reader {
    ledger: JetStreamLedger,
    stream: String,
    filters: Vec<String>,
    /// Next stream sequence to be delivered (or a later one).
    pub(super) next: u64,
    connections: watch::Receiver<u64>,
    consumer: Option<Consumer>,
    /// Consumers that were not made, one after the other.
    unmade: u32,
}

struct Consumer {
    name: String,
    inbox: String,
    messages: Subscriber,
    /// Messages asked for and not yet come.
    outstanding: usize,
    /// The consumer's own number of its last message.
    delivered: u64,
    /// The stream's sequence up to which it has looked, as its last heartbeat says.
    looked: u64,
    /// When it last went on.
    moved: Instant,
    /// A heartbeat has come that nobody was told of.
    has_beat: bool,
    /// No sign of life by then means it is lost.
    alive_until: Instant,
    /// None by then is suspicious.
    quiet_until: Instant,
}

impl Reader {
    /// A reader that begins at sequence `from`; no filters means everything.
    pub(super) fn new(ledger: &JetStreamLedger, stream: &str, filters: Vec<String>, from: u64) -> Self {
        Self {
            ledger: ledger.clone(),
            stream: stream.to_owned(),
            filters,
            next: from.max(1),
            connections: ledger.inner.connections.clone(),
            consumer: None,
            unmade: 0,
        }
    }

    /// Makes a new consumer from the next sequence on; the old one is removed.
    pub(super) async fn open(&mut self) -> Result<Opened, Failure> {
        self.close().await;
        let made = self.making().await;
        self.opened(made)
    }

    /// A consumer on its way, from the sequence that is next now; [`Self::opened`] takes it.
    pub(super) fn making(&mut self) -> impl Future<Output = Result<Made, Failure>> + use<> {
        self.connections.mark_unchanged();
        let (ledger, stream, filters, next) = (self.ledger.clone(), self.stream.clone(), self.filters.clone(), self.next);
        // Where a server has just died the consumer may be given to it, and nobody answers: then another one is tried soon.
        let wait = CREATE_WAIT * (1 << self.unmade.min(2));
        async move {
            let name = ledger.unique_name();
            let made = make(&ledger, &stream, &filters, next, &name, wait).await;
            if made.is_err() {
                remove(&ledger, &stream, &name);
            }
            made
        }
    }

    /// Reads from the consumer that was made, if it was.
    pub(super) fn opened(&mut self, made: Result<Made, Failure>) -> Result<Opened, Failure> {
        match made {
            Ok(Made { consumer, opened }) => {
                self.unmade = 0;
                self.consumer = Some(consumer);
                Ok(opened)
            }
            Err(failure) => {
                self.unmade += 1;
                Err(failure)
            }
        }
    }

    /// What comes next without a consumer, as far as whoever has a replica sends it in one go without a gap: for the time in which the
    /// stream lives and its cluster has no leader to make consumers. May be nothing.
    pub(super) async fn direct(&mut self) -> Vec<Delivered> {
        let client = &self.ledger.inner.client;
        let inbox = client.new_inbox();
        let Ok(mut messages) = client.subscribe(inbox.clone()).await else { return Vec::new() };
        let request = json!({ "seq": self.next, "batch": DIRECT_MESSAGES, "next_by_subj": ">" });
        let subject = format!("$JS.API.DIRECT.GET.{}", self.stream);
        let sent = client.publish_with_reply(subject, inbox, Bytes::from(request.to_string()));
        let mut batch = Vec::new();
        if tokio::time::timeout(DIRECT_WAIT, sent).await.is_ok_and(|sent| sent.is_ok()) {
            while let Ok(Some(message)) = tokio::time::timeout(DIRECT_WAIT, messages.next()).await {
                // A status ends the batch.
                let Some(stored) = message.status.is_none().then(|| StreamMessage::try_from(message)).and_then(Result::ok) else {
                    break;
                };
                if stored.sequence != self.next {
                    break;
                }
                self.next += 1;
                batch.push(Delivered { stored: super::api::stored(stored), pending: u64::MAX });
            }
        }
        let _ = messages.unsubscribe().await;
        batch
    }

    /// Removes the consumer; the server would do so itself, but later.
    pub(super) async fn close(&mut self) {
        if let Some(mut consumer) = self.consumer.take() {
            let _ = consumer.messages.unsubscribe().await;
            remove(&self.ledger, &self.stream, &consumer.name);
        }
    }

    /// Up to where the consumer has looked, by its last heartbeat: what it has not brought up to there it does not bring.
    pub(super) fn looked(&self) -> u64 {
        self.consumer.as_ref().map_or(0, |consumer| consumer.looked)
    }

    /// How long the consumer has stood still, by its heartbeats.
    pub(super) fn still(&self) -> Duration {
        self.consumer.as_ref().map_or(Duration::ZERO, |consumer| consumer.moved.elapsed())
    }

    /// The messages that are there, at most [`BATCH_MAX`]; none where there was but a heartbeat; or why the consumer is lost.
    pub(super) async fn batch(&mut self) -> Result<Vec<Delivered>, String> {
        let mut batch = Vec::new();
        loop {
            let consumer = self.consumer.as_mut().ok_or("no consumer")?;
            if consumer.outstanding <= PULL_MESSAGES / 2 {
                pull(&self.ledger, &self.stream, consumer).await?;
            }
            let until = consumer.alive_until.min(consumer.quiet_until);
            let message = tokio::select! {
                biased;
                _ = self.connections.changed() => return Err("reconnected".into()),
                message = tokio::time::timeout_at(until, consumer.messages.next()) => message,
            };
            let Ok(message) = message else {
                if Instant::now() >= consumer.alive_until {
                    return Err("no heartbeat".into());
                }
                let batch = self.batch_of_quiet().await;
                if batch.is_empty() { continue } else { return Ok(batch) }
            };
            let message = message.ok_or("the subscription ended")?;
            consumer.is_alive();
            consumer.take(message, &mut self.next, &mut batch)?;
            while batch.len() < BATCH_MAX {
                match consumer.messages.next().now_or_never().flatten() {
                    Some(message) => consumer.take(message, &mut self.next, &mut batch)?,
                    None => break,
                }
            }
            if !batch.is_empty() || consumer.take_beat() {
                return Ok(batch);
            }
        }
    }

    /// What came while the consumer said nothing. Only a reader of everything can tell that nothing is missing in it.
    async fn batch_of_quiet(&mut self) -> Vec<Delivered> {
        let batch = if self.filters.is_empty() { self.direct().await } else { Vec::new() };
        if let Some(consumer) = &mut self.consumer {
            consumer.quiet_until = Instant::now() + QUIET_AGAIN;
        }
        batch
    }
}

async fn make(
    ledger: &JetStreamLedger,
    stream: &str,
    filters: &[String],
    next: u64,
    name: &str,
    wait: Duration,
) -> Result<Made, Failure> {
    let inbox = ledger.inner.client.new_inbox();
    let messages = ledger.inner.client.subscribe(inbox.clone()).await.map_err(|error| Failure::Unknown(error.to_string()))?;
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let mut config = json!({
        "name": name, "deliver_policy": "by_start_sequence", "opt_start_seq": next, "ack_policy": "none",
        "max_deliver": 1, "replay_policy": "instant", "mem_storage": true, "num_replicas": 1,
        "inactive_threshold": nanos(INACTIVE),
    });
    if !filters.is_empty() {
        config["filter_subjects"] = json!(filters);
    }
    let request = json!({ "stream_name": stream, "config": config, "action": "create" });
    let answer = ledger.api_within(&format!("CONSUMER.CREATE.{stream}.{name}"), &request, wait).await?;
    let info: Value = serde_json::from_slice(&answer).map_err(|error| Failure::Unknown(error.to_string()))?;
    let now = Instant::now();
    let (alive_until, quiet_until) = (now + ALIVE, now + QUIET);
    let consumer = Consumer {
        name: name.to_owned(),
        inbox,
        messages,
        outstanding: 0,
        delivered: 0,
        looked: 0,
        moved: now,
        has_beat: false,
        alive_until,
        quiet_until,
    };
    let opened = Opened {
        pending: info.get("num_pending").and_then(Value::as_u64).unwrap_or(0),
        clustered: info.get("cluster").is_some_and(|cluster| !cluster.is_null()),
    };
    Ok(Made { consumer, opened })
}

fn remove(ledger: &JetStreamLedger, stream: &str, name: &str) {
    let subject = format!("$JS.API.CONSUMER.DELETE.{stream}.{name}");
    // Nobody waits for the answer; while disconnected there is nothing to be removed.
    let _ = ledger.inner.client.publish(subject, Bytes::new()).now_or_never();
}

async fn pull(ledger: &JetStreamLedger, stream: &str, consumer: &mut Consumer) -> Result<(), String> {
    let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{}", consumer.name);
    let (expires, heartbeat) = (PULL_EXPIRES.as_nanos(), HEARTBEAT.as_nanos());
    // A message larger than this would never come.
    let max_bytes = PULL_BYTES.max(ledger.inner.client.max_payload() * 2);
    let request =
        format!(r#"{{"batch":{PULL_MESSAGES},"max_bytes":{max_bytes},"expires":{expires},"idle_heartbeat":{heartbeat}}}"#);
    let sent = ledger.inner.client.publish_with_reply(subject, consumer.inbox.clone(), Bytes::from(request));
    // Publishing waits when the connection is gone and its buffer full; the consumer is lost then anyway.
    match tokio::time::timeout(ALIVE, sent).await {
        Ok(Ok(())) => consumer.outstanding += PULL_MESSAGES,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err("the connection takes nothing".into()),
    }
    Ok(())
}

impl Consumer {
    fn is_alive(&mut self) {
        let now = Instant::now();
        (self.alive_until, self.quiet_until) = (now + ALIVE, now + QUIET);
    }

    fn take_beat(&mut self) -> bool {
        std::mem::take(&mut self.has_beat)
    }

    /// Takes one message of the inbox: a delivery, or a status about a pull request.
    fn take(&mut self, message: Message, next: &mut u64, batch: &mut Vec<Delivered>) -> Result<(), String> {
        let Some(position) = message.reply.as_deref().and_then(Position::parse).filter(|_| message.status.is_none()) else {
            return self.take_status(&message);
        };
        self.outstanding = self.outstanding.saturating_sub(1);
        if position.consumer_seq != self.delivered + 1 {
            return Err(format!("delivery {} came after {}", position.consumer_seq, self.delivered));
        }
        self.delivered = position.consumer_seq;
        self.moved = Instant::now();
        if position.stream_seq < *next {
            // A replica that is behind begins at its own end, not at ours, and brings what this reader has had.
            return Ok(());
        }
        *next = position.stream_seq + 1;
        let id = message.headers.as_ref().map_or("", |headers| header(headers, "Nats-Msg-Id")).to_owned();
        let stored = Stored {
            seq: position.stream_seq,
            time_ms: position.time_ms,
            subject: message.subject.into_string(),
            id,
            payload: message.payload,
        };
        batch.push(Delivered { stored, pending: position.pending });
        Ok(())
    }

    fn take_status(&mut self, message: &Message) -> Result<(), String> {
        let number = |name: &str| message.headers.as_ref().and_then(|headers| header(headers, name).parse::<u64>().ok());
        match (message.status, number("Nats-Pending-Messages")) {
            (Some(StatusCode::IDLE_HEARTBEAT), _) => match number("Nats-Last-Consumer") {
                Some(last) if last != self.delivered => Err(format!("{last} were delivered, {} came", self.delivered)),
                _ => {
                    self.has_beat = true;
                    if let Some(looked) = number("Nats-Last-Stream").filter(|looked| *looked > self.looked) {
                        (self.looked, self.moved) = (looked, Instant::now());
                    }
                    Ok(())
                }
            },
            // A pull request ended (expired, or its bytes are used up) with so many of its messages not delivered.
            (Some(_), Some(undelivered)) => {
                self.outstanding = self.outstanding.saturating_sub(usize::try_from(undelivered).unwrap_or(usize::MAX));
                Ok(())
            }
            (status, None) => Err(format!("status {status:?} {}", message.description.as_deref().unwrap_or(""))),
            (None, Some(_)) => Ok(()),
        }
    }
}
