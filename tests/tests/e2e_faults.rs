//! The server and every service die or freeze in the middle of a plan: nothing is lost, nothing runs twice.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use fanfold_domain::plan::SummaryKind;
use fanfold_terminal::host::Moment;
use fanfold_tests::fleet::{Fleet, ids};
use fanfold_tests::hq::Event;
use fanfold_tests::plans::{noop, with};
use fanfold_tests::stack::{ROLES, Stack};
use fanfold_tests::wait::{SOON, until};
use rustix::process::Signal;
use serde_json::json;

const BIN: &str = env!("CARGO_BIN_EXE_fanfold-under-test");

async fn all_in_and_nothing_twice(stack: &Stack, plan: &str, fleet: &Fleet, stores: u32) {
    let last = stack.hq.summary(plan, SummaryKind::Final, SOON * 2).await;
    assert_eq!((last.counts.succeeded, last.counts.total()), (stores, u64::from(stores)));
    let counts = fleet.account().counts();
    fleet.account().assert_nothing_twice();
    assert_eq!((counts.tasks, counts.handler_runs), (u64::from(stores), counts.attempts), "once an attempt: {counts:?}");
    stack.hq.assert_true(plan).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_in_the_middle_loses_nothing() {
    let stack = Stack::together(BIN).await;
    let east = stack.fleet("east", &ids(1, 30)).work_ms(1_000, 3_000).start().await;
    stack.hq.online(30).await;
    stack.hq.submit(&with(noop("server", &ids(1, 30)), json!({ "limits": { "inFlight": 20 } }))).await;
    until("some are done and some run", SOON, async || {
        let account = east.account();
        (account.seen(Moment::Done) >= 2 && account.seen(Moment::Begin) >= 20).then_some(())
    })
    .await;
    stack.nats.kill().await;
    let before = east.account().seen(Moment::Done);
    until("work goes on without a server", SOON, async || (east.account().seen(Moment::Done) >= before + 5).then_some(())).await;
    stack.nats.restart().await.unwrap();
    all_in_and_nothing_twice(&stack, "server", &east, 30).await;
    assert_eq!(east.account().counts().attempts, 30, "nobody was given up for an outage");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_service_dies_once_in_the_middle() {
    let mut stack = Stack::apart(BIN).await;
    let east = stack.fleet("east", &ids(1, 80)).work_ms(600, 1_000).start().await;
    stack.hq.online(80).await;
    stack.hq.submit(&with(noop("services", &ids(1, 80)), json!({ "limits": { "inFlight": 8 } }))).await;
    until("it is under way", SOON, async || (stack.hq.succeeded("services").await >= 2).then_some(())).await;
    for role in ROLES {
        let before = stack.hq.succeeded("services").await;
        stack.kill(role);
        stack.serve(role, &[role]).await;
        until(&format!("it goes on after {role} died"), SOON, async || {
            (stack.hq.succeeded("services").await > before).then_some(())
        })
        .await;
    }
    let events = stack.hq.events("services").await;
    assert!(!events.iter().any(|e| e.name == "plan.summarised"), "the plan was still under way when the last one came back");
    all_in_and_nothing_twice(&stack, "services", &east, 80).await;
    assert_eq!(east.account().counts().attempts, 80, "nobody was given up");
}

/// Who wrote the fences of a role, in order, each once for as long as it led.
fn reigns(fences: &[Event]) -> Vec<String> {
    let mut reigns: Vec<String> = Vec::new();
    for fence in fences {
        let incarnation = fence.id.split('/').nth(1).unwrap_or_default().to_owned();
        if reigns.last() != Some(&incarnation) {
            reigns.push(incarnation);
        }
    }
    reigns
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_froze_past_its_lease_can_write_nothing_when_it_thaws() {
    let mut stack = Stack::bare(BIN).await;
    stack.serve("front", &["api", "recorder", "projector"]).await;
    for (name, role) in [("dispatcher-a", "dispatcher"), ("convergence-a", "convergence")] {
        stack.serve(name, &[role]).await;
        let fence = format!("ff.fence.{role}");
        until("the first one leads", SOON, async || (reigns(&stack.hq.read(&[&fence]).await).len() == 1).then_some(())).await;
    }
    stack.serve("dispatcher-b", &["dispatcher"]).await;
    stack.serve("convergence-b", &["convergence"]).await;
    let east = stack.fleet("east", &ids(1, 40)).work_ms(500, 900).start().await;
    stack.hq.online(40).await;
    let plan = with(noop("frozen", &ids(1, 40)), json!({ "limits": { "inFlight": 5 }, "deadlineMs": 4_000 }));
    stack.hq.submit(&plan).await;
    until("it is under way", SOON, async || (stack.hq.succeeded("frozen").await >= 2).then_some(())).await;

    for name in ["dispatcher-a", "convergence-a"] {
        stack.service(name).signal(Signal::STOP);
    }
    for role in ["dispatcher", "convergence"] {
        let fence = format!("ff.fence.{role}");
        until("the standby leads", SOON, async || (reigns(&stack.hq.read(&[&fence]).await).len() == 2).then_some(())).await;
    }
    let before = stack.hq.succeeded("frozen").await;
    until("it goes on", SOON, async || (stack.hq.succeeded("frozen").await >= before + 3).then_some(())).await;
    for name in ["dispatcher-a", "convergence-a"] {
        stack.service(name).signal(Signal::CONT);
    }
    all_in_and_nothing_twice(&stack, "frozen", &east, 40).await;
    for role in ["dispatcher", "convergence"] {
        let reigns = reigns(&stack.hq.read(&[&format!("ff.fence.{role}")]).await);
        assert_eq!(reigns.len(), 2, "the thawed {role} wrote again: {reigns:?}");
        assert_ne!(reigns[0], reigns[1]);
    }
    let summaries: Vec<(u32, SummaryKind)> =
        stack.hq.summaries("frozen").await.iter().map(|s| (s.this.revision, s.kind)).collect();
    let revisions: Vec<u32> = summaries.iter().map(|(r, _)| *r).collect();
    assert_eq!(revisions, (1..=revisions.len() as u32).collect::<Vec<_>>(), "each revision once: {summaries:?}");
    assert_eq!(summaries.iter().filter(|(_, k)| *k == SummaryKind::Final).count(), 1);
    let thawed = stack.service("dispatcher-a").stderr();
    assert!(thawed.contains("overtaken"), "it noticed:\n{thawed}");
}
