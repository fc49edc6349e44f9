//! Terminals that are killed, doubled, busy or away: no attempt runs twice, and the work is done in the end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::{Duration, Instant};

use fanfold_domain::event::TaskEvent;
use fanfold_domain::plan::SummaryKind;
use fanfold_domain::task::TaskState;
use fanfold_terminal::fixture::write_store;
use fanfold_terminal::host::Moment;
use fanfold_tests::fleet::{account_of, ids};
use fanfold_tests::hand::{rejected, succeeded};
use fanfold_tests::plans::{DATE, collect_log, noop, with};
use fanfold_tests::process::Proc;
use fanfold_tests::stack::{BEAT_MS, Stack};
use fanfold_tests::wait::{SOON, until};
use fanfold_wire::terminal::ReportStatus;
use rustix::process::Signal;
use serde_json::json;

const BIN: &str = env!("CARGO_BIN_EXE_fanfold-under-test");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_killed_in_the_middle_says_so_and_starts_over() {
    let stack = Stack::together(BIN).await;
    let mut east = stack.fleet("east", &ids(1, 2)).work_ms(1_500, 1_500).start().await;
    stack.hq.online(2).await;
    stack.hq.submit(&noop("killed", &ids(1, 2))).await;
    until("both run", SOON, async || (east.account().seen(Moment::Begin) == 2).then_some(())).await;
    stack.hq.nth_event("killed", "HQ knows that both run", 2, |e| e.name == "attempt.started").await;
    east.kill();
    east.restart().await;

    let last = stack.hq.summary("killed", SummaryKind::Final, SOON).await;
    assert_eq!((last.counts.succeeded, last.counts.total()), (2, 2));
    let events = stack.hq.events("killed").await;
    for task in ["killed.S_001.main", "killed.S_002.main"] {
        let lost = events.iter().find(|e| e.is("attempt.failed", task)).expect("its end is told");
        assert_eq!((lost.attempt(), lost.code()), (1, "LOST"));
        let again = events.iter().filter(|e| e.is("task.dispatched", task)).nth(1).expect("it is handed out again");
        assert!(again.seq > lost.seq && again.attempt() == 2);
        assert_eq!(east.account().attempts_of(task), [1, 2], "each attempt ran once:\n{}", stack.hq.told("killed").await);
        let record = stack.hq.task(task).await;
        assert_eq!((record.status, record.attempt, record.retry_count), (TaskState::Succeeded, 2, 1));
    }
    east.account().assert_nothing_twice();
    stack.hq.assert_true("killed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_nobody_has_heard_yet_is_sent_after_a_restart_and_not_run_again() {
    let stack = Stack::together(BIN).await;
    let mut east = stack.fleet("east", &ids(1, 1)).work_ms(1_000, 1_000).start().await;
    stack.hq.online(1).await;
    stack.hq.submit(&noop("unheard", &ids(1, 1))).await;
    until("it runs", SOON, async || (east.account().seen(Moment::Begin) == 1).then_some(())).await;
    stack.nats.kill().await;
    until("it is done", SOON, async || (east.account().seen(Moment::Done) == 1).then_some(())).await;
    // The end is written down right after it: that is over once the journal has been left alone for a while.
    let mut last = (None, Instant::now());
    until("the journal has it", SOON, async || {
        let written = std::fs::metadata(east.journal()).ok()?.modified().ok();
        if last.0 != written {
            last = (written, Instant::now());
        }
        (last.1.elapsed() > Duration::from_millis(500)).then_some(())
    })
    .await;
    east.kill();
    stack.nats.restart().await.unwrap();
    east.restart().await;

    stack.hq.summary("unheard", SummaryKind::Final, SOON * 2).await;
    let events = stack.hq.events("unheard").await;
    let task = "unheard.S_001.main";
    assert_eq!(events.iter().filter(|e| e.is("task.dispatched", task)).count(), 1, "handed out once");
    assert_eq!(events.iter().filter(|e| e.is("attempt.succeeded", task)).count(), 1);
    assert!(!events.iter().any(|e| e.name == "attempt.failed"));
    assert_eq!(east.account().attempts_of(task), [1]);
    stack.hq.assert_true("unheard").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_under_one_id_are_noticed_and_a_person_lets_one_in() {
    let stack = Stack::together(BIN).await;
    let one = stack.fleet("one", &ids(1, 1)).work_ms(1_500, 1_500).start().await;
    let _other = stack.fleet("other", &ids(2, 2)).start().await;
    stack.hq.online(2).await;
    stack.hq.submit(&noop("before", &ids(1, 1))).await;
    until("it runs", SOON, async || (one.account().seen(Moment::Begin) == 1).then_some(())).await;
    let twin = stack.fleet("twin", &ids(1, 1)).start().await;
    until("HQ sees two, within a few beats", Duration::from_millis(20 * BEAT_MS), async || {
        stack.hq.terminal("S_001").await.filter(|t| t.id_in_use)
    })
    .await;
    stack.cli().run(&["terminal", "ls"]).await.exits(0).shows(&["two processes use this id", "fanfold terminal replace"]);
    stack.hq.summary("before", SummaryKind::Final, SOON).await;

    stack.hq.submit(&with(noop("after", &ids(1, 2)), json!({ "deadlineMs": 2_500 }))).await;
    let partial = stack.hq.summary("after", SummaryKind::Partial, SOON).await;
    assert_eq!(partial.counts.succeeded, 1, "the other store goes on: {:?}", partial.counts);
    let events = stack.hq.events("after").await;
    assert!(!events.iter().any(|e| e.is("task.dispatched", "after.S_001.main")), "nothing more for the doubled id");
    assert!(stack.hq.terminal("S_001").await.unwrap().id_in_use);

    stack.cli().run(&["terminal", "replace", "S_001"]).await.exits(0).shows(&["S_001"]);
    let last = stack.hq.summary("after", SummaryKind::Final, SOON).await;
    assert_eq!(last.counts.succeeded, 2);
    // The registry is a view that follows a moment later.
    until("the registry knows who was let in", SOON, async || {
        let record = stack.hq.terminal("S_001").await?;
        let let_in = record.allowed_journal.as_ref() == Some(&record.journal);
        (let_in && record.online && !record.id_in_use).then_some(())
    })
    .await;
    let account = account_of(&[&one, &twin]);
    account.assert_nothing_twice();
    assert_eq!((account.attempts_of("before.S_001.main"), account.attempts_of("after.S_001.main")), (vec![1], vec![1]));
    stack.hq.assert_true("after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_that_is_busy_twice_still_gets_the_task() {
    let stack = Stack::together(BIN).await;
    let mut hand = stack.hand("S_001").await;
    hand.come();
    stack.hq.online(1).await;
    stack.hq.submit(&noop("busy", &ids(1, 1))).await;
    for attempt in [1, 2] {
        let (task, number) = hand.dispatched().await;
        assert_eq!(number, attempt);
        assert_eq!(hand.report(&task, &rejected(attempt, "BUSY")).await.status, ReportStatus::Recorded);
    }
    let (task, number) = hand.dispatched().await;
    assert_eq!(number, 3);
    assert_eq!(hand.report(&task, &succeeded(3, &json!({ "ok": true }))).await.valid, Some(true));
    stack.hq.summary("busy", SummaryKind::Final, SOON).await;
    let record = stack.hq.task("busy.S_001.main").await;
    assert_eq!((record.status, record.attempt, record.retry_count), (TaskState::Succeeded, 3, 0), "being busy uses no try");
    let dispatched: Vec<i64> =
        stack.hq.events("busy").await.iter().filter(|e| e.name == "task.dispatched").map(|e| e.time_ms).collect();
    assert!(dispatched[1] - dispatched[0] >= 900 && dispatched[2] - dispatched[1] >= 1_800, "1 s, then 2 s: {dispatched:?}");
    stack.hq.assert_true("busy").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_offline_twice_in_a_short_time_still_gets_the_task() {
    let stack = Stack::together(BIN).await;
    let mut hand = stack.hand("S_001").await;
    let plan = with(noop("away", &ids(1, 1)), json!({ "timeouts": { "deliverMs": 1_000, "runMs": 60_000 } }));
    stack.hq.submit(&plan).await;
    stack.hq.event("away", "it is offline", |e| e.name == "task.deferred").await;
    hand.come();
    let (_, number) = hand.dispatched().await;
    assert_eq!(number, 1);
    // Gone before it has taken it.
    hand.leave().await;
    stack.hq.event("away", "nobody took it", |e| e.name == "task.attempt_timed_out" && e.data["kind"] == "delivery").await;
    stack.hq.nth_event("away", "it is offline again", 2, |e| e.name == "task.deferred").await;
    hand.come();
    let (task, number) = hand.dispatched().await;
    assert_eq!(number, 2);
    hand.report(&task, &succeeded(2, &json!({}))).await;
    let last = stack.hq.summary("away", SummaryKind::Final, SOON).await;
    assert_eq!(last.counts.succeeded, 1);
    assert_eq!(stack.hq.task("away.S_001.main").await.retry_count, 0);
    stack.hq.assert_true("away").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_comes_and_goes_while_the_plan_is_full_waits_its_turn() {
    let stack = Stack::together(BIN).await;
    let (mut first, mut second) = (stack.hand("S_001").await, stack.hand("S_002").await);
    first.come();
    stack.hq.online(1).await;
    stack.hq.submit(&with(noop("full", &ids(1, 2)), json!({ "limits": { "inFlight": 1 } }))).await;
    let (busy, _) = first.dispatched().await;
    let about = "full.S_002.main";
    for n in [1, 2] {
        stack.hq.nth_event("full", "it is offline", n, |e| e.is("task.deferred", about)).await;
        second.come();
        stack.hq.nth_event("full", "it is back and waits", n, |e| e.is("task.released", about)).await;
        if n == 1 {
            second.leave().await;
        }
    }
    assert!(!stack.hq.events("full").await.iter().any(|e| e.is("task.dispatched", about)), "the plan is full");
    first.report(&busy, &succeeded(1, &json!({}))).await;
    let (task, number) = second.dispatched().await;
    assert_eq!((task.to_string().as_str(), number), (about, 1));
    second.report(&task, &succeeded(1, &json!({}))).await;
    let last = stack.hq.summary("full", SummaryKind::Final, SOON).await;
    assert_eq!(last.counts.succeeded, 2);
    stack.hq.assert_true("full").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stores_own_agent_takes_a_task_says_goodbye_and_goes_on_later() {
    let stack = Stack::together(BIN).await;
    let root = stack.folder().join("shop");
    let expected = write_store(&root, "S_001", 3, DATE.parse().unwrap(), 2).unwrap();
    let (url, root) = (stack.nats.url(), root.to_str().unwrap().to_owned());
    let beat = BEAT_MS.to_string();
    let zone = ["--time-zone", "Asia/Shanghai", "--label", "region=east"];
    let run = [&["terminal", "run", "--id", "S_001", "--root", &root, "--beat-ms", &beat, "--nats", &url], &zone[..]].concat();
    let mut agent = Proc::start("agent", BIN, &run, stack.folder(), &[]);
    stack.hq.online(1).await;
    stack.hq.submit(&collect_log("agent", &ids(1, 1))).await;
    stack.hq.summary("agent", SummaryKind::Final, SOON).await;
    let row = stack.hq.document("agent", 1).await.rows.remove(0);
    assert_eq!(row.result.unwrap()["levels"]["error"], expected.errors(DATE.parse().unwrap()));
    assert_eq!(stack.hq.terminal("S_001").await.unwrap().labels["region"], "east");

    let second = stack.cli().run(&["terminal", "run", "--id", "S_001", "--root", &root, "--json"]).await.exits(3);
    assert_eq!(second.error_code(), "JOURNAL_LOCKED", "one process a journal");
    agent.signal(Signal::TERM);
    assert_eq!(agent.exited(SOON).await.code(), Some(0), "{}", agent.stderr());
    until("it is known to be gone", SOON, async || stack.hq.terminal("S_001").await.filter(|t| !t.online)).await;
    stack.hq.submit(&collect_log("later", &ids(1, 1))).await;
    stack.hq.event("later", "it is offline", |e| e.name == "task.deferred").await;
    let before = stack.hq.terminal("S_001").await.unwrap();
    assert!(!before.online);
    let _agent = Proc::start("agent-again", BIN, &run, stack.folder(), &[]);
    stack.hq.summary("later", SummaryKind::Final, SOON).await;
    let after = until("it is known to be back", SOON, async || stack.hq.terminal("S_001").await.filter(|t| t.online)).await;
    assert_eq!(after.journal, before.journal, "the same journal");
    assert_ne!(after.boot, before.boot);
    stack.hq.assert_true("later").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_handed_out_again_by_a_sync_is_not_held_for_forgotten() {
    let stack = Stack::together(BIN).await;
    let mut hand = stack.hand("S_001").await;
    hand.come();
    stack.hq.online(1).await;
    stack.hq.submit(&noop("again", &ids(1, 1))).await;
    let (task, _) = hand.dispatched().await;
    let dispatched = stack.hq.event("again", "it is handed out", |e| e.name == "task.dispatched").await;
    // Restarted before it began: its next boot has seen the command go by, and is not the one it was for.
    hand.leave().await;
    hand.come();
    let answer = until("HQ answers the new boot", SOON, async || {
        let answer = hand.sync(dispatched.seq).await;
        (!answer.open.is_empty()).then_some(answer)
    })
    .await;
    assert_eq!((&answer.open[0].task_id, answer.open[0].seq), (&task, dispatched.seq));
    assert_eq!(hand.report(&task, &TaskEvent::Started { attempt: 1 }).await.status, ReportStatus::Recorded);
    for k in 0..5 {
        let step = TaskEvent::Progressed { attempt: 1, k, step: format!("step {k}"), ms: 1 };
        assert_eq!(hand.report(&task, &step).await.status, ReportStatus::Recorded);
        until("HQ has it", SOON, async || {
            let record = stack.hq.task("again.S_001.main").await;
            (record.attempts.first().is_some_and(|a| a.steps.len() == k as usize + 1)).then_some(())
        })
        .await;
    }
    hand.report(&task, &succeeded(1, &json!({}))).await;
    stack.hq.summary("again", SummaryKind::Final, SOON).await;
    let told = stack.hq.told("again").await;
    assert!(!told.contains("attempt_lost"), "{told}");
    let record = stack.hq.task("again.S_001.main").await;
    assert_eq!((record.status, record.attempt, record.retry_count), (TaskState::Succeeded, 1, 0), "{told}");
    stack.hq.assert_true("again").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_is_where_its_terminals_look_for_it_and_they_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let [data, runtime, root] = ["data", "runtime", "store"].map(|name| folder.path().join(name).display().to_string());
    for dir in [&runtime, &root] {
        std::fs::create_dir_all(dir).unwrap();
    }
    let environment = [("XDG_RUNTIME_DIR", runtime.as_str())];
    let up = |name| Proc::start(name, BIN, &["up", "--data", &data, "--json"], folder.path(), &environment);
    let url = |line: String| {
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        line.pointer("/url").and_then(|u| u.as_str()).unwrap().to_owned()
    };
    let mut first = up("first");
    let at = url(first.hear("{").await);
    let args = ["terminal", "run", "--id", "SH_1", "--root", &root, "--beat-ms", "200"];
    let till = Proc::start("till", BIN, &args, folder.path(), &environment);
    let said = async |line: String| {
        until(&format!("the terminal says `{line}`"), SOON, async || till.stderr().contains(&line).then_some(())).await;
    };
    said(format!("terminal SH_1 on {at}; Ctrl-C ends it")).await;
    first.signal(Signal::TERM);
    assert!(first.exited(SOON).await.success());
    said(format!("terminal SH_1 has lost {at}; ")).await;

    let mut second = up("second");
    assert_eq!(url(second.hear("{").await), at, "the same folder, the same port");
    said(format!("terminal SH_1 on {at} again")).await;
    let lines = till.stderr().lines().filter(|l| l.starts_with("terminal SH_1")).count();
    assert_eq!(lines, 3, "one line when it is lost, one when it is back:\n{}", till.stderr());
    assert!(!second.stderr().contains("port of the last time"), "{}", second.stderr());
    second.signal(Signal::TERM);
    assert!(second.exited(SOON).await.success());

    // Somebody else has the port: another one is taken, and that is said.
    let taken = std::net::TcpListener::bind(at.trim_start_matches("nats://")).unwrap();
    let mut third = up("third");
    assert_ne!(url(third.hear("{").await), at);
    let port = taken.local_addr().unwrap().port();
    assert!(third.stderr().contains(&format!("127.0.0.1:{port}, the port of the last time, is not used")), "{}", third.stderr());
    third.signal(Signal::TERM);
    assert!(third.exited(SOON).await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_server_a_terminal_does_not_say_that_it_is_on_it() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display().to_string();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nowhere = format!("nats://{free}");
    let args = ["terminal", "run", "--id", "SH_1", "--root", &root, "--nats", &nowhere];
    let till = Proc::start("till", BIN, &args, folder.path(), &[]);
    until("it says that it waits", SOON, async || till.stderr().contains("no connection yet").then_some(())).await;
    assert!(!till.stderr().contains("terminal SH_1 on"), "{}", till.stderr());
}
