//! The two edges: what the API refuses and pages, what the recorder answers.

use std::collections::BTreeSet;

use fanfold_domain::ids::{TaskId, TerminalId};
use fanfold_domain::task::TaskState;
use fanfold_wire::api::{Noted, PlanList, Submitted, SummaryAnswer, TaskList};
use fanfold_wire::terminal::{ReportAnswer, ReportStatus};
use serde_json::{Value, json};

use fanfold_tests::world::handle::Fault;
use fanfold_tests::world::terminal::{Act, event, send};
use fanfold_tests::world::{Role, World, document};

#[tokio::test(start_paused = true)]
async fn a_plan_is_taken_once() {
    let w = World::new().await;
    let first = w.submit("p", &["S1"], json!({})).await;
    let again = w.submit("p", &["S1"], json!({})).await;
    assert_eq!((first.created, again.created, first.sealed_seq), (true, false, again.sealed_seq));
    let other = json!({ "plan": document("p", &["S1", "S2"], json!({})) });
    assert_eq!(w.ask::<Submitted>("plan.submit", other).await.unwrap_err().code, "PLAN_EXISTS");
    w.hq.faults(Role::Api).next_appends([Some(Fault::AckLost)]);
    let lost = json!({ "plan": document("q", &["S1"], json!({})) });
    assert_eq!(w.ask::<Submitted>("plan.submit", lost.clone()).await.unwrap_err().code, "UNAVAILABLE");
    assert!(!w.ask::<Submitted>("plan.submit", lost).await.unwrap().created, "it was taken: asking again tells");
}

#[tokio::test(start_paused = true)]
async fn two_submits_at_once_make_one_plan() {
    let w = World::new().await;
    let body = json!({ "plan": document("p", &["S1"], json!({})) });
    let other = json!({ "plan": document("p", &["S2"], json!({})) });
    let (a, b, c) = tokio::join!(
        w.ask::<Submitted>("plan.submit", body.clone()),
        w.ask::<Submitted>("plan.submit", body),
        w.ask::<Submitted>("plan.submit", other)
    );
    let created: Vec<bool> = [a, b, c].into_iter().flatten().map(|s| s.created).collect();
    assert_eq!(created.iter().filter(|c| **c).count(), 1, "{created:?}");
}

#[tokio::test(start_paused = true)]
async fn bad_documents_are_refused_with_every_problem() {
    let w = World::new().await;
    let refused = async |plan: Value| w.ask::<Submitted>("plan.submit", json!({ "plan": plan })).await.unwrap_err();
    let error = refused(document("p", &["S1", "S1", "bad id", ""], json!({ "color": 1 }))).await;
    let codes: BTreeSet<&str> = error.problems.iter().map(|p| p.code.as_str()).collect();
    assert!(codes.contains("DUPLICATE_TARGET") && codes.contains("BAD_TARGET") && codes.contains("UNKNOWN_FIELD"), "{error:?}");
    assert_eq!(refused(document("p", &["S1"], json!({ "type": "nope@1" }))).await.code, "UNKNOWN_TYPE");
    assert_eq!(
        refused(document("p", &["S1"], json!({ "deadlineMs": 5_000, "expiresMs": 1_000 }))).await.code,
        "EXPIRY_BEFORE_DEADLINE"
    );
    assert_eq!(refused(json!([])).await.problems.len().min(1), 1);
    assert_eq!(w.ask::<Submitted>("plan.submit", json!({})).await.unwrap_err().code, "INVALID_REQUEST");
    assert_eq!(w.ask::<Submitted>("plan.submit", json!({ "object": "gone" })).await.unwrap_err().code, "INVALID_REQUEST");
    let digest = "0".repeat(64);
    assert_eq!(w.ask::<Submitted>("plan.submit", json!({ "object": digest })).await.unwrap_err().code, "UNKNOWN_OBJECT");
    assert_eq!(w.ask::<Noted>("plan.cancel", json!({ "planId": "nobody" })).await.unwrap_err().code, "UNKNOWN_PLAN");
    assert_eq!(w.ask::<SummaryAnswer>("summary.get", json!({ "planId": "nobody" })).await.unwrap_err().code, "UNKNOWN_PLAN");
    assert!(w.log().await.iter().all(|m| m.subject.starts_with("ff.fence.")), "nothing of it is in the log");
}

