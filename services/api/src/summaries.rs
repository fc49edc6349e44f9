//! Summaries, as the log names them and the object store holds them.

use fanfold_domain::plan::{PlanEvent, Summarised};
use fanfold_ledger::port::{LedgerError, Stored};
use fanfold_wire::api::{ApiError, SummaryAnswer, SummaryRequest};
use fanfold_wire::event::{Envelope, decode_plan};
use fanfold_wire::record::{PlanRecord, PlanStatus};
use fanfold_wire::subjects;
use futures::StreamExt;
use serde_json::value::RawValue;

use crate::plans::record;
use crate::{AROUND_BYTES, Sources, ledger_error};

/// `summary.get`
pub(crate) async fn get(deps: &Sources, request: SummaryRequest) -> Result<SummaryAnswer, ApiError> {
    let subject = subjects::plan_event(&request.plan_id, "summarised");
    let found = match request.revision {
        None => deps.ledger.last_under(&subject).await.map_err(|e| ledger_error(&e))?,
        Some(revision) => {
            let last_seq = deps.ledger.last_seq().await.map_err(|e| ledger_error(&e))?;
            let mut all = deps.ledger.read(vec![subject], 1, last_seq).await.map_err(|e| ledger_error(&e))?;
            let mut found = None;
            while let Some(message) = all.next().await {
                let message = message.map_err(|e| ledger_error(&e))?;
                if read(&message).is_some_and(|s| s.this.revision == revision) {
                    found = Some(message);
                    break;
                }
            }
            found
        }
    };
    let Some((message, summary)) = found.and_then(|m| read(&m).map(|s| (m, s))) else {
        let plan = record(deps, &request.plan_id).await?;
        if let Some(lost) = lost(deps, &plan, request.revision).await? {
            return Err(ApiError::new("SUMMARY_LOST", lost));
        }
        let which =
            request.revision.map_or("summary yet; it comes at the deadline at the latest".to_owned(), |r| format!("summary {r}"));
        return Err(ApiError::new("NO_SUMMARY", format!("plan {} has no {which}", request.plan_id)));
    };
    let object = summary.this.sha256.clone();
    let bytes = match deps.ledger.get_object(&object).await {
        Err(LedgerError::Corrupt(what)) => {
            let message = format!("{what}; `fanfold rebuild --plan {}` writes it anew from the log", request.plan_id);
            return Err(ApiError::new("SUMMARY_DAMAGED", message));
        }
        found => found.map_err(|e| ledger_error(&e))?,
    };
    let Some(bytes) = bytes else {
        let message = format!(
            "the document {object} is missing from the object store; `fanfold replay --plan {} --until {} --json` computes it again",
            request.plan_id, summary.this.as_of_seq
        );
        return Err(ApiError::new("OBJECT_MISSING", message));
    };
    let fits = bytes.len() + AROUND_BYTES < deps.ledger.max_payload();
    let document = if fits { String::from_utf8(bytes.to_vec()).ok().and_then(|t| RawValue::from_string(t).ok()) } else { None };
    Ok(SummaryAnswer { summary, seq: message.seq, emitted_ms: message.time_ms, document, object })
}

/// What to say where the log ought to have the summary asked for, or may have lost it.
async fn lost(deps: &Sources, plan: &PlanRecord, revision: Option<u32>) -> Result<Option<String>, ApiError> {
    let id = &plan.plan_id;
    if let Some(lost) = plan.lost_of_list().filter(|_| plan.summary.is_none()) {
        return Ok(Some(format!(
            "plan {id} has no summary and gets none: the log has lost {lost}, and nobody can say who is in it; `fanfold plan close {id}` ends it"
        )));
    }
    if let Some(known) = plan.summary.as_ref().filter(|known| revision.is_none_or(|wanted| wanted <= known.revision)) {
        let wanted = revision.unwrap_or(known.revision);
        let document = if wanted == known.revision { format!(" (its document is {})", known.sha256) } else { String::new() };
        return Ok(Some(format!("the log has lost the event that names summary {wanted} of plan {id}{document}")));
    }
    let may_be = plan.holes.is_some() || !deps.ledger.gaps().await.map_err(|e| ledger_error(&e))?.is_empty();
    let none = plan.summary.is_none() && (plan.holes.is_some() || plan.status == PlanStatus::Closed);
    Ok((may_be && none).then(|| format!("plan {id} has no summary, and the log has lost events: it may be among them")))
}

fn read(message: &Stored) -> Option<Summarised> {
    let envelope = Envelope::parse(&message.payload).ok()?;
    match decode_plan("summarised", envelope.data) {
        Ok(PlanEvent::Summarised(summarised)) => Some(*summarised),
        _ => None,
    }
}
