//! Random histories of one plan, as stored messages: anything at any time, repeated, out of order, by whom it may not be.

use fanfold_sdk::SplitMix64;
use serde_json::{Value, json};

use crate::Stored;

const PLAN: &str = "plan_1";
const TARGETS: usize = 3;
const SEALED_MS: i64 = 1_700_000_000_000;
const CODES: [&str; 8] = ["BUSY", "ALREADY_DONE", "BIZ_1", "NET_1", "TIMEOUT", "LOST", "SCHEMA_INVALID", "UNKNOWN_TYPE"];

/// Numbers of a seed.
pub(crate) struct Random(SplitMix64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }
}

struct Writer {
    stored: Vec<Stored>,
    now_ms: i64,
    handed_out: [u32; TARGETS],
}

impl Writer {
    fn put(&mut self, subject: String, name: &str, data: &Value) {
        let seq = self.stored.len() as u64 + 1;
        let event = json!({ "specversion": "1.0", "id": format!("e/{seq}"), "source": "/test", "type": format!("fanfold.{name}.v1"),
            "subject": PLAN, "data": data });
        self.stored.push((seq, self.now_ms, subject, serde_json::to_vec(&event).unwrap()));
    }

    fn plan(&mut self, name: &str, data: &Value) {
        self.put(format!("ff.plan.{PLAN}.{name}"), &format!("plan.{name}"), data);
    }

    fn decision(&mut self, i: usize, name: &str, data: &Value) {
        self.put(format!("ff.task.{PLAN}.T{i}.main.hq.T{i}"), &format!("task.{name}"), data);
    }

    fn report(&mut self, i: usize, by: &str, name: &str, data: &Value) {
        self.put(format!("ff.task.{PLAN}.T{i}.main.by.{by}"), &format!("attempt.{name}"), data);
    }
}

fn submitted() -> Value {
    json!({ "planId": PLAN, "type": { "name": "echo", "version": 1 }, "input": {},
        "deadline": { "afterSealMs": 3_600_000 }, "expires": { "afterSealMs": 86_400_000 }, "limits": { "inFlight": 100 },
        "converge": { "minSuccess": 0.5, "below": "reserved" },
        "retry": { "maxAttempts": 2, "backoffMs": [10_000], "jitter": 0.0, "transient": ["NET_*"], "business": ["BIZ_*"] },
        "timeouts": { "deliverMs": 30_000, "runMs": 600_000 }, "outputSchema": {}, "rules": fanfold_domain::RULES_VERSION, "contentSha256": "00" })
}

/// A history; the same for the same seed.
pub(crate) fn history(seed: u64) -> Vec<Stored> {
    let mut random = Random::new(seed);
    let mut log = Writer { stored: Vec::new(), now_ms: SEALED_MS, handed_out: [0; TARGETS] };
    log.plan("submitted", &submitted());
    let targets: Vec<String> = (0..TARGETS).map(|i| format!("T{i}")).collect();
    log.plan("targets", &json!({ "targets": targets }));
    log.plan("sealed", &json!({ "count": TARGETS, "sha256": "ab".repeat(32), "by": "ops" }));
    for _ in 0..random.below(120) {
        step(&mut log, &mut random);
    }
    log.stored
}

fn step(log: &mut Writer, random: &mut Random) {
    let i = random.below(TARGETS as u64) as usize;
    match random.below(100) {
        0..24 => dispatched(log, random, i),
        24..46 => decision(log, random, i),
        46..91 => report(log, random, i),
        91..93 => plan_event(log, random),
        93..95 => {
            // What was stored once is stored again.
            let at = 3 + random.below((log.stored.len() as u64 - 3).max(1)) as usize;
            if let Some((_, _, subject, payload)) = log.stored.get(at).cloned() {
                log.stored.push((log.stored.len() as u64 + 1, log.now_ms, subject, payload));
            }
        }
        _ => log.now_ms += random.below(100_000) as i64 - 5_000,
    }
}

fn attempt(log: &Writer, random: &mut Random, i: usize) -> u32 {
    match random.below(10) {
        0 => random.below(4) as u32,
        1 => log.handed_out[i].saturating_sub(1),
        2 if random.below(8) == 0 => u32::MAX,
        _ => log.handed_out[i],
    }
}

