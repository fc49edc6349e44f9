//! The log in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use async_trait::async_trait;
use bytes::Bytes;
use fanfold_domain::planted::{self, Planted};
use fanfold_wire::event::same_content;
use futures::{StreamExt, stream};

use super::{MAX_PAYLOAD_BYTES, MemoryLedger, State};
use crate::intake;
use crate::port::{Append, Appended, BoxStream, Expect, Fence, FencedError, LedgerError, Log, Stored, TailItem};
use crate::subject;
use crate::watch;

/// Most messages a tail hands out in one item.
const TAIL_BATCH_MAX: usize = 1_000;

pub(super) struct LogState {
    /// Message of sequence n at n - 1.
    pub(super) messages: Vec<Stored>,
    pub(super) by_subject: BTreeMap<String, Vec<u64>>,
    /// Ids inside the duplicate window.
    pub(super) ids: HashMap<String, u64>,
    /// (time stored, id), oldest first.
    pub(super) ids_by_age: VecDeque<(i64, String)>,
    pub(super) duplicate_window_ms: i64,
    /// Sequences that are gone.
    pub(super) lost: BTreeSet<u64>,
}

impl LogState {
    pub(super) fn last_seq(&self) -> u64 {
        self.messages.len() as u64
    }

    pub(super) fn lose(&mut self, from: u64, to: u64) {
        self.by_subject.values_mut().for_each(|seqs| seqs.retain(|seq| !(from..=to).contains(seq)));
        self.lost.extend(from..=to.min(self.last_seq()));
    }

    pub(super) fn truncate(&mut self, last_seq: u64) {
        self.messages.truncate(usize::try_from(last_seq).unwrap_or(usize::MAX));
        self.by_subject.values_mut().for_each(|seqs| seqs.retain(|seq| *seq <= last_seq));
        self.ids.retain(|_, seq| *seq <= last_seq);
        self.lost.retain(|seq| *seq <= last_seq);
    }

    fn gaps(&self) -> Vec<(u64, u64)> {
        let mut gaps: Vec<(u64, u64)> = Vec::new();
        for seq in &self.lost {
            match gaps.last_mut() {
                Some((_, to)) if *to + 1 == *seq => *to = *seq,
                _ => gaps.push((*seq, *seq)),
            }
        }
        gaps
    }

    fn get(&self, seq: u64) -> Option<&Stored> {
        if self.lost.contains(&seq) {
            return None;
        }
        self.messages.get(usize::try_from(seq.checked_sub(1)?).ok()?)
    }

    /// Sequences under a filter, one ascending list a subject.
    fn under<'a>(&'a self, filter: &'a str) -> impl Iterator<Item = &'a Vec<u64>> {
        let prefix = subject::literal_prefix(filter);
        self.by_subject
            .range(prefix.to_owned()..)
            .take_while(move |(subject, _)| subject.starts_with(prefix))
            .filter(move |(subject, _)| subject::matches(filter, subject))
            .map(|(_, seqs)| seqs)
    }

    fn last_under(&self, filter: &str) -> u64 {
        self.under(filter).filter_map(|seqs| seqs.last().copied()).max().unwrap_or(0)
    }

    /// First message under the filter after a sequence.
    fn next_under(&self, filter: &str, after: u64) -> Option<&Stored> {
        let next = |seqs: &Vec<u64>| seqs.get(seqs.partition_point(|seq| *seq <= after)).copied();
        self.get(self.under(filter).filter_map(next).min()?)
    }

    fn forget_old_ids(&mut self, now_ms: i64) {
        while let Some((stored_ms, id)) = self.ids_by_age.front() {
            if now_ms - stored_ms < self.duplicate_window_ms {
                return;
            }
            self.ids.remove(id);
            self.ids_by_age.pop_front();
        }
    }

    fn known(&self, event: &Append) -> Option<Appended> {
        self.ids.get(&event.id).and_then(|seq| self.get(*seq)).map(|stored| compare(event, stored))
    }

    /// What the log has against the event, judged against the log as it is now.
    fn objection(&self, event: &Append) -> Option<Appended> {
        if let Some(answer) = self.known(event) {
            return Some(answer);
        }
        let Expect { filter, last_seq } = event.expect.as_ref()?;
        if self.last_under(filter) == *last_seq {
            return None;
        }
        // Beyond the window a repeated decision is still told from a conflict: it can only stand right behind what it expected.
        match self.next_under(filter, *last_seq) {
            Some(stored) if stored.id == event.id => Some(compare(event, stored)),
            _ => Some(Appended::Conflict),
        }
    }

