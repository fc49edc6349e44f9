//! Faults that users of other systems met in public, and that this one must not have. docs/faults.md says which is which.

use std::collections::BTreeSet;
use std::time::Duration;

use fanfold_domain::event::TaskEvent;
use fanfold_domain::ids::{TaskId, TerminalId};
use fanfold_domain::task::{Outcome, TaskState};
use fanfold_tests::world::handle::Fault;
use fanfold_tests::world::terminal::{Act, event, send};
use fanfold_tests::world::{ROLES, Role, World};
use fanfold_wire::api::{ApiError, Noted, PlanList, TaskList};
use fanfold_wire::event::{LogEvent, decode};
use fanfold_wire::record::TaskRecord;
use serde_json::{Value, json};

fn id(text: &str) -> TerminalId {
    TerminalId::new(text).unwrap()
}

fn report(task: &str, name: &str, data: &Value) -> Value {
    event(&TaskId::parse(task).unwrap(), name, data)
}

fn names(stores: &[String]) -> Vec<&str> {
    stores.iter().map(String::as_str).collect()
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_stops_between_a_requeue_and_a_repeated_report_counts_right() {
    let mut w = World::new().await;
    w.terminal("S1", |_, n| if n == 1 { Act::Fail(100, "BIZ_NO") } else { Act::Succeed(3_000) });
    w.terminal("S2", |_, _| Act::Succeed(100));
    w.submit("p", &["S1", "S2"], json!({})).await;
    w.until_state("p", "S1", TaskState::Failed, 5_000).await;
    w.hq.end(Role::Convergence).await;
    let _: Noted = w.ask("task.requeue", json!({ "planId": "p", "selector": { "failed": {} } })).await.unwrap();
    w.until_state("p", "S1", TaskState::Running, 5_000).await;
    // The first attempt's end once more, as a terminal that never heard the answer would.
    let again = report("p.S1.main", "attempt.failed", &json!({ "attempt": 1, "code": "BIZ_NO", "message": "again" }));
    send(&w.ledger, &id("S1"), &[again]).await.unwrap();
    w.until_state("p", "S1", TaskState::Succeeded, 10_000).await;
    w.hq.start(Role::Convergence);
    let view = w.until_over("p", 60_000).await;
    assert_eq!((view.counts().succeeded, view.counts().total()), (2, 2));
    w.check().await;
    w.check_state().await;
}

#[tokio::test(start_paused = true)]
async fn one_result_told_twice_before_all_others_does_not_end_the_plan_early() {
    let mut w = World::new().await;
    w.terminal("S1", |_, _| Act::Succeed(100));
    for store in ["S2", "S3"] {
        w.terminal(store, |_, _| Act::Succeed(4_000));
    }
    w.submit("p", &["S1", "S2", "S3"], json!({})).await;
    w.until_state("p", "S1", TaskState::Succeeded, 5_000).await;
    let again = report("p.S1.main", "attempt.succeeded", &json!({ "attempt": 1, "result": { "n": 1 } }));
    for _ in 0..3 {
        send(&w.ledger, &id("S1"), std::slice::from_ref(&again)).await.unwrap();
    }
    w.sleep(1_000).await;
    assert!(w.kinds("p").await.is_empty(), "two of three are still at work");
    let view = w.until_over("p", 60_000).await;
    assert_eq!(view.counts().succeeded, 3);
    w.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_terminal_vanished_is_never_given_to_another_one() {
    let mut w = World::new().await;
    for store in ["S1", "S2"] {
        w.terminal(store, |_, _| Act::Hang);
    }
    w.submit("p", &["S1", "S2"], json!({ "expiresMs": 120_000 })).await;
    w.until_state("p", "S1", TaskState::Running, 5_000).await;
    w.terminals.get_mut("S1").unwrap().kill();
    w.until_over("p", 240_000).await;
    for m in w.log().await {
        if let LogEvent::Task(task, logged) = decode(m.seq, m.time_ms, &m.subject, &m.payload).unwrap()
            && let TaskEvent::Dispatched(d) = logged.event
        {
            assert_eq!(d.terminal.as_str(), task.target.as_str(), "#{}", m.seq);
        }
    }
    w.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_reports_an_old_attempt_to_a_restarted_hq_changes_nothing_but_by_success() {
    for succeeds in [false, true] {
        let mut w = World::new().await;
        w.terminal("S1", |_, n| if n == 1 { Act::HangQuietly } else { Act::Succeed(4_000) });
        w.submit("p", &["S1"], json!({ "timeouts": { "deliverMs": 3_000, "runMs": 5_000 } })).await;
        w.until_task("p", "S1", 60_000, |t| t.attempt == 2 && t.state == TaskState::Running).await;
        w.hq = w.process().await;
        ROLES.iter().for_each(|role| w.hq.start(*role));
        w.sleep(50).await;
        let before = w.task("p", "S1").unwrap().absorbed().stale;
        let data = json!({ "attempt": 1, "code": "NET", "message": "late", "result": { "n": 1 } });
        let old = report("p.S1.main", if succeeds { "attempt.succeeded" } else { "attempt.failed" }, &data);
        send(&w.ledger, &id("S1"), &[old]).await.unwrap();
        let task = w.until_state("p", "S1", TaskState::Succeeded, 60_000).await;
        let first = if succeeds { Outcome::Succeeded } else { Outcome::TimedOutRun };
        assert_eq!((task.attempt, task.attempts[0].outcome), (2, Some(first)));
        assert_eq!(task.absorbed().stale > before, !succeeds, "a stale failure is counted: {:?}", task.absorbed());
        w.until_over("p", 60_000).await;
        w.check().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_hour_without_anybody_there_writes_a_bounded_log() {
    let mut w = World::new().await;
    let off: Vec<String> = (0..20).map(|n| format!("OFF{n}")).collect();
    let mut stores = off.clone();
    // And one that is there and always busy: that costs one attempt a minute at most.
    stores.push("BUSY".into());
    w.terminal("BUSY", |_, _| Act::Reject("BUSY"));
    w.submit("p", &names(&stores), json!({ "deadlineMs": 60_000, "expiresMs": 7_200_000 })).await;
    w.sleep(3_600_000).await;
    let log = w.log().await;
    let about = |store: &str| log.iter().filter(|m| m.subject.contains(&format!(".{store}."))).count();
    for store in &off {
        assert_eq!(about(store), 1, "{store}: deferred once");
    }
    assert!(about("BUSY") <= 2 * 70, "{} events about one that is busy", about("BUSY"));
    let plan_events = log.iter().filter(|m| m.subject.starts_with("ff.plan.p.")).count();
    assert!(plan_events <= 30, "{plan_events} plan events");
    assert!(w.task("p", "BUSY").unwrap().needs_attention(), "a person is asked to look");
    w.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_requeue_of_everything_keeps_the_cap_and_lets_a_small_plan_through() {
    let mut w = World::silent().await;
    w.hq.in_flight = 60;
    ROLES.iter().for_each(|role| w.hq.start(*role));
    w.sleep(10).await;
    let stores: Vec<String> = (0..400).map(|n| format!("S{n:03}")).collect();
    for store in &stores {
        w.terminal(store, |task, n| match (task.plan.as_str(), n) {
            ("big", 1) => Act::Fail(10, "BIZ_NO"),
            ("big", _) => Act::Succeed(1_000),
            _ => Act::Succeed(200),
        });
    }
    w.submit("big", &names(&stores), json!({ "limits": { "inFlight": 40 } })).await;
    w.until("all have failed", 60_000, |w| w.hq.open.read().open().all(|v| v.finals.count() == 400)).await;
    let _: Noted = w.ask("task.requeue", json!({ "planId": "big", "selector": { "failed": {} } })).await.unwrap();
    w.sleep(1_500).await;
    let begun = w.clock.now_ms();
    w.submit("small", &names(&stores[..10]), json!({})).await;
    let live = |w: &World, plan: &str| {
        let model = w.hq.open.read();
        model.open().filter(|v| v.plan.id().as_str() == plan).map(|v| v.live.count()).sum::<usize>()
    };
    let over = |w: &World, plan: &str| !w.hq.open.read().open().any(|v| v.plan.id().as_str() == plan);
    while !over(&w, "small") {
        assert!(live(&w, "big") <= 40, "{} of the big one are out", live(&w, "big"));
        w.sleep(20).await;
    }
    // Its stores may each be at the big plan's task for a second.
    assert!(w.clock.now_ms() - begun < 4_000, "{} ms for ten tasks", w.clock.now_ms() - begun);
    assert!(!over(&w, "big"), "it was under way all the time");
    let view = w.until_over("big", 60_000).await;
    assert_eq!(view.counts().succeeded, 400);
    w.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_hand_out_that_could_not_be_written_gives_its_place_back() {
    let mut w = World::new().await;
    let stores: Vec<String> = (0..8).map(|n| format!("S{n}")).collect();
    for store in &stores {
        w.terminal(store, |_, _| Act::Succeed(300));
    }
    let faults = [Fault::Away, Fault::AckLost, Fault::Full].into_iter().cycle().take(60);
    w.hq.faults(Role::Dispatcher).next_appends(faults.flat_map(|fault| [Some(fault), None]));
    w.submit("p", &names(&stores), json!({ "limits": { "inFlight": 1 } })).await;
    let view = w.until_over("p", 120_000).await;
    assert_eq!(view.counts().succeeded, 8, "the one place was never lost");
    w.check().await;
    w.check_state().await;
}

#[tokio::test(start_paused = true)]
async fn who_asks_while_the_log_is_away_never_hears_that_there_is_nothing() {
    let mut w = World::new().await;
    w.terminal("S1", |_, _| Act::Succeed(8_000));
    w.submit("p", &["S1", "OFF"], json!({ "expiresMs": 90_000 })).await;
    let mut codes: BTreeSet<String> = BTreeSet::new();
    for turn in 0..300 {
        // Away, and back again, and HQ's processes change meanwhile.
        w.ledger.set_down(turn % 10 < 4);
        if turn % 50 == 25 {
            w.hq = w.process().await;
            ROLES.iter().for_each(|role| w.hq.start(*role));
        }
        w.sleep(400).await;
        let asked = async {
            let task = w.ask::<TaskRecord>("task.get", json!({ "taskId": "p.S1.main" })).await.map(drop);
            let tasks = w.ask::<TaskList>("task.list", json!({ "planId": "p" })).await.map(|l| assert_eq!(l.tasks.len(), 2));
            let plans = w.ask::<PlanList>("plan.list", json!({})).await.map(|l| assert_eq!(l.plans.len(), 1));
            [task, tasks, plans]
        };
        let answers: [Result<(), ApiError>; 3] = tokio::time::timeout(Duration::from_secs(120), asked).await.unwrap();
        codes.extend(answers.into_iter().filter_map(Result::err).map(|e| e.code));
    }
    w.ledger.set_down(false);
    let allowed = ["NO_ANSWER", "UNAVAILABLE"];
    assert!(codes.iter().all(|c| allowed.contains(&c.as_str())), "{codes:?}");
    w.hq = w.process().await;
    ROLES.iter().for_each(|role| w.hq.start(*role));
    w.sleep(60_000).await;
    assert!(w.view("p").await.is_over());
    w.check_state().await;
}
