//! Taking in a plan: checked, completed, and sealed in one atomic batch or not at all.

use std::time::Duration;

use bytes::Bytes;
use fanfold_domain::ids::{PlanId, TargetId};
use fanfold_domain::plan::{PlanEvent, PlanSpec, Seal};
use fanfold_ledger::port::{Append, Appended};
use fanfold_ledger::write::Writer;
use fanfold_wire::api::{ApiError, Problem, SubmitRequest, Submitted};
use fanfold_wire::digest::targets_sha256;
use fanfold_wire::document::PlanDocument;
use fanfold_wire::event::{Envelope, EventError, Header, decode_plan, encode, plan_data, targets_id};
use fanfold_wire::subjects;

use crate::events::{lost_record, writer};
use crate::registry::find_type;
use crate::{Deps, ledger_error};

/// Bytes of ids in one chunk of the target list.
const CHUNK_BYTES: usize = 512 * 1024;
/// Bytes of a document that is parsed where it comes in.
const INLINE_BYTES_MAX: usize = 64 * 1024;
/// Characters kept of who submits.
const BY_CHARS_MAX: usize = 100;
/// How long a sealed plan may take to come into view before the answer is given anyway.
const VIEW_WITHIN: Duration = Duration::from_secs(5);

/// `plan.submit`
pub(crate) async fn submit(deps: &Deps, request: SubmitRequest) -> Result<Submitted, ApiError> {
    let bytes = document(deps, &request).await?;
    let document = parsed(bytes).await?.map_err(ApiError::of_problems)?;
    if let Some(existing) = existing(deps, &document.plan_id).await? {
        return same_or_refused(existing, &document);
    }
    let kind = find_type(deps, &document.type_name, document.type_version).await?;
    let (plan_id, content) = (document.plan_id.clone(), document.content_sha256.clone());
    let traceparent = request.traceparent.filter(|t| is_traceparent(t));
    let (spec, targets) = document.clone().resolve(&kind, deps.clock.now_ms(), traceparent).map_err(ApiError::of_problems)?;
    let by: String = if request.by.is_empty() { "unknown".to_owned() } else { request.by.chars().take(BY_CHARS_MAX).collect() };
    let count = u32::try_from(targets.len()).unwrap_or(u32::MAX);
    let events = batch(writer(deps), spec, targets, &by).map_err(|e| ApiError::new("INTERNAL", e.to_string()))?;
    match deps.ledger.append_atomic(events).await.map_err(|e| ledger_error(&e))? {
        Appended::Stored { seq } => {
            deps.open.reached(seq, VIEW_WITHIN).await;
            Ok(Submitted { plan_id, created: true, targets: count, sealed_seq: seq, content_sha256: content })
        }
        Appended::Refused { code, message } => Err(ApiError::new(code, message)),
        Appended::Duplicate { .. } | Appended::Conflict | Appended::Conflicting { .. } => match existing(deps, &plan_id).await? {
            Some(existing) => same_or_refused(existing, &document),
            None => {
                let message =
                    format!("the log did not take plan {plan_id} (is the disk of the server full?); try again with the same id");
                Err(ApiError::new("UNAVAILABLE", message))
            }
        },
    }
}

/// A list of 100,000 stores takes a moment to check: other requests go on meanwhile. A short one isn't worth another thread.
async fn parsed(bytes: Bytes) -> Result<Result<PlanDocument, Vec<Problem>>, ApiError> {
    if bytes.len() <= INLINE_BYTES_MAX {
        return Ok(PlanDocument::parse(&bytes));
    }
    let parsed = tokio::task::spawn_blocking(move || PlanDocument::parse(&bytes)).await;
    parsed.map_err(|e| ApiError::new("INTERNAL", e.to_string()))
}

async fn document(deps: &Deps, request: &SubmitRequest) -> Result<Bytes, ApiError> {
    match (&request.plan, &request.object) {
        (Some(plan), None) => Ok(Bytes::copy_from_slice(plan.get().as_bytes())),
        (None, Some(name)) if !is_digest(name) => {
            let shown: String = name.chars().take(80).collect();
            Err(ApiError::new(
                "INVALID_REQUEST",
                format!("`{shown}` names no object: objects are named by their sha256, 64 hex digits"),
            ))
        }
        (None, Some(name)) => match deps.ledger.get_object(name).await.map_err(|e| ledger_error(&e))? {
            Some(bytes) => Ok(bytes),
            None => Err(ApiError::new("UNKNOWN_OBJECT", format!("there is no object {name}; put the plan document there first"))),
        },
        _ => Err(ApiError::new(
            "INVALID_REQUEST",
            "give the plan document as `plan`, or the name of the object that holds it as `object`",
        )),
    }
}

/// Whether a text has the form of a W3C trace context; any other is left out.
fn is_traceparent(text: &str) -> bool {
    text.len() == 55 && text.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())
}

