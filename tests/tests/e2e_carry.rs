//! The log is carried away while work goes on, brought back elsewhere, and everything goes on there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use fanfold_domain::plan::SummaryKind;
use fanfold_ledger::conformance::files::flip;
use fanfold_ledger::port::{Buckets, Objects};
use fanfold_terminal::host::Moment;
use fanfold_tests::cli::Cli;
use fanfold_tests::fleet::{Fleet, ids};
use fanfold_tests::plans::{noop, with};
use fanfold_tests::process::Proc;
use fanfold_tests::stack::{ROLES, Stack};
use fanfold_tests::wait::{SOON, until};
use rustix::process::Signal;
use serde_json::{Value, json};

const BIN: &str = env!("CARGO_BIN_EXE_fanfold-under-test");

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A backup of what a stack holds, in its folder.
async fn backed_up(stack: &Stack, name: &str) -> (PathBuf, u64) {
    let dir = stack.folder().join(name);
    let told = stack.cli().run(&["backup", &text(&dir), "--json"]).await.exits(0).json();
    let last = told.pointer("/streams/0/lastSeq").and_then(|v| v.as_u64()).expect("the log's last sequence");
    (dir, last)
}

/// A new server with a backup restored to it and every service on it.
async fn restored(dir: &Path) -> Stack {
    let mut there = Stack::bare(BIN).await;
    let told = there.cli().run(&["restore", &text(dir), "--json"]).await.exits(0).json();
    assert_eq!(told.pointer("/verified"), Some(&json!(true)), "{told}");
    there.serve("all", &ROLES).await;
    there
}

