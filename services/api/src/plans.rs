//! Queries and requests about plans.

use std::collections::BTreeMap;
use std::time::Duration;

use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::{Asked, PlanEvent};
use fanfold_domain::view::PlanView;
use fanfold_ledger::open::{Known, fold_plan};
use fanfold_wire::api::{ApiError, Noted, PlanList, PlanListRequest, PlanRequest};
use fanfold_wire::record::{PlanRecord, PlanStatus, plan_key};
use futures::StreamExt;

use crate::events::{Judged, absent, note, unsupported};
use crate::{Deps, ledger_error};

/// Largest page.
const PAGE_MAX: u32 = 1_000;
const PAGE: u32 = 100;
/// Times the bucket is asked for the record of a plan that has just been closed.
const CLOSED_TRIES: usize = 40;

/// `plan.get`
pub(crate) async fn get(deps: &Deps, request: PlanRequest) -> Result<PlanRecord, ApiError> {
    record(deps, &request.plan_id).await
}

/// A plan's record: from the fold while it is open, else from the bucket, which may be a moment behind.
pub(crate) async fn record(deps: &Deps, id: &PlanId) -> Result<PlanRecord, ApiError> {
    let mut ended = false;
    for _ in 0..CLOSED_TRIES {
        let known = {
            let model = deps.open.read();
            if let Some(view) = model.plan(id) {
                return Ok(PlanRecord::of(view));
            }
            model.known(id)
        };
        if let Known::Unsupported(rules) = known {
            return Err(unsupported(id, rules));
        }
        let stored = deps.ledger.get_state(&plan_key(id)).await.map_err(|e| ledger_error(&e))?;
        let stored = stored.and_then(|e| serde_json::from_slice::<PlanRecord>(&e.value).ok());
        ended = known == Known::Over;
        match (stored, known) {
            (Some(record), known) if known != Known::Over || record.status == PlanStatus::Closed => return Ok(record),
            (None, Known::Unknown) => break,
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    if ended {
        // No projector has written it: the log knows.
        let seq = deps.open.read().seq();
        let view = fold_plan(deps.ledger.as_ref(), id, seq).await.map_err(|e| ledger_error(&e))?;
        if let Some(view) = view {
            return Ok(PlanRecord::of(&view));
        }
    }
    Err(absent(deps, id).await)
}

/// `plan.list`
pub(crate) async fn list(deps: &Deps, request: PlanListRequest) -> Result<PlanList, ApiError> {
    let limit = request.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX) as usize;
    let mut plans: BTreeMap<PlanId, PlanRecord> = BTreeMap::new();
    if !request.open {
        let mut stored = deps.ledger.list_state("plan.*").await.map_err(|e| ledger_error(&e))?;
        while let Some(entry) = stored.next().await {
            let entry = entry.map_err(|e| ledger_error(&e))?;
            if let Ok(record) = serde_json::from_slice::<PlanRecord>(&entry.value) {
                plans.insert(record.plan_id.clone(), record);
            }
        }
    }
    for view in deps.open.read().open() {
        plans.insert(view.plan.id().clone(), PlanRecord::of(view));
    }
    let after = |id: &PlanId| request.after.as_ref().is_none_or(|after| id > after);
    let mut page: Vec<PlanRecord> = plans.into_iter().filter(|(id, _)| after(id)).map(|(_, r)| r).take(limit + 1).collect();
    let fits = crate::fitting(&page, deps.ledger.max_payload()).min(limit);
    let more = page.len() > fits;
    page.truncate(fits);
    let next = page.last().filter(|_| more).map(|r| r.plan_id.clone());
    Ok(PlanList { plans: page, next })
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
