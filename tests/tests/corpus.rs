//! Recorded logs fold to the same states and the same bytes, for ever. See `tests/corpus/README.md`.
//!
//! `FANFOLD_RECORD_CORPUS=1` writes the expectations of logs that have none yet; it never writes over one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use fanfold::error::CliError;
use fanfold::verify::offline::{self, Replayed};
use fanfold_domain::rules::Rules;
use fanfold_domain::sets::set_of;
use fanfold_domain::task::{Absorbed, Attempt, Task};
use fanfold_domain::view::PlanView;
use fanfold_ledger::port::Stored;
use fanfold_wire::digest::sha256_hex;
use serde_json::{Value, json};

/// All logs together stay below this, so that the repository stays small.
const CORPUS_BYTES_MAX: u64 = 1_000_000;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Every recorded log: the rules it was recorded under, its file, its messages.
fn logs() -> Vec<(u32, PathBuf, Vec<Stored>)> {
    let mut found = Vec::new();
    for folder in std::fs::read_dir(corpus()).expect("tests/corpus").map(|e| e.unwrap().path()).filter(|p| p.is_dir()) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let rules = name.strip_prefix("rules-").and_then(|n| n.parse().ok()).expect("a folder is named rules-N");
        for file in std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()) {
            if file.extension().is_some_and(|e| e == "jsonl") {
                let log = offline::read(&std::fs::read(&file).unwrap()).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
                found.push((rules, file, log));
            }
        }
    }
    found.sort_by(|a, b| a.1.cmp(&b.1));
    found
}

fn replayed(log: &[Stored]) -> BTreeMap<String, Replayed> {
    let plans = offline::plans(log);
    plans.iter().map(|plan| (plan.to_string(), offline::replay(log, plan, u64::MAX).expect("it replays"))).collect()
}

fn absorbed(counts: &Absorbed) -> Value {
    json!([counts.duplicate, counts.stale, counts.late, counts.foreign, counts.ignored])
}

fn attempt_facts(attempt: &Attempt) -> Value {
    let steps: Vec<Value> = attempt.steps().iter().map(|s| json!([s.k, s.step, s.ms])).collect();
    json!({
        "number": attempt.number, "terminal": attempt.terminal.as_str(), "journal": attempt.journal.to_string(),
        "dispatchedSeq": attempt.dispatched_seq, "dispatchedMs": attempt.dispatched_ms, "startedMs": attempt.started_ms(),
        "progressedMs": attempt.progressed_ms(), "endedMs": attempt.ended_ms(), "steps": steps,
        "outcome": format!("{:?}", attempt.outcome), "class": format!("{:?}", attempt.class),
        "error": attempt.error.as_ref().map(|e| json!([e.code, e.message, e.paths])),
        "stopRequested": attempt.stop_requested, "superseded": attempt.superseded,
    })
}

/// Everything the fold keeps of a task but its result, whose bytes are in the summaries.
fn task_facts(view: &PlanView, index: usize, task: &Task) -> Value {
    let attempts: Vec<Value> = task.attempts.iter().map(attempt_facts).collect();
    json!({
        "target": view.plan.targets[index].as_str(),
        "state": format!("{:?}", task.state), "set": format!("{:?}", set_of(&view.plan, task)),
        "attempt": task.attempt, "lastAttempt": task.last_attempt, "tries": task.tries, "noTryEnds": task.no_try_ends,
        "failure": format!("{:?}", task.failure), "lastOutcome": format!("{:?}", task.last_outcome), "late": task.late,
        "error": task.error.as_ref().map(|e| json!([e.code, e.message, e.paths])), "result": task.result.is_some(),
        "waiting": format!("{:?}", task.waiting), "pendingSince": format!("{:?}", task.pending_since),
        "notBeforeMs": task.not_before_ms, "cancelling": task.cancelling, "cancelMs": task.cancel_ms(),
        "finalSeq": task.final_seq, "finalMs": task.final_ms, "rowSeq": task.row_seq, "seq": task.seq,
        "decisionSeq": task.decision_seq, "createdMs": task.created_ms, "updatedMs": task.updated_ms,
        "absorbed": absorbed(&task.absorbed()), "attempts": attempts,
    })
}

