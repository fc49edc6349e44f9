//! Plan events ready to be appended: encoded, named by their computed id, expecting what their writer has seen.

use bytes::Bytes;
use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::{Plan, PlanEvent};
use fanfold_wire::event::{EventError, Header, encode, plan_data, plan_event_id};
use fanfold_wire::subjects;

use crate::port::{Append, Expect};

/// Who writes, and when.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// CloudEvents source, e.g. `/fanfold/api`.
    pub source: &'a str,
    /// The writer's clock, epoch ms.
    pub now_ms: i64,
}

impl Writer<'_> {
    /// The event that follows `plan_seq`, the last sequence of the plan's own events; 0: there is none.
    ///
    /// # Errors
    /// When it can't be encoded.
    pub fn plan_event(
        &self,
        plan: &PlanId,
        event: &PlanEvent,
        plan_seq: u64,
        traceparent: Option<&str>,
    ) -> Result<Append, EventError> {
        let data = plan_data(event)?;
        let id = plan_event_id(plan, event, plan_seq, &data);
        let header = Header { id: &id, source: self.source, subject: plan.as_str(), time_ms: Some(self.now_ms), traceparent };
        let payload = encode(&format!("plan.{}", event.name()), &data, header)?;
        Ok(Append {
            subject: subjects::plan_event(plan, event.name()),
            payload: Bytes::from(payload),
            id,
            expect: Some(Expect { filter: subjects::plan_filter(plan), last_seq: plan_seq }),
        })
    }

    /// The next event of a plan as it is in view.
    ///
    /// # Errors
    /// When it can't be encoded.
    pub fn next_plan_event(&self, plan: &Plan, event: &PlanEvent) -> Result<Append, EventError> {
        self.plan_event(plan.id(), event, plan.plan_seq, plan.spec.traceparent.as_deref())
    }
}
