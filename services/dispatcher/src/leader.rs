//! The leader's loop: hear, look, decide, append. One task owns everything; one batch is under way at a time.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use fanfold_domain::dispatch::{Hq, Step};
use fanfold_domain::event::TaskEvent;
use fanfold_domain::ids::{PlanId, TerminalId};
use fanfold_ledger::lead::Keeper;
use fanfold_ledger::open::{Changes, Model, Position, Subscription};
use fanfold_ledger::port::{Appended, BoxStream, BusMessage, Fence, FencedError, LedgerError};
use fanfold_process::rates::{Rates, Seldom};
use fanfold_process::shutdown::Shutdown;
use fanfold_wire::subjects;
use futures::{FutureExt, StreamExt};
use tokio::task::JoinHandle;

use crate::append::{self, BATCH_BYTES_MAX, BATCH_MAX, Sent};
use crate::ready;
use crate::registry;
use crate::terminals::Terminals;
use crate::work::{Deciding, Decision, Facts, Work};
use crate::{Deps, ROLE};
use waiting::Waiting;

/// Pause before a decision that met a conflict is made again, in milliseconds.
const CONFLICT_AGAIN_MS: i64 = 50;
/// Longest sleep, in milliseconds.
const SLEEP_MS_MAX: i64 = 60_000;

/// Terminals whose rate is remembered.
const RATES_KEPT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(131_071);
/// Terminals of which something is said in the service's log, each once a minute.
const SAID_KEPT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(99);
const SAID_PAUSE_MS: i64 = 60_000;

mod cancel;
mod inbox;
mod waiting;

struct Leader<'d> {
    deps: &'d Deps,
    terminals: Terminals,
    work: Work,
    changes: Subscription,
    fence: Option<Fence>,
    sending: Option<JoinHandle<Sent>>,
    registry: Option<JoinHandle<Vec<TerminalId>>>,
    rates: Rates<TerminalId>,
    syncs: Waiting,
    said_in_use: Seldom<TerminalId>,
    said_limited: Seldom<TerminalId>,
    said_restored: Seldom<TerminalId>,
    started_ms: i64,
    connected_ms: i64,
    reconnects: u64,
}

struct Inbox {
    beats: BoxStream<BusMessage>,
    syncs: BoxStream<BusMessage>,
    counts: BoxStream<BusMessage>,
    replaces: BoxStream<BusMessage>,
}

/// Leads until overtaken or shut down.
pub(crate) async fn lead(deps: &Deps, fence: Fence, mut keeper: Keeper, shutdown: &Shutdown) -> Result<(), LedgerError> {
    let mut inbox = Inbox {
        beats: deps.ledger.subscribe(subjects::BEATS, None).await?,
        syncs: deps.ledger.subscribe(subjects::SYNCS, None).await?,
        counts: deps.ledger.subscribe(subjects::RECORDER_COUNTS, None).await?,
        replaces: deps.ledger.subscribe(&subjects::api("terminal", "replace"), None).await?,
    };
    let now_ms = deps.clock.now_ms();
    let mut terminals = Terminals::new(deps.config.terminals_max);
    registry::load(deps.ledger.as_ref(), &mut terminals, now_ms).await?;
    // Whatever an earlier leader appended lies below this fence: decide nothing before it is in view.
    while !deps.open.reached(fence.last_seq, Duration::from_secs(1)).await {
        if shutdown.is_triggered() {
            return Ok(());
        }
    }
    let mut leader = Leader {
        changes: deps.open.subscribe(false),
        deps,
        terminals,
        work: Work::default(),
        fence: Some(fence),
        sending: None,
        registry: None,
        rates: Rates::new(f64::from(deps.config.messages_per_s), f64::from(deps.config.burst_messages), RATES_KEPT),
        syncs: Waiting::default(),
        said_in_use: Seldom::new(SAID_PAUSE_MS, SAID_KEPT),
        said_limited: Seldom::new(SAID_PAUSE_MS, SAID_KEPT),
        said_restored: Seldom::new(SAID_PAUSE_MS, SAID_KEPT),
        started_ms: now_ms,
        connected_ms: now_ms,
        reconnects: deps.open.position().borrow().reconnects,
    };
    let ended = leader.run(&mut inbox, &mut keeper, shutdown).await;
    if let Some(sending) = leader.sending.take() {
        // Let what is on its way be answered; whether it was stored is in the log for whoever leads next.
        let _ = tokio::time::timeout(Duration::from_secs(2), sending).await;
    }
    ended
}

