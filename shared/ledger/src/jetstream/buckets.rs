//! The buckets: written by pipelined publishes, listed by an ordered reader.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::task::Poll;
use std::time::Duration;

use async_nats::jetstream::message::StreamMessage;
use async_nats::{HeaderMap, StatusCode};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};

use super::api::{Failure, header};
use super::append::retry_or_refused;
use super::{Budget, JetStreamLedger};
use crate::port::{BoxStream, Bucket, Buckets, Entry, Extent, LedgerError};
use crate::subject;

const STATE: &str = "fanfold-state";
const TERMINALS: &str = "fanfold-terminals";
/// Key of the checkpoint in `fanfold-state`.
const CHECKPOINT: &str = "checkpoint";
/// Records between two acks. One such run is under way at a time: the server has never more of a bucket's writes before it.
const RUN_MAX: usize = 500;
/// How long the acks of a run are waited for, in times the usual, at its first try and its second: where each write is synced to a slow
/// disk a run takes seconds, and what is sent again too soon is more work for the one who is late already.
const PATIENCE: [u32; 2] = [2, 8];
/// Of what is put one by one after that: so many unanswered at a time, and so long for each.
const PUTS_IN_FLIGHT: usize = 64;
const PATIENCE_ALONE: u32 = 8;

type Records = BoxStream<Result<Entry, LedgerError>>;

impl JetStreamLedger {
    async fn put_records(&self, bucket: &str, records: Vec<(String, Bytes)>) -> Result<(), LedgerError> {
        if let Some((key, _)) = records.iter().find(|(key, _)| !subject::is_publishable(key)) {
            return Err(LedgerError::Other(format!("{key:?} is not a key")));
        }
        let budget = self.budget();
        // Two writes of one key under way at once could overtake each other in a retry: only the last is sent.
        let last: HashMap<String, Bytes> = records.into_iter().collect();
        let last: Vec<(String, Bytes)> = last.into_iter().collect();
        for run in last.chunks(RUN_MAX) {
            let mut stored = false;
            for patience in PATIENCE {
                stored = stored || self.put_run(bucket, run, patience).await;
            }
            if !stored {
                // One by one: where it is not certain that each is stored, each is put again and asked for its own ack.
                let puts: Vec<_> = run.iter().map(|(key, value)| self.put_record(bucket, key, value, budget)).collect();
                stream::iter(puts).buffer_unordered(PUTS_IN_FLIGHT).try_collect::<()>().await?;
            }
        }
        Ok(())
    }

    /// Puts a run of records with acks for its first and last one only. The server takes a connection's messages in order and counts
    /// what it stores: as many revisions between the two acks as records were sent means that each is stored. `false`: it is not certain.
    async fn put_run(&self, bucket: &str, run: &[(String, Bytes)], patience: u32) -> bool {
        let [first, between @ .., last] = run else { return false };
        if between.is_empty() {
            return false;
        }
        let timeout = self.timeout(run.iter().map(|(_, value)| value.len()).sum()) * patience;
        let connection = *self.inner.connections.borrow();
        let acked = |(key, value): &(String, Bytes)| {
            // Handed over at the first poll: what is sent before or after it stays before or after it.
            let put = self.publish_acked(kv_subject(bucket, key), HeaderMap::new(), value.clone(), timeout);
            Box::pin(tokio::task::unconstrained(put))
        };
        let sent = async {
            let turn = self.inner.sending.lock().await;
            let mut begun = acked(first);
            let early = futures::poll!(begun.as_mut());
            for (key, value) in between {
                self.inner.client.publish(kv_subject(bucket, key), value.clone()).await.ok()?;
            }
            let mut ended = acked(last);
            let late = futures::poll!(ended.as_mut());
            drop(turn);
            let begun = match early {
                Poll::Ready(answer) => answer,
                Poll::Pending => begun.await,
            };
            let ended = match late {
                Poll::Ready(answer) => answer,
                Poll::Pending => ended.await,
            };
            Some((begun.ok()?.seq, ended.ok()?.seq))
        };
        // While disconnected the client's buffer fills up and publishing waits.
        let stored = tokio::time::timeout(timeout, sent).await;
        // Over two connections, and perhaps a server that has gone back, numbers of revisions say nothing.
        let counted = matches!(stored, Ok(Some((from, to))) if to.checked_sub(from) == Some(run.len() as u64 - 1));
        counted && *self.inner.connections.borrow() == connection
    }

