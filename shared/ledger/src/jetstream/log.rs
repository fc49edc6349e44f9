//! The port's `Log` on JetStream: reading, and the way to the appending parts.

use std::pin::pin;
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::api::{Failure, stored};
use super::reader::{Delivered, Opened, Reader};
use super::{JetStreamLedger, LOG, jittered_ms};
use crate::port::{Append, Appended, BoxStream, Fence, FencedError, GAPS_MAX, LedgerError, Log, Room, Stored, TailItem};

/// A consumer that is not made within this: the stream is read without one meanwhile.
const ASK_DIRECT_AFTER: Duration = Duration::from_millis(200);
/// Longest pause before a consumer is made again.
const REOPEN_WAIT_MS_MAX: u64 = 400;
/// Batches that may wait for a slow reader.
const BATCHES_WAITING: usize = 8;

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
            return Ok(Vec::new());
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
        Ok(gaps)
    }

    async fn last_under(&self, filter: &str) -> Result<Option<Stored>, LedgerError> {
        Ok(self.leader_last(LOG, filter, self.budget()).await?.map(stored))
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
        tokio::spawn(follow(reader, sender));
        Ok(stream::unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|item| (item, receiver)) }).boxed())
    }
}

impl JetStreamLedger {
    /// Every message of a stream under any of the filters, `from <= seq <= to`, in order.
    pub(super) async fn read_stream(
        &self,
        name: &str,
        filters: Vec<String>,
        from: u64,
        to: u64,
    ) -> Result<BoxStream<Result<Stored, LedgerError>>, LedgerError> {
        if filters.is_empty() || from > to {
            return Ok(stream::empty().boxed());
        }
        let filters = without_covered(filters);
        let reader = Reader::new(self, name, filters.clone(), from);
        let (sender, receiver) = mpsc::channel(BATCHES_WAITING);
        let reading = Reading { ledger: self.clone(), reader, filters, stream: name.to_owned(), to, end: None, sender };
        tokio::spawn(reading.run());
        let batches =
            stream::unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|batch| (batch, receiver)) });
        let items = batches.flat_map(|batch: Result<Vec<Stored>, LedgerError>| {
            let (messages, error) = match batch {
                Ok(messages) => (messages, None),
                Err(error) => (Vec::new(), Some(Err(error))),
            };
            stream::iter(messages.into_iter().map(Ok).chain(error))
        });
        Ok(items.boxed())
    }
}

/// A bounded read on its way.
struct Reading {
    ledger: JetStreamLedger,
    reader: Reader,
    filters: Vec<String>,
    stream: String,
    to: u64,
    /// Up to here the leader was seen to have messages, at most `to`; asked for once, so that a busy stream can't draw a read out.
    end: Option<u64>,
    sender: mpsc::Sender<Result<Vec<Stored>, LedgerError>>,
}

impl Reading {
    async fn run(mut self) {
        if let Err(error) = self.read().await {
            let _ = self.sender.send(Err(error)).await;
        }
        self.reader.close().await;
    }

    async fn read(&mut self) -> Result<(), LedgerError> {
        let mut budget = self.ledger.budget();
        loop {
            let why = match self.reader.open().await {
                Ok(opened) => match self.drain(&opened).await? {
                    Drained::End => return Ok(()),
                    Drained::Lost { progressed, reason } => {
                        if progressed {
                            budget = self.ledger.budget();
                        }
                        reason
                    }
                },
                Err(failure) => reason(failure)?,
            };
            budget.pause(&why).await?;
        }
    }

    async fn drain(&mut self, opened: &Opened) -> Result<Drained, LedgerError> {
        let mut pending = opened.pending;
        let mut progressed = false;
        loop {
            if self.reader.next > self.to || (pending == 0 && (!opened.clustered || self.is_complete().await?)) {
                return Ok(Drained::End);
            }
            if pending == 0 {
                return Ok(Drained::Lost { progressed, reason: "the replica lags behind its leader".into() });
            }
            let batch = tokio::select! {
                () = self.sender.closed() => return Ok(Drained::End),
                batch = self.reader.batch() => batch,
            };
            match batch {
                Ok(batch) => {
                    progressed = true;
                    pending = batch.last().map_or(0, |last| last.pending);
                    let wanted =
                        batch.into_iter().map(|delivered| delivered.stored).filter(|stored| stored.seq <= self.to).collect();
                    if self.sender.send(Ok(wanted)).await.is_err() {
                        return Ok(Drained::End);
                    }
                }
                Err(reason) => return Ok(Drained::Lost { progressed, reason }),
            }
        }
    }

