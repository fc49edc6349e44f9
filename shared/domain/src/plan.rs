//! A plan: what was asked, what was sealed, and what has been decided about it since.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::holes::Holes;
use crate::ids::{PlanId, TargetId, TaskId};
use crate::rules::{Rules, UnsupportedRules};
use crate::targets::Targets;

mod spec;
pub use spec::{Below, Converge, Limits, Moment, PlanSpec, Timeouts, TypeRef};

/// Which tasks a requeue request is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RequeueSelector {
    /// These, at most 1,000.
    Tasks(Vec<TaskId>),
    /// Every FAILED one, or only those whose error code is listed.
    Failed {
        /// Error codes; empty: all.
        #[serde(default)]
        codes: Vec<String>,
    },
}

/// What kind of account a summary is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SummaryKind {
    /// Every task ended before the deadline.
    Complete,
    /// What was in when the deadline fired.
    Partial,
    /// Something changed since.
    Update,
    /// The last word; the plan is closed.
    Final,
}

/// Where a summary stands, as later ones refer to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SummaryRef {
    /// Number, from 1.
    pub revision: u32,
    /// Sequence of the plan's last event folded into it.
    pub as_of_seq: u64,
    /// SHA-256 of its bytes, hex.
    pub sha256: String,
}

/// Data of `plan.summarised`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summarised {
    /// Number, position and digest.
    #[serde(flatten)]
    pub this: SummaryRef,
    /// Kind.
    pub kind: SummaryKind,
    /// The eight sets.
    pub counts: crate::sets::SetCounts,
    /// The one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<SummaryRef>,
    /// Verdict.
    pub verdict: crate::summary::PlanVerdict,
}

/// An event about a plan.
#[derive(Debug, Clone)]
pub enum PlanEvent {
    /// `plan.submitted`
    Submitted(Box<PlanSpec>),
    /// `plan.targets`: one chunk of the list.
    Targets {
        /// The chunk's targets, in order.
        targets: Vec<TargetId>,
    },
    /// `plan.sealed`
    Sealed(Seal),
    /// `plan.paused`
    Paused,
    /// `plan.resumed`
    Resumed,
    /// `plan.limits_changed`
    LimitsChanged(Limits),
    /// `plan.cancel_requested`
    CancelRequested(Asked),
    /// `plan.requeue_requested`
    RequeueRequested(RequeueSelector),
    /// `plan.close_requested`
    CloseRequested(Asked),
    /// `plan.cancelled`: a cancel decision stands for every task that was open.
    Cancelled,
    /// `plan.deadline_reached`
    DeadlineReached,
    /// `plan.closed`
    Closed,
    /// `plan.summarised`
    Summarised(Box<Summarised>),
}

impl PlanEvent {
    /// Last token of the subject and of the CloudEvents type.
    pub fn name(&self) -> &'static str {
        match self {
            PlanEvent::Submitted(_) => "submitted",
            PlanEvent::Targets { .. } => "targets",
            PlanEvent::Sealed(_) => "sealed",
            PlanEvent::Paused => "paused",
            PlanEvent::Resumed => "resumed",
            PlanEvent::LimitsChanged(_) => "limits_changed",
            PlanEvent::CancelRequested(_) => "cancel_requested",
            PlanEvent::RequeueRequested(_) => "requeue_requested",
            PlanEvent::CloseRequested(_) => "close_requested",
            PlanEvent::Cancelled => "cancelled",
            PlanEvent::DeadlineReached => "deadline_reached",
            PlanEvent::Closed => "closed",
            PlanEvent::Summarised(_) => "summarised",
        }
    }
}

/// Data of `plan.sealed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seal {
    /// How many targets there are: the denominator of every summary.
    pub count: u32,
    /// SHA-256 over the list, one id a line, hex.
    pub sha256: String,
    /// Who sealed it.
    pub by: String,
}

/// Who asked for something and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    /// Who: a person's or service's name.
    pub by: String,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// A plan event with its place in the log.