fn nothing_twice(fleets: &[&Fleet]) {
    let counts = fanfold_tests::fleet::account_of(fleets).counts();
    assert_eq!((counts.double_runs, counts.overlapping_runs), (0, 0), "an attempt twice, two at once: {counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_taken_while_work_goes_on_goes_on_elsewhere() {
    let mut here = Stack::together(BIN).await;
    let mut east = here.fleet("east", &ids(1, 20)).work_ms(200, 400).start().await;
    here.hq.online(20).await;
    here.hq.submit(&noop("closed", &ids(1, 10))).await;
    here.hq.summary("closed", SummaryKind::Final, SOON * 2).await;
    // Half of its stores are not there yet, and the rest takes seconds.
    let slow = json!({ "limits": { "inFlight": 2 }, "timeouts": { "deliverMs": 2_000, "runMs": 20_000 } });
    here.hq.submit(&with(noop("open", &ids(1, 40)), slow)).await;
    until("it is under way", SOON, async || (here.hq.succeeded("open").await >= 4).then_some(())).await;
    let (dir, last) = backed_up(&here, "monday").await;
    until("it went on meanwhile", SOON * 2, async || (here.hq.succeeded("open").await >= 14).then_some(())).await;
    assert!(here.hq.events("open").await.last().unwrap().seq > last, "the log went on after the backup");
    here.kill("all");
    east.kill();

    let there = restored(&dir).await;
    let told = |stack: &Stack| stack.hq.clone();
    let (before, after) = (told(&here).events("closed").await, told(&there).events("closed").await);
    let facts = |events: &[fanfold_tests::hq::Event]| -> Vec<_> {
        events.iter().map(|e| (e.seq, e.time_ms, e.subject.clone(), e.id.clone(), e.data.clone())).collect()
    };
    assert_eq!(facts(&before), facts(&after), "sequences, times, ids and contents are the same");
    there.hq.assert_true("closed").await;
    east.moves_to(&there.nats.url());
    east.restart().await;
    let west = there.fleet("west", &ids(21, 40)).work_ms(50, 100).start().await;
    let end = there.hq.summary("open", SummaryKind::Final, SOON * 6).await;
    assert_eq!((end.counts.succeeded, end.counts.total()), (40, 40), "{}", there.hq.told("open").await);
    there.hq.assert_true("open").await;
    nothing_twice(&[&east, &west]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_that_knows_more_than_the_restored_log_goes_on() {
    let mut here = Stack::apart(BIN).await;
    let quick = json!({ "timeouts": { "deliverMs": 1_000, "runMs": 60_000 } });
    here.hq.submit(&with(noop("known", &ids(1, 3)), quick.clone())).await;
    let (dir, last) = backed_up(&here, "before").await;
    // Everything from here on HQ will have forgotten: results it took, a plan, and results it has not even got.
    let mut east = here.fleet("east", &ids(1, 3)).work_ms(10, 20).start().await;
    here.hq.summary("known", SummaryKind::Final, SOON * 2).await;
    here.hq.submit(&noop("filler", &ids(1, 3))).await;
    here.hq.summary("filler", SummaryKind::Final, SOON * 2).await;
    here.kill("recorder");
    here.hq.submit(&noop("forgotten", &ids(1, 3))).await;
    until("they have run it", SOON, async || (east.account().seen(Moment::Done) >= 9).then_some(())).await;
    east.kill();
    for role in ROLES.into_iter().filter(|role| *role != "recorder") {
        here.kill(role);
    }

    let there = restored(&dir).await;
    assert!(there.hq.events("forgotten").await.is_empty() && there.hq.events("known").await.last().unwrap().seq <= last);
    east.moves_to(&there.nats.url());
    east.restart().await;
    let end = there.hq.summary("known", SummaryKind::Final, SOON * 3).await;
    assert_eq!((end.counts.succeeded, end.counts.total()), (3, 3), "{}", there.hq.told("known").await);
    there.hq.assert_true("known").await;
    for store in ids(1, 3) {
        let attempts = east.account().attempts_of(&format!("known.{store}.main"));
        assert!(
            attempts.len() == 2 && attempts[0] < attempts[1],
            "its result was forgotten: again, as another attempt: {attempts:?}"
        );
        until(&format!("{store}'s report of the forgotten plan is refused"), SOON, async || {
            let refused = there.hq.terminal(&store).await?.reports.refused;
            refused.contains_key("UNKNOWN_TASK").then_some(())
        })
        .await;
    }
    // A follow-up under a new id is done as any other.
    there.hq.submit(&noop("follow-up", &ids(1, 3))).await;
    let end = there.hq.summary("follow-up", SummaryKind::Final, SOON * 2).await;
    assert_eq!(end.counts.succeeded, 3);
    nothing_twice(&[&east]);
}

/// A backup of a small system, the folder it lies in, and the system.
async fn small() -> (Stack, PathBuf) {
    let here = Stack::together(BIN).await;
    let east = here.fleet("east", &ids(1, 3)).start().await;
    here.hq.submit(&noop("p", &ids(1, 3))).await;
    here.hq.summary("p", SummaryKind::Final, SOON * 2).await;
    drop(east);
    let (dir, _) = backed_up(&here, "b").await;
    (here, dir)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_backup_is_refused_and_nothing_is_touched() {
    let (here, dir) = small().await;
    let there = Stack::bare(BIN).await;
    let log = dir.join("FANFOLD.snapshot");
    let whole = std::fs::read(&log).unwrap();
    let flipped: Vec<u8> = whole.iter().enumerate().map(|(i, b)| if i == whole.len() / 2 { b ^ 1 } else { *b }).collect();
    let manifest = std::fs::read_to_string(dir.join("manifest.json")).unwrap();
    type Damage<'a> = (&'a str, &'a str, Option<Vec<u8>>);
    let damages: Vec<Damage> = vec![
        ("a flipped bit", "FANFOLD.snapshot", Some(flipped)),
        ("cut off", "FANFOLD.snapshot", Some(whole[..whole.len() - 1].to_vec())),
        ("longer", "FANFOLD.snapshot", Some([whole.clone(), vec![0]].concat())),
        ("missing", "OBJ_fanfold-artifacts.snapshot", None),
        ("foreign", "notes.txt", Some(b"mine".to_vec())),
        ("another manifest", "manifest.json", Some(manifest.replace("\"version\": 1", "\"version\": 2").into_bytes())),
        ("no manifest", "manifest.json", None),
        ("no digests", "SHA256SUMS", None),
    ];
    for (what, name, content) in damages {
        let path = dir.join(name);
        let before = std::fs::read(&path).ok();
        match &content {
            Some(bytes) => std::fs::write(&path, bytes).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        for args in [vec!["restore", "--json"], vec!["restore", "--check", "--json"]] {
            let said = there.cli().run(&[args, vec![&text(&dir)]].concat()).await.exits(3);
            assert_eq!(said.error_code(), "BACKUP_DAMAGED", "{what}: {said:?}");
            assert!(said.stdout.contains(name), "{what}: the file is named: {said:?}");
        }
        match before {
            Some(bytes) => std::fs::write(&path, bytes).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
    }
    assert!(there.hq.ledger.stream_state("FANFOLD").await.unwrap().is_none(), "nothing was touched");
    assert_eq!(there.cli().run(&["restore", &text(here.folder()), "--json"]).await.exits(3).error_code(), "BACKUP_DAMAGED");
    // Whole again, it is taken; twice it is not, and neither is a used folder.
    there.cli().run(&["restore", &text(&dir), "--check"]).await.exits(0).shows(&["is whole"]);
    there.cli().run(&["restore", &text(&dir)]).await.exits(0).shows(&["every plan is true"]);
    let said = there.cli().run(&["restore", &text(&dir), "--json"]).await.exits(6);
    assert_eq!(said.error_code(), "STREAMS_EXIST");
    there.hq.assert_true("p").await;
    assert_eq!(here.cli().run(&["backup", &text(&dir), "--json"]).await.exits(6).error_code(), "DIR_NOT_EMPTY");
    let used = text(&dir);
    let said = there.cli().run(&["restore", &text(&dir), "--data", &used, "--json"]).await.exits(6);
    assert_eq!(said.error_code(), "DIR_NOT_EMPTY");
    let empty = Stack::bare(BIN).await;
    let said = empty.cli().run(&["backup", &text(&here.folder().join("none")), "--json"]).await.exits(3);
    assert_eq!(said.error_code(), "STREAM_MISSING");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_folder_is_a_complete_hq() {
    let (here, dir) = small().await;
    let data = here.folder().join("data");
    here.cli()
        .run(&["restore", &text(&dir), "--data", &text(&data)])
        .await
        .exits(0)
        .shows(&["every plan is true", "fanfold up --data"]);
    let (up, cli) = up(&here, &data, "up").await;
    cli.run(&["replay", "--plan", "p", "--verify"]).await.exits(0).shows(&["is true"]);
    cli.run(&["plan", "show", "p"]).await.exits(0).shows(&["closed"]);
    down(up).await;
}

/// `fanfold up` on a folder.
async fn up(stack: &Stack, data: &Path, name: &str) -> (Proc, Cli) {
    let args = ["up", "--data", &text(data), "--json"];
    let runtime = stack.folder().join("runtime");
    std::fs::create_dir_all(&runtime).unwrap();
    let mut up = Proc::start(name, BIN, &args, stack.folder(), &[("XDG_RUNTIME_DIR", &text(&runtime))]);
    let line: Value = serde_json::from_str(&up.hear("{").await).unwrap();
    let cli = Cli::new(BIN, line.pointer("/url").and_then(|u| u.as_str()).unwrap());
    (up, cli)
}

async fn down(mut up: Proc) {
    up.signal(Signal::TERM);
    assert!(up.exited(SOON).await.success(), "{}", up.stderr());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_that_changes_while_it_is_copied_comes_back() {
    let here = Stack::together(BIN).await;
    let stop = Arc::new(AtomicBool::new(false));
    let (ledger, stopped) = (here.hq.ledger.clone(), Arc::clone(&stop));
    // Each record goes over its last one, as those of terminals do that change.
    let writing = tokio::spawn(async move {
        let mut round = 0_u64;
        while !stopped.load(Ordering::Relaxed) {
            round += 1;
            let record = |i: u64| (format!("probe.R{i}"), Bytes::from(json!({ "round": round }).to_string()));
            ledger.put_terminals((0..300).map(record).collect()).await.unwrap();
        }
    });
    let mut fewer = None;
    for attempt in 0..8 {
        let (dir, _) = backed_up(&here, &format!("b{attempt}")).await;
        let data = text(&here.folder().join(format!("d{attempt}")));
        let told = here.cli().run(&["restore", &text(&dir), "--data", &data, "--json"]).await.exits(0).json();
        assert_eq!(told.pointer("/verified"), Some(&json!(true)), "{told}");
        fewer = told.pointer("/fewer/KV_fanfold-terminals").cloned();
        if fewer.is_some() {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    writing.await.unwrap();
    let fewer = fewer.expect("a copy with fewer records than were counted when it began");
    assert!(fewer["came"].as_u64() >= Some(1) && fewer["came"].as_u64() < fewer["had"].as_u64(), "{fewer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_document_is_named_at_once_carried_away_and_written_anew() {
    let here = Stack::together(BIN).await;
    here.hq.submit(&with(noop("small", &ids(1, 3)), json!({ "deadlineMs": 1_500 }))).await;
    here.hq.submit(&with(noop("large", &ids(1, 4_000)), json!({ "deadlineMs": 1_500 }))).await;
    let mut parts = Vec::new();
    for plan in ["small", "large"] {
        let sha256 = here.hq.summary(plan, SummaryKind::Partial, SOON * 2).await.this.sha256;
        let document = here.hq.ledger.get_object(&sha256).await.unwrap().unwrap();
        assert!(plan == "small" || document.len() > 300_000, "several chunks: {}", document.len());
        let middle = document.len() / 2;
        parts.push(document[middle..middle + 60].to_vec());
    }
    let (dir, _) = backed_up(&here, "b").await;
    let data = here.folder().join("data");
    here.cli().run(&["restore", &text(&dir), "--data", &text(&data)]).await.exits(0);
    for part in &parts {
        flip(&data, "OBJ_fanfold-artifacts", part).unwrap();
    }

    let (hq, cli) = up(&here, &data, "damaged").await;
    for plan in ["small", "large"] {
        let asked = Instant::now();
        let said = cli.run(&["replay", "--plan", plan, "--verify"]).await.exits(1);
        assert!(said.stderr.contains("VERIFY_FAILED") && said.stderr.contains("is damaged"), "{said:?}");
        assert!(asked.elapsed() < SOON, "at once: {:?}", asked.elapsed());
        let said = cli.run(&["summary", plan, "--json"]).await.exits(1);
        assert_eq!(said.error_code(), "SUMMARY_DAMAGED", "{said:?}");
    }
    cli.run(&["doctor", "--deep"]).await.exits(1).shows(&["2 of 2 are not what the log says", "summary 1 of large (damaged)"]);
    let second = here.folder().join("second");
    let said = cli.run(&["backup", &text(&second), "--json"]).await.exits(1).json();
    assert_eq!((&said["complete"], &said["lacks"]["documents"]), (&json!(false), &json!(2)), "{said:#}");
    cli.run(&["restore", &text(&second), "--check"]).await.exits(1).shows(&["DOCUMENTS: 2", "summary 1 of small (damaged)"]);
    let again = here.folder().join("again");
    let told = cli.run(&["restore", &text(&second), "--data", &text(&again)]).await.exits(0);
    told.shows(&["every plan is true", "2 documents were missing or damaged and are written anew"]);
    // Not proven, they are as they were, and that is said.
    let raw = text(&here.folder().join("raw"));
    cli.run(&["restore", &text(&second), "--data", &raw, "--no-verify"]).await.exits(1).shows(&["DOCUMENTS: 2"]);

    cli.run(&["rebuild", "--plan", "small"]).await.exits(0).shows(&["0 documents were right, 1 rewritten"]);
    cli.run(&["rebuild"]).await.exits(0).shows(&["1 documents were right, 1 rewritten"]);
    for plan in ["small", "large"] {
        cli.run(&["replay", "--plan", plan, "--verify"]).await.exits(0);
        cli.run(&["summary", plan, "--json"]).await.exits(0);
    }
    let third = text(&here.folder().join("third"));
    cli.run(&["backup", &third]).await.exits(0).shows(&["holds everything"]);
    cli.run(&["restore", &third, "--check"]).await.exits(0).shows(&["is whole"]);
    down(hq).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_log_with_a_hole_says_so_and_brings_the_rest_back() {
    let (here, dir) = small().await;
    let data = here.folder().join("data");
    here.cli().run(&["restore", &text(&dir), "--data", &text(&data)]).await.exits(0);
    let lost = here.hq.event("p", "a task is done", |e| e.name == "attempt.succeeded").await;
    flip(&data, "FANFOLD", lost.subject.as_bytes()).unwrap();
    let (hq, cli) = up(&here, &data, "damaged").await;

    let second = text(&here.folder().join("second"));
    let said = cli.run(&["backup", &second, "--json"]).await.exits(1).json();
    let holes: Vec<(u64, u64)> = serde_json::from_value(said["lacks"]["holes"].clone()).unwrap();
    let [(from, to)] = holes[..] else { panic!("one event was damaged: {said:#}") };
    assert_eq!((from, &said["complete"], &said["lacks"]["events"]), (to, &json!(false), &json!(1)), "{said:#}");
    let gap = format!("HOLES: the log has lost 1 events: #{from}");
    let third = text(&here.folder().join("third"));
    let told = cli.run(&["backup", &third]).await.exits(1).shows(&["is not everything", &gap]);
    assert!(!told.stdout.contains("holds everything"), "{told:?}");
    let manifest: Value = serde_json::from_slice(&std::fs::read(Path::new(&second).join("manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["lacks"]["holes"], json!([[from, to]]));
    cli.run(&["restore", &second, "--check"]).await.exits(1).shows(&["as it was written", &gap]);
    down(hq).await;

    // Everything else comes back, and what is missing stays known.
    let again = here.folder().join("again");
    let told = here.cli().run(&["restore", &second, "--data", &text(&again)]).await.exits(1);
    told.shows(&[&gap, "1 of them are not true", "VERIFY_FAILED: p", "fanfold up --data"]);
    let (hq, cli) = up(&here, &again, "again").await;
    let said = cli.run(&["replay", "--plan", "p", "--verify"]).await.exits(1);
    assert!(said.stderr.contains("VERIFY_FAILED") && said.stderr.contains(&format!("#{from}")), "{said:?}");
    cli.run(&["plan", "show", "p"]).await.exits(0);
    cli.run(&["doctor"]).await.exits(1).shows(&[&format!("#{from}")]);
    down(hq).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_that_is_interrupted_leaves_nothing() {
    let here = Stack::together(BIN).await;
    let dir = here.folder().join("out").join("b");
    std::fs::create_dir_all(dir.parent().unwrap()).unwrap();
    let args = ["backup", &text(&dir), "--nats", &here.nats.url()];
    // The server stands still as soon as the copy has begun, so that it can't be over before the signal.
    let server = i32::try_from(here.nats.pid()).ok().and_then(rustix::process::Pid::from_raw).unwrap();
    for attempt in 0.. {
        let mut backup = Proc::start(&format!("backup-{attempt}"), BIN, &args, here.folder(), &[]);
        until("it has begun or is over", SOON, async || backup.stderr().contains("FANFOLD ...").then_some(())).await;
        rustix::process::kill_process(server, Signal::STOP).unwrap();
        backup.signal(Signal::INT);
        let ended = backup.exited(SOON).await;
        rustix::process::kill_process(server, Signal::CONT).unwrap();
        if ended.code() == Some(130) {
            break;
        }
        assert!(ended.success() && attempt < 20, "it ended by itself or was interrupted: {ended:?}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
    let left: Vec<_> = std::fs::read_dir(dir.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}
