//! Plans that are over and that nobody has written records of, folded from the log: what is in it is never denied.
//!
//! Nothing is folded into a plan after its final summary, so what is kept here never gets old. One plan is folded at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use fanfold_domain::ids::PlanId;
use fanfold_domain::view::PlanView;
use fanfold_ledger::open::fold_plan;
use fanfold_ledger::port::{Ledger, LedgerError};
use tokio::sync::Mutex;

/// Plans kept.
const PLANS_MAX: usize = 64;
/// Targets of all of them; a plan with more is folded anew for every answer.
const TARGETS_MAX: usize = 200_000;

/// See the module. The one used last is the last.
#[derive(Default)]
pub(crate) struct Folded {
    kept: Mutex<VecDeque<(PlanId, Arc<PlanView>)>>,
}

impl Folded {
    /// A plan that was folded before.
    pub(crate) async fn kept(&self, id: &PlanId) -> Option<Arc<PlanView>> {
        let mut kept = self.kept.lock().await;
        let found = kept.iter().position(|(plan, _)| plan == id).and_then(|at| kept.remove(at))?;
        let view = Arc::clone(&found.1);
        kept.push_back(found);
        Some(view)
    }

    /// A plan as the log has it at its end; `None`: there is no such plan, or this build can't fold it.
    ///
    /// # Errors
    /// Those of the ledger.
    pub(crate) async fn fold(&self, ledger: &dyn Ledger, id: &PlanId) -> Result<Option<Arc<PlanView>>, LedgerError> {
        let mut kept = self.kept.lock().await;
        if let Some((_, view)) = kept.iter().find(|(plan, _)| plan == id) {
            return Ok(Some(Arc::clone(view)));
        }
        let to = ledger.last_seq().await?;
        let Some(view) = fold_plan(ledger, id, to).await?.map(Arc::new) else { return Ok(None) };
        if view.is_over() && view.tasks.len() <= TARGETS_MAX {
            kept.push_back((id.clone(), Arc::clone(&view)));
            while kept.len() > PLANS_MAX || kept.iter().map(|(_, v)| v.tasks.len()).sum::<usize>() > TARGETS_MAX {
                kept.pop_front();
            }
        }
        Ok(Some(view))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use fanfold_ledger::memory::MemoryLedger;

    use super::*;

    #[tokio::test]
    async fn what_the_log_does_not_have_is_not_kept() {
        let ledger = MemoryLedger::new(Arc::new(|| 0), 0);
        let (folded, id) = (Folded::default(), PlanId::new("p").unwrap());
        assert!(folded.fold(&ledger, &id).await.unwrap().is_none());
        assert!(folded.kept(&id).await.is_none());
    }
}
