//! The terminal's rules as a pure state machine: what it holds, and what follows from a command, a sync answer, the end of a run, an
//! answer to a report, or a restart. No clock, no I/O, no randomness: inputs go in, [`Action`]s come out, and whoever drives it
//! performs them in order.
//!
//! What it guarantees, whatever the order of inputs: an attempt is run at most once, for ever; a task has at most one run at a time;
//! an attempt that was taken ends in exactly one report, which is sent until it is answered.

mod answers;
mod types;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use fanfold_wire::domain::event::{Dispatched, TaskEvent};
use fanfold_wire::domain::ids::{PlanId, TaskId};
use fanfold_wire::domain::planted::{self, Planted};
use fanfold_wire::terminal::{AttemptRef, Command, Order, clip_message};

use crate::journal::{EndKind, Record, Row};

pub use answers::{SyncNext, is_settled};
pub use types::{Action, Admission, Counts, Origin, RunOrder, Setup, code};

/// Ended attempts whose reports are not answered; beyond it commands are left to the next sync.
pub const UNANSWERED_MAX: usize = 4096;
/// Settled attempts that call for an early sync, so that they can be forgotten.
pub const SETTLED_SYNC_EARLY: usize = 1024;
/// Attempts listed in one sync, live ones first.
pub const SYNC_HOLDS_MAX: usize = 8192;
/// Plans asked about in one sync.
pub const CLOSED_PLANS_MAX: usize = 256;

#[derive(Debug)]
enum Phase {
    Queued(Box<RunOrder>),
    Running { stopping: bool },
    Finished { end: EndKind },
    Settled { end: EndKind, seq: u64, valid: bool },
}

#[derive(Debug)]
struct Attempt {
    number: u32,
    /// Sequence of its dispatch; 0 after a restart.
    dispatch_seq: u64,
    traceparent: Option<String>,
    /// Whether it has, or may have, a row in the journal.
    durable: bool,
    phase: Phase,
}

#[derive(Debug, Default)]
struct Task {
    highest: u32,
    attempts: Vec<Attempt>,
}

impl Task {
    fn attempt(&mut self, number: u32) -> Option<&mut Attempt> {
        self.attempts.iter_mut().find(|a| a.number == number)
    }

    fn is_running(&self) -> bool {
        self.attempts.iter().any(|a| matches!(a.phase, Phase::Running { .. }))
    }

