//! One task: what was said about it, read row by row.

use std::collections::BTreeSet;

use crate::act::end_name;
use crate::message::{DECISIONS, Said, What};
use crate::plan::Policy;
use crate::table::{CANCELLED, DISPATCHED, FAILED, If, PENDING, RUNNING, Row, SUCCEEDED, TABLE, Then};

/// Steps noted of one attempt.
pub(crate) const STEPS_MAX: usize = 64;

/// An attempt, from hand-out to end.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Number, from 1.
    pub number: u32,
    /// Who has it.
    pub terminal: String,
    /// Sequence of its `task.dispatched`.
    pub dispatched_seq: u64,
    /// Log time of its `task.dispatched`, epoch ms.
    pub dispatched_ms: i64,
    /// Whether it was seen to begin.
    pub began: bool,
    /// How it ended: the event's name, with `invalid` for a result that broke its schema.
    pub ended: Option<&'static str>,
    /// Log time of the end, epoch ms.
    pub ended_ms: i64,
    /// HQ asked for its end.
    pub stop_requested: bool,
    /// Handed out while the task was not PENDING.
    pub superseded: bool,
    /// It was concluded dead and then heard of again.
    pub revived: bool,
    pub(crate) steps: BTreeSet<u32>,
}

/// What was folded without effect, by why.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Absorbed {
    /// Said before.
    pub duplicate: u32,
    /// About an attempt that is over, or is not the current one.
    pub stale: u32,
    /// About a task that has ended.
    pub late: u32,
    /// About an attempt that was not handed out to who speaks.
    pub foreign: u32,
    /// Decisions that had nothing to decide.
    pub ignored: u32,
}

/// What a decision or a change of state left behind.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) seq: u64,
    pub(crate) time_ms: i64,
    pub(crate) what: What,
    /// It was a decision that changed more than a mark.
    pub(crate) counted: bool,
    pub(crate) attempt: u32,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
}

/// One task as the log says it is.
#[derive(Debug, Clone)]
pub struct Task {
    /// `<plan>.<target>.main`
    pub id: String,
    /// Its target.
    pub target: String,
    /// PENDING, DISPATCHED, RUNNING, SUCCEEDED, FAILED or CANCELLED.
    pub state: &'static str,
    /// Current attempt; 0 before the first.
    pub attempt: u32,
    /// Highest number handed out, superseded ones too.
    pub last_attempt: u32,
    /// Tries used since the last requeue.
    pub tries: u32,
    /// Why it waits (or waited when it expired): `offline` or `turn`.
    pub waiting: Option<&'static str>,
    /// Code of the last end that was not a valid success.
    pub error_code: Option<String>,
    /// Why it FAILED: `business`, `exhausted` or `expired`.
    pub failure: Option<&'static str>,
    /// The result's JSON text, of a success.
    pub result: Option<String>,
    /// It had been given up and succeeded after all.
    pub late: bool,
    /// A cancel waits for its attempt's end.
    pub cancelling: bool,
    /// What was folded without effect.
    pub absorbed: Absorbed,
    /// Every attempt.
    pub attempts: Vec<Attempt>,
    /// How the last attempt that counted ended (as [`Attempt::ended`]), until a requeue.
    pub last_end: Option<&'static str>,
    /// Not to be handed out before; epoch ms, earliest and latest by the plan's jitter.
    pub not_before_ms: (i64, i64),
    /// Ends in a row that cost no try.
    pub free_ends: u32,
    /// Sequence of the last decision, 0: none.
    pub decision_seq: u64,
    /// Sequence of the last event, 0: none.
    pub seq: u64,
    pub(crate) history: Vec<Entry>,
    pub(crate) states_since_decision: Vec<&'static str>,
}

/// Which rows an event took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) row: &'static Row,
    pub(crate) beside: Option<&'static str>,
}

impl Task {
    pub(crate) fn new(plan: &str, target: &str) -> Self {
        Self {
            id: format!("{plan}.{target}.main"),
            target: target.to_owned(),
            state: PENDING,
            attempt: 0,
            last_attempt: 0,
            tries: 0,
            waiting: None,
            error_code: None,
            failure: None,
            result: None,
            late: false,
            cancelling: false,
            absorbed: Absorbed::default(),
            attempts: Vec::new(),
            last_end: None,
            not_before_ms: (i64::MIN, i64::MIN),
            free_ends: 0,
            decision_seq: 0,
            seq: 0,
            history: Vec::new(),
            states_since_decision: vec![PENDING],
        }
    }

    /// Whether it has ended.
    pub fn is_final(&self) -> bool {
        matches!(self.state, SUCCEEDED | FAILED | CANCELLED)
    }

    /// Sequence and log time (epoch ms) of its end, if it has ended: since when there is nothing left to do.
    pub fn ended(&self) -> Option<(u64, i64)> {
        let was_final = |state| matches!(state, SUCCEEDED | FAILED | CANCELLED);
        let end = self.history.iter().rev().find(|e| was_final(e.to) && !was_final(e.from));
        end.filter(|_| self.is_final()).map(|e| (e.seq, e.time_ms))
    }

    /// Whether it is out.
    pub fn is_live(&self) -> bool {
        matches!(self.state, DISPATCHED | RUNNING)
    }

    /// Who has the current attempt of a task that is out.
    pub fn terminal(&self) -> Option<&str> {
        let current = self.is_live().then(|| self.attempt_of(self.attempt))?;
        current.map(|a| a.terminal.as_str())
    }

