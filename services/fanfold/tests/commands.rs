//! Commands against an API that answers what the test says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use bytes::Bytes;
use common::{World, run};
use fanfold::exit::Exit;
use fanfold_domain::plan::SummaryKind;
use fanfold_domain::testing::{hq, spec};
use fanfold_ledger::port::{Buckets, Bus, Log, Objects};
use fanfold_wire::digest::sha256_hex;
use fanfold_wire::record::Checkpoint;
use futures::StreamExt;
use serde_json::{Value, json};

fn submitted(request: &Value) -> Value {
    let id = request.pointer("/plan/planId").and_then(Value::as_str).unwrap_or("big");
    json!({"ok": {"planId": id, "created": true, "targets": 2, "sealedSeq": 3, "contentSha256": "c"}})
}

fn record(kind: Option<&str>, verdict: &str, succeeded: u32) -> Value {
    let mut record = json!({
        "planId": "p1", "type": "echo@1", "status": "OPEN", "total": 2, "verdict": verdict, "sealedAt": 1, "deadline": 2,
        "expires": 4_000_000_000_000_i64, "by": "ann", "contentSha256": "c", "targetsSha256": "t", "seq": 9, "planSeq": 9,
        "counts": {"succeeded": succeeded, "failed": 2 - succeeded, "invalid": 0, "timedOut": 0, "offline": 0, "running": 0, "pending": 0, "cancelled": 0},
        "absorbed": {"duplicate": 0, "stale": 0, "late": 0, "foreign": 0, "ignored": 0}
    });
    if let Some(kind) = kind {
        record["summary"] = json!({"revision": 1, "asOfSeq": 8, "sha256": "s"});
        record["summaryKind"] = json!(kind);
    }
    json!({"ok": record})
}

#[tokio::test]
async fn a_submission_from_flags_tells_its_id_before_it_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let ids = dir.path().join("ids.txt");
    std::fs::write(&ids, "SH_1\nSH_2\n").unwrap();
    let world = World::new();
    let asked = world.api(|_, request| submitted(request)).await;
    let ids = ids.to_str().unwrap();
    let args =
        ["plan", "submit", "--type", "echo", "--input", "{\"a\":1}", "--targets", ids, "--deadline", "2m", "--in-flight", "7"];
    let ran = run(&world, &args).await;
    assert_eq!(ran.exit(), Exit::Ok, "{}", ran.stderr.text());
    let (verb, request) = asked.all().remove(0);
    assert_eq!(verb, "plan.submit");
    let plan = &request["plan"];
    assert_eq!(plan["targets"], json!({"stores": ["SH_1", "SH_2"]}));
    assert_eq!(
        (&plan["deadlineMs"], &plan["limits"], &plan["input"]),
        (&json!(120_000), &json!({"inFlight": 7}), &json!({"a": 1}))
    );
    assert_eq!(request["by"], "test");
    let id = plan["planId"].as_str().unwrap();
    assert!(id.starts_with("plan_"));
    assert_eq!(ran.stderr.text(), format!("plan id {id} (sent again with --plan-id {id} it is never a second plan)\n"));
    assert_eq!(ran.out(), format!("{id} is sealed with 2 targets at #3\n"));
}