    async fn put_record(&self, bucket: &str, key: &str, value: &Bytes, budget: Budget) -> Result<(), LedgerError> {
        loop {
            let timeout = self.timeout(value.len()) * PATIENCE_ALONE;
            let sent = self.publish_acked(kv_subject(bucket, key), HeaderMap::new(), value.clone(), timeout);
            let Err(failure) = sent.await else { return Ok(()) };
            match retry_or_refused(failure)? {
                ControlFlow::Continue(reason) => budget.pause(&reason).await?,
                ControlFlow::Break(error) => return Err(error.into_error()),
            }
        }
    }

    pub(super) async fn get_record(&self, bucket: &str, key: &str) -> Result<Option<Entry>, LedgerError> {
        if !subject::is_publishable(key) {
            return Err(LedgerError::Other(format!("{key:?} is not a key")));
        }
        let budget = self.budget();
        let (stream, subject) = (format!("KV_{bucket}"), kv_subject(bucket, key));
        loop {
            // From the leader, so that what was written is read; while there is none, readers are served by whoever has a replica.
            let reason = match self.leader_last_now(&stream, &subject).await {
                Ok(found) => {
                    let entry = |m: StreamMessage| Entry { key: key.to_owned(), revision: m.sequence, value: m.payload };
                    return Ok(found?.map(entry).filter(|entry| !entry.value.is_empty()));
                }
                Err(Failure::NotSent(reason)) => return Err(LedgerError::Other(reason)),
                Err(Failure::Refused(error)) if !error.is_not_now() => return Err(error.into_error()),
                Err(Failure::Refused(error)) => error.text(),
                Err(Failure::Unknown(reason)) => reason,
            };
            if let Some(found) = self.replica_last(&stream, &subject, key).await {
                return Ok(found);
            }
            budget.pause(&reason).await?;
        }
    }

    /// A record as some replica has it; `None`: nobody has answered.
    async fn replica_last(&self, stream: &str, subject: &str, key: &str) -> Option<Option<Entry>> {
        let timeout = Duration::from_millis(self.inner.policy.ack_timeout_ms);
        let direct = format!("$JS.API.DIRECT.GET.{stream}.{subject}");
        let message = self.ask(direct, None, Bytes::new(), timeout).await.ok()?;
        if message.status == Some(StatusCode::NOT_FOUND) {
            return Some(None);
        }
        let revision = header(&message.headers.unwrap_or_default(), "Nats-Sequence").parse().ok()?;
        let entry = Entry { key: key.to_owned(), revision, value: message.payload };
        Some(Some(entry).filter(|entry| !entry.value.is_empty()))
    }

    pub(super) async fn list_records(&self, bucket: &'static str, filter: &str, from: u64) -> Result<Records, LedgerError> {
        if !subject::is_filter(filter) {
            return Err(LedgerError::Other(format!("{filter:?} is not a filter")));
        }
        // The bucket keeps one message a key, so everything there is is the last of each key.
        let messages = self.read_stream(&format!("KV_{bucket}"), vec![kv_subject(bucket, filter)], from, u64::MAX).await?;
        let prefix_len = kv_subject(bucket, "").len();
        let entries = messages.try_filter_map(move |stored| async move {
            let key = stored.subject.get(prefix_len..).unwrap_or_default().to_owned();
            let entry = Entry { key, revision: stored.seq, value: stored.payload };
            Ok(Some(entry).filter(|entry| !entry.value.is_empty()))
        });
        Ok(entries.boxed())
    }
}

