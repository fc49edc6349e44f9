//! One process of a terminal: it can lose its power between any two steps, and from then on does nothing.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fanfold_domain::ids::TerminalId;
use fanfold_ledger::watch as ordered;
use tokio::sync::watch;

use super::account::Account;

/// Where a terminal can be stopped on its way through an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// A command was taken, its begin is not in the journal.
    Received,
    /// The begin is in the journal, the handler is not started.
    Begun,
    /// The handler was entered.
    Started,
    /// The handler is half way through.
    Working,
    /// The handler returned, the end is not in the journal.
    Ended,
    /// The end is in the journal, nothing was sent.
    Finished,
    /// HQ has the report and has answered, the answer has not arrived.
    Reported,
    /// The answer has arrived, its note is not on the disk.
    Answered,
    /// The note of the answer is on the disk.
    Settled,
    /// A sync has told that the attempt may be forgotten, the note of it is not on the disk.
    Forgotten,
}

/// All of them, in order.
pub const STEPS: [Step; 10] = [
    Step::Received,
    Step::Begun,
    Step::Started,
    Step::Working,
    Step::Ended,
    Step::Finished,
    Step::Reported,
    Step::Answered,
    Step::Settled,
    Step::Forgotten,
];

#[derive(Debug, Clone, Copy)]
enum Plan {
    Crash,
    Pause(u64),
}

/// What is to happen at the next passing of a step, and how often each was passed.
#[derive(Default)]
pub(super) struct Steps {
    plans: Mutex<BTreeMap<Step, Plan>>,
    passed: Mutex<BTreeMap<Step, u64>>,
}

impl Steps {
    pub(super) fn crash_at(&self, step: Step) {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).insert(step, Plan::Crash);
    }

    pub(super) fn pause_at(&self, step: Step, ms: u64) {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).insert(step, Plan::Pause(ms));
    }

    pub(super) fn clear(&self) {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(super) fn passed(&self, step: Step) -> u64 {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner).get(&step).copied().unwrap_or(0)
    }

    fn take(&self, step: Step) -> Option<Plan> {
        *self.passed.lock().unwrap_or_else(PoisonError::into_inner).entry(step).or_default() += 1;
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).remove(&step)
    }
}

/// See the module.
pub(super) struct Process {
    pub(super) terminal: TerminalId,
    pub(super) number: u32,
    pub(super) account: Account,
    pub(super) steps: Arc<Steps>,
    /// Raised at every connect.
    pub(super) connects: watch::Sender<u64>,
    on: ordered::Sender<bool>,
}

impl Process {
    pub(super) fn new(terminal: TerminalId, account: &Account, steps: Arc<Steps>) -> Arc<Self> {
        let (connects, on) = (watch::Sender::new(0), ordered::Sender::new(true));
        Arc::new(Self { terminal, number: account.next_process(), account: account.clone(), steps, connects, on })
    }

    pub(super) fn is_on(&self) -> bool {
        *self.on.borrow()
    }

    /// The power is cut, now: whatever is not on the disk or on the wire never was.
    pub(super) fn cut(&self) {
        if self.on.send_replace(false) {
            self.account.cut(self.number);
        }
    }

    /// Comes back when the power is cut.
    pub(super) async fn off(&self) {
        // The sender lives as long as this does.
        let _ = self.on.subscribe().wait_for(|on| !on).await;
    }

    /// Goes on only with power.
    pub(super) async fn alive(&self) {
        if !self.is_on() {
            pending::<()>().await;
        }
    }

    /// Passes a step, unless the power is off or is cut just here.
    pub(super) async fn step(&self, step: Step) {
        self.alive().await;
        match self.steps.take(step) {
            Some(Plan::Crash) => self.cut(),
            Some(Plan::Pause(ms)) => tokio::time::sleep(Duration::from_millis(ms)).await,
            None => {}
        }
        self.alive().await;
    }

    /// The same where nothing can wait; says whether there is still power.
    pub(super) fn step_now(&self, step: Step) -> bool {
        if self.is_on() && matches!(self.steps.take(step), Some(Plan::Crash)) {
            self.cut();
        }
        self.is_on()
    }
}