#[tokio::test]
async fn a_plan_with_problems_is_not_even_sent() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plan.json");
    std::fs::write(&file, r#"{"type":"echo","input":{},"targets":{"stores":["*","A","A"]},"colour":1}"#).unwrap();
    let world = World::new();
    let asked = world.api(|_, request| submitted(request)).await;
    let ran = run(&world, &["plan", "submit", file.to_str().unwrap(), "--plan-id", "p1", "--json"]).await;
    assert_eq!(ran.exit(), Exit::Refused);
    let answer: Value = serde_json::from_str(&ran.out()).unwrap();
    let codes: Vec<&str> = answer["error"]["problems"].as_array().unwrap().iter().map(|p| p["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["UNKNOWN_FIELD", "BAD_TARGET", "DUPLICATE_TARGET"]);
    assert!(asked.all().is_empty());
}

#[tokio::test]
async fn a_large_plan_goes_through_the_object_store() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plan.json");
    let stores: Vec<String> = (0..60_000).map(|i| format!("SH_{i:06}")).collect();
    std::fs::write(&file, json!({"planId": "big", "type": "echo", "input": {}, "targets": {"stores": stores}}).to_string())
        .unwrap();
    let world = World::new();
    let asked = world.api(|_, request| submitted(request)).await;
    let ran = run(&world, &["plan", "submit", file.to_str().unwrap()]).await;
    assert_eq!(ran.exit(), Exit::Ok, "{}", ran.stderr.text());
    let (_, request) = asked.all().remove(0);
    let name = request["object"].as_str().unwrap();
    let stored = world.ledger.get_object(name).await.unwrap().unwrap();
    assert!(request.get("plan").is_none() && sha256_hex(&stored) == name && stored.len() > world.ledger.max_payload() / 2);
}

#[tokio::test]
async fn refusals_become_exit_codes_and_hints() {
    let world = World::new();
    let none = run(&world, &["plan", "show", "p1"]).await;
    assert_eq!((none.exit(), none.code().as_str()), (Exit::Unreachable, "NO_SERVICE"));
    assert!(none.stderr.text().contains("hint: start everything with `fanfold up`"), "{}", none.stderr.text());
    world
        .api(|verb, _| match verb {
            "plan.get" => json!({"error": {"code": "UNKNOWN_PLAN", "message": "there is no plan `p1`"}}),
            "task.requeue" => json!({"error": {"code": "PLAN_CLOSED", "message": "closed"}}),
            _ => json!({"nonsense": 1}),
        })
        .await;
    let show = run(&world, &["plan", "show", "p1"]).await;
    assert_eq!(show.exit(), Exit::NotFound);
    assert_eq!(show.stderr.text(), "error UNKNOWN_PLAN: there is no plan `p1`\nhint: `fanfold plan ls` lists plans\n");
    let requeue = run(&world, &["task", "requeue", "p1", "--failed"]).await;
    assert_eq!(requeue.exit(), Exit::Conflict);
    let odd = run(&world, &["plan", "ls"]).await;
    assert_eq!((odd.exit(), odd.code().as_str()), (Exit::Unreachable, "BAD_ANSWER"));
}

#[tokio::test]
async fn a_summary_is_shown_only_when_its_digest_is_right() {
    let world = World::new();
    world.submit(spec(), 1).await;
    let summarised = world.summarise(SummaryKind::Partial).await;
    let name = summarised.this.sha256.clone();
    let answer = json!({"ok": {
        "summary": summarised, "seq": 4, "emittedMs": 1_789_000_000_000_i64, "object": name
    }});
    world.api(move |_, _| answer.clone()).await;
    let ran = run(&world, &["summary", "plan_1", "--format", "json"]).await;
    assert_eq!(sha256_hex(&ran.stdout.bytes()), name);
    let table = run(&world, &["summary", "plan_1"]).await.out();
    assert!(table.contains("1: 1 pending (0.0 % succeeded)"), "{table}");
    let page = run(&world, &["summary", "plan_1", "--format", "report"]).await.out();
    assert!(page.contains("published 2026-09-10 00:26:40 +00:00"), "{page}");
    world.ledger.put_object(&name, Bytes::from_static(b"{}")).await.unwrap();
    let ran = run(&world, &["summary", "plan_1"]).await;
    assert_eq!((ran.exit(), ran.code().as_str()), (Exit::No, "SUMMARY_DAMAGED"));
}

#[tokio::test]
async fn a_watch_ends_with_the_summary_asked_for_and_says_no_when_the_plan_failed() {
    for (until, kind, verdict, exit) in [
        ("partial", "partial", "reserved", Exit::Ok),
        ("complete", "complete", "full", Exit::Ok),
        ("complete", "final", "failed", Exit::No),
    ] {
        let world = World::new();
        let looks = std::sync::atomic::AtomicU32::new(0);
        world
            .api(move |_, _| match looks.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
                0 => record(None, verdict, 0),
                _ => record(Some(kind), verdict, 1),
            })
            .await;
        let ran = run(&world, &["plan", "watch", "p1", "--until", until, "--json"]).await;
        assert_eq!(ran.exit(), exit, "{until} {kind}");
        assert_eq!(ran.out().lines().count(), 2, "{}", ran.out());
    }
}

#[tokio::test]
async fn a_watch_does_not_wait_for_ever() {
    let world = World::new();
    world.api(|_, _| record(None, "reserved", 0)).await;
    let ran = run(&world, &["plan", "watch", "p1", "--timeout", "0s"]).await;
    assert_eq!((ran.exit(), ran.code().as_str()), (Exit::No, "WATCH_TIMEOUT"));
    assert_eq!(ran.out(), "p1 open, 2 targets: 2 failed\n");
}

