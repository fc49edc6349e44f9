//! The account of a plan at a position of its log: the published one where one stands there, else the one that would be written.

use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::{Summarised, SummaryKind};
use fanfold_domain::sets::row_changed_seq;
use fanfold_domain::view::PlanView;
use fanfold_ledger::port::{Ledger, Stored};
use futures::StreamExt;

use super::{Folder, VerifyError, filters, fold_plan, offline, summaries};

/// A plan at a position, and the kind of summary it has there.
#[derive(Debug)]
pub struct Account {
    /// The plan, folded as far as its summary goes.
    pub view: PlanView,
    /// What [`fanfold_domain::summary::Summary::compute`] is to be told.
    pub kind: SummaryKind,
}

/// The account at a sequence of the log. Where a summary was published that still is the last word there (nothing it shows has changed
/// since, or it is the final one) it is that summary, to the byte.
///
/// # Errors
/// As [`fold_plan`].
pub async fn at(ledger: &dyn Ledger, plan: &PlanId, to: u64) -> Result<Account, VerifyError> {
    let view = fold_plan(ledger, plan, to).await?;
    let written = summaries(ledger, plan, ledger.last_seq().await?).await?;
    let Some((seq, published)) = standing(&view, &written) else { return Ok(Account { kind: kind_now(&view), view }) };
    let mut folder = Folder::new(ledger, plan, *seq).await?;
    let mut events = ledger.read(filters(plan), 1, published.this.as_of_seq).await?;
    while let Some(stored) = events.next().await {
        folder.apply(&stored?);
    }
    folder.look_to(*seq);
    Ok(Account { view: folder.into_view(plan)?, kind: published.kind })
}

/// As [`at`], from a log read from a file.
///
/// # Errors
/// [`VerifyError::UnknownPlan`], [`VerifyError::Unsupported`].
pub fn at_in(log: &[Stored], plan: &PlanId, to: u64) -> Result<Account, VerifyError> {
    let view = offline::fold(log, plan, to)?;
    let written = offline::summaries(log, plan);
    match standing(&view, &written) {
        Some((_, published)) => Ok(Account { view: offline::fold(log, plan, published.this.as_of_seq)?, kind: published.kind }),
        None => Ok(Account { kind: kind_now(&view), view }),
    }
}

/// The published summary, with its own sequence, that is the plan's account where it was folded to.
fn standing<'w>(view: &PlanView, written: &'w [(u64, Summarised)]) -> Option<&'w (u64, Summarised)> {
    if let Some(final_seq) = view.plan.final_seq {
        return written.iter().find(|(seq, _)| *seq == final_seq);
    }
    let made_here = written.iter().find(|(_, s)| s.this.as_of_seq == view.last_seq);
    // Its own event is the plan's last: unless a report came between, another summary would only say the same again.
    let unchanged_since = |as_of_seq: u64| view.tasks.iter().all(|task| row_changed_seq(&view.plan, task) <= as_of_seq);
    made_here.or_else(|| written.iter().find(|(seq, s)| *seq == view.last_seq && unchanged_since(s.this.as_of_seq)))
}

/// The kind a summary would have here where none was written.
fn kind_now(view: &PlanView) -> SummaryKind {
    let plan = &view.plan;
    match &plan.summary {
        _ if plan.closed_seq.is_some() => SummaryKind::Final,
        Some(_) => SummaryKind::Update,
        None if plan.deadline_seq.is_none() && view.all_final() => SummaryKind::Complete,
        None => SummaryKind::Partial,
    }
}
