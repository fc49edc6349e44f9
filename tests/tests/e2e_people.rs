//! What people ask of a plan while it runs: cancel, close, requeue.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use fanfold_domain::plan::SummaryKind;
use fanfold_domain::sets::TaskSet;
use fanfold_domain::task::TaskState;
use fanfold_terminal::host::{Fault, Moment};
use fanfold_tests::fleet::ids;
use fanfold_tests::plans::{noop, with};
use fanfold_tests::stack::Stack;
use fanfold_tests::wait::{SOON, until};
use serde_json::{Value, json};

const BIN: &str = env!("CARGO_BIN_EXE_fanfold-under-test");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_plan_hands_nothing_more_out_and_adds_up() {
    let stack = Stack::together(BIN).await;
    let east = stack.fleet("east", &ids(1, 20)).work_ms(500, 900).start().await;
    stack.hq.online(20).await;
    stack.hq.submit(&with(noop("cancelled", &ids(1, 20)), json!({ "limits": { "inFlight": 5 } }))).await;
    until("some are done and some run", SOON, async || {
        let done = stack.hq.succeeded("cancelled").await >= 3;
        let account = east.account();
        (done && account.seen(Moment::Begin) > account.seen(Moment::Done)).then_some(())
    })
    .await;
    let asked = stack.cli().run(&["plan", "cancel", "cancelled", "--reason", "wrong day", "--json"]).await.exits(0).json();
    assert_eq!(asked["created"], true);
    // Asked again it is the same request, unless all of it is over already.
    match stack.hq.ask::<Value>("plan.cancel", &json!({ "planId": "cancelled", "by": "another" })).await {
        Ok(again) => assert_eq!((&again["created"], &again["seq"]), (&json!(false), &asked["seq"])),
        Err(error) => assert_eq!(error.code(), "PLAN_CLOSED"),
    }

    let last = stack.hq.summary("cancelled", SummaryKind::Final, SOON).await;
    assert_eq!(u64::from(last.counts.succeeded + last.counts.cancelled), 20, "{:?}", last.counts);
    assert_eq!(last.counts.total(), 20);
    assert!(last.counts.cancelled > 0 && last.counts.succeeded >= 3);
    let events = stack.hq.events("cancelled").await;
    let cancelled = events.iter().find(|e| e.name == "plan.cancelled").expect("it is said").seq;
    assert!(!events.iter().any(|e| e.name == "task.dispatched" && e.seq > cancelled), "nothing after it");
    let request = events.iter().find(|e| e.name == "plan.cancel_requested").unwrap();
    assert_eq!((&request.data["by"], &request.data["reason"]), (&json!("tester"), &json!("wrong day")));
    for row in stack.hq.document("cancelled", last.this.revision).await.rows {
        assert!(matches!(row.state, TaskState::Succeeded | TaskState::Cancelled), "{row:?}");
    }
    let account = east.account();
    account.assert_nothing_twice();
    assert_eq!(account.seen(Moment::Begin), account.seen(Moment::Done) + account.seen(Moment::Ended), "nothing runs on");
    let refused = stack.cli().run(&["task", "requeue", "cancelled", "--failed", "--json"]).await.exits(6);
    assert!(["PLAN_CLOSED", "PLAN_CANCELLED"].contains(&refused.error_code().as_str()));
    stack.hq.assert_true("cancelled").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_tasks_are_requeued_until_the_plan_is_closed() {
    let stack = Stack::together(BIN).await;
    let fleet = stack.fleet("east", &ids(1, 6)).fault("S_002", Fault::Flaky).fault("S_005", Fault::Flaky);
    let east = fleet.start().await;
    stack.hq.online(6).await;
    // A flaky store fails its first attempt; with one try that is the end.
    let retry = json!({ "retry": { "maxAttempts": 1, "backoffMs": [50], "transient": ["NETWORK"] } });
    stack.hq.submit(&with(noop("requeued", &ids(1, 6)), retry.clone())).await;
    let complete = stack.hq.summary("requeued", SummaryKind::Complete, SOON).await;
    assert_eq!((complete.counts.succeeded, complete.counts.failed), (4, 2));
    let failed = stack.hq.task("requeued.S_002.main").await;
    assert_eq!((failed.status, failed.can_retry, failed.retry_count), (TaskState::Failed, true, 1));
    let succeeded = stack.cli().run(&["task", "requeue", "requeued", "--task", "S_001", "--json"]).await.exits(6);
    assert_eq!(succeeded.error_code(), "NOT_FAILED");

    // Nothing matches: that is said, and nothing is written.
    let none = stack.cli().run(&["task", "requeue", "requeued", "--code", "TIMEOUT", "--code", "BUSY", "--json"]).await.exits(0);
    assert_eq!((&none.json()["tasks"], &none.json()["created"]), (&json!(0), &json!(false)), "{none:?}");
    let none = stack.cli().run(&["task", "requeue", "requeued", "--code", "TIMEOUT"]).await.exits(0);
    none.shows(&["nothing to requeue, no task has failed with TIMEOUT"]);
    let asked = stack.hq.events("requeued").await.iter().filter(|e| e.name == "plan.requeue_requested").count();
    assert_eq!(asked, 0);

    stack.cli().run(&["task", "requeue", "requeued", "--task", "S_002"]).await.exits(0).shows(&["requeue of 1 task asked for"]);
    let one = stack.hq.event("requeued", "it is in", |e| e.is("attempt.succeeded", "requeued.S_002.main")).await;
    assert_eq!(one.attempt(), 2);
    assert_eq!(stack.hq.task("requeued.S_005.main").await.status, TaskState::Failed, "only the one named");
    let counted = stack.cli().run(&["task", "requeue", "requeued", "--code", "NETWORK", "--json"]).await.exits(0).json();
    assert_eq!((&counted["tasks"], &counted["created"]), (&json!(1), &json!(true)));
    let last = stack.hq.summary("requeued", SummaryKind::Final, SOON).await;
    assert_eq!((last.counts.succeeded, last.counts.total()), (6, 6));
    assert_eq!(east.account().attempts_of("requeued.S_005.main"), [1, 2]);
    east.account().assert_nothing_twice();

    let refused = stack.cli().run(&["task", "requeue", "requeued", "--failed", "--json"]).await.exits(6);
    assert_eq!(refused.error_code(), "PLAN_CLOSED");
    stack.hq.assert_true("requeued").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_plan_gives_up_what_is_missing_and_stays_closed() {
    let stack = Stack::together(BIN).await;
    let mut east = stack.fleet("east", &ids(1, 4)).fault("S_003", Fault::Offline).start().await;
    stack.hq.online(3).await;
    stack.hq.submit(&noop("closed", &ids(1, 4))).await;
    until("the others are in", SOON, async || (stack.hq.succeeded("closed").await == 3).then_some(())).await;
    stack.hq.event("closed", "one is offline", |e| e.is("task.deferred", "closed.S_003.main")).await;
    stack.cli().run(&["plan", "close", "closed", "--reason", "shop is shut"]).await.exits(0);
    let last = stack.hq.summary("closed", SummaryKind::Final, SOON).await;
    assert_eq!((last.counts.succeeded, last.counts.offline, last.counts.total()), (3, 1, 4));
    let row = stack.hq.document("closed", last.this.revision).await.rows.remove(2);
    assert_eq!((row.target.as_str(), row.set, row.state), ("S_003", TaskSet::Offline, TaskState::Failed));
    let refused = stack.cli().run(&["task", "requeue", "closed", "--failed", "--json"]).await.exits(6);
    assert_eq!(refused.error_code(), "PLAN_CLOSED");
    let refused = stack.cli().run(&["plan", "cancel", "closed", "--json"]).await.exits(6);
    assert_eq!(refused.error_code(), "PLAN_CLOSED");

    // The store that comes back finds nothing of it; the next plan finds the store.
    east.back().await;
    stack.hq.online(4).await;
    stack.hq.submit(&noop("follow_up", &ids(3, 3))).await;
    stack.hq.summary("follow_up", SummaryKind::Final, SOON).await;
    let account = east.account();
    assert_eq!((account.attempts_of("closed.S_003.main"), account.attempts_of("follow_up.S_003.main")), (vec![], vec![1]));
    for plan in ["closed", "follow_up"] {
        stack.hq.assert_true(plan).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_projector_is_noticed_while_nothing_happens() {
    let mut stack = Stack::apart(BIN).await;
    let _east = stack.fleet("east", &ids(1, 1)).start().await;
    stack.hq.online(1).await;
    stack.hq.submit(&noop("idle", &ids(1, 1))).await;
    stack.hq.summary("idle", SummaryKind::Final, SOON).await;
    let doctor = async |stack: &Stack| stack.cli().run(&["doctor"]).await;
    until("all is well", SOON, async || (doctor(&stack).await.code == Some(0)).then_some(())).await;
    stack.kill("projector");
    // Its checkpoint is at the log's end and stays there: nothing is behind, and nobody would write what comes next.
    let said = doctor(&stack).await.exits(1);
    let projector = said.stdout.lines().find(|l| l.contains("projector")).unwrap_or_default();
    assert!(projector.starts_with("bad") && projector.contains("0 behind, but none is heard"), "{}", said.stdout);
}