#[tokio::test(start_paused = true)]
async fn lists_come_in_pages_that_fit() {
    let mut w = World::new().await;
    let stores: Vec<String> = (0..25).map(|n| format!("S{n:02}")).collect();
    let names: Vec<&str> = stores.iter().map(String::as_str).collect();
    for store in &names[..10] {
        w.terminal(store, |_, _| Act::Succeed(10));
    }
    // The input is in each task's record: 25 of them are more than one message holds.
    w.submit("big", &names, json!({ "input": { "text": "x".repeat(60_000) }, "expiresMs": 60_000 })).await;
    for n in 0..7 {
        w.submit(&format!("p{n}"), &["OFF"], json!({})).await;
    }
    w.sleep(5_000).await;
    for closed in [false, true] {
        if closed {
            w.until_over("big", 200_000).await;
            w.check_state().await;
        }
        for (set, expected) in [(None, 25), (Some("succeeded"), 10), (Some("offline"), 15)] {
            let (mut found, mut offset, mut pages) = (Vec::new(), Some(0), 0);
            while let Some(at) = offset {
                let page: TaskList =
                    w.ask("task.list", json!({ "planId": "big", "set": set, "offset": at, "limit": 1_000 })).await.unwrap();
                found.extend(page.tasks.iter().map(|t| t.store_id.clone()));
                offset = page.next;
                pages += 1;
                assert!(pages < 100);
            }
            assert_eq!(found.len(), expected, "closed {closed} {set:?}");
            assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), expected);
            assert!(expected < 25 || pages > 1);
        }
    }
    let (mut found, mut after, mut more) = (Vec::new(), Value::Null, true);
    while more {
        let page: PlanList = w.ask("plan.list", json!({ "limit": 3, "after": after })).await.unwrap();
        found.extend(page.plans.iter().map(|p| p.plan_id.to_string()));
        more = page.next.is_some();
        after = json!(page.next);
    }
    assert_eq!(found, ["big", "p0", "p1", "p2", "p3", "p4", "p5", "p6"]);
}

fn id(text: &str) -> TerminalId {
    TerminalId::new(text).unwrap()
}

fn started(task: &str, attempt: u32) -> Value {
    event(&TaskId::parse(task).unwrap(), "attempt.started", &json!({ "attempt": attempt }))
}

fn verdicts(answer: &Option<ReportAnswer>) -> Vec<(ReportStatus, Option<&str>)> {
    answer.iter().flat_map(|a| &a.answers).map(|a| (a.status, a.code.as_deref())).collect()
}

async fn hanging() -> World {
    let mut w = World::new().await;
    w.terminal("S1", |_, _| Act::HangQuietly);
    w.submit("p", &["S1"], json!({ "timeouts": { "deliverMs": 600_000, "runMs": 3_600_000 } })).await;
    w.until_state("p", "S1", TaskState::Dispatched, 5_000).await;
    w
}

