//! Computed ids: equal events have equal ids, whoever computes them.

use fanfold_domain::event::TaskEvent;
use fanfold_domain::ids::{PlanId, TaskId, TerminalId};
use fanfold_domain::plan::PlanEvent;
use serde_json::value::RawValue;

use crate::digest::short_hex;

/// Id of a decision: `<taskId>/<kind>/<decisionSeq before it>`.
pub fn decision_id(task: &TaskId, event: &TaskEvent, decision_seq: u64) -> String {
    format!("{task}/{}/{decision_seq}", event.name())
}

/// Id of a report: `<taskId>/<attempt>/<terminal>/<kind>[/<k>]`.
pub fn report_id(task: &TaskId, terminal: &TerminalId, event: &TaskEvent) -> String {
    let attempt = event.attempt().unwrap_or(0);
    match event {
        TaskEvent::Progressed { k, .. } => format!("{task}/{attempt}/{terminal}/{}/{k}", event.name()),
        _ => format!("{task}/{attempt}/{terminal}/{}", event.name()),
    }
}

/// Id of a plan event: `<planId>/<kind>/<planSeq before it>/<16 hex of sha256(data)>`.
pub fn plan_event_id(plan: &PlanId, event: &PlanEvent, plan_seq: u64, data: &RawValue) -> String {
    format!("{plan}/{}/{plan_seq}/{}", event.name(), short_hex(data.get().as_bytes()))
}

/// Id of a chunk of the target list: `<planId>/targets/<k>`.
pub fn targets_id(plan: &PlanId, k: usize) -> String {
    format!("{plan}/targets/{k}")
}
