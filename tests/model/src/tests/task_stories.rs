//! Rules about tasks, each broken by a small log.

use serde_json::{Value, json};

use super::support::{Log, dispatch};
use super::violations::Story;

fn exhausted(log: &mut Log) {
    log.dispatched("a", 1);
    log.failed("a", 1, "BIZ_1");
}

pub(super) fn requeue_request(log: &mut Log, data: &Value) -> u64 {
    exhausted(log);
    log.plan("requeue_requested", data)
}

/// What the violation says, and a log that has it.
pub(super) const TASKS: &[(&str, Story)] = &[
    ("chain of decisions asks for", |log| {
        log.dispatched("a", 1);
        log.put("ff.task.p.a.main.hq.a", "p.a.main/task.stop_requested/0", "task.stop_requested", &json!({ "attempt": 1 }));
    }),
    ("hands out attempt 1 a second time", |log| {
        log.dispatched("a", 1);
        log.failed("a", 1, "NET");
        log.now_ms = 1_000;
        log.dispatched("a", 1);
    }),
    ("hands out attempt 3 after 1", |log| {
        log.dispatched("a", 1);
        log.failed("a", 1, "NET");
        log.now_ms = 1_000;
        log.dispatched("a", 3);
    }),
    ("decides task.dispatched, but since the decision before the task was never", |log| {
        log.dispatched("a", 1);
        log.dispatched("a", 2);
    }),
    ("decides task.dispatched, but since the decision before the task was never", |log| {
        log.asked("close_requested");
        log.hq("a", "expired", &json!({ "reason": "closed", "attempt": 0 }));
        log.dispatched("a", 1);
    }),
    ("hands out after 2 tries of 2", |log| {
        log.dispatched("a", 1);
        log.failed("a", 1, "NET");
        log.now_ms = 1_000;
        log.dispatched("a", 2);
        log.failed("a", 2, "NET");
        log.dispatched("a", 3);
    }),
    ("hands the task out to \"b\"", |log| {
        log.hq("a", "dispatched", &dispatch("b", 1));
    }),
    ("hands out another work", |log| {
        let mut data = dispatch("a", 1);
        data["input"] = json!({ "other": 1 });
        log.hq("a", "dispatched", &data);
    }),
    ("hands out 1 ms before the pause", |log| {
        log.dispatched("a", 1);
        log.failed("a", 1, "NET");
        log.now_ms = 999;
        log.dispatched("a", 2);
    }),
    ("hands out 1 ms before the pause", |log| {
        log.dispatched("a", 1);
        log.by("a", "rejected", &json!({ "attempt": 1, "code": "BUSY", "message": "" }));
        log.now_ms = 999;
        log.dispatched("a", 2);
    }),
    ("hands out after plan.cancelled", |log| {
        log.asked("cancel_requested");
        for target in ["a", "b"] {
            log.hq(target, "cancel_requested", &json!({ "attempt": 0 }));
        }
        log.plan("cancelled", &json!({}));
        log.dispatched("a", 1);
    }),
    ("hands out after plan.closed", |log| {
        log.asked("close_requested");
        for target in ["a", "b"] {
            log.hq(target, "expired", &json!({ "reason": "closed", "attempt": 0 }));
        }
        log.plan("closed", &json!({}));
        log.dispatched("a", 1);
    }),
    ("by who had seen plan.close_requested", |log| {
        log.asked("close_requested");
        log.bare("a", "released");
        log.dispatched("a", 1);
    }),
    ("by who had seen plan.cancel_requested", |log| {
        log.asked("cancel_requested");
        log.fence("dispatcher", "new");
        log.dispatched("a", 1);
    }),
    ("by who had seen plan.paused", |log| {
        log.dispatched("a", 1);
        log.plan("paused", &json!({}));
        log.failed("a", 1, "NET");
        log.now_ms = 1_000;
        log.dispatched("a", 2);
    }),
    ("defers a task that is deferred already", |log| {
        log.hq("a", "deferred", &json!({ "lastSeenMs": null }));
        log.hq("a", "deferred", &json!({ "lastSeenMs": 1 }));
    }),
    ("timed_out of attempt 1 after 29999 ms where deliverMs is 30000", |log| {
        log.dispatched("a", 1);
        log.now_ms = 29_999;
        log.hq("a", "attempt_timed_out", &json!({ "attempt": 1, "kind": "delivery" }));
    }),
    ("where the plan has no progressMs", |log| {
        log.dispatched("a", 1);
        log.by("a", "started", &json!({ "attempt": 1 }));
        log.hq("a", "attempt_timed_out", &json!({ "attempt": 1, "kind": "progress" }));
    }),
    ("concludes about attempt 2 where the current one is 1", |log| {
        log.dispatched("a", 1);
        log.hq("a", "attempt_lost", &json!({ "attempt": 2 }));
    }),
    ("expires a task of a plan nobody asked to close", |log| {
        log.hq("a", "expired", &json!({ "reason": "closed", "attempt": 0 }));
    }),
    ("cancels a task of a plan nobody asked to cancel", |log| {
        log.hq("a", "cancel_requested", &json!({ "attempt": 0 }));
    }),
    ("cancels an attempt that nobody was asked to stop", |log| {
        log.dispatched("a", 1);
        log.bare("a", "cancelled");
    }),
    ("decides task.requeued, but since the decision before the task was never", |log| {
        let request = log.plan("requeue_requested", &json!({ "failed": {} }));
        log.hq("a", "requeued", &json!({ "requestSeq": request }));
    }),
    ("requeues for a request at 77 that is not there", |log| {
        exhausted(log);
        log.hq("a", "requeued", &json!({ "requestSeq": 77 }));
    }),
    ("which does not mean this task", |log| {
        let request = requeue_request(log, &json!({ "tasks": ["p.b.main"] }));
        log.hq("a", "requeued", &json!({ "requestSeq": request }));
    }),
    ("which does not mean this task", |log| {
        let request = requeue_request(log, &json!({ "failed": { "codes": ["OTHER"] } }));
        log.hq("a", "requeued", &json!({ "requestSeq": request }));
    }),
    ("which does not mean this task", |log| {
        log.dispatched("a", 1);
        let request = log.plan("requeue_requested", &json!({ "failed": {} }));
        log.failed("a", 1, "BIZ_1");
        log.hq("a", "requeued", &json!({ "requestSeq": request }));
    }),
    ("but decided at", |log| {
        let request = requeue_request(log, &json!({ "failed": {} }));
        log.hq("a", "requeued", &json!({ "requestSeq": request }));
        log.dispatched("a", 2);
        log.failed("a", 2, "BIZ_1");
        log.hq("a", "requeued", &json!({ "requestSeq": request }));
    }),
    ("where its subject and content ask for", |log| {
        log.dispatched("a", 1);
        log.put("ff.task.p.a.main.by.a", "p.a.main/1/b/attempt.started", "attempt.started", &json!({ "attempt": 1 }));
    }),
    ("stores another content under the id", |log| {
        log.dispatched("a", 1);
        log.failed("a", 1, "NET");
        log.failed("a", 1, "OTHER");
    }),
    ("about a target that is not in the list", |log| {
        log.dispatched("z", 1);
    }),
    ("2 tasks are out where the limit is 1", |log| {
        log.plan("limits_changed", &json!({ "inFlight": 1 }));
        log.now_ms = 5_000;
        log.dispatched("a", 1);
        log.dispatched("b", 1);
    }),
    ("1 live, 1 with one to be stopped", |log| {
        log.plan("limits_changed", &json!({ "inFlight": 1 }));
        log.now_ms = 35_000;
        log.dispatched("a", 1);
        log.now_ms = 70_000;
        log.hq("a", "attempt_timed_out", &json!({ "attempt": 1, "kind": "delivery" }));
        log.now_ms = 71_000;
        log.dispatched("a", 2);
        log.succeeded("a", 1);
        log.dispatched("b", 1);
    }),
    ("dispatcher one appends a batch, but two had overtaken it", |log| {
        log.fence("dispatcher", "one");
        log.fence("dispatcher", "two");
        log.fence("dispatcher", "one");
    }),
    ("takes fence 1 after 1", |log| {
        log.fence("convergence", "one");
        log.put("ff.fence.convergence", "convergence/one/1", "fence.taken", &json!({}));
    }),
];