/// Whether a text is a sha256 as objects are named by. A name from outside becomes part of a subject: anything else never gets there.
fn is_digest(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// One atomic batch: the plan, its targets in chunks, the seal.
fn batch(writer: Writer<'_>, spec: PlanSpec, targets: Vec<TargetId>, by: &str) -> Result<Vec<Append>, EventError> {
    let plan = spec.plan_id.clone();
    let traceparent = spec.traceparent.clone();
    let seal = Seal {
        count: u32::try_from(targets.len()).unwrap_or(u32::MAX),
        sha256: targets_sha256(targets.iter().map(TargetId::as_str)),
        by: by.to_owned(),
    };
    let mut events = vec![writer.plan_event(&plan, &PlanEvent::Submitted(Box::new(spec)), 0, traceparent.as_deref())?];
    for (k, chunk) in chunks(targets).into_iter().enumerate() {
        let event = PlanEvent::Targets { targets: chunk };
        let id = targets_id(&plan, k);
        let header = Header {
            id: &id,
            source: writer.source,
            subject: plan.as_str(),
            time_ms: Some(writer.now_ms),
            traceparent: traceparent.as_deref(),
        };
        let payload = encode("plan.targets", &plan_data(&event)?, header)?;
        events.push(Append { subject: subjects::plan_event(&plan, "targets"), id, payload: Bytes::from(payload), expect: None });
    }
    let mut sealed = writer.plan_event(&plan, &PlanEvent::Sealed(seal), 0, traceparent.as_deref())?;
    // The batch stands or falls with its first event's expectation that there is no such plan.
    sealed.expect = None;
    events.push(sealed);
    Ok(events)
}

fn chunks(targets: Vec<TargetId>) -> Vec<Vec<TargetId>> {
    let mut chunks = Vec::new();
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    for target in targets {
        let size = target.as_str().len() + 3;
        if bytes + size > CHUNK_BYTES {
            chunks.push(std::mem::take(&mut chunk));
            bytes = 0;
        }
        bytes += size;
        chunk.push(target);
    }
    chunks.push(chunk);
    chunks
}

struct Existing {
    content_sha256: String,
    targets: u32,
    sealed_seq: u64,
}

/// The plan of that id as the log's leader has it.
async fn existing(deps: &Deps, id: &PlanId) -> Result<Option<Existing>, ApiError> {
    if let Some(view) = deps.open.read().plan(id)
        && let Some((seal, sealed_seq, _)) = &view.plan.seal
    {
        let content_sha256 = view.plan.spec.content_sha256.clone();
        return Ok(Some(Existing { content_sha256, targets: seal.count, sealed_seq: *sealed_seq }));
    }
    let last = async |filter: String| deps.ledger.last_under(&filter).await.map_err(|e| ledger_error(&e));
    let submitted = last(subjects::plan_event(id, "submitted")).await?;
    let sealed = last(subjects::plan_event(id, "sealed")).await?;
    let (Some(submitted), Some(sealed)) = (submitted, sealed) else {
        // Both came in one batch: where something else is there under the id, the log has lost them, and it must not begin anew.
        let any = last(subjects::plan_filter(id)).await?.is_some()
            || last(subjects::plan_tasks_filter(id)).await?.is_some()
            || lost_record(deps, id).await.map_err(|e| ledger_error(&e))?;
        return if any { Err(damaged(id)) } else { Ok(None) };
    };
    let read = |payload: &[u8], name: &str| Envelope::parse(payload).and_then(|e| decode_plan(name, e.data));
    match (read(&submitted.payload, "submitted"), read(&sealed.payload, "sealed")) {
        (Ok(PlanEvent::Submitted(spec)), Ok(PlanEvent::Sealed(seal))) => {
            Ok(Some(Existing { content_sha256: spec.content_sha256, targets: seal.count, sealed_seq: sealed.seq }))
        }
        _ => Err(ApiError::new("CORRUPT", format!("plan {id} is in the log but can't be read; run `fanfold doctor`"))),
    }
}

fn damaged(id: &PlanId) -> ApiError {
    let message = format!(
        "plan {id} is in the log, and the log has lost its submission or its seal (`fanfold doctor` says what is missing); give the new plan an id of its own"
    );
    ApiError::new("PLAN_DAMAGED", message)
}

fn same_or_refused(existing: Existing, document: &PlanDocument) -> Result<Submitted, ApiError> {
    if existing.content_sha256 != document.content_sha256 {
        let message = format!(
            "plan {} exists with other content: its sha256 is {}, the one you sent has {}; give the new plan an id of its own",
            document.plan_id, existing.content_sha256, document.content_sha256
        );
        return Err(ApiError::new("PLAN_EXISTS", message));
    }
    Ok(Submitted {
        plan_id: document.plan_id.clone(),
        created: false,
        targets: existing.targets,
        sealed_seq: existing.sealed_seq,
        content_sha256: existing.content_sha256,
    })
}
