//! Sequences that the server counts and can't give.
//!
//! A record whose checksum is wrong is passed over by the server without a word: its stream info, its counts and what it says is pending
//! go on as if it were there. A compressed block that can't be unpacked stops every reader in front of it, and asking for what comes next
//! is answered "nothing" as far as the block reaches. So readers watch where a consumer stands, find the way on themselves, and what
//! they find missing is remembered here for as long as the connection is: [`crate::port::Log::gaps`] tells it.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::Duration;

use async_nats::jetstream::message::StreamMessage;
use futures::StreamExt;
use futures::future::BoxFuture;
use tokio::time::Instant;

use super::api::stored;
use super::reader::Delivered;
use super::{JetStreamLedger, LOG};
use crate::port::{Fence, LedgerError, Log, Stored};
use crate::{gaps, subject};

/// Messages fetched from the leader one by one in one gap of a replica; what lies behind them counts as missing.
const FETCHED_MAX: u32 = 10_000;

/// A lead that was proven so lately is not doubted.
const PROVEN_FOR: Duration = Duration::from_secs(1);

/// What was found missing, and where it was looked for.
#[derive(Debug, Default)]
pub(super) struct Damage {
    missing: Vec<(u64, u64)>,
    looked: Vec<(u64, u64)>,
    /// Roles that stored a fence, over which connection, and when: as many as are led here.
    proven: HashMap<String, (u64, Instant)>,
}

/// What stands under a filter behind a sequence that the server does not take for the last.
pub(super) enum Behind {
    /// Nothing that can be read; the server takes this sequence for the last (0: none), because it can't read the one that is.
    Unreadable(u64),
    /// Nothing, for a reason of its own.
    Unknown,
    Stored(Box<StreamMessage>),
}

impl JetStreamLedger {
    fn damage<T>(&self, act: impl FnOnce(&mut Damage) -> T) -> T {
        act(&mut self.inner.damage.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sequences `from` to `to` of the log did not come though what follows them did.
    pub(super) fn note_missing(&self, from: u64, to: u64) {
        if self.damage(|damage| gaps::insert(&mut damage.missing, from, to)) {
            tracing::warn!(from, to, "the log lacks these sequences: the server counts them and can't give them");
        }
    }

    /// Adds what was found missing to what the server says is.
    pub(super) fn with_missing(&self, mut gaps: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
        self.damage(|damage| {
            for (from, to) in &damage.missing {
                gaps::insert(&mut gaps, *from, *to);
            }
        });
        gaps
    }

    /// A filtered read of the log brought fewer messages than the server counts: everything up to `to` is read once, so that what is
    /// missing is known by its sequence.
    pub(super) fn look_for_missing(&self, from: u64, to: u64) -> BoxFuture<'_, Result<(), LedgerError>> {
        Box::pin(async move {
            let from = self.damage(|damage| gaps::end_of(&damage.looked, from)).map_or(from, |looked| looked + 1);
            if from > to {
                return Ok(());
            }
            tracing::warn!(from, to, "the server counts more events than it gives; the log is read to find what is missing");
            let mut events = self.read(vec!["ff.>".to_owned()], from, to).await?;
            while let Some(event) = events.next().await {
                event?;
            }
            self.damage(|damage| gaps::insert(&mut damage.looked, from, to));
            Ok(())
        })
    }

    /// The first message after a sequence that the leader can give, up to `end`; over any stretch it can't read.
    pub(super) async fn first_readable(
        &self,
        stream: &str,
        filters: &[String],
        after: u64,
        end: u64,
    ) -> Result<Option<StreamMessage>, LedgerError> {
        if let Some(message) = self.first_of(stream, filters, after).await? {
            return Ok(Some(message));
        }
        // Nothing from `low` on is given; what is given from `high` on is in `found`.
        let (mut low, mut high, mut step, mut found) = (after, after, 1_u64, None);
        while found.is_none() && high < end.saturating_sub(1) {
            low = high;
            high = high.saturating_add(step).min(end.saturating_sub(1));
            step = step.saturating_mul(2);
            found = self.first_of(stream, filters, high).await?;
        }
        while found.is_some() && high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.first_of(stream, filters, middle).await? {
                Some(message) => (found, high) = (Some(message), middle),
                None => low = middle,
            }
        }
        Ok(found.filter(|message| message.sequence <= end))
    }

