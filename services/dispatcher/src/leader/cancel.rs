//! The last word of a cancel.

use fanfold_domain::ids::PlanId;
use fanfold_domain::planted::{self, Planted};
use fanfold_ledger::open::Model;

use super::Leader;
use crate::work::{Deciding, Decision};

impl Leader<'_> {
    /// `plan.cancelled` once a cancel decision for every open task is in view.
    pub(super) fn look_at_cancel(&mut self, model: &Model, plan: &PlanId) {
        let (Some(view), Some(work)) = (model.plan(plan), self.work.plans.get_mut(plan)) else { return };
        let asked = view.plan.cancel.is_some() && view.plan.cancelled_seq.is_none();
        let decided = view.finals.count() + view.cancelling.count() == view.tasks.len();
        if planted::is(Planted::CancelledTooSoon) && asked && !work.cancelling {
            work.cancelling = true;
            self.work.outbox.push_front(Decision { plan: plan.clone(), task: None, event: None });
        }
        if asked
            && decided
            && !work.cancelling
            && work.deciding.values().all(|d| matches!(d, Deciding::Stored(seq) if *seq <= view.last_seq))
        {
            work.cancelling = true;
            self.work.outbox.push_back(Decision { plan: plan.clone(), task: None, event: None });
        }
    }
}
