//! The terminal protocol: what HQ and terminals of any age say to each other.

use fanfold_domain::ids::TaskId;
use fanfold_wire::event::{Envelope, decode_task, task_data};
use fanfold_wire::schema::ERRORS_MAX;
use fanfold_wire::terminal::{
    BATCH_REPORTS_MAX, Beat, Command, MESSAGE_BYTES_MAX, Order, ReportAnswer, ReportStatus, SYNC_OPEN_MAX, SyncAnswer,
    SyncRequest, SyncStatus, split_batch,
};
use serde_json::Value;

use crate::samples::task_id;
use crate::support::{check_kind, folders, goldens, read, stems, through};

/// Reads one event of the protocol and writes it again; `keep_verdict` is for what the recorder wrote.
fn rewrite_event(bytes: &[u8], keep_verdict: bool) -> Result<Value, String> {
    let envelope = Envelope::parse(bytes).map_err(|e| e.to_string())?;
    let event = decode_task(envelope.name().map_err(|e| e.to_string())?, envelope.data).map_err(|e| e.to_string())?;
    let data = task_data(&event).map_err(|e| e.to_string())?;
    let mut written = serde_json::to_value(Envelope { data: &data, ..envelope }).map_err(|e| e.to_string())?;
    if !keep_verdict && let Some(data) = written["data"].as_object_mut() {
        data.remove("verdict");
    }
    Ok(written)
}

fn rewrite_batch(bytes: &[u8]) -> Result<Value, String> {
    let reports = split_batch(bytes)?.into_iter().map(|report| rewrite_event(report.get().as_bytes(), false));
    let mut reports = reports.collect::<Result<Vec<Value>, String>>()?;
    if bytes.first() == Some(&b'[') { Ok(Value::Array(reports)) } else { Ok(reports.remove(0)) }
}

fn command(bytes: &[u8]) -> Result<Command, String> {
    Command::decode(task_id("SH_0312"), 99, bytes).map_err(|e| e.to_string())
}

#[test]
fn every_message_of_the_protocol_has_a_schema_and_goldens() {
    let kinds = ["beat", "command", "report-answer", "report-batch", "sync-answer", "sync-request"];
    let schemas: Vec<String> = stems("terminal").iter().map(|stem| stem.trim_end_matches(".v1").to_owned()).collect();
    assert_eq!(schemas, kinds);
    assert_eq!(folders("golden/terminal"), kinds);
}

#[test]
fn goldens_of_the_protocol_are_read_and_written_again_and_bad_ones_refused() {
    check_kind("terminal/command", |bytes| command(bytes).and_then(|_| rewrite_event(bytes, true)));
    check_kind("terminal/report-batch", rewrite_batch);
    check_kind("terminal/report-answer", through::<ReportAnswer>);
    check_kind("terminal/sync-request", through::<SyncRequest>);
    check_kind("terminal/sync-answer", through::<SyncAnswer>);
    check_kind("terminal/beat", through::<Beat>);
}

#[test]
fn every_kind_of_message_has_an_older_and_a_newer_golden() {
    for kind in folders("golden/terminal") {
        let variants: Vec<String> = goldens(&format!("terminal/{kind}")).into_iter().map(|g| g.variant).collect();
        for age in ["older-", "newer-"] {
            assert!(variants.iter().any(|v| v.starts_with(age)), "{kind}: {variants:?}");
        }
    }
}

#[test]
fn commands_say_what_is_to_be_done() {
    for golden in goldens("terminal/command") {
        let command = command(&golden.bytes()).unwrap();
        assert_eq!((command.seq, command.task.to_string().as_str()), (99, "plan_7788.SH_0312.main"));
        let order = match &command.order {
            Order::Run(d) => format!("run {} {}@{}", d.attempt, d.kind, d.version),
            Order::Stop { attempt, reason } => format!("stop {attempt} {reason}"),
            Order::Ignore => "ignore".to_owned(),
        };
        let wanted = match golden.variant.as_str() {
            "run" | "older-run-without-protocol-version" | "newer-run-with-more-fields" => "run 1 collect_log@1",
            "stop" => "stop 1 task.stop_requested",
            "cancel" => "stop 1 task.cancel_requested",
            "expired" => "stop 1 task.expired",
            "timed-out" => "stop 1 task.attempt_timed_out",
            "lost" => "stop 1 task.attempt_lost",
            "nothing-to-do" | "not-delivered-in-time" | "cancel-without-attempt" => "ignore",
            other => panic!("what does {other} mean?"),
        };
        assert_eq!(order, wanted, "{}", golden.variant);
        let traced = golden.value.get("traceparent").and_then(Value::as_str);
        assert_eq!(command.traceparent.as_deref(), traced);
    }
}

#[test]
fn what_a_terminal_does_not_know_it_waits_out() {
    let of = |kind: &str, variant: &str| goldens(kind).into_iter().find(|g| g.variant == variant).unwrap().bytes();
    let answer: ReportAnswer = serde_json::from_slice(&of("terminal/report-answer", "newer-with-an-unknown-status")).unwrap();
    assert_eq!(answer.answers[0].status, ReportStatus::Unknown);
    assert!(!answer.answers[0].status.is_settled());
    let answer: SyncAnswer = serde_json::from_slice(&of("terminal/sync-answer", "newer-with-an-unknown-status")).unwrap();
    assert_eq!(answer.status, SyncStatus::Unknown);
    let beat: Beat = serde_json::from_slice(&of("terminal/beat", "older-with-ids-only")).unwrap();
    assert_eq!((beat.identity.protocol_version, beat.identity.slots), (1, 1));
}

#[test]
fn a_command_of_a_sync_answer_is_the_command_of_the_subject() {
    let golden = goldens("terminal/sync-answer").into_iter().find(|g| g.variant == "lists").unwrap();
    let answer: SyncAnswer = serde_json::from_slice(&golden.bytes()).unwrap();
    let open = &answer.open[0];
    let command = Command::decode(open.task_id.clone(), open.seq, open.command.get().as_bytes()).unwrap();
    assert!(matches!(command.order, Order::Run(d) if d.attempt == 1));
    assert_eq!(open.task_id, TaskId::parse("plan_7788.SH_0312.main").unwrap());
}

#[test]
fn schemas_state_the_bounds_of_the_code() {
    let parse = |path: &str| serde_json::from_str::<Value>(&read(path)).unwrap();
    let batch = parse("terminal/report-batch.v1.json");
    assert_eq!(batch["oneOf"][1]["maxItems"].as_u64(), Some(BATCH_REPORTS_MAX as u64));
    let sync = parse("terminal/sync-answer.v1.json");
    assert_eq!(sync["properties"]["open"]["maxItems"].as_u64(), Some(SYNC_OPEN_MAX as u64));
    let failed = parse("event/attempt_failed.v1.json");
    assert_eq!(failed["properties"]["data"]["properties"]["message"]["maxLength"].as_u64(), Some(MESSAGE_BYTES_MAX as u64));
    let succeeded = parse("event/attempt_succeeded.v1.json");
    let errors = &succeeded["properties"]["data"]["properties"]["verdict"]["properties"]["errors"];
    assert_eq!(errors["maxItems"].as_u64(), Some(ERRORS_MAX as u64));
}