fn is_in_view(model: &Model, plan: &PlanId, task: u32, seq: u64) -> bool {
    model.plan(plan).and_then(|view| view.tasks.get(task as usize)).is_some_and(|task| task.decision_seq >= seq)
}

impl Leader<'_> {
    async fn run(&mut self, inbox: &mut Inbox, keeper: &mut Keeper, shutdown: &Shutdown) -> Result<(), LedgerError> {
        let mut sweep = tokio::time::interval(Duration::from_millis((self.deps.config.beat_ms / 4).clamp(50, 1_000)));
        let mut position = self.deps.open.position();
        loop {
            // Both before anything is decided: clocks are not judged by a connection that has just been made anew, nor by an old view.
            let at = *position.borrow_and_update();
            self.take_position(at);
            self.take_changes();
            self.pump();
            let sleep = self.sleep();
            // In order, so that equal histories give equal logs. What could flood (beats, syncs) comes after what can't, lets one
            // of the other through, and changes and timers need no turn: they are looked at in every round.
            tokio::select! {
                biased;
                () = shutdown.wait() => return Ok(()),
                _ = keeper.keep() => {
                    tracing::warn!(role = ROLE, "overtaken: another dispatcher leads now");
                    return Ok(());
                }
                sent = joined(&mut self.sending) => if !self.take_sent(sent)? { return Ok(()) },
                written = joined(&mut self.registry) => self.take_written(written),
                _ = sweep.tick() => self.sweep(),
                Some(message) = inbox.counts.next() => registry::count(&mut self.terminals, &message.payload),
                Some(message) = inbox.replaces.next() => self.take_replace(message).await,
                Some(message) = inbox.beats.next() => {
                    self.take_beats(message, &mut inbox.beats);
                    if let Some(message) = inbox.syncs.next().now_or_never().flatten() {
                        self.take_syncs(message, &mut inbox.syncs);
                    }
                    self.answer_syncs().await;
                }
                Some(message) = inbox.syncs.next() => {
                    self.take_syncs(message, &mut inbox.syncs);
                    self.answer_syncs().await;
                }
                () = std::future::ready(()), if !self.syncs.is_empty() => self.answer_syncs().await,
                () = self.changes.changed() => {}
                Ok(()) = position.changed() => {}
                () = sleep => {}
            }
        }
    }

    fn hq(&self) -> Hq {
        Hq {
            now_ms: self.deps.clock.now_ms(),
            started_ms: self.started_ms,
            connected_ms: self.connected_ms,
            caught_up: self.deps.open.position().borrow().caught_up,
            beat_ms: i64::try_from(self.deps.config.beat_ms).unwrap_or(15_000),
            cancel_grace_ms: i64::try_from(self.deps.config.cancel_grace_ms).unwrap_or(10_000),
        }
    }

    fn sleep(&self) -> impl Future<Output = ()> + use<> {
        let now_ms = self.deps.clock.now_ms();
        let wait_ms = self.work.next_wake_ms().map_or(SLEEP_MS_MAX, |at_ms| (at_ms - now_ms).clamp(1, SLEEP_MS_MAX));
        tokio::time::sleep(Duration::from_millis(wait_ms.unsigned_abs()))
    }

    /// Timers, hand-outs, and the next batch if none is under way.
    fn pump(&mut self) {
        let hq = self.hq();
        let open = self.deps.open.clone();
        let model = open.read();
        for (plan, task) in self.work.due(hq.now_ms) {
            self.look(&model, &plan, task, &hq);
        }
        // The answer to an append may come after the view has what was appended: then no change of the view wakes the cancel.
        for plan in std::mem::take(&mut self.work.cancels) {
            self.look_at_cancel(&model, &plan);
        }
        if self.sending.is_some() {
            return;
        }
        // Only as much is decided ahead as fits one batch: the caps and the view may have moved by the next.
        if self.work.outbox.len() < BATCH_MAX {
            ready::hand_out(&model, &mut self.work, &self.terminals, &hq, self.deps.config.in_flight as usize);
        }
        self.send_batch(&model, &hq);
    }

    fn send_batch(&mut self, model: &Model, hq: &Hq) {
        let (mut decisions, mut events, mut bytes) = (Vec::new(), Vec::new(), 0);
        while events.len() < BATCH_MAX && bytes < BATCH_BYTES_MAX {
            let Some(decision) = self.work.outbox.pop_front() else { break };
            match append::encode_decision(model, &decision, hq.now_ms) {
                Some(Ok(event)) => {
                    bytes += event.payload.len();
                    events.push(event);
                    decisions.push(decision);
                }
                Some(Err(error)) => {
                    tracing::error!(plan = %decision.plan, %error, "a decision can't be encoded; the task is left alone");
                    self.settle(&decision);
                }
                None => self.settle(&decision),
            }
        }
        if events.is_empty() {
            return;
        }
        let Some(fence) = self.fence.take() else { return };
        self.sending = Some(tokio::spawn(append::send(Arc::clone(&self.deps.ledger), fence, decisions, events)));
    }

    fn settle(&mut self, decision: &Decision) {
        if let Some(work) = self.work.plans.get_mut(&decision.plan) {
            match decision.task {
                Some(task) => work.settle(task),
                None => {
                    work.cancelling = false;
                    self.work.cancels.insert(decision.plan.clone());
                }
            }
        }
    }

    /// Takes a batch's answers. `false`: the lead is lost.
    fn take_sent(&mut self, sent: Result<Sent, tokio::task::JoinError>) -> Result<bool, LedgerError> {
        self.sending = None;
        let sent = sent.map_err(|e| LedgerError::Other(format!("the append task ended: {e}")))?;
        self.fence = Some(sent.fence);
        let answers = match sent.outcome {
            Ok(answers) => answers,
            Err(FencedError::Overtaken(role)) => {
                tracing::warn!(role, "overtaken: a decision was refused because another dispatcher leads now");
                return Ok(false);
            }
            // The outcome may be unknown: only a new fence, and a view that has reached it, tells.
            Err(FencedError::Ledger(error)) => return Err(error),
        };
        let now_ms = self.deps.clock.now_ms();
        let open = self.deps.open.clone();
        let model = open.read();
        for (decision, answer) in sent.decisions.iter().zip(answers) {
            match (answer.stored_seq(), decision.task) {
                (Some(seq), Some(task)) => {
                    if let Some(work) = self.work.plans.get_mut(&decision.plan) {
                        work.deciding.insert(task, Deciding::Stored(seq));
                    }
                    // Where the view has it already the change that would wake this task is past.
                    if is_in_view(&model, &decision.plan, task, seq) {
                        self.work.wake_at(&decision.plan, task, now_ms);
                    }
                    match &decision.event {
                        Some(TaskEvent::CancelRequested { .. }) => drop(self.work.cancels.insert(decision.plan.clone())),
                        Some(TaskEvent::Dispatched(d)) => self.terminals.dispatched(&d.terminal, &d.boot, now_ms),
                        _ => {}
                    }
                }
                (Some(_), None) => {}
                (None, task) => {
                    if !matches!(answer, Appended::Conflict) {
                        tracing::warn!(plan = %decision.plan, ?task, ?answer, "a decision was refused; it is looked at again");
                    }
                    self.settle(decision);
                    if let Some(task) = task {
                        self.work.wake_at(&decision.plan, task, now_ms + CONFLICT_AGAIN_MS);
                    }
                }
            }
        }
        Ok(true)
    }

    fn take_changes(&mut self) {
        let changes: Changes = self.changes.take();
        let hq = self.hq();
        let open = self.deps.open.clone();
        let model = open.read();
        let several = model.open().nth(1).is_some();
        for (plan, change) in changes {
            let Some(view) = model.plan(&plan).filter(|v| !v.is_over()) else {
                self.work.forget(&plan);
                continue;
            };
            // A change of the plan itself (sealed, cancelled, closed, requeue, limits) may concern every task; that a summary was made
            // or the deadline reached concerns none.
            let facts = Facts::of(&view.plan);
            let before = self.work.plans.entry(plan.clone()).or_default().facts.replace(facts);
            if change.whole || before != Some(facts) {
                for task in 0..view.tasks.len() {
                    self.look(&model, &plan, task as u32, &hq);
                }
                self.look_at_cancel(&model, &plan);
            } else {
                for task in &change.tasks {
                    self.look(&model, &plan, *task, &hq);
                    if several && let Some(target) = view.plan.targets.get(*task as usize) {
                        self.look_at_terminal(&model, &target.terminal(), Some(&plan), &hq);
                    }
                }
                if view.plan.cancel.is_some() {
                    self.look_at_cancel(&model, &plan);
                }
            }
        }
    }

    /// Asks the policy about one task and does what it says.
    fn look(&mut self, model: &Model, plan: &PlanId, task: u32, hq: &Hq) {
        let Some(view) = model.plan(plan) else { return };
        let Some(step) = ready::step(view, &mut self.work, &self.terminals, task, hq) else { return };
        match step {
            Step::Nothing | Step::WaitPresence => {}
            Step::WaitUntil(at_ms) => self.work.wake_at(plan, task, at_ms.max(hq.now_ms + 1)),
            Step::Decide(event) => ready::decide(&mut self.work, plan, task, event),
            Step::Ready { release } => {
                if let Some(work) = self.work.plans.get_mut(plan) {
                    work.queue(task);
                    if release {
                        work.releasing.insert(task);
                    }
                }
            }
        }
    }

    fn look_at_terminal(&mut self, model: &Model, terminal: &TerminalId, but: Option<&PlanId>, hq: &Hq) {
        let tasks: Vec<(PlanId, u32)> = model
            .open()
            .filter(|v| Some(v.plan.id()) != but)
            .filter_map(|v| v.plan.index_of(terminal.as_str()).map(|i| (v.plan.id().clone(), i as u32)))
            .collect();
        for (plan, task) in tasks {
            self.look(model, &plan, task, hq);
        }
    }

    fn look_at_terminals(&mut self, terminals: &[TerminalId]) {
        let hq = self.hq();
        let open = self.deps.open.clone();
        let model = open.read();
        for terminal in terminals {
            self.look_at_terminal(&model, terminal, None, &hq);
        }
    }

    fn take_position(&mut self, position: Position) {
        if position.reconnects != self.reconnects {
            self.reconnects = position.reconnects;
            self.connected_ms = self.deps.clock.now_ms();
        }
    }

    /// Who fell silent, whose wait is over, and what the registry should know.
    fn sweep(&mut self) {
        let (now_ms, default_ms) = (self.deps.clock.now_ms(), self.hq().beat_ms);
        let mut changed = self.terminals.sweep(now_ms, default_ms);
        changed.extend(std::mem::take(&mut self.terminals.heard_again));
        let waiting: Vec<TerminalId> = self.terminals.waiting(now_ms);
        changed.extend(waiting.into_iter().filter(|id| self.terminals.promote(id, now_ms)));
        if !changed.is_empty() {
            self.look_at_terminals(&changed);
        }
        registry::take_counted(&mut self.terminals);
        if self.registry.is_none() && !self.terminals.dirty.is_empty() {
            let records = registry::take_changed(&mut self.terminals);
            let ledger = Arc::clone(&self.deps.ledger);
            let ids: Vec<TerminalId> =
                records.iter().filter_map(|(k, _)| TerminalId::new(k.strip_prefix("terminal.")?).ok()).collect();
            self.registry = Some(tokio::spawn(async move {
                match ledger.put_terminals(records).await {
                    Ok(()) => Vec::new(),
                    Err(error) => {
                        tracing::warn!(%error, "the registry could not be written; it is tried again");
                        ids
                    }
                }
            }));
        }
    }

    fn take_written(&mut self, unwritten: Result<Vec<TerminalId>, tokio::task::JoinError>) {
        self.registry = None;
        self.terminals.dirty.extend(unwritten.unwrap_or_default());
    }
}

/// The result of a task that may not be there: then it never comes.
async fn joined<T>(task: &mut Option<JoinHandle<T>>) -> Result<T, tokio::task::JoinError> {
    match task {
        Some(task) => task.await,
        None => std::future::pending().await,
    }
}
