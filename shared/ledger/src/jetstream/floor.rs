//! The physical floor a bench compares the product with: the same bytes through the same server, and nothing else.
//!
//! Three messages a task: its hand-out and its result into a log, its final record into a bucket, each published the fastest way the
//! server offers at its durability. No ids, no expectations, no reading: what no system on this server can do without.

use std::time::{Duration, Instant};

use async_nats::{HeaderMap, Subscriber};
use bytes::Bytes;
use futures::StreamExt;
use serde_json::{Value, json};

use super::api::ApiError;
use super::send::PubAck;
use super::{JetStreamLedger, LOG};
use crate::port::LedgerError;

/// Messages of one atomic batch.
const BATCH: usize = 1_000;
/// Batches under way.
const BATCHES_IN_FLIGHT: usize = 8;
/// Single publishes under way.
const SINGLES_IN_FLIGHT: usize = 8_192;
/// How long nothing may be answered.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Sizes of what a task needs at the very least, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FloorSizes {
    /// The hand-out.
    pub dispatch: usize,
    /// The result.
    pub result: usize,
    /// The final record.
    pub record: usize,
}

/// How the log's messages are published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FloorMode {
    /// In atomic batches of 1,000.
    Batches,
    /// One by one, pipelined.
    Singles,
}

/// A stream's size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamSize {
    /// Messages ever stored.
    pub last_seq: u64,
    /// Bytes on disk.
    pub bytes: u64,
}

/// Which stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measured {
    /// The log.
    Log,
    /// The state bucket.
    State,
    /// The bucket of terminals.
    Registry,
}

impl JetStreamLedger {
    /// How large a stream is now.
    ///
    /// # Errors
    /// Those of the ledger.
    pub async fn stream_size(&self, which: Measured) -> Result<StreamSize, LedgerError> {
        let name = match which {
            Measured::Log => LOG,
            Measured::State => "KV_fanfold-state",
            Measured::Registry => "KV_fanfold-terminals",
        };
        let answer =
            self.api(&format!("STREAM.INFO.{name}"), &Value::Null, self.budget()).await?.map_err(ApiError::into_error)?;
        let info: Value = serde_json::from_slice(&answer).map_err(|e| LedgerError::Corrupt(e.to_string()))?;
        let state = |field: &str| info["state"][field].as_u64().unwrap_or_default();
        Ok(StreamSize { last_seq: state("last_seq"), bytes: state("bytes") })
    }

    /// Publishes what `tasks` tasks need and waits until all of it is acknowledged; gives the time it took. The streams of the
    /// measurement are made and removed here, under names of their own.
    ///
    /// # Errors
    /// Those of the ledger.
    pub async fn measure_floor(&self, tasks: usize, sizes: FloorSizes, mode: FloorMode) -> Result<Duration, LedgerError> {
        let name = self.unique_name().replace('.', "-");
        let (log, bucket) = (format!("FLOOR_LOG_{name}"), format!("FLOOR_STATE_{name}"));
        let streams = [
            (&log, json!({ "compression": "s2", "allow_atomic": true, "discard": "new" })),
            (&bucket, json!({ "max_msgs_per_subject": 1, "persist_mode": "async", "allow_direct": true })),
        ];
        for (stream, mut config) in streams {
            config["name"] = json!(stream);
            config["subjects"] = json!([format!("{stream}.>")]);
            config["storage"] = json!("file");
            let made = self.api(&format!("STREAM.CREATE.{stream}"), &config, self.budget()).await?;
            made.map_err(ApiError::into_error)?;
        }
        let started = Instant::now();
        let into_log = self.floor_log(&log, tasks, sizes, mode);
        let into_state = self.floor_singles(tasks, |n| (format!("{bucket}.task.bench.S{n:06}.main"), sizes.record));
        let measured = futures::future::try_join(into_log, into_state).await.map(|_| started.elapsed());
        for stream in [&log, &bucket] {
            // Only a measurement's own streams: nothing of the product's is ever deleted.
            let gone = self.api(&format!("STREAM.DELETE.{stream}"), &Value::Null, self.budget()).await?;
            gone.map_err(ApiError::into_error)?;
        }
        measured
    }

