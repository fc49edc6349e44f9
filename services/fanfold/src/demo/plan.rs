//! The demo's plan.

use fanfold_domain::ids::PlanId;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::fleet::Fleet;
use crate::cmd::demo::{DemoArgs, DemoHandler};

/// The day whose logs are collected.
pub(crate) const DATE: &str = "2026-09-17";

/// Name of the task type.
pub(crate) fn type_name(args: &DemoArgs) -> &'static str {
    match args.handler {
        DemoHandler::CollectLog => "collect_log",
        DemoHandler::Noop => "noop",
    }
}

/// Its id and its document.
pub(crate) fn document(args: &DemoArgs, fleet: &Fleet, beat_ms: u64, expires_after_ms: u64) -> (PlanId, Box<RawValue>) {
    let name = format!("demo_{}_{}", args.stores, uuid::Uuid::new_v4().simple());
    let input = match args.handler {
        DemoHandler::CollectLog => json!({ "date": DATE }),
        DemoHandler::Noop => json!({}),
    };
    let value = json!({
        "planId": name,
        "title": format!("Logs of {DATE}"),
        "businessKey": format!("demo-{DATE}"),
        "type": type_name(args),
        "input": input,
        "targets": { "stores": fleet.store_ids() },
        "deadlineMs": args.deadline_ms,
        "expiresMs": args.deadline_ms + expires_after_ms,
        "limits": { "inFlight": args.in_flight },
        "converge": { "minSuccess": 0.9, "below": "reserved" },
        "retry": {
            "maxAttempts": 3, "backoffMs": [300, 600], "jitter": 0.2,
            "transient": ["NETWORK", "TIMEOUT", "LOST", "SCHEMA_INVALID"], "business": ["NO_SUCH_DATE"]
        },
        "timeouts": { "deliverMs": beat_ms * 4, "runMs": 1_500 },
    });
    // The name is made of letters, digits and underscores, and a JSON value can always be written.
    let id = PlanId::new(&name).unwrap_or_else(|_| unreachable!("a uuid is a token"));
    (id, to_raw_value(&value).unwrap_or_default())
}
