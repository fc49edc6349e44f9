//! The numbered, immutable account of a plan at one position of the log: a pure function of the plan's state there.
//!
//! The same log up to `asOfSeq` gives the same bytes. Fields stand in one fixed order; results are copied as the terminals wrote them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::aggregate::{Aggregate, Aggregates};
use crate::holes::Holes;
use crate::plan::{Below, Plan, SummaryKind, SummaryRef};
use crate::planted::{self, Planted};
use crate::sets::{SetCounts, TaskSet, row_changed_seq, set_of};
use crate::task::{FailReason, Task, TaskError, TaskState, Waiting};
use crate::view::PlanView;

mod pieces;

pub use pieces::{PIECE_BYTES, Pieces};

/// What a plan came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlanVerdict {
    /// Every target succeeded.
    Full,
    /// With reservations: not every target, or fewer than wanted where the plan allows that.
    Reserved,
    /// Fewer than wanted.
    Failed,
}

/// What happens next with a target that is not in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NextStep {
    /// It is handed out when its terminal is heard of.
    WhenOnline,
    /// It is handed out when its turn comes.
    WhenItsTurn,
    /// It is handed out again after a pause.
    Retry,
    /// HQ waits for the terminal's answer.
    AwaitReport,
    /// HQ waits for the attempt to stop.
    AwaitStop,
    /// A person may requeue it.
    MayRequeue,
    /// Nothing: the plan is closed; a follow-up plan is needed.
    FollowUp,
}

/// One target's row.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row<'v> {
    /// The target.
    pub target: &'v str,
    /// Its set.
    pub set: TaskSet,
    /// Its state.
    pub state: TaskState,
    /// Current attempt.
    pub attempt: u32,
    /// Why it FAILED.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailReason>,
    /// What went wrong last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'v TaskError>,
    /// When its terminal was last seen, epoch ms; null: never. Only in the offline set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen_ms: Option<Option<i64>>,
    /// It is still out although the deadline has passed.
    #[serde(skip_serializing_if = "is_false")]
    pub still_out: bool,
    /// It came in after it had been given up.
    #[serde(skip_serializing_if = "is_false")]
    pub late: bool,
    /// It keeps being handed out and nothing begins.
    #[serde(skip_serializing_if = "is_false")]
    pub needs_attention: bool,
    /// What happens next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<NextStep>,
    /// The result as the terminal wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<&'v RawValue>,
}

fn is_false(b: &bool) -> bool {
    !*b
}

/// The whole document, but for its rows: those are written from the view one after the other.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary<'v> {
    /// The plan.
    pub plan_id: &'v str,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<&'v str>,
    /// The caller's own key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub business_key: Option<&'v str>,
    /// Task type, `name@version`.
    #[serde(rename = "type")]
    pub kind_of_task: String,
    /// Number, from 1.
    pub revision: u32,
    /// Kind.
    pub kind: SummaryKind,
    /// Sequence of the plan's last event folded.
    pub as_of_seq: u64,
    /// The one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<SummaryRef>,
    /// Verdict.
    pub verdict: PlanVerdict,
    /// Events the log has lost: this account may lack something. Absent where none is known to be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holes: Option<Holes>,
    /// Sealed count.
    pub total: u32,
    /// SHA-256 of the sealed list.
    pub targets_sha256: &'v str,
    /// The eight sets.
    pub counts: SetCounts,
    /// Aggregates over valid results.
    pub aggregates: Vec<Aggregate>,
    #[serde(skip)]
    view: &'v PlanView,
}

/// Why a summary was not published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SummaryError {
    /// The plan isn't sealed, so there is no denominator.
    #[error("the plan is not sealed")]
    NotSealed,
    /// The sets don't add up.
    #[error("the eight sets add up to {sum}, the sealed list has {sealed}, {rows} rows")]
    DoesNotAddUp {
        /// Sum of the sets.
        sum: u64,
        /// Sealed count.
        sealed: u32,
        /// Rows.
        rows: usize,
    },
    /// It could not be written as JSON.
    #[error("the summary could not be written: {0}")]
    Unwritable(String),
}

