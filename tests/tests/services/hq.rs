//! HQ's own misfortunes: services that die, freeze, come twice, and views that are lost.

use std::time::Duration;

use bytes::Bytes;
use fanfold_ledger::memory::MemoryLedger;
use fanfold_ledger::port::{Buckets, Log};
use futures::StreamExt;
use serde_json::json;

use fanfold_tests::world::handle::Fault;
use fanfold_tests::world::terminal::Act;
use fanfold_tests::world::{ROLES, Role, World};

async fn five() -> World {
    let mut w = World::new().await;
    for store in ["S1", "S2", "S3", "S4", "S5"] {
        w.terminal(
            store,
            |task, n| if task.target.as_str() == "S5" && n == 1 { Act::Fail(100, "NET") } else { Act::Succeed(600) },
        );
    }
    w
}

const STORES: [&str; 5] = ["S1", "S2", "S3", "S4", "S5"];

#[tokio::test(start_paused = true)]
async fn every_service_may_die_at_any_point() {
    for role in ROLES {
        for at_ms in [0, 1, 5, 30, 100, 590, 610, 1_100, 2_700] {
            for away_ms in [0, 300, 2_000] {
                let mut w = five().await;
                w.submit("p", &STORES, json!({})).await;
                w.sleep(at_ms).await;
                w.hq.stop(role);
                w.sleep(away_ms).await;
                w.hq.start(role);
                let view = w.until_over("p", 60_000).await;
                assert_eq!(view.counts().succeeded, 5, "{role:?} at {at_ms}");
                w.check().await;
                w.check_state().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_of_hq_may_die_and_come_back_with_a_new_fold() {
    for at_ms in [0, 5, 500, 1_000] {
        let mut w = five().await;
        w.submit("p", &STORES, json!({})).await;
        w.sleep(at_ms).await;
        w.hq = w.process().await;
        w.sleep(1_000).await;
        ROLES.iter().for_each(|role| w.hq.start(*role));
        w.until_over("p", 60_000).await;
        w.check().await;
        w.check_state().await;
    }
}

#[tokio::test(start_paused = true)]
async fn appends_may_fail_in_every_way() {
    for role in [Role::Recorder, Role::Dispatcher, Role::Convergence] {
        for fault in [Fault::Away, Fault::AckLost, Fault::Full] {
            for skip in 0..4 {
                let w = five().await;
                w.hq.faults(role).next_appends(std::iter::repeat_n(None, skip).chain([Some(fault), Some(fault)]));
                w.submit("p", &STORES, json!({})).await;
                let view = w.until_over("p", 60_000).await;
                assert_eq!(view.counts().succeeded, 5, "{role:?} {fault:?}");
                w.check().await;
                w.check_state().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_may_be_full_for_a_while_and_the_server_away() {
    let w = five().await;
    w.submit("p", &STORES, json!({})).await;
    w.sleep(50).await;
    w.ledger.set_full(true);
    w.sleep(5_000).await;
    w.ledger.set_full(false);
    w.sleep(700).await;
    w.ledger.set_down(true);
    w.sleep(7_000).await;
    w.ledger.set_down(false);
    let view = w.until_over("p", 60_000).await;
    assert_eq!(view.counts().succeeded, 5);
    let concluded = ["task.attempt_lost", "task.attempt_timed_out", "task.deferred"];
    for store in STORES {
        let story = w.story("p", store).await;
        assert!(
            !story.iter().any(|e| concluded.contains(&e.as_str())),
            "after an outage nothing is concluded at once: {story:?}"
        );
    }
    w.check().await;
    w.check_state().await;
}

/// Incarnations in the order they took or renewed the lead.
async fn leaders(ledger: &MemoryLedger, role: &str) -> Vec<String> {
    let last = ledger.last_seq().await.unwrap();
    let fences = ledger.read(vec![format!("ff.fence.{role}")], 1, last).await.unwrap();
    let mut leaders: Vec<String> = fences.map(|m| m.unwrap().id.split('/').nth(1).unwrap().to_owned()).collect().await;
    leaders.dedup();
    leaders
}

#[tokio::test(start_paused = true)]
async fn a_frozen_leader_is_overtaken_and_appends_nothing_when_it_thaws() {
    for (role, name) in [(Role::Dispatcher, "dispatcher"), (Role::Convergence, "convergence")] {
        for at_ms in [0, 5, 600, 640] {
            let mut w = five().await;
            let mut other = w.process().await;
            other.start(role);
            w.sleep(500).await;
            assert_eq!(leaders(&w.ledger, name).await.len(), 1, "the second one stands by");
            w.submit("p", &STORES, json!({})).await;
            w.sleep(at_ms).await;
            w.hq.faults(role).freeze(true);
            w.sleep(5_000).await;
            let led = leaders(&w.ledger, name).await;
            assert_eq!(led.len(), 2, "taken over");
            w.hq.faults(role).freeze(false);
            w.until_over("p", 60_000).await;
            w.sleep(5_000).await;
            assert_eq!(leaders(&w.ledger, name).await, led, "the overtaken one stored nothing more");
            w.hq.assert_alive();
            // And it takes over again when the other one dies.
            other.stop(role);
            w.hq.start(Role::Api);
            w.sleep(2_000).await;
            w.submit("q", &STORES, json!({})).await;
            w.until_over("q", 60_000).await;
            w.check().await;
            w.check_state().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_processes_share_everything() {
    let mut w = five().await;
    let mut other = w.process().await;
    ROLES.iter().for_each(|role| other.start(*role));
    for n in 0..3 {
        w.submit(&format!("p{n}"), &STORES, json!({})).await;
    }
    for n in 0..3 {
        w.until_over(&format!("p{n}"), 60_000).await;
    }
    w.check().await;
    w.check_state().await;
    for role in ROLES {
        w.hq.stop(role);
    }
    w.sleep(3_000).await;
    w.submit("q", &STORES, json!({})).await;
    w.until_over("q", 60_000).await;
    other.assert_alive();
    w.check_state().await;
}

#[tokio::test(start_paused = true)]
async fn an_overtaken_projector_stands_by_and_takes_over_again() {
    let w = &mut five().await;
    let mut other = w.process().await;
    w.submit("p", &STORES, json!({})).await;
    w.sleep(100).await;
    w.hq.faults(Role::Projector).freeze(true);
    other.start(Role::Projector);
    w.until_over("p", 60_000).await;
    w.check_state().await;
    w.hq.faults(Role::Projector).freeze(false);
    w.check_state().await;
    other.stop(Role::Projector);
    w.submit("q", &STORES, json!({})).await;
    w.until_over("q", 60_000).await;
    w.sleep(4_000).await;
    w.check_state().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_projector_is_not_taken_for_dead() {
    let w = five().await;
    w.submit("p", &STORES, json!({})).await;
    w.until_over("p", 60_000).await;
    w.sleep(5_000).await;
    let mut other = w.process().await;
    other.start(Role::Projector);
    // The newcomer takes over once, the first one stands by; then it stays like that.
    w.sleep(10_000).await;
    let before = w.ledger.get_checkpoint().await.unwrap().unwrap().revision;
    w.sleep(60_000).await;
    let after = w.ledger.get_checkpoint().await.unwrap().unwrap().revision;
    assert!(after - before <= 2, "{} writes while nothing happens", after - before);
}

#[tokio::test(start_paused = true)]
async fn lost_and_damaged_views_are_made_again() {
    for damage in ["state", "checkpoint", "both", "garbage"] {
        let mut w = five().await;
        w.submit("ended", &STORES, json!({})).await;
        w.until_over("ended", 60_000).await;
        w.submit("open", &["S1", "OFF"], json!({})).await;
        w.sleep(5_000).await;
        w.check_state().await;
        w.hq.stop(Role::Projector);
        let keys: Vec<String> = w.ledger.list_state(">").await.unwrap().map(|e| e.unwrap().key).collect().await;
        for key in keys {
            let hit = match damage {
                "checkpoint" | "garbage" => key == "checkpoint",
                // What ended before the checkpoint is only made again where that is gone, too.
                "state" => key.contains("open"),
                _ => true,
            };
            let value = if damage == "garbage" { Bytes::from_static(b"{\"seq\":1}") } else { Bytes::new() };
            if hit {
                w.ledger.put_state(vec![(key, value)]).await.unwrap();
            }
        }
        w.hq.start(Role::Projector);
        w.check_state().await;
        w.hq = w.process().await;
        ROLES.iter().for_each(|role| w.hq.start(*role));
        w.sleep(10).await;
        w.submit("more", &["S2"], json!({})).await;
        w.until_over("more", 60_000).await;
        w.check_state().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_ends_while_no_projector_runs_is_written_later() {
    let mut w = five().await;
    w.hq.stop(Role::Projector);
    for n in 0..3 {
        w.submit(&format!("p{n}"), &STORES, json!({})).await;
        w.until_over(&format!("p{n}"), 60_000).await;
    }
    let record: fanfold_wire::record::PlanRecord = w.ask("plan.get", json!({ "planId": "p1" })).await.unwrap();
    assert_eq!(record.status, fanfold_wire::record::PlanStatus::Closed, "readers are answered from the log meanwhile");
    w.hq.start(Role::Projector);
    w.check_state().await;
}

#[tokio::test(start_paused = true)]
async fn a_cap_over_all_plans_is_never_exceeded() {
    let mut w = World::silent().await;
    w.hq.in_flight = 3;
    ROLES.iter().for_each(|role| w.hq.start(*role));
    let stores: Vec<String> = (0..12).map(|n| format!("S{n}")).collect();
    for store in &stores {
        w.terminal(store, |_, _| Act::Succeed(300));
    }
    tokio::time::sleep(Duration::from_millis(10)).await;
    let names: Vec<&str> = stores.iter().map(String::as_str).collect();
    w.submit("a", &names[..6], json!({})).await;
    w.submit("b", &names[6..], json!({})).await;
    let over = |w: &World| w.hq.open.read().open().count() == 0;
    while !over(&w) {
        let live: usize = w.hq.open.read().open().map(|v| v.live.count()).sum();
        assert!(live <= 3, "{live} out at once");
        w.sleep(20).await;
        assert!(w.clock.now_ms() < fanfold_tests::world::EPOCH_MS + 60_000, "{}", w.tail(20).await);
    }
    w.check().await;
}
