//! Every variant of every event, and the names in use. A variant that is added to an enum stops this file from compiling.

use std::sync::Arc;

use fanfold_domain::Json;
use fanfold_domain::aggregate::{AggregateOp, AggregateSpec};
use fanfold_domain::event::{Dispatched, ExpiryReason, PROTOCOL_VERSION, TaskEvent, TimeoutKind, Verdict};
use fanfold_domain::ids::{PlanId, TargetId, TaskId, TerminalId};
use fanfold_domain::plan::{
    Asked, Below, Converge, Limits, Moment, PlanEvent, PlanSpec, RequeueSelector, Seal, Summarised, SummaryKind, SummaryRef,
    Timeouts, TypeRef,
};
use fanfold_domain::retry::{Backoff, RetryPolicy};
use fanfold_domain::sets::SetCounts;
use fanfold_domain::summary::PlanVerdict;
use serde_json::value::RawValue;

/// Name of the event that is neither a plan's nor a task's.
pub(crate) const FENCE: &str = "fence.taken";

pub(crate) fn plan_id() -> PlanId {
    PlanId::new("plan_7788").unwrap()
}

pub(crate) fn task_id(target: &str) -> TaskId {
    TaskId::parse(&format!("plan_7788.{target}.main")).unwrap()
}

pub(crate) fn target(text: &str) -> TargetId {
    TargetId::new(text).unwrap()
}

pub(crate) fn terminal(text: &str) -> TerminalId {
    TerminalId::new(text).unwrap()
}

pub(crate) fn json(text: &str) -> Json {
    Arc::from(RawValue::from_string(text.to_owned()).unwrap())
}

