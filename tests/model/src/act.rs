//! What each outcome of a row does to a task.

use std::collections::BTreeSet;

use crate::message::{Said, What};
use crate::plan::Policy;
use crate::table::{
    CANCELLED, DISPATCHED, ENDED_BESIDE, FAILED, FAILURE_AGAIN, FAILURE_BUSINESS, FAILURE_EXHAUSTED, PENDING, RUNNING, SUCCEEDED,
    Then, is_end_report,
};
use crate::task::{Attempt, STEPS_MAX, Task};

/// Pause after the first end that cost no try, in milliseconds; doubles.
const FREE_PAUSE_MS: i64 = 1_000;
/// Longest such pause, in milliseconds.
const FREE_PAUSE_MS_MAX: i64 = 60_000;

impl Task {
    /// Does it; the further name to count, if there is one.
    pub(crate) fn act(&mut self, then: Then, plan: &Policy, said: &Said) -> Option<&'static str> {
        match then {
            Then::HandOut => self.hand_out(said),
            Then::WaitOffline => self.waiting = Some("offline"),
            Then::WaitForTurn => self.waiting = Some("turn"),
            Then::Begin => self.begin(said),
            Then::NoteStep => self.note_step(said),
            Then::Succeed => self.succeed(said),
            Then::SucceedLate => {
                self.late = true;
                self.succeed(said);
            }
            Then::Failure => return Some(self.failure(plan, said)),
            Then::FreeEnd => self.free_end(said),
            Then::FailureThenCancelled => {
                self.tries += 1;
                self.end_current(said);
                self.state = CANCELLED;
            }
            Then::Cancel => {
                self.end_current(said);
                self.state = CANCELLED;
            }
            Then::FailBusiness => {
                self.end_current(said);
                self.state = FAILED;
                self.failure = Some("business");
            }
            Then::AskToStopForCancel => {
                self.cancelling = true;
                self.ask_to_stop(self.attempt);
            }
            Then::Expire => {
                if self.is_live() {
                    self.ask_to_stop(self.attempt);
                }
                self.state = FAILED;
                self.failure = Some("expired");
                self.error_code.get_or_insert_with(|| "EXPIRED".to_owned());
            }
            Then::MarkStop => self.ask_to_stop(said.attempt),
            Then::Supersede => {
                self.last_attempt = said.attempt;
                self.attempts.push(attempt(said, true));
            }
            Then::Requeue => self.requeue(),
            Then::Count(why) => return self.count(why, said),
        }
        None
    }

    fn hand_out(&mut self, said: &Said) {
        self.state = DISPATCHED;
        self.attempt = said.attempt;
        self.last_attempt = said.attempt;
        self.waiting = None;
        self.attempts.push(attempt(said, false));
    }

    fn begin(&mut self, said: &Said) {
        let revived = self.state == PENDING;
        if revived {
            self.error_code = None;
            self.last_end = None;
        }
        self.state = RUNNING;
        self.waiting = None;
        self.free_ends = 0;
        if let Some(attempt) = self.attempt_mut(said.attempt) {
            attempt.began = true;
            attempt.revived |= revived;
            attempt.ended = None;
        }
        if said.what == What::Progressed {
            self.note_step(said);
        }
    }

    fn note_step(&mut self, said: &Said) {
        if let Some(attempt) = self.attempt_mut(said.attempt)
            && attempt.steps.len() < STEPS_MAX
        {
            attempt.steps.insert(said.k);
        }
    }

    fn succeed(&mut self, said: &Said) {
        self.close_attempt(said);
        self.state = SUCCEEDED;
        self.error_code = None;
        self.failure = None;
        self.last_end = Some("succeeded");
        self.result = said.fields.text("result").map(str::to_owned);
    }

    /// Notes how an attempt ended, if it is open or said to be so by a clock.
    fn close_attempt(&mut self, said: &Said) {
        let ended = end_name(said.what);
        if let Some(attempt) = self.attempt_mut(said.attempt) {
            attempt.ended = ended;
            attempt.ended_ms = said.time_ms;
        }
    }

    /// The current attempt's end, where the event is one.
    fn end_current(&mut self, said: &Said) {
        let Some(ended) = end_name(said.what) else { return };
        self.close_attempt(said);
        self.last_end = Some(ended);
        self.error_code = Some(error_code(said));
    }

    fn failure(&mut self, plan: &Policy, said: &Said) -> &'static str {
        self.tries += 1;
        self.free_ends = 0;
        self.end_current(said);
        let code = error_code(said);
        if plan.is_business(&code) {
            self.state = FAILED;
            self.failure = Some("business");
            FAILURE_BUSINESS
        } else if self.tries >= plan.max_attempts {
            self.state = FAILED;
            self.failure = Some("exhausted");
            FAILURE_EXHAUSTED
        } else {
            self.state = PENDING;
            let (least, most) = plan.pause_ms(self.tries);
            self.not_before_ms = (said.time_ms.saturating_add(least), said.time_ms.saturating_add(most));
            FAILURE_AGAIN
        }
    }

    fn free_end(&mut self, said: &Said) {
        self.end_current(said);
        let doublings = self.free_ends.min(30);
        let pause = (FREE_PAUSE_MS << doublings).min(FREE_PAUSE_MS_MAX);
        self.free_ends += 1;
        self.state = PENDING;
        self.not_before_ms = (said.time_ms.saturating_add(pause), said.time_ms.saturating_add(pause));
    }

    fn ask_to_stop(&mut self, number: u32) {
        if let Some(attempt) = self.attempt_mut(number) {
            attempt.stop_requested = true;
        }
    }

    fn requeue(&mut self) {
        self.state = PENDING;
        self.tries = 0;
        self.free_ends = 0;
        self.failure = None;
        self.waiting = None;
        self.last_end = None;
        self.error_code = None;
        self.cancelling = false;
        self.not_before_ms = (i64::MIN, i64::MIN);
    }

    fn count(&mut self, why: &'static str, said: &Said) -> Option<&'static str> {
        let counter = match why {
            "duplicate" => &mut self.absorbed.duplicate,
            "late" => &mut self.absorbed.late,
            "stale" => &mut self.absorbed.stale,
            "foreign" => &mut self.absorbed.foreign,
            _ => &mut self.absorbed.ignored,
        };
        *counter += 1;
        let ends = matches!(why, "late" | "stale") && is_end_report(said.what);
        let open = self.open_beside().any(|a| a.number == said.attempt);
        if ends && open {
            self.close_attempt(said);
            return Some(ENDED_BESIDE);
        }
        None
    }
}

