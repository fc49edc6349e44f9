//! Reports on their way: what is due, in which batch, and when to try again. Time and chance come in as arguments.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fanfold_wire::domain::planted::{self, Planted};
use fanfold_wire::terminal::{AttemptRef, BATCH_REPORTS_MAX, ReportAnswer, ReportResult};
use tokio::time::Instant;

use crate::holds::is_settled;
use crate::journal::EndKind;

/// Most bytes of a batch; a single report may be larger.
pub(crate) const BATCH_BYTES_MAX: usize = 512 * 1024;
/// Progress reports waiting; further ones are dropped.
pub(crate) const STEPS_WAITING_MAX: usize = 1024;

/// Which report.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ReportKey {
    /// `attempt.started`
    Started(AttemptRef),
    /// `attempt.progressed`
    Step(AttemptRef, u32),
    /// What ended the attempt.
    End(AttemptRef, EndKind),
}

/// Pauses between tries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    /// The first.
    pub(crate) first: Duration,
    /// The longest.
    pub(crate) longest: Duration,
}

impl Backoff {
    /// Pause after the `tries`-th failure (from 1); `chance` in 0..1 spreads it over its upper half.
    pub(crate) fn pause(&self, tries: u32, chance: f64) -> Duration {
        let doubled = self.first.saturating_mul(1_u32 << tries.saturating_sub(1).min(20));
        doubled.min(self.longest).mul_f64(0.5 + 0.5 * chance.clamp(0.0, 1.0))
    }
}

#[derive(Debug)]
struct Item {
    key: ReportKey,
    body: Bytes,
    due: Instant,
    tries: u32,
}

/// A request to be sent.
#[derive(Debug)]
pub(crate) struct Batch {
    orders: Vec<u64>,
    /// A JSON array of reports.
    pub(crate) payload: Bytes,
}

/// What the reporter is to do.
#[derive(Debug)]
pub(crate) enum Next {
    /// Send this.
    Batch(Batch),
    /// Nothing before this time.
    At(Instant),
    /// Nothing until something is added.
    Idle,
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OutboxCounts {
    pub(crate) requests: u64,
    pub(crate) requests_failed: u64,
    pub(crate) sent: u64,
    pub(crate) settled: u64,
    pub(crate) retried: u64,
    pub(crate) steps_dropped: u64,
}

/// See the module. Only one batch is on its way at a time.
#[derive(Debug)]
pub(crate) struct Outbox {
    items: BTreeMap<u64, Item>,
    /// `attempt.started` reports that may still be dropped.
    started: HashMap<AttemptRef, u64>,
    next_order: u64,
    steps: usize,
    /// Requests that failed in a row, and the pause they brought.
    failures: u32,
    not_before: Option<Instant>,
    backoff: Backoff,
    pub(crate) counts: OutboxCounts,
}

impl Outbox {
    /// An empty one.
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self {
            items: BTreeMap::new(),
            started: HashMap::new(),
            next_order: 0,
            steps: 0,
            failures: 0,
            not_before: None,
            backoff,
            counts: OutboxCounts::default(),
        }
    }

    fn push(&mut self, key: ReportKey, body: Bytes, due: Instant) -> u64 {
        let order = self.next_order;
        self.next_order += 1;
        self.items.insert(order, Item { key, body, due, tries: 0 });
        order
    }

    /// Adds an `attempt.started`, held back until `due`.
    pub(crate) fn started(&mut self, attempt: AttemptRef, body: Bytes, due: Instant) {
        let order = self.push(ReportKey::Started(attempt.clone()), body, due);
        self.started.insert(attempt, order);
    }

    /// Adds a progress report, unless too many wait. It makes the start due, so that they arrive in order.
    pub(crate) fn step(&mut self, attempt: AttemptRef, k: u32, body: Bytes, now: Instant) {
        if self.steps >= STEPS_WAITING_MAX {
            self.counts.steps_dropped += 1;
            return;
        }
        if let Some(started) = self.started.get(&attempt).and_then(|order| self.items.get_mut(order))
            && started.tries == 0
        {
            started.due = started.due.min(now);
        }
        self.steps += 1;
        self.push(ReportKey::Step(attempt, k), body, now);
    }

