//! Plans this build must not fold: submitted under rules it does not have, or with a submission it can't read.
//!
//! There is no view of them, so nothing can be decided or summarised about them here. They are counted and told, their reports are to
//! come again, and they stay in the projector's checkpoint, so that a build that knows their rules finds them when it takes over.

use std::collections::BTreeMap;

use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::{PlanEvent, SummaryKind};
use fanfold_domain::rules::Rules;
use fanfold_wire::event::{Envelope, EventError, LogEvent, decode_plan, rules_of_submission};
use fanfold_wire::subjects::LogSubject;

use super::Model;
use super::model::Linked;
use crate::port::Stored;

/// Such plans remembered; beyond it the one submitted first is dropped, and said.
const UNSUPPORTED_MAX: usize = 10_000;

/// What is known of a plan this build must not fold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// Version of its rules; `None`: its submission can't be read at all.
    pub rules: Option<u32>,
    /// Sequence of its submission.
    pub submitted_seq: u64,
    /// Events of it that were passed over, the submission among them.
    pub events: u64,
    /// Its final summary is in the log.
    pub is_over: bool,
}

/// All of them, by id.
#[derive(Debug, Default)]
pub(super) struct Plans(BTreeMap<PlanId, Unsupported>);

impl Model {
    /// Plans that are not folded here, by id.
    pub fn unsupported(&self) -> impl Iterator<Item = (&PlanId, &Unsupported)> {
        self.unsupported.0.iter()
    }

    /// Whether a message is about a plan that must not be folded; it is counted then.
    pub(super) fn passes_over(&mut self, message: &Stored, event: &Result<Linked, EventError>) -> bool {
        if let Some((id, rules)) = begins_unsupported(message, event)
            && self.plan(&id).is_none()
        {
            self.unsupported.begin(id, rules, message.seq);
            return true;
        }
        self.unsupported.note(message)
    }

    pub(super) fn unsupported_plan(&self, id: &PlanId) -> Option<&Unsupported> {
        self.unsupported.0.get(id)
    }
}

impl Plans {
    fn begin(&mut self, id: PlanId, rules: Option<u32>, submitted_seq: u64) {
        if self.0.contains_key(&id) {
            return;
        }
        tracing::error!(
            plan = %id, rules, seq = submitted_seq, code = "UNSUPPORTED_RULES",
            "a plan was submitted under rules this build does not have; it is left to services of a newer version"
        );
        if self.0.len() >= UNSUPPORTED_MAX
            && let Some(oldest) = self.0.iter().min_by_key(|(_, p)| p.submitted_seq).map(|(id, _)| id.clone())
        {
            tracing::error!(plan = %oldest, "too many plans of unknown rules; the oldest is no longer remembered");
            self.0.remove(&oldest);
        }
        self.0.insert(id, Unsupported { rules, submitted_seq, events: 1, is_over: false });
    }

    fn note(&mut self, message: &Stored) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let (id, is_final) = match LogSubject::parse(&message.subject) {
            Some(LogSubject::Plan { plan, event }) => (plan, event == "summarised" && is_final(&message.payload)),
            Some(LogSubject::Task { task, .. }) => (task.plan, false),
            Some(LogSubject::Fence { .. }) | None => return false,
        };
        let Some(plan) = self.0.get_mut(&id) else { return false };
        plan.events += 1;
        plan.is_over |= is_final;
        true
    }
}

/// The plan a message submits, when it is one that must not be folded, and the version of its rules.
fn begins_unsupported(message: &Stored, event: &Result<Linked, EventError>) -> Option<(PlanId, Option<u32>)> {
    match event {
        Ok((LogEvent::Plan(id, logged), _)) => match &logged.event {
            PlanEvent::Submitted(spec) => Rules::of(spec.rules).err().map(|unknown| (id.clone(), Some(unknown.found))),
            _ => None,
        },
        Ok(_) => None,
        Err(_) => match LogSubject::parse(&message.subject)? {
            LogSubject::Plan { plan, event } if event == "submitted" => Some((plan, rules_of_submission(&message.payload))),
            _ => None,
        },
    }
}

/// Whether a `plan.summarised` is the last one.
pub(super) fn is_final(payload: &[u8]) -> bool {
    let event = Envelope::parse(payload).and_then(|e| decode_plan("summarised", e.data));
    matches!(event, Ok(PlanEvent::Summarised(s)) if s.kind == SummaryKind::Final)
}