fn attempt(said: &Said, superseded: bool) -> Attempt {
    let terminal = said.fields.value("terminal").as_str().unwrap_or_default().to_owned();
    Attempt {
        number: said.attempt,
        terminal,
        dispatched_seq: said.seq,
        dispatched_ms: said.time_ms,
        began: false,
        ended: None,
        ended_ms: 0,
        stop_requested: false,
        superseded,
        revived: false,
        steps: BTreeSet::new(),
    }
}

/// How an event ends an attempt, if it does.
pub(crate) fn end_name(what: What) -> Option<&'static str> {
    Some(match what {
        What::SucceededValid => "succeeded",
        What::SucceededInvalid => "invalid",
        What::Failed => "failed",
        What::Rejected => "rejected",
        What::Stopped => "stopped",
        What::TimedOutDelivery => "timed out delivery",
        What::TimedOutRun => "timed out run",
        What::TimedOutProgress => "timed out progress",
        What::Lost => "lost",
        _ => return None,
    })
}

/// The code of an end that is no valid success.
fn error_code(said: &Said) -> String {
    match said.what {
        What::SucceededInvalid => "SCHEMA_INVALID".to_owned(),
        What::TimedOutDelivery | What::TimedOutRun | What::TimedOutProgress => "TIMEOUT".to_owned(),
        What::Lost => "LOST".to_owned(),
        What::Stopped => "STOPPED".to_owned(),
        _ => said.code.clone(),
    }
}
