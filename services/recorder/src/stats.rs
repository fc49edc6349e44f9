//! What the recorder answered, by terminal: nothing is refused or absorbed unseen.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fanfold_domain::ids::TerminalId;
use fanfold_process::shutdown::Shutdown;
use fanfold_wire::record::ReportCounts;
use fanfold_wire::subjects;
use fanfold_wire::terminal::{ReportResult, ReportStatus};

use crate::Deps;

/// Terminals counted apart; those beyond it are in the total only.
const TERMINALS_MAX: usize = 200_000;
/// Terminals told of in one message.
const TOLD_MAX: usize = 1_000;

#[derive(Debug, Default)]
struct Inner {
    by_terminal: HashMap<TerminalId, ReportCounts>,
    changed: Vec<TerminalId>,
    total: ReportCounts,
    bad_reply: u64,
}

/// Counts since the process started.
#[derive(Debug, Default)]
pub struct Stats {
    inner: Mutex<Inner>,
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
        if inner.by_terminal.len() >= TERMINALS_MAX && !inner.by_terminal.contains_key(terminal) {
            return;
        }
        let counts = inner.by_terminal.entry(terminal.clone()).or_default();
        for answer in answers.iter().flatten() {
            add(counts, answer);
        }
        inner.changed.push(terminal.clone());
        if inner.changed.len() > TERMINALS_MAX {
            inner.changed.sort_unstable();
            inner.changed.dedup();
        }
    }

    /// Takes the counts of terminals that changed, a bounded number.
    fn take_changed(&self) -> HashMap<TerminalId, ReportCounts> {
        let mut inner = self.inner();
        inner.changed.sort_unstable();
        inner.changed.dedup();
        let rest = inner.changed.len().min(TOLD_MAX);
        let told: Vec<TerminalId> = inner.changed.drain(..rest).collect();
        told.into_iter().filter_map(|t| inner.by_terminal.get(&t).cloned().map(|c| (t, c))).collect()
    }
}

fn add(counts: &mut ReportCounts, answer: &ReportResult) {
    let code = || answer.code.clone().unwrap_or_else(|| "UNKNOWN".to_owned());
    match answer.status {
        ReportStatus::Recorded => counts.recorded += 1,
        ReportStatus::Duplicate => counts.duplicate += 1,
        ReportStatus::Refused => *counts.refused.entry(code()).or_default() += 1,
        ReportStatus::Retry | ReportStatus::Unknown => *counts.deferred.entry(code()).or_default() += 1,
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