/// What a log comes to: readable where a difference must be understood, digests for the rest.
fn outcome(log: &[Stored]) -> Value {
    let plan = |replayed: &Replayed| {
        let view = &replayed.view;
        let tasks: BTreeMap<String, String> = view
            .tasks
            .iter()
            .enumerate()
            .map(|(i, t)| {
                (view.plan.targets[i].to_string(), format!("{:?} {:?} attempt {}", t.state, set_of(&view.plan, t), t.attempt))
            })
            .collect();
        let facts: Vec<Value> = view.tasks.iter().enumerate().map(|(i, t)| task_facts(view, i, t)).collect();
        let summaries: Vec<Value> = replayed
            .summaries
            .iter()
            .map(|(s, sha256)| json!({ "revision": s.this.revision, "kind": s.kind, "asOfSeq": s.this.as_of_seq, "sha256": sha256.as_ref().expect("it is computed") }))
            .collect();
        json!({
            "lastSeq": view.last_seq, "rules": view.plan.rules.version(), "sets": view.counts(), "tasks": tasks,
            "summaries": summaries, "absorbed": absorbed(&view.absorbed()),
            "tasksSha256": sha256_hex(serde_json::to_string(&facts).unwrap().as_bytes()),
        })
    };
    json!(replayed(log).iter().map(|(id, replayed)| (id.clone(), plan(replayed))).collect::<BTreeMap<_, _>>())
}

fn expectation(file: &Path) -> PathBuf {
    file.with_extension("expected.json")
}

#[test]
fn every_recorded_log_gives_what_it_gave_when_it_was_recorded() {
    let recording = std::env::var_os("FANFOLD_RECORD_CORPUS").is_some();
    let logs = logs();
    assert!(logs.len() >= 8, "the corpus is there: {}", logs.len());
    for (rules, file, log) in &logs {
        let found = outcome(log);
        let path = expectation(file);
        if recording && !path.exists() {
            std::fs::write(&path, serde_json::to_string_pretty(&found).unwrap() + "\n").unwrap();
        }
        let expected =
            std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e} (record it, see the README)", path.display()));
        let expected: Value = serde_json::from_str(&expected).unwrap();
        for (plan, wanted) in expected.as_object().unwrap() {
            let got = &found[plan];
            assert_eq!(got["rules"], json!(rules), "{} {plan}", file.display());
            for (what, wanted) in wanted.as_object().unwrap() {
                assert_eq!(&got[what], wanted, "{} {plan}: {what}", file.display());
            }
        }
        assert_eq!(found.as_object().unwrap().len(), expected.as_object().unwrap().len(), "{}", file.display());
        // What was published when it was recorded is what is computed now.
        for (plan, replayed) in replayed(log) {
            assert_eq!(replayed.first_difference(), None, "{} {plan}", file.display());
        }
    }
}

#[test]
fn every_version_of_the_rules_has_recorded_logs() {
    let logs = logs();
    for rules in Rules::SUPPORTED {
        assert!(logs.iter().any(|(version, _, _)| *version == rules.version()), "no log of {rules:?}");
    }
    let bytes: u64 = logs.iter().map(|(_, file, _)| std::fs::metadata(file).unwrap().len()).sum();
    assert!(bytes <= CORPUS_BYTES_MAX, "the logs have {bytes} bytes");
}