    async fn floor_log(&self, log: &str, tasks: usize, sizes: FloorSizes, mode: FloorMode) -> Result<(), LedgerError> {
        let message = |n: usize| {
            // As in a plan that is well under way: half hand-outs, half results.
            if n.is_multiple_of(2) {
                (format!("{log}.task.bench.S{:06}.main.hq.S{:06}", n / 2, n / 2), sizes.dispatch)
            } else {
                (format!("{log}.task.bench.S{:06}.main.by.S{:06}", n / 2, n / 2), sizes.result)
            }
        };
        match mode {
            FloorMode::Singles => self.floor_singles(tasks * 2, message).await,
            FloorMode::Batches => self.floor_batches(tasks * 2, message).await,
        }
    }

    async fn floor_singles(&self, count: usize, message: impl Fn(usize) -> (String, usize)) -> Result<(), LedgerError> {
        let client = &self.inner.client;
        let inbox = client.new_inbox();
        let mut acks = client.subscribe(inbox.clone()).await.map_err(other)?;
        let (mut sent, mut acked) = (0, 0);
        while acked < count {
            while sent < count && sent - acked < SINGLES_IN_FLIGHT {
                let (subject, size) = message(sent);
                client.publish_with_reply(subject, inbox.clone(), filler(sent, size)).await.map_err(other)?;
                sent += 1;
            }
            acked += taken(&mut acks).await?;
        }
        Ok(())
    }

    async fn floor_batches(&self, count: usize, message: impl Fn(usize) -> (String, usize)) -> Result<(), LedgerError> {
        let client = &self.inner.client;
        let inbox = client.new_inbox();
        let mut acks = client.subscribe(inbox.clone()).await.map_err(other)?;
        let (mut begun, mut acked, batches) = (0, 0, count.div_ceil(BATCH));
        while acked < batches {
            while begun < batches && begun - acked < BATCHES_IN_FLIGHT {
                let id = self.unique_name();
                let members = begun * BATCH..count.min((begun + 1) * BATCH);
                let last = members.end - 1;
                for (n, number) in members.zip(1_usize..) {
                    let (subject, size) = message(n);
                    let mut headers = HeaderMap::new();
                    headers.insert("Nats-Batch-Id", id.as_str());
                    headers.insert("Nats-Batch-Sequence", number.to_string());
                    let sent = if n == last {
                        headers.insert("Nats-Batch-Commit", "1");
                        client.publish_with_reply_and_headers(subject, inbox.clone(), headers, filler(n, size)).await
                    } else {
                        client.publish_with_headers(subject, headers, filler(n, size)).await
                    };
                    sent.map_err(other)?;
                }
                begun += 1;
            }
            acked += taken(&mut acks).await?;
        }
        Ok(())
    }
}

fn other(error: impl std::fmt::Display) -> LedgerError {
    LedgerError::Other(error.to_string())
}

/// Text of a size that compresses about as well as events do: not at all would be unfair to the server, wholly to the product.
fn filler(n: usize, size: usize) -> Bytes {
    let mut text = String::with_capacity(size + 32);
    let mut k = n as u64;
    while text.len() < size {
        k = k.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str("\"field\":\"");
        text.push_str(&format!("{:08x}", k >> 32));
        text.push_str("\",\"specversion\":");
    }
    text.truncate(size);
    Bytes::from(text)
}

/// Waits for an answer and takes all that are there.
async fn taken(acks: &mut Subscriber) -> Result<usize, LedgerError> {
    use futures::FutureExt;
    let silence = |_| LedgerError::Unavailable { waited_ms: 30_000, reason: "no answer to a publish of the floor".into() };
    let mut next = tokio::time::timeout(SILENCE_MAX, acks.next()).await.map_err(silence)?;
    let mut count = 0;
    while let Some(message) = next {
        if let Some(error) = serde_json::from_slice::<PubAck>(&message.payload).map_err(other)?.error {
            return Err(error.into_error());
        }
        count += 1;
        next = match acks.next().now_or_never() {
            Some(message) => message,
            None => break,
        };
    }
    Ok(count)
}
