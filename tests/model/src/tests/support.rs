//! Writing a small log.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{Model, Task};

/// Log time of the seal, epoch ms.
pub(super) const START_MS: i64 = 1_700_000_000_000;
pub(super) const PLAN: &str = "p";

/// A log that is being written as the design says, and the model that reads it.
pub(super) struct Log {
    pub(super) model: Model,
    /// Log time of the next message, milliseconds after [`START_MS`].
    pub(super) now_ms: i64,
    pub(super) seq: u64,
    plan_seq: u64,
    decisions: BTreeMap<String, u64>,
    fences: BTreeMap<String, u64>,
}

pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

pub(super) fn submission() -> Value {
    json!({ "planId": PLAN, "type": { "name": "echo", "version": 1 }, "input": {}, "deadline": { "afterSealMs": 100_000 },
        "expires": { "afterSealMs": 1_000_000 }, "limits": { "inFlight": 100 },
        "converge": { "minSuccess": 0.5, "below": "reserved" },
        "retry": { "maxAttempts": 2, "backoffMs": [1_000], "jitter": 0.0, "transient": [], "business": ["BIZ_*"] },
        "timeouts": { "deliverMs": 30_000, "runMs": 600_000 }, "outputSchema": {}, "rules": 1, "contentSha256": "00" })
}

impl Log {
    pub(super) fn empty() -> Self {
        let (decisions, fences) = (BTreeMap::new(), BTreeMap::new());
        Self { model: Model::new(), now_ms: 0, seq: 0, plan_seq: 0, decisions, fences }
    }

    /// A sealed plan with these targets.
    pub(super) fn new(targets: &[&str]) -> Self {
        Self::with(targets, |_| {})
    }

    /// The same with its submission changed.
    pub(super) fn with(targets: &[&str], change: impl FnOnce(&mut Value)) -> Self {
        let mut log = Self::empty();
        let mut data = submission();
        change(&mut data);
        log.begin(targets, &data);
        log
    }

    /// Stores submission, targets and seal.
    pub(super) fn begin(&mut self, targets: &[&str], submission: &Value) {
        self.plan("submitted", submission);
        self.put_plan("targets", &format!("{PLAN}/targets/0"), &json!({ "targets": targets }));
        let list: String = targets.iter().map(|t| format!("{t}\n")).collect();
        self.plan("sealed", &json!({ "count": targets.len(), "sha256": sha256_hex(list.as_bytes()), "by": "ops" }));
    }

    /// Stores anything.
    pub(super) fn put(&mut self, subject: &str, id: &str, name: &str, data: &Value) -> u64 {
        self.seq += 1;
        let event = json!({ "specversion": "1.0", "id": id, "type": format!("fanfold.{name}.v1"), "data": data });
        self.model.feed(self.seq, START_MS + self.now_ms, subject, event.to_string().as_bytes());
        self.seq
    }

    /// Stores a plan event with any id.
    pub(super) fn put_plan(&mut self, name: &str, id: &str, data: &Value) -> u64 {
        self.plan_seq = self.put(&format!("ff.plan.{PLAN}.{name}"), id, &format!("plan.{name}"), data);
        self.plan_seq
    }

    /// Stores a plan event with its computed id.
    pub(super) fn plan(&mut self, name: &str, data: &Value) -> u64 {
        let digest = sha256_hex(data.to_string().as_bytes());
        let id = format!("{PLAN}/{name}/{}/{}", self.plan_seq, &digest[..16]);
        self.put_plan(name, &id, data)
    }

    /// Stores a decision with its computed id.
    pub(super) fn hq(&mut self, target: &str, name: &str, data: &Value) -> u64 {
        let before = self.decisions.get(target).copied().unwrap_or(0);
        let id = format!("{PLAN}.{target}.main/task.{name}/{before}");
        let seq = self.put(&format!("ff.task.{PLAN}.{target}.main.hq.{target}"), &id, &format!("task.{name}"), data);
        self.decisions.insert(target.to_owned(), seq);
        seq
    }

    /// Stores a report of the target's own terminal with its computed id.
    pub(super) fn by(&mut self, target: &str, name: &str, data: &Value) -> u64 {
        let mut id = format!("{PLAN}.{target}.main/{}/{target}/attempt.{name}", data["attempt"]);
        if name == "progressed" {
            id = format!("{id}/{}", data["k"]);
        }
        self.put(&format!("ff.task.{PLAN}.{target}.main.by.{target}"), &id, &format!("attempt.{name}"), data)
    }

    /// Stores a leader's fence.
    pub(super) fn fence(&mut self, role: &str, incarnation: &str) -> u64 {
        let number = self.fences.entry(format!("{role}/{incarnation}")).or_default();
        *number += 1;
        let id = format!("{role}/{incarnation}/{number}");
        self.put(&format!("ff.fence.{role}"), &id, "fence.taken", &json!({ "role": role, "incarnation": incarnation }))
    }

    pub(super) fn dispatched(&mut self, target: &str, attempt: u32) -> u64 {
        self.hq(target, "dispatched", &dispatch(target, attempt))
    }

    pub(super) fn succeeded(&mut self, target: &str, attempt: u32) -> u64 {
        self.by(target, "succeeded", &json!({ "attempt": attempt, "result": { "n": 1 }, "verdict": { "valid": true } }))
    }

    pub(super) fn failed(&mut self, target: &str, attempt: u32, code: &str) -> u64 {
        self.by(target, "failed", &json!({ "attempt": attempt, "code": code, "message": "m" }))
    }

    /// Publishes a summary of the plan as it is now, or as of its closing, with some of it changed.
    pub(super) fn summarised(&mut self, kind: &str, change: impl FnOnce(&mut Value)) -> u64 {
        let plan = self.model.plan(PLAN).unwrap();
        let (last, counts) = (plan.summaries.last(), plan.sets());
        let revision = last.map_or(0, |s| s.revision) + 1;
        let succeeded = counts["succeeded"] == plan.targets.len() as u64;
        let as_of = plan.closed_seq.filter(|_| kind == "final").unwrap_or(plan.last_seq);
        let mut data = json!({ "revision": revision, "kind": kind, "asOfSeq": as_of, "counts": counts,
            "sha256": sha256_hex(&[revision as u8]), "verdict": if succeeded { "full" } else { "reserved" } });
        if let Some(s) = last {
            data["previous"] = json!({ "revision": s.revision, "asOfSeq": s.as_of_seq, "sha256": s.sha256 });
        }
        change(&mut data);
        self.plan("summarised", &data)
    }

    /// A decision with no data.
    pub(super) fn bare(&mut self, target: &str, name: &str) -> u64 {
        self.hq(target, name, &json!({}))
    }

    pub(super) fn asked(&mut self, what: &str) -> u64 {
        self.plan(what, &json!({ "by": "ops", "reason": "" }))
    }

    pub(super) fn task(&self, target: &str) -> &Task {
        &self.model.plan(PLAN).unwrap().tasks[target]
    }

    pub(super) fn set(&self, target: &str) -> &'static str {
        self.model.plan(PLAN).unwrap().set_of(target)
    }
}

pub(super) fn dispatch(target: &str, attempt: u32) -> Value {
    json!({ "protocolVersion": 1, "attempt": attempt, "terminal": target, "journal": "j", "boot": "b", "type": "echo",
        "version": 1, "input": {}, "runTimeoutMs": 600_000 })
}
