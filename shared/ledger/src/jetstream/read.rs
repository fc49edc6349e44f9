//! Bounded reads of a stream: everything under some filters up to a sequence, whatever happens to server, consumer or store.

use futures::{StreamExt, stream};
use tokio::sync::mpsc;

use super::api::{Failure, stored};
use super::log::BATCHES_WAITING;
use super::reader::{Delivered, Opened, Reader, STUCK};
use super::{JetStreamLedger, LOG};
use crate::port::{BoxStream, LedgerError, Stored};

impl JetStreamLedger {
    /// Every message of a stream under any of the filters, `from <= seq <= to`, in order. Several filters on one consumer cost the server
    /// so much that it stands still where a subject has several messages: use one, and read several times.
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
        let mut filters = without_covered(filters);
        if name == LOG && filters.iter().any(|filter| filter == ">" || filter == "ff.>") {
            filters = Vec::new();
        }
        let reader = Reader::new(self, name, filters.clone(), from);
        let (sender, receiver) = mpsc::channel(BATCHES_WAITING);
        let from = from.max(1);
        let reading = Reading {
            ledger: self.clone(),
            reader,
            filters,
            stream: name.to_owned(),
            from,
            expected: from,
            to,
            end: None,
            skipped: false,
            sender,
        };
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
    /// None: everything.
    filters: Vec<String>,
    stream: String,
    from: u64,
    /// Where everything of the log is read: the sequence that comes next if nothing is missing.
    expected: u64,
    to: u64,
    /// Up to here the leader was seen to have messages, at most `to`; asked for once, so that a busy stream can't draw a read out.
    end: Option<u64>,
    /// Its consumer was made anew behind something that could not be read.
    skipped: bool,
    sender: mpsc::Sender<Result<Vec<Stored>, LedgerError>>,
}

enum Drained {
    End {
        /// The server counted more messages than it gave.
        short: bool,
    },
    /// Nobody listens any more.
    Left,
    Lost {
        progressed: bool,
        reason: String,
    },
}

/// What a consumer that says nothing is about.
enum Standing {
    /// It has nothing more up to the end.
    AtEnd,
    /// It may yet go on.
    Waits,
    /// It stands in front of something it can't read; this comes behind it.
    Before(Box<Stored>),
}

impl Reading {
    async fn run(mut self) {
        if let Err(error) = self.read().await {
            let _ = self.sender.send(Err(error)).await;
        }
        self.reader.close().await;
    }

    fn reads_all(&self) -> bool {
        self.stream == LOG && self.filters.is_empty()
    }

    async fn read(&mut self) -> Result<(), LedgerError> {
        let mut budget = self.ledger.budget();
        loop {
            let why = match self.reader.open().await {
                Ok(opened) => match self.drain(&opened).await? {
                    Drained::Left => return Ok(()),
                    Drained::End { short } => return self.finish(short).await,
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

    /// Says what is missing, before whoever reads sees the end.
    async fn finish(&mut self, short: bool) -> Result<(), LedgerError> {
        let Some(end) = self.end.filter(|_| (short || self.skipped) && self.stream == LOG) else { return Ok(()) };
        if self.reads_all() {
            if self.expected <= end {
                self.ledger.note_missing(self.expected, end);
            }
            return Ok(());
        }
        self.ledger.look_for_missing(self.from, end).await
    }

    async fn drain(&mut self, opened: &Opened) -> Result<Drained, LedgerError> {
        let mut pending = opened.pending;
        let mut progressed = false;
        loop {
            if self.reader.next > self.to || (pending == 0 && (!opened.clustered || self.is_complete().await?)) {
                return Ok(Drained::End { short: false });
            }
            if pending == 0 {
                return Ok(Drained::Lost { progressed, reason: "the replica lags behind its leader".into() });
            }
            let batch = tokio::select! {
                () = self.sender.closed() => return Ok(Drained::Left),
                batch = self.reader.batch() => batch,
            };
            match batch {
                Ok(batch) if batch.is_empty() => match self.standing().await? {
                    Standing::AtEnd => return Ok(Drained::End { short: true }),
                    Standing::Waits => {}
                    Standing::Before(next) => {
                        let reason = format!("what lies before #{} can't be read", next.seq);
                        self.reader.next = next.seq + 1;
                        self.skipped = true;
                        if self.hand_on(vec![Delivered { stored: *next, pending }]).await?.is_err() {
                            return Ok(Drained::Left);
                        }
                        return Ok(Drained::Lost { progressed: true, reason });
                    }
                },
                Ok(batch) => {
                    progressed = true;
                    pending = batch.last().map_or(0, |last| last.pending);
                    if self.hand_on(batch).await?.is_err() {
                        return Ok(Drained::Left);
                    }
                }
                Err(reason) => return Ok(Drained::Lost { progressed, reason }),
            }
        }
    }

    /// Hands a batch on; `Err`: nobody listens any more.
    async fn hand_on(&mut self, batch: Vec<Delivered>) -> Result<Result<(), ()>, LedgerError> {
        let batch = match batch.last() {
            Some(last) if self.reads_all() => {
                let next = last.stored.seq + 1;
                let (whole, _) = self.ledger.joined(self.expected, batch).await?;
                self.expected = next;
                whole
            }
            _ => batch,
        };
        let wanted = batch.into_iter().map(|delivered| delivered.stored).filter(|stored| stored.seq <= self.to).collect();
        Ok(self.sender.send(Ok(wanted)).await.map_err(drop))
    }

    /// Where a consumer stands that has sent a heartbeat and nothing else. It is not believed that it has nothing more: its leader is asked.
    async fn standing(&mut self) -> Result<Standing, LedgerError> {
        let looked = self.reader.looked();
        let end = self.end().await?;
        if looked < end && self.reader.still() < STUCK {
            return Ok(Standing::Waits);
        }
        let next = self.ledger.first_readable(&self.stream, &self.filters, self.reader.next - 1, end).await?;
        Ok(next.map_or(Standing::AtEnd, |next| Standing::Before(Box::new(stored(next)))))
    }

    async fn end(&mut self) -> Result<u64, LedgerError> {
        let end = match self.end {
            Some(end) => end,
            None => self.ledger.stream_last_seq(&self.stream).await?.min(self.to),
        };
        self.end = Some(end);
        Ok(end)
    }

    /// Whether the leader, too, has nothing more up to the end: a replica may be behind it.
    async fn is_complete(&mut self) -> Result<bool, LedgerError> {
        let end = self.end().await?;
        if self.reader.next > end {
            return Ok(true);
        }
        let after = self.reader.next - 1;
        let everything = [">".to_owned()];
        let filters = if self.filters.is_empty() { everything.as_slice() } else { self.filters.as_slice() };
        for filter in filters {
            let next = self.ledger.leader_next(&self.stream, filter, after, self.ledger.budget()).await?;
            if next.is_some_and(|next| next.sequence <= end) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Why opening failed, when trying again makes sense.
pub(super) fn reason(failure: Failure) -> Result<String, LedgerError> {
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
