//! The list of attempts: how one is added, found, marked and ended.

use super::{Effect, Fold};
use crate::event::TaskEvent;
use crate::ids::TerminalId;
use crate::planted::{self, Planted};
use crate::retry::ErrorClass;
use crate::rules::Rules;
use crate::task::{ATTEMPTS_KEPT, Attempt, Outcome, TaskError};

impl Fold<'_> {
    /// A report that changes nothing, but may end an attempt that was superseded.
    pub(super) fn absorb_end(&mut self, attempt: u32, outcome: Outcome, error: Option<&TaskError>) -> Effect {
        let repeated = self.task.attempt_record(attempt).is_some_and(|a| a.outcome == Some(outcome));
        // The live attempt only ends by a row of the table (it may be RUNNING and be said to be rejected).
        if !self.is_live(attempt) {
            let class = error.map(|e| self.plan.spec.retry.classify(&e.code));
            self.end_attempt(attempt, outcome, error, class);
        }
        self.absorb(repeated)
    }

    /// What a stop of the live attempt is said to have come of.
    pub(super) fn why_stopped(&self) -> &'static str {
        if self.plan.rules >= Rules::V2 && self.task.cancelling {
            return "the attempt was stopped because the task was cancelled";
        }
        "the attempt was stopped without a cancel"
    }

    pub(super) fn absorb(&self, repeated: bool) -> Effect {
        match (repeated, self.task.state.is_final()) {
            (true, _) => Effect::Duplicate,
            (false, true) => Effect::Late,
            (false, false) => Effect::Stale,
        }
    }

    pub(super) fn is_live(&self, attempt: u32) -> bool {
        (attempt == self.task.attempt || planted::is(Planted::StaleFailureTaken)) && self.task.state.is_live()
    }

    pub(super) fn belongs(&self, attempt: u32, by: &TerminalId) -> bool {
        match self.task.attempt_record(attempt) {
            Some(record) => record.terminal == *by,
            None => self.target.as_str() == by.as_str(),
        }
    }

    pub(super) fn record(&mut self, attempt: u32) -> Option<&mut Attempt> {
        self.task.attempts.as_mut_slice().iter_mut().rev().find(|a| a.number == attempt)
    }

    pub(super) fn mark_stop(&mut self, attempt: u32) -> Effect {
        match self.record(attempt) {
            Some(record) if !record.stop_requested => {
                record.stop_requested = true;
                Effect::Applied
            }
            _ => Effect::Ignored,
        }
    }

    pub(super) fn end_attempt(&mut self, attempt: u32, outcome: Outcome, error: Option<&TaskError>, class: Option<ErrorClass>) {
        let time_ms = self.time_ms;
        if let Some(record) = self.record(attempt).filter(|a| a.outcome.is_none()) {
            record.end(time_ms, outcome, error, class);
        }
    }

    pub(super) fn push_attempt(&mut self, number: u32, terminal: TerminalId, journal: &str, superseded: bool) {
        self.task.last_attempt = number;
        if self.task.attempts.len() == 2 * ATTEMPTS_KEPT {
            // The oldest after the first ones; one that is still open is kept before one that has ended, or nobody could end it.
            let middle = self.task.attempts.iter().skip(ATTEMPTS_KEPT).position(|a| !a.is_open());
            // All open (only a confused writer gets there): never the live one.
            let live_first = self.task.attempts.get(ATTEMPTS_KEPT).is_some_and(|a| a.number == self.task.attempt);
            let middle = middle.unwrap_or(usize::from(live_first));
            self.task.drop_attempt(ATTEMPTS_KEPT + middle);
        }
        // For store plans the terminal is called as the target is: the name is held once.
        let own = terminal.as_str() == self.target.as_str();
        let terminal = if own { self.target.terminal() } else { terminal };
        let mut attempt = Attempt::handed_out(number, terminal, journal, self.seq, self.time_ms);
        attempt.superseded = superseded;
        self.task.attempts.push(attempt);
    }
}

/// Whether an attempt's record holds what a report of a running attempt says.
pub(super) fn said_before(record: &Attempt, event: &TaskEvent) -> bool {
    match event {
        TaskEvent::Progressed { k, .. } => record.has_step(*k),
        _ => record.started_ms().is_some(),
    }
}
