//! Attempts from hand-out to end.

use fanfold_domain::plan::SummaryKind;
use fanfold_domain::task::{FailReason, Outcome, TaskState};
use serde_json::json;

use fanfold_tests::world::World;
use fanfold_tests::world::terminal::{Act, Options, event, send};

#[tokio::test(start_paused = true)]
async fn a_plan_that_goes_well_is_complete_and_final() {
    let mut w = World::new().await;
    for store in ["S1", "S2", "S3"] {
        w.terminal(store, |_, _| Act::Succeed(500));
    }
    w.submit("p", &["S1", "S2", "S3"], json!({})).await;
    let view = w.until_over("p", 20_000).await;
    assert_eq!(view.counts().succeeded, 3);
    assert_eq!(w.kinds("p").await, [SummaryKind::Complete, SummaryKind::Final]);
    w.check().await;
    w.check_state().await;
}

#[tokio::test(start_paused = true)]
async fn partial_at_the_deadline_then_update_then_final() {
    let mut w = World::new().await;
    w.terminal("S1", |_, _| Act::Succeed(500));
    w.terminal("S2", |_, _| Act::Succeed(7_000));
    w.submit("p", &["S1", "S2"], json!({ "deadlineMs": 5_000 })).await;
    w.until_over("p", 60_000).await;
    let kinds = w.kinds("p").await;
    assert_eq!(kinds.first(), Some(&SummaryKind::Partial));
    assert_eq!(kinds.last(), Some(&SummaryKind::Final));
    w.check().await;
    let mut w = World::new().await;
    w.terminal("S1", |_, _| Act::Succeed(500));
    w.terminal("S2", |_, _| Act::Succeed(8_000));
    w.submit("p", &["S1", "S2", "S3"], json!({ "deadlineMs": 5_000, "expiresMs": 30_000 })).await;
    let view = w.until_over("p", 60_000).await;
    assert_eq!(w.kinds("p").await, [SummaryKind::Partial, SummaryKind::Update, SummaryKind::Final]);
    assert_eq!((view.counts().succeeded, view.counts().offline), (2, 1));
    w.check().await;
    w.check_state().await;
}

#[tokio::test(start_paused = true)]
async fn offline_is_said_after_three_beats_of_uptime_and_once_an_episode() {
    let mut w = World::new().await;
    w.submit("p", &["S1"], json!({})).await;
    w.sleep(2_000).await;
    assert!(w.story("p", "S1").await.is_empty(), "unknown is not offline");
    w.until_task("p", "S1", 2_000, |t| t.is_offline()).await;
    w.sleep(20_000).await;
    assert_eq!(w.story("p", "S1").await, ["task.deferred"]);
    w.terminal("S1", |_, _| Act::Hang);
    w.until_state("p", "S1", TaskState::Running, 5_000).await;
    w.check().await;
}

