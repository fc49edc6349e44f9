//! Finding and folding what is open when a process starts.

use std::collections::BTreeMap;

use fanfold_domain::ids::PlanId;
use fanfold_domain::planted::{self, Planted};
use fanfold_domain::view::PlanView;
use fanfold_wire::record::Checkpoint;
use fanfold_wire::subjects::{self, LogSubject};
use futures::StreamExt;

use super::holes::{mark_at, missing_to};
use super::model::{Model, decode_all};
use super::unsupported::is_final;
use crate::port::{Ledger, LedgerError};

/// Plans read through one consumer.
const PLANS_PER_READ: usize = 100;
/// Seals of every plan.
const SEALS: &str = "ff.plan.*.sealed";
/// Messages decoded at once.
const CHUNK: usize = 1_024;

/// The model as of the log's end, and that sequence.
pub(super) async fn load(ledger: &dyn Ledger) -> Result<(Model, u64), LedgerError> {
    let last_seq = ledger.last_seq().await?;
    let (mut checkpoint, went_back) = usable_checkpoint(ledger, last_seq).await?;
    let mut model = Model::new(last_seq);
    let gaps: Vec<_> = ledger.gaps().await?.into_iter().filter(|(from, _)| *from <= last_seq).collect();
    if let Some((from, to)) = gaps.first() {
        let error = LedgerError::Damaged { from: *from, to: *to };
        tracing::error!(code = error.code(), from, to, gaps = gaps.len(), "{error}");
    }
    // What was lost since the checkpoint may be the end of a plan, which is open again then.
    checkpoint = checkpoint.filter(|c| missing_to(&gaps, c.seq) == c.missing);
    model.begin(gaps, mark_at(ledger, last_seq).await?, went_back);
    let plans: Vec<PlanId> = plans_in(ledger, checkpoint, last_seq, true).await?.into_keys().collect();
    for group in plans.chunks(PLANS_PER_READ) {
        fold_into(ledger, &mut model, group, last_seq).await?;
    }
    model.note_gaps_to(last_seq);
    Ok((model, last_seq))
}

/// The checkpoint, if the log still is the one it was made from; else how far it was and how far the log is.
async fn usable_checkpoint(ledger: &dyn Ledger, last_seq: u64) -> Result<(Option<Checkpoint>, Option<(u64, u64)>), LedgerError> {
    let Some(entry) = ledger.get_checkpoint().await? else { return Ok((None, None)) };
    let Some(checkpoint) = Checkpoint::parse(&entry.value) else {
        tracing::warn!("the checkpoint is damaged; open plans are found from the whole log");
        return Ok((None, None));
    };
    let another = !checkpoint.event.is_empty()
        && checkpoint.seq <= last_seq
        && mark_at(ledger, checkpoint.seq).await?.is_some_and(|mark| mark != checkpoint.event);
    if another || checkpoint.seq > last_seq {
        let error = LedgerError::WentBack { folded: checkpoint.seq, last: last_seq };
        tracing::error!(code = error.code(), folded = checkpoint.seq, last_seq, "{error}");
        return Ok((None, Some((checkpoint.seq, last_seq))));
    }
    Ok((Some(checkpoint), None))
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
    Ok(fold_plans(ledger, std::slice::from_ref(plan), to).await?.pop())
}

/// Plans folded from the log up to `to`, whether they are over or not, through one consumer; in the order of their ids, those the log
/// does not know left out. All of it is in memory: ask for no more than a hundred at a time, and mind their sizes.
///
/// # Errors
/// Those of the ledger.
pub async fn fold_plans(ledger: &dyn Ledger, plans: &[PlanId], to: u64) -> Result<Vec<PlanView>, LedgerError> {
    let mut model = Model::new(to);
    model.begin(ledger.gaps().await?, None, None);
    for group in plans.chunks(PLANS_PER_READ) {
        fold_into(ledger, &mut model, group, to).await?;
    }
    model.note_gaps_to(to);
    Ok(model.into_views())
}

/// Every plan the log knows up to `to`, with the number of its targets.
///
/// # Errors
/// Those of the ledger.
pub async fn plan_sizes(ledger: &dyn Ledger, to: u64) -> Result<BTreeMap<PlanId, u32>, LedgerError> {
    let mut sizes = BTreeMap::new();
    let filters = vec![subjects::SUBMISSIONS.to_owned(), SEALS.to_owned()];
    let mut events = ledger.read(filters, 1, to).await?;
    while let Some(message) = events.next().await {
        let message = message?;
        match LogSubject::parse(&message.subject) {
            Some(LogSubject::Plan { plan, event }) if event == "submitted" => drop(sizes.entry(plan).or_insert(0)),
            Some(LogSubject::Plan { plan, .. }) => {
                sizes.entry(plan).and_modify(|size| *size = sealed_count(&message.payload));
            }
            _ => {}
        }
    }
    Ok(sizes)
}

fn sealed_count(payload: &[u8]) -> u32 {
    use fanfold_domain::plan::PlanEvent;
    use fanfold_wire::event::{Envelope, decode_plan};
    match Envelope::parse(payload).and_then(|e| decode_plan("sealed", e.data)) {
        Ok(PlanEvent::Sealed(seal)) => seal.count,
        _ => 0,
    }
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
    let filters = plans.iter().map(subjects::plan_log_filter).collect();
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
    if from <= last_seq && !(from > 1 && open_only && planted::is(Planted::LoadTrustsCheckpoint)) {
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
