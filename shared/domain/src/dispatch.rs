//! What HQ ought to decide next about one task: a pure function of the plan, the task, what is known of the terminal, and the time.
//!
//! Caps and fairness between tasks that are [`Step::Ready`] are the dispatcher's; everything about a single task is here.

use crate::event::{ExpiryReason, TaskEvent, TimeoutKind};
use crate::plan::{Plan, RequeueSelector};
use crate::planted::{self, Planted};
use crate::task::{Attempt, Task, TaskState, Waiting};
use crate::view::PlanView;

/// Beats that may be missing before a terminal counts as offline.
pub const BEATS_MISSING_OFFLINE: i64 = 3;

/// HQ's own clock and standing.
#[derive(Debug, Clone, Copy)]
pub struct Hq {
    /// Now, epoch ms.
    pub now_ms: i64,
    /// When this dispatcher began to hear beats, epoch ms.
    pub started_ms: i64,
    /// When it last (re)connected, epoch ms.
    pub connected_ms: i64,
    /// Whether its view has reached the end of the log since then.
    pub caught_up: bool,
    /// Heartbeat interval where a terminal hasn't said its own, in milliseconds.
    pub beat_ms: i64,
    /// How long a cancelled attempt may take to end, in milliseconds.
    pub cancel_grace_ms: i64,
}

/// What is known of a terminal, about one attempt.
#[derive(Debug, Clone, Copy, Default)]
pub struct Presence {
    /// Last beat or sync, epoch ms; `None`: never seen.
    pub last_seen_ms: Option<i64>,
    /// It said goodbye since: offline at once.
    pub gone: bool,
    /// Its heartbeat interval, in milliseconds; 0: unknown.
    pub beat_ms: i64,
    /// It may be given work: one boot is known to beat, and no other.
    pub usable: bool,
    /// When an unusable one becomes usable by itself, epoch ms.
    pub usable_at_ms: Option<i64>,
    /// Its latest beat or sync lists the attempt.
    pub lists_attempt: bool,
    /// Its journal is the one the attempt was dispatched to.
    pub same_journal: bool,
    /// A sync told, from a view that includes the attempt's dispatch, that it does not hold the attempt.
    pub forgot_attempt: bool,
    /// It has synced since the dispatcher (re)connected.
    pub synced: bool,
}

impl Presence {
    /// Its heartbeat interval, or the default.
    pub fn interval_ms(&self, hq: &Hq) -> i64 {
        if self.beat_ms > 0 { self.beat_ms } else { hq.beat_ms }
    }

    /// How long it may be silent before it counts as offline, in milliseconds.
    fn silence_ms(&self, hq: &Hq) -> i64 {
        // Saturating: the interval is what a terminal says of itself.
        self.interval_ms(hq).saturating_mul(BEATS_MISSING_OFFLINE)
    }

    /// Whether it was heard of within three intervals, and hasn't said goodbye.
    pub fn is_online(&self, hq: &Hq) -> bool {
        !self.gone && self.last_seen_ms.is_some_and(|seen| hq.now_ms.saturating_sub(seen) < self.silence_ms(hq))
    }
}

/// What to do about a task now.
#[derive(Debug, Clone)]
pub enum Step {
    /// Nothing until an event changes it.
    Nothing,
    /// Nothing before this moment (epoch ms), unless an event changes it.
    WaitUntil(i64),
    /// Nothing until the terminal is heard of.
    WaitPresence,
    /// It may be dispatched as soon as the caps allow; `release` when it must be told apart from the offline ones while it waits.
    Ready {
        /// Append `task.released` if it can't be dispatched at once.
        release: bool,
    },
    /// Append this decision.
    Decide(TaskEvent),
}

/// Extra time HQ grants beyond the run timeout before it concludes what the terminal should have said itself, in milliseconds.
pub fn run_margin_ms(run_ms: u64) -> i64 {
    (run_ms / 10).clamp(250, 10_000) as i64
}

