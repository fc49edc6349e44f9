//! The state table: one task, one event, the next task.
//!
//! Rows are those of `docs/architecture.md` section 4, tried in order after the guard. A report that fits no row is absorbed and
//! counted; a decision that fits none is counted as ignored. SUCCEEDED and CANCELLED never change. The log's order decides: what
//! depends on the plan's time (closed) is compared by sequence.

use crate::event::{LoggedTaskEvent, TaskEvent, TimeoutKind, Verdict, Writer};
use crate::ids::{StageId, TargetId, TaskId, TerminalId};
use crate::plan::Plan;
use crate::retry::ErrorClass;
use crate::rules::Rules;
use crate::sets::{TaskSet, base_set};
use crate::task::{Absorbed, FailReason, Outcome, PendingSince, ResultJson, Step, Task, TaskError, TaskState, Waiting};

/// Code of a result that breaks its schema.
pub const SCHEMA_INVALID: &str = "SCHEMA_INVALID";
/// Code of an attempt that ran out of time.
pub const TIMEOUT: &str = "TIMEOUT";
/// Code of an attempt the terminal knows nothing of.
pub const LOST: &str = "LOST";
/// Code of an attempt that was stopped; the message says whether by a cancel.
pub const STOPPED: &str = "STOPPED";
/// Code shown with a task that expired before anything went wrong with it.
pub const EXPIRED: &str = "EXPIRED";

/// First wait after an end that used no try, in milliseconds; doubles.
const NO_TRY_WAIT_MS: i64 = 1_000;
/// Longest such wait, in milliseconds.
const NO_TRY_WAIT_MS_MAX: i64 = 60_000;

/// What folding one event did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// A row of the table applied.
    Applied,
    /// Known before.
    Duplicate,
    /// About an attempt that is over.
    Stale,
    /// About a task that is over.
    Late,
    /// Not this task's attempt, or not this terminal's.
    Foreign,
    /// A decision with nothing left to decide.
    Ignored,
    /// At or below the task's sequence: folded already.
    Repeated,
}

/// Folds one event into a task by the plan's rules. Pure: equal arguments give equal tasks.
pub fn fold(plan: &Plan, target: &TargetId, stage: &StageId, task: &mut Task, logged: &LoggedTaskEvent) -> Effect {
    // Where versions part. A row that is mended keeps its old form for plans of the old version: docs/architecture.md section 4.
    match plan.rules {
        Rules::V1 | Rules::V2 => fold_rows(plan, target, stage, task, logged),
    }
}

fn fold_rows(plan: &Plan, target: &TargetId, stage: &StageId, task: &mut Task, logged: &LoggedTaskEvent) -> Effect {
    if logged.seq <= task.seq {
        return Effect::Repeated;
    }
    if task.seq == 0 {
        task.created_ms = logged.time_ms;
    }
    task.seq = logged.seq;
    let mut fold = Fold { plan, target, stage, seq: logged.seq, time_ms: logged.time_ms, task };
    let before = fold.row_view();
    let decision = logged.event.is_decision();
    let effect = match (&logged.writer, decision) {
        (Writer::Hq, true) => fold.decision(&logged.event),
        (Writer::Terminal(by), false) => fold.report(by, &logged.event),
        (Writer::Hq, false) => Effect::Ignored,
        (Writer::Terminal(_), true) => Effect::Foreign,
    };
    if effect == Effect::Applied {
        if before != fold.row_view() {
            fold.task.row_seq = logged.seq;
        }
        fold.task.updated_ms = logged.time_ms;
    }
    if logged.writer == Writer::Hq {
        task.decision_seq = logged.seq;
    }
    if effect != Effect::Applied {
        task.absorbed_mut().count(effect);
    }
    effect
}

impl Absorbed {
    /// Counts what had no effect; what had one is none of it.
    pub fn count(&mut self, effect: Effect) {
        match effect {
            Effect::Duplicate => self.duplicate += 1,
            Effect::Stale => self.stale += 1,
            Effect::Late => self.late += 1,
            Effect::Foreign => self.foreign += 1,
            Effect::Ignored => self.ignored += 1,
            Effect::Applied | Effect::Repeated => {}
        }
    }
}

struct Fold<'a> {
    plan: &'a Plan,
    target: &'a TargetId,
    stage: &'a StageId,
    seq: u64,
    time_ms: i64,
    task: &'a mut Task,
}

