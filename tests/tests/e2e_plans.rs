//! Plans from the submission to the last summary, and the commands people look at them with.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use fanfold_domain::plan::SummaryKind;
use fanfold_domain::sets::TaskSet;
use fanfold_domain::summary::PlanVerdict;
use fanfold_terminal::fixture::ExpectedStore;
use fanfold_terminal::host::Fault;
use fanfold_tests::cli::Cli;
use fanfold_tests::fleet::{account_of, ids};
use fanfold_tests::plans::{DATE, collect_log, noop, with};
use fanfold_tests::stack::Stack;
use fanfold_tests::wait::SOON;
use fanfold_wire::digest::sha256_hex;
use serde_json::{Value, json};

const BIN: &str = env!("CARGO_BIN_EXE_fanfold-under-test");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_whose_stores_are_all_in_is_complete_then_final_and_true() {
    let stack = Stack::together(BIN).await;
    let east = stack.fleet("east", &ids(1, 30)).collecting_logs().start().await;
    let west = stack.fleet("west", &ids(31, 60)).collecting_logs().start().await;
    stack.hq.online(60).await;
    let submitted = stack.hq.submit(&collect_log("thursday", &ids(1, 60))).await;
    assert_eq!((submitted.created, submitted.targets), (true, 60));
    let last = stack.hq.summary("thursday", SummaryKind::Final, SOON * 2).await;

    let kinds: Vec<SummaryKind> = stack.hq.summaries("thursday").await.iter().map(|s| s.kind).collect();
    assert_eq!(kinds, [SummaryKind::Complete, SummaryKind::Final]);
    assert_eq!((last.verdict, last.counts.succeeded, last.counts.total()), (PlanVerdict::Full, 60, 60));
    let events = stack.hq.events("thursday").await;
    assert!(!events.iter().any(|e| e.name == "plan.deadline_reached"), "all were in before the deadline");

    let account = account_of(&[&east, &west]);
    account.assert_nothing_twice();
    let counts = account.counts();
    assert_eq!((counts.tasks, counts.attempts, counts.handler_runs), (60, 60, 60));

    let document = stack.hq.document("thursday", 1).await;
    let expected: Vec<&ExpectedStore> = east.expected.iter().chain(&west.expected).collect();
    assert_eq!(document.rows.len(), expected.len());
    for (row, expected) in document.rows.iter().zip(expected) {
        assert_eq!((row.target.as_str(), row.set, row.attempt), (expected.store.as_str(), TaskSet::Succeeded, 1));
        assert_is_what_the_store_holds(row.result.as_ref().unwrap(), expected);
    }
    stack.hq.assert_true("thursday").await;
    the_commands_show_it(&stack.cli()).await;
}

fn assert_is_what_the_store_holds(result: &Value, expected: &ExpectedStore) {
    let day = &expected.days[&DATE.parse().unwrap()];
    assert_eq!(result["files"], serde_json::to_value(&day.files).unwrap(), "{}", expected.store);
    assert_eq!(result["levels"], serde_json::to_value(day.levels).unwrap(), "{}", expected.store);
    assert_eq!(result["config"], json!({ "appVersion": expected.app_version, "sha256": expected.config_sha256 }));
    assert_eq!(result["date"], DATE);
}

