//! The bench: figures that fit each other, and nothing left behind, however it ends.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use fanfold_tests::cli::Cli;
use fanfold_tests::left::{descendants, nothing_is_left};
use fanfold_tests::process::Proc;
use fanfold_tests::stack::Stack;
use fanfold_tests::wait::{SOON, until};
use rustix::process::Signal;
use serde_json::{Value, json};

const BIN: &str = env!("CARGO_BIN_EXE_fanfold-under-test");

fn bench(folder: &Path, args: &[&str], environment: &[(&str, &str)]) -> Proc {
    let temporary = folder.join("tmp");
    std::fs::create_dir_all(&temporary).unwrap();
    let own = [("TMPDIR", temporary.to_str().unwrap()), ("FANFOLD_LOG", "error")];
    Proc::start("bench", BIN, &[&["bench"], args].concat(), folder, &[&own, environment].concat())
}

async fn streams(stack: &Stack) -> BTreeSet<String> {
    let client = async_nats::connect(stack.nats.url()).await.unwrap();
    let answer = client.request("$JS.API.STREAM.NAMES", "".into()).await.unwrap();
    let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
    answer["streams"].as_array().into_iter().flatten().map(|s| s.as_str().unwrap().to_owned()).collect()
}

async fn reported(bench: &mut Proc) -> Value {
    let status = bench.exited(Duration::from_secs(90)).await;
    assert_eq!(status.code(), Some(0), "{}\n{}", bench.lines().join("\n"), bench.stderr());
    let lines = until("its report is there", SOON, async || Some(bench.lines()).filter(|l| !l.is_empty())).await;
    assert_eq!(lines.len(), 1, "stdout is one line of JSON");
    serde_json::from_str(&lines[0]).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bench_gives_figures_that_fit_each_other_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // A server of the environment is somebody's work: the bench must not go there.
    let work = Stack::bare(BIN).await;
    let args = ["--tasks", "60", "--plans", "2", "--runs", "3", "--connections", "3", "--json"];
    let mut bench = bench(folder.path(), &args, &[("FANFOLD_NATS", &work.nats.url())]);
    let children = until("its processes run", SOON, async || Some(descendants(bench.pid())).filter(|c| c.len() >= 3)).await;
    let report = reported(&mut bench).await;
    let given = [("tasks", 60), ("terminals", 30), ("window", 60), ("plans", 2), ("runs", 3)];
    for (name, value) in given {
        assert_eq!(report[name], json!(value), "{name}");
    }
    assert_eq!(report["durable"], json!(true));
    let figure =
        |pointer: &str| report.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer}: {report:#}"));
    for positive in [
        "/floorPerS",
        "/tasksPerS",
        "/ratio",
        "/firstResultMs",
        "/logBytesPerTask",
        "/peakMb/server",
        "/peakMb/hq",
        "/peakMb/terminals",
    ] {
        assert!(figure(positive) > 0.0, "{positive}: {report:#}");
    }
    assert!(figure("/ratioRange/0") <= figure("/ratio") && figure("/ratio") <= figure("/ratioRange/1"), "{report:#}");
    assert!(
        figure("/firstResultMs") <= figure("/summaryMs/p50") && figure("/summaryMs/p50") <= figure("/summaryMs/p99"),
        "{report:#}"
    );
    // Each task's record is written once it has ended, and at most once more a state.
    assert!((1.0..=4.0).contains(&figure("/stateWritesPerTask")), "{report:#}");
    // Two events, each with an envelope and a result of 300 bytes in one of them.
    assert!((600.0..4_000.0).contains(&figure("/logBytesPerTask")), "{report:#}");
    assert!(figure("/spread") >= 1.0, "{report:#}");
    nothing_is_left(folder.path(), &children).await;
    assert_eq!(streams(&work).await, BTreeSet::new(), "nothing was made on the server of the environment");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bench_that_is_interrupted_or_killed_leaves_no_process() {
    for signal in [Signal::INT, Signal::KILL] {
        let folder = tempfile::tempdir().unwrap();
        let mut bench = bench(folder.path(), &["--tasks", "300", "--runs", "1000"], &[]);
        until("it is under way", SOON * 2, async || bench.stderr().contains("terminals are there").then_some(())).await;
        let children = descendants(bench.pid());
        assert!(children.len() >= 3, "a server, the services and the terminals: {children:?}");
        bench.signal(signal);
        let status = bench.exited(SOON * 2).await;
        if signal == Signal::INT {
            assert_eq!(status.code(), Some(130), "{}", bench.stderr());
            nothing_is_left(folder.path(), &children).await;
        } else {
            // Nobody is left to remove its files.
            std::fs::remove_dir_all(folder.path().join("tmp")).unwrap();
            std::fs::create_dir(folder.path().join("tmp")).unwrap();
            nothing_is_left(folder.path(), &children).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_given_server_is_left_with_the_plans_and_nothing_else() {
    let work = Stack::bare(BIN).await;
    let folder = tempfile::tempdir().unwrap();
    let mut bench = bench(folder.path(), &["--tasks", "20", "--runs", "1", "--nats", &work.nats.url(), "--json"], &[]);
    let report = reported(&mut bench).await;
    assert_eq!(report.get("durable"), None, "nobody knows how it syncs");
    let left = streams(&work).await;
    assert!(
        left.contains("FANFOLD") && !left.iter().any(|name| name.starts_with("FLOOR")),
        "the floor's streams are gone: {left:?}"
    );
    Cli::new(BIN, &work.nats.url()).run(&["bench", "--creds", "x.creds"]).await.exits(2);
}

/// Runs a scenario at a tiny size; its figures, and nothing left behind.
async fn scenario(args: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = bench(folder.path(), &[args, &["--json"]].concat(), &[]);
    let children = until("its processes run", SOON, async || Some(descendants(bench.pid())).filter(|c| c.len() >= 2)).await;
    let report = reported(&mut bench).await;
    nothing_is_left(folder.path(), &children).await;
    report
}

fn figure(report: &Value, pointer: &str) -> f64 {
    report.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer}: {report:#}"))
}

fn positive(report: &Value, pointers: &[&str]) {
    for pointer in pointers {
        assert!(figure(report, pointer) > 0.0, "{pointer}: {report:#}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_terminals_are_measured_and_write_nothing() {
    let args = ["idle", "--terminals", "60", "--connections", "6", "--beat-ms", "300", "--settle-s", "30", "--seconds", "2"];
    let report = scenario(&args).await;
    positive(&report, &["/cpuPercent", "/serverPeakMb", "/hqPeakMb"]);
    let sum = figure(&report, "/serverCpuPercent") + figure(&report, "/hqCpuPercent");
    assert!((sum - figure(&report, "/cpuPercent")).abs() < 0.3, "{report:#}");
    // Some 400 beats were heard meanwhile.
    assert_eq!(figure(&report, "/registryWrites") + figure(&report, "/logWrites"), 0.0, "a beat is no write: {report:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_herd_is_measured_until_the_last_one_is_back() {
    let report = scenario(&["reconnect", "--terminals", "40", "--beat-ms", "500", "--runs", "1"]).await;
    positive(&report, &["/lastSyncMs", "/serverReadyMs", "/serverCpuS"]);
    assert!(figure(&report, "/serverReadyMs") < figure(&report, "/lastSyncMs"), "{report:#}");
    assert!(figure(&report, "/lastSyncMsRange/0") <= figure(&report, "/lastSyncMsRange/1"), "{report:#}");
    assert!(figure(&report, "/askedMost") >= 1.0, "{report:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_is_measured_until_work_is_handed_out() {
    for oldest in ["false", "true"] {
        let size = ["--history", "300", "--open", "100", "--window", "5", "--work-ms", "200", "--runs", "1"];
        let report = scenario(&[&["restart", "--oldest", oldest][..], &size[..]].concat()).await;
        positive(&report, &["/firstDispatchMs", "/servingMs", "/hqPeakMb"]);
        // Two events for each task of the past, besides what its plans have.
        assert!(figure(&report, "/logEvents") > 600.0, "{report:#}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_measured_and_are_the_right_ones() {
    let report = scenario(&["pages", "--history", "1000", "--terminals", "250", "--pages", "12"]).await;
    // Large plans of 100 tasks, small ones of 20.
    assert_eq!(figure(&report, "/plans"), 30.0, "{report:#}");
    for kind in ["tasks", "failedTasks", "plans", "plan", "terminals"] {
        let at = |name: &str| figure(&report, &format!("/latencyMs/{kind}/{name}"));
        assert!(at("p50") > 0.0 && at("p50") <= at("p95") && at("p95") <= at("max"), "{report:#}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partial_summary_is_measured_from_the_deadline() {
    let report = scenario(&["partial", "--targets", "200", "--missing", "25", "--deadline-s", "20", "--runs", "1"]).await;
    assert_eq!(figure(&report, "/answered"), 150.0, "{report:#}");
    positive(&report, &["/summaryMs", "/hqPeakMb"]);
    assert!(figure(&report, "/deadlineReachedMs") <= figure(&report, "/summaryMs"), "{report:#}");
    assert!(figure(&report, "/documentBytes") > 150.0 * 300.0, "results are in it: {report:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_plans_are_measured_against_one() {
    let report = scenario(&["fair", "--tasks", "60", "--plans", "6", "--runs", "1"]).await;
    positive(&report, &["/onePerS", "/manyPerS", "/ratio"]);
    let ratio = figure(&report, "/manyPerS") / figure(&report, "/onePerS");
    assert!((ratio - figure(&report, "/ratio")).abs() < 0.02, "{report:#}");
    assert!(figure(&report, "/spread") >= 1.0 && figure(&report, "/spread") <= figure(&report, "/spreadMax"), "{report:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_task_costs_is_measured_before_and_after_a_history() {
    let size = ["cost", "--small", "30", "--large", "90", "--history", "200", "--runs", "1", "--beat-ms", "200"];
    let report = scenario(&size).await;
    for plan in ["smallUs", "largeUs", "smallAfterUs", "largeAfterUs"] {
        let of = |name: &str| figure(&report, &format!("/{plan}/{name}"));
        // The system counts in steps of ten milliseconds.
        assert!(of("tasksPerS") > 0.0 && of("server") >= 0.0 && of("hq") >= 0.0, "{report:#}");
        assert!((of("server") + of("hq") - of("both")).abs() < 1.0, "{report:#}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scenario_that_is_interrupted_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["idle", "--terminals", "20", "--beat-ms", "500", "--seconds", "600"];
    let mut bench = bench(folder.path(), &args, &[]);
    let children = until("all run", SOON, async || Some(descendants(bench.pid())).filter(|c| c.len() >= 3)).await;
    bench.signal(Signal::INT);
    let status = bench.exited(SOON * 2).await;
    assert_eq!(status.code(), Some(130), "{}", bench.stderr());
    nothing_is_left(folder.path(), &children).await;
    Cli::new(BIN, "nats://127.0.0.1:1").run(&["bench", "idle", "--nats", "nats://127.0.0.1:1"]).await.exits(2);
}
