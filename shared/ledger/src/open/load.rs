//! Finding and folding what is open when a process starts.

use std::collections::{BTreeMap, BTreeSet};

use fanfold_domain::ids::PlanId;
use fanfold_domain::planted::{self, Planted};
use fanfold_domain::view::PlanView;
use fanfold_wire::record::Checkpoint;
use fanfold_wire::subjects;
use futures::StreamExt;
use futures::future::try_join_all;

use super::holes::{Gaps, mark_at, missing_to};
use super::model::{Model, decode_all};
use super::unsupported::is_final;
use crate::port::{Ledger, LedgerError, Stored};

/// Most messages from the submission of the oldest open plan to the log's end that are read one and all at a start; if there are more,
/// the plans are read one by one.
pub const UNFILTERED_MAX: u64 = 2_000_000;
/// Plans folded at the same time, each through a consumer of its own.
const PLANS_AT_A_TIME: usize = 4;
/// Times plans are folded again because events were found missing meanwhile.
const FOLDED_AGAIN_MAX: u32 = 5;
/// Seals of every plan.
const SEALS: &str = "ff.plan.*.sealed";
/// Messages decoded at once.
const CHUNK: usize = 1_024;

/// The model as of the log's end, and that sequence.
pub(super) async fn load(ledger: &dyn Ledger) -> Result<(Model, u64), LedgerError> {
    let last_seq = ledger.last_seq().await?;
    let (mut checkpoint, went_back) = usable_checkpoint(ledger, last_seq).await?;
    let gaps = gaps_to(ledger, last_seq).await?;
    if let Some((from, to)) = gaps.first() {
        let error = LedgerError::Damaged { from: *from, to: *to };
        tracing::error!(code = error.code(), from, to, gaps = gaps.len(), "{error}");
    }
    // What was lost since the checkpoint may be the end of a plan, which is open again then.
    checkpoint = checkpoint.filter(|c| missing_to(&gaps, c.seq) == c.missing);
    let mark = mark_at(ledger, last_seq).await?;
    let plans = plans_in(ledger, checkpoint, last_seq, true).await?;
    let (told, mut known) = (gaps.clone(), gaps);
    for _ in 0..FOLDED_AGAIN_MAX {
        let mut model = Model::new(last_seq);
        model.begin(known, mark.clone(), went_back);
        fold_open(ledger, &mut model, &plans, last_seq).await?;
        known = gaps_to(ledger, last_seq).await?;
        if let Some((from, to)) = model.gaps().iter().find(|gap| !told.contains(gap)) {
            let error = LedgerError::Damaged { from: *from, to: *to };
            tracing::error!(code = error.code(), from, to, gaps = model.gaps().len(), "{error}");
        }
        if known == model.gaps() {
            model.note_gaps_to(last_seq);
            return Ok((model, last_seq));
        }
        // What was found missing by a filtered read is noted with every plan it may have been about.
        tracing::warn!("events were found missing while plans were read; they are folded anew");
    }
    Err(LedgerError::Unavailable { waited_ms: 0, reason: "the log lost events while plans were folded from it".into() })
}

async fn gaps_to(ledger: &dyn Ledger, last_seq: u64) -> Result<Vec<(u64, u64)>, LedgerError> {
    let mut gaps = ledger.gaps().await?;
    gaps.retain(|(from, _)| *from <= last_seq);
    Ok(gaps)
}

/// Folds the plans that are open. As far as the log is not too long for it, it is read as a whole: a filtered read does not show what
/// is missing, and nobody knows whose events those were.
async fn fold_open(
    ledger: &dyn Ledger,
    model: &mut Model,
    plans: &BTreeMap<PlanId, u64>,
    last_seq: u64,
) -> Result<(), LedgerError> {
    let Some(from) = plans.values().min().map(|seq| (*seq).max(1)) else { return Ok(()) };
    let began = tokio::time::Instant::now();
    let in_one = last_seq.saturating_sub(from) < UNFILTERED_MAX;
    tracing::info!(plans = plans.len(), from, last_seq, in_one, "open plans are read from the log");
    if in_one {
        fold_all(ledger, model, plans, from, last_seq).await?;
    }
    // Also those whose submission was not where it should be.
    let missing: Vec<&PlanId> =
        plans.keys().filter(|plan| model.plan(plan).is_none() && model.unsupported_plan(plan).is_none()).collect();
    for plan in missing {
        fold_into(ledger, model, plan, last_seq).await?;
    }
    tracing::info!(ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX), "open plans are folded");
    Ok(())
}

/// Folds plans from a read of everything, in which each missing sequence shows.
async fn fold_all(
    ledger: &dyn Ledger,
    model: &mut Model,
    plans: &BTreeMap<PlanId, u64>,
    from: u64,
    to: u64,
) -> Result<(), LedgerError> {
    let wanted: BTreeSet<&str> = plans.keys().map(PlanId::as_str).collect();
    let mut events = ledger.read(vec!["ff.>".to_owned()], from, to).await?.ready_chunks(CHUNK);
    let mut expected = from;
    let mut messages = Vec::with_capacity(CHUNK);
    while let Some(chunk) = events.next().await {
        messages.clear();
        for message in chunk {
            let message = message?;
            if message.seq != expected {
                fold_messages(model, &messages);
                messages.clear();
                model.note_hole(expected, message.seq);
            }
            expected = message.seq + 1;
            if subjects::plan_of(&message.subject).is_some_and(|plan| wanted.contains(plan)) {
                messages.push(message);
            }
        }
        fold_messages(model, &messages);
    }
    if expected <= to {
        model.note_hole(expected, to + 1);
    }
    Ok(())
}

