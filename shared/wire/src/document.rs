//! The plan document as HQ submits it: parsed, checked with every problem at once, completed with defaults and turned into a
//! [`PlanSpec`].

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use fanfold_domain::RULES_VERSION;
use fanfold_domain::ids::{PlanId, TargetId};
use fanfold_domain::plan::{Below, Converge, Limits, Moment, PlanSpec, Timeouts, TypeRef};
use fanfold_domain::retry::{Backoff, RetryPolicy};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::Problem;
use crate::digest::{canonical, sha256_hex};
use crate::schema::Schema;
use crate::strict::{duplicate_key, fraction};
use crate::terminal::INPUT_BYTES_MAX;
use crate::timestamp::from_rfc3339;
use crate::types::TypeDocument;

/// Most targets of one plan.
pub const TARGETS_MAX: usize = 1_000_000;
/// Longest list of bad targets shown.
const BAD_TARGETS_SHOWN: usize = 1_000;
/// Deadline where neither plan nor type says one, in milliseconds after the seal.
const DEADLINE_MS: i64 = 120_000;
/// Expiry where neither says one, in milliseconds after the seal.
const EXPIRES_MS: i64 = 86_400_000;

/// How far ahead a deadline or expiry may lie, in milliseconds; the schema says the same of the relative ones.
const AHEAD_MS_MAX: i64 = 366 * 86_400_000;
/// Numbers of the document that may have a fraction, and what isn't looked at.
const FRACTIONS: [&str; 3] = ["/input", "/converge/minSuccess", "/retry/jitter"];

/// The schema of the document, embedded.
pub const PLAN_SCHEMA: &str = include_str!("../../../schemas/plan.v1.json");

/// Caps as written.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitsDocument {
    /// See [`Limits::in_flight`].
    pub in_flight: Option<u32>,
}

/// Convergence as written.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConvergeDocument {
    /// See [`Converge::min_success`].
    pub min_success: Option<f64>,
    /// See [`Converge::below`].
    pub below: Option<Below>,
}

/// Retry as written.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryDocument {
    /// See [`RetryPolicy::max_attempts`].
    pub max_attempts: Option<u32>,
    /// See [`RetryPolicy::backoff_ms`].
    pub backoff_ms: Option<Backoff>,
    /// See [`RetryPolicy::jitter`].
    pub jitter: Option<f64>,
    /// See [`RetryPolicy::transient`].
    pub transient: Option<Vec<String>>,
    /// See [`RetryPolicy::business`].
    pub business: Option<Vec<String>>,
}

/// Clocks as written.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimeoutsDocument {
    /// See [`Timeouts::deliver_ms`].
    pub deliver_ms: Option<u64>,
    /// See [`Timeouts::run_ms`].
    pub run_ms: Option<u64>,
    /// See [`Timeouts::progress_ms`].
    pub progress_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw<'a> {
    plan_id: String,
    title: Option<String>,
    business_key: Option<String>,
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    input: &'a RawValue,
    targets: RawTargets,
    deadline_ms: Option<i64>,
    deadline_at: Option<String>,
    expires_ms: Option<i64>,
    expires_at: Option<String>,
    limits: Option<LimitsDocument>,
    converge: Option<ConvergeDocument>,
    retry: Option<RetryDocument>,
    timeouts: Option<TimeoutsDocument>,
}

#[derive(Debug, Deserialize)]
struct RawTargets {
    stores: Vec<String>,
}

/// A plan document whose form is right; its type and moments are not looked at yet.
#[derive(Debug, Clone)]
pub struct PlanDocument {
    /// The plan's id.
    pub plan_id: PlanId,
    /// Name of the task type.
    pub type_name: String,
    /// Version asked for; `None`: the newest.
    pub type_version: Option<u32>,
    /// Targets, in the order given, distinct.
    pub targets: Vec<TargetId>,
    /// SHA-256 over the canonical document without its planId.
    pub content_sha256: String,
    title: Option<String>,
    business_key: Option<String>,
    input: Box<RawValue>,
    deadline: Option<Moment>,
    expires: Option<Moment>,
    limits: LimitsDocument,
    converge: ConvergeDocument,
    retry: RetryDocument,
    timeouts: TimeoutsDocument,
}