#[tokio::test(start_paused = true)]
async fn offline_twice_inside_the_duplicate_window_is_two_episodes() {
    let mut w = World::new().await;
    // The plan's one place is taken: S1 waits for its turn while its terminal comes and goes.
    w.terminal("S0", |_, _| Act::Succeed(25_000));
    w.terminal("S1", |_, _| Act::Succeed(100));
    let long = json!({ "limits": { "inFlight": 1 }, "timeouts": { "deliverMs": 3_000, "runMs": 3_600_000 } });
    w.submit("p", &["S0", "S1"], long).await;
    w.until_state("p", "S0", TaskState::Running, 5_000).await;
    for _ in 0..2 {
        w.terminals.get_mut("S1").unwrap().kill();
        w.until_task("p", "S1", 6_000, |t| t.is_offline()).await;
        w.terminals.get_mut("S1").unwrap().start();
        w.until_task("p", "S1", 6_000, |t| !t.is_offline() && t.state == TaskState::Pending).await;
    }
    w.until_state("p", "S1", TaskState::Succeeded, 30_000).await;
    let story = w.story("p", "S1").await;
    assert_eq!(story.iter().filter(|e| *e == "task.deferred").count(), 2, "{story:?}");
    assert_eq!(story.iter().filter(|e| *e == "task.released").count(), 2, "{story:?}");
    w.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_tried_again_after_its_backoff() {
    let mut w = World::new().await;
    w.terminal("S1", |_, n| if n < 3 { Act::Fail(100, "NET") } else { Act::Succeed(100) });
    w.terminal("S2", |_, _| Act::Fail(100, "BIZ_NO"));
    w.terminal("S3", |_, _| Act::Fail(100, "NET"));
    w.submit("p", &["S1", "S2", "S3"], json!({})).await;
    let task = w.until_state("p", "S1", TaskState::Succeeded, 20_000).await;
    let pauses: Vec<i64> = task.attempts.windows(2).map(|a| a[1].dispatched_ms - a[0].ended_ms().unwrap()).collect();
    assert!(pauses.iter().all(|ms| (2_000..2_100).contains(ms)), "{pauses:?}");
    let task = w.until_state("p", "S2", TaskState::Failed, 1_000).await;
    assert_eq!((task.failure, task.attempt), (Some(FailReason::Business), 1));
    let task = w.until_state("p", "S3", TaskState::Failed, 10_000).await;
    assert_eq!((task.failure, task.attempt, task.tries), (Some(FailReason::Exhausted), 3, 3));
    w.check().await;
}

#[tokio::test(start_paused = true)]
async fn busy_twice_inside_the_duplicate_window_still_runs() {
    let mut w = World::new().await;
    w.terminal("S1", |_, n| if n <= 2 { Act::Reject("BUSY") } else { Act::Succeed(100) });
    w.submit("p", &["S1"], json!({})).await;
    let task = w.until_state("p", "S1", TaskState::Succeeded, 20_000).await;
    assert_eq!((task.attempt, task.tries), (3, 0), "a refusal uses no try");
    w.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_report_does_not_use_up_the_real_one() {
    let mut w = World::new().await;
    w.terminal("S1", |_, _| Act::Succeed(2_000));
    w.submit("p", &["S1"], json!({})).await;
    let task = w.until_state("p", "S1", TaskState::Running, 5_000).await;
    let id = fanfold_domain::ids::TaskId::parse("p.S1.main").unwrap();
    let forged = event(&id, "attempt.succeeded", &json!({ "attempt": task.attempt, "result": { "n": 666 } }));
    let other = fanfold_domain::ids::TerminalId::new("S2").unwrap();
    let answer = send(&w.ledger, &other, &[forged]).await.unwrap();
    assert_eq!(answer.answers[0].code.as_deref(), Some("NOT_YOURS"));
    let task = w.until_state("p", "S1", TaskState::Succeeded, 5_000).await;
    assert_eq!(task.result.unwrap().0.get(), r#"{"n":1}"#);
    w.check().await;
}

#[tokio::test(start_paused = true)]
async fn garbage_is_tried_again_and_then_counted_as_invalid() {
    let mut w = World::new().await;
    w.terminal("S1", |_, _| Act::Garbage(100));
    w.submit("p", &["S1"], json!({ "expiresMs": 60_000 })).await;
    let task = w.until_state("p", "S1", TaskState::Failed, 30_000).await;
    let error = task.error.unwrap();
    assert_eq!((task.tries, error.code.as_str(), task.last_outcome), (3, "SCHEMA_INVALID", Some(Outcome::Invalid)));
    assert!(error.paths[0].starts_with("/n"), "{:?}", error.paths);
    let view = w.until_over("p", 120_000).await;
    assert_eq!(view.counts().invalid, 1);
    w.check().await;
    w.check_state().await;
}

#[tokio::test(start_paused = true)]
async fn a_missed_command_times_out_undelivered_and_the_sync_hands_it_out_before_that() {
    let mut w = World::new().await;
    let deaf = Options { sync_ms: 3_600_000, ..Options::new(|_, n| if n == 1 { Act::Miss } else { Act::Succeed(100) }) };
    w.terminal_with("S1", deaf);
    w.terminal_with("S2", Options { sync_ms: 1_000, ..Options::new(|_, _| Act::Succeed(100)) });
    w.submit("p", &["S1", "S2"], json!({})).await;
    let task = w.until_state("p", "S1", TaskState::Succeeded, 20_000).await;
    assert_eq!(task.attempts[0].outcome, Some(Outcome::TimedOutDelivery));
    assert_eq!(task.tries, 0);
    w.check().await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_listed_is_not_undelivered() {
    let mut w = World::new().await;
    w.terminal("S1", |_, _| Act::SucceedQuietly(12_000));
    w.submit("p", &["S1"], json!({})).await;
    let task = w.until_state("p", "S1", TaskState::Succeeded, 20_000).await;
    assert_eq!((task.attempt, w.story("p", "S1").await), (1, vec!["task.dispatched".to_owned(), "attempt.succeeded".to_owned()]));
    w.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_never_ends_is_timed_out_and_stopped() {
    let mut w = World::new().await;
    w.terminal("S1", |_, n| if n == 1 { Act::Hang } else { Act::Succeed(100) });
    w.terminal("S2", |_, n| if n == 1 { Act::HangQuietly } else { Act::Succeed(100) });
    w.submit("p", &["S1", "S2"], json!({})).await;
    for store in ["S1", "S2"] {
        let task = w.until_state("p", store, TaskState::Succeeded, 60_000).await;
        assert_eq!((task.attempts[0].outcome, task.attempt), (Some(Outcome::TimedOutRun), 2), "{store}");
    }
    w.check().await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_lost_with_its_journal_and_not_with_a_restart() {
    let mut w = World::new().await;
    for store in ["S1", "S2"] {
        w.terminal(store, |_, n| if n == 1 { Act::Hang } else { Act::Succeed(100) });
    }
    w.submit("p", &["S1", "S2"], json!({})).await;
    for store in ["S1", "S2"] {
        w.until_state("p", store, TaskState::Running, 5_000).await;
        let terminal = w.terminals.get_mut(store).unwrap();
        terminal.kill();
        if store == "S1" {
            terminal.lose_journal();
        }
        terminal.start();
    }
    let task = w.until_state("p", "S1", TaskState::Succeeded, 20_000).await;
    assert_eq!((task.attempts[0].outcome, task.attempt), (Some(Outcome::Lost), 2));
    let task = w.until_state("p", "S2", TaskState::Succeeded, 20_000).await;
    assert_eq!(
        (task.attempts[0].outcome, task.attempts[0].error.as_ref().unwrap().code.as_str()),
        (Some(Outcome::Failed), "LOST")
    );
    w.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_goodbye_and_a_new_boot_go_on_at_once() {
    let mut w = World::new().await;
    w.terminal("S1", |_, _| Act::Succeed(100));
    w.sleep(3_000).await;
    let terminal = w.terminals.get_mut("S1").unwrap();
    terminal.goodbye().await;
    terminal.start();
    w.submit("p", &["S1"], json!({})).await;
    w.until_state("p", "S1", TaskState::Succeeded, 500).await;
    w.check().await;
}
