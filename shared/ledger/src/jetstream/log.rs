//! The port's `Log` on JetStream: reading, and the way to the appending parts.

use async_trait::async_trait;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::api::stored;
use super::read::reason;
use super::reader::Reader;
use super::tail::Tail;
use super::{JetStreamLedger, LOG};
use crate::port::{Append, Appended, BoxStream, Fence, FencedError, GAPS_MAX, LedgerError, Log, Room, Stored, TailItem};

/// Batches that may wait for a slow reader.
pub(super) const BATCHES_WAITING: usize = 8;

#[async_trait]
impl Log for JetStreamLedger {
    async fn append(&self, events: Vec<Append>) -> Result<Vec<Appended>, LedgerError> {
        self.append_events(events).await
    }

    async fn append_atomic(&self, events: Vec<Append>) -> Result<Appended, LedgerError> {
        self.append_all_or_nothing(&events).await
    }

    async fn acquire_fence(&self, role: &str, incarnation: &str) -> Result<Fence, FencedError> {
        self.take_lead(role, incarnation).await
    }

    async fn append_fenced(&self, fence: &mut Fence, events: Vec<Append>) -> Result<Vec<Appended>, FencedError> {
        self.append_behind(fence, events).await
    }

    async fn last_seq(&self) -> Result<u64, LedgerError> {
        self.stream_last_seq(LOG).await
    }

    async fn room(&self) -> Result<Option<Room>, LedgerError> {
        self.log_room().await
    }

    async fn gaps(&self) -> Result<Vec<(u64, u64)>, LedgerError> {
        let number = |info: &Value, name: &str| info.pointer(&format!("/state/{name}")).and_then(Value::as_u64).unwrap_or(0);
        let info = self.stream_info(LOG, &json!({})).await?;
        if number(&info, "num_deleted") == 0 && number(&info, "first_seq") <= 1 {
            return Ok(self.with_missing(Vec::new()));
        }
        let info = self.stream_info(LOG, &json!({ "deleted_details": true })).await?;
        let deleted = info.pointer("/state/deleted").and_then(Value::as_array);
        let first = number(&info, "first_seq");
        let mut gaps: Vec<(u64, u64)> = if first > 1 { vec![(1, first - 1)] } else { Vec::new() };
        for seq in deleted.into_iter().flatten().filter_map(Value::as_u64) {
            let full = gaps.len() == GAPS_MAX;
            match gaps.last_mut() {
                Some((_, to)) if *to + 1 == seq => *to = seq,
                _ if full => break,
                _ => gaps.push((seq, seq)),
            }
        }
        Ok(self.with_missing(gaps))
    }

    async fn last_under(&self, filter: &str) -> Result<Option<Stored>, LedgerError> {
        match self.leader_last(LOG, filter, self.budget()).await? {
            Some(last) => Ok(Some(stored(last))),
            None => self.last_readable(filter).await,
        }
    }

    async fn read(
        &self,
        filters: Vec<String>,
        from: u64,
        to: u64,
    ) -> Result<BoxStream<Result<Stored, LedgerError>>, LedgerError> {
        self.read_stream(LOG, filters, from, to).await
    }

    async fn tail(&self, from: u64) -> Result<BoxStream<TailItem>, LedgerError> {
        let mut reader = Reader::new(self, LOG, Vec::new(), from);
        let budget = self.budget();
        while let Err(failure) = reader.open().await {
            budget.pause(&reason(failure)?).await?;
        }
        let (sender, receiver) = mpsc::channel(BATCHES_WAITING);
        tokio::spawn(Tail::new(self.clone(), reader, sender).follow());
        Ok(stream::unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|item| (item, receiver)) }).boxed())
    }
}