async fn the_commands_show_it(cli: &Cli) {
    cli.run(&["summary", "thursday"]).await.exits(0).shows(&[
        "thursday (Logs of Thursday)",
        "full: every target is in",
        "60",
        "S_001",
        "errors",
    ]);
    let csv = cli.run(&["summary", "thursday", "--format", "csv"]).await.exits(0);
    assert_eq!(csv.stdout.lines().filter(|l| l.contains("succeeded")).count(), 60, "{}", csv.stdout);
    let json = cli.run(&["summary", "thursday", "--revision", "1", "--format", "json"]).await.exits(0);
    assert_eq!((&json.json()["kind"], json.json()["rows"].as_array().map(Vec::len)), (&json!("complete"), Some(60)));
    cli.run(&["summary", "thursday", "--format", "report"]).await.exits(0).shows(&[
        "# ",
        "Logs of Thursday",
        "full: every target is in",
    ]);

    let plan = cli.run(&["plan", "show", "thursday", "--json"]).await.exits(0).json();
    assert_eq!((&plan["status"], &plan["counts"]["succeeded"], &plan["total"]), (&json!("CLOSED"), &json!(60), &json!(60)));
    assert_eq!(plan["by"], "e2e");
    cli.run(&["plan", "show", "thursday"]).await.exits(0).shows(&["thursday", "collect_log@1"]);
    let plans = cli.run(&["plan", "ls", "--json"]).await.exits(0).json();
    assert_eq!(plans["plans"][0]["planId"], "thursday");
    assert_eq!(cli.run(&["plan", "ls", "--open", "--json"]).await.exits(0).json()["plans"], json!([]));

    let tasks = cli.run(&["task", "ls", "thursday", "--json"]).await.exits(0).json();
    assert_eq!(tasks["tasks"].as_array().map(Vec::len), Some(60));
    let failed = cli.run(&["task", "ls", "thursday", "--set", "failed", "--json"]).await.exits(0).json();
    assert_eq!(failed["tasks"], json!([]));
    let task = cli.run(&["task", "show", "thursday.S_007.main", "--json"]).await.exits(0).json();
    assert_eq!((&task["status"], &task["attempt"], &task["storeId"]), (&json!("SUCCEEDED"), &json!(1), &json!("S_007")));
    cli.run(&["task", "show", "thursday.S_007.main"]).await.exits(0).shows(&["SUCCEEDED", "S_007"]);
    let history = cli.run(&["task", "history", "thursday.S_007.main", "--json"]).await.exits(0).json();
    let kinds: Vec<&str> = history["events"].as_array().unwrap().iter().filter_map(|e| e["event"]["type"].as_str()).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"fanfold.task.dispatched.v1"), Some(&"fanfold.attempt.succeeded.v1")));
    cli.run(&["task", "history", "thursday.S_007.main"]).await.exits(0).shows(&["dispatched", "succeeded"]);

    let terminals = cli.run(&["terminal", "ls", "--json"]).await.exits(0).json();
    assert_eq!(terminals["terminals"].as_array().map(Vec::len), Some(60));
    cli.run(&["terminal", "ls"]).await.exits(0).shows(&["S_060", "60 online, 0 offline", "collect_log@1"]);
    let events = cli.run(&["events", "--plan", "thursday", "--json"]).await.exits(0).json_lines();
    assert!(events.len() >= 3 + 2 * 60 + 4, "{}", events.len());
    cli.run(&["events", "--plan", "thursday"]).await.exits(0).shows(&["S_001", "summarised"]);

    cli.run(&["replay", "--plan", "thursday", "--verify"]).await.exits(0).shows(&["thursday is true", "the same 2 summaries"]);
    let verified = cli.run(&["replay", "--plan", "thursday", "--verify", "--json"]).await.exits(0).json();
    assert_eq!((&verified["stateMatchesReplay"], &verified["summariesReproduced"]), (&json!(true), &json!(true)));
    let replayed = cli.run(&["replay", "--plan", "thursday", "--json"]).await.exits(0);
    assert_eq!(replayed.json()["counts"]["succeeded"], 60);
    let doctor = cli.run(&["doctor", "--json"]).await.exits(0).json();
    assert!(doctor["checks"].as_array().unwrap().iter().all(|c| c["health"] == "ok"), "{doctor:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_missing_at_the_deadline_is_named_and_comes_in_later() {
    let stack = Stack::together(BIN).await;
    let away = |fleet: fanfold_tests::fleet::Fleet, id: &str| fleet.fault(id, Fault::Offline);
    let mut east = away(stack.fleet("east", &ids(1, 6)).collecting_logs(), "S_002").start().await;
    let mut west = away(away(stack.fleet("west", &ids(7, 12)).collecting_logs(), "S_008"), "S_011").start().await;
    stack.hq.online(9).await;
    stack.hq.submit(&with(collect_log("friday", &ids(1, 12)), json!({ "deadlineMs": 3_000 }))).await;

    let partial = stack.hq.summary("friday", SummaryKind::Partial, SOON).await;
    assert_eq!((partial.this.revision, partial.counts.succeeded, partial.counts.offline), (1, 9, 3));
    assert_eq!(partial.verdict, PlanVerdict::Reserved);
    let document = stack.hq.document("friday", 1).await;
    let missing: Vec<(&str, TaskSet)> =
        document.rows.iter().filter(|r| r.set != TaskSet::Succeeded).map(|r| (r.target.as_str(), r.set)).collect();
    assert_eq!(missing, [("S_002", TaskSet::Offline), ("S_008", TaskSet::Offline), ("S_011", TaskSet::Offline)]);
    assert!(document.rows.iter().filter(|r| r.set == TaskSet::Offline).all(|r| r.last_seen_ms == Some(None)), "never seen");

    east.back().await;
    let update = stack.hq.summary("friday", SummaryKind::Update, SOON).await;
    assert_eq!((update.this.revision, update.counts.succeeded, update.counts.offline), (2, 10, 2));
    assert_eq!(update.previous, Some(partial.this));
    assert_eq!(stack.hq.document("friday", 2).await.changed, ["S_002"]);

    west.back().await;
    let last = stack.hq.summary("friday", SummaryKind::Final, SOON).await;
    assert_eq!((last.verdict, last.counts.succeeded, last.counts.total()), (PlanVerdict::Full, 12, 12));
    let document = stack.hq.document("friday", last.this.revision).await;
    for (row, expected) in document.rows.iter().zip(east.expected.iter().chain(&west.expected)) {
        assert_is_what_the_store_holds(row.result.as_ref().unwrap(), expected);
    }
    account_of(&[&east, &west]).assert_nothing_twice();
    stack.hq.assert_true("friday").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_plan_twice_is_one_plan_and_another_under_its_id_is_refused() {
    let stack = Stack::together(BIN).await;
    let plan = noop("once", &ids(1, 3));
    let first = stack.hq.submit(&plan).await;
    let second = stack.hq.submit(&plan).await;
    assert_eq!((first.created, second.created), (true, false));
    assert_eq!((second.sealed_seq, &second.content_sha256, second.targets), (first.sealed_seq, &first.content_sha256, 3));

    let file = stack.folder().join("plan.json");
    std::fs::write(&file, plan.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let again = stack.cli().run(&["plan", "submit", file, "--json"]).await.exits(0).json();
    assert_eq!((&again["created"], &again["sealedSeq"]), (&json!(false), &json!(first.sealed_seq)));

    let other = with(plan, json!({ "title": "something else" }));
    std::fs::write(file, other.to_string()).unwrap();
    let refused = stack.cli().run(&["plan", "submit", file, "--json"]).await.exits(6);
    assert_eq!(refused.error_code(), "PLAN_EXISTS");
    let mut content = other.clone();
    content.as_object_mut().unwrap().remove("planId");
    let its_hash = sha256_hex(fanfold_wire::digest::canonical(&content).as_bytes());
    for hash in [first.content_sha256.as_str(), its_hash.as_str()] {
        assert!(refused.stdout.contains(hash), "{hash} is not in {}", refused.stdout);
    }
    let submissions = stack.hq.read(&["ff.plan.*.submitted"]).await;
    assert_eq!(submissions.len(), 1, "one plan in the log");

    // The same answer once the plan is over and out of memory.
    stack.cli().run(&["plan", "close", "once"]).await.exits(0);
    stack.hq.summary("once", SummaryKind::Final, SOON).await;
    stack.cli().run(&["plan", "submit", file, "--json"]).await.exits(6);
    let later = stack.hq.submit(&noop("once", &ids(1, 3))).await;
    assert_eq!((later.created, later.sealed_seq), (false, first.sealed_seq));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_followed_at_the_command_line_ends_with_its_verdict() {
    let stack = Stack::together(BIN).await;
    let _east = stack.fleet("east", &ids(1, 4)).start().await;
    stack.hq.online(4).await;
    let targets = stack.folder().join("targets.txt");
    std::fs::write(&targets, ids(1, 4).join("\n")).unwrap();
    let targets = targets.to_str().unwrap();
    let submit = ["plan", "submit", "--type", "noop", "--input", "{}", "--targets", targets, "--plan-id", "followed", "--watch"];
    let watched = stack.cli().run(&submit).await.exits(0);
    assert!(watched.stdout.contains("followed is sealed with 4 targets"), "{}", watched.stdout);
    let last = stack.hq.summary("followed", SummaryKind::Final, Duration::from_secs(10)).await;
    assert_eq!(last.counts.succeeded, 4);
}