    /// Attempts open besides the current one of a task that is out: each is to be stopped.
    pub fn open_beside(&self) -> impl Iterator<Item = &Attempt> {
        let live = self.is_live().then_some(self.attempt);
        self.attempts.iter().filter(move |a| a.ended.is_none() && Some(a.number) != live)
    }

    /// An attempt by number.
    pub fn attempt_of(&self, number: u32) -> Option<&Attempt> {
        self.attempts.iter().rev().find(|a| a.number == number)
    }

    pub(crate) fn attempt_mut(&mut self, number: u32) -> Option<&mut Attempt> {
        self.attempts.iter_mut().rev().find(|a| a.number == number)
    }

    /// Which of the eight sets it is in; `after_deadline`: `plan.deadline_reached` is in the log.
    pub fn set(&self, after_deadline: bool) -> &'static str {
        let ended_by_clock = match self.last_end {
            Some(end) if end.starts_with("timed out") || end == "lost" => true,
            // Whoever said it: a terminal that was restarted in the middle says LOST itself.
            Some("failed") => matches!(self.error_code.as_deref(), Some("TIMEOUT" | "LOST")),
            _ => false,
        };
        match self.state {
            SUCCEEDED => "succeeded",
            CANCELLED => "cancelled",
            FAILED if self.last_end == Some("invalid") => "invalid",
            PENDING if self.waiting == Some("offline") => "offline",
            FAILED if self.failure == Some("expired") && self.waiting == Some("offline") => "offline",
            PENDING | FAILED if ended_by_clock => "timedOut",
            DISPATCHED | RUNNING if after_deadline => "timedOut",
            FAILED => "failed",
            DISPATCHED | RUNNING => "running",
            _ => "pending",
        }
    }

    /// The first row that fits.
    pub(crate) fn row_for(&self, plan: &Policy, said: &Said) -> Option<&'static Row> {
        TABLE.iter().find(|row| {
            row.states.contains(&self.state)
                && row.on.contains(&said.what)
                && row.conditions.iter().all(|condition| self.holds(*condition, plan, said))
        })
    }

    fn holds(&self, condition: If, plan: &Policy, said: &Said) -> bool {
        match condition {
            If::Foreign => match self.attempt_of(said.attempt) {
                Some(attempt) => said.by.as_ref() != Some(&attempt.terminal),
                None => true,
            },
            If::Current => said.attempt == self.attempt,
            If::Next => said.attempt.checked_sub(1) == Some(self.last_attempt),
            If::Known => self.attempt_of(said.attempt).is_some(),
            If::NewStep => self.attempt_of(said.attempt).is_some_and(|a| !a.steps.contains(&said.k) && a.steps.len() < STEPS_MAX),
            If::FreeCode => matches!(said.code.as_str(), "BUSY" | "ALREADY_DONE"),
            If::Business => plan.is_business(&said.code),
            If::Cancelling => self.cancelling,
            If::Undelivered => self.pending_since().is_some_and(|(since, later)| {
                // A stop that is asked for decides nothing about what becomes of the task; nor does what was ignored.
                let only_waited = |e: &Entry| matches!(e.what, What::Deferred | What::Released) || !e.counted;
                since.what == What::TimedOutDelivery && since.attempt == self.attempt && later.iter().all(only_waited)
            }),
            If::ClockEnded => self.pending_since().is_some_and(|(since, _)| {
                let clock =
                    matches!(since.what, What::TimedOutDelivery | What::TimedOutRun | What::TimedOutProgress | What::Lost);
                clock && since.attempt == self.attempt
            }),
            If::GivenUp => matches!(self.failure, Some("exhausted" | "expired")),
            If::PlanNotClosed => plan.closed_seq.is_none(),
            If::NotMarked => self.attempt_of(said.attempt).is_some_and(|a| !a.stop_requested),
            If::NotCancelling => !self.cancelling,
            If::SaidBefore => self.attempt_of(said.attempt).is_some_and(|a| match said.what {
                What::Started => a.began,
                What::Progressed => a.steps.contains(&said.k),
                end => a.ended.is_some() && a.ended == end_name(end),
            }),
        }
    }

    /// What made it PENDING, and what was written down since.
    fn pending_since(&self) -> Option<(&Entry, &[Entry])> {
        let at = self.history.iter().rposition(|e| e.to == PENDING && e.from != PENDING)?;
        Some((self.history.get(at)?, self.history.get(at + 1..)?))
    }

    /// Takes one event; `None` if it is on a subject where only others may speak: counted, no row of the table.
    pub(crate) fn take(&mut self, plan: &Policy, said: &Said) -> Option<Taken> {
        self.seq = said.seq;
        let decision = said.by.is_none();
        if decision != said.what.is_decision() {
            if decision {
                self.absorbed.ignored += 1;
                self.decision_seq = said.seq;
            } else {
                self.absorbed.foreign += 1;
            }
            return None;
        }
        let row = self.row_for(plan, said)?;
        let from = self.state;
        let beside = self.act(row.then, plan, said);
        let counted = decision && !matches!(row.then, Then::Count(_) | Then::MarkStop);
        if counted || from != self.state {
            let (what, to) = (said.what, self.state);
            self.history.push(Entry { seq: said.seq, time_ms: said.time_ms, what, counted, attempt: said.attempt, from, to });
        }
        if decision {
            self.states_since_decision.clear();
            self.decision_seq = said.seq;
        }
        if !self.states_since_decision.contains(&self.state) {
            self.states_since_decision.push(self.state);
        }
        Some(Taken { row, beside })
    }
}

impl What {
    pub(crate) fn is_decision(self) -> bool {
        DECISIONS.contains(&self)
    }
}
