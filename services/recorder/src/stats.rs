//! What the recorder answered, by terminal: nothing is refused or absorbed unseen.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fanfold_domain::ids::TerminalId;
use fanfold_process::shutdown::Shutdown;
use fanfold_wire::record::ReportCounts;
use fanfold_wire::subjects;
use fanfold_wire::terminal::{ReportResult, ReportStatus, refusal};
use lru::LruCache;

use crate::Deps;

/// Terminals counted apart; beyond it the one heard of least recently is counted anew from 0, and only the total knows more.
const TERMINALS_KEPT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(131_071);
/// Terminals told of in one message.
const TOLD_MAX: usize = 1_000;

#[derive(Debug)]
struct Inner {
    by_terminal: LruCache<TerminalId, ReportCounts>,
    changed: BTreeSet<TerminalId>,
    total: ReportCounts,
    bad_reply: u64,
}

/// Counts since the process started.
#[derive(Debug)]
pub struct Stats {
    inner: Mutex<Inner>,
}

impl Default for Stats {
    fn default() -> Self {
        let (by_terminal, total) = (LruCache::unbounded(), ReportCounts::default());
        Self { inner: Mutex::new(Inner { by_terminal, changed: BTreeSet::new(), total, bad_reply: 0 }) }
    }
}

impl Stats {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts over all terminals.
    pub fn total(&self) -> ReportCounts {
        self.inner().total.clone()
    }

    /// Requests whose reply subject was no inbox: not answered.
    pub fn bad_replies(&self) -> u64 {
        self.inner().bad_reply
    }

    pub(crate) fn count_bad_reply(&self) {
        self.inner().bad_reply += 1;
    }

    pub(crate) fn count(&self, terminal: &TerminalId, answers: &[Option<ReportResult>]) {
        let mut inner = self.inner();
        let inner = &mut *inner;
        for answer in answers.iter().flatten() {
            add(&mut inner.total, answer);
        }
        let counts = inner.of(terminal);
        for answer in answers.iter().flatten() {
            add(counts, answer);
        }
    }

    /// Counts a request that was not even looked at.
    pub(crate) fn count_limited(&self, terminal: &TerminalId) {
        let mut inner = self.inner();
        let limited = |counts: &mut ReportCounts| counts.deferred.count(refusal::RATE_LIMITED);
        limited(&mut inner.total);
        limited(inner.of(terminal));
    }

    /// Terminals counted apart.
    pub fn terminals(&self) -> usize {
        self.inner().by_terminal.len()
    }

    /// Takes the counts of terminals that changed, a bounded number.
    fn take_changed(&self) -> BTreeMap<TerminalId, ReportCounts> {
        let mut inner = self.inner();
        let told: Vec<TerminalId> = std::iter::from_fn(|| inner.changed.pop_first()).take(TOLD_MAX).collect();
        told.into_iter().filter_map(|t| inner.by_terminal.peek(&t).cloned().map(|c| (t, c))).collect()
    }
}

impl Inner {
    fn of(&mut self, terminal: &TerminalId) -> &mut ReportCounts {
        if self.changed.len() < TERMINALS_KEPT.get() {
            self.changed.insert(terminal.clone());
        }
        // Bounded here: a bounded cache takes its whole room when it is made.
        if self.by_terminal.len() >= TERMINALS_KEPT.get() && !self.by_terminal.contains(terminal) {
            self.by_terminal.pop_lru();
        }
        self.by_terminal.get_or_insert_mut_ref(terminal, ReportCounts::default)
    }
}

fn add(counts: &mut ReportCounts, answer: &ReportResult) {
    let code = answer.code.as_deref().unwrap_or("UNKNOWN");
    match answer.status {
        ReportStatus::Recorded => counts.recorded += 1,
        ReportStatus::Duplicate => counts.duplicate += 1,
        ReportStatus::Refused => counts.refused.count(code),
        ReportStatus::Retry | ReportStatus::Unknown => counts.deferred.count(code),
    }
}

/// Tells the registry once a second what changed.
pub(crate) async fn publish(deps: Deps, shutdown: Shutdown) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        let ending = tokio::select! {
        biased;
                    _ = tick.tick() => false,
                    () = shutdown.wait() => true,
                };
        let changed = deps.stats.take_changed();
        if !changed.is_empty()
            && let Ok(text) = serde_json::to_vec(&changed)
            && let Err(error) = deps.ledger.publish(subjects::RECORDER_COUNTS, Bytes::from(text)).await
        {
            tracing::debug!(%error, "the recorder's counts could not be told");
        }
        if ending {
            return;
        }
    }
}
