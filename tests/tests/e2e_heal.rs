//! Whatever happens to the state bucket is put right without being asked; whatever happens to the log is said.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;

use async_nats::jetstream;
use bytes::Bytes;
use fanfold_domain::plan::SummaryKind;
use fanfold_domain::summary::PlanVerdict;
use fanfold_ledger::conformance::files::{blocks, flip};
use fanfold_ledger::port::{Buckets, Log};
use fanfold_tests::fleet::ids;
use fanfold_tests::plans::{noop, with};
use fanfold_tests::stack::Stack;
use fanfold_tests::wait::{SOON, until};
use fanfold_wire::record::Checkpoint;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const BIN: &str = env!("CARGO_BIN_EXE_fanfold-under-test");

async fn kv(stack: &Stack) -> jetstream::kv::Store {
    let client = async_nats::connect(stack.nats.url()).await.unwrap();
    jetstream::new(client).get_key_value("fanfold-state").await.unwrap()
}

async fn js_api(stack: &Stack, verb: &str, request: Value) -> Value {
    let client = async_nats::connect(stack.nats.url()).await.unwrap();
    let answer = client.request(format!("$JS.API.{verb}"), request.to_string().into()).await.unwrap();
    serde_json::from_slice(&answer.payload).unwrap()
}

async fn settled(stack: &Stack) -> Checkpoint {
    stack.hq.projected(SOON * 2).await
}

async fn run_plan(stack: &Stack, id: &str, targets: usize) {
    stack.hq.submit(&noop(id, &ids(1, targets))).await;
    stack.hq.summary(id, SummaryKind::Final, SOON * 2).await;
    stack.hq.assert_true(id).await;
}