/// A summary that is being computed, some tasks at a time.
#[derive(Debug)]
pub struct Draft<'v> {
    view: &'v PlanView,
    kind: SummaryKind,
    /// The tasks before are counted.
    next: usize,
    recount: SetCounts,
    aggregates: Aggregates<'v, 'v>,
}

impl<'v> Draft<'v> {
    /// Begins the next summary of a plan from its state now.
    pub fn begin(view: &'v PlanView, kind: SummaryKind) -> Self {
        let aggregates = Aggregates::new(&view.plan.spec.aggregates);
        Self { view, kind, next: 0, recount: SetCounts::default(), aggregates }
    }

    /// Goes through the next so many tasks; whether there are more.
    pub fn advance(&mut self, tasks: usize) -> bool {
        let (begin, end) = (self.next, self.next.saturating_add(tasks).min(self.view.tasks.len()));
        let targets = self.view.plan.targets.iter().skip(begin);
        for (target, task) in targets.zip(self.view.tasks.range(begin, end)) {
            self.recount.count(set_of(&self.view.plan, task));
            if let Some(result) = task.result.as_ref().filter(|_| task.state == TaskState::Succeeded) {
                self.aggregates.add(target.as_str(), result.0.get());
            }
        }
        self.next = end;
        end < self.view.tasks.len()
    }

    /// The summary, after the last task.
    ///
    /// # Errors
    /// [`SummaryError`] where it would be wrong: it must not be published.
    pub fn finish(self) -> Result<Summary<'v>, SummaryError> {
        let (view, plan, kind) = (self.view, &self.view.plan, self.kind);
        let Some((seal, _, _)) = &plan.seal else { return Err(SummaryError::NotSealed) };
        let previous = plan.summary.as_ref().map(|(s, _, _)| s.this.clone());
        let counts = view.counts();
        let summary = Summary {
            plan_id: plan.id().as_str(),
            title: plan.spec.title.as_deref(),
            business_key: plan.spec.business_key.as_deref(),
            kind_of_task: format!("{}@{}", plan.spec.kind.name, plan.spec.kind.version),
            revision: previous.as_ref().map_or(1, |p| p.revision.saturating_add(1)),
            kind,
            // Rows don't change any more once the plan is closed, but late reports may have been folded since.
            as_of_seq: plan.closed_seq.filter(|_| kind == SummaryKind::Final).unwrap_or(view.last_seq),
            verdict: verdict(plan, &counts),
            holes: plan.holes,
            total: seal.count,
            targets_sha256: &seal.sha256,
            counts,
            aggregates: self.aggregates.finish(),
            previous,
            view,
        };
        summary.check(&self.recount)?;
        Ok(summary)
    }
}

impl<'v> Summary<'v> {
    /// Computes the next summary of a plan from its state now.
    ///
    /// # Errors
    /// As [`Draft::finish`].
    pub fn compute(view: &'v PlanView, kind: SummaryKind) -> Result<Self, SummaryError> {
        let mut draft = Draft::begin(view, kind);
        while draft.advance(usize::MAX) {}
        draft.finish()
    }

    /// The view's own account, the sets counted anew from the tasks, and the sealed list must say the same.
    fn check(&self, recount: &SetCounts) -> Result<(), SummaryError> {
        let (sum, rows) = (self.counts.total(), self.view.tasks.len());
        if sum != u64::from(self.total) || rows as u64 != u64::from(self.total) || *recount != self.counts {
            return Err(SummaryError::DoesNotAddUp { sum, sealed: self.total, rows });
        }
        Ok(())
    }

