//! The demo: its account as a machine reads it, and nothing left behind, also when it is interrupted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use fanfold_tests::left::{descendants, nothing_is_left};
use fanfold_tests::process::Proc;
use fanfold_tests::wait::{SOON, until};
use rustix::process::Signal;
use serde_json::{Value, json};

const BIN: &str = env!("CARGO_BIN_EXE_fanfold-under-test");

/// Starts a demo whose temporary files lie in a folder of the test.
fn demo(folder: &Path, args: &[&str]) -> Proc {
    let temporary = folder.join("tmp");
    std::fs::create_dir_all(&temporary).unwrap();
    let environment = [("TMPDIR", temporary.to_str().unwrap()), ("FANFOLD_LOG", "error")];
    Proc::start("demo", BIN, &[&["demo"], args].concat(), folder, &environment)
}

fn names(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_gives_its_account_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = demo(folder.path(), &["--stores", "40", "--deadline-ms", "2500", "--json"]);
    let children = until("its processes run", SOON, async || Some(descendants(demo.pid())).filter(|c| c.len() >= 3)).await;
    let status = demo.exited(Duration::from_secs(90)).await;
    assert_eq!(status.code(), Some(0), "{}\n{}", demo.lines().join("\n"), demo.stderr());
    let lines = until("its account is there", SOON, async || Some(demo.lines()).filter(|l| !l.is_empty())).await;
    assert_eq!(lines.len(), 1, "stdout is one line of JSON");
    let report: Value = serde_json::from_str(&lines[0]).unwrap();

    let fields =
        ["planId", "stores", "deadlineMs", "elapsedMs", "verdict", "summaries", "executions", "absorbed", "verify", "timeline"];
    assert_eq!(names(&report), BTreeSet::from(fields));
    assert_eq!((&report["stores"], &report["deadlineMs"]), (&json!(40), &json!(2500)));
    let counted = ["tasks", "attempts", "handlerRuns", "doubleRuns", "overlappingRuns", "rerunsAfterSuccess", "peakInFlight"];
    assert_eq!(names(&report["executions"]), BTreeSet::from(counted));
    for never in ["doubleRuns", "overlappingRuns", "rerunsAfterSuccess"] {
        assert_eq!(report["executions"][never], 0, "{never}");
    }
    assert_eq!(names(&report["absorbed"]), BTreeSet::from(["duplicate", "stale", "late", "foreign", "refused"]));
    assert_eq!(report["verify"], json!({ "stateMatchesReplay": true, "summariesReproduced": true, "resultsMatchStores": true }));
    let moments = ["firstDispatchMs", "firstResultMs", "lastResultMs"].map(|m| report["timeline"][m].as_i64().unwrap());
    assert!(moments.is_sorted() && moments[0] >= 0, "{}", report["timeline"]);
    assert!(report["timeline"]["lastDispatchMs"].as_i64().unwrap() >= moments[0], "{}", report["timeline"]);
    let summaries = report["summaries"].as_array().unwrap();
    assert_eq!((&summaries[0]["kind"], &summaries.last().unwrap()["kind"]), (&json!("partial"), &json!("final")));
    for (i, summary) in summaries.iter().enumerate() {
        assert_eq!((&summary["revision"], &summary["total"]), (&json!(i + 1), &json!(40)));
        let sum: u64 = summary["counts"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        assert_eq!(sum, 40, "{summary:#}");
    }
    nothing_is_left(folder.path(), &children).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_demo_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = demo(folder.path(), &["--stores", "40", "--deadline-ms", "60000"]);
    until("the plan is out", SOON * 2, async || demo.stderr().contains("plan demo_").then_some(())).await;
    let children = descendants(demo.pid());
    assert!(children.len() >= 3, "a server and two processes of stores: {children:?}");
    demo.signal(Signal::INT);
    let status = demo.exited(SOON).await;
    assert_eq!(status.code(), Some(130), "{}", demo.stderr());
    nothing_is_left(folder.path(), &children).await;
}