#[tokio::test]
async fn a_history_tells_when_what_who_and_how_long() {
    let world = World::new();
    world.submit(spec(), 1).await;
    world.task_event(0, hq::dispatched_to(1, "T0").1).await;
    let failed = fanfold_domain::event::TaskEvent::Failed {
        attempt: 1,
        code: "NET_X".into(),
        message: "gone".into(),
        run_ms: Some(1_500),
    };
    world.task_event(0, failed).await;
    let mut events = Vec::new();
    for seq in 4..=5 {
        let subject = if seq == 4 { "ff.task.plan_1.T0.main.hq.T0" } else { "ff.task.plan_1.T0.main.by.T0" };
        let stored = world.ledger.last_under(subject).await.unwrap().unwrap();
        let event: Value = serde_json::from_slice(&stored.payload).unwrap();
        events.push(json!({"seq": stored.seq, "timeMs": stored.time_ms, "subject": stored.subject, "event": event}));
    }
    let answer = json!({"ok": {"events": events}});
    world.api(move |_, _| answer.clone()).await;
    let ran = run(&world, &["task", "history", "plan_1.T0.main"]).await;
    let expected = "\
SEQ  TIME                     WHAT             TERMINAL  CODE    TOOK  SINCE BEFORE  DETAILS
  4  2023-11-14 22:13:23.000  task.dispatched  T0                                    attempt 1 to T0
  5  2023-11-14 22:13:24.000  attempt.failed   T0        NET_X  1.5 s        +1.0 s  attempt 1 by T0 in 1.5 s: NET_X gone
";
    assert_eq!(ran.out(), expected);
}