    /// Whether the leader, too, has nothing more up to the end: a replica may be behind it.
    async fn is_complete(&mut self) -> Result<bool, LedgerError> {
        let end = match self.end {
            Some(end) => end,
            None => self.ledger.stream_last_seq(&self.stream).await?.min(self.to),
        };
        self.end = Some(end);
        if self.reader.next > end {
            return Ok(true);
        }
        for filter in &self.filters {
            let after = self.reader.next - 1;
            let next = self.ledger.leader_next(&self.stream, filter, after, self.ledger.budget()).await?;
            if next.is_some_and(|next| next.sequence <= end) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

enum Drained {
    End,
    Lost { progressed: bool, reason: String },
}

/// The endless tail: ends only when nobody listens any more.
async fn follow(mut reader: Reader, sender: mpsc::Sender<TailItem>) {
    let mut wait_ms = 25;
    loop {
        let expected = reader.next;
        let lost = tokio::select! {
            () = sender.closed() => break,
            batch = reader.batch() => match batch {
                Ok(batch) => {
                    wait_ms = 25;
                    if deliver(expected, batch, &sender).await.is_err() {
                        break;
                    }
                    continue;
                }
                Err(reason) => reason,
            },
        };
        tracing::warn!(reason = lost, next = expected, "tail.lost: a new consumer is made");
        loop {
            let wait = jittered_ms(wait_ms / 2 + 1, wait_ms);
            tokio::select! {
                () = sender.closed() => return,
                () = tokio::time::sleep(wait) => {}
            }
            match open_or_ask(&mut reader, &sender).await {
                Ok(_) => break,
                // Backing off keeps a long outage from leaving a heap of half-made consumers behind.
                Err(failure) => tracing::debug!(?failure, "tail.open"),
            }
            if ask_direct(&mut reader, &sender).await.is_err() {
                return;
            }
            wait_ms = (wait_ms * 2).min(REOPEN_WAIT_MS_MAX);
        }
        tracing::info!(next = reader.next, "tail.resumed");
        if sender.send(TailItem::Reconnected).await.is_err() {
            break;
        }
    }
    reader.close().await;
}

/// Makes a new consumer, and while that takes its time asks for what is stored meanwhile.
async fn open_or_ask(reader: &mut Reader, sender: &mpsc::Sender<TailItem>) -> Result<(), Failure> {
    reader.close().await;
    let mut making = pin!(reader.making());
    loop {
        tokio::select! {
            biased;
            made = making.as_mut() => return reader.opened(made).map(drop),
            () = tokio::time::sleep(ASK_DIRECT_AFTER) => {}
        }
        if ask_direct(reader, sender).await.is_err() {
            return Err(Failure::Unknown("nobody listens any more".into()));
        }
    }
}

/// Hands on what there is without a consumer.
async fn ask_direct(reader: &mut Reader, sender: &mpsc::Sender<TailItem>) -> Result<(), ()> {
    loop {
        let expected = reader.next;
        let batch = reader.direct().await;
        if batch.is_empty() {
            return Ok(());
        }
        deliver(expected, batch, sender).await?;
    }
}

/// Hands a batch on, saying where sequences are missing.
async fn deliver(mut expected: u64, batch: Vec<Delivered>, sender: &mpsc::Sender<TailItem>) -> Result<(), ()> {
    let mut messages = Vec::with_capacity(batch.len());
    for Delivered { stored, .. } in batch {
        if stored.seq != expected {
            tracing::error!(from = expected, to = stored.seq, "tail.hole: the log lacks these sequences");
            if !messages.is_empty() {
                sender.send(TailItem::Messages(std::mem::take(&mut messages))).await.map_err(drop)?;
            }
            sender.send(TailItem::Hole { from: expected, to: stored.seq }).await.map_err(drop)?;
        }
        expected = stored.seq + 1;
        messages.push(stored);
    }
    sender.send(TailItem::Messages(messages)).await.map_err(drop)
}

/// Why opening failed, when trying again makes sense.
fn reason(failure: Failure) -> Result<String, LedgerError> {
    match failure {
        Failure::Unknown(reason) => Ok(reason),
        Failure::NotSent(reason) => Err(LedgerError::Other(reason)),
        Failure::Refused(error) if error.is_not_now() || error.is_full() => Ok(error.text()),
        Failure::Refused(error) => Err(error.into_error()),
    }
}

/// The filters without those another one covers: the server refuses overlapping ones.
fn without_covered(mut filters: Vec<String>) -> Vec<String> {
    filters.sort_unstable();
    filters.dedup();
    let wildcards: Vec<String> = filters.iter().filter(|filter| filter.contains(['*', '>'])).cloned().collect();
    filters.retain(|filter| !wildcards.iter().any(|wider| wider != filter && covers(wider, filter)));
    filters
}

fn covers(wider: &str, filter: &str) -> bool {
    let mut tokens = filter.split('.');
    for wanted in wider.split('.') {
        match (wanted, tokens.next()) {
            (">", Some(_)) => return true,
            ("*", Some(token)) if token != ">" => {}
            (wanted, Some(token)) if wanted == token => {}
            _ => return false,
        }
    }
    tokens.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covered_filters_are_dropped() {
        let filters = ["a.>", "a.b", "a.*.c", "b.*", "b.c", "c"].map(String::from).to_vec();
        assert_eq!(without_covered(filters), ["a.>", "b.*", "c"]);
        assert!(!covers("a.*", "a.>"));
    }
}
