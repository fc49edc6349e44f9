//! What follows from HQ's answers, to reports and to syncs, and what a sync says.

use std::collections::{BTreeMap, BTreeSet};

use fanfold_wire::domain::event::Dispatched;
use fanfold_wire::domain::ids::PlanId;
use fanfold_wire::domain::planted::{self, Planted};
use fanfold_wire::terminal::{
    AttemptRef, Command, Hold, HoldState, ReportResult, ReportStatus, SYNC_OPEN_MAX, SyncAnswer, SyncStatus, refusal,
};

use super::{
    Action, Admission, CLOSED_PLANS_MAX, Counts, Holds, Origin, Phase, SETTLED_SYNC_EARLY, SYNC_HOLDS_MAX, code, failure,
};
use crate::journal::{EndKind, Op, Record};

/// When to ask again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncNext {
    /// At the normal interval.
    Normal,
    /// At once, after a short pause: there is more, or the answer was too old.
    Soon,
    /// After this many milliseconds, as HQ asked; `None`: as for [`SyncNext::Soon`].
    Later(Option<u64>),
    /// At the normal interval: another process uses this id.
    InUse,
}

/// Whether a report needs not be sent again. A refusal with a code not known here isn't final: a newer HQ may mean a pause.
pub fn is_settled(result: &ReportResult) -> bool {
    match result.status {
        ReportStatus::Retry if planted::is(Planted::RetryIsSettled) => true,
        ReportStatus::Recorded | ReportStatus::Duplicate => true,
        ReportStatus::Refused => match result.code.as_deref() {
            Some(code) => is_about_content(code) || is_about_owner(code),
            None => true,
        },
        ReportStatus::Retry | ReportStatus::Unknown => false,
    }
}

/// The report can't be recorded as it is; another one of the attempt can.
fn is_about_content(code: &str) -> bool {
    matches!(code, refusal::TOO_LARGE | refusal::MALFORMED | refusal::CONFLICT)
}

/// No report of the attempt will be recorded.
fn is_about_owner(code: &str) -> bool {
    matches!(code, refusal::UNKNOWN_TASK | refusal::NOT_YOURS | refusal::PLAN_CLOSED)
}

impl Holds {
    /// A report's answer came. An answer about another report than the one that waits is only looked at for its sequence.
    pub fn answered(&mut self, attempt: &AttemptRef, end: EndKind, result: &ReportResult, out: &mut Vec<Action>) {
        self.known_seq = self.known_seq.max(result.seq.unwrap_or(0));
        if !is_settled(result) {
            return;
        }
        let Some(held) = self.tasks.get_mut(&attempt.task_id).and_then(|t| t.attempt(attempt.attempt)) else { return };
        if !matches!(held.phase, Phase::Finished { end: waiting } if waiting == end) {
            return;
        }
        let refused = result.status == ReportStatus::Refused;
        let code = result.code.as_deref();
        if refused {
            self.counts.refused += 1;
        }
        if refused && end == EndKind::Succeeded && !code.is_some_and(is_about_owner) {
            held.phase = Phase::Finished { end: EndKind::Failed };
            let message = result.message.as_deref().unwrap_or("HQ refused the result");
            out.push(failure(attempt, code.unwrap_or(code::REFUSED), message, held.traceparent.clone()));
            return;
        }
        if planted::is(Planted::SettledForgotten) {
            self.tasks.remove(&attempt.task_id);
            self.unanswered -= 1;
            return;
        }
        let seq = result.seq.unwrap_or(0);
        let valid = end == EndKind::Succeeded && !refused && result.valid.unwrap_or(true);
        held.phase = Phase::Settled { end, seq, valid };
        self.unanswered -= 1;
        self.settled += 1;
        if held.durable {
            let record = Record::Settled { end, seq, valid, code: code.filter(|_| refused).map(str::to_owned) };
            out.push(Action::Note(Op::Put { task: attempt.task_id.clone(), attempt: attempt.attempt, record }));
        }
    }

