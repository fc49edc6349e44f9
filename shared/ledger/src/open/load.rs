//! Finding and folding what is open when a process starts.

use std::collections::BTreeMap;

use fanfold_domain::ids::PlanId;
use fanfold_domain::view::PlanView;
use fanfold_wire::record::Checkpoint;
use fanfold_wire::subjects::{self, LogSubject};
use futures::StreamExt;

use super::model::{Model, decode_all};
use super::unsupported::is_final;
use crate::port::{Ledger, LedgerError};

/// Plans read through one consumer.
const PLANS_PER_READ: usize = 100;
/// Messages decoded at once.
const CHUNK: usize = 1_024;

/// The model as of the log's end, and that sequence.
pub(super) async fn load(ledger: &dyn Ledger) -> Result<(Model, u64), LedgerError> {
    let last_seq = ledger.last_seq().await?;
    let mut model = Model::new(last_seq);
    let plans: Vec<PlanId> = candidates(ledger, last_seq).await?.into_keys().collect();
    for group in plans.chunks(PLANS_PER_READ) {
        fold_into(ledger, &mut model, group, last_seq).await?;
    }
    Ok((model, last_seq))
}

/// Plans that may be open at `last_seq`, with the sequence of their submission.
async fn candidates(ledger: &dyn Ledger, last_seq: u64) -> Result<BTreeMap<PlanId, u64>, LedgerError> {
    let checkpoint = usable_checkpoint(ledger, last_seq).await?;
    plans_in(ledger, checkpoint, last_seq, true).await
}

async fn usable_checkpoint(ledger: &dyn Ledger, last_seq: u64) -> Result<Option<Checkpoint>, LedgerError> {
    Ok(match ledger.get_checkpoint().await? {
        None => None,
        Some(entry) => {
            let parsed = Checkpoint::parse(&entry.value);
            if parsed.is_none() {
                tracing::warn!("the checkpoint is damaged; open plans are found from the whole log");
            }
            parsed.filter(|c| c.seq <= last_seq)
        }
    })
}

/// Every plan that may have changed since the checkpoint, those that are over among them; without a usable checkpoint every plan
/// there ever was. What the state bucket says about any other plan stands.
///
/// # Errors
/// Those of the ledger.
pub async fn plans_since(ledger: &dyn Ledger, checkpoint: Option<Checkpoint>, last_seq: u64) -> Result<Vec<PlanId>, LedgerError> {
    let checkpoint = checkpoint.filter(|c| c.seq <= last_seq);
    Ok(plans_in(ledger, checkpoint, last_seq, false).await?.into_keys().collect())
}

/// One plan folded from the log up to `to`, whether it is over or not; `None` when there is no such plan.
///
/// # Errors
/// Those of the ledger.
pub async fn fold_plan(ledger: &dyn Ledger, plan: &PlanId, to: u64) -> Result<Option<PlanView>, LedgerError> {
    let mut model = Model::new(to);
    fold_into(ledger, &mut model, std::slice::from_ref(plan), to).await?;
    Ok(model.take(plan))
}

/// The version of a plan's rules when this build can't fold it; `Some(None)`: its submission can't be read. `None`: there is no such
/// plan, or it can be folded.
///
/// # Errors
/// Those of the ledger.
pub async fn unsupported_rules(ledger: &dyn Ledger, plan: &PlanId) -> Result<Option<Option<u32>>, LedgerError> {
    let submitted = ledger.last_under(&subjects::plan_event(plan, "submitted")).await?;
    let mut model = Model::new(0);
    for (message, event) in submitted.iter().zip(decode_all(submitted.as_slice())) {
        model.fold(message, event);
    }
    Ok(model.unsupported().next().map(|(_, found)| found.rules))
}

async fn fold_into(ledger: &dyn Ledger, model: &mut Model, plans: &[PlanId], to: u64) -> Result<(), LedgerError> {
    let filters = plans.iter().flat_map(|p| [subjects::plan_filter(p), subjects::plan_tasks_filter(p)]).collect();
    let mut events = ledger.read(filters, 1, to).await?.ready_chunks(CHUNK);
    while let Some(chunk) = events.next().await {
        let messages = chunk.into_iter().collect::<Result<Vec<_>, _>>()?;
        for (message, event) in messages.iter().zip(decode_all(&messages)) {
            model.fold(message, event);
        }
    }
    Ok(())
}

async fn plans_in(
    ledger: &dyn Ledger,
    checkpoint: Option<Checkpoint>,
    last_seq: u64,
    open_only: bool,
) -> Result<BTreeMap<PlanId, u64>, LedgerError> {
    let (from, mut open) = match checkpoint {
        Some(checkpoint) => (checkpoint.seq + 1, checkpoint.open),
        None => (1, BTreeMap::new()),
    };
    if from <= last_seq {
        let filters = vec![subjects::SUBMISSIONS.to_owned(), subjects::SUMMARIES.to_owned()];
        let mut events = ledger.read(filters, from, last_seq).await?;
        while let Some(message) = events.next().await {
            let message = message?;
            match LogSubject::parse(&message.subject) {
                Some(LogSubject::Plan { plan, event }) if event == "submitted" => {
                    open.insert(plan, message.seq);
                }
                Some(LogSubject::Plan { plan, .. }) if open_only && from == 1 && is_final(&message.payload) => {
                    open.remove(&plan);
                }
                _ => {}
            }
        }
    }
    Ok(open)
}