impl Fold<'_> {
    /// What makes an update of a summary due when it changes: set, error, result, and whether (and how) the task has ended.
    /// DISPATCHED or RUNNING is one thing here: else every start would make an update that says nothing new.
    fn row_view(&self) -> (TaskSet, Option<TaskState>, Option<Box<TaskError>>, bool) {
        let task = &self.task;
        (base_set(task), (!task.state.is_live()).then_some(task.state), task.error.clone(), task.result.is_some())
    }

    fn decision(&mut self, event: &TaskEvent) -> Effect {
        let state = self.task.state;
        match event {
            TaskEvent::Dispatched(d) => {
                if d.attempt != self.task.last_attempt + 1 {
                    return Effect::Ignored;
                }
                let superseded = state != TaskState::Pending;
                self.push_attempt(d.attempt, d.terminal.clone(), &d.journal, superseded);
                if !superseded {
                    self.task.state = TaskState::Dispatched;
                    self.task.attempt = d.attempt;
                    self.task.waiting = None;
                    self.task.pending_since = PendingSince::Other;
                    self.task.not_before_ms = 0;
                }
                Effect::Applied
            }
            TaskEvent::Deferred { last_seen_ms } if state == TaskState::Pending => {
                self.task.waiting = Some(Waiting::Offline(*last_seen_ms));
                Effect::Applied
            }
            TaskEvent::Released if state == TaskState::Pending => {
                self.task.waiting = Some(Waiting::Turn);
                Effect::Applied
            }
            TaskEvent::AttemptTimedOut { attempt, kind } if self.is_live(*attempt) => self.timed_out(*kind),
            TaskEvent::AttemptLost { attempt } if self.is_live(*attempt) => {
                self.fail(Outcome::Lost, error(LOST, "the terminal has no memory of this attempt"))
            }
            TaskEvent::StopRequested { attempt } => self.mark_stop(*attempt),
            TaskEvent::CancelRequested { .. } if state == TaskState::Pending => {
                self.finish(TaskState::Cancelled);
                Effect::Applied
            }
            TaskEvent::CancelRequested { .. } if state.is_live() && !self.task.cancelling => {
                self.task.cancel(self.time_ms);
                // It may be marked already; the request stands all the same.
                self.mark_stop(self.task.attempt);
                Effect::Applied
            }
            TaskEvent::Cancelled if state.is_live() && self.task.cancelling => {
                self.finish(TaskState::Cancelled);
                Effect::Applied
            }
            TaskEvent::Expired { .. } if !state.is_final() => {
                if state.is_live() {
                    self.mark_stop(self.task.attempt);
                }
                if self.task.error.is_none() {
                    self.task.error = Some(Box::new(error(EXPIRED, "the plan ended before this task did")));
                }
                self.task.failure = Some(FailReason::Expired);
                self.finish(TaskState::Failed);
                Effect::Applied
            }
            TaskEvent::Requeued { .. } if state == TaskState::Failed && !self.plan.closed_before(self.seq) => {
                self.requeue();
                Effect::Applied
            }
            _ => Effect::Ignored,
        }
    }

    fn timed_out(&mut self, kind: TimeoutKind) -> Effect {
        match kind {
            TimeoutKind::Delivery if self.task.state == TaskState::Dispatched => {
                self.end_without_try(Outcome::TimedOutDelivery, error(TIMEOUT, "the terminal did not take the command in time"))
            }
            TimeoutKind::Delivery => Effect::Ignored,
            TimeoutKind::Run => self.fail(Outcome::TimedOutRun, error(TIMEOUT, "the run took longer than its timeout")),
            TimeoutKind::Progress => self.fail(Outcome::TimedOutProgress, error(TIMEOUT, "the run reported no progress in time")),
        }
    }

    fn requeue(&mut self) {
        let task = &mut *self.task;
        task.state = TaskState::Pending;
        task.tries = 0;
        task.no_try_ends = 0;
        task.failure = None;
        task.error = None;
        task.last_outcome = None;
        task.waiting = None;
        task.pending_since = PendingSince::Other;
        task.not_before_ms = 0;
        task.final_seq = 0;
        task.final_ms = 0;
        task.cancelling = false;
    }

    fn report(&mut self, by: &TerminalId, event: &TaskEvent) -> Effect {
        let Some(attempt) = event.attempt() else { return Effect::Foreign };
        if attempt == 0 || attempt > self.task.last_attempt || !self.belongs(attempt, by) {
            return Effect::Foreign;
        }
        match event {
            TaskEvent::Succeeded { result, verdict, .. } => self.succeeded(attempt, result, verdict),
            TaskEvent::Started { .. } | TaskEvent::Progressed { .. } => self.sign_of_run(attempt, event),
            TaskEvent::Failed { code, message, .. } => self.failed(attempt, error(code, message)),
            TaskEvent::Rejected { code, message, .. } => self.rejected(attempt, error(code, message)),
            TaskEvent::Stopped { .. } if self.is_live(attempt) => self.fail(Outcome::Stopped, error(STOPPED, self.why_stopped())),
            TaskEvent::Stopped { .. } => self.absorb_end(attempt, Outcome::Stopped, None),
            _ => Effect::Foreign,
        }
    }

    fn succeeded(&mut self, attempt: u32, result: &crate::Json, verdict: &Verdict) -> Effect {
        if !verdict.valid {
            let paths = verdict.errors.clone();
            let error = TaskError { paths, ..error(SCHEMA_INVALID, "the result does not satisfy the type's output schema") };
            return if self.is_live(attempt) {
                self.fail(Outcome::Invalid, error)
            } else {
                self.absorb_end(attempt, Outcome::Invalid, Some(&error))
            };
        }
        let revived = self.task.state == TaskState::Failed
            && matches!(self.task.failure, Some(FailReason::Exhausted | FailReason::Expired))
            && !(self.plan.closed_before(self.seq) || crate::planted::is(crate::planted::Planted::LateSuccessIgnored));
        if self.task.state.is_final() && !revived {
            return self.absorb_end(attempt, Outcome::Succeeded, None);
        }
        if let Some(record) = self.record(attempt) {
            // Better knowledge than the clock's verdict that may stand there.
            record.outcome = None;
        }
        self.end_attempt(attempt, Outcome::Succeeded, None, None);
        let task = &mut *self.task;
        task.no_try_ends = 0;
        task.late = revived;
        task.result = Some(ResultJson(result.clone()));
        task.error = None;
        task.failure = None;
        task.last_outcome = Some(Outcome::Succeeded);
        task.waiting = None;
        self.finish(TaskState::Succeeded);
        Effect::Applied
    }

    fn sign_of_run(&mut self, attempt: u32, event: &TaskEvent) -> Effect {
        let current = attempt == self.task.attempt;
        let slow = current && self.task.state == TaskState::Pending && self.task.pending_since == PendingSince::DeliveryTimeout;
        match self.task.state {
            TaskState::Dispatched if current => {}
            TaskState::Running if current => return self.step(event),
            TaskState::Pending if slow => {
                self.task.waiting = None;
                self.task.not_before_ms = 0;
                self.task.error = None;
                self.task.last_outcome = None;
            }
            _ => return self.absorb(self.task.attempt_record(attempt).is_some_and(|a| said_before(a, event))),
        }
        self.task.state = TaskState::Running;
        self.task.no_try_ends = 0;
        self.task.pending_since = PendingSince::Other;
        let time_ms = self.time_ms;
        if let Some(record) = self.record(attempt) {
            record.begin(time_ms);
        }
        self.step(event);
        Effect::Applied
    }

    /// Notes a step of the current run; a repeat of one is a duplicate.
    fn step(&mut self, event: &TaskEvent) -> Effect {
        let TaskEvent::Progressed { attempt, k, step, ms } = event else { return Effect::Duplicate };
        let time_ms = self.time_ms;
        let Some(record) = self.record(*attempt) else { return Effect::Stale };
        if record.has_step(*k) {
            return Effect::Duplicate;
        }
        let noted = record.note_step(time_ms, Step { k: *k, step: step.clone(), ms: *ms });
        if noted { Effect::Applied } else { Effect::Stale }
    }

    fn failed(&mut self, attempt: u32, error: TaskError) -> Effect {
        if self.is_live(attempt) {
            return self.fail(Outcome::Failed, error);
        }
        let knows_better = attempt == self.task.attempt
            && self.task.state == TaskState::Pending
            && self.task.pending_since != PendingSince::Other
            && self.plan.spec.retry.classify(&error.code) == ErrorClass::Business;
        if !knows_better {
            return self.absorb_end(attempt, Outcome::Failed, Some(&error));
        }
        if let Some(record) = self.record(attempt) {
            record.outcome = None;
        }
        self.end_attempt(attempt, Outcome::Failed, Some(&error), Some(ErrorClass::Business));
        self.task.error = Some(Box::new(error));
        self.task.last_outcome = Some(Outcome::Failed);
        self.task.failure = Some(FailReason::Business);
        self.task.waiting = None;
        self.finish(TaskState::Failed);
        Effect::Applied
    }

    fn rejected(&mut self, attempt: u32, error: TaskError) -> Effect {
        if !(attempt == self.task.attempt && self.task.state == TaskState::Dispatched) {
            return self.absorb_end(attempt, Outcome::Rejected, Some(&error));
        }
        match error.code.as_str() {
            "BUSY" | "ALREADY_DONE" => self.end_without_try(Outcome::Rejected, error),
            _ => self.fail(Outcome::Rejected, error),
        }
    }

    /// The current attempt ended badly: another try, or FAILED; CANCELLED where a cancel was waiting for its end.
    fn fail(&mut self, outcome: Outcome, error: TaskError) -> Effect {
        let class = self.plan.spec.retry.classify(&error.code);
        let attempt = self.task.attempt;
        self.end_attempt(attempt, outcome, Some(&error), Some(class));
        self.task.tries += 1;
        // This attempt may have started without saying so (a quick end drops `started`), and it breaks the row of such ends.
        self.task.no_try_ends = 0;
        self.task.last_outcome = Some(outcome);
        self.task.error = Some(Box::new(error));
        if self.task.cancelling {
            self.finish(TaskState::Cancelled);
        } else if class == ErrorClass::Business {
            self.task.failure = Some(FailReason::Business);
            self.finish(TaskState::Failed);
        } else if self.task.tries >= self.plan.spec.retry.max_attempts {
            self.task.failure = Some(FailReason::Exhausted);
            self.finish(TaskState::Failed);
        } else {
            let id = TaskId::new(self.plan.id().clone(), self.target.clone(), self.stage.clone()).to_string();
            let delay_ms = self.plan.spec.retry.delay_ms(&id, attempt, self.task.tries);
            self.task.state = TaskState::Pending;
            self.task.pending_since = match outcome {
                Outcome::TimedOutRun | Outcome::TimedOutProgress | Outcome::Lost => PendingSince::TimedOutOrLost,
                _ => PendingSince::Other,
            };
            self.task.not_before_ms = self.time_ms.saturating_add(delay_ms);
        }
        Effect::Applied
    }

    /// The current attempt ended before it began: no try used, another hand-out after a growing wait.
    fn end_without_try(&mut self, outcome: Outcome, error: TaskError) -> Effect {
        self.end_attempt(self.task.attempt, outcome, Some(&error), None);
        self.task.last_outcome = Some(outcome);
        self.task.error = Some(Box::new(error));
        if self.task.cancelling {
            self.finish(TaskState::Cancelled);
            return Effect::Applied;
        }
        let wait_ms =
            NO_TRY_WAIT_MS.checked_shl(self.task.no_try_ends.min(16)).unwrap_or(NO_TRY_WAIT_MS_MAX).min(NO_TRY_WAIT_MS_MAX);
        self.task.no_try_ends += 1;
        self.task.state = TaskState::Pending;
        self.task.pending_since =
            if outcome == Outcome::TimedOutDelivery { PendingSince::DeliveryTimeout } else { PendingSince::Other };
        self.task.not_before_ms = self.time_ms.saturating_add(wait_ms);
        Effect::Applied
    }

    fn finish(&mut self, state: TaskState) {
        self.task.state = state;
        self.task.cancelling = false;
        self.task.final_seq = self.seq;
        self.task.final_ms = self.time_ms;
        self.task.not_before_ms = 0;
    }
}

fn error(code: &str, message: &str) -> TaskError {
    TaskError { code: code.to_owned(), message: message.to_owned(), paths: Vec::new() }
}

mod attempts;
use attempts::said_before;
#[cfg(test)]
mod tests;
