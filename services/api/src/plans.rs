//! Queries and requests about plans.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::{Asked, PlanEvent};
use fanfold_domain::view::PlanView;
use fanfold_ledger::open::Known;
use fanfold_wire::api::{ApiError, Behind, Noted, PlanList, PlanListRequest, PlanRequest};
use fanfold_wire::record::{Checkpoint, PlanRecord, PlanStatus, plan_key};
use fanfold_wire::subjects;

use crate::events::{Judged, absent, note, unknown_or_lost, unsupported};
use crate::{Deps, Sources, ledger_error};

/// Largest page.
const PAGE_MAX: u32 = 1_000;
const PAGE: u32 = 100;
/// Times the bucket is asked for the record of a plan that has just been closed, and the pause between.
const CLOSED_TRIES: usize = 10;
const CLOSED_PAUSE: Duration = Duration::from_millis(50);
/// Plans without a record that are folded for one page of a list; the rest is named.
const FOLDED_PER_LIST: usize = 32;

/// Where a plan that is not in memory can be looked up.
pub(crate) enum Source {
    /// Its records are in the bucket; this is its own, and it is over.
    Records(Box<PlanRecord>),
    /// Nobody has written them all: this is what the log says.
    Log(Arc<PlanView>),
}

/// `plan.get`
pub(crate) async fn get(deps: &Sources, request: PlanRequest) -> Result<PlanRecord, ApiError> {
    record(deps, &request.plan_id).await
}

/// A plan's record: from the fold while it is open, else from the bucket or the log.
pub(crate) async fn record(deps: &Sources, id: &PlanId) -> Result<PlanRecord, ApiError> {
    if let Some(view) = deps.open.read().plan(id) {
        return Ok(PlanRecord::of(view));
    }
    Ok(match source(deps, id).await? {
        Source::Records(record) => *record,
        Source::Log(view) => PlanRecord::of(&view),
    })
}

/// Where to look up a plan that is not in memory. The record of a plan that is over is written after those of its tasks: where it is
/// there, they are. One that has just ended is given a moment.
pub(crate) async fn source(deps: &Sources, id: &PlanId) -> Result<Source, ApiError> {
    if let Some(view) = deps.folded.kept(id).await {
        return Ok(Source::Log(view));
    }
    for _ in 0..CLOSED_TRIES {
        let known = deps.open.read().known(id);
        if let Known::Unsupported(rules) = known {
            return Err(unsupported(id, rules));
        }
        let stored = deps.ledger.get_state(&plan_key(id)).await.map_err(|e| ledger_error(&e))?;
        let stored = stored.and_then(|e| serde_json::from_slice::<PlanRecord>(&e.value).ok());
        match stored.filter(|record| record.status == PlanStatus::Closed) {
            Some(record) => return Ok(Source::Records(Box::new(record))),
            None if known != Known::Over => break,
            None => tokio::time::sleep(CLOSED_PAUSE).await,
        }
    }
    Ok(Source::Log(from_log(deps, id).await?))
}

/// A plan as the log has it.
pub(crate) async fn from_log(deps: &Sources, id: &PlanId) -> Result<Arc<PlanView>, ApiError> {
    // One subject, asked of the leader: an id that was never used costs no more.
    let submitted = deps.ledger.last_under(&subjects::plan_event(id, "submitted")).await.map_err(|e| ledger_error(&e))?;
    if submitted.is_none() {
        return Err(unknown_or_lost(deps, id).await);
    }
    let view = deps.folded.fold(deps.ledger.as_ref(), id).await.map_err(|e| ledger_error(&e))?;
    match view {
        Some(view) => Ok(view),
        None => Err(absent(deps, id).await),
    }
}

