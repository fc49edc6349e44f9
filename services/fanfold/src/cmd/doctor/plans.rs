//! Plans of which the log has lost what nobody can do without, and the way out.

use std::collections::BTreeSet;

use fanfold_domain::ids::PlanId;
use fanfold_ledger::port::LedgerError;
use fanfold_wire::api::{PlanList, PlanListRequest};
use fanfold_wire::record::{PlanRecord, PlanStatus};
use fanfold_wire::subjects::plan_event;
use futures::StreamExt;

use super::{Check, bad, ok};
use crate::error::CliError;
use crate::render::format::number;
use crate::session::Session;

/// Plans of one page of an answer, and pages looked at.
const PAGE: u32 = 1_000;
const PAGES_MAX: u32 = 1_000;
/// Plans named one by one.
const NAMED_MAX: usize = 5;

/// Open plans without their whole list; and those of which not even the beginning is left, where the log is known to lack something or
/// everything is asked for. Nothing where the API does not answer: that is a finding of its own.
pub(super) async fn damaged(session: &Session, deep: bool) -> Vec<Check> {
    const ADVICE: &str = "`fanfold plan close PLAN` ends one, it gets no further summary; a backup or a replica may have what is lost, \
        else submit its targets again as a plan of another id";
    const BEGIN: &str =
        "nobody goes on with them: restore a backup or a replica, or submit their targets again as plans of other ids";
    let Ok(open) = open_plans(session).await else { return Vec::new() };
    let named: Vec<String> =
        open.iter().filter_map(|plan| Some(format!("{} ({})", plan.plan_id, plan.lost_of_list()?))).collect();
    let mut checks = vec![if named.is_empty() {
        ok("plans", format!("{} open, with all of their targets", number(open.len() as u64)))
    } else {
        bad("plans", format!("{} damaged, the log has lost part of each: {}", number(named.len() as u64), names(&named)), ADVICE)
    }];
    if deep || session.ledger.gaps().await.is_ok_and(|gaps| !gaps.is_empty()) {
        match without_beginning(session, &open).await {
            Ok(lost) if lost.is_empty() => {}
            Ok(lost) => checks.push(bad("plans", format!("the log has lost the beginning of {}", names(&lost)), BEGIN)),
            Err(error) => checks.push(bad("plans", error, "see `log` above")),
        }
    }
    checks
}

async fn open_plans(session: &Session) -> Result<Vec<PlanRecord>, CliError> {
    let (mut plans, mut after) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let request = PlanListRequest { limit: Some(PAGE), after, open: true };
        let page: PlanList = session.call("plan", "list", &request).await?;
        plans.extend(page.plans);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(plans)
}

/// Plans that have a record as open ones, are open to no service, and were never submitted as far as the log can tell.
async fn without_beginning(session: &Session, open: &[PlanRecord]) -> Result<Vec<String>, LedgerError> {
    let open: BTreeSet<&PlanId> = open.iter().map(|plan| &plan.plan_id).collect();
    let mut records = session.ledger.list_state("plan.*").await?;
    let mut lost = Vec::new();
    while let Some(entry) = records.next().await {
        let record = serde_json::from_slice::<PlanRecord>(&entry?.value).ok();
        let Some(plan) = record.filter(|r| r.status != PlanStatus::Closed && !open.contains(&r.plan_id)) else { continue };
        if session.ledger.last_under(&plan_event(&plan.plan_id, "submitted")).await?.is_none() {
            lost.push(plan.plan_id.to_string());
        }
    }
    Ok(lost)
}

fn names(all: &[String]) -> String {
    let more = if all.len() > NAMED_MAX { ", and more" } else { "" };
    format!("{}{more}", all.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", "))
}
