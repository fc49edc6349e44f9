//! Writing one plan event: expecting the plan's last sequence, looked at again when somebody else wrote first.

use std::time::Duration;

use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::PlanEvent;
use fanfold_domain::planted::{self, Planted};
use fanfold_domain::view::PlanView;
use fanfold_ledger::open::Known;
use fanfold_ledger::port::{Appended, LedgerError};
use fanfold_ledger::write::Writer;
use fanfold_wire::api::{ApiError, Noted};
use fanfold_wire::record::plan_key;
use fanfold_wire::subjects;

use crate::{Deps, ledger_error};

const SOURCE: &str = "/fanfold/api";
/// Times a request is looked at again when somebody else wrote about the plan first.
const TRIES: usize = 20;
/// How long a write may take to come into view.
const VIEW_WITHIN: Duration = Duration::from_secs(5);

/// What a request comes to, judged by the plan as it stands.
pub(crate) enum Judged {
    /// Write this.
    Write(PlanEvent),
    /// Write this, which means so many tasks.
    WriteAbout(PlanEvent, u32),
    /// It means no task: nothing is written.
    Nothing,
    /// It was asked before, at this sequence.
    Already(u64),
}

/// This service as a writer, now.
pub(crate) fn writer(deps: &Deps) -> Writer<'static> {
    Writer { source: SOURCE, now_ms: deps.clock.now_ms() }
}

/// Judges by the plan in view and writes what comes of it; again when the view was behind.
pub(crate) async fn note(
    deps: &Deps,
    id: &PlanId,
    judge: impl Fn(&PlanView) -> Result<Judged, ApiError>,
) -> Result<Noted, ApiError> {
    let mut is_current = false;
    for _ in 0..TRIES {
        let in_view = {
            let model = deps.open.read();
            match model.plan(id).filter(|v| !v.is_over()) {
                Some(view) => Ok((judge(view)?, view.plan.plan_seq, view.plan.spec.traceparent.clone())),
                None => Err(model.known(id)),
            }
        };
        let (judged, plan_seq, traceparent) = match in_view {
            Ok(in_view) => in_view,
            Err(known) => return Err(not_open(deps, id, known).await),
        };
        let noted = |seq, created, tasks| Noted { plan_id: id.clone(), seq, created, tasks };
        let (event, tasks) = match judged {
            Judged::Already(seq) => return Ok(noted(seq, false, None)),
            Judged::Nothing if is_current => return Ok(noted(plan_seq, false, Some(0))),
            Judged::Nothing => {
                // That there is nothing is said only by who has seen everything.
                let last = deps.ledger.last_seq().await.map_err(|e| ledger_error(&e))?;
                if !deps.open.reached(last, VIEW_WITHIN).await {
                    return Err(ApiError::new("BUSY", "this API has not yet seen all of the log; try again"));
                }
                is_current = true;
                continue;
            }
            Judged::Write(event) => (event, None),
            Judged::WriteAbout(event, tasks) => (event, Some(tasks)),
        };
        let append = writer(deps)
            .plan_event(id, &event, plan_seq, traceparent.as_deref())
            .map_err(|e| ApiError::new("INTERNAL", e.to_string()))?;
        let filter = subjects::plan_filter(id);
        let answers = match deps.ledger.append(vec![append]).await {
            Err(_) if planted::is(Planted::NotedUnwritten) => {
                return Ok(noted(plan_seq, true, tasks));
            }
            answers => answers.map_err(|e| ledger_error(&e))?,
        };
        match answers.into_iter().next() {
            Some(Appended::Stored { seq } | Appended::Duplicate { seq }) => {
                deps.open.reached(seq, VIEW_WITHIN).await;
                return Ok(noted(seq, true, tasks));
            }
            Some(Appended::Conflict | Appended::Conflicting { .. }) => {
                // Somebody wrote first: wait until their word is in view, then judge again.
                if let Some(last) = deps.ledger.last_under(&filter).await.map_err(|e| ledger_error(&e))? {
                    deps.open.reached(last.seq, VIEW_WITHIN).await;
                }
            }
            Some(Appended::Refused { code, message }) => return Err(ApiError::new(code, message)),
            None => return Err(ApiError::new("INTERNAL", "the log gave no answer")),
        }
    }
    Err(ApiError::new("BUSY", format!("plan {id} changes too fast to write about it; try again")))
}

/// Why a plan can't be written about.
pub(crate) async fn not_open(deps: &Deps, id: &PlanId, known: Known) -> ApiError {
    match known {
        Known::Over => return closed(id),
        Known::Unsupported(rules) => return unsupported(id, rules),
        Known::Open | Known::Unknown => {}
    }
    match deps.ledger.last_under(&subjects::plan_event(id, "submitted")).await {
        Ok(Some(_)) => closed(id),
        Ok(None) => unknown_or_lost(deps, id).await,
        Err(error) => ledger_error(&error),
    }
}

pub(crate) fn closed(id: &PlanId) -> ApiError {
    ApiError::new("PLAN_CLOSED", format!("plan {id} is closed; submit a follow-up plan for what is missing"))
}

/// The plan is another build's to judge.
pub(crate) fn unsupported(id: &PlanId, rules: Option<u32>) -> ApiError {
    let version = rules.map_or("a submission that can't be read here".to_owned(), |rules| format!("rules version {rules}"));
    let message = format!(
        "plan {id} has {version} and this build folds rules up to {}; ask services of the version that submitted it",
        fanfold_domain::RULES_VERSION
    );
    ApiError::new("UNSUPPORTED_RULES", message)
}

/// Why there is nothing to show of a plan.
pub(crate) async fn absent(deps: &Deps, id: &PlanId) -> ApiError {
    match fanfold_ledger::open::unsupported_rules(deps.ledger.as_ref(), id).await {
        Ok(Some(rules)) => unsupported(id, rules),
        Ok(None) => unknown(id),
        Err(error) => ledger_error(&error),
    }
}

/// Nothing was submitted under this id, as far as the log can tell: either there is no such plan, or its beginning is lost.
pub(crate) async fn unknown_or_lost(deps: &Deps, id: &PlanId) -> ApiError {
    for filter in [subjects::plan_filter(id), subjects::plan_tasks_filter(id)] {
        match deps.ledger.last_under(&filter).await {
            Ok(Some(_)) => return lost_plan(id),
            Ok(None) => {}
            Err(error) => return ledger_error(&error),
        }
    }
    // Where the log lacks something, a record may be the only trace of it.
    match lost_record(deps, id).await {
        Ok(false) => unknown(id),
        Ok(true) => lost_plan(id),
        Err(error) => ledger_error(&error),
    }
}

/// Whether the log is known to lack something and there is a record of this plan.
pub(crate) async fn lost_record(deps: &Deps, id: &PlanId) -> Result<bool, LedgerError> {
    Ok(!deps.ledger.gaps().await?.is_empty() && deps.ledger.get_state(&plan_key(id)).await?.is_some())
}

fn lost_plan(id: &PlanId) -> ApiError {
    let message = format!(
        "the log has lost the beginning of plan {id}: nobody can go on with it (`fanfold doctor` says what is missing). Restore a backup or a replica, or submit its targets again as a plan of another id"
    );
    ApiError::new("PLAN_LOST", message)
}

fn unknown(id: &PlanId) -> ApiError {
    ApiError::new("UNKNOWN_PLAN", format!("there is no plan {id}; `fanfold plan ls` shows those there are"))
}