#[tokio::test(start_paused = true)]
async fn the_recorder_keeps_out_what_no_fold_should_see() {
    use ReportStatus::{Duplicate, Recorded, Refused};
    let w = hanging().await;
    let batch = [
        started("p.S1.main", 1),
        started("p.S1.main", 1),
        started("nope.S1.main", 1),
        started("p.S9.main", 1),
        json!({ "a": 1 }),
    ];
    let answer = send(&w.ledger, &id("S1"), &batch).await;
    let refused = |code| (Refused, Some(code));
    assert_eq!(
        verdicts(&answer),
        [(Recorded, None), (Duplicate, None), refused("UNKNOWN_TASK"), refused("UNKNOWN_TASK"), refused("MALFORMED")]
    );
    let decision = event(&TaskId::parse("p.S1.main").unwrap(), "task.cancelled", &json!({}));
    assert_eq!(verdicts(&send(&w.ledger, &id("S1"), &[decision]).await), [refused("MALFORMED")], "terminals decide nothing");
    let failed = |m: &str| {
        event(&TaskId::parse("p.S1.main").unwrap(), "attempt.failed", &json!({ "attempt": 1, "code": "X", "message": m }))
    };
    assert_eq!(verdicts(&send(&w.ledger, &id("S1"), &[failed("a"), failed("b")]).await), [(Recorded, None), refused("CONFLICT")]);
    let large = event(
        &TaskId::parse("p.S1.main").unwrap(),
        "attempt.succeeded",
        &json!({ "attempt": 1, "result": { "n": 1, "t": "x".repeat(300_000) } }),
    );
    assert_eq!(verdicts(&send(&w.ledger, &id("S1"), &[large]).await), [refused("TOO_LARGE")]);
    let total = w.hq.stats.total();
    assert_eq!((total.recorded, total.duplicate, total.refused["UNKNOWN_TASK"], total.refused["MALFORMED"]), (2, 1, 2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_slowed_down_and_the_others_are_not() {
    let mut w = World::silent().await;
    w.hq.recorder.reports_per_s = 10;
    w.hq.recorder.burst_reports = 20;
    w.hq.start(Role::Recorder);
    w.sleep(10).await;
    let many: Vec<Value> = (0..50).map(|_| started("p.S1.main", 1)).collect();
    let answer = send(&w.ledger, &id("S1"), &many).await.unwrap();
    let limited = answer.answers.iter().filter(|a| a.code.as_deref() == Some("RATE_LIMITED")).count();
    assert_eq!((limited, answer.answers[20].status), (30, ReportStatus::Retry));
    assert!(answer.retry_after_ms.is_some());
    assert_eq!(
        verdicts(&send(&w.ledger, &id("S2"), &[started("p.S2.main", 1)]).await),
        [(ReportStatus::Refused, Some("UNKNOWN_TASK"))]
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_log_is_waited_for() {
    let w = hanging().await;
    w.ledger.set_full(true);
    assert_eq!(
        verdicts(&send(&w.ledger, &id("S1"), &[started("p.S1.main", 1)]).await),
        [(ReportStatus::Retry, Some("LOG_FULL"))]
    );
    w.ledger.set_full(false);
    w.hq.faults(Role::Recorder).next_appends([Some(Fault::AckLost)]);
    assert_eq!(
        verdicts(&send(&w.ledger, &id("S1"), &[started("p.S1.main", 1)]).await),
        [(ReportStatus::Retry, Some("UNAVAILABLE"))]
    );
    assert_eq!(verdicts(&send(&w.ledger, &id("S1"), &[started("p.S1.main", 1)]).await), [(ReportStatus::Duplicate, None)]);
}

#[tokio::test(start_paused = true)]
async fn a_report_of_what_is_not_in_view_yet_is_parked() {
    let w = hanging().await;
    let begun = w.clock.now_ms();
    let never = send(&w.ledger, &id("S1"), &[started("p.S1.main", 7)]).await;
    assert_eq!(verdicts(&never), [(ReportStatus::Refused, Some("UNKNOWN_TASK"))]);
    assert!(w.clock.now_ms() - begun >= 1_000, "not before the view had its chance");

    // A process whose fold is behind: it knows neither the plan nor the attempt.
    let mut behind = w.process().await;
    behind.tail.freeze(true);
    let mut w = w;
    w.terminal("S2", |_, _| Act::HangQuietly);
    w.submit("late", &["S2"], json!({})).await;
    w.until_state("late", "S2", TaskState::Dispatched, 5_000).await;
    w.hq.stop(Role::Recorder);
    behind.start(Role::Recorder);
    w.sleep(10).await;
    let waiting = send(&w.ledger, &id("S2"), &[started("late.S2.main", 1)]).await;
    assert_eq!(verdicts(&waiting), [(ReportStatus::Retry, Some("UNAVAILABLE"))], "it may well exist");
    let (answer, ()) = tokio::join!(async { send(&w.ledger, &id("S2"), &[started("late.S2.main", 1)]).await }, async {
        w.sleep(300).await;
        behind.tail.freeze(false);
    });
    assert_eq!(verdicts(&answer), [(ReportStatus::Recorded, None)]);
}

#[tokio::test(start_paused = true)]
async fn a_closed_plan_takes_nothing() {
    let w = hanging().await;
    let _: Noted = w.ask("plan.close", json!({ "planId": "p" })).await.unwrap();
    w.until_over("p", 10_000).await;
    for _ in 0..2 {
        let answer = send(&w.ledger, &id("S1"), &[started("p.S1.main", 1)]).await;
        assert_eq!(verdicts(&answer), [(ReportStatus::Refused, Some("PLAN_CLOSED"))]);
    }
    let mut fresh = w.process().await;
    let mut w = w;
    w.hq.stop(Role::Recorder);
    fresh.start(Role::Recorder);
    w.sleep(10).await;
    let answer = send(&w.ledger, &id("S1"), &[started("p.S1.main", 1)]).await;
    assert_eq!(verdicts(&answer), [(ReportStatus::Refused, Some("PLAN_CLOSED"))], "one that never saw the plan asks the log");
}

#[tokio::test(start_paused = true)]
async fn an_answer_goes_to_an_inbox_or_nowhere() {
    let w = hanging().await;
    w.hq.faults(Role::Recorder).replies_go_to("ff.task.p.S1.main.hq.S1");
    let before = w.log().await.len();
    assert!(send(&w.ledger, &id("S1"), &[started("p.S1.main", 1)]).await.is_none());
    assert_eq!((w.hq.stats.bad_replies(), w.log().await.len()), (1, before));
}
