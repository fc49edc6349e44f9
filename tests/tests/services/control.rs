//! What people ask for: cancel, close, requeue; and what the clock does when nobody asks.

use fanfold_domain::plan::SummaryKind;
use fanfold_domain::task::{FailReason, TaskState};
use fanfold_wire::api::Noted;
use serde_json::json;

use fanfold_tests::world::terminal::Act;
use fanfold_tests::world::{ROLES, Role, World};

/// Stores that are quick, slow, silent, offline, failing.
async fn mixed() -> World {
    let mut w = World::new().await;
    for n in 0..8 {
        w.terminal(&format!("S{n}"), move |_, _| match n % 5 {
            0 => Act::Succeed(300),
            1 => Act::Succeed(5_000),
            2 => Act::Hang,
            3 => Act::Fail(200, "NET"),
            _ => Act::Reject("BUSY"),
        });
    }
    w
}

const STORES: [&str; 10] = ["S0", "S1", "S2", "S3", "S4", "S5", "S6", "S7", "OFF1", "OFF2"];

#[tokio::test(start_paused = true)]
async fn a_cancel_at_any_time_is_clean() {
    for at_ms in [0, 1, 10, 150, 300, 700, 1_500, 2_200, 3_100, 6_000, 25_000] {
        let w = mixed().await;
        w.submit("p", &STORES, json!({ "limits": { "inFlight": 4 } })).await;
        w.sleep(at_ms).await;
        let noted: Noted = w.ask("plan.cancel", json!({ "planId": "p", "by": "ops" })).await.unwrap();
        assert!(noted.created);
        let view = w.until_over("p", 30_000).await;
        assert!(view.plan.cancelled_seq.is_some_and(|seq| seq > noted.seq), "cancelled at {at_ms}");
        let counts = view.counts();
        assert!(counts.cancelled >= 4 && counts.cancelled + counts.succeeded + counts.failed == 10, "{at_ms}: {counts:?}");
        w.check().await;
        w.check_state().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_survives_any_service_being_away() {
    for role in ROLES.into_iter().filter(|r| *r != Role::Api) {
        for away_ms in [0, 5, 400] {
            let mut w = mixed().await;
            w.submit("p", &STORES, json!({})).await;
            w.sleep(400).await;
            w.hq.stop(role);
            let _: Noted = w.ask("plan.cancel", json!({ "planId": "p" })).await.unwrap();
            w.sleep(away_ms).await;
            w.hq.start(role);
            w.until_over("p", 40_000).await;
            w.check().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn close_expires_what_is_open() {
    let w = mixed().await;
    w.submit("p", &STORES, json!({})).await;
    w.sleep(4_000).await;
    let first: Noted = w.ask("plan.close", json!({ "planId": "p", "by": "ops" })).await.unwrap();
    let second = w.ask::<Noted>("plan.close", json!({ "planId": "p", "by": "ops" })).await;
    assert!(first.created);
    if let Ok(second) = second {
        assert_eq!((second.created, second.seq), (false, first.seq));
    }
    let view = w.until_over("p", 10_000).await;
    let counts = view.counts();
    assert_eq!((counts.succeeded, counts.offline, counts.cancelled), (2, 2, 0), "{counts:?}");
    assert_eq!(view.tasks[8].failure, Some(FailReason::Expired));
    assert_eq!(w.kinds("p").await.last(), Some(&SummaryKind::Final));
    w.check().await;
    w.check_state().await;
}

#[tokio::test(start_paused = true)]
async fn the_plan_expires_by_itself() {
    let w = mixed().await;
    w.submit("p", &STORES, json!({ "deadlineMs": 4_000, "expiresMs": 12_000 })).await;
    w.until_over("p", 20_000).await;
    let kinds = w.kinds("p").await;
    assert_eq!((kinds.first(), kinds.last()), (Some(&SummaryKind::Partial), Some(&SummaryKind::Final)));
    w.check().await;
    w.check_state().await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_and_an_expiry_that_passed_while_everybody_was_away_fire_at_once() {
    let mut w = mixed().await;
    w.submit("p", &STORES, json!({ "deadlineMs": 4_000, "expiresMs": 12_000 })).await;
    w.sleep(1_000).await;
    ROLES.iter().for_each(|role| w.hq.stop(*role));
    w.sleep(60_000).await;
    ROLES.iter().for_each(|role| w.hq.start(*role));
    w.until_over("p", 10_000).await;
    let kinds = w.kinds("p").await;
    assert_eq!((kinds.first(), kinds.last()), (Some(&SummaryKind::Partial), Some(&SummaryKind::Final)));
    w.check().await;
}

#[tokio::test(start_paused = true)]
async fn what_failed_runs_again_when_it_is_requeued() {
    let mut w = World::new().await;
    w.terminal("S1", |_, n| if n == 1 { Act::Fail(100, "BIZ_NO") } else { Act::Succeed(100) });
    w.terminal("S2", |_, _| Act::Hang);
    w.submit("p", &["S1", "S2"], json!({})).await;
    w.until_state("p", "S1", TaskState::Failed, 5_000).await;
    let bad = json!({ "planId": "p", "selector": { "tasks": ["p.S1.main", "p.S2.main", "p.S9.main"] } });
    let error = w.ask::<Noted>("task.requeue", bad).await.unwrap_err();
    assert_eq!(error.problems.iter().map(|p| p.code.as_str()).collect::<Vec<_>>(), ["NOT_FAILED", "UNKNOWN_TASK"]);
    let good = json!({ "planId": "p", "selector": { "failed": {} } });
    let noted: Noted = w.ask("task.requeue", good.clone()).await.unwrap();
    let task = w.until_state("p", "S1", TaskState::Succeeded, 5_000).await;
    assert!(noted.created && task.attempt == 2);
    let _: Noted = w.ask("plan.cancel", json!({ "planId": "p" })).await.unwrap();
    let error = w.ask::<Noted>("task.requeue", good.clone()).await.unwrap_err();
    assert!(["PLAN_CANCELLED", "PLAN_CLOSED"].contains(&error.code.as_str()), "{error:?}");
    w.until_over("p", 20_000).await;
    assert_eq!(w.ask::<Noted>("task.requeue", good).await.unwrap_err().code, "PLAN_CLOSED");
    assert_eq!(w.ask::<Noted>("plan.cancel", json!({ "planId": "p" })).await.unwrap_err().code, "PLAN_CLOSED");
    w.check().await;
    w.check_state().await;
}