fn plan_schema() -> Result<&'static Schema, Vec<Problem>> {
    static SCHEMA: OnceLock<Result<Schema, String>> = OnceLock::new();
    let compiled = SCHEMA.get_or_init(|| Schema::compile(PLAN_SCHEMA).map_err(|e| e.to_string()));
    compiled.as_ref().map_err(|e| vec![Problem::new("INTERNAL", "", "", e)])
}

impl PlanDocument {
    /// Reads a document; every problem with its form at once.
    pub fn parse(bytes: &[u8]) -> Result<Self, Vec<Problem>> {
        let mut value: Value = serde_json::from_slice(bytes)
            .map_err(|e| vec![Problem::new("NOT_JSON", "", "", &format!("{e} (write the plan as one JSON object)"))])?;
        let mut problems: Vec<Problem> = plan_schema()?.check(&value).iter().flat_map(Problem::of_violation).collect();
        problems.extend(passed_over(bytes, &value, problems.is_empty()));
        if let Some(input) = value.get("input").filter(|i| i.to_string().len() > INPUT_BYTES_MAX) {
            let found = format!("{} bytes", input.to_string().len());
            problems.push(Problem::new(
                "TOO_LARGE",
                "/input",
                &found,
                "an input may have 64 KiB; hand larger things over as files",
            ));
        }
        for (relative, absolute) in [("deadlineMs", "deadlineAt"), ("expiresMs", "expiresAt")] {
            if value.get(relative).is_some() && value.get(absolute).is_some() {
                problems.push(Problem::new(
                    "INVALID_PLAN",
                    &format!("/{absolute}"),
                    "",
                    &format!("give {relative} or {absolute}, not both"),
                ));
            }
        }
        let plan_id = match value.get("planId").and_then(Value::as_str).map(PlanId::new) {
            Some(Ok(id)) => Some(id),
            Some(Err(e)) => {
                problems.push(Problem::new("BAD_ID", "/planId", &e.shown, e.reason));
                None
            }
            None => None,
        };
        let targets = check_targets(&value, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let raw: Raw<'_> =
            serde_json::from_slice(bytes).map_err(|e| vec![Problem::new("INVALID_PLAN", "", "", &e.to_string())])?;
        let plan_id = plan_id.ok_or_else(|| vec![Problem::new("MISSING_FIELD", "/planId", "", "give the plan an id")])?;
        let (type_name, type_version) = split_type(&raw.kind).map_err(|p| vec![p])?;
        debug_assert_eq!(raw.plan_id, plan_id.as_str());
        debug_assert_eq!(raw.targets.stores.len(), targets.len());
        let deadline = moment("/deadlineAt", raw.deadline_ms, raw.deadline_at.as_deref()).map_err(|p| vec![p])?;
        let expires = moment("/expiresAt", raw.expires_ms, raw.expires_at.as_deref()).map_err(|p| vec![p])?;
        if let Some(object) = value.as_object_mut() {
            object.remove("planId");
        }
        Ok(Self {
            plan_id,
            type_name,
            type_version,
            targets,
            content_sha256: sha256_hex(canonical(&value).as_bytes()),
            title: raw.title,
            business_key: raw.business_key,
            input: raw.input.to_owned(),
            deadline,
            expires,
            limits: raw.limits.unwrap_or_default(),
            converge: raw.converge.unwrap_or_default(),
            retry: raw.retry.unwrap_or_default(),
            timeouts: raw.timeouts.unwrap_or_default(),
        })
    }

    /// Completes the document with the type's defaults and ours, and checks input and moments.
    pub fn resolve(
        self,
        kind: &TypeDocument,
        now_ms: i64,
        traceparent: Option<String>,
    ) -> Result<(PlanSpec, Vec<TargetId>), Vec<Problem>> {
        let mut problems = Vec::new();
        match Schema::compile(kind.input_schema.get()) {
            Ok(schema) => {
                let input: Value = serde_json::from_str(self.input.get()).unwrap_or_default();
                for violation in schema.check(&input) {
                    let message = format!("{} (see `fanfold type show {}@{}`)", violation.message, kind.name, kind.version);
                    problems.push(Problem::new("INPUT_INVALID", &format!("/input{}", violation.path), "", &message));
                }
            }
            Err(e) => problems.push(Problem::new("INVALID_SCHEMA", "/type", &self.type_name, &e.to_string())),
        }
        let defaults = &kind.defaults;
        let deadline = self.deadline.unwrap_or(Moment::AfterSealMs(defaults.deadline_ms.unwrap_or(DEADLINE_MS)));
        let expires = self.expires.unwrap_or_else(|| {
            let default = defaults.expires_ms.unwrap_or(EXPIRES_MS);
            match deadline {
                // A far deadline pulls the default expiry along.
                Moment::AfterSealMs(ms) => Moment::AfterSealMs(default.max(ms.saturating_mul(2))),
                Moment::AtMs(at) => Moment::AtMs((now_ms.saturating_add(default)).max(at.saturating_add(default))),
            }
        });
        let given = [(self.deadline, "/deadlineAt"), (self.expires, "/expiresAt")];
        for (moment, path) in given.into_iter().filter_map(|(moment, path)| Some((moment?, path))) {
            if moment.resolve(now_ms).saturating_sub(now_ms) > AHEAD_MS_MAX {
                let message = "it may lie at most 366 days ahead";
                problems.push(Problem::new("LIMIT_OUT_OF_RANGE", path, &shown(moment, now_ms), message));
            }
        }
        if deadline.resolve(now_ms) <= now_ms {
            problems.push(Problem::new("DEADLINE_PAST", "/deadlineAt", &shown(deadline, now_ms), "the deadline must lie ahead"));
        }
        if expires.resolve(now_ms) < deadline.resolve(now_ms) {
            problems.push(Problem::new(
                "EXPIRY_BEFORE_DEADLINE",
                "/expiresAt",
                &shown(expires, now_ms),
                &format!("it must not lie before the deadline, {}", shown(deadline, now_ms)),
            ));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let spec = PlanSpec {
            plan_id: self.plan_id,
            title: self.title,
            business_key: self.business_key,
            kind: TypeRef { name: kind.name.clone(), version: kind.version },
            input: Arc::from(self.input),
            deadline,
            expires,
            limits: limits(self.limits, defaults.limits.unwrap_or_default()),
            converge: converge(self.converge, defaults.converge.unwrap_or_default()),
            retry: retry(self.retry, defaults.retry.clone().unwrap_or_default()),
            timeouts: timeouts(self.timeouts, defaults.timeouts.unwrap_or_default()),
            aggregates: kind.aggregates.clone(),
            output_schema: Arc::from(kind.output_schema.clone()),
            rules: RULES_VERSION,
            content_sha256: self.content_sha256,
            traceparent,
        };
        Ok((spec, self.targets))
    }
}

/// What the schema takes and reading would not tell apart, or not with a path.
fn passed_over(bytes: &[u8], value: &Value, by_schema: bool) -> Vec<Problem> {
    let twice = duplicate_key(bytes).map(|path| Problem::new("DUPLICATE_KEY", &path, "", "it is written twice; leave one out"));
    let whole = |(path, found): (String, String)| {
        Problem::new("INVALID_PLAN", &path, &found, "write a whole number, without a fraction or exponent")
    };
    let fraction = if by_schema { fraction(value, &FRACTIONS) } else { None };
    twice.into_iter().chain(fraction.map(whole)).collect()
}

fn shown(moment: Moment, now_ms: i64) -> String {
    crate::timestamp::to_rfc3339(moment.resolve(now_ms))
}

fn moment(path: &str, relative_ms: Option<i64>, at: Option<&str>) -> Result<Option<Moment>, Problem> {
    match (relative_ms, at) {
        (Some(ms), _) => Ok(Some(Moment::AfterSealMs(ms))),
        (None, Some(text)) => match from_rfc3339(text) {
            Some(ms) => Ok(Some(Moment::AtMs(ms))),
            None => Err(Problem::new("INVALID_PLAN", path, text, "not an RFC 3339 moment such as 2026-09-17T20:00:00+02:00")),
        },
        (None, None) => Ok(None),
    }
}

fn split_type(text: &str) -> Result<(String, Option<u32>), Problem> {
    let (name, version) = match text.split_once('@') {
        Some((name, version)) => {
            let number = version.parse::<u32>().ok().filter(|v| *v > 0);
            let bad = || Problem::new("UNKNOWN_TYPE", "/type", text, "a version is a number from 1, as in collect_log@1");
            (name, Some(number.ok_or_else(bad)?))
        }
        None => (text, None),
    };
    fanfold_domain::ids::StageId::new(name).map_err(|e| Problem::new("BAD_ID", "/type", &e.shown, e.reason))?;
    Ok((name.to_owned(), version))
}

/// Checks every target and lists all that are malformed or repeated, not just the first.
fn check_targets(document: &Value, problems: &mut Vec<Problem>) -> Vec<TargetId> {
    let Some(stores) = document.pointer("/targets/stores").and_then(Value::as_array) else { return Vec::new() };
    if stores.is_empty() {
        problems.push(Problem::new("NO_TARGETS", "/targets/stores", "[]", "name at least one store"));
    }
    if stores.len() > TARGETS_MAX {
        problems.push(Problem::new(
            "LIMIT_OUT_OF_RANGE",
            "/targets/stores",
            &stores.len().to_string(),
            "a plan may have 1,000,000 targets",
        ));
        return Vec::new();
    }
    let mut seen = HashSet::with_capacity(stores.len());
    let mut targets = Vec::with_capacity(stores.len());
    let mut bad = 0;
    for (i, store) in stores.iter().enumerate() {
        let Some(text) = store.as_str() else { continue };
        let problem = match TargetId::new(text) {
            Err(e) => Problem::new("BAD_TARGET", &format!("/targets/stores/{i}"), &e.shown, e.reason),
            Ok(id) if !seen.insert(id.clone()) => Problem::new(
                "DUPLICATE_TARGET",
                &format!("/targets/stores/{i}"),
                text,
                "it is in the list already; name each store once",
            ),
            Ok(id) => {
                targets.push(id);
                continue;
            }
        };
        bad += 1;
        if bad <= BAD_TARGETS_SHOWN {
            problems.push(problem);
        }
    }
    if bad > BAD_TARGETS_SHOWN {
        problems.push(Problem::new("BAD_TARGET", "/targets/stores", &format!("{} more", bad - BAD_TARGETS_SHOWN), "as above"));
    }
    targets
}

fn limits(plan: LimitsDocument, kind: LimitsDocument) -> Limits {
    Limits { in_flight: plan.in_flight.or(kind.in_flight).unwrap_or(1_000) }
}

fn converge(plan: ConvergeDocument, kind: ConvergeDocument) -> Converge {
    Converge {
        min_success: plan.min_success.or(kind.min_success).unwrap_or(1.0),
        below: plan.below.or(kind.below).unwrap_or(Below::Reserved),
    }
}

fn retry(plan: RetryDocument, kind: RetryDocument) -> RetryPolicy {
    let ours = RetryPolicy::default();
    RetryPolicy {
        max_attempts: plan.max_attempts.or(kind.max_attempts).unwrap_or(ours.max_attempts),
        backoff_ms: plan.backoff_ms.or(kind.backoff_ms).unwrap_or(ours.backoff_ms),
        jitter: plan.jitter.or(kind.jitter).unwrap_or(ours.jitter),
        transient: plan.transient.or(kind.transient).unwrap_or(ours.transient),
        business: plan.business.or(kind.business).unwrap_or(ours.business),
    }
}

fn timeouts(plan: TimeoutsDocument, kind: TimeoutsDocument) -> Timeouts {
    Timeouts {
        deliver_ms: plan.deliver_ms.or(kind.deliver_ms).unwrap_or(10_000),
        run_ms: plan.run_ms.or(kind.run_ms).unwrap_or(300_000),
        progress_ms: plan.progress_ms.or(kind.progress_ms),
    }
}
