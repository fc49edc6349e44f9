//! Each row of the state table, in a log of its own.

use serde_json::{Value, json};

use super::support::Log;
use crate::ALL_ROWS;

/// One thing that is said, in short: `d1` dispatched 1, `fCODE` failed 1 with a code ... (see [`say`]).
fn say(log: &mut Log, word: &str) {
    let (kind, rest) = word.split_at(1);
    let attempt: u32 = rest.chars().next().and_then(|c| c.to_digit(10)).unwrap_or(1);
    let about = json!({ "attempt": attempt });
    let timed_out = |kind: &str| json!({ "attempt": attempt, "kind": kind });
    let error = |code: &str| json!({ "attempt": 1, "code": code, "message": "m" });
    match kind {
        "d" => log.dispatched("t", attempt),
        "O" => log.hq("t", "deferred", &json!({ "lastSeenMs": null })),
        "R" => log.hq("t", "released", &json!({})),
        "D" => log.hq("t", "attempt_timed_out", &timed_out("delivery")),
        "X" => log.hq("t", "attempt_timed_out", &timed_out("run")),
        "P" => log.hq("t", "attempt_timed_out", &timed_out("progress")),
        "L" => log.hq("t", "attempt_lost", &about),
        "Z" => log.hq("t", "stop_requested", &about),
        "C" => log.hq("t", "cancel_requested", &about),
        "K" => log.hq("t", "cancelled", &json!({})),
        "E" => log.hq("t", "expired", &json!({ "reason": "expired", "attempt": attempt })),
        "Q" => log.hq("t", "requeued", &json!({ "requestSeq": 1 })),
        "s" => log.by("t", "started", &about),
        "p" => log.by("t", "progressed", &json!({ "attempt": 1, "k": attempt, "step": "scan", "ms": 1 })),
        "v" => log.succeeded("t", attempt),
        "i" => log.by("t", "succeeded", &json!({ "attempt": attempt, "result": 1, "verdict": { "valid": false } })),
        "f" => log.failed("t", 1, rest),
        "r" => log.by("t", "rejected", &error(rest)),
        "x" => log.by("t", "stopped", &about),
        "c" => log.plan("closed", &json!({})),
        "w" => {
            log.now_ms += 10_000;
            0
        }
        other => panic!("{other} is no word"),
    };
}

/// Row; what is said; state, tries and set after it.
const CASES: &[(&str, &str, &str, u32, &str)] = &[
    ("foreign report", "s2", "PENDING", 0, "pending"),
    ("foreign report", "d1 v2", "DISPATCHED", 0, "running"),
    ("pending: dispatched", "d1", "DISPATCHED", 0, "running"),
    ("pending: deferred", "O", "PENDING", 0, "offline"),
    ("pending: released", "O R", "PENDING", 0, "pending"),
    ("dispatched: started", "d1 s1", "RUNNING", 0, "running"),
    ("dispatched: progressed", "d1 p1", "RUNNING", 0, "running"),
    ("running: new step", "d1 s1 p1", "RUNNING", 0, "running"),
    ("dispatched: valid success", "d1 v1", "SUCCEEDED", 0, "succeeded"),
    ("running: valid success", "d1 s1 v1", "SUCCEEDED", 0, "succeeded"),
    ("cancelling: failure", "d1 C1 fNET", "CANCELLED", 1, "cancelled"),
    ("cancelling: failure", "d1 s1 C1 x1", "CANCELLED", 1, "cancelled"),
    ("cancelling: free rejection", "d1 C1 rBUSY", "CANCELLED", 0, "cancelled"),
    ("cancelling: other rejection", "d1 C1 rBAD_INPUT", "CANCELLED", 1, "cancelled"),
    ("cancelling: timed out delivery", "d1 C1 D1", "CANCELLED", 0, "cancelled"),
    ("cancelling: cancelled", "d1 C1 K", "CANCELLED", 0, "cancelled"),
    ("live: invalid success", "d1 i1", "PENDING", 1, "pending"),
    ("live: failed", "d1 fNET", "PENDING", 1, "pending"),
    ("live: failed", "d1 fLOST", "PENDING", 1, "timedOut"),
    ("live: timed out run", "d1 s1 X1", "PENDING", 1, "timedOut"),
    ("live: timed out progress", "d1 s1 P1", "PENDING", 1, "timedOut"),
    ("live: lost", "d1 L1", "PENDING", 1, "timedOut"),
    ("live: stopped", "d1 x1", "PENDING", 1, "pending"),
    ("dispatched: free rejection", "d1 rBUSY", "PENDING", 0, "pending"),
    ("dispatched: timed out delivery", "d1 D1", "PENDING", 0, "timedOut"),
    ("undelivered: started after all", "d1 D1 O R s1", "RUNNING", 0, "running"),
    ("not ended: other report", "d1 s1 X1 s1 X1 L1 s2 p1", "PENDING", 1, "timedOut"),
    ("dispatched: other rejection", "d1 rUNKNOWN_TYPE", "PENDING", 1, "pending"),
    ("clock ended: business failure", "d1 D1 fBIZ_1", "FAILED", 0, "failed"),
    ("clock ended: business failure", "d1 L1 fBIZ_1", "FAILED", 1, "failed"),
    ("not ended: valid success of any attempt", "d1 D1 v1", "SUCCEEDED", 0, "succeeded"),
    ("not ended: valid success of any attempt", "d1 D1 w d2 v1", "SUCCEEDED", 0, "succeeded"),
    ("given up: late success", "d1 E1 v1", "SUCCEEDED", 0, "succeeded"),
    ("pending: cancel requested", "C1", "CANCELLED", 0, "cancelled"),
    ("live: cancel requested", "d1 C1", "DISPATCHED", 0, "running"),
    ("pending: expired", "O E0", "FAILED", 0, "offline"),
    ("pending: expired", "d1 D1 E0", "FAILED", 0, "timedOut"),
    ("live: expired", "d1 E1", "FAILED", 0, "failed"),
    ("any: stop requested", "d1 Z1", "DISPATCHED", 0, "running"),
    ("not pending: dispatched", "d1 d2", "DISPATCHED", 0, "running"),
    ("failed: requeued", "d1 fBIZ_1 Q", "PENDING", 0, "pending"),
    ("any: said before", "d1 s1 s1", "RUNNING", 0, "running"),
    ("ended: other report", "d1 fBIZ_1 v1", "FAILED", 1, "failed"),
    ("ended: other report", "d1 E1 c v1", "FAILED", 0, "failed"),
    ("not ended: other report", "d1 fNET s1 x1", "PENDING", 1, "pending"),
    ("any: other decision", "R d1 R", "DISPATCHED", 0, "running"),
    ("any: other decision", "d3", "PENDING", 0, "pending"),
    ("any: other decision", "d1 fBIZ_1 c Q", "FAILED", 1, "failed"),
    ("failure: business", "d1 fBIZ_1", "FAILED", 1, "failed"),
    ("failure: exhausted", "d1 fNET w d2 i2", "FAILED", 2, "invalid"),
    ("failure: again", "d1 fNET", "PENDING", 1, "pending"),
    ("absorbed: ended an attempt", "d1 d2 x2", "DISPATCHED", 0, "running"),
];