async fn value_of(stack: &Stack, key: &str) -> Option<Bytes> {
    stack.hq.ledger.get_state(key).await.unwrap().map(|e| e.value)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_damage_to_a_record_is_put_right_while_everything_runs() {
    let stack = Stack::apart(BIN).await;
    let _east = stack.fleet("east", &ids(1, 6)).start().await;
    stack.hq.online(6).await;
    run_plan(&stack, "closed", 6).await;
    stack.hq.submit(&noop("open", &ids(1, 9))).await;
    until("those online are in", SOON, async || (stack.hq.succeeded("open").await == 6).then_some(())).await;
    let kv = kv(&stack).await;
    let keys = ["task.closed.S_004.main", "plan.closed", "task.open.S_002.main", "plan.open"];
    for key in keys {
        let task = key.starts_with("task");
        for damage in ["deleted", "purged", "lost", "garbage", "wrong"] {
            settled(&stack).await;
            let honest = value_of(&stack, key).await.unwrap();
            match damage {
                "deleted" => kv.delete(key).await.unwrap(),
                "purged" => kv.purge(key).await.unwrap(),
                "lost" => {
                    let filter = format!("$KV.fanfold-state.{key}");
                    let gone = js_api(&stack, "STREAM.PURGE.KV_fanfold-state", json!({ "filter": filter })).await;
                    assert_eq!(gone["purged"], 1, "{gone}");
                }
                "garbage" => drop(kv.put(key, Bytes::from_static(b"\x00\xffgarbage")).await.unwrap()),
                _ => {
                    let field = if task { "status" } else { "total" };
                    let mut record: Value = serde_json::from_slice(&honest).unwrap();
                    record[field] = if task { json!("FAILED") } else { json!(5) };
                    kv.put(key, record.to_string().into()).await.unwrap();
                }
            }
            assert_ne!(value_of(&stack, key).await.as_ref(), Some(&honest), "{key} {damage}");
            until(&format!("{key} {damage} is put right"), SOON, async || {
                (value_of(&stack, key).await.as_ref() == Some(&honest)).then_some(())
            })
            .await;
        }
    }
    let strangers = ["task.nobody.S_001.main", "task.closed.S_999.main", "plan.nobody", "what.is.this"];
    for key in strangers {
        kv.put(key, "{}".into()).await.unwrap();
    }
    until("strangers are removed", SOON, async || {
        for key in strangers {
            if value_of(&stack, key).await.is_some() {
                return None;
            }
        }
        Some(())
    })
    .await;
    let checkpoint = settled(&stack).await;
    let healed = checkpoint.healed.unwrap();
    assert!(healed.rewritten >= 20 && healed.removed >= 4, "{healed:?}");
    stack.hq.assert_true("closed").await;
    stack.hq.assert_true("open").await;
    stack.cli().run(&["doctor"]).await.exits(0).shows(&["recorder", "put right", "holes          none"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_that_lies_is_not_believed() {
    let mut stack = Stack::apart(BIN).await;
    let _east = stack.fleet("east", &ids(1, 4)).start().await;
    stack.hq.online(4).await;
    run_plan(&stack, "before", 4).await;
    let kv = kv(&stack).await;
    for (round, lie) in ["garbage", "deleted", "ahead", "above"].iter().enumerate() {
        let honest = settled(&stack).await;
        stack.kill("projector");
        let plan = format!("during_{round}");
        stack.hq.submit(&noop(&plan, &ids(1, 4))).await;
        stack.hq.summary(&plan, SummaryKind::Final, SOON * 2).await;
        let last = stack.hq.ledger.last_seq().await.unwrap();
        match *lie {
            "garbage" => drop(kv.put("checkpoint", "garbage".into()).await.unwrap()),
            "deleted" => kv.delete("checkpoint").await.unwrap(),
            // It says that everything is written, and nothing of this plan is.
            "ahead" => {
                let lie =
                    Checkpoint::new(last, Default::default()).with(String::new(), 0, honest.trail.clone(), Default::default());
                kv.put("checkpoint", serde_json::to_vec(&lie).unwrap().into()).await.unwrap();
            }
            _ => {
                let lie = Checkpoint::new(last + 1_000, Default::default());
                kv.put("checkpoint", serde_json::to_vec(&lie).unwrap().into()).await.unwrap();
            }
        }
        if *lie == "above" {
            let said = stack.cli().run(&["doctor", "--wait", "1s"]).await.exits(1);
            assert!(said.stdout.contains("LOG_WENT_BACK"), "{said:?}");
        }
        stack.serve("projector", &["projector"]).await;
        let checkpoint = settled(&stack).await;
        assert!(checkpoint.seq >= last && checkpoint.seq < last + 1_000, "{lie}: {checkpoint:?}");
        stack.hq.assert_true("before").await;
        stack.hq.assert_true(&plan).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rebuild_works_beside_a_projector_and_without_one() {
    let mut stack = Stack::apart(BIN).await;
    let _east = stack.fleet("east", &ids(1, 5)).start().await;
    stack.hq.online(5).await;
    for n in 0..4 {
        run_plan(&stack, &format!("p{n}"), 5).await;
    }
    stack.hq.submit(&noop("open", &ids(1, 7))).await;
    until("those online are in", SOON, async || (stack.hq.succeeded("open").await == 5).then_some(())).await;
    settled(&stack).await;
    let clean = stack.cli().run(&["rebuild", "--json"]).await.exits(0).json();
    assert_eq!((&clean["plans"], &clean["rewritten"], &clean["removed"]), (&json!(5), &json!(0), &json!(0)), "{clean:#}");
    assert_eq!(clean["right"], json!(4 * 6 + 1 + 7), "{clean:#}");

    stack.kill("projector");
    let kv = kv(&stack).await;
    kv.delete("task.p1.S_002.main").await.unwrap();
    kv.put("plan.p2", "x".into()).await.unwrap();
    kv.put("task.open.S_001.main", "{}".into()).await.unwrap();
    kv.put("task.p3.S_777.main", "{}".into()).await.unwrap();
    let one = stack.cli().run(&["rebuild", "--plan", "p2", "--json"]).await.exits(0).json();
    assert_eq!((&one["plans"], &one["rewritten"], &one["right"]), (&json!(1), &json!(1), &json!(5)), "{one:#}");
    assert_eq!(one["differences"][0]["key"], "plan.p2", "{one:#}");
    let rest = stack.cli().run(&["rebuild"]).await.exits(0);
    assert!(rest.stdout.contains("30 records of 5 plans were right, 2 rewritten, 1 removed"), "{rest:?}");
    assert!(rest.stdout.contains("task.p1.S_002.main") && rest.stderr.contains("plans compared"), "{rest:?}");
    for plan in ["p1", "p2", "p3", "open"] {
        stack.hq.assert_true(plan).await;
    }
    let unknown = stack.cli().run(&["rebuild", "--plan", "nobody", "--json"]).await.exits(5);
    assert_eq!(unknown.error_code(), "UNKNOWN_PLAN");

    // Without a single record and without a projector.
    js_api(&stack, "STREAM.PURGE.KV_fanfold-state", json!({})).await;
    let all = stack.cli().run(&["rebuild", "--json"]).await.exits(0).json();
    assert_eq!((&all["rewritten"], &all["right"]), (&json!(32), &json!(0)), "{all:#}");
    stack.serve("projector", &["projector"]).await;
    settled(&stack).await;
    stack.hq.assert_true("p0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_is_deleted_is_made_anew() {
    let stack = Stack::together(BIN).await;
    let _east = stack.fleet("east", &ids(1, 4)).start().await;
    stack.hq.online(4).await;
    run_plan(&stack, "before", 4).await;
    let gone = js_api(&stack, "STREAM.DELETE.KV_fanfold-state", json!({})).await;
    assert_eq!(gone["success"], true, "{gone}");
    settled(&stack).await;
    stack.hq.assert_true("before").await;
    run_plan(&stack, "after", 4).await;
    assert!(stack.service("all").stderr().contains("ASSET_MISSING"), "it is said");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_state_writes_that_a_killed_server_forgot_are_made_again() {
    let stack = Stack::apart(BIN).await;
    let _east = stack.fleet("east", &ids(1, 60)).start().await;
    stack.hq.online(60).await;
    for round in 0..5 {
        let plan = format!("killed_{round}");
        stack.hq.submit(&noop(&plan, &ids(1, 60))).await;
        stack.hq.nth_event(&plan, "some are in", 20 + round * 10, |e| e.name == "attempt.succeeded").await;
        stack.nats.kill().await;
        stack.nats.restart().await.unwrap();
        stack.hq.summary(&plan, SummaryKind::Final, SOON * 3).await;
    }
    settled(&stack).await;
    for round in 0..5 {
        stack.hq.assert_true(&format!("killed_{round}")).await;
    }
}

/// Plans with large inputs, so that the log has several blocks, around one plan that waits for a store all the time.
async fn some_blocks(stack: &Stack) -> Vec<PathBuf> {
    stack.hq.submit(&noop("waiting", &ids(1, 41))).await;
    until("all but one are in", SOON, async || (stack.hq.succeeded("waiting").await == 40).then_some(())).await;
    for n in 0..8 {
        let plan = with(noop(&format!("large_{n}"), &ids(1, 40)), json!({ "input": { "pad": "x".repeat(60_000) } }));
        stack.hq.submit(&plan).await;
        stack.hq.summary(&format!("large_{n}"), SummaryKind::Final, SOON * 3).await;
    }
    settled(stack).await;
    let blocks = blocks(stack.nats.data_dir(), "FANFOLD").unwrap();
    assert!(blocks.len() >= 3, "{blocks:?}");
    blocks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_lost_its_tail_is_said_and_everything_is_folded_anew() {
    let stack = Stack::together(BIN).await;
    let _east = stack.fleet("east", &ids(1, 40)).start().await;
    stack.hq.online(40).await;
    let blocks = some_blocks(&stack).await;
    let before = stack.hq.ledger.last_seq().await.unwrap();
    stack.nats.kill().await;
    let path = blocks.last().unwrap();
    let bytes = std::fs::read(path).unwrap();
    std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    stack.nats.restart().await.unwrap();
    until("it is said", SOON, async || stack.service("all").stderr().contains("LOG_WENT_BACK").then_some(())).await;
    until("the api answers", SOON, async || stack.hq.try_submit(&noop("after", &ids(1, 30))).await.ok()).await;
    let here = stack.hq.event("after", "it is submitted", |e| e.name == "plan.submitted").await.seq;
    assert!(here < before, "#{here} is used again after #{before}");
    stack.hq.summary("after", SummaryKind::Final, SOON * 3).await;
    settled(&stack).await;
    for plan in ["after", "waiting", "large_0"] {
        stack.hq.assert_true(plan).await;
    }
    stack.cli().run(&["doctor"]).await.exits(0).shows(&["it has gone back 1 times"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_block_is_a_hole_that_every_account_over_it_tells_of() {
    let stack = Stack::together(BIN).await;
    let _east = stack.fleet("east", &ids(1, 40)).start().await;
    stack.hq.online(40).await;
    let blocks = some_blocks(&stack).await;
    stack.nats.kill().await;
    std::fs::remove_file(&blocks[blocks.len() / 2]).unwrap();
    stack.nats.restart().await.unwrap();
    until("it is said", SOON, async || stack.service("all").stderr().contains("LOG_DAMAGED").then_some(())).await;
    let gaps = stack.hq.ledger.gaps().await.unwrap();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    let gap = format!("#{} to #{}", gaps[0].0, gaps[0].1);
    stack.cli().run(&["doctor"]).await.exits(1).shows(&[&gap]);

    // The plan goes on over the hole, and what it comes to is never called whole.
    let _late = stack.fleet("late", &ids(41, 41)).start().await;
    let last = stack.hq.summary("waiting", SummaryKind::Final, SOON * 3).await;
    assert_eq!((last.counts.succeeded, last.verdict), (41, PlanVerdict::Reserved), "{last:?}");
    let record = stack.hq.plan("waiting").await;
    let holes = record.holes.expect("the record tells of it");
    assert_eq!((holes.count, holes.from_seq, holes.to_seq), (1, gaps[0].0, gaps[0].1));
    settled(&stack).await;
    let report = stack.hq.verify("waiting").await;
    assert!(!report.is_true() && report.state_matches_replay && report.summaries_reproduced, "{report:#?}");
    assert_eq!(report.api_matches, Some(true), "{report:#?}");
    let said = stack.cli().run(&["replay", "--plan", "waiting", "--verify"]).await.exits(1);
    assert!(said.stderr.contains("VERIFY_FAILED") && said.stderr.contains(&gap), "{said:?}");
    // One whose beginning is lost is no longer in the log; its records are the only trace, and stay.
    let mut lost = None;
    for n in 0..8 {
        let subject = format!("ff.plan.large_{n}.submitted");
        if stack.hq.ledger.last_under(&subject).await.unwrap().is_none() {
            lost = Some(format!("large_{n}"));
        }
    }
    let lost = lost.expect("some are lost");
    let said = stack.cli().run(&["replay", "--plan", &lost, "--verify"]).await.exits(1);
    assert!(said.stderr.contains(&gap), "{said:?}");
    assert!(value_of(&stack, &format!("task.{lost}.S_001.main")).await.is_some(), "{lost}");
    let rebuilt = stack.cli().run(&["rebuild", "--json"]).await.exits(0).json();
    assert_eq!(rebuilt["removed"], json!(0), "{rebuilt:#}");
    assert!(rebuilt["kept"].as_u64() > Some(40), "{rebuilt:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_record_that_can_not_be_read_is_a_hole_in_every_account_over_it() {
    const DEFERRED: &str = "ff.task.waiting.S_009.main.hq.-";
    let mut stack = Stack::together(BIN).await;
    let _east = stack.fleet("east", &ids(1, 8)).start().await;
    stack.hq.online(8).await;
    stack.hq.submit(&noop("waiting", &ids(1, 9))).await;
    until("all but one are in", SOON, async || (stack.hq.succeeded("waiting").await == 8).then_some(())).await;
    let last_under = async || stack.hq.ledger.last_under(DEFERRED).await.unwrap().map(|m| m.seq);
    let lost = until("the last one is known to be offline", SOON, last_under).await;
    stack.kill("all");
    // In good order, so that the server believes its index afterwards and goes on counting the record.
    kill_process(Pid::from_raw(stack.nats.pid().try_into().unwrap()).unwrap(), Signal::TERM).unwrap();
    stack.nats.exited().await;
    flip(stack.nats.data_dir(), "FANFOLD", DEFERRED.as_bytes()).unwrap();
    stack.nats.restart().await.unwrap();
    stack.serve("all", &[]).await;
    until("it is said", SOON, async || stack.service("all").stderr().contains("LOG_DAMAGED").then_some(())).await;

    let _late = stack.fleet("late", &ids(9, 9)).start().await;
    let last = stack.hq.summary("waiting", SummaryKind::Final, SOON * 3).await;
    assert_eq!((last.counts.succeeded, last.verdict), (9, PlanVerdict::Reserved), "{last:?}");
    let holes = stack.hq.plan("waiting").await.holes.expect("the record tells of it");
    assert_eq!((holes.count, holes.from_seq, holes.to_seq), (1, lost, lost));
    stack.cli().run(&["doctor", "--deep"]).await.exits(1).shows(&[&format!("#{lost} to #{lost}")]);
    let said = stack.cli().run(&["replay", "--plan", "waiting", "--verify"]).await.exits(1);
    assert!(said.stderr.contains("VERIFY_FAILED") && said.stderr.contains(&format!("#{lost}")), "{said:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_the_server_can_not_read_is_never_replaced_by_an_empty_one() {
    let mut stack = Stack::together(BIN).await;
    let _east = stack.fleet("east", &ids(1, 40)).start().await;
    stack.hq.online(40).await;
    let blocks = some_blocks(&stack).await;
    stack.nats.kill().await;
    let path = &blocks[blocks.len() / 2];
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(path, &bytes).unwrap();
    stack.nats.restart().await.unwrap();
    let said = stack.cli().run(&["doctor"]).await.exits(1);
    assert!(said.stdout.contains("FANFOLD is not there"), "{said:?}");
    stack.kill("all");
    let said = stack.cli().run(&["serve"]).await.exits(4);
    assert!(said.stderr.contains("LOG_MISSING") && said.stderr.contains("KV_fanfold-state"), "{said:?}");
    let info = js_api(&stack, "STREAM.INFO.FANFOLD", json!({})).await;
    assert_eq!(info["error"]["err_code"], 10059, "{info}");
}
