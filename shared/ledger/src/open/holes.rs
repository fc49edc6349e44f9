//! Folding one message with an eye for what is missing before it.
//!
//! The one place where a plan's view takes an event of the log, so that the services, the summaries, the audit and `replay` note the
//! same holes. Three things tell of one: sequences the log has lost, an id that names an event before it which is not there, and a seal
//! that does not fit the targets.

use fanfold_domain::event::LoggedTaskEvent;
use fanfold_domain::ids::TargetId;
use fanfold_domain::plan::{LoggedPlanEvent, PlanEvent};
use fanfold_domain::view::PlanView;
use fanfold_wire::digest::{sha256_hex, targets_sha256};

use crate::port::{Ledger, LedgerError, Stored};

/// Missing ranges of the log, first and last sequence, in order.
pub type Gaps = [(u64, u64)];

/// Folds an event of the plan itself; `before_seq` is the plan event its id names as the last before it.
pub fn fold_plan_event(view: &mut PlanView, gaps: &Gaps, logged: &LoggedPlanEvent, before_seq: Option<u64>) {
    note_gaps(view, gaps, logged.seq);
    if let PlanEvent::Sealed(seal) = &logged.event
        && view.plan.seal.is_none()
        && (seal.count as usize != view.plan.targets.len()
            || seal.sha256 != targets_sha256(view.plan.targets.iter().map(TargetId::as_str)))
    {
        let from_seq = view.plan.submitted_seq + 1;
        view.plan.note_hole(from_seq, logged.seq.saturating_sub(1).max(from_seq));
    }
    view.apply_plan_after(logged, before_seq);
}

/// Folds an event of a task; gives the task's index.
pub fn fold_task_event(
    view: &mut PlanView,
    gaps: &Gaps,
    target: &TargetId,
    logged: &LoggedTaskEvent,
    before_seq: Option<u64>,
) -> Option<usize> {
    note_gaps(view, gaps, logged.seq);
    view.apply_task_after(target, logged, before_seq).map(|(index, _)| index)
}

/// What the log lost between the plan's last event and `seq` may have been about the plan.
pub fn note_gaps(view: &mut PlanView, gaps: &Gaps, seq: u64) {
    if gaps.is_empty() || view.is_over() {
        return;
    }
    let seen = view.last_seq.max(view.plan.gap_seq);
    let begin = gaps.partition_point(|(from, _)| *from <= seen);
    for (from, to) in gaps.iter().skip(begin).take_while(|(from, _)| *from < seq) {
        view.plan.gap_seq = *from;
        view.plan.note_hole(*from, *to);
    }
}

/// How many sequences up to `seq` are missing.
pub fn missing_to(gaps: &Gaps, seq: u64) -> u64 {
    gaps.iter().filter(|(from, _)| *from <= seq).map(|(from, to)| to.min(&seq) - from + 1).sum()
}

/// What an event of the log is recognised by: the same sequence with another mark is another log.
pub fn mark_of(stored: &Stored) -> String {
    let text = format!("{} {} {} {}", stored.subject, stored.id, stored.time_ms, sha256_hex(&stored.payload));
    sha256_hex(text.as_bytes()).chars().take(16).collect()
}

/// The mark of the event at a sequence; `None`: the log has none there.
///
/// # Errors
/// Those of the ledger.
pub async fn mark_at(ledger: &dyn Ledger, seq: u64) -> Result<Option<String>, LedgerError> {
    use futures::StreamExt;
    if seq == 0 {
        return Ok(None);
    }
    let mut found = ledger.read(vec!["ff.>".to_owned()], seq, seq).await?;
    found.next().await.transpose().map(|stored| stored.as_ref().map(mark_of))
}