/// The next step for the task at `index`.
pub fn next_step(view: &PlanView, index: usize, presence: &Presence, hq: &Hq) -> Step {
    let (Some(task), Some(_)) = (view.tasks.get(index), &view.plan.seal) else { return Step::Nothing };
    let plan = &view.plan;
    if let Some(request_seq) = requeue_due(view, index) {
        return Step::Decide(TaskEvent::Requeued { request_seq });
    }
    if plan.close.is_some() && !task.state.is_final() {
        let attempt = if task.state.is_live() { task.attempt } else { 0 };
        return Step::Decide(TaskEvent::Expired { reason: expiry_reason(plan), attempt });
    }
    if let Some(attempt) = task.superseded_open().find(|a| !a.stop_requested) {
        return Step::Decide(TaskEvent::StopRequested { attempt: attempt.number });
    }
    match task.state {
        TaskState::Succeeded | TaskState::Failed | TaskState::Cancelled => Step::Nothing,
        TaskState::Pending if plan.cancel.is_some() => Step::Decide(TaskEvent::CancelRequested { attempt: 0 }),
        TaskState::Pending => pending(plan, task, presence, hq),
        TaskState::Dispatched | TaskState::Running if plan.cancel.is_some() || task.cancelling => cancelling(task, hq),
        TaskState::Dispatched | TaskState::Running => match task.current() {
            Some(attempt) => live(plan, task, attempt, presence, hq),
            None => Step::Nothing,
        },
    }
}

fn expiry_reason(plan: &Plan) -> ExpiryReason {
    match (&plan.close, plan.expires_ms()) {
        (Some((_, _, asked_ms)), Some(expires_ms)) if *asked_ms < expires_ms => ExpiryReason::Closed,
        _ => ExpiryReason::Expired,
    }
}

/// Whether a request with this selector means the task at `index` as it stands: it FAILED and is among those selected.
pub fn requeue_applies(view: &PlanView, index: usize, selector: &RequeueSelector) -> bool {
    let Some(task) = view.tasks.get(index).filter(|t| t.state == TaskState::Failed) else { return false };
    match selector {
        RequeueSelector::Tasks(ids) => view.task_id(index).is_some_and(|id| ids.contains(&id)),
        RequeueSelector::Failed { codes } => codes.is_empty() || task.error.as_ref().is_some_and(|e| codes.contains(&e.code)),
    }
}

/// The request by which the task at `index` is to be requeued, if one is due: it FAILED before it, and nothing was decided since.
pub fn requeue_due(view: &PlanView, index: usize) -> Option<u64> {
    let task = view.tasks.get(index).filter(|t| t.state == TaskState::Failed)?;
    let plan = &view.plan;
    if plan.requeues.is_empty() || plan.closed_seq.is_some() {
        return None;
    }
    let due = |request: &&crate::plan::RequeueRequest| {
        task.final_seq < request.seq && task.decision_seq < request.seq && requeue_applies(view, index, &request.selector)
    };
    plan.requeues.iter().rev().find(due).map(|r| r.seq)
}

fn cancelling(task: &Task, hq: &Hq) -> Step {
    if !task.cancelling {
        return Step::Decide(TaskEvent::CancelRequested { attempt: task.attempt });
    }
    let until_ms = task.cancel_ms().saturating_add(hq.cancel_grace_ms);
    if hq.now_ms >= until_ms { Step::Decide(TaskEvent::Cancelled) } else { Step::WaitUntil(until_ms) }
}

/// From when on HQ may conclude anything from a silence: not at once after an outage.
fn may_conclude_at_ms(presence: &Presence, hq: &Hq) -> i64 {
    if !hq.caught_up {
        return hq.now_ms.saturating_add(presence.interval_ms(hq));
    }
    if presence.synced {
        return i64::MIN;
    }
    drained_at_ms(presence, hq)
}

/// When what a terminal had to say before an outage has had its time to come in. A sync tells what is held, not that no finished result
/// waits behind it: a run's own clock is judged only then.
fn drained_at_ms(presence: &Presence, hq: &Hq) -> i64 {
    hq.connected_ms.saturating_add(presence.silence_ms(hq)).saturating_add(presence.interval_ms(hq) / 2)
}

