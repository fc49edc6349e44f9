//! What a terminal that repeats itself or sends too much comes to: bounded in the log, in answers and in what is looked at.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fanfold_domain::ids::{TaskId, TerminalId};
use fanfold_domain::task::TaskState;
use fanfold_ledger::port::{Bus, Log};
use fanfold_tests::world::terminal::{Act, event, send};
use fanfold_tests::world::{Role, World};
use fanfold_wire::terminal::{ReportStatus, SyncAnswer, SyncStatus};
use serde_json::{Value, json};

fn id(text: &str) -> TerminalId {
    TerminalId::new(text).unwrap()
}

fn report(name: &str, data: Value) -> Value {
    event(&TaskId::parse("p.S1.main").unwrap(), name, &data)
}

async fn written(w: &World) -> usize {
    w.log().await.iter().filter(|s| s.subject.starts_with("ff.task.p.S1.main.by.")).count()
}

#[tokio::test(start_paused = true)]
async fn what_a_terminal_repeats_for_hours_is_written_a_bounded_number_of_times() {
    const ROUNDS: usize = 12;
    const STEPS: usize = 64;
    let mut w = World::new().await;
    w.terminal("S1", |_, _| Act::HangQuietly);
    let day = json!({ "timeouts": { "deliverMs": 86_400_000, "runMs": 86_400_000 }, "expiresMs": 86_400_000 });
    w.submit("p", &["S1"], day).await;
    w.until_state("p", "S1", TaskState::Dispatched, 5_000).await;
    let step = |k: usize| report("attempt.progressed", json!({ "attempt": 1, "k": k, "step": "again", "ms": 1 }));
    let batch: Vec<Value> = (0..STEPS).map(step).collect();
    for round in 0..ROUNDS {
        let answer = send(&w.ledger, &id("S1"), &batch).await.unwrap();
        let settled = answer.answers.iter().all(|a| matches!(a.status, ReportStatus::Recorded | ReportStatus::Duplicate));
        assert!(settled, "round {round}: {:?}", answer.answers);
        // Beyond the log's own memory of ids.
        w.sleep(601_000).await;
    }
    let count = written(&w).await;
    assert!(count >= STEPS, "{count}");
    // Each step once, 256 that changed nothing, and the batch that crossed that number.
    assert!(count <= STEPS + 256 + STEPS, "{count} of {} were written", ROUNDS * STEPS);
    let done =
        send(&w.ledger, &id("S1"), &[report("attempt.succeeded", json!({ "attempt": 1, "result": { "n": 1 } }))]).await.unwrap();
    assert_eq!((done.answers[0].status, done.answers[0].valid), (ReportStatus::Recorded, Some(true)), "what is new is taken");
    w.until_state("p", "S1", TaskState::Succeeded, 5_000).await;
}

#[tokio::test(start_paused = true)]
async fn beyond_its_rate_a_terminal_is_not_parsed_and_then_not_answered() {
    let mut w = World::silent().await;
    w.hq.recorder.reports_per_s = 1;
    w.hq.recorder.burst_reports = 5;
    w.hq.start(Role::Recorder);
    w.sleep(10).await;
    let mut told = Vec::new();
    for _ in 0..30 {
        let subject = "ff.report.S1";
        let answer = w.ledger.request(subject, "garbage".into(), Duration::from_millis(5)).await;
        told.push(answer.ok().map(|body| serde_json::from_slice::<Value>(&body).unwrap()["answers"][0]["code"].clone()));
    }
    let count = |code: &str| told.iter().flatten().filter(|c| *c == code).count();
    assert_eq!((count("MALFORMED"), told.len()), (5, 30), "{told:?}");
    assert!((20..=25).contains(&count("RATE_LIMITED")), "as often as an honest terminal would ask: {told:?}");
    assert!(told.iter().any(Option::is_none), "a flood is not answered by a flood: {told:?}");
    assert_eq!(w.hq.stats.total().deferred["RATE_LIMITED"], 25, "and every one is counted");
}

#[tokio::test(start_paused = true)]
async fn plans_nobody_knows_are_not_asked_for_without_end() {
    let w = World::new().await;
    let unknown = |n: usize| {
        let task = TaskId::parse(&format!("nobody{n}.S1.main")).unwrap();
        event(&task, "attempt.started", &json!({ "attempt": 1 }))
    };
    let batch: Vec<Value> = (0..100).map(unknown).collect();
    let answer = send(&w.ledger, &id("S1"), &batch).await.unwrap();
    let refused = answer.answers.iter().filter(|a| a.code.as_deref() == Some("UNKNOWN_TASK")).count();
    assert_eq!(refused, 20, "looked up: {:?}", answer.answers);
    assert!(answer.answers[50].status == ReportStatus::Retry && answer.answers[50].code.as_deref() == Some("RATE_LIMITED"));
    let other = TaskId::parse("nobody.S2.main").unwrap();
    let calm = send(&w.ledger, &id("S2"), &[event(&other, "attempt.started", &json!({ "attempt": 1 }))]).await.unwrap();
    assert_eq!(calm.answers[0].code.as_deref(), Some("UNKNOWN_TASK"), "the others are not held up");
}

#[tokio::test(start_paused = true)]
async fn an_array_is_no_report_and_no_sync_and_that_is_said() {
    let mut w = World::new().await;
    w.terminal("S1", |_, _| Act::HangQuietly);
    w.submit("p", &["S1"], json!({})).await;
    w.until_state("p", "S1", TaskState::Dispatched, 5_000).await;
    let answer = send(&w.ledger, &id("S1"), &[report("attempt.started", json!([1]))]).await.unwrap();
    assert_eq!(answer.answers[0].code.as_deref(), Some("MALFORMED"), "{:?}", answer.answers);
    let before = written(&w).await;
    let bodies = ["{", "[]", r#"{"journal":"j","boot":"b","holds":[["p.S1.main",1]]}"#];
    for body in bodies {
        let answer = w.ledger.request("ff.sync.S1", body.into(), Duration::from_secs(1)).await.unwrap();
        let answer: SyncAnswer = serde_json::from_slice(&answer).unwrap();
        assert_eq!((answer.status, answer.code.as_deref()), (SyncStatus::Later, Some("MALFORMED")), "{body}");
        assert!(answer.message.is_some() && answer.retry_after_ms == Some(60_000));
    }
    assert_eq!(written(&w).await, before);
}

#[tokio::test(start_paused = true)]
async fn a_herd_that_knows_more_than_the_log_asks_for_its_end_once() {
    let w = World::new().await;
    let before = w.hq.faults(Role::Dispatcher).ends_asked.load(Ordering::Relaxed);
    let ask = |n: usize| {
        let sync = json!({ "journal": format!("j{n}"), "boot": format!("b{n}"), "beatIntervalMs": 1_000, "knownSeq": 1_u64 << 50, "holds": [] });
        let ledger = w.ledger.clone();
        async move { ledger.request(&format!("ff.sync.S{n}"), sync.to_string().into(), Duration::from_secs(5)).await.unwrap() }
    };
    let answers = futures::future::join_all((0..400).map(ask)).await;
    let end = w.ledger.last_seq().await.unwrap();
    for answer in answers {
        let answer: SyncAnswer = serde_json::from_slice(&answer).unwrap();
        assert_eq!((answer.status, answer.log_end_seq), (SyncStatus::Later, Some(end)), "{answer:?}");
    }
    let asked = w.hq.faults(Role::Dispatcher).ends_asked.load(Ordering::Relaxed) - before;
    assert!((1..=4).contains(&asked), "the log was asked {asked} times for 400 terminals");
}