    /// The attempt that did the work, as far as is known here.
    fn success(&self) -> Option<u32> {
        let done = |a: &&Attempt| {
            matches!(
                a.phase,
                Phase::Finished { end: EndKind::Succeeded } | Phase::Settled { end: EndKind::Succeeded, valid: true, .. }
            )
        };
        self.attempts.iter().find(done).map(|a| a.number)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Holds {
    setup: Setup,
    tasks: BTreeMap<TaskId, Task>,
    queue: VecDeque<AttemptRef>,
    running: usize,
    unanswered: usize,
    settled: usize,
    known_seq: u64,
    /// Of the last sync that let tasks be forgotten with their plans: a command up to it may be a late repeat of one of theirs.
    forgotten_seq: u64,
    /// A command was left to the next sync, which should come soon.
    sync_wanted: bool,
    journal_ok: bool,
    closing: bool,
    asked_up_to: Option<PlanId>,
    counts: Counts,
}

impl Holds {
    /// From what the journal held at the start: begun becomes LOST, finished is sent again, the rest is remembered. `known_seq` is the
    /// journal's own: an answer from an older view would hand out again what was given up because a newer one included its end.
    pub fn restore(setup: Setup, rows: Vec<Row>, known_seq: u64, out: &mut Vec<Action>) -> Self {
        let mut holds = Self {
            setup,
            tasks: BTreeMap::new(),
            queue: VecDeque::new(),
            running: 0,
            unanswered: 0,
            settled: 0,
            known_seq,
            forgotten_seq: 0,
            sync_wanted: false,
            journal_ok: true,
            closing: false,
            asked_up_to: None,
            counts: Counts::default(),
        };
        for row in rows {
            holds.restore_row(row, out);
        }
        holds
    }

    fn restore_row(&mut self, row: Row, out: &mut Vec<Action>) {
        if planted::is(Planted::BegunForgotten) && matches!(row.record, Some(Record::Begun { .. })) {
            return;
        }
        let task = self.tasks.entry(row.task.clone()).or_default();
        task.highest = task.highest.max(row.attempt);
        let Some(record) = row.record else { return };
        let attempt = AttemptRef { task_id: row.task, attempt: row.attempt };
        let mut kept = None;
        let phase = match record {
            Record::Begun { traceparent } => {
                self.counts.lost += 1;
                self.unanswered += 1;
                kept.clone_from(&traceparent);
                out.push(failure(&attempt, code::LOST, "the terminal was restarted in the middle of the run", traceparent));
                Phase::Finished { end: EndKind::Failed }
            }
            Record::Finished { end, report } => {
                self.unanswered += 1;
                out.push(Action::Send { attempt, end, report });
                Phase::Finished { end }
            }
            Record::Settled { end, seq, valid, .. } => {
                self.settled += 1;
                self.known_seq = self.known_seq.max(seq);
                Phase::Settled { end, seq, valid }
            }
        };
        task.attempts.push(Attempt { number: row.attempt, dispatch_seq: 0, traceparent: kept, durable: true, phase });
    }

    /// A command arrived, live or in a sync answer.
    pub fn command(&mut self, command: Command, origin: Origin, admit: &dyn Fn(&Dispatched) -> Admission, out: &mut Vec<Action>) {
        self.known_seq = self.known_seq.max(command.seq);
        match command.order {
            Order::Ignore => {}
            Order::Stop { attempt, .. } => self.stop(&AttemptRef { task_id: command.task, attempt }, out),
            Order::Run(dispatched) => self.offer(command.task, command.seq, command.traceparent, *dispatched, origin, admit, out),
        }
        self.fill(out);
    }

    #[allow(clippy::too_many_arguments)]
    fn offer(
        &mut self,
        task_id: TaskId,
        seq: u64,
        traceparent: Option<String>,
        dispatched: Dispatched,
        origin: Origin,
        admit: &dyn Fn(&Dispatched) -> Admission,
        out: &mut Vec<Action>,
    ) {
        self.counts.offered += 1;
        let ours = dispatched.terminal == self.setup.terminal && dispatched.journal == self.setup.journal;
        if !ours || (origin == Origin::Live && dispatched.boot != self.setup.boot) {
            self.counts.foreign += 1;
            // Meant for the boot before this one, which HQ had not heard the end of. It is open all the same: a sync hands it out.
            self.sync_wanted |= ours;
            return;
        }
        if self.tasks.get(&task_id).map_or(0, |t| t.highest) >= dispatched.attempt && !planted::is(Planted::DuplicateRun) {
            self.counts.duplicates += 1;
            return;
        }
        // What it would be checked against may be forgotten. HQ knows: a sync hands out whatever is still open.
        if origin == Origin::Live && seq <= self.forgotten_seq && !self.tasks.contains_key(&task_id) {
            self.counts.left_to_sync += 1;
            self.sync_wanted = true;
            return;
        }
        if self.closing || self.unanswered >= UNANSWERED_MAX {
            self.counts.left_to_sync += 1;
            return;
        }
        self.end_older(&task_id, out);
        let attempt = AttemptRef { task_id: task_id.clone(), attempt: dispatched.attempt };
        let refusal = self.refusal(&task_id, &admit(&dispatched));
        let order = RunOrder {
            attempt: attempt.clone(),
            kind: dispatched.kind,
            version: dispatched.version,
            input: dispatched.input,
            run_timeout_ms: dispatched.run_timeout_ms,
            traceparent: traceparent.clone(),
        };
        let task = self.tasks.entry(task_id).or_default();
        task.highest = attempt.attempt;
        let phase = Phase::Queued(Box::new(order));
        task.attempts.push(Attempt { number: attempt.attempt, dispatch_seq: seq, traceparent, durable: false, phase });
        match refusal {
            Some((code, message)) => self.reject(&attempt, code, &message, out),
            None => self.queue.push_back(attempt),
        }
    }

    /// A newer attempt supersedes what is queued or running of the task.
    fn end_older(&mut self, task_id: &TaskId, out: &mut Vec<Action>) {
        let Some(task) = self.tasks.get(task_id) else { return };
        let live = |a: &&Attempt| matches!(a.phase, Phase::Queued(_) | Phase::Running { .. });
        let older: Vec<u32> = task.attempts.iter().filter(live).map(|a| a.number).collect();
        for attempt in older {
            self.stop(&AttemptRef { task_id: task_id.clone(), attempt }, out);
        }
    }

    fn refusal(&self, task_id: &TaskId, admission: &Admission) -> Option<(&'static str, String)> {
        if self.tasks.get(task_id).is_some_and(|t| t.success().is_some()) && !planted::is(Planted::AlreadyDoneMissing) {
            return Some((code::ALREADY_DONE, "a result of this task is on its way or was accepted".into()));
        }
        match admission {
            Admission::UnknownType => {
                return Some((code::UNKNOWN_TYPE, "this terminal has no handler of that type and version".into()));
            }
            Admission::BadInput(reason) => return Some((code::BAD_INPUT, reason.clone())),
            Admission::Taken => {}
        }
        if !self.journal_ok {
            return Some((code::JOURNAL_UNAVAILABLE, "the terminal's journal can't be written".into()));
        }
        let held = self.queue.len() + self.running;
        (held >= self.setup.held_max)
            .then(|| (code::BUSY, format!("{held} attempts are queued or running here, the most it takes")))
    }

    /// Ends an attempt that was never begun, with a code. A success goes before ALREADY_DONE, in the same batch.
    fn reject(&mut self, attempt: &AttemptRef, code: &str, message: &str, out: &mut Vec<Action>) {
        let Some(task) = self.tasks.get_mut(&attempt.task_id) else { return };
        if code == code::ALREADY_DONE
            && let Some(done) = task.success()
        {
            out.push(Action::Expedite(AttemptRef { task_id: attempt.task_id.clone(), attempt: done }));
        }
        let Some(held) = task.attempt(attempt.attempt) else { return };
        held.phase = Phase::Finished { end: EndKind::Rejected };
        self.counts.rejected += 1;
        self.unanswered += 1;
        let event = TaskEvent::Rejected { attempt: attempt.attempt, code: code.into(), message: clip_message(message).into() };
        out.push(report(attempt, EndKind::Rejected, event, held.traceparent.clone(), false));
    }

    /// Drops a queued attempt, or asks a running one to end.
    fn stop(&mut self, attempt: &AttemptRef, out: &mut Vec<Action>) {
        let Some(held) = self.tasks.get_mut(&attempt.task_id).and_then(|t| t.attempt(attempt.attempt)) else { return };
        match &mut held.phase {
            Phase::Queued(_) => {
                held.phase = Phase::Finished { end: EndKind::Stopped };
                let traceparent = held.traceparent.clone();
                self.queue.retain(|queued| queued != attempt);
                self.counts.stopped += 1;
                self.unanswered += 1;
                out.push(report(attempt, EndKind::Stopped, TaskEvent::Stopped { attempt: attempt.attempt }, traceparent, false));
            }
            Phase::Running { stopping } if !*stopping => {
                *stopping = true;
                out.push(Action::Stop(attempt.clone()));
            }
            Phase::Running { .. } | Phase::Finished { .. } | Phase::Settled { .. } => {}
        }
    }

    /// Runs what may run: a free slot, nothing of the same task running, and still a reason to.
    fn fill(&mut self, out: &mut Vec<Action>) {
        while self.running < self.setup.slots && !self.closing {
            let free =
                |r: &AttemptRef| planted::is(Planted::TwoAtOnce) || !self.tasks.get(&r.task_id).is_some_and(Task::is_running);
            let Some(next) = self.queue.iter().position(free).and_then(|i| self.queue.remove(i)) else { return };
            let Some(task) = self.tasks.get_mut(&next.task_id) else { continue };
            // The attempt before it may have succeeded, or the journal failed, while this one waited.
            if task.success().is_some() && !planted::is(Planted::AlreadyDoneMissing) {
                self.reject(&next, code::ALREADY_DONE, "the attempt before it succeeded while being stopped", out);
            } else if !self.journal_ok {
                self.reject(&next, code::JOURNAL_UNAVAILABLE, "the terminal's journal can't be written", out);
            } else if let Some(held) = task.attempt(next.attempt)
                && let Phase::Queued(order) = std::mem::replace(&mut held.phase, Phase::Running { stopping: false })
            {
                held.durable = true;
                self.running += 1;
                self.counts.runs += 1;
                out.push(Action::Run(order));
            }
        }
    }

    /// A run ended; its report is in the journal, or could not be written (`journaled` is false: it is sent all the same, because
    /// the begun row already keeps the attempt from running again).
    pub fn ended(&mut self, attempt: &AttemptRef, end: EndKind, report: Bytes, journaled: bool, out: &mut Vec<Action>) {
        self.journal_ok &= journaled;
        let held = self.tasks.get_mut(&attempt.task_id).and_then(|t| t.attempt(attempt.attempt));
        if let Some(held) = held
            && matches!(held.phase, Phase::Running { .. })
        {
            held.phase = Phase::Finished { end };
            self.running -= 1;
            self.unanswered += 1;
            match end {
                EndKind::Succeeded => self.counts.succeeded += 1,
                EndKind::Failed => self.counts.failed += 1,
                EndKind::Stopped => self.counts.stopped += 1,
                EndKind::Rejected => self.counts.rejected += 1,
            }
            out.push(Action::Send { attempt: attempt.clone(), end, report });
        }
        self.fill(out);
    }

    /// The begun row could not be written, so the handler was not started.
    pub fn not_begun(&mut self, attempt: &AttemptRef, out: &mut Vec<Action>) {
        self.journal_ok = false;
        let held = self.tasks.get_mut(&attempt.task_id).and_then(|t| t.attempt(attempt.attempt));
        if held.is_some_and(|h| matches!(h.phase, Phase::Running { .. })) {
            self.running -= 1;
            self.counts.runs -= 1;
            self.reject(attempt, code::JOURNAL_UNAVAILABLE, "the begin of the run could not be written to the journal", out);
        }
        self.fill(out);
    }

    /// Whether the journal could be written just now.
    pub fn set_journal_ok(&mut self, ok: bool) {
        self.journal_ok = ok;
    }

    /// The terminal is stopping: nothing new is taken or begun; what is queued is forgotten, HQ hands it out again.
    pub fn close(&mut self) {
        self.closing = true;
        for queued in std::mem::take(&mut self.queue) {
            if let Some(task) = self.tasks.get_mut(&queued.task_id) {
                task.attempts.retain(|a| a.number != queued.attempt);
            }
        }
    }

    /// Asks every run to end.
    pub fn stop_all(&mut self, out: &mut Vec<Action>) {
        for attempt in self.live(usize::MAX) {
            self.stop(&attempt, out);
        }
    }
}

fn report(attempt: &AttemptRef, end: EndKind, event: TaskEvent, traceparent: Option<String>, durable: bool) -> Action {
    Action::Report { attempt: attempt.clone(), end, event: Box::new(event), traceparent, durable }
}

fn failure(attempt: &AttemptRef, code: &str, message: &str, traceparent: Option<String>) -> Action {
    let event =
        TaskEvent::Failed { attempt: attempt.attempt, code: code.into(), message: clip_message(message).into(), run_ms: None };
    report(attempt, EndKind::Failed, event, traceparent, true)
}

#[cfg(test)]
mod tests;