    /// A sync's answer came.
    pub fn synced(&mut self, answer: SyncAnswer, admit: &dyn Fn(&Dispatched) -> Admission, out: &mut Vec<Action>) -> SyncNext {
        if let Some(end) = answer.log_end_seq.filter(|end| *end < self.known_seq) {
            self.log_ends_at(end, out);
        }
        match answer.status {
            SyncStatus::Ok => {}
            SyncStatus::Later => return SyncNext::Later(answer.retry_after_ms),
            SyncStatus::TerminalIdInUse => return SyncNext::InUse,
            SyncStatus::Unknown => return answer.retry_after_ms.map_or(SyncNext::Normal, |ms| SyncNext::Later(Some(ms))),
        }
        if answer.as_of_seq < self.known_seq {
            self.counts.syncs_discarded += 1;
            return SyncNext::Soon;
        }
        for attempt in &answer.stop {
            let dispatched =
                self.tasks.get_mut(&attempt.task_id).and_then(|t| t.attempt(attempt.attempt)).map(|a| a.dispatch_seq);
            if dispatched.is_some_and(|seq| seq <= answer.as_of_seq) {
                self.stop(attempt, out);
            }
        }
        let before = out.len();
        let lost = self.forget_settled(&answer, out);
        self.sync_wanted = false;
        self.forget_closed(&answer.closed_plans, answer.as_of_seq, out);
        if out.len() > before {
            // What was given up is no longer there to be compared with: from here on only a view that includes as much may be
            // believed, over a restart too. In the same write as what is given up.
            self.known_seq = self.known_seq.max(answer.as_of_seq);
            out.push(Action::Note(Op::Known { seq: self.known_seq }));
        }
        let more = answer.open.len() >= SYNC_OPEN_MAX;
        for open in answer.open {
            match Command::decode(open.task_id, open.seq, open.command.get().as_bytes()) {
                Ok(command) => self.command(command, Origin::Sync, admit, out),
                Err(_) => self.counts.foreign += 1,
            }
        }
        self.fill(out);
        // HQ must hear soon that what it waits for is not held any more.
        if more || lost {
            return SyncNext::Soon;
        }
        answer.retry_after_ms.map_or(SyncNext::Normal, |ms| SyncNext::Later(Some(ms)))
    }

    /// HQ was restored from an older backup. It has no memory of what was settled after `end`, so that counts as not done; attempt
    /// numbers are kept, so that none runs twice, and what is running or unanswered goes on: HQ may well hand it out again.
    fn log_ends_at(&mut self, end: u64, out: &mut Vec<Action>) {
        tracing::warn!(known_seq = self.known_seq, end, "HQ was restored from an older backup");
        self.known_seq = end;
        self.forgotten_seq = self.forgotten_seq.min(end);
        self.counts.restores_seen += 1;
        self.reduce_settled(out, |seq, _, _| seq > end);
        out.push(Action::Note(Op::Known { seq: end }));
    }

    fn reduce_settled(&mut self, out: &mut Vec<Action>, mut forgotten: impl FnMut(u64, bool, &AttemptRef) -> bool) {
        for (task_id, task) in &mut self.tasks {
            task.attempts.retain(|held| {
                let Phase::Settled { seq, end, valid } = held.phase else { return true };
                let attempt = AttemptRef { task_id: task_id.clone(), attempt: held.number };
                if !forgotten(seq, valid && end == EndKind::Succeeded, &attempt) {
                    return true;
                }
                out.push(Action::Note(Op::Reduce { task: task_id.clone(), attempt: held.number }));
                self.settled -= 1;
                false
            });
        }
    }

    /// Forgets what HQ has folded; says whether a success was among it that HQ has lost.
    fn forget_settled(&mut self, answer: &SyncAnswer, out: &mut Vec<Action>) -> bool {
        let keep: BTreeSet<&AttemptRef> = answer.keep.iter().collect();
        // A view that includes a valid success never counts its task as open: kept all the same, it was lost by a restore of HQ.
        let mut lost = false;
        self.reduce_settled(out, |seq, success, attempt| {
            let kept = keep.contains(attempt);
            lost |= seq <= answer.as_of_seq && success && kept;
            seq <= answer.as_of_seq && (success || !kept)
        });
        lost
    }

