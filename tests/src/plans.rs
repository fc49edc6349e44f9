//! Plan documents.

use serde_json::{Value, json};

/// The day whose logs are collected.
pub const DATE: &str = "2026-09-17";

/// A plan of `noop` for these targets: long clocks, quick retries. Change what a test is about.
pub fn noop(id: &str, targets: &[String]) -> Value {
    json!({
        "planId": id,
        "type": "noop",
        "input": {},
        "targets": { "stores": targets },
        "deadlineMs": 60_000,
        "expiresMs": 120_000,
        "retry": { "maxAttempts": 3, "backoffMs": [100, 200], "transient": ["NETWORK", "TIMEOUT", "LOST"], "business": ["NO_SUCH_DATE"] },
        "timeouts": { "deliverMs": 30_000, "runMs": 60_000 },
    })
}

/// As [`noop`], for `collect_log`.
pub fn collect_log(id: &str, targets: &[String]) -> Value {
    with(noop(id, targets), json!({ "type": "collect_log", "input": { "date": DATE }, "title": "Logs of Thursday" }))
}

/// The plan with other members.
///
/// # Panics
/// When either is no object.
pub fn with(mut plan: Value, members: Value) -> Value {
    let (Value::Object(plan_members), Value::Object(members)) = (&mut plan, members) else { panic!("objects") };
    plan_members.extend(members);
    plan
}
