//! The endless tail of the log: everything from a sequence on, over lost connections and over what can't be read.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::api::{Failure, stored};
use super::reader::{Delivered, Reader, STUCK};
use super::{JetStreamLedger, LOG, jittered_ms};
use crate::port::TailItem;

/// A consumer that is not made within this: the stream is read without one meanwhile.
const ASK_DIRECT_AFTER: Duration = Duration::from_millis(200);
/// Longest pause before a consumer is made again.
const REOPEN_WAIT_MS_MAX: u64 = 400;
/// A tail that stands still is asked about at the log's leader after [`STUCK`], and again after twice as long each time, up to this.
const DOUBT_MAX: Duration = Duration::from_secs(60);

/// Nobody listens any more.
struct Left;

pub(super) struct Tail {
    ledger: JetStreamLedger,
    reader: Reader,
    sender: mpsc::Sender<TailItem>,
    /// The sequence that comes next if nothing is missing.
    expected: u64,
    doubt: Duration,
    doubt_at: Instant,
}

impl Tail {
    pub(super) fn new(ledger: JetStreamLedger, reader: Reader, sender: mpsc::Sender<TailItem>) -> Self {
        let expected = reader.next;
        Self { ledger, reader, sender, expected, doubt: STUCK, doubt_at: Instant::now() + STUCK }
    }

    /// Ends only when nobody listens any more.
    pub(super) async fn follow(mut self) {
        // The only error there is.
        let Left = match self.run().await {
            Err(left) => left,
            Ok(never) => match never {},
        };
        self.reader.close().await;
    }

    async fn run(&mut self) -> Result<std::convert::Infallible, Left> {
        let mut wait_ms = 25;
        loop {
            let sender = self.sender.clone();
            let lost = tokio::select! {
                () = sender.closed() => return Err(Left),
                batch = self.reader.batch() => match batch {
                    Ok(batch) => match self.take(batch).await? {
                        None => {
                            wait_ms = 25;
                            continue;
                        }
                        Some(reason) => reason,
                    },
                    Err(reason) => reason,
                },
            };
            tracing::warn!(reason = lost, next = self.reader.next, "tail.lost: a new consumer is made");
            loop {
                let wait = jittered_ms(wait_ms / 2 + 1, wait_ms);
                tokio::select! {
                    () = sender.closed() => return Err(Left),
                    () = tokio::time::sleep(wait) => {}
                }
                match self.open_or_ask().await? {
                    Ok(()) => break,
                    // Backing off keeps a long outage from leaving a heap of half-made consumers behind.
                    Err(failure) => tracing::debug!(?failure, "tail.open"),
                }
                self.ask_direct().await?;
                wait_ms = (wait_ms * 2).min(REOPEN_WAIT_MS_MAX);
            }
            tracing::info!(next = self.reader.next, "tail.resumed");
            self.send(TailItem::Reconnected).await?;
        }
    }

    /// Takes what the reader brought; why its consumer is to be made anew, if it is.
    async fn take(&mut self, batch: Vec<Delivered>) -> Result<Option<String>, Left> {
        if batch.is_empty() {
            return self.judge_silence().await;
        }
        (self.doubt, self.doubt_at) = (STUCK, Instant::now() + STUCK);
        Ok(self.deliver(batch).await?.err())
    }

    /// A heartbeat and nothing else has come. Either the consumer has looked at sequences and not brought them, or it stands in front of
    /// something it can't read, or there is nothing.
    async fn judge_silence(&mut self) -> Result<Option<String>, Left> {
        let looked = self.reader.looked();
        if looked < self.expected && (self.reader.still() < STUCK || Instant::now() < self.doubt_at) {
            return Ok(None);
        }
        let judged = self.first_after(looked).await;
        // Asked again, but ever less often: a log in which nothing happens is no reason to ask its leader all the time.
        self.doubt = (self.doubt * 2).min(DOUBT_MAX);
        self.doubt_at = Instant::now() + self.doubt;
        match judged {
            Ok((Some(next), _)) => {
                let reason = format!("#{} was not brought", next.stored.seq);
                self.reader.next = next.stored.seq + 1;
                self.deliver(vec![next]).await?.err();
                Ok(Some(reason))
            }
            Ok((None, end)) if end >= self.expected => {
                self.ledger.note_missing(self.expected, end);
                self.hole(self.expected, end + 1).await?;
                self.reader.next = end + 1;
                Ok((looked < end).then(|| format!("nothing up to #{end} can be read")))
            }
            Ok((None, _)) => Ok(None),
            Err(reason) => {
                tracing::debug!(reason, "tail.silent");
                Ok(None)
            }
        }
    }

    /// What the leader has next, and up to where it was looked for.
    async fn first_after(&self, looked: u64) -> Result<(Option<Delivered>, u64), String> {
        let end = self.ledger.stream_last_seq(LOG).await.map_err(|e| e.to_string())?;
        if end < self.expected {
            return Ok((None, end));
        }
        // A new message is on its way to the consumer; only what it has had the time for is judged.
        let end = if self.reader.still() < STUCK { end.min(looked) } else { end };
        let next = self.ledger.first_readable(LOG, &[], self.expected - 1, end).await.map_err(|e| e.to_string())?;
        Ok((next.map(|message| Delivered { stored: stored(message), pending: 0 }), end))
    }

    /// Makes a new consumer, and while that takes its time asks for what is stored meanwhile.
    async fn open_or_ask(&mut self) -> Result<Result<(), Failure>, Left> {
        self.reader.close().await;
        let mut making = pin!(self.reader.making());
        loop {
            tokio::select! {
                biased;
                made = making.as_mut() => return Ok(self.reader.opened(made).map(drop)),
                () = tokio::time::sleep(ASK_DIRECT_AFTER) => {}
            }
            self.ask_direct().await?;
        }
    }

    /// Hands on what there is without a consumer.
    async fn ask_direct(&mut self) -> Result<(), Left> {
        loop {
            let batch = self.reader.direct().await;
            if batch.is_empty() {
                return Ok(());
            }
            if let Err(reason) = self.deliver(batch).await? {
                tracing::debug!(reason, "tail.direct");
                return Ok(());
            }
        }
    }

    /// Hands a batch on, saying where sequences are missing. `Ok(Err(..))`: that could not be found out, so it is to be read again.
    async fn deliver(&mut self, batch: Vec<Delivered>) -> Result<Result<(), String>, Left> {
        let batch = match self.ledger.joined(self.expected, batch).await {
            Ok((batch, _)) => batch,
            Err(error) => {
                self.reader.next = self.expected;
                return Ok(Err(error.to_string()));
            }
        };
        let mut messages = Vec::with_capacity(batch.len());
        for Delivered { stored, .. } in batch {
            if stored.seq != self.expected {
                if !messages.is_empty() {
                    self.send(TailItem::Messages(std::mem::take(&mut messages))).await?;
                }
                self.hole(self.expected, stored.seq).await?;
            }
            self.expected = stored.seq + 1;
            messages.push(stored);
        }
        if !messages.is_empty() {
            self.send(TailItem::Messages(messages)).await?;
        }
        Ok(Ok(()))
    }

    /// Sequences `from..to` are missing.
    async fn hole(&mut self, from: u64, to: u64) -> Result<(), Left> {
        tracing::error!(from, to, "tail.hole: the log lacks these sequences");
        self.expected = to;
        self.send(TailItem::Hole { from, to }).await
    }

    async fn send(&self, item: TailItem) -> Result<(), Left> {
        self.sender.send(item).await.map_err(|_| Left)
    }
}