    /// Looks behind a sequence under a filter where the leader says that nothing comes next and that this is not the last either.
    ///
    /// Of a filter whose last record it can't read the server says that there is none, and where the damage is in the subject, that the
    /// last is an earlier one; it takes no other expectation. That is an expectation as good as any: the next record that is stored there
    /// ends it. So it may be sent by whoever has seen all that can be read there. For a fence it never is: what can't be read may be
    /// another's.
    pub(super) async fn behind_unreadable(&self, filter: &str, after: u64) -> Result<Behind, LedgerError> {
        let end = self.last_seq().await?;
        if let Some(next) = self.first_readable(LOG, &[filter.to_owned()], after, end).await? {
            return Ok(Behind::Stored(Box::new(next)));
        }
        let last = self.leader_last(LOG, filter, self.budget()).await?.map_or(0, |last| last.sequence);
        // A log that ends before it, or holds something else there, is another one than was seen.
        if after == 0 || after > end || last >= after {
            return Ok(Behind::Unknown);
        }
        let here = self.leader_seq(after, self.budget()).await?;
        if here.is_some_and(|here| last > 0 || !subject::matches(filter, &here.subject)) {
            return Ok(Behind::Unknown);
        }
        tracing::warn!(filter, after, last, "the last record there can't be read; what follows is stored behind it");
        Ok(Behind::Unreadable(last))
    }

    /// Whether the log lacks something behind a role's last fence, which may be a fence that overtook it. That it lacks nothing is asked
    /// of the server where the lead was not proven a moment ago, over this connection.
    pub(super) async fn may_lack_a_fence(&self, fence: &Fence) -> Result<bool, LedgerError> {
        let connection = *self.inner.connections.borrow();
        let proven = self.damage(|damage| damage.proven.get(&fence.role).copied());
        let lately = proven.is_some_and(|(over, at)| over == connection && at.elapsed() < PROVEN_FOR);
        let gaps = if lately { self.with_missing(Vec::new()) } else { self.gaps().await? };
        Ok(gaps.last().is_some_and(|(_, to)| *to > fence.last_seq))
    }

    /// A fence was stored: nobody had overtaken this role.
    pub(super) fn note_proven(&self, role: &str) {
        let connection = *self.inner.connections.borrow();
        self.damage(|damage| damage.proven.insert(role.to_owned(), (connection, Instant::now())));
    }

    /// The last message under a filter that the server says has none: it says so, too, for as long as a record of that subject can't be
    /// read, whatever stands behind it.
    pub(super) async fn last_readable(&self, filter: &str) -> Result<Option<Stored>, LedgerError> {
        if self.leader_next(LOG, filter, 0, self.budget()).await?.is_none() {
            return Ok(None);
        }
        let mut events = self.read(vec![filter.to_owned()], 1, self.last_seq().await?).await?;
        let mut last = None;
        while let Some(event) = events.next().await {
            last = Some(event?);
        }
        Ok(last)
    }

    /// First message after a sequence under any of the filters; no filter is everything.
    async fn first_of(&self, stream: &str, filters: &[String], after: u64) -> Result<Option<StreamMessage>, LedgerError> {
        let everything = [">".to_owned()];
        let filters = if filters.is_empty() { everything.as_slice() } else { filters };
        let mut first: Option<StreamMessage> = None;
        for filter in filters {
            let next = self.leader_next(stream, filter, after, self.budget()).await?;
            if next.as_ref().is_some_and(|next| first.as_ref().is_none_or(|first| next.sequence < first.sequence)) {
                first = next;
            }
        }
        Ok(first)
    }

    /// Puts into a batch of everything what the leader has where a replica passed over it, and says what nobody has: first and last
    /// sequence. `expected` is the sequence the batch should begin with.
    pub(super) async fn joined(
        &self,
        mut expected: u64,
        batch: Vec<Delivered>,
    ) -> Result<(Vec<Delivered>, Vec<(u64, u64)>), LedgerError> {
        let (mut whole, mut missing) = (Vec::with_capacity(batch.len()), Vec::new());
        for delivered in batch {
            let mut fetched = 0;
            while expected < delivered.stored.seq {
                let next = if fetched < FETCHED_MAX { self.first_of(LOG, &[], expected - 1).await? } else { None };
                let until = next.as_ref().map_or(delivered.stored.seq, |next| next.sequence.min(delivered.stored.seq));
                if expected < until {
                    missing.push((expected, until - 1));
                }
                expected = until;
                if let Some(next) = next.filter(|next| next.sequence < delivered.stored.seq) {
                    fetched += 1;
                    expected = next.sequence + 1;
                    whole.push(Delivered { stored: stored(next), pending: delivered.pending });
                }
            }
            expected = delivered.stored.seq + 1;
            whole.push(delivered);
        }
        missing.iter().for_each(|(from, to)| self.note_missing(*from, *to));
        Ok((whole, missing))
    }
}
