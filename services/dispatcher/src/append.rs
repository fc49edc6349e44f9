//! Turning decisions into events and appending them: the one place of this service that writes.

use std::sync::Arc;

use bytes::Bytes;
use fanfold_domain::event::TaskEvent;
use fanfold_domain::ids::TerminalId;
use fanfold_domain::plan::PlanEvent;
use fanfold_domain::view::PlanView;
use fanfold_ledger::open::Model;
use fanfold_ledger::port::{Append, Appended, Expect, Fence, FencedError, Ledger};
use fanfold_ledger::write::Writer;
use fanfold_wire::event::{EventError, Header, decision_id, encode, task_data};
use fanfold_wire::subjects;

use crate::work::Decision;

const SOURCE: &str = "/fanfold/dispatcher";
/// Most decisions of one batch: a batch holds 1,000 messages, the first is the fence.
pub(crate) const BATCH_MAX: usize = 999;
/// Most bytes of one batch.
pub(crate) const BATCH_BYTES_MAX: usize = 4 << 20;

/// What a batch came to.
pub(crate) struct Sent {
    pub(crate) fence: Fence,
    pub(crate) decisions: Vec<Decision>,
    pub(crate) outcome: Result<Vec<Appended>, FencedError>,
}

/// Encodes a decision as the event it is, from the view it was made from.
pub(crate) fn encode_decision(model: &Model, decision: &Decision, now_ms: i64) -> Option<Result<Append, EventError>> {
    let view = model.plan(&decision.plan)?;
    match (decision.task, &decision.event) {
        (Some(task), Some(event)) => Some(encode_task(view, task as usize, event, now_ms)?),
        _ => Some(Writer { source: SOURCE, now_ms }.next_plan_event(&view.plan, &PlanEvent::Cancelled)),
    }
}

fn encode_task(view: &PlanView, index: usize, event: &TaskEvent, now_ms: i64) -> Option<Result<Append, EventError>> {
    let task_id = view.task_id(index)?;
    let task = view.tasks.get(index)?;
    let concerned: Option<TerminalId> = match event {
        TaskEvent::Dispatched(d) => Some(d.terminal.clone()),
        _ => event.attempt().and_then(|n| task.attempt_record(n)).map(|a| a.terminal.clone()),
    };
    let id = decision_id(&task_id, event, task.decision_seq);
    let subject = task_id.to_string();
    let header = Header {
        id: &id,
        source: SOURCE,
        subject: &subject,
        time_ms: Some(now_ms),
        traceparent: view.plan.spec.traceparent.as_deref(),
    };
    let payload = task_data(event).and_then(|data| encode(event.name(), &data, header));
    Some(payload.map(|payload| Append {
        subject: subjects::task_decision(&task_id, concerned.as_ref()),
        id,
        payload: Bytes::from(payload),
        expect: Some(Expect { filter: subjects::task_decision_filter(&task_id), last_seq: task.decision_seq }),
    }))
}

/// Sends one batch; owns the fence meanwhile, so there is never a second one under way.
pub(crate) async fn send(ledger: Arc<dyn Ledger>, mut fence: Fence, decisions: Vec<Decision>, events: Vec<Append>) -> Sent {
    let outcome = ledger.append_fenced(&mut fence, events).await;
    Sent { fence, decisions, outcome }
}
