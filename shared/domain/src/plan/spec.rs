//! What is submitted: everything of a plan but its targets.

use serde::{Deserialize, Serialize};

use crate::Json;
use crate::aggregate::AggregateSpec;
use crate::ids::PlanId;
use crate::retry::RetryPolicy;

/// Name and version of a task type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeRef {
    /// Name, a token.
    pub name: String,
    /// Version, from 1.
    pub version: u32,
}

/// A moment given relative to the seal or absolutely; both as milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Moment {
    /// Milliseconds after the log's timestamp of `plan.sealed`.
    AfterSealMs(i64),
    /// Epoch milliseconds.
    AtMs(i64),
}

impl Moment {
    /// The moment in epoch milliseconds, given when the plan was sealed.
    pub fn resolve(self, sealed_ms: i64) -> i64 {
        match self {
            Moment::AfterSealMs(ms) => sealed_ms.saturating_add(ms),
            Moment::AtMs(ms) => ms,
        }
    }
}

/// Caps on tasks in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Tasks of this plan dispatched or running at once.
    pub in_flight: u32,
}

/// What a summary below the wanted share of successes is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Below {
    /// With reservations.
    Reserved,
    /// Failed.
    Fail,
}

/// When the plan counts as done well enough.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Converge {
    /// Share of targets that must have succeeded, 0 to 1.
    pub min_success: f64,
    /// The verdict below it.
    pub below: Below,
}

/// Clocks of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// From dispatch until the terminal says it has it, in milliseconds.
    pub deliver_ms: u64,
    /// From start to end, in milliseconds.
    pub run_ms: u64,
    /// Longest silence between two steps, in milliseconds; `None`: not watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_ms: Option<u64>,
}

/// Data of `plan.submitted`: everything but the targets, with the type's schemas and every default filled in.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanSpec {
    /// The plan's id.
    pub plan_id: PlanId,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The caller's own key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub business_key: Option<String>,
    /// Task type.
    #[serde(rename = "type")]
    pub kind: TypeRef,
    /// Input of every task.
    pub input: Json,
    /// When the first summary is due at the latest.
    pub deadline: Moment,
    /// When what is still open is given up.
    pub expires: Moment,
    /// Caps.
    pub limits: Limits,
    /// When it counts as done.
    pub converge: Converge,
    /// Retry policy.
    pub retry: RetryPolicy,
    /// Clocks of an attempt.
    pub timeouts: Timeouts,
    /// What the summary adds up.
    #[serde(default)]
    pub aggregates: Vec<AggregateSpec>,
    /// JSON Schema of results, pinned.
    pub output_schema: Json,
    /// Version of the fold's rules, see [`crate::RULES_VERSION`].
    pub rules: u32,
    /// SHA-256 of the plan's content as submitted (hex), to tell a repeat from another plan under the same id.
    pub content_sha256: String,
    /// W3C trace context of the submit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}