    fn forget_closed(&mut self, plans: &[PlanId], as_of_seq: u64, out: &mut Vec<Action>) {
        if plans.is_empty() {
            return;
        }
        let closed: BTreeSet<&PlanId> = plans.iter().collect();
        self.tasks.retain(|task_id, task| {
            let gone = task.attempts.is_empty() && closed.contains(&task_id.plan);
            if gone {
                self.forgotten_seq = self.forgotten_seq.max(as_of_seq);
                out.push(Action::Note(Op::Forget { task: task_id.clone() }));
            }
            !gone
        });
    }

    /// Attempts queued or running, at most `max`: for a beat.
    pub fn live(&self, max: usize) -> Vec<AttemptRef> {
        let mut live = Vec::new();
        for (task_id, task) in &self.tasks {
            for held in &task.attempts {
                if live.len() < max && matches!(held.phase, Phase::Queued(_) | Phase::Running { .. }) {
                    live.push(AttemptRef { task_id: task_id.clone(), attempt: held.number });
                }
            }
        }
        live
    }

    /// Everything held, live attempts first: for a sync.
    pub fn list(&self) -> Vec<Hold> {
        let mut holds = Vec::new();
        for (task_id, task) in &self.tasks {
            for held in &task.attempts {
                let state = match held.phase {
                    Phase::Queued(_) => HoldState::Queued,
                    Phase::Running { .. } => HoldState::Running,
                    Phase::Finished { .. } => HoldState::Finished,
                    Phase::Settled { .. } => HoldState::Settled,
                };
                holds.push(Hold { attempt: AttemptRef { task_id: task_id.clone(), attempt: held.number }, state });
            }
        }
        if holds.len() > SYNC_HOLDS_MAX {
            holds.sort_by_key(|h| match h.state {
                HoldState::Running => 0,
                HoldState::Queued => 1,
                HoldState::Finished => 2,
                HoldState::Settled => 3,
            });
            holds.truncate(SYNC_HOLDS_MAX);
        }
        holds
    }

    /// Plans of which only numbers are kept: the next of them, in turns, to ask whether they are closed.
    pub fn plans_to_ask(&mut self) -> Vec<PlanId> {
        let mut idle: BTreeMap<&PlanId, bool> = BTreeMap::new();
        for (task_id, task) in &self.tasks {
            *idle.entry(&task_id.plan).or_insert(true) &= task.attempts.is_empty();
        }
        let plans: Vec<&PlanId> = idle.into_iter().filter(|(_, idle)| *idle).map(|(plan, _)| plan).collect();
        let start = self.asked_up_to.as_ref().map_or(0, |last| plans.partition_point(|plan| *plan <= last));
        let count = plans.len().min(CLOSED_PLANS_MAX);
        let next: Vec<PlanId> = plans.iter().cycle().skip(start).take(count).map(|plan| (*plan).clone()).collect();
        self.asked_up_to = next.last().cloned();
        next
    }

    /// Highest log sequence known.
    pub fn known_seq(&self) -> u64 {
        self.known_seq
    }

    /// Notes the sequence of a report that needs no other attention.
    pub fn note_seq(&mut self, seq: u64) {
        self.known_seq = self.known_seq.max(seq);
    }

    /// So much is settled, or a command was left to it: a sync should come early.
    pub fn wants_sync(&self) -> bool {
        self.sync_wanted || self.settled >= SETTLED_SYNC_EARLY
    }

    /// Whether the journal could be written last time.
    pub fn journal_ok(&self) -> bool {
        self.journal_ok
    }

    /// Runs going on.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Attempts waiting for a slot.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Ended attempts whose reports are not answered.
    pub fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// Answered attempts not yet forgotten.
    pub fn settled(&self) -> usize {
        self.settled
    }

    /// Tasks of which anything is known.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}
