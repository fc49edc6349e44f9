//! Summaries and records: computed from a folded plan they satisfy their schemas and are, byte for byte, what they were before.

use fanfold_domain::plan::SummaryKind;
use fanfold_domain::sets::TaskSet;
use fanfold_domain::task::TaskState;
use fanfold_wire::digest::sha256_hex;
use fanfold_wire::record::{Checkpoint, PlanRecord, TaskRecord, TerminalRecord};
use serde::Serialize;
use serde_json::Value;

use crate::history::{History, TARGETS, until_closed, until_deadline};
use crate::samples::succeeded;
use crate::support::{assert_valid, bad, check_kind, goldens, schema, through};

/// Fails unless the golden of that name is this value.
fn assert_golden(kind: &str, variant: &str, value: &impl Serialize) {
    let value = serde_json::to_value(value).unwrap();
    let goldens = goldens(kind);
    let golden = goldens.iter().find(|g| g.variant == variant).unwrap_or_else(|| panic!("no golden/{kind}/{variant}: {value:#}"));
    assert_eq!(golden.value, value, "golden/{kind}/{variant}");
}

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn record(log: &History, id: &str) -> TaskRecord {
    TaskRecord::of(&log.view, TARGETS.iter().position(|t| *t == id).unwrap()).unwrap()
}

#[test]
fn summaries_of_a_fixed_log_are_the_same_bytes_for_ever() {
    let schema = schema("summary");
    let mut log = until_deadline();
    let documents = until_closed(&mut log);
    for (bytes, variant) in documents.iter().zip(["partial", "update", "final"]) {
        let value = parsed(bytes);
        assert_valid(&schema, variant, &value);
        assert_golden("summary", variant, &value);
    }
    // Results stand in them as the terminals wrote them, so the digest says more than equal JSON.
    let digests: Vec<String> = documents.iter().map(|bytes| sha256_hex(bytes)).collect();
    assert_eq!(
        digests,
        [
            "e9532152ce8b29f2afd5555d8c7e63161569dbcc10fb451b3c6312dd02dccc55",
            "e197215cadc549ac79ae98b57d9b34019d0ef02cc588b2a139bec148e2516efe",
            "4aaa37ff2906166ec9f3ce2b05c85f66a30a6750b0f5f0b180a6bd91932114e7",
        ]
    );
    assert_eq!(until_closed(&mut until_deadline()), documents);
    assert!(log.view.is_over());
}

#[test]
fn a_summary_of_a_plan_that_is_all_in_satisfies_the_schema() {
    let mut log = History::begin(&["SH_0001", "SH_0002"], |spec| {
        (spec.title, spec.business_key) = (None, None);
    });
    for id in ["SH_0001", "SH_0002"] {
        log.task(id, crate::samples::dispatched(id, 1));
        log.task(id, succeeded(1, "null"));
    }
    let value = parsed(&log.summarise(SummaryKind::Complete));
    assert_valid(&schema("summary"), "complete", &value);
    assert_golden("summary", "complete", &value);
}

#[test]
fn the_eight_sets_are_all_among_the_goldens_and_add_up() {
    for golden in goldens("summary") {
        assert_valid(&schema("summary"), &golden.variant, &golden.value);
        let sum: u64 = TaskSet::ALL.iter().map(|set| golden.value["counts"][set.name()].as_u64().unwrap()).sum();
        assert_eq!(Some(sum), golden.value["total"].as_u64(), "{}", golden.variant);
        let rows = golden.value["rows"].as_array().unwrap();
        assert_eq!(rows.len() as u64, sum, "{}", golden.variant);
        for set in TaskSet::ALL {
            let count = rows.iter().filter(|row| row["set"] == set.name()).count() as u64;
            assert_eq!(golden.value["counts"][set.name()].as_u64(), Some(count), "{}: {}", golden.variant, set.name());
        }
    }
    let seen = |set: TaskSet| goldens("summary").iter().any(|g| g.value["counts"][set.name()].as_u64() > Some(0));
    // Running is for summaries before the deadline, and a first summary is written then only when nothing runs.
    assert!(TaskSet::ALL.iter().all(|set| *set == TaskSet::Running || seen(*set)));
}

#[test]
fn broken_summaries_are_refused_by_the_schema() {
    let schema = schema("summary");
    let bad = bad("summary");
    assert!(!bad.is_empty());
    for document in bad {
        assert!(!schema.check(&document.value).is_empty(), "the schema accepts golden/bad/summary/{}", document.variant);
    }
}

#[test]
fn task_records_satisfy_their_schema_and_are_what_they_were() {
    let schema = schema("task-record");
    let mut log = until_deadline();
    for (id, variant) in [
        ("SH_0001", "succeeded-at-second-try"),
        ("SH_0002", "failed-business"),
        ("SH_0003", "invalid"),
        ("SH_0004", "offline"),
        ("SH_0005", "offline-never-seen"),
        ("SH_0006", "still-running"),
        ("SH_0007", "untouched"),
        ("SH_0008", "cancelled"),
        ("SH_0009", "timed-out"),
        ("SH_0010", "needs-attention"),
    ] {
        let record = record(&log, id);
        assert_valid(&schema, id, &serde_json::to_value(&record).unwrap());
        assert_golden("task-record", variant, &record);
    }
    until_closed(&mut log);
    assert_eq!(record(&log, "SH_0009").status, TaskState::Succeeded);
    for id in TARGETS {
        assert_valid(&schema, id, &serde_json::to_value(record(&log, id)).unwrap());
    }
    assert_golden("task-record", "expired", &record(&log, "SH_0006"));
}

#[test]
fn plan_records_satisfy_their_schema_and_are_what_they_were() {
    let mut log = until_deadline();
    assert_golden("plan-record", "open", &PlanRecord::of(&log.view));
    until_closed(&mut log);
    assert_golden("plan-record", "closed", &PlanRecord::of(&log.view));
}

#[test]
fn goldens_of_records_are_read_and_written_again() {
    check_kind("task-record", through::<TaskRecord>);
    check_kind("plan-record", through::<PlanRecord>);
    check_kind("terminal-record", through::<TerminalRecord>);
    check_kind("checkpoint", |bytes| {
        let checkpoint = Checkpoint::parse(bytes).ok_or("damaged")?;
        serde_json::to_value(checkpoint).map_err(|e| e.to_string())
    });
}
