//! Where a service has to look again: coalesced, bounded by the number of open tasks, never a queue of events.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fanfold_domain::ids::PlanId;
use tokio::sync::Notify;

/// What changed of one plan since the last reading.
#[derive(Debug, Clone, Default)]
pub struct PlanChange {
    /// Look at everything: the plan is new to this reader, or so much changed that a list is not worth it.
    pub whole: bool,
    /// The plan itself changed.
    pub plan: bool,
    /// Indexes of tasks that changed, rising, distinct.
    pub tasks: Vec<u32>,
}

/// Changes by plan.
pub type Changes = BTreeMap<PlanId, PlanChange>;

/// Above so many changed tasks of one plan a reader looks at all of them.
const TASKS_LISTED_MAX: usize = 200_000;

#[derive(Debug)]
pub(super) struct Mailbox {
    changes: Mutex<Changes>,
    notify: Notify,
    holds_over: bool,
    released: AtomicU64,
}

impl Mailbox {
    pub(super) fn new(holds_over: bool) -> Self {
        Self { changes: Mutex::default(), notify: Notify::new(), holds_over, released: AtomicU64::new(0) }
    }

    fn changes(&self) -> std::sync::MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push_whole(&self, plan: &PlanId) {
        self.changes().entry(plan.clone()).or_default().whole = true;
    }

    /// Notes a change of the plan itself (`None`) or of one task.
    pub(super) fn push(&self, plan: &PlanId, task: Option<u32>) {
        let mut changes = self.changes();
        let change = match changes.get_mut(plan) {
            Some(change) => change,
            None => changes.entry(plan.clone()).or_default(),
        };
        match task {
            None => change.plan = true,
            Some(_) if change.whole => {}
            Some(task) => {
                change.tasks.push(task);
                if change.tasks.len() > TASKS_LISTED_MAX {
                    change.whole = true;
                    change.tasks = Vec::new();
                }
            }
        }
    }

    pub(super) fn wake(&self) {
        if !self.changes().is_empty() {
            self.notify.notify_one();
        }
    }

    pub(super) fn holds_over(&self) -> bool {
        self.holds_over
    }

    pub(super) fn released(&self) -> u64 {
        self.released.load(Ordering::Relaxed)
    }
}

/// A service's own mailbox. Dropping it ends it.
#[derive(Debug)]
pub struct Subscription {
    mailbox: Arc<Mailbox>,
}

impl Subscription {
    pub(super) fn new(mailbox: Arc<Mailbox>) -> Self {
        mailbox.notify.notify_one();
        Self { mailbox }
    }

    /// Waits until there is something to take. Safe to drop and call again.
    pub async fn changed(&self) {
        self.mailbox.notify.notified().await;
    }

    /// Takes everything that changed since the last call.
    pub fn take(&self) -> Changes {
        let mut changes = std::mem::take(&mut *self.mailbox.changes());
        for change in changes.values_mut() {
            change.tasks.sort_unstable();
            change.tasks.dedup();
        }
        changes
    }

    /// Puts changes back that could not be acted on; they are in the next reading.
    pub fn put_back(&self, taken: Changes) {
        let mut changes = self.mailbox.changes();
        for (plan, old) in taken {
            let change = changes.entry(plan).or_default();
            change.whole |= old.whole;
            change.plan |= old.plan;
            change.tasks.extend(old.tasks);
        }
        drop(changes);
        self.mailbox.wake();
    }

    /// Whatever is over at or below `seq` need not be kept for this reader any more.
    pub fn release(&self, seq: u64) {
        self.mailbox.released.fetch_max(seq, Ordering::Relaxed);
    }
}