#[tokio::test]
async fn types_are_checked_registered_and_shown() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("type.json", r#"{"type":"echo","version":2,"title":"Echo"}"#);
    write("input.json", r#"{"type":"object"}"#);
    write("output.json", "true");
    let world = World::new();
    let asked = world
        .api(|verb, request| match verb {
            "type.register" => json!({"ok": {"type": request["type"], "version": request["version"], "created": true}}),
            _ => json!({"ok": {"types": [
                {"type": "echo", "version": 1, "title": "Old", "inputSchema": true, "outputSchema": true},
                {"type": "echo", "version": 2, "title": "Echo", "inputSchema": true, "outputSchema": true}
            ]}}),
        })
        .await;
    let path = dir.path().to_str().unwrap();
    assert_eq!(run(&world, &["type", "register", path]).await.out(), "echo@2 is registered\n");
    assert_eq!(asked.all()[0].1["inputSchema"], json!({"type": "object"}));
    assert_eq!(run(&world, &["type", "ls"]).await.out(), "TYPE  VERSION  TITLE\necho        1  Old\necho        2  Echo\n");
    assert!(run(&world, &["type", "show", "echo"]).await.out().starts_with("type      echo@2\n"));
    assert!(run(&world, &["type", "show", "echo@1"]).await.out().contains("title     Old\n"));
    assert_eq!(run(&world, &["type", "show", "echo@3"]).await.exit(), Exit::NotFound);
    write("input.json", r#"{"type":"nonsense"}"#);
    let ran = run(&world, &["type", "register", path]).await;
    assert_eq!((ran.exit(), ran.code().as_str()), (Exit::Refused, "INVALID_SCHEMA"));
}

#[tokio::test]
async fn terminals_are_listed_with_their_stores() {
    let world = World::new();
    let store = json!({"id": "A", "name": "Alpha", "region": "east"}).to_string();
    world.ledger.put_terminals(vec![("store.A".into(), Bytes::from(store))]).await.unwrap();
    world
        .api(|_, _| {
            json!({"ok": {"terminals": [
                {"id": "A", "online": true, "lastSeenMs": 1_789_000_000_000_i64, "slots": 2, "labels": {"k": "v"}},
                {"id": "B", "idInUse": true}
            ]}})
        })
        .await;
    let expected = "\
TERMINAL  NAME   REGION  STATE    LAST SEEN            SLOTS  LABELS  ATTENTION
A         Alpha  east    online   2026-09-10 00:26:40      2  k=v
B                        offline  never                    0          two processes use this id: nothing is handed out to it; stop one of them, then `fanfold terminal replace`
1 online, 1 offline
";
    assert_eq!(run(&world, &["terminal", "ls"]).await.out(), expected);
    let offline = run(&world, &["terminal", "ls", "--offline"]).await.out();
    assert!(offline.contains("\nB ") && !offline.contains("Alpha"), "{offline}");
    assert!(!run(&world, &["terminal", "ls", "--region", "EAST"]).await.out().contains("\nB "));
}

#[tokio::test]
async fn the_doctor_tells_what_is_bad() {
    let world = World::new();
    let ran = run(&world, &["doctor", "--wait", "0ms"]).await;
    assert_eq!(ran.exit(), Exit::No);
    let out = ran.out();
    for line in [
        "ok    server",
        "bad   api            nobody answers",
        "bad   dispatcher     no leader",
        "bad   convergence",
        "bad   projector      none heard within 0 ms",
    ] {
        assert!(out.contains(line), "{line}\n{out}");
    }

    world.submit(spec(), 1).await;
    let checkpoint = common::to_bytes(&Checkpoint::new(3, Default::default()));
    world.ledger.put_checkpoint(checkpoint, 0).await.unwrap().unwrap();
    world.api(|_, _| json!({"ok": {"plans": [], "terminals": [{"id": "A", "online": true, "idInUse": true}]}})).await;
    let recorder = world.ledger.clone();
    let mut reports = recorder.subscribe("ff.report.*", None).await.unwrap();
    tokio::spawn(async move {
        while let Some(report) = reports.next().await {
            recorder.publish(&report.reply.unwrap(), Bytes::from_static(b"[]")).await.unwrap();
        }
    });
    let beating = world.ledger.clone();
    let idle = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let projects = idle.clone();
    let beats = tokio::spawn(async move {
        loop {
            let projector = projects.load(std::sync::atomic::Ordering::SeqCst).then_some("projector");
            for role in ["dispatcher", "convergence"].into_iter().chain(projector) {
                beating.publish(&format!("ff.lead.{role}"), Bytes::from_static(b"{}")).await.unwrap();
            }
            tokio::task::yield_now().await;
        }
    });
    let ran = run(&world, &["doctor", "--wait", "30s"]).await;
    idle.store(false, std::sync::atomic::Ordering::SeqCst);
    let dead = run(&world, &["doctor", "--wait", "200ms"]).await;
    beats.abort();
    // Nothing moves and nothing is behind: only that it is silent tells.
    assert_eq!(dead.exit(), Exit::No, "{}", dead.out());
    assert!(
        dead.out().contains("bad   projector      checkpoint #3, 0 behind, but none is heard within 200 ms"),
        "{}",
        dead.out()
    );
    assert_eq!(ran.exit(), Exit::Ok, "{}", ran.out());
    for line in [
        "ok    registry       1 known, 1 online; see below",
        "warn  twins          TERMINAL_ID_IN_USE, two processes under one id, which gets nothing: A",
        "ok    dispatcher     leads",
        "ok    projector      checkpoint #3, 0 behind",
        "ok    holes          none: 3 events from #1 to #3",
    ] {
        assert!(ran.out().contains(line), "{line}\n{}", ran.out());
    }
}

#[tokio::test]
async fn a_list_that_lacks_plans_says_so_beside_the_list() {
    let world = World::new();
    world.api(|_, _| json!({"ok": {"plans": [], "behind": {"writtenSeq": 5, "logSeq": 90, "plans": ["p7", "p8"]}}})).await;
    let ran = run(&world, &["plan", "ls"]).await;
    assert_eq!((ran.exit(), ran.out().as_str()), (Exit::Ok, "no plans\n"));
    let said = ran.stderr.text();
    assert!(said.contains("the log, which is at #90: they are at #5, 2 plans that are over are missing, p7 the first"), "{said}");
    let ran = run(&world, &["plan", "ls", "--json"]).await;
    let list: Value = serde_json::from_str(&ran.out()).unwrap();
    assert_eq!(list["behind"]["plans"], json!(["p7", "p8"]));
    assert!(ran.stderr.text().contains("#90"));
}

#[tokio::test]
async fn a_summary_says_why_a_pending_target_gets_nothing_now() {
    let world = World::new();
    world.submit(spec(), 2).await;
    let summarised = world.summarise(SummaryKind::Partial).await;
    let name = summarised.this.sha256.clone();
    let answer = json!({"ok": {"summary": summarised, "seq": 4, "emittedMs": 1_789_000_000_000_i64, "object": name}});
    let terminals = json!({"ok": {"terminals": [
        {"id": "T0", "online": true, "idInUse": true},
        {"id": "T1", "online": true, "journal": "old", "allowedJournal": "new", "rivalJournal": "old"}
    ]}});
    world.api(move |verb, _| if verb == "terminal.list" { terminals.clone() } else { answer.clone() }).await;
    let table = run(&world, &["summary", "plan_1"]).await.out();
    for line in ["now: id in use by two processes", "now: replaced: the process heard is turned away"] {
        assert!(table.contains(line), "{line}\n{table}");
    }
    let ran = run(&world, &["summary", "plan_1", "--format", "json"]).await;
    assert_eq!(sha256_hex(&ran.stdout.bytes()), name, "the document is what it was");
}

#[tokio::test]
async fn a_replace_hands_on_which_journal_is_meant() {
    let world = World::new();
    let asked = world.api(|_, _| json!({"ok": {"terminal": "A", "journal": "5f2c81d0"}})).await;
    let ran = run(&world, &["terminal", "replace", "A", "--journal", "5f2c"]).await;
    assert_eq!(ran.out(), "A: from now on journal 5f2c81d0 acts under this id\n");
    run(&world, &["terminal", "replace", "A", "--journal", "5f2c81d0", "--force"]).await;
    let sent: Vec<Value> = asked.all().into_iter().map(|(_, body)| json!([body["journal"], body["force"]])).collect();
    assert_eq!(sent, [json!(["5f2c", null]), json!(["5f2c81d0", true])]);
}