/// `plan.list`
pub(crate) async fn list(deps: &Sources, request: PlanListRequest) -> Result<PlanList, ApiError> {
    let limit = request.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX) as usize;
    let after = |id: &PlanId| request.after.as_ref().is_none_or(|after| id > after);
    let mut plans: BTreeMap<PlanId, PlanRecord> = BTreeMap::new();
    let (mut behind, mut last) = (None, None);
    if !request.open {
        // Before the records: what it leaves out may be among them, never the other way round.
        let written = written_seq(deps).await?;
        let from = request.after.as_ref().map(PlanId::as_str);
        let found =
            deps.plans.records::<PlanRecord>(deps.ledger.as_ref(), from, limit + 1).await.map_err(|e| ledger_error(&e))?;
        // What lies behind a whole page is on a later one.
        last = found.get(limit).map(|(_, record)| record.plan_id.clone());
        plans.extend(found.into_iter().map(|(_, record)| (record.plan_id.clone(), record)));
        behind =
            catch_up(deps, &mut plans, written, limit, |id| after(id) && last.as_ref().is_none_or(|last| id <= last)).await?;
    }
    let here = |view: &&PlanView| after(view.plan.id()) && last.as_ref().is_none_or(|last| view.plan.id() <= last);
    for view in deps.open.read().open().filter(here).take(limit + 1) {
        plans.insert(view.plan.id().clone(), PlanRecord::of(view));
    }
    let mut page: Vec<PlanRecord> = plans.into_values().take(limit + 1).collect();
    let fits = crate::fitting(&page, deps.ledger.max_payload()).min(limit);
    let more = page.len() > fits;
    page.truncate(fits);
    let next = page.last().filter(|_| more).map(|r| r.plan_id.clone());
    Ok(PlanList { plans: page, next, behind })
}

/// Up to where records are written; `None`: nobody says.
async fn written_seq(deps: &Sources) -> Result<Option<u64>, ApiError> {
    let entry = deps.ledger.get_checkpoint().await.map_err(|e| ledger_error(&e))?;
    Ok(entry.and_then(|e| Checkpoint::parse(&e.value)).map(|c| c.seq))
}

/// Puts what has ended since the records were written in their place; what is too much for one answer, or can't be known, is told.
async fn catch_up(
    deps: &Sources,
    plans: &mut BTreeMap<PlanId, PlanRecord>,
    written: Option<u64>,
    limit: usize,
    after: impl Fn(&PlanId) -> bool,
) -> Result<Option<Behind>, ApiError> {
    let (mut ended, log_seq) = {
        let model = deps.open.read();
        let ended: Vec<PlanId> = model.ended_after(written.unwrap_or(0)).filter(|id| after(id)).cloned().collect();
        (ended, model.seq())
    };
    ended.retain(|id| plans.get(id).is_none_or(|record| record.status != PlanStatus::Closed));
    ended.sort_unstable();
    let mut left = Vec::new();
    let mut folded = 0;
    // Whatever comes after a page of them is on a later page.
    for id in ended.into_iter().take(limit + 1) {
        if folded < FOLDED_PER_LIST {
            folded += 1;
            let view = from_log(deps, &id).await?;
            plans.insert(id, PlanRecord::of(&view));
        } else {
            plans.remove(&id);
            left.push(id);
        }
    }
    let behind = Behind { written_seq: written.unwrap_or(0), log_seq, plans: left };
    Ok(Some(behind).filter(|b| !b.plans.is_empty() || (written.is_none() && log_seq > 0)))
}

fn asked(request: &PlanRequest) -> Asked {
    let by = if request.by.is_empty() { "unknown".to_owned() } else { request.by.chars().take(100).collect() };
    Asked { by, reason: request.reason.chars().take(500).collect() }
}

/// `plan.cancel`
pub(crate) async fn cancel(deps: &Deps, request: PlanRequest) -> Result<Noted, ApiError> {
    note(deps, &request.plan_id, |PlanView { plan, .. }| match (&plan.cancel, &plan.close) {
        (Some((_, seq)), _) => Ok(Judged::Already(*seq)),
        (None, Some(_)) => Err(crate::events::closed(plan.id())),
        (None, None) => Ok(Judged::Write(PlanEvent::CancelRequested(asked(&request)))),
    })
    .await
}

/// `plan.close`
pub(crate) async fn close(deps: &Deps, request: PlanRequest) -> Result<Noted, ApiError> {
    note(deps, &request.plan_id, |PlanView { plan, .. }| match &plan.close {
        Some((_, seq, _)) => Ok(Judged::Already(*seq)),
        None => Ok(Judged::Write(PlanEvent::CloseRequested(asked(&request)))),
    })
    .await
}
