//! What is written is true, and what is false is found: tampered records and documents, reports that are wrong.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use async_nats::jetstream;
use bytes::Bytes;
use fanfold_domain::event::TaskEvent;
use fanfold_domain::ids::TaskId;
use fanfold_domain::plan::SummaryKind;
use fanfold_domain::task::TaskState;
use fanfold_ledger::port::Buckets;
use fanfold_tests::fleet::ids;
use fanfold_tests::hand::{Hand, failed, succeeded};
use fanfold_tests::plans::{collect_log, noop};
use fanfold_tests::stack::Stack;
use fanfold_tests::wait::{SOON, until};
use fanfold_wire::terminal::{RESULT_BYTES_MAX, ReportStatus};
use serde_json::{Value, json};

const BIN: &str = env!("CARGO_BIN_EXE_fanfold-under-test");

async fn verify_says_no(stack: &Stack, plan: &str) -> String {
    let said = stack.cli().run(&["replay", "--plan", plan, "--verify"]).await.exits(1);
    assert!(said.stdout.is_empty() && said.stderr.contains("error VERIFY_FAILED"), "{said:?}");
    let json = stack.cli().run(&["replay", "--plan", plan, "--verify", "--json"]).await.exits(1).json();
    // What the API tells of a wrong record is wrong as well, and told behind it.
    let told: Vec<&str> = json["differences"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let by_the_api = |d: &&str| ["api ", "plan.get ", "task.list ", "task.get ", "summary.get "].iter().any(|p| d.starts_with(p));
    assert!(!told.is_empty() && !by_the_api(&told[0]) && told.iter().skip(1).all(by_the_api), "{json:#}");
    said.stderr
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tampered_record_or_document_is_found_and_named() {
    let mut stack = Stack::apart(BIN).await;
    let _east = stack.fleet("east", &ids(1, 6)).start().await;
    stack.hq.online(6).await;
    stack.hq.submit(&noop("tampered", &ids(1, 6))).await;
    let last = stack.hq.summary("tampered", SummaryKind::Final, SOON).await;
    stack.hq.assert_true("tampered").await;
    stack.kill("projector");

    let key = "task.tampered.S_004.main";
    let honest = stack.hq.ledger.get_state(key).await.unwrap().unwrap().value;
    let mut record: Value = serde_json::from_slice(&honest).unwrap();
    record["status"] = json!("FAILED");
    stack.hq.ledger.put_state(vec![(key.into(), Bytes::from(record.to_string()))]).await.unwrap();
    let said = verify_says_no(&stack, "tampered").await;
    assert!(said.contains(key) && said.contains("/status") && said.contains("FAILED") && said.contains("SUCCEEDED"), "{said}");
    stack.hq.ledger.put_state(vec![(key.into(), honest)]).await.unwrap();
    stack.hq.assert_true("tampered").await;

    let client = async_nats::connect(stack.nats.url()).await.unwrap();
    let objects = jetstream::new(client.clone()).get_object_store("fanfold-artifacts").await.unwrap();
    let name = last.this.sha256.as_str();
    let mut honest = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut objects.get(name).await.unwrap(), &mut honest).await.unwrap();
    let forged = String::from_utf8(honest.clone()).unwrap().replacen("\"succeeded\":6", "\"succeeded\":5", 1);
    assert_ne!(forged.as_bytes(), honest);
    objects.put(name, &mut forged.as_bytes()).await.unwrap();
    let said = verify_says_no(&stack, "tampered").await;
    assert!(said.contains(name) && said.contains("other content"), "{said}");
    let shown = stack.cli().run(&["summary", "tampered", "--json"]).await.exits(1);
    assert_eq!(shown.error_code(), "SUMMARY_DAMAGED");
    objects.delete(name).await.unwrap();
    let said = verify_says_no(&stack, "tampered").await;
    assert!(said.contains("is missing"), "{said}");
    objects.put(name, &mut honest.as_slice()).await.unwrap();
    stack.hq.assert_true("tampered").await;

    // A record that is gone, written by nobody while the projector is away.
    jetstream::new(client).get_key_value("fanfold-state").await.unwrap().delete(key).await.unwrap();
    let said = verify_says_no(&stack, "tampered").await;
    assert!(said.contains(key) && said.contains("missing"), "{said}");
}

/// Hands in what is wrong; every answer is a final refusal with its code.
async fn assert_refused(hand: &Hand, what: &str, body: &[u8], code: &str) {
    let answer = hand.hand_in(body).await;
    assert_eq!((answer.status, answer.code.as_deref()), (ReportStatus::Refused, Some(code)), "{what}: {answer:?}");
    assert!(answer.message.is_some_and(|m| !m.is_empty()), "{what}: says why");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_reports_are_answered_with_a_code_counted_and_disturb_nothing() {
    let stack = Stack::together(BIN).await;
    let (mut one, mut two) = (stack.hand("S_001").await, stack.hand("S_002").await);
    one.come();
    two.come();
    stack.hq.online(2).await;
    stack.hq.submit(&noop("reports", &ids(1, 2))).await;
    let (mine, _) = one.dispatched().await;
    let (theirs, _) = two.dispatched().await;
    let good = succeeded(1, &json!({ "by": "one" }));
    let other = |task: &str| TaskId::parse(task).unwrap();

    assert_refused(&one, "not JSON", b"{ nonsense", "MALFORMED").await;
    assert_refused(&one, "not a CloudEvent", br#"{"hello":"world"}"#, "MALFORMED").await;
    assert_refused(&one, "a decision", &one.encoded(&mine, &TaskEvent::Cancelled), "MALFORMED").await;
    assert_refused(&one, "unknown task", &one.encoded(&other("reports.S_099.main"), &good), "UNKNOWN_TASK").await;
    assert_refused(&one, "unknown plan", &one.encoded(&other("nope.S_001.main"), &good), "UNKNOWN_TASK").await;
    assert_refused(&one, "another's task", &one.encoded(&theirs, &good), "NOT_YOURS").await;
    assert_refused(&one, "never handed out", &one.encoded(&mine, &succeeded(7, &json!({}))), "UNKNOWN_TASK").await;
    let large = json!("x".repeat(RESULT_BYTES_MAX + 1));
    assert_refused(&one, "too large", &one.encoded(&mine, &succeeded(1, &large)), "TOO_LARGE").await;
    let step = |name: &str| TaskEvent::Progressed { attempt: 1, k: 0, step: name.into(), ms: 5 };
    let beyond = TaskEvent::Progressed { attempt: 1, k: 64, step: "one too many".into(), ms: 5 };
    assert_refused(&one, "a step too many", &one.encoded(&mine, &beyond), "MALFORMED").await;
    assert_refused(&one, "no attempt", &one.encoded(&mine, &TaskEvent::Started { attempt: 0 }), "MALFORMED").await;
    assert_eq!(one.report(&mine, &step("read")).await.status, ReportStatus::Recorded);
    assert_eq!(one.report(&mine, &step("read")).await.status, ReportStatus::Duplicate);
    assert_refused(&one, "used id, other content", &one.encoded(&mine, &step("write")), "CONFLICT").await;

    // Where an answer may not go none is sent, and nothing is taken.
    let forged = format!("ff.task.{theirs}.by.S_002");
    one.client.publish_with_reply("ff.report.S_001", forged.clone(), one.encoded(&mine, &good).into()).await.unwrap();
    one.client.flush().await.unwrap();

    assert_eq!(one.report(&mine, &good).await.status, ReportStatus::Recorded);
    assert_eq!(one.report(&mine, &good).await.status, ReportStatus::Duplicate);
    two.report(&theirs, &succeeded(1, &json!({ "by": "two" }))).await;
    stack.hq.summary("reports", SummaryKind::Final, SOON).await;
    let late = one.hand_in(&one.encoded(&mine, &good)).await;
    assert_eq!((late.status, late.code.as_deref()), (ReportStatus::Refused, Some("PLAN_CLOSED")));
    for (task, by) in [(&mine, "one"), (&theirs, "two")] {
        let record = stack.hq.task(&task.to_string()).await;
        let result: Value = serde_json::from_str(record.result.as_ref().unwrap().get()).unwrap();
        assert_eq!((record.status, record.attempt, &result["by"]), (TaskState::Succeeded, 1, &json!(by)));
    }
    let by_two: Vec<String> = stack.hq.read(&[&forged]).await.into_iter().map(|e| e.name).collect();
    assert_eq!(by_two, ["attempt.succeeded"], "only what it said itself");
    assert_counted(&stack).await;
    stack.hq.assert_true("reports").await;
}

async fn assert_counted(stack: &Stack) {
    let expected: BTreeMap<String, u64> =
        [("MALFORMED", 5), ("UNKNOWN_TASK", 3), ("NOT_YOURS", 1), ("TOO_LARGE", 1), ("CONFLICT", 1), ("PLAN_CLOSED", 1)]
            .map(|(code, n)| (code.to_owned(), n))
            .into();
    until("the registry counts them", SOON, async || {
        let reports = stack.hq.terminal("S_001").await?.reports;
        (*reports.refused == expected && reports.recorded == 2 && reports.duplicate == 2).then_some(())
    })
    .await;
    stack.cli().run(&["terminal", "ls"]).await.exits(0).shows(&["12 reports refused"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_or_early_report_does_not_use_up_the_real_ones_id() {
    let stack = Stack::together(BIN).await;
    let (mut one, mut two) = (stack.hand("S_001").await, stack.hand("S_002").await);
    one.come();
    two.come();
    stack.hq.online(2).await;
    stack.hq.submit(&noop("early", &ids(1, 2))).await;
    let (mine, _) = one.dispatched().await;
    let (theirs, _) = two.dispatched().await;
    let second = succeeded(2, &json!({ "real": true }));

    assert_refused(&two, "foreign", &one.encoded(&mine, &second), "NOT_YOURS").await;
    assert_refused(&one, "early", &one.encoded(&mine, &succeeded(2, &json!({ "real": false }))), "UNKNOWN_TASK").await;
    one.report(&mine, &failed(1, "NETWORK")).await;
    let (again, number) = one.dispatched().await;
    assert_eq!((again.clone(), number), (mine.clone(), 2));
    assert_eq!(one.report(&mine, &second).await.status, ReportStatus::Recorded, "the real one is new to the log");
    two.report(&theirs, &succeeded(1, &json!({}))).await;
    stack.hq.summary("early", SummaryKind::Final, SOON).await;
    let record = stack.hq.task(&mine.to_string()).await;
    let result: Value = serde_json::from_str(record.result.as_ref().unwrap().get()).unwrap();
    assert_eq!((record.status, result), (TaskState::Succeeded, json!({ "real": true })));
    stack.hq.assert_true("early").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_breaks_its_schema_is_kept_out_of_the_account_and_tried_again() {
    let stack = Stack::together(BIN).await;
    let mut hand = stack.hand("S_001").await;
    hand.come();
    stack.hq.online(1).await;
    let plan = fanfold_tests::plans::with(
        collect_log("schema", &ids(1, 1)),
        json!({ "retry": { "maxAttempts": 2, "backoffMs": [50], "transient": ["SCHEMA_INVALID"] } }),
    );
    stack.hq.submit(&plan).await;
    for attempt in [1, 2] {
        let (task, number) = hand.dispatched().await;
        assert_eq!(number, attempt);
        let answer = hand.report(&task, &succeeded(attempt, &json!({ "levels": "many" }))).await;
        assert_eq!((answer.status, answer.valid), (ReportStatus::Recorded, Some(false)));
    }
    let complete = stack.hq.summary("schema", SummaryKind::Complete, SOON).await;
    assert_eq!((complete.counts.invalid, complete.counts.succeeded), (1, 0));
    let row = stack.hq.document("schema", 1).await.rows.remove(0);
    let error = row.error.expect("it says why");
    assert_eq!(error.code, "SCHEMA_INVALID");
    assert!(!error.paths.is_empty() && row.result.is_none(), "{error:?}");
    stack.hq.assert_true("schema").await;
}

/// A name from outside that became part of a subject would be longer than the server takes, and cost HQ its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_name_that_is_no_digest_is_refused_at_once() {
    let stack = Stack::together(BIN).await;
    for name in ["x".repeat(3_000), "A".repeat(64), "../secret".to_owned(), String::new()] {
        let refused = stack.hq.ask::<Value>("plan.submit", &json!({ "object": name })).await;
        assert_eq!(refused.unwrap_err().code(), "INVALID_REQUEST", "{} characters", name.len());
    }
    let absent = stack.hq.ask::<Value>("plan.submit", &json!({ "object": "0".repeat(64) })).await;
    assert_eq!(absent.unwrap_err().code(), "UNKNOWN_OBJECT");
}