#[derive(Debug, Clone)]
pub struct LoggedPlanEvent {
    /// Sequence in the log.
    pub seq: u64,
    /// The log's timestamp, epoch ms.
    pub time_ms: i64,
    /// What it says.
    pub event: PlanEvent,
}

/// A requeue request and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequeueRequest {
    /// Its sequence.
    pub seq: u64,
    /// Which tasks.
    pub selector: RequeueSelector,
}

/// At most so many requeue requests are kept for one plan; the oldest is dropped (it is no longer due for anything by then).
pub const REQUEUE_REQUESTS_MAX: usize = 256;

/// A plan, folded from its events.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What was submitted.
    pub spec: Arc<PlanSpec>,
    /// The rules it is folded and accounted by.
    pub rules: Rules,
    /// Sealed targets, in order; grows while chunks come in.
    pub targets: Targets,
    /// Seal, its sequence and log time (epoch ms).
    pub seal: Option<(Seal, u64, i64)>,
    /// When `plan.submitted` was logged, epoch ms.
    pub submitted_ms: i64,
    /// Sequence of `plan.submitted`.
    pub submitted_seq: u64,
    /// Whether dispatch is on hold.
    pub paused: bool,
    /// Caps in force now.
    pub limits: Limits,
    /// Cancel request: who, and at which sequence.
    pub cancel: Option<(Asked, u64)>,
    /// Close request: who, at which sequence, log time.
    pub close: Option<(Asked, u64, i64)>,
    /// Requeue requests before any cancel or close.
    pub requeues: Vec<RequeueRequest>,
    /// Sequence of `plan.cancelled`.
    pub cancelled_seq: Option<u64>,
    /// Sequence of `plan.deadline_reached`.
    pub deadline_seq: Option<u64>,
    /// Sequence of `plan.closed`.
    pub closed_seq: Option<u64>,
    /// The last summary: what the event said, its own sequence and log time (epoch ms).
    pub summary: Option<(Summarised, u64, i64)>,
    /// Sequence of the `final` summary.
    pub final_seq: Option<u64>,
    /// Last event of the plan itself (filter `ff.plan.<plan>.*`): what the next one expects.
    pub plan_seq: u64,
    /// Plan events that made no sense where they stood (a second seal): counted, never applied.
    pub ignored: u32,
    /// Events that must have been there and are not; `None`: none is known to be missing.
    pub holes: Option<Holes>,
    /// Start of the last gap of the log that was noted: each is noted once.
    pub gap_seq: u64,
}

impl Plan {
    /// Begins a plan with its `plan.submitted`.
    ///
    /// # Errors
    /// [`UnsupportedRules`] when this build does not have the plan's rules: it must not be folded.
    pub fn begin(spec: PlanSpec, seq: u64, time_ms: i64) -> Result<Self, UnsupportedRules> {
        Ok(Self {
            rules: Rules::of(spec.rules)?,
            limits: spec.limits,
            spec: Arc::new(spec),
            targets: Targets::default(),
            seal: None,
            submitted_ms: time_ms,
            submitted_seq: seq,
            paused: false,
            cancel: None,
            close: None,
            requeues: Vec::new(),
            cancelled_seq: None,
            deadline_seq: None,
            closed_seq: None,
            summary: None,
            final_seq: None,
            plan_seq: seq,
            ignored: 0,
            holes: None,
            gap_seq: 0,
        })
    }

    /// The plan's id.
    pub fn id(&self) -> &PlanId {
        &self.spec.plan_id
    }

    /// Index of a target in `targets`, and of its task.
    pub fn index_of(&self, target: &str) -> Option<usize> {
        self.targets.position(target)
    }

    /// Log time of the seal, epoch ms; `None` while the plan isn't sealed.
    pub fn sealed_ms(&self) -> Option<i64> {
        self.seal.as_ref().map(|(_, _, ms)| *ms)
    }

    /// When the deadline is, epoch ms.
    pub fn deadline_ms(&self) -> Option<i64> {
        self.sealed_ms().map(|sealed| self.spec.deadline.resolve(sealed))
    }