    fn push(&mut self, subject: &str, id: &str, payload: &Bytes, now_ms: i64) -> Stored {
        // The log's own clock never runs backwards, whatever the machine's does.
        let time_ms = self.messages.last().map_or(now_ms, |last| last.time_ms.max(now_ms));
        let seq = self.last_seq() + 1;
        let stored = Stored { seq, time_ms, subject: subject.to_owned(), id: id.to_owned(), payload: payload.clone() };
        self.by_subject.entry(stored.subject.clone()).or_default().push(seq);
        self.ids.insert(stored.id.clone(), seq);
        self.ids_by_age.push_back((time_ms, stored.id.clone()));
        self.messages.push(stored.clone());
        stored
    }
}

fn compare(event: &Append, stored: &Stored) -> Appended {
    let same = same_content(&event.payload, &stored.payload);
    if same { Appended::Duplicate { seq: stored.seq } } else { Appended::Conflicting { seq: stored.seq } }
}

impl State {
    fn check_room(&mut self, messages: usize) -> Result<(), LedgerError> {
        let full = self.full || self.room_to.is_some_and(|last| self.log.last_seq() + messages as u64 > last);
        self.refused += u64::from(full);
        if full { Err(LedgerError::Full("the memory ledger was set full".into())) } else { Ok(()) }
    }

    fn store(&mut self, event: &Append, now_ms: i64) -> u64 {
        let stored = self.log.push(&event.subject, &event.id, &event.payload, now_ms);
        self.bus.republish(&stored);
        stored.seq
    }

    /// One event by itself.
    fn append_one(&mut self, event: &Append, now_ms: i64) -> Result<Appended, LedgerError> {
        let objection = intake::refusal(event, MAX_PAYLOAD_BYTES).or_else(|| self.log.objection(event));
        if let Some(answer) = objection {
            return Ok(answer);
        }
        self.check_room(1)?;
        Ok(Appended::Stored { seq: self.store(event, now_ms) })
    }

    fn store_fence(&mut self, fence: &mut Fence, now_ms: i64) -> Result<(), FencedError> {
        self.check_room(1)?;
        self.fence_number += 1;
        fence.next = self.fence_number + 1;
        let (subject, id, payload) = crate::fence::message(&fence.role, &fence.incarnation, self.fence_number);
        fence.last_seq = self.log.push(&subject, &id, &payload, now_ms).seq;
        Ok(())
    }
}

impl MemoryLedger {
    fn write<T>(&self, act: impl FnOnce(&mut State, i64) -> T) -> Result<T, LedgerError> {
        let now_ms = (self.shared.now_ms)();
        let mut state = self.reach()?;
        state.log.forget_old_ids(now_ms);
        let result = act(&mut state, now_ms);
        self.shared.last_seq.send_replace(state.log.last_seq());
        Ok(result)
    }
}

#[async_trait]
impl Log for MemoryLedger {
    async fn append(&self, events: Vec<Append>) -> Result<Vec<Appended>, LedgerError> {
        self.write(|state, now_ms| events.iter().map(|event| state.append_one(event, now_ms)).collect())?
    }

    async fn append_atomic(&self, events: Vec<Append>) -> Result<Appended, LedgerError> {
        self.write(|state, now_ms| {
            if let Some(answer) = intake::batch_refusal(&events, MAX_PAYLOAD_BYTES) {
                return Ok(answer);
            }
            let objections: Vec<_> = events.iter().map(|event| state.log.objection(event)).collect();
            if objections.iter().all(Option::is_none) {
                state.check_room(events.len())?;
                let seq = events.iter().map(|event| state.store(event, now_ms)).last().unwrap_or(0);
                return Ok(Appended::Stored { seq });
            }
            Ok(batch_answer(&objections))
        })?
    }

    async fn acquire_fence(&self, role: &str, incarnation: &str) -> Result<Fence, FencedError> {
        let mut fence = Fence { role: role.into(), incarnation: incarnation.into(), next: 0, last_seq: 0 };
        self.write(|state, now_ms| state.store_fence(&mut fence, now_ms))??;
        Ok(fence)
    }