    /// Adds what ended an attempt; its `attempt.started`, if it still waits, is dropped.
    pub(crate) fn end(&mut self, attempt: AttemptRef, end: EndKind, body: Bytes, now: Instant) {
        if let Some(order) = self.started.remove(&attempt) {
            self.items.remove(&order);
        }
        self.push(ReportKey::End(attempt, end), body, now);
    }

    /// Makes what waits of an attempt due.
    pub(crate) fn expedite(&mut self, attempt: &AttemptRef, now: Instant) {
        for item in self.items.values_mut() {
            if matches!(&item.key, ReportKey::End(of, _) if of == attempt) {
                item.due = item.due.min(now);
            }
        }
    }

    /// The connection is back: everything is due at `at`, and failures before it count no more.
    pub(crate) fn reconnected(&mut self, at: Instant) {
        self.failures = 0;
        self.not_before = self.not_before.map(|t| t.min(at));
        for item in self.items.values_mut() {
            if item.tries > 0 {
                item.due = item.due.min(at);
            }
        }
    }

    /// What to do at `now`. Reports that are due go in the order they were added.
    pub(crate) fn next(&mut self, now: Instant) -> Next {
        if self.items.is_empty() {
            return Next::Idle;
        }
        if let Some(at) = self.not_before.filter(|at| *at > now) {
            return Next::At(at);
        }
        let mut orders = Vec::new();
        let mut payload = BytesMut::new();
        let mut earliest: Option<Instant> = None;
        for (order, item) in &self.items {
            if item.due > now {
                earliest = Some(earliest.map_or(item.due, |t| t.min(item.due)));
                continue;
            }
            let full = orders.len() >= BATCH_REPORTS_MAX || payload.len() + item.body.len() + 2 > BATCH_BYTES_MAX;
            if full && !orders.is_empty() {
                break;
            }
            payload.extend_from_slice(if orders.is_empty() { b"[" } else { b"," });
            payload.extend_from_slice(&item.body);
            orders.push(*order);
        }
        if orders.is_empty() {
            return earliest.map_or(Next::Idle, Next::At);
        }
        payload.extend_from_slice(b"]");
        self.counts.requests += 1;
        self.counts.sent += orders.len() as u64;
        Next::Batch(Batch { orders, payload: payload.freeze() })
    }

    /// The request got no usable answer.
    pub(crate) fn failed(&mut self, batch: &Batch, now: Instant, chance: f64) {
        self.counts.requests_failed += 1;
        self.failures += 1;
        self.not_before = Some(now + self.backoff.pause(self.failures, chance));
        for order in &batch.orders {
            if planted::is(Planted::ReportSentOnce) {
                self.items.remove(order);
            } else if let Some(item) = self.items.get_mut(order) {
                item.tries += 1;
            }
        }
    }

    /// The request was answered. Gives back what each report's answer is, settled or not.
    pub(crate) fn answered(
        &mut self,
        batch: &Batch,
        answer: ReportAnswer,
        now: Instant,
        chance: f64,
    ) -> Vec<(ReportKey, ReportResult)> {
        self.failures = 0;
        self.not_before = None;
        let mut results: HashMap<u32, ReportResult> = answer.answers.into_iter().map(|r| (r.index, r)).collect();
        let asked = answer.retry_after_ms.map(Duration::from_millis);
        let mut told = Vec::new();
        for (index, order) in batch.orders.iter().enumerate() {
            let result = u32::try_from(index).ok().and_then(|i| results.remove(&i));
            let settled = result.as_ref().is_some_and(is_settled);
            let Some(item) = self.items.get_mut(order) else { continue };
            if settled {
                self.counts.settled += 1;
            } else {
                self.counts.retried += 1;
                item.tries += 1;
                let pause = self.backoff.pause(item.tries, chance);
                item.due = now + asked.map_or(pause, |asked| asked.min(self.backoff.longest).max(pause));
            }
            let key = item.key.clone();
            if settled {
                self.remove(*order, &key);
            }
            told.extend(result.map(|result| (key, result)));
        }
        told
    }

    fn remove(&mut self, order: u64, key: &ReportKey) {
        self.items.remove(&order);
        match key {
            ReportKey::Step(..) => self.steps -= 1,
            ReportKey::Started(attempt) => {
                self.started.remove(attempt);
            }
            ReportKey::End(..) => {}
        }
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

#[cfg(test)]
#[path = "outbox/tests.rs"]
mod tests;
