//! Each rule, broken by a log of its own; and lawful logs that break none.

use serde_json::{Value, json};

use super::plan_stories::PLANS;
use super::support::{Log, PLAN};
use super::task_stories::TASKS;
use crate::Model;

/// What breaks a rule, after a seal of the targets `a` and `b`.
pub(super) type Story = fn(&mut Log);

/// Several tasks through most of what may lawfully happen, up to the final summary.
fn lawful() -> Log {
    let mut log = Log::new(&["a", "b", "c", "d", "e"]);
    log.fence("dispatcher", "one");
    for target in ["a", "b", "c"] {
        log.dispatched(target, 1);
    }
    log.hq("d", "deferred", &json!({ "lastSeenMs": null }));
    log.succeeded("a", 1);
    log.succeeded("a", 1);
    log.failed("b", 1, "NET");
    log.now_ms = 30_000;
    log.fence("dispatcher", "two");
    log.hq("c", "attempt_timed_out", &json!({ "attempt": 1, "kind": "delivery" }));
    log.dispatched("b", 2);
    log.now_ms = 31_000;
    log.dispatched("c", 2);
    log.by("c", "started", &json!({ "attempt": 1 }));
    log.hq("d", "released", &json!({}));
    log.dispatched("d", 1);
    log.failed("b", 2, "NET");
    // Late word of an attempt that was given up; the newer one is to be stopped.
    log.succeeded("c", 1);
    log.hq("c", "stop_requested", &json!({ "attempt": 2 }));
    log.by("c", "stopped", &json!({ "attempt": 2 }));
    log.now_ms = 100_000;
    log.fence("convergence", "x");
    log.plan("deadline_reached", &json!({}));
    log.summarised("partial", |_| {});
    let request = log.plan("requeue_requested", &json!({ "failed": { "codes": ["NET"] } }));
    log.hq("b", "requeued", &json!({ "requestSeq": request }));
    log.dispatched("b", 3);
    log.succeeded("d", 1);
    log.now_ms = 102_000;
    log.summarised("update", |_| {});
    log.asked("close_requested");
    log.hq("b", "expired", &json!({ "reason": "closed", "attempt": 3 }));
    log.succeeded("b", 3);
    log.hq("e", "expired", &json!({ "reason": "closed", "attempt": 0 }));
    log.plan("closed", &json!({}));
    log.succeeded("b", 3);
    log.summarised("final", |_| {});
    log
}

#[test]
fn a_lawful_life_breaks_nothing() {
    let log = lawful();
    assert_eq!(log.model.violations(), Vec::<String>::new());
    let plan = log.model.plan(PLAN).unwrap();
    assert!(plan.is_over());
    assert_eq!(plan.absorbed(), [2, 1, 1, 0, 0]);
}

#[test]
fn a_lawful_cancel_breaks_nothing() {
    let mut log = Log::new(&["a", "b", "c"]);
    log.dispatched("a", 1);
    log.dispatched("b", 1);
    log.failed("b", 1, "BIZ_1");
    log.asked("cancel_requested");
    // Handed out by who had not seen the request.
    log.dispatched("c", 1);
    log.hq("a", "cancel_requested", &json!({ "attempt": 1 }));
    log.hq("c", "cancel_requested", &json!({ "attempt": 1 }));
    log.plan("cancelled", &json!({}));
    log.by("a", "stopped", &json!({ "attempt": 1 }));
    log.bare("c", "cancelled");
    log.summarised("complete", |_| {});
    log.asked("close_requested");
    log.plan("closed", &json!({}));
    log.summarised("final", |_| {});
    assert_eq!(log.model.violations(), Vec::<String>::new());
}

#[test]
fn each_broken_rule_is_told_with_its_sequence() {
    for (says, story) in TASKS.iter().chain(PLANS) {
        let mut log = Log::new(&["a", "b"]);
        assert_eq!(log.model.violations(), Vec::<String>::new());
        story(&mut log);
        let found = log.model.violations();
        let Some(violation) = found.iter().find(|v| v.contains(says)) else { panic!("no {says:?} among {found:#?}") };
        let seq = violation.strip_prefix("seq ").and_then(|v| v.split(':').next()).and_then(|seq| seq.parse::<u64>().ok());
        assert!(seq.is_some_and(|seq| seq > 3 && seq <= log.seq), "{violation}");
    }
}

#[test]
fn a_seal_that_is_not_of_the_list_is_told() {
    let seal = |targets: &Value, count: u64, sha256: &str| {
        let mut log = Log::empty();
        log.plan("submitted", &super::support::submission());
        log.put_plan("targets", "p/targets/0", &json!({ "targets": targets }));
        log.plan("sealed", &json!({ "count": count, "sha256": sha256, "by": "ops" }));
        log.model.violations().join("\n")
    };
    let digest = super::support::sha256_hex(b"a\nb\n");
    assert_eq!(seal(&json!(["a", "b"]), 2, &digest), "");
    assert!(seal(&json!(["a", "b"]), 3, &digest).contains("is sealed with Some(3) targets, but lists 2"));
    assert!(seal(&json!(["b", "a"]), 2, &digest).contains("is sealed with the digest"));
    assert!(seal(&json!(["a", "b", "a"]), 3, &digest).contains("lists 3 targets, but only 2 different ones"));
}

#[test]
fn clocks_may_be_told_to_be_apart() {
    for (apart_ms, found) in [(0, 1), (9, 1), (10, 0)] {
        let mut log = Log::empty();
        log.model = Model::new().clocks_apart_ms(apart_ms);
        log.begin(&["a"], &super::support::submission());
        log.dispatched("a", 1);
        log.failed("a", 1, "NET");
        log.now_ms = 990;
        log.dispatched("a", 2);
        assert_eq!(log.model.violations().len(), found, "{apart_ms} ms apart");
    }
}

#[test]
fn violations_are_bounded() {
    let mut log = Log::new(&["a"]);
    for _ in 0..1_005 {
        log.hq("a", "requeued", &json!({ "requestSeq": 99 }));
    }
    let found = log.model.violations();
    assert_eq!(found.len(), 1_001);
    assert_eq!(found.last().unwrap(), "1010 more");
}