#[test]
fn each_row_leads_where_the_design_says() {
    for (row, words, state, tries, set) in CASES {
        let mut log = Log::new(&["t"]);
        words.split(' ').for_each(|word| say(&mut log, word));
        let task = log.task("t");
        assert!(log.model.rows()[row] > 0, "{words}: {row} was not taken, but {:?}", log.model.rows());
        assert_eq!((task.state, task.tries, log.set("t")), (*state, *tries, *set), "{words}: {task:?}");
    }
    let missing: Vec<&&str> = ALL_ROWS.iter().filter(|row| !CASES.iter().any(|case| case.0 == **row)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}

#[test]
fn pauses_grow_as_the_plan_and_the_design_say() {
    let mut log = Log::with(&["t"], |data| {
        data["retry"]["maxAttempts"] = 9.into();
        data["retry"]["jitter"] = json!(0.5);
        data["retry"]["backoffMs"] = json!({ "baseMs": 100, "factor": 3, "maxMs": 1_000 });
    });
    let bounds = |log: &Log| log.task("t").not_before_ms;
    let at = super::support::START_MS;
    for (attempt, base) in (1..).zip([100, 300, 900, 1_000, 1_000]) {
        log.dispatched("t", attempt);
        log.failed("t", attempt, "NET");
        assert_eq!(bounds(&log), (at + base / 2, at + base + base / 2), "attempt {attempt}");
    }
    for (attempt, seconds) in (6..).zip([1, 2, 4, 8, 16, 32, 60, 60]) {
        log.dispatched("t", attempt);
        log.hq("t", "attempt_timed_out", &json!({ "attempt": attempt, "kind": "delivery" }));
        assert_eq!(bounds(&log), (at + seconds * 1_000, at + seconds * 1_000), "attempt {attempt}");
    }
    log.dispatched("t", 14);
    log.by("t", "started", &json!({ "attempt": 14 }));
    assert_eq!(log.task("t").free_ends, 0);
}

#[test]
fn what_is_still_out_at_the_deadline_counts_as_timed_out() {
    let mut log = Log::new(&["a", "b", "c"]);
    log.dispatched("a", 1);
    log.dispatched("b", 1);
    log.by("b", "started", &json!({ "attempt": 1 }));
    let sets = |log: &Log| log.model.plan("p").unwrap().sets().into_iter().filter(|(_, n)| *n > 0).collect::<Vec<_>>();
    assert_eq!(sets(&log), [("pending", 1), ("running", 2)]);
    log.plan("deadline_reached", &json!({}));
    assert_eq!(sets(&log), [("pending", 1), ("timedOut", 2)]);
}

#[test]
fn a_result_is_kept_as_it_was_written() {
    let mut log = Log::new(&["t"]);
    log.dispatched("t", 1);
    let payload =
        br#"{"specversion":"1.0","type":"fanfold.attempt.succeeded.v1","data":{"attempt":1,"result":{"z": [1, 2],"a":1.0}}}"#;
    log.model.feed(99, 0, "ff.task.p.t.main.by.t", payload);
    assert_eq!(log.task("t").result.as_deref(), Some(r#"{"z": [1, 2],"a":1.0}"#));
    let absent: Option<Value> = log.model.plan("q").map(|_| Value::Null);
    assert_eq!(absent, None);
}