    async fn append_fenced(&self, fence: &mut Fence, events: Vec<Append>) -> Result<Vec<Appended>, FencedError> {
        self.write(|state, now_ms| {
            let filter = crate::fence::subject(&fence.role);
            if state.log.last_under(&filter) != fence.last_seq && !planted::is(Planted::FenceNotExpected) {
                return Err(FencedError::Overtaken(fence.role.clone()));
            }
            let new = events.iter().filter(|event| state.log.objection(event).is_none()).count();
            state.check_room(new + 1)?;
            state.store_fence(fence, now_ms)?;
            let answers: Result<_, LedgerError> = events.iter().map(|event| state.append_one(event, now_ms)).collect();
            Ok(answers?)
        })?
    }

    async fn last_seq(&self) -> Result<u64, LedgerError> {
        Ok(self.reach()?.log.last_seq())
    }

    async fn gaps(&self) -> Result<Vec<(u64, u64)>, LedgerError> {
        Ok(self.reach()?.log.gaps())
    }

    async fn last_under(&self, filter: &str) -> Result<Option<Stored>, LedgerError> {
        let state = self.reach()?;
        Ok(state.log.get(state.log.last_under(filter)).cloned())
    }

    async fn read(
        &self,
        filters: Vec<String>,
        from: u64,
        to: u64,
    ) -> Result<BoxStream<Result<Stored, LedgerError>>, LedgerError> {
        let state = self.reach()?;
        let mut seqs: Vec<u64> = filters.iter().flat_map(|filter| state.log.under(filter)).flatten().copied().collect();
        seqs.retain(|seq| (from..=to).contains(seq));
        seqs.sort_unstable();
        seqs.dedup();
        let messages: Vec<_> = seqs.iter().filter_map(|seq| state.log.get(*seq).cloned()).map(Ok).collect();
        Ok(stream::iter(messages).boxed())
    }

    async fn tail(&self, from: u64) -> Result<BoxStream<TailItem>, LedgerError> {
        drop(self.reach()?);
        let tail = Tail {
            ledger: self.clone(),
            next: from.max(1),
            last_seq: self.shared.last_seq.subscribe(),
            connections: self.shared.connections.subscribe(),
        };
        Ok(stream::unfold(tail, |mut tail| async move { tail.item().await.map(|item| (item, tail)) }).boxed())
    }
}

/// The answer for a batch that was refused: a repetition when every member is one, otherwise what is wrong with it.
fn batch_answer(objections: &[Option<Appended>]) -> Appended {
    let conflicting = objections.iter().flatten().find(|answer| matches!(answer, Appended::Conflicting { .. }));
    let repeated = |answer: &Option<Appended>| matches!(answer, Some(Appended::Duplicate { .. }));
    match (conflicting, objections.last()) {
        (Some(answer), _) => answer.clone(),
        (None, Some(Some(last))) if objections.iter().all(repeated) => last.clone(),
        _ => Appended::Conflict,
    }
}

struct Tail {
    ledger: MemoryLedger,
    next: u64,
    last_seq: watch::Receiver<u64>,
    connections: watch::Receiver<u64>,
}

impl Tail {
    async fn item(&mut self) -> Option<TailItem> {
        loop {
            if self.connections.has_changed().ok()? {
                self.connections.mark_unchanged();
                return Some(TailItem::Reconnected);
            }
            self.last_seq.mark_unchanged();
            let messages = self.available();
            if let Some(first) = messages.first().map(|m| m.seq).filter(|seq| *seq > self.next) {
                let from = std::mem::replace(&mut self.next, first);
                return Some(TailItem::Hole { from, to: first });
            }
            if let Some(last) = messages.last() {
                self.next = last.seq + 1;
                return Some(TailItem::Messages(messages));
            }
            // The ledger lives as long as this tail, so neither sender can be gone.
            tokio::select! {
                biased;
                changed = self.last_seq.changed() => changed.ok()?,
                changed = self.connections.changed() => {
                    changed.ok()?;
                    return Some(TailItem::Reconnected);
                }
            }
        }
    }

    fn available(&self) -> Vec<Stored> {
        let state = self.ledger.lock();
        let from = usize::try_from(self.next - 1).unwrap_or(usize::MAX);
        if state.down {
            return Vec::new();
        }
        let there = state.log.messages.iter().skip(from).filter(|m| !state.log.lost.contains(&m.seq));
        // Up to the next hole, which is said by itself.
        let mut next = None;
        let joined = there.take_while(|m| next.replace(m.seq + 1).is_none_or(|n| n == m.seq));
        joined.take(TAIL_BATCH_MAX).cloned().collect()
    }
}
