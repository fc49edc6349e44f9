//! Reading a page of a bucket: many records by their keys in one go, and how a bucket stands.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::StatusCode;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::JetStreamLedger;
use super::api::header;
use super::buckets::{kv_stream, kv_subject};
use crate::port::{Bucket, Entry, Extent, LedgerError};

/// Records asked for in one request; the server refuses more than 1,024.
const RECORDS_PER_REQUEST: usize = 500;
/// How long nothing may come while records are on their way.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Records asked for one by one at a time.
const GETS_IN_FLIGHT: usize = 64;

/// How long the keys of a bucket may be waited for: there may be very many.
const KEYS_WAIT: Duration = Duration::from_secs(10);

/// The part of a stream's info that names its subjects, a page of them.
#[derive(Deserialize)]
struct KeysInfo {
    /// Subjects there are.
    #[serde(default)]
    total: usize,
    state: KeysState,
}

#[derive(Deserialize)]
struct KeysState {
    subjects: Option<HashMap<String, IgnoredAny>>,
}

impl JetStreamLedger {
    /// How a bucket stands, asked of its leader.
    pub(super) async fn extent_of(&self, bucket: Bucket) -> Result<Extent, LedgerError> {
        let info = self.stream_info(&kv_stream(bucket.name()), &json!({})).await?;
        let number = |pointer: &str| info.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        Ok(Extent {
            bucket: info.get("created").and_then(Value::as_str).unwrap_or_default().to_owned(),
            last_revision: number("/state/last_seq"),
            records: number("/state/messages"),
        })
    }

    /// The keys of a bucket under a filter. The server has them in an index; the records themselves it would look for one by one.
    pub(super) async fn keys_of(&self, bucket: Bucket, filter: &str) -> Result<Vec<String>, LedgerError> {
        if !crate::subject::is_filter(filter) {
            return Err(LedgerError::Other(format!("{filter:?} is not a filter")));
        }
        let (stream, prefix_len) = (kv_stream(bucket.name()), kv_subject(bucket.name(), "").len());
        let mut keys: Vec<String> = Vec::new();
        loop {
            let request = json!({ "subjects_filter": kv_subject(bucket.name(), filter), "offset": keys.len() });
            let answer = self.api_within(&format!("STREAM.INFO.{stream}"), &request, KEYS_WAIT).await;
            let Ok(answer) = answer else {
                // Not now, or not in time: what else there is takes its time.
                let mut all = self.list_records(bucket.name(), filter, 1).await?;
                keys.clear();
                while let Some(entry) = all.next().await {
                    keys.push(entry?.key);
                }
                return Ok(keys);
            };
            let info: KeysInfo = serde_json::from_slice(&answer).map_err(|error| LedgerError::Corrupt(error.to_string()))?;
            let page = info.state.subjects.unwrap_or_default();
            let before = keys.len();
            keys.extend(page.into_keys().filter_map(|subject| subject.get(prefix_len..).map(ToOwned::to_owned)));
            if keys.len() == before || keys.len() >= info.total {
                return Ok(keys);
            }
        }
    }

    /// Many records of a bucket, those that are there, in the order of the keys. In one request where there is one copy of the bucket; of
    /// several, one may be behind, so each record is asked of the leader.
    pub(super) async fn get_records(&self, bucket: &str, keys: &[String]) -> Result<Vec<Entry>, LedgerError> {
        let mut found: HashMap<String, Entry> = HashMap::with_capacity(keys.len());
        let alone = self.is_alone(bucket).await?;
        for keys in keys.chunks(RECORDS_PER_REQUEST) {
            match if alone { self.get_in_one(bucket, keys).await } else { None } {
                Some(entries) => found.extend(entries.into_iter().map(|entry| (entry.key.clone(), entry))),
                None => {
                    let gets = keys.iter().map(|key| self.get_record(bucket, key));
                    let gets: Vec<_> = gets.collect();
                    let entries: Vec<Option<Entry>> = stream::iter(gets).buffer_unordered(GETS_IN_FLIGHT).try_collect().await?;
                    found.extend(entries.into_iter().flatten().map(|entry| (entry.key.clone(), entry)));
                }
            }
        }
        Ok(keys.iter().filter_map(|key| found.remove(key)).collect())
    }

    /// Whether there is only one copy of a bucket. That does not change while it lives.
    async fn is_alone(&self, bucket: &str) -> Result<bool, LedgerError> {
        let asked = async || {
            let info = self.stream_info(&kv_stream(bucket), &json!({})).await?;
            Ok::<_, LedgerError>(info.pointer("/config/num_replicas").and_then(Value::as_u64) == Some(1))
        };
        // Both buckets are made alike.
        self.inner.alone.get_or_try_init(asked).await.copied()
    }

    /// One request, many answers; `None`: not all that are there have come.
    async fn get_in_one(&self, bucket: &str, keys: &[String]) -> Option<Vec<Entry>> {
        let prefix_len = kv_subject(bucket, "").len();
        let subjects: Vec<String> = keys.iter().map(|key| kv_subject(bucket, key)).collect();
        let request = Bytes::from(json!({ "multi_last": subjects }).to_string());
        let client = &self.inner.client;
        let inbox = client.new_inbox();
        let mut messages = client.subscribe(inbox.clone()).await.ok()?;
        let sent = client.publish_with_reply(format!("$JS.API.DIRECT.GET.{}", kv_stream(bucket)), inbox, request);
        tokio::time::timeout(SILENCE_MAX, sent).await.ok()?.ok()?;
        let mut entries = Vec::with_capacity(keys.len());
        let whole = loop {
            let Ok(Some(message)) = tokio::time::timeout(SILENCE_MAX, messages.next()).await else { break false };
            // The end of all there are, and that there are none.
            const END: u16 = 204;
            match message.status {
                Some(StatusCode::NOT_FOUND) => break true,
                Some(status) => break status.as_u16() == END,
                None => {}
            }
            let headers = message.headers.unwrap_or_default();
            let key = header(&headers, "Nats-Subject").get(prefix_len..).unwrap_or_default().to_owned();
            let Ok(revision) = header(&headers, "Nats-Sequence").parse() else { break false };
            // An empty one is a deletion mark.
            entries.extend(Some(Entry { key, revision, value: message.payload }).filter(|entry| !entry.value.is_empty()));
        };
        let _ = messages.unsubscribe().await;
        whole.then_some(entries)
    }
}
