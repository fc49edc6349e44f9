//! The log as an observer follows it: every plan folded, every event known by its id, and what is live right now.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use fanfold_domain::ids::{PlanId, TargetId};
use fanfold_domain::task::TaskState;
use fanfold_domain::view::PlanView;
use fanfold_ledger::jetstream::JetStreamLedger;
use fanfold_ledger::port::{LedgerError, Log, Stored};
use fanfold_process::clock::Clock;
use fanfold_wire::event::{LogEvent, decode};
use futures::StreamExt;

/// How long one look may take; a server that is away or frozen answers nothing.
const LOOK_WITHIN: Duration = Duration::from_millis(1_500);

/// Tasks of open plans by state.
#[derive(Debug, Clone, Copy, Default)]
pub struct Live {
    /// Could be handed out now.
    pub due: usize,
    /// Handed out.
    pub dispatched: usize,
    /// Begun.
    pub running: usize,
}

impl Live {
    /// Whether a disturbance meets work.
    pub fn counts(&self) -> bool {
        self.dispatched + self.running > 0
    }
}

/// A task that became SUCCEEDED.
#[derive(Debug, Clone, Copy)]
struct Success {
    seq: u64,
    /// When the attempt that did it had been handed out.
    dispatched_seq: u64,
}

/// The observer.
pub struct Watch {
    ledger: Arc<JetStreamLedger>,
    /// Last sequence folded.
    pub seq: u64,
    /// Every plan.
    pub plans: BTreeMap<PlanId, PlanView>,
    /// Every message's sequence by its id.
    pub ids: HashMap<String, u64>,
    /// Sequences that were missing where one was expected.
    pub holes: Vec<(u64, u64)>,
    /// What could not be read.
    pub unreadable: Vec<String>,
    successes: Vec<Success>,
}

impl Watch {
    /// Nothing seen yet.
    pub fn new(ledger: Arc<JetStreamLedger>) -> Self {
        let (plans, ids, holes) = (BTreeMap::new(), HashMap::new(), Vec::new());
        Self { ledger, seq: 0, plans, ids, holes, unreadable: Vec::new(), successes: Vec::new() }
    }

    /// Reads what is new; whether the log could be read to its end.
    pub async fn look(&mut self) -> bool {
        match tokio::time::timeout(LOOK_WITHIN, self.read_on()).await {
            Ok(Ok(())) => true,
            Ok(Err(_)) | Err(_) => false,
        }
    }

    async fn read_on(&mut self) -> Result<(), LedgerError> {
        let last = self.ledger.last_seq().await?;
        if last <= self.seq {
            return Ok(());
        }
        let mut stored = self.ledger.read(vec!["ff.>".to_owned()], self.seq + 1, last).await?;
        while let Some(message) = stored.next().await {
            self.take(&message?);
        }
        Ok(())
    }

    fn take(&mut self, stored: &Stored) {
        if stored.seq != self.seq + 1 {
            self.holes.push((self.seq + 1, stored.seq));
        }
        self.seq = stored.seq;
        self.ids.insert(stored.id.clone(), stored.seq);
        match decode(stored.seq, stored.time_ms, &stored.subject, &stored.payload) {
            Ok(LogEvent::Plan(id, event)) => match self.plans.get_mut(&id) {
                Some(view) => view.apply_plan(&event),
                None => self.plans.extend(PlanView::begin(&event).map(|view| (id, view))),
            },
            Ok(LogEvent::Task(task, event)) => {
                let Some(view) = self.plans.get_mut(&task.plan) else { return };
                let before = state(view, &task.target);
                view.apply_task(&task.target, &event);
                if state(view, &task.target) == Some(TaskState::Succeeded) && before != Some(TaskState::Succeeded) {
                    let attempt = event.event.attempt().unwrap_or(0);
                    let record = view.plan.index_of(task.target.as_str()).and_then(|i| view.tasks.get(i));
                    let record = record.and_then(|t| t.attempt_record(attempt));
                    let dispatched_seq = record.map_or(0, |a| a.dispatched_seq);
                    self.successes.push(Success { seq: event.seq, dispatched_seq });
                }
            }
            Ok(LogEvent::Fence(_)) => {}
            Err(error) => self.unreadable.push(format!("#{} {}: {error}", stored.seq, stored.subject)),
        }
    }

    /// Tasks that succeeded by an attempt that was handed out after this sequence: the whole way there and back has worked since.
    pub fn successes_since(&self, seq: u64) -> usize {
        self.successes.iter().rev().take_while(|s| s.seq > seq).filter(|s| s.dispatched_seq > seq).count()
    }

    /// Tasks that have succeeded.
    pub fn succeeded(&self) -> usize {
        self.successes.len()
    }

    /// Tasks of open plans that have not ended.
    pub fn outstanding(&self) -> usize {
        self.plans.values().filter(|v| !v.is_over()).map(|v| v.tasks.len() - v.finals.count()).sum()
    }

    /// Open plans' tasks by state.
    pub fn live(&self) -> Live {
        let now_ms = Clock::system().now_ms();
        let mut live = Live::default();
        for task in self.plans.values().filter(|v| !v.is_over()).flat_map(|v| &v.tasks) {
            match task.state {
                TaskState::Pending if task.waiting.is_none() && task.not_before_ms <= now_ms => live.due += 1,
                TaskState::Dispatched => live.dispatched += 1,
                TaskState::Running => live.running += 1,
                TaskState::Pending | TaskState::Succeeded | TaskState::Failed | TaskState::Cancelled => {}
            }
        }
        live
    }

    /// Targets with a task that is out, each once.
    pub fn live_targets(&self) -> Vec<String> {
        let mut targets: Vec<String> = Vec::new();
        for view in self.plans.values().filter(|v| !v.is_over()) {
            let live = view.plan.targets.iter().zip(&view.tasks).filter(|(_, t)| t.state.is_live());
            targets.extend(live.map(|(target, _)| target.to_string()));
        }
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    /// What a plan's tasks are at, in a line.
    pub fn told(&self, plan: &PlanId) -> String {
        let Some(view) = self.plans.get(plan) else { return format!("{plan}: not in the log") };
        let open: Vec<String> = view
            .plan
            .targets
            .iter()
            .zip(&view.tasks)
            .filter(|(_, t)| !t.state.is_final())
            .map(|(target, t)| format!("{target} {:?} {} waiting {:?}", t.state, t.attempt, t.waiting))
            .take(10)
            .collect();
        format!("{plan}: {:?}, closed {:?}, over {}, open {open:?}", view.counts(), view.plan.closed_seq, view.is_over())
    }
}

fn state(view: &PlanView, target: &TargetId) -> Option<TaskState> {
    view.plan.index_of(target.as_str()).and_then(|i| view.tasks.get(i)).map(|t| t.state)
}
