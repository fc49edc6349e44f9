//! `verify`: a true plan is called true, and every kind of lie is found and named.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use common::{World, run, to_bytes};
use fanfold::exit::Exit;
use fanfold::verify::documents::{Fault, examine};
use fanfold::verify::{CATCH_UP, VerifyReport, verify_plan, verify_plan_within};
use fanfold_domain::event::{TaskEvent, TimeoutKind, Verdict};
use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::{Asked, PlanEvent, Summarised, SummaryKind};
use fanfold_domain::testing::{hq, json, spec};
use fanfold_ledger::port::{Buckets, Log, Objects};
use fanfold_wire::digest::sha256_hex;
use fanfold_wire::record::Checkpoint;
use serde_json::Value;

fn dispatched(i: usize, attempt: u32) -> TaskEvent {
    hq::dispatched_to(attempt, &format!("T{i}")).1
}

fn succeeded(result: &str) -> TaskEvent {
    TaskEvent::Succeeded { attempt: 1, result: json(result), run_ms: Some(5), verdict: Verdict { valid: true, errors: vec![] } }
}

/// Four targets: in, failed for good, timed out, never handed out; a partial summary, an update, closed, a final one.
async fn world() -> (World, Vec<Summarised>) {
    let world = World::new();
    world.submit(spec(), 4).await;
    for i in 0..3 {
        world.task_event(i, dispatched(i, 1)).await;
    }
    let failed = |code: &str| TaskEvent::Failed { attempt: 1, code: code.into(), message: "no".into(), run_ms: None };
    world.task_event(1, failed("BIZ_NO")).await;
    world.task_event(2, TaskEvent::AttemptTimedOut { attempt: 1, kind: TimeoutKind::Run }).await;
    world.plan_event(PlanEvent::DeadlineReached).await;
    let mut summaries = vec![world.summarise(SummaryKind::Partial).await];
    world.task_event(0, succeeded(r#"{"n":1}"#)).await;
    summaries.push(world.summarise(SummaryKind::Update).await);
    world.plan_event(PlanEvent::CloseRequested(Asked { by: "ann".into(), reason: String::new() })).await;
    for i in 2..4 {
        let reason = fanfold_domain::event::ExpiryReason::Closed;
        world.task_event(i, TaskEvent::Expired { reason, attempt: 0 }).await;
    }
    world.plan_event(PlanEvent::Closed).await;
    // A late report between closing and the final summary changes no row.
    world.task_event(1, TaskEvent::Started { attempt: 1 }).await;
    summaries.push(world.summarise(SummaryKind::Final).await);
    world.project().await;
    (world, summaries)
}

async fn verify(world: &World) -> VerifyReport {
    verify_plan_within(&world.ledger, &world.plan(), Duration::ZERO).await.unwrap()
}

fn only(report: &VerifyReport, part: &str) {
    assert!(report.differences.len() == 1 && report.differences[0].contains(part), "{part}: {:?}", report.differences);
}

#[tokio::test]
async fn a_true_plan_is_true() {
    let (world, _) = world().await;
    let report = verify_plan(&world.ledger, &world.plan()).await.unwrap();
    assert!(report.is_true(), "{:?}", report.differences);
    assert_eq!((report.summaries, report.records, report.events), (3, 5, 18));
    let ran = run(&world, &["replay", "--plan", "plan_1", "--verify"]).await;
    assert_eq!(ran.exit(), Exit::Ok);
    assert_eq!(
        ran.out(),
        "plan_1 is true: 18 events up to #18 give the same 3 summaries, byte for byte, and the same 5 records\n"
    );
}

#[tokio::test]
async fn a_wrong_record_is_named_by_key_and_field() {
    let (world, _) = world().await;
    let key = "task.plan_1.T0.main";
    let entry = world.ledger.get_state(key).await.unwrap().unwrap();
    let mut record: Value = serde_json::from_slice(&entry.value).unwrap();
    record["status"] = Value::from("FAILED");
    world.ledger.put_state(vec![(key.into(), to_bytes(&record))]).await.unwrap();
    let report = verify(&world).await;
    assert!(!report.state_matches_replay && report.summaries_reproduced);
    only(&report, "record task.plan_1.T0.main: /status is \"FAILED\", the log gives \"SUCCEEDED\"");

    let ran = run(&world, &["replay", "--plan", "plan_1", "--verify"]).await;
    assert_eq!((ran.exit(), ran.code().as_str()), (Exit::No, "VERIFY_FAILED"));
    assert!(
        ran.stderr.text().starts_with("error VERIFY_FAILED: plan_1: record task.plan_1.T0.main: /status"),
        "{}",
        ran.stderr.text()
    );
    let ran = run(&world, &["replay", "--plan", "plan_1", "--verify", "--json"]).await;
    assert_eq!(ran.exit(), Exit::No);
    let answer: Value = serde_json::from_str(&ran.out()).unwrap();
    assert_eq!(answer["stateMatchesReplay"], Value::Bool(false));
}

#[tokio::test]
async fn records_that_are_missing_or_too_many_are_found() {
    let (world, _) = world().await;
    world.ledger.put_state(vec![("plan.plan_1".into(), Bytes::new())]).await.unwrap();
    only(&verify(&world).await, "record plan.plan_1: it is missing");
    world.project().await;
    world.ledger.put_state(vec![("task.plan_1.T3.main".into(), Bytes::new())]).await.unwrap();
    only(&verify(&world).await, "record task.plan_1.T3.main: it is missing");
    world.project().await;
    world.ledger.put_state(vec![("task.plan_1.T9.main".into(), Bytes::from_static(b"{}"))]).await.unwrap();
    only(&verify(&world).await, "record task.plan_1.T9.main: the plan has no such task");
}

#[tokio::test]
async fn an_absent_record_of_an_untouched_task_is_right() {
    let world = World::new();
    world.submit(spec(), 2).await;
    world.task_event(0, dispatched(0, 1)).await;
    world.project().await;
    let report = verify(&world).await;
    assert!(report.is_true() && report.records == 2, "{report:?}");
    world.ledger.put_state(vec![("task.plan_1.T1.main".into(), Bytes::from_static(b"{}"))]).await.unwrap();
    only(&verify(&world).await, "record task.plan_1.T1.main: the log has no event of this task");
}

#[tokio::test]
async fn a_state_that_lags_is_waited_for_and_then_told() {
    let (world, _) = world().await;
    let before = world.ledger.get_checkpoint().await.unwrap().unwrap().revision;
    world.ledger.put_checkpoint(to_bytes(&Checkpoint::new(3, Default::default())), before).await.unwrap().unwrap();
    only(&verify(&world).await, "checkpoint: it is at #3, the plan's last event is #18");
    let late = world.clone();
    let (report, ()) =
        tokio::join!(async { verify_plan_within(&world.ledger, &world.plan(), Duration::from_secs(60)).await.unwrap() }, async {
            late.project().await
        });
    assert!(report.is_true(), "{:?}", report.differences);
}

#[tokio::test(start_paused = true)]
async fn without_a_projector_it_is_said_what_is_waited_for_and_the_wait_is_bounded() {
    let (world, _) = world().await;
    let before = world.ledger.get_checkpoint().await.unwrap().unwrap().revision;
    world.ledger.put_checkpoint(to_bytes(&Checkpoint::new(3, Default::default())), before).await.unwrap().unwrap();
    // It answers from the same bucket: asking it would take its own patience for every task, and tell nothing new.
    let asked = world.api(|_, _| serde_json::json!({"error": {"code": "UNKNOWN_TASK", "message": "no"}})).await;
    // The plan goes on all the while: each look must not be given a patience of its own.
    let busy = world.clone();
    let others = tokio::spawn(async move {
        loop {
            busy.task_event(0, dispatched(0, 99)).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let begun = tokio::time::Instant::now();
    let ran = run(&world, &["replay", "--plan", "plan_1", "--verify"]).await;
    let took = begun.elapsed();
    others.abort();
    assert_eq!((ran.exit(), ran.code().as_str()), (Exit::No, "VERIFY_FAILED"));
    assert!(took >= CATCH_UP && took < CATCH_UP + Duration::from_secs(1), "{took:?}");
    let said = ran.stderr.text();
    assert!(said.contains("waiting for the projector to write the state bucket up to #"), "{said}");
    assert!(said.contains("is the projector running?"), "{said}");
    assert!(asked.all().is_empty(), "{:?}", asked.all());
}

#[tokio::test]
async fn a_summary_that_is_not_the_logs_is_found() {
    let (world, summaries) = world().await;
    let first = &summaries[0].this.sha256;
    world.ledger.put_object(first, Bytes::from_static(b"{}")).await.unwrap();
    let report = verify(&world).await;
    assert!(report.state_matches_replay && !report.summaries_reproduced);
    only(&report, "has other content than its name says");

    // A forged account: bytes and sha256 fit each other, but not the log.
    let (world, summaries) = self::world().await;
    let forged = br#"{"rows":[]}"#.to_vec();
    let mut summarised = summaries[2].clone();
    summarised.this.sha256 = sha256_hex(&forged);
    summarised.counts.succeeded += 1;
    world.ledger.put_object(&summarised.this.sha256, Bytes::from(forged)).await.unwrap();
    world.plan_event(PlanEvent::Summarised(Box::new(summarised))).await;
    world.project().await;
    let report = verify(&world).await;
    assert!(!report.summaries_reproduced);
    let all = report.differences.join("\n");
    for part in ["counts are", "sha256 is", "differs from the log's from byte"] {
        assert!(all.contains(part), "{part}: {all}");
    }
}

#[tokio::test]
async fn an_object_that_is_gone_is_found() {
    let world = World::new();
    world.submit(spec(), 1).await;
    let last = world.ledger.last_seq().await.unwrap();
    let view = fanfold::verify::fold_plan(&world.ledger, &world.plan(), last).await.unwrap();
    let summary = fanfold_domain::summary::Summary::compute(&view, SummaryKind::Partial).unwrap();
    let sha256 = sha256_hex(&summary.to_bytes().unwrap());
    let this = fanfold_domain::plan::SummaryRef { revision: 1, as_of_seq: last, sha256 };
    let summarised =
        Summarised { this, kind: SummaryKind::Partial, counts: summary.counts, previous: None, verdict: summary.verdict };
    world.plan_event(PlanEvent::Summarised(Box::new(summarised))).await;
    world.project().await;
    only(&verify(&world).await, "is missing");
}

#[tokio::test]
async fn a_document_that_is_lost_is_written_anew_only_if_it_is_the_very_one() {
    let (world, summaries) = world().await;
    let found = async |mend: bool| {
        let last = world.ledger.last_seq().await.unwrap();
        let found = examine(&world.ledger, None, last, mend).await.unwrap();
        let named: Vec<(u32, Fault)> = found.named.iter().map(|d| (d.revision, d.fault)).collect();
        (found.whole, found.mended, found.bad, named)
    };
    assert_eq!(found(false).await, (3, 0, 0, vec![]));
    world.ledger.put_object(&summaries[1].this.sha256, Bytes::from_static(b"{}")).await.unwrap();
    // The log never gave the bytes of this one.
    let mut other = summaries[2].clone();
    (other.this.revision, other.this.sha256) = (4, "0".repeat(64));
    world.plan_event(PlanEvent::Summarised(Box::new(other.clone()))).await;
    let both = vec![(2, Fault::Damaged), (4, Fault::Missing)];
    assert_eq!(found(false).await, (2, 0, 2, both), "looking changes nothing");
    assert_eq!(found(true).await, (2, 1, 1, vec![(4, Fault::Missing)]));
    assert_eq!(found(true).await, (3, 0, 1, vec![(4, Fault::Missing)]));
    assert_eq!(world.ledger.get_object(&other.this.sha256).await.unwrap(), None);
}

#[tokio::test]
async fn replay_gives_the_published_bytes_at_their_position() {
    let (world, summaries) = world().await;
    for summarised in &summaries {
        let until = summarised.this.as_of_seq.to_string();
        let ran = run(&world, &["replay", "--plan", "plan_1", "--until", &until, "--json"]).await;
        assert_eq!(sha256_hex(&ran.stdout.bytes()), summarised.this.sha256, "revision {}", summarised.this.revision);
    }
    let ran = run(&world, &["replay", "--plan", "plan_1", "--until", "2"]).await;
    assert_eq!((ran.exit(), ran.code().as_str()), (Exit::Refused, "NOT_SEALED"));
    let ran = run(&world, &["replay", "--plan", "other"]).await;
    assert_eq!((ran.exit(), ran.code().as_str()), (Exit::NotFound, "UNKNOWN_PLAN"));
    let other = PlanId::new("other").unwrap();
    assert!(verify_plan_within(&world.ledger, &other, Duration::ZERO).await.is_err());
}

/// What `replay` gives of the plan up to a sequence, from the log and from a file of it: the same.
async fn replayed_sha256(world: &World, until: Option<u64>) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("log.jsonl");
    std::fs::write(&file, run(world, &["events", "--plan", "plan_1", "--json"]).await.stdout.bytes()).unwrap();
    let until = until.map(|seq| seq.to_string());
    let mut args = vec!["replay", "--plan", "plan_1", "--json"];
    args.extend(until.iter().flat_map(|seq| ["--until", seq]));
    let online = run(world, &args).await.stdout.bytes();

    let cli = fanfold::cli::Cli::try_parse_from(std::iter::once("fanfold").chain(args)).unwrap();
    let fanfold::cli::Command::Replay(args) = cli.command else { panic!("not a replay") };
    let (out, stdout, _) = fanfold::out::Out::captured();
    fanfold::cmd::replay::offline(&args, &file, true, &out).unwrap();
    assert_eq!(stdout.text(), String::from_utf8(online.clone()).unwrap(), "{until:?}");
    sha256_hex(&online)
}

#[tokio::test]
async fn replay_gives_the_published_summary_wherever_it_is_the_last_word() {
    let (world, summaries) = world().await;
    let last = world.ledger.last_seq().await.unwrap();
    let [partial, update, end] = summaries.as_slice() else { panic!("{summaries:?}") };
    // Without a position, at the final summary's own event, and with a late report after it.
    for until in [None, Some(last), Some(last + 100)] {
        assert_eq!(replayed_sha256(&world, until).await, end.this.sha256, "{until:?}");
    }
    world.task_event(1, TaskEvent::Started { attempt: 1 }).await;
    assert_eq!(replayed_sha256(&world, None).await, end.this.sha256);
    // Between the plan's end and its final summary, a late report among what came then.
    for until in end.this.as_of_seq..last {
        assert_eq!(replayed_sha256(&world, Some(until)).await, end.this.sha256, "{until}");
    }
    // At the events of the earlier ones: not one more that says the same again.
    for published in [partial, update] {
        assert_eq!(replayed_sha256(&world, Some(published.this.as_of_seq + 1)).await, published.this.sha256);
    }
    // Where something has happened since, it is the one that would be written.
    let ran = run(&world, &["replay", "--plan", "plan_1", "--json", "--until", &(partial.this.as_of_seq + 2).to_string()]).await;
    let next: Value = serde_json::from_slice(&ran.stdout.bytes()).unwrap();
    assert_eq!((next["revision"].as_u64(), next["kind"].as_str()), (Some(2), Some("update")));
}

#[tokio::test]
async fn events_are_listed_a_line_each() {
    let (world, _) = world().await;
    let ran = run(&world, &["events", "--plan", "plan_1"]).await;
    let out = ran.out();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 18);
    assert_eq!(lines[2], "#3        2023-11-14 22:13:22.000  plan_1  plan.sealed  4 targets by ann");
    assert_eq!(lines[3], "#4        2023-11-14 22:13:23.000  plan_1.T0.main  task.dispatched  attempt 1 to T0");
    assert_eq!(lines[6], "#7        2023-11-14 22:13:26.000  plan_1.T1.main  attempt.failed  attempt 1 by T1: BIZ_NO no");
    assert_eq!(lines[7], "#8        2023-11-14 22:13:27.000  plan_1.T2.main  task.attempt_timed_out  attempt 1: ran too long");
    assert!(lines[9].contains("plan.summarised  revision 1 partial as of #9: 1 failed, 2 timed out, 1 pending"), "{}", lines[9]);
    let ran = run(&world, &["events", "--since", "2023-11-14T22:13:35Z", "--json"]).await;
    let first: Value = serde_json::from_str(ran.out().lines().next().unwrap()).unwrap();
    assert_eq!((first["seq"].as_u64(), first["event"]["specversion"].as_str()), (Some(16), Some("1.0")));
    let ran = run(&world, &["events", "--since", "soon"]).await;
    assert_eq!((ran.exit(), ran.code().as_str()), (Exit::Refused, "BAD_TIME"));
}
