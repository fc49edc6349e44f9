//! The log is full at every point of a plan's life: nothing is concluded, nothing is lost, nobody runs hot, and with room again all ends
//! as it would have.

use std::collections::BTreeSet;
use std::time::Duration;

use fanfold_domain::task::TaskState;
use fanfold_ledger::port::Log;
use fanfold_wire::api::{Noted, Submitted};
use serde_json::json;

use fanfold_tests::world::terminal::Act;
use fanfold_tests::world::{World, document};

const STORES: [&str; 4] = ["S1", "S2", "S3", "S4"];
/// How long the log stays full, in ms: longer than any time-out of the plan.
const FULL_MS: u64 = 30_000;
/// Refused writes a second that are no hot loop: five writers, each with its pause.
const REFUSED_PER_S_MAX: u64 = 60;

/// Four stores: two quick ones, one that fails for good, one that takes two tries.
async fn world() -> World {
    let mut w = World::new().await;
    w.terminal("S1", |_, _| Act::Succeed(300));
    w.terminal("S2", |_, _| Act::Succeed(900));
    w.terminal("S3", |_, _| Act::Fail(200, "BIZ_NO"));
    w.terminal("S4", |_, n| if n == 1 { Act::Fail(100, "NET") } else { Act::Succeed(100) });
    w
}

/// Submits until it is taken, as a client does that is told LOG_FULL; says how often it was.
async fn submitted(w: &World) -> usize {
    for refusals in 0..200 {
        let body = json!({ "plan": document("p", &STORES, json!({})), "by": "test" });
        match w.ask::<Submitted>("plan.submit", body).await {
            Ok(_) => return refusals,
            Err(error) => assert_eq!(error.code, "LOG_FULL", "{error:?}"),
        }
        w.sleep(500).await;
    }
    panic!("never taken");
}

/// The whole life of the plan; a person closes it when all but the failed one are in.
async fn life(w: &World) {
    submitted(w).await;
    for store in ["S1", "S2", "S4"] {
        w.until_state("p", store, TaskState::Succeeded, 120_000).await;
    }
    w.until_state("p", "S3", TaskState::Failed, 120_000).await;
    for _ in 0..200 {
        match w.ask::<Noted>("plan.close", json!({ "planId": "p", "by": "ops" })).await {
            Ok(_) => break,
            Err(error) => assert!(["LOG_FULL", "PLAN_CLOSED"].contains(&error.code.as_str()), "{error:?}"),
        }
        w.sleep(500).await;
    }
    w.until_over("p", 120_000).await;
}

/// Names of the events at and after a sequence, fences left out.
async fn names(w: &World) -> Vec<(u64, String)> {
    let log = w.log().await;
    let name = |m: &fanfold_ledger::port::Stored| {
        let event: serde_json::Value = serde_json::from_slice(&m.payload).unwrap();
        event["type"].as_str().unwrap_or_default().trim_start_matches("fanfold.").trim_end_matches(".v1").to_owned()
    };
    log.iter().filter(|m| !m.subject.starts_with("ff.fence.")).map(|m| (m.seq, name(m))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_full_at_any_sequence_only_delays() {
    let reference = world().await;
    life(&reference).await;
    let last = reference.ledger.last_seq().await.unwrap();
    let mut stopped_at: BTreeSet<String> = BTreeSet::new();
    for room in 2..=last {
        let w = world().await;
        w.ledger.set_room(Some(room));
        let full = async {
            // From the first refusal on.
            while w.ledger.refused_as_full() == 0 {
                w.sleep(20).await;
            }
            let (before, end) = (w.ledger.refused_as_full(), w.ledger.last_seq().await.unwrap());
            w.sleep(FULL_MS).await;
            let refused = w.ledger.refused_as_full() - before;
            assert!(refused <= REFUSED_PER_S_MAX * FULL_MS / 1_000, "room up to {room}: {refused} writes in {FULL_MS} ms");
            w.hq.assert_alive();
            let names = names(&w).await;
            let after: Vec<&String> = names.iter().filter(|(seq, _)| *seq > end).map(|(_, name)| name).collect();
            assert!(!after.iter().any(|n| n.contains("timed_out") || n.contains("lost")), "room up to {room}: {after:?}");
            w.ledger.set_room(None);
            names.last().map(|(_, name)| name.clone()).unwrap_or_default()
        };
        let (at, ()) = tokio::join!(full_or_over(full, &w), life(&w));
        stopped_at.extend(at);
        let view = w.view("p").await;
        let counts = view.counts();
        assert_eq!((counts.succeeded, counts.failed, counts.total()), (3, 1, 4), "room up to {room}: {counts:?}");
        let concluded = ["task.attempt_timed_out", "task.attempt_lost", "task.deferred"];
        let names = names(&w).await;
        assert!(!names.iter().any(|(_, n)| concluded.contains(&n.as_str())), "room up to {room}: {names:?}");
        w.check().await;
        w.check_state().await;
    }
    let wanted = ["", "plan.sealed", "task.dispatched", "attempt.succeeded", "plan.closed", "plan.close_requested"];
    for name in wanted {
        assert!(stopped_at.contains(name), "the log was never full right after `{name}`: {stopped_at:?}");
    }
}

/// Where the log's room was up to its very end, nothing is ever refused.
async fn full_or_over(full: impl Future<Output = String>, w: &World) -> Option<String> {
    let over = async {
        let id = fanfold_domain::ids::PlanId::new("p").unwrap();
        while w.hq.open.read().known(&id) != fanfold_ledger::open::Known::Over {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        w.ledger.set_room(None);
    };
    tokio::select! {
        at = full => Some(at),
        () = over => None,
    }
}