impl JetStreamLedger {
    /// Writes a record of `fanfold-state` if its last revision is still `expect`; an empty value as a deletion mark.
    async fn put_expecting(&self, key: &str, value: &Bytes, expect: u64) -> Result<Option<u64>, LedgerError> {
        let budget = self.budget();
        let mut in_doubt = false;
        loop {
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Expected-Last-Subject-Sequence", expect.to_string());
            if value.is_empty() {
                headers.insert("KV-Operation", "DEL");
            }
            let timeout = self.timeout(value.len());
            let failure = match self.publish_acked(kv_subject(STATE, key), headers, value.clone(), timeout).await {
                Ok(ack) => return Ok(Some(ack.seq)),
                Err(failure) => failure,
            };
            match retry_or_refused(failure)? {
                ControlFlow::Continue(reason) => {
                    in_doubt = true;
                    budget.pause(&reason).await?;
                }
                ControlFlow::Break(error) if error.is_conflict() && !in_doubt => return Ok(None),
                ControlFlow::Break(error) if error.is_conflict() => {
                    // After a time without an answer, the write that stands there may be this one.
                    let current = self.leader_last(&kv_stream(STATE), &kv_subject(STATE, key), self.budget()).await?;
                    return Ok(current.filter(|m| m.sequence > expect && m.payload == *value).map(|m| m.sequence));
                }
                ControlFlow::Break(error) => return Err(error.into_error()),
            }
        }
    }
}

pub(super) fn kv_stream(bucket: &str) -> String {
    format!("KV_{bucket}")
}

pub(super) fn kv_subject(bucket: &str, key: &str) -> String {
    format!("$KV.{bucket}.{key}")
}

#[async_trait]
impl Buckets for JetStreamLedger {
    async fn put_state(&self, records: Vec<(String, Bytes)>) -> Result<(), LedgerError> {
        self.put_records(STATE, records).await
    }

    async fn get_state(&self, key: &str) -> Result<Option<Entry>, LedgerError> {
        self.get_record(STATE, key).await
    }

    async fn list_state(&self, filter: &str) -> Result<Records, LedgerError> {
        self.list_records(STATE, filter, 1).await
    }

    async fn put_state_if(&self, key: &str, value: Bytes, expect: u64) -> Result<Option<u64>, LedgerError> {
        if !subject::is_publishable(key) {
            return Err(LedgerError::Other(format!("{key:?} is not a key")));
        }
        match self.put_expecting(key, &value, expect).await? {
            None if expect == 0 => match self.leader_last(&kv_stream(STATE), &kv_subject(STATE, key), self.budget()).await? {
                // A deletion mark has a revision, too.
                Some(mark) if mark.payload.is_empty() => self.put_expecting(key, &value, mark.sequence).await,
                _ => Ok(None),
            },
            answer => Ok(answer),
        }
    }

    async fn state_extent(&self) -> Result<Extent, LedgerError> {
        self.extent_of(Bucket::State).await
    }

    async fn extent(&self, bucket: Bucket) -> Result<Extent, LedgerError> {
        self.extent_of(bucket).await
    }

    async fn list_since(&self, bucket: Bucket, filter: &str, after: u64) -> Result<Records, LedgerError> {
        self.list_records(bucket.name(), filter, after.saturating_add(1)).await
    }

    async fn keys(&self, bucket: Bucket, filter: &str) -> Result<Vec<String>, LedgerError> {
        self.keys_of(bucket, filter).await
    }

    async fn get_many(&self, bucket: Bucket, keys: &[String]) -> Result<Vec<Entry>, LedgerError> {
        self.get_records(bucket.name(), keys).await
    }

    async fn put_checkpoint(&self, value: Bytes, expect: u64) -> Result<Option<u64>, LedgerError> {
        self.put_state_if(CHECKPOINT, value, expect).await
    }

    async fn get_checkpoint(&self) -> Result<Option<Entry>, LedgerError> {
        let last = self.leader_last(&kv_stream(STATE), &kv_subject(STATE, CHECKPOINT), self.budget()).await?;
        let entry = |revision, value| Entry { key: CHECKPOINT.to_owned(), revision, value };
        Ok(last.map(|message| entry(message.sequence, message.payload)).filter(|entry| !entry.value.is_empty()))
    }

    async fn put_terminals(&self, records: Vec<(String, Bytes)>) -> Result<(), LedgerError> {
        self.put_records(TERMINALS, records).await
    }

    async fn get_terminal(&self, key: &str) -> Result<Option<Entry>, LedgerError> {
        self.get_record(TERMINALS, key).await
    }

    async fn list_terminals(&self, filter: &str) -> Result<Records, LedgerError> {
        self.list_records(TERMINALS, filter, 1).await
    }
}