    /// Targets whose row changed since `previous.asOfSeq`, in target order.
    pub fn changed(&self) -> impl Iterator<Item = &'v str> + use<'v> {
        let view = self.view;
        let since_seq = if planted::is(Planted::ChangedSinceWrong) { view.last_seq } else { since_seq(self.previous.as_ref()) };
        let changed = move |task: &Task| row_changed_seq(&view.plan, task) > since_seq;
        view.plan.targets.iter().zip(&view.tasks).filter(move |(_, t)| changed(t)).map(|(target, _)| target.as_str())
    }

    /// A row a target, in target order.
    pub fn rows(&self) -> impl Iterator<Item = Row<'v>> + use<'v> {
        let view = self.view;
        view.plan.targets.iter().zip(&view.tasks).map(|(target, task)| row(&view.plan, target.as_str(), task))
    }

    /// The document's bytes in pieces of at least [`PIECE_BYTES`], but for the last: what is hashed and stored.
    pub fn pieces(&self) -> Pieces<'v> {
        pieces::of(self)
    }

    /// The document's bytes: what is hashed, stored and compared.
    ///
    /// # Errors
    /// [`SummaryError::Unwritable`]
    pub fn to_bytes(&self) -> Result<Vec<u8>, SummaryError> {
        let mut bytes = Vec::new();
        for piece in self.pieces() {
            bytes.extend_from_slice(&piece?);
        }
        Ok(bytes)
    }
}

/// Position from which a summary says what changed.
fn since_seq(previous: Option<&SummaryRef>) -> u64 {
    previous.map_or(0, |p| p.as_of_seq)
}

/// The verdict on these counts.
pub fn verdict(plan: &Plan, counts: &SetCounts) -> PlanVerdict {
    let total = counts.total();
    // Over a hole nothing is whole: what is missing may be a target, or the word that undid a success.
    if u64::from(counts.succeeded) == total && plan.holes.is_none() {
        return PlanVerdict::Full;
    }
    let share = f64::from(counts.succeeded) / total.max(1) as f64;
    match plan.spec.converge.below {
        Below::Fail if share < plan.spec.converge.min_success => PlanVerdict::Failed,
        Below::Fail | Below::Reserved => PlanVerdict::Reserved,
    }
}

fn row<'v>(plan: &Plan, target: &'v str, task: &'v Task) -> Row<'v> {
    let set = set_of(plan, task);
    let last_seen_ms = match task.waiting {
        Some(Waiting::Offline(seen)) if set == TaskSet::Offline => Some(seen),
        _ => None,
    };
    Row {
        target,
        set,
        state: task.state,
        attempt: task.attempt,
        failure: task.failure,
        error: task.error.as_deref().filter(|_| task.state != TaskState::Succeeded),
        last_seen_ms,
        still_out: set == TaskSet::TimedOut && task.state.is_live(),
        late: task.late,
        needs_attention: task.needs_attention() && !task.state.is_final(),
        next: next(plan, task),
        result: task.result.as_ref().map(|r| &*r.0),
    }
}

/// What happens next with a task; `None` where nothing needs to.
pub fn next(plan: &Plan, task: &Task) -> Option<NextStep> {
    match task.state {
        TaskState::Succeeded | TaskState::Cancelled => None,
        TaskState::Failed if plan.closed_seq.is_some() || plan.close.is_some() || plan.cancel.is_some() => {
            Some(NextStep::FollowUp)
        }
        TaskState::Failed => Some(NextStep::MayRequeue),
        TaskState::Dispatched | TaskState::Running if task.cancelling => Some(NextStep::AwaitStop),
        TaskState::Dispatched | TaskState::Running => Some(NextStep::AwaitReport),
        TaskState::Pending if task.is_offline() => Some(NextStep::WhenOnline),
        TaskState::Pending if task.attempt > 0 && task.not_before_ms > 0 => Some(NextStep::Retry),
        TaskState::Pending => Some(NextStep::WhenItsTurn),
    }
}

#[cfg(test)]
mod tests;
