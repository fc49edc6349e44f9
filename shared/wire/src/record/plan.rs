//! `plan.<plan>` and `checkpoint` of the state bucket.

use fanfold_domain::holes::Holes;
use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::{SummaryKind, SummaryRef};
use fanfold_domain::sets::SetCounts;
use fanfold_domain::summary::{PlanVerdict, verdict};
use fanfold_domain::task::Absorbed;
use fanfold_domain::view::PlanView;
use serde::{Deserialize, Serialize};

/// How far a plan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PlanStatus {
    /// Its tasks are being done.
    Open,
    /// Nothing more is dispatched; what is out is awaited or given up.
    Closing,
    /// Being cancelled.
    Cancelling,
    /// Its final summary is in the log.
    Closed,
}

/// `plan.<plan>` of the state bucket.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanRecord {
    /// The plan.
    pub plan_id: PlanId,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The caller's own key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub business_key: Option<String>,
    /// Task type, `name@version`.
    #[serde(rename = "type")]
    pub kind: String,
    /// How far it is.
    pub status: PlanStatus,
    /// Sealed count.
    pub total: u32,
    /// The eight sets.
    pub counts: SetCounts,
    /// Verdict as it stands.
    pub verdict: PlanVerdict,
    /// Events the log has lost; absent where none is known to be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holes: Option<Holes>,
    /// Log time of the seal, epoch ms.
    #[serde(default)]
    pub sealed_at: Option<i64>,
    /// Deadline, epoch ms.
    #[serde(default)]
    pub deadline: Option<i64>,
    /// Expiry, epoch ms.
    #[serde(default)]
    pub expires: Option<i64>,
    /// Who sealed it.
    #[serde(default)]
    pub by: String,
    /// The last summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<SummaryRef>,
    /// Its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary_kind: Option<SummaryKind>,
    /// What was folded without effect, over all tasks.
    pub absorbed: Absorbed,
    /// SHA-256 of its content.
    pub content_sha256: String,
    /// SHA-256 of its target list.
    #[serde(default)]
    pub targets_sha256: String,
    /// Sequence of the last event folded.
    pub seq: u64,
    /// Sequence of the plan's own last event.
    pub plan_seq: u64,
}

impl PlanRecord {
    /// The record of a plan as it stands.
    pub fn of(view: &PlanView) -> Self {
        let plan = &view.plan;
        let counts = view.counts();
        let status = match (plan.final_seq, &plan.close, &plan.cancel) {
            (Some(_), _, _) => PlanStatus::Closed,
            (None, Some(_), _) => PlanStatus::Closing,
            (None, None, Some(_)) => PlanStatus::Cancelling,
            (None, None, None) => PlanStatus::Open,
        };
        Self {
            plan_id: plan.id().clone(),
            title: plan.spec.title.clone(),
            business_key: plan.spec.business_key.clone(),
            kind: format!("{}@{}", plan.spec.kind.name, plan.spec.kind.version),
            status,
            total: plan.seal.as_ref().map_or(0, |(s, _, _)| s.count),
            verdict: verdict(plan, &counts),
            holes: plan.holes,
            counts,
            sealed_at: plan.sealed_ms(),
            deadline: plan.deadline_ms(),
            expires: plan.expires_ms(),
            by: plan.seal.as_ref().map(|(s, _, _)| s.by.clone()).unwrap_or_default(),
            summary: plan.summary.as_ref().map(|(s, _, _)| s.this.clone()),
            summary_kind: plan.summary.as_ref().map(|(s, _, _)| s.kind),
            absorbed: view.absorbed(),
            content_sha256: plan.spec.content_sha256.clone(),
            targets_sha256: plan.seal.as_ref().map(|(s, _, _)| s.sha256.clone()).unwrap_or_default(),
            seq: view.last_seq,
            plan_seq: plan.plan_seq,
        }
    }

    /// What of the target list the log has lost, in words: nobody can say who is in the plan, and it gets no further summary. `None`: it
    /// is all there.
    pub fn lost_of_list(&self) -> Option<&'static str> {
        let lost = if self.sealed_at.is_none() { "its seal" } else { "some of its targets" };
        let is_short = self.sealed_at.is_none() || self.counts.total() != u64::from(self.total);
        // Without a hole it is being submitted.
        Some(lost).filter(|_| is_short && self.holes.is_some())
    }

    /// Whether it was closed and has no final summary, because nobody could say who was in it.
    pub fn is_closed_without_account(&self) -> bool {
        self.status == PlanStatus::Closed && self.summary_kind != Some(SummaryKind::Final)
    }
}

/// Key of a plan's record.
pub fn plan_key(plan: &PlanId) -> String {
    format!("plan.{plan}")
}