    /// When the plan expires, epoch ms.
    pub fn expires_ms(&self) -> Option<i64> {
        self.sealed_ms().map(|sealed| self.spec.expires.resolve(sealed))
    }

    /// Whether anything may still be dispatched.
    pub fn may_dispatch(&self) -> bool {
        self.seal.is_some() && self.cancel.is_none() && self.close.is_none() && self.closed_seq.is_none() && !self.paused
    }

    /// Whether there can be an account: the sealed list is there, all of it. Where the log has lost the seal or some of the list nobody
    /// can say who is in it; such a plan is given no further summary, and its end is that it is closed.
    pub fn is_accountable(&self) -> bool {
        self.seal.as_ref().is_some_and(|(seal, _, _)| seal.count as usize == self.targets.len())
    }

    /// Whether this is the final summary of a plan that was over when it was closed because its list is lost: it was made while the log
    /// still had the list.
    pub fn takes_final(&self, event: &PlanEvent) -> bool {
        let is_final = matches!(event, PlanEvent::Summarised(summarised) if summarised.kind == SummaryKind::Final);
        is_final && self.final_seq.is_some() && self.final_seq == self.closed_seq
    }

    /// Whether the plan was closed before sequence `seq`.
    pub fn closed_before(&self, seq: u64) -> bool {
        self.closed_seq.is_some_and(|closed| closed < seq)
    }

    /// Folds one event. Whatever does not fit where it stands is counted in `ignored` and changes nothing.
    pub fn apply(&mut self, logged: &LoggedPlanEvent) {
        let (seq, time_ms) = (logged.seq, logged.time_ms);
        self.plan_seq = seq;
        match &logged.event {
            // A repeat keeps its first place; pointing it anywhere else would point the target at its neighbour's task.
            PlanEvent::Targets { targets } if self.seal.is_none() => self.ignored += self.targets.extend(targets),
            PlanEvent::Sealed(seal) if self.seal.is_none() => {
                self.targets.finish();
                self.seal = Some((seal.clone(), seq, time_ms));
            }
            PlanEvent::Paused => self.paused = true,
            PlanEvent::Resumed => self.paused = false,
            PlanEvent::LimitsChanged(limits) => self.limits = *limits,
            PlanEvent::CancelRequested(asked) if self.cancel.is_none() && self.close.is_none() => {
                self.cancel = Some((asked.clone(), seq));
            }
            PlanEvent::CloseRequested(asked) if self.close.is_none() => self.close = Some((asked.clone(), seq, time_ms)),
            PlanEvent::RequeueRequested(selector) if self.cancel.is_none() && self.close.is_none() => {
                if self.requeues.len() == REQUEUE_REQUESTS_MAX {
                    self.requeues.remove(0);
                }
                self.requeues.push(RequeueRequest { seq, selector: selector.clone() });
            }
            PlanEvent::Cancelled if self.cancelled_seq.is_none() => self.cancelled_seq = Some(seq),
            PlanEvent::DeadlineReached if self.deadline_seq.is_none() => self.deadline_seq = Some(seq),
            PlanEvent::Closed if self.closed_seq.is_none() => {
                self.closed_seq = Some(seq);
                if !self.is_accountable() {
                    self.final_seq = Some(seq);
                }
            }
            PlanEvent::Summarised(summarised) if self.final_seq.is_none() || self.takes_final(&logged.event) => {
                if summarised.kind == SummaryKind::Final {
                    self.final_seq = Some(seq);
                }
                self.summary = Some(((**summarised).clone(), seq, time_ms));
            }
            PlanEvent::Submitted(_)
            | PlanEvent::Targets { .. }
            | PlanEvent::Sealed(_)
            | PlanEvent::CancelRequested(_)
            | PlanEvent::CloseRequested(_)
            | PlanEvent::RequeueRequested(_)
            | PlanEvent::Cancelled
            | PlanEvent::DeadlineReached
            | PlanEvent::Closed
            | PlanEvent::Summarised(_) => self.ignored += 1,
        }
    }
}

#[cfg(test)]
mod tests;
