//! When a plan's results are brought together: the barrier fires, summaries become due, the plan closes.

use crate::dispatch::requeue_due;
use crate::plan::SummaryKind;
use crate::planted::{self, Planted};
use crate::task::TaskState;
use crate::view::PlanView;

/// First pause between a summary and its update, in milliseconds; doubles.
const UPDATE_PAUSE_MS: i64 = 2_000;
/// Longest pause, in milliseconds.
const UPDATE_PAUSE_MS_MAX: i64 = 300_000;
/// Most summaries of one plan; the last is kept for closing.
pub const REVISIONS_MAX: u32 = 100;

/// What convergence ought to append next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Convergence {
    /// Nothing until an event changes it.
    Nothing,
    /// Nothing before this moment (epoch ms), unless an event changes it.
    WaitUntil(i64),
    /// `plan.deadline_reached`
    DeadlineReached,
    /// A summary of this kind.
    Summarise(SummaryKind),
    /// `plan.close_requested`, with the reason for people.
    RequestClose(&'static str),
    /// `plan.closed`
    Close,
}

/// The next step for a plan at `now_ms`.
pub fn next_step(view: &PlanView, now_ms: i64) -> Convergence {
    let plan = &view.plan;
    if !plan.is_accountable() {
        return without_account(view, now_ms);
    }
    let (Some(deadline_ms), Some(expires_ms)) = (plan.deadline_ms(), plan.expires_ms()) else { return Convergence::Nothing };
    let deadline_ms = if planted::is(Planted::DeadlineEarly) { deadline_ms - 2_500 } else { deadline_ms };
    if view.is_over() {
        return Convergence::Nothing;
    }
    if plan.closed_seq.is_some() {
        return Convergence::Summarise(SummaryKind::Final);
    }
    let all_final = view.all_final();
    if plan.summary.is_none() {
        if plan.deadline_seq.is_some() {
            return Convergence::Summarise(SummaryKind::Partial);
        }
        // Convergence may have been away over the deadline: only what the log says had ended by then was complete.
        let in_time = || now_ms < deadline_ms || view.tasks.iter().all(|t| t.final_ms < deadline_ms);
        if all_final && !requeue_pending(view) && in_time() {
            return Convergence::Summarise(SummaryKind::Complete);
        }
    }
    // Also while it is being closed, as long as it has no summary: the first one is complete or partial, never the final one.
    if plan.deadline_seq.is_none() && (plan.close.is_none() || plan.summary.is_none()) && now_ms >= deadline_ms {
        return Convergence::DeadlineReached;
    }
    if plan.close.is_some() {
        return if all_final && !requeue_pending(view) { Convergence::Close } else { Convergence::Nothing };
    }
    if all_final && !requeue_pending(view) {
        if plan.cancelled_seq.is_some() {
            return Convergence::RequestClose("the plan was cancelled");
        }
        let failed = |i: usize| view.tasks.get(i).is_some_and(|t| t.state == TaskState::Failed);
        if plan.cancel.is_none() && !view.not_succeeded.iter().any(failed) {
            return Convergence::RequestClose("every task has succeeded or was cancelled");
        }
    }
    if now_ms >= expires_ms {
        return Convergence::RequestClose("the plan expired");
    }
    let mut wake_ms = if plan.deadline_seq.is_none() { deadline_ms.min(expires_ms) } else { expires_ms };
    if let Some(due_ms) = update_due_ms(view) {
        if now_ms >= due_ms {
            return Convergence::Summarise(SummaryKind::Update);
        }
        wake_ms = wake_ms.min(due_ms);
    }
    Convergence::WaitUntil(wake_ms)
}

/// Of a plan of which the log has lost targets, or the seal: nothing can be summed up, so it goes on until somebody closes it or it
/// expires.
fn without_account(view: &PlanView, now_ms: i64) -> Convergence {
    let plan = &view.plan;
    if view.is_over() {
        return Convergence::Nothing;
    }
    if plan.close.is_some() {
        // Without a seal nothing is decided about its tasks any more either.
        let ended = plan.seal.is_none() || view.finals.count() == view.tasks.len();
        return if ended { Convergence::Close } else { Convergence::Nothing };
    }
    if plan.cancelled_seq.is_some() {
        return Convergence::RequestClose("the plan was cancelled");
    }
    match plan.expires_ms() {
        Some(expires_ms) if now_ms >= expires_ms => Convergence::RequestClose("the plan expired"),
        Some(expires_ms) => Convergence::WaitUntil(expires_ms),
        None => Convergence::Nothing,
    }
}

/// Whether a requeue request still has a task to move.
fn requeue_pending(view: &PlanView) -> bool {
    !view.plan.requeues.is_empty() && view.not_succeeded.iter().any(|i| requeue_due(view, i).is_some())
}

/// When the next update is due, if any row has changed since the last summary.
fn update_due_ms(view: &PlanView) -> Option<i64> {
    let (last, _, at_ms) = view.plan.summary.as_ref()?;
    let revision = last.this.revision;
    if revision >= REVISIONS_MAX - 1 || !has_changes(view, last.this.as_of_seq) {
        return None;
    }
    let pause_ms = UPDATE_PAUSE_MS << revision.saturating_sub(1).min(16);
    Some(at_ms.saturating_add(pause_ms.min(UPDATE_PAUSE_MS_MAX)))
}

/// Whether the row of any task has changed since; see [`crate::sets::row_changed_seq`].
fn has_changes(view: &PlanView, since_seq: u64) -> bool {
    let by_deadline = view.plan.deadline_seq.is_some_and(|seq| seq > since_seq) && !view.live.is_empty();
    !planted::is(Planted::UpdateForgotten) && (view.row_seq > since_seq || by_deadline)
}

#[cfg(test)]
mod tests;