fn dispatched(log: &mut Writer, random: &mut Random, i: usize) {
    let number = if random.below(12) == 0 { attempt(log, random, i) } else { log.handed_out[i] + 1 };
    let terminal = if random.below(15) == 0 { "other".to_owned() } else { format!("T{i}") };
    let data = json!({ "protocolVersion": 1, "attempt": number, "terminal": terminal, "journal": "j", "boot": "b", "type": "echo",
        "version": 1, "input": {}, "runTimeoutMs": 600_000 });
    log.decision(i, "dispatched", &data);
    if number == log.handed_out[i] + 1 {
        log.handed_out[i] = number;
    }
}

fn decision(log: &mut Writer, random: &mut Random, i: usize) {
    let attempt = attempt(log, random, i);
    let about = json!({ "attempt": attempt });
    match random.below(16) {
        0 => log.decision(i, "deferred", &json!({ "lastSeenMs": random.pick(&[Value::Null, json!(1)]) })),
        1 => log.decision(i, "released", &json!({})),
        2..5 => {
            let kind = random.pick(&["delivery", "run", "progress"]);
            log.decision(i, "attempt_timed_out", &json!({ "attempt": attempt, "kind": kind }));
        }
        5 | 6 => log.decision(i, "attempt_lost", &about),
        7 => log.decision(i, "stop_requested", &about),
        8..10 => log.decision(i, "cancel_requested", &about),
        10 => log.decision(i, "cancelled", &json!({})),
        11 => log.decision(i, "expired", &json!({ "reason": random.pick(&["expired", "closed"]), "attempt": attempt })),
        _ => log.decision(i, "requeued", &json!({ "requestSeq": 1 })),
    }
}

fn report(log: &mut Writer, random: &mut Random, i: usize) {
    let attempt = attempt(log, random, i);
    let by = if random.below(12) == 0 { "other".to_owned() } else { format!("T{i}") };
    let about = json!({ "attempt": attempt });
    let code = if random.below(3) == 0 { "BUSY" } else { random.pick(&CODES) };
    let error = json!({ "attempt": attempt, "code": code, "message": "m" });
    match random.below(20) {
        0..4 => log.report(i, &by, "started", &about),
        4..7 => {
            let k = random.below(3);
            log.report(i, &by, "progressed", &json!({ "attempt": attempt, "k": k, "step": format!("step {k}"), "ms": 5 }));
        }
        7..9 => log.report(
            i,
            &by,
            "succeeded",
            &json!({ "attempt": attempt, "result": { "n": log.stored.len() }, "verdict": { "valid": true } }),
        ),
        9 | 10 => {
            let verdict = json!({ "valid": false, "errors": ["/n: is missing"] });
            log.report(i, &by, "succeeded", &json!({ "attempt": attempt, "result": {}, "verdict": verdict }));
        }
        11..14 => log.report(i, &by, "failed", &error),
        14..18 => log.report(i, &by, "rejected", &error),
        _ => log.report(i, &by, "stopped", &about),
    }
}

fn plan_event(log: &mut Writer, random: &mut Random) {
    let asked = json!({ "by": "ops", "reason": "" });
    match random.below(12) {
        0 | 1 => log.plan("deadline_reached", &json!({})),
        2 => log.plan("closed", &json!({})),
        3 => log.plan("paused", &json!({})),
        4 => log.plan("cancelled", &json!({})),
        5 => log.plan("cancel_requested", &asked),
        6 => log.plan("close_requested", &asked),
        7 => log.plan("requeue_requested", &json!({ "failed": { "codes": [] } })),
        8 => log.plan("limits_changed", &json!({ "inFlight": 5 })),
        9 => log.plan("targets", &json!({ "targets": ["T9"] })),
        10 if random.below(2) == 0 => {
            log.put(format!("ff.task.{PLAN}.T1.main.hq.T1"), "attempt.started", &json!({ "attempt": 1 }))
        }
        11 if random.below(2) == 0 => {
            log.put(format!("ff.task.{PLAN}.T1.main.by.T1"), "task.expired", &json!({ "reason": "closed" }))
        }
        10 => log.put(format!("ff.task.{PLAN}.T77.main.by.T77"), "attempt.started", &json!({ "attempt": 1 })),
        _ => log.put(format!("ff.task.{PLAN}.T0.main.by.T0"), "attempt.unheard_of", &json!({ "attempt": 1 })),
    }
}