#[test]
fn the_corpus_holds_every_kind_of_history() {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (_, _, log) in logs() {
        for message in &log {
            let event: Value = serde_json::from_slice(&message.payload).unwrap();
            *seen.entry(event["type"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    let wanted = [
        "plan.cancelled",
        "plan.cancel_requested",
        "plan.close_requested",
        "plan.requeue_requested",
        "plan.deadline_reached",
        "plan.summarised",
        "plan.closed",
        "task.dispatched",
        "task.deferred",
        "task.attempt_timed_out",
        "task.attempt_lost",
        "task.cancel_requested",
        "task.expired",
        "task.requeued",
        "attempt.started",
        "attempt.progressed",
        "attempt.succeeded",
        "attempt.failed",
        "attempt.rejected",
        "attempt.stopped",
    ];
    let absent: Vec<_> = wanted.iter().filter(|name| !seen.contains_key(&format!("fanfold.{name}.v1"))).collect();
    assert!(absent.is_empty(), "not in the corpus: {absent:?}; there are {seen:?}");
}

/// A log with one member of one event's data changed.
fn changed(log: &[Stored], name: &str, change: impl Fn(&mut Value)) -> Option<Vec<Stored>> {
    let at = log.iter().position(|m| String::from_utf8_lossy(&m.payload).contains(&format!("\"fanfold.{name}.v1\"")))?;
    let mut log = log.to_vec();
    let mut event: Value = serde_json::from_slice(&log[at].payload).unwrap();
    change(&mut event["data"]);
    log[at].payload = Bytes::from(event.to_string());
    Some(log)
}

#[test]
fn a_log_of_unknown_rules_is_refused() {
    let unknown = Rules::CURRENT.version() + 1;
    for (_, file, log) in logs() {
        let log = changed(&log, "plan.submitted", |data| data["rules"] = json!(unknown)).expect("a submission");
        let plan = offline::plans(&log).remove(0);
        let error = CliError::from(offline::replay(&log, &plan, u64::MAX).unwrap_err());
        assert_eq!(error.code(), "UNSUPPORTED_RULES", "{}: {error}", file.display());
        assert!(error.to_string().contains(&format!("version {unknown}")), "{error}");
    }
}

/// What tells version 2 from version 1 is in a log of version 2.
#[test]
fn a_cancel_that_stopped_an_attempt_is_told_differently_by_version_1() {
    let differs = |name: &str| {
        let all = logs();
        let (_, _, log) = all.iter().find(|(rules, file, _)| *rules == 2 && file.file_stem().is_some_and(|s| s == name)).unwrap();
        let old = changed(log, "plan.submitted", |data| data["rules"] = json!(1)).expect("a submission");
        let (new, old) = (outcome(log), outcome(&old));
        assert_eq!(new["p"]["tasks"], old["p"]["tasks"], "states and sets are the same");
        new["p"]["tasksSha256"] != old["p"]["tasksSha256"]
    };
    assert!(differs("memory-cancel"));
    assert!(!differs("memory-progress"), "a stop without a cancel is told alike");
}

/// A change of what the fold makes of one event is seen: here the event is changed instead of the row, with the same effect.
#[test]
fn another_fold_of_a_single_event_is_seen() {
    type Change = (&'static str, fn(&mut Value));
    let changes: [Change; 5] = [
        ("attempt.failed", |data| data["code"] = json!("SOMETHING_ELSE")),
        ("attempt.succeeded", |data| data["verdict"] = json!({ "valid": false, "errors": ["/n: changed"] })),
        ("task.attempt_timed_out", |data| data["kind"] = json!("progress")),
        ("task.deferred", |data| data["lastSeenMs"] = json!(1)),
        ("attempt.rejected", |data| data["code"] = json!("NO_SUCH_TYPE")),
    ];
    for (name, change) in changes {
        let (mut tried, mut seen) = (0, 0);
        for (_, _, log) in logs() {
            let Some(other) = changed(&log, name, change) else { continue };
            tried += 1;
            // In some history what came after may have made it meaningless; not in all.
            seen += usize::from(outcome(&other) != outcome(&log));
        }
        assert!(tried > 0 && seen > 0, "{name}: changed in {tried} logs, seen in {seen}");
    }
}

#[test]
fn summaries_notice_an_event_that_is_gone() {
    for (_, file, log) in logs() {
        let gone = log
            .iter()
            .position(|m| m.subject.contains(".by.") && String::from_utf8_lossy(&m.payload).contains("attempt.succeeded"));
        let Some(gone) = gone else { continue };
        let mut log = log;
        log.remove(gone);
        let differs = replayed(&log).values().any(|replayed| replayed.first_difference().is_some());
        assert!(differs, "{}: a success is missing and nobody noticed", file.display());
    }
}