fn live(plan: &Plan, task: &Task, attempt: &Attempt, presence: &Presence, hq: &Hq) -> Step {
    let allowed_ms = may_conclude_at_ms(presence, hq);
    let timeouts = &plan.spec.timeouts;
    let run_ms = i64::try_from(timeouts.run_ms).unwrap_or(i64::MAX / 4) + run_margin_ms(timeouts.run_ms);
    let deliver_ms = i64::try_from(timeouts.deliver_ms).unwrap_or(i64::MAX / 4);
    let online = presence.is_online(hq);
    let listed = presence.lists_attempt && online;
    if online && presence.usable && !listed && (!presence.same_journal || presence.forgot_attempt) {
        return if hq.now_ms >= allowed_ms {
            Step::Decide(TaskEvent::AttemptLost { attempt: attempt.number })
        } else {
            // Not only when the attempt's own clock runs out: that may be hours away.
            Step::WaitUntil(allowed_ms)
        };
    }
    let (due_ms, kind) = match (task.state, attempt.started_ms()) {
        (TaskState::Running, Some(started_ms)) => (started_ms.saturating_add(run_ms), TimeoutKind::Run),
        _ if listed => (attempt.dispatched_ms.saturating_add(deliver_ms).saturating_add(run_ms), TimeoutKind::Run),
        _ => (attempt.dispatched_ms.saturating_add(deliver_ms), TimeoutKind::Delivery),
    };
    let (due_ms, kind) = match (timeouts.progress_ms, attempt.progressed_ms()) {
        (Some(progress_ms), Some(at_ms)) if task.state == TaskState::Running => {
            let silent_ms = at_ms.saturating_add(i64::try_from(progress_ms).unwrap_or(i64::MAX / 4));
            if silent_ms < due_ms { (silent_ms, TimeoutKind::Progress) } else { (due_ms, kind) }
        }
        _ => (due_ms, kind),
    };
    let due_ms = match kind {
        TimeoutKind::Run | TimeoutKind::Progress => due_ms.max(allowed_ms).max(drained_at_ms(presence, hq)),
        TimeoutKind::Delivery => due_ms.max(allowed_ms),
    };
    if hq.now_ms >= due_ms {
        Step::Decide(TaskEvent::AttemptTimedOut { attempt: attempt.number, kind })
    } else if listed {
        // Looked at again when the listing would be too old to count.
        Step::WaitUntil(due_ms.min(hq.now_ms.saturating_add(presence.silence_ms(hq))))
    } else {
        Step::WaitUntil(due_ms)
    }
}

fn pending(plan: &Plan, task: &Task, presence: &Presence, hq: &Hq) -> Step {
    if plan.closed_seq.is_some() {
        return Step::Nothing;
    }
    if !presence.is_online(hq) {
        if task.is_offline() {
            return Step::WaitPresence;
        }
        // Unknown is not offline: nothing is said before three intervals of listening.
        let judge_ms = hq.started_ms.max(hq.connected_ms).saturating_add(presence.silence_ms(hq));
        return if hq.now_ms < judge_ms && !presence.gone {
            Step::WaitUntil(judge_ms)
        } else {
            Step::Decide(TaskEvent::Deferred { last_seen_ms: presence.last_seen_ms })
        };
    }
    let release = matches!(task.waiting, Some(Waiting::Offline(_)));
    if !plan.may_dispatch() {
        return if release { Step::Decide(TaskEvent::Released) } else { Step::Nothing };
    }
    if !presence.usable {
        if release {
            // It is heard, only not given work (a doubled id, a journal it can't write): offline is not the reason.
            return Step::Decide(TaskEvent::Released);
        }
        return presence.usable_at_ms.map_or(Step::WaitPresence, Step::WaitUntil);
    }
    if task.not_before_ms > hq.now_ms && !planted::is(Planted::BackoffIgnored) {
        // The terminal is back: the wait is the backoff's now, and the account must not say offline until it is over.
        return if release { Step::Decide(TaskEvent::Released) } else { Step::WaitUntil(task.not_before_ms) };
    }
    Step::Ready { release }
}

#[cfg(test)]
mod tests;