pub(crate) fn spec() -> PlanSpec {
    let aggregate = |name: &str, op, pointer: &str, k, p| AggregateSpec { name: name.into(), op, pointer: pointer.into(), k, p };
    PlanSpec {
        plan_id: plan_id(),
        title: Some("Logs of 17 September".into()),
        business_key: Some("ops-2026-09-17".into()),
        kind: TypeRef { name: "collect_log".into(), version: 1 },
        input: json(r#"{"date":"2026-09-17"}"#),
        deadline: Moment::AfterSealMs(120_000),
        expires: Moment::AtMs(1_789_100_000_000),
        limits: Limits { in_flight: 100 },
        converge: Converge { min_success: 0.9, below: Below::Reserved },
        retry: RetryPolicy {
            backoff_ms: Backoff::List(vec![300, 600]),
            business: vec!["NO_SUCH_DATE".into()],
            ..RetryPolicy::default()
        },
        timeouts: Timeouts { deliver_ms: 10_000, run_ms: 300_000, progress_ms: Some(60_000) },
        aggregates: vec![
            aggregate("lines", AggregateOp::Sum, "/lines", None, None),
            aggregate("fewest", AggregateOp::Min, "/lines", None, None),
            aggregate("most", AggregateOp::Max, "/lines", None, None),
            aggregate("mean", AggregateOp::Avg, "/lines", None, None),
            aggregate("p50", AggregateOp::Percentile, "/lines", None, Some(50.0)),
            aggregate("byVersion", AggregateOp::CountBy, "/version", None, None),
            aggregate("versions", AggregateOp::Distinct, "/version", None, None),
            aggregate("top", AggregateOp::TopK, "/lines", Some(2), None),
            aggregate("nothing", AggregateOp::Avg, "/nothing", None, None),
        ],
        output_schema: json(r#"{"type":"object"}"#),
        rules: fanfold_domain::RULES_VERSION,
        content_sha256: fanfold_wire::digest::sha256_hex(b"content"),
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into()),
    }
}

pub(crate) fn dispatched(target: &str, attempt: u32) -> TaskEvent {
    TaskEvent::Dispatched(Box::new(Dispatched {
        protocol_version: PROTOCOL_VERSION,
        attempt,
        terminal: terminal(target),
        journal: "j-5f0c".into(),
        boot: "b-91aa".into(),
        kind: "collect_log".into(),
        version: 1,
        input: json(r#"{"date":"2026-09-17"}"#),
        run_timeout_ms: 300_000,
    }))
}

pub(crate) fn succeeded(attempt: u32, result: &str) -> TaskEvent {
    TaskEvent::Succeeded {
        attempt,
        result: json(result),
        run_ms: Some(412),
        verdict: Verdict { valid: true, errors: Vec::new() },
    }
}

/// At least one of each variant, with optional parts present and absent.
pub(crate) fn task_events() -> Vec<TaskEvent> {
    let (attempt, code) = (1, || "NETWORK".to_owned());
    let invalid = Verdict { valid: false, errors: vec!["/lines: -1 is less than the minimum of 0".into()] };
    vec![
        dispatched("SH_0312", 1),
        TaskEvent::Deferred { last_seen_ms: None },
        TaskEvent::Deferred { last_seen_ms: Some(1_789_000_000_000) },
        TaskEvent::Released,
        TaskEvent::AttemptTimedOut { attempt, kind: TimeoutKind::Delivery },
        TaskEvent::AttemptTimedOut { attempt, kind: TimeoutKind::Run },
        TaskEvent::AttemptTimedOut { attempt, kind: TimeoutKind::Progress },
        TaskEvent::AttemptLost { attempt },
        TaskEvent::StopRequested { attempt },
        TaskEvent::CancelRequested { attempt: 0 },
        TaskEvent::CancelRequested { attempt },
        TaskEvent::Cancelled,
        TaskEvent::Expired { reason: ExpiryReason::Expired, attempt: 0 },
        TaskEvent::Expired { reason: ExpiryReason::Closed, attempt },
        TaskEvent::Requeued { request_seq: 60 },
        TaskEvent::Started { attempt },
        TaskEvent::Progressed { attempt, k: 63, step: "scan".into(), ms: 12 },
        succeeded(1, "null"),
        TaskEvent::Succeeded { attempt, result: json(r#"{"lines":-1}"#), run_ms: None, verdict: invalid },
        TaskEvent::Failed { attempt, code: code(), message: String::new(), run_ms: None },
        TaskEvent::Failed { attempt, code: code(), message: "gone".into(), run_ms: Some(30) },
        TaskEvent::Rejected { attempt, code: "BUSY".into(), message: "no slot".into() },
        TaskEvent::Stopped { attempt },
    ]
}

/// At least one of each variant, with optional parts present and absent.
pub(crate) fn plan_events() -> Vec<PlanEvent> {
    let bare = PlanSpec {
        title: None,
        business_key: None,
        traceparent: None,
        aggregates: Vec::new(),
        retry: RetryPolicy::default(),
        timeouts: Timeouts { deliver_ms: 1, run_ms: 1, progress_ms: None },
        ..spec()
    };
    let reference = |revision| SummaryRef { revision, as_of_seq: 61, sha256: fanfold_wire::digest::sha256_hex(b"summary") };
    let summarised = |kind, previous, verdict| {
        let counts = SetCounts { succeeded: 2, ..SetCounts::default() };
        PlanEvent::Summarised(Box::new(Summarised { this: reference(2), kind, counts, previous, verdict }))
    };
    let seal =
        Seal { count: 2, sha256: fanfold_wire::digest::targets_sha256(["SH_0312", "SH_0313"].into_iter()), by: "ops".into() };
    vec![
        PlanEvent::Submitted(Box::new(spec())),
        PlanEvent::Submitted(Box::new(bare)),
        PlanEvent::Targets { targets: vec![target("SH_0312"), target("SH_0313")] },
        PlanEvent::Sealed(seal),
        PlanEvent::Paused,
        PlanEvent::Resumed,
        PlanEvent::LimitsChanged(Limits { in_flight: 1 }),
        PlanEvent::CancelRequested(Asked { by: "ops".into(), reason: "wrong day".into() }),
        PlanEvent::RequeueRequested(RequeueSelector::Tasks(vec![task_id("SH_0312")])),
        PlanEvent::RequeueRequested(RequeueSelector::Failed { codes: vec!["NETWORK".into()] }),
        PlanEvent::CloseRequested(Asked { by: "convergence".into(), reason: String::new() }),
        PlanEvent::Cancelled,
        PlanEvent::DeadlineReached,
        PlanEvent::Closed,
        summarised(SummaryKind::Complete, None, PlanVerdict::Full),
        summarised(SummaryKind::Partial, None, PlanVerdict::Reserved),
        summarised(SummaryKind::Update, Some(reference(1)), PlanVerdict::Failed),
        summarised(SummaryKind::Final, Some(reference(1)), PlanVerdict::Full),
    ]
}

/// The same number of arms as the enum has variants: the place of a task event's variant, and how many there are.
pub(crate) fn task_variant(event: &TaskEvent) -> (usize, usize) {
    let place = match event {
        TaskEvent::Dispatched(_) => 0,
        TaskEvent::Deferred { .. } => 1,
        TaskEvent::Released => 2,
        TaskEvent::AttemptTimedOut { .. } => 3,
        TaskEvent::AttemptLost { .. } => 4,
        TaskEvent::StopRequested { .. } => 5,
        TaskEvent::CancelRequested { .. } => 6,
        TaskEvent::Cancelled => 7,
        TaskEvent::Expired { .. } => 8,
        TaskEvent::Requeued { .. } => 9,
        TaskEvent::Started { .. } => 10,
        TaskEvent::Progressed { .. } => 11,
        TaskEvent::Succeeded { .. } => 12,
        TaskEvent::Failed { .. } => 13,
        TaskEvent::Rejected { .. } => 14,
        TaskEvent::Stopped { .. } => 15,
    };
    (place, 16)
}

/// As [`task_variant`], of a plan event.
pub(crate) fn plan_variant(event: &PlanEvent) -> (usize, usize) {
    let place = match event {
        PlanEvent::Submitted(_) => 0,
        PlanEvent::Targets { .. } => 1,
        PlanEvent::Sealed(_) => 2,
        PlanEvent::Paused => 3,
        PlanEvent::Resumed => 4,
        PlanEvent::LimitsChanged(_) => 5,
        PlanEvent::CancelRequested(_) => 6,
        PlanEvent::RequeueRequested(_) => 7,
        PlanEvent::CloseRequested(_) => 8,
        PlanEvent::Cancelled => 9,
        PlanEvent::DeadlineReached => 10,
        PlanEvent::Closed => 11,
        PlanEvent::Summarised(_) => 12,
    };
    (place, 13)
}
