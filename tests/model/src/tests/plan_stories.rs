//! Rules about plans and summaries, each broken by a small log.

use serde_json::{Value, json};

use super::support::Log;
use super::task_stories::requeue_request;
use super::violations::Story;

/// What the violation says, and a log that has it.
pub(super) const PLANS: &[(&str, Story)] = &[
    ("is cancelled with 1 tasks open that no cancel was decided for, such as b", |log| {
        log.asked("cancel_requested");
        log.hq("a", "cancel_requested", &json!({ "attempt": 0 }));
        log.plan("cancelled", &json!({}));
    }),
    ("is cancelled, but nobody asked for it", |log| {
        log.plan("cancelled", &json!({}));
    }),
    ("is closed with 2 tasks that have not ended, such as a", |log| {
        log.asked("close_requested");
        log.plan("closed", &json!({}));
    }),
    ("is closed while a requeue of a is due", |log| {
        requeue_request(log, &json!({ "failed": {} }));
        log.asked("close_requested");
        log.hq("b", "expired", &json!({ "reason": "closed", "attempt": 0 }));
        log.plan("closed", &json!({}));
    }),
    ("takes a requeue request after it was to be cancelled or closed", |log| {
        log.asked("close_requested");
        log.plan("requeue_requested", &json!({ "failed": {} }));
    }),
    ("has deadline_reached twice", |log| {
        log.now_ms = 100_000;
        log.plan("deadline_reached", &json!({}));
        log.plan("deadline_reached", &json!({}));
    }),
    ("reached its deadline 1 ms before it", |log| {
        log.now_ms = 99_999;
        log.plan("deadline_reached", &json!({}));
    }),
    ("has sealed twice", |log| {
        log.plan("sealed", &json!({ "count": 0, "sha256": "", "by": "ops" }));
    }),
    ("has targets after its seal", |log| {
        log.plan("targets", &json!({ "targets": ["c"] }));
    }),
    ("where the chain of its events asks for", |log| {
        log.put("ff.plan.p.paused", "p/paused/1/44136fa355b3678a", "plan.paused", &json!({}));
    }),
    ("where the chain of its events asks for", |log| {
        log.put("ff.plan.p.paused", "p/paused/3/0000000000000000", "plan.paused", &json!({}));
    }),
    ("publishes revision 2 where 1 is next", |log| {
        log.now_ms = 100_000;
        log.plan("deadline_reached", &json!({}));
        log.summarised("partial", |s| s["revision"] = json!(2));
    }),
    ("publishes a summary that follows", |log| {
        partial(log);
        log.summarised("update", |s| s["previous"]["sha256"] = json!("00"));
    }),
    ("publishes a summary that follows", |log| {
        partial(log);
        log.summarised("update", |s| s["previous"] = Value::Null);
    }),
    ("for a digest", |log| {
        log.summarised("partial", |s| s["sha256"] = json!("nothing"));
    }),
    ("publishes a summary that is wrong as of 4: pending is 2, not Some(1), succeeded is 0, not Some(1)", |log| {
        log.now_ms = 100_000;
        log.plan("deadline_reached", &json!({}));
        log.summarised("partial", |s| {
            s["counts"]["pending"] = json!(1);
            s["counts"]["succeeded"] = json!(1);
        });
    }),
    ("publishes a summary that is wrong as of 5", |log| {
        // It counts what came in only after the position that it names.
        log.now_ms = 100_000;
        log.plan("deadline_reached", &json!({}));
        log.dispatched("a", 1);
        log.succeeded("a", 1);
        log.summarised("partial", |s| s["asOfSeq"] = json!(5));
    }),
    ("where no event of it is", |log| {
        log.summarised("partial", |s| s["asOfSeq"] = json!(99));
    }),
    ("before its own event at 4", |log| {
        log.now_ms = 100_000;
        log.plan("deadline_reached", &json!({}));
        log.summarised("partial", |s| s["asOfSeq"] = json!(3));
    }),
    ("publishes a update summary after None", |log| {
        log.summarised("update", |_| {});
    }),
    ("publishes a partial summary after Some(\"partial\")", |log| {
        partial(log);
        log.summarised("partial", |_| {});
    }),
    ("publishes a partial summary before its deadline was reached", |log| {
        log.summarised("partial", |_| {});
    }),
    ("publishes a complete summary with 2 tasks that have not ended", |log| {
        log.summarised("complete", |_| {});
    }),
    ("publishes a complete summary, but b ended after the deadline", |log| {
        for target in ["a", "b"] {
            log.dispatched(target, 1);
            log.succeeded(target, 1);
            log.now_ms += 100_000;
        }
        log.summarised("complete", |_| {});
    }),
    ("publishes a final summary as of", |log| {
        partial(log);
        log.summarised("final", |_| {});
    }),
    ("has paused after its final summary", |log| {
        partial(log);
        log.asked("close_requested");
        for target in ["a", "b"] {
            log.hq(target, "expired", &json!({ "reason": "closed", "attempt": 0 }));
        }
        log.plan("closed", &json!({}));
        log.summarised("final", |_| {});
        log.plan("paused", &json!({}));
    }),
    ("publishes an update 1 ms before it is due", |log| {
        partial(log);
        log.dispatched("a", 1);
        log.now_ms += 1_999;
        log.summarised("update", |_| {});
    }),
    ("though nothing was said since", |log| {
        partial(log);
        log.now_ms += 2_000;
        log.summarised("update", |_| {});
    }),
    ("publishes the verdict full where 0 of 2 make it reserved", |log| {
        log.now_ms = 100_000;
        log.plan("deadline_reached", &json!({}));
        log.summarised("partial", |s| s["verdict"] = json!("full"));
    }),
];

fn partial(log: &mut Log) {
    log.now_ms = 100_000;
    log.plan("deadline_reached", &json!({}));
    log.summarised("partial", |_| {});
}