fn fold_messages(model: &mut Model, messages: &[Stored]) {
    for (message, event) in messages.iter().zip(decode_all(messages)) {
        model.fold(message, event);
    }
}

/// Reads a stretch of the log as a whole, as far as it is not too long for it, so that [`crate::port::Log::gaps`] knows what is missing
/// in it: a filtered read does not show that. `alive` is called as it goes on.
///
/// # Errors
/// Those of the ledger.
pub async fn look_over(ledger: &dyn Ledger, from: u64, to: u64, alive: impl Fn() + Send) -> Result<(), LedgerError> {
    if to.saturating_sub(from) >= UNFILTERED_MAX {
        return Ok(());
    }
    let mut events = ledger.read(vec!["ff.>".to_owned()], from, to).await?.ready_chunks(CHUNK);
    while let Some(chunk) = events.next().await {
        chunk.into_iter().collect::<Result<Vec<_>, _>>()?;
        alive();
    }
    Ok(())
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

/// Plans folded from the log up to `to`, whether they are over or not; in the order of their ids, those the log does not know left out.
/// All of it is in memory: ask for no more than a hundred at a time, and mind their sizes.
///
/// # Errors
/// Those of the ledger.
pub async fn fold_plans(ledger: &dyn Ledger, plans: &[PlanId], to: u64) -> Result<Vec<PlanView>, LedgerError> {
    let mut gaps = ledger.gaps().await?;
    let plans: Vec<&PlanId> = plans.iter().collect::<BTreeSet<_>>().into_iter().collect();
    for _ in 0..FOLDED_AGAIN_MAX {
        let mut views = Vec::with_capacity(plans.len());
        for group in plans.chunks(PLANS_AT_A_TIME) {
            let mut folding = Vec::with_capacity(group.len());
            for plan in group {
                folding.push(fold_one(ledger, plan, &gaps, to));
            }
            views.extend(try_join_all(folding).await?);
        }
        // What was found missing meanwhile is noted with every plan it may have been about.
        let now = ledger.gaps().await?;
        if now == gaps {
            return Ok(views.into_iter().flatten().collect());
        }
        gaps = now;
    }
    Err(LedgerError::Unavailable { waited_ms: 0, reason: "the log lost events while plans were folded from it".into() })
}

async fn fold_one(ledger: &dyn Ledger, plan: &PlanId, gaps: &Gaps, to: u64) -> Result<Option<PlanView>, LedgerError> {
    let mut model = Model::new(to);
    model.begin(gaps.to_vec(), None, None);
    fold_into(ledger, &mut model, plan, to).await?;
    model.note_gaps_to(to);
    Ok(model.into_views().pop())
}

/// Every plan the log knows up to `to`, with the number of its targets.
///
/// # Errors
/// Those of the ledger.
pub async fn plan_sizes(ledger: &dyn Ledger, to: u64) -> Result<BTreeMap<PlanId, u32>, LedgerError> {
    let mut sizes = BTreeMap::new();
    let mut submissions = ledger.read(vec![subjects::SUBMISSIONS.to_owned()], 1, to).await?;
    while let Some(message) = submissions.next().await {
        sizes.extend(plan_id(&message?).map(|plan| (plan, 0)));
    }
    let mut seals = ledger.read(vec![SEALS.to_owned()], 1, to).await?;
    while let Some(message) = seals.next().await {
        let message = message?;
        if let Some(size) = plan_id(&message).and_then(|plan| sizes.get_mut(&plan)) {
            *size = sealed_count(&message.payload);
        }
    }
    Ok(sizes)
}

fn plan_id(message: &Stored) -> Option<PlanId> {
    subjects::plan_of(&message.subject).and_then(|plan| PlanId::new(plan).ok())
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

/// Folds one plan through a filter. One filter: with several the server looks through whole blocks for each message.
async fn fold_into(ledger: &dyn Ledger, model: &mut Model, plan: &PlanId, to: u64) -> Result<(), LedgerError> {
    let mut events = ledger.read(vec![subjects::plan_log_filter(plan)], 1, to).await?.ready_chunks(CHUNK);
    while let Some(chunk) = events.next().await {
        fold_messages(model, &chunk.into_iter().collect::<Result<Vec<_>, _>>()?);
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
        let mut submissions = ledger.read(vec![subjects::SUBMISSIONS.to_owned()], from, last_seq).await?;
        while let Some(message) = submissions.next().await {
            let message = message?;
            open.extend(plan_id(&message).map(|plan| (plan, message.seq)));
        }
        if open_only && from == 1 {
            // A plan is submitted once and never again.
            let mut summaries = ledger.read(vec![subjects::SUMMARIES.to_owned()], from, last_seq).await?;
            while let Some(message) = summaries.next().await {
                let message = message?;
                if let Some(plan) = plan_id(&message).filter(|_| is_final(&message.payload)) {
                    open.remove(&plan);
                }
            }
        }
    }
    Ok(open)
}
