//! Terminals that die between two steps, whose journal is full or damaged, and tills that were cloned: no attempt runs twice.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::fs::FileExt;
use std::time::Duration;

use fanfold_domain::plan::SummaryKind;
use fanfold_domain::sets::TaskSet;
use fanfold_domain::task::TaskState;
use fanfold_terminal::host::{Moment, Step};
use fanfold_tests::fleet::{account_of, ids};
use fanfold_tests::plans::{DATE, noop, with};
use fanfold_tests::process::Proc;
use fanfold_tests::stack::{BEAT_MS, Stack};
use fanfold_tests::wait::{SOON, until};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::json;

const BIN: &str = env!("CARGO_BIN_EXE_fanfold-under-test");

/// What is done to a journal, and how.
type Damage<'f> = (&'static str, Box<dyn Fn() + 'f>);

/// Every step, the attempts whose handler is entered, and whether the first one is told as LOST.
const STEPS: [(Step, &[u32], bool); 7] = [
    (Step::Received, &[1], false),
    (Step::Begun, &[2], true),
    (Step::Started, &[1, 2], true),
    (Step::Ended, &[1, 2], true),
    (Step::Finished, &[1], false),
    (Step::Reported, &[1], false),
    (Step::Answered, &[1], false),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_that_dies_after_any_step_runs_no_attempt_twice() {
    let stack = Stack::together(BIN).await;
    let mut fleets = Vec::new();
    for (i, (step, ..)) in STEPS.iter().enumerate() {
        fleets.push(stack.fleet(&format!("till-{i}"), &ids(i + 1, i + 1)).dying_after(*step).start().await);
    }
    stack.hq.online(STEPS.len()).await;
    // A result nobody has answered stays with its terminal: the second plan is for after the deaths.
    stack.hq.submit(&noop("steps", &ids(1, STEPS.len()))).await;
    for fleet in &mut fleets {
        fleet.died().await;
    }
    for fleet in &mut fleets {
        fleet.restart().await;
    }
    let last = stack.hq.summary("steps", SummaryKind::Final, SOON * 3).await;
    let told = stack.hq.told("steps").await;
    assert_eq!((last.counts.succeeded, last.counts.total()), (7, 7), "{told}");
    let events = stack.hq.events("steps").await;
    for ((step, runs, lost), fleet) in STEPS.iter().zip(&fleets) {
        let index = STEPS.iter().position(|s| s.0 == *step).unwrap() + 1;
        let task = format!("steps.S_{index:03}.main");
        assert_eq!(fleet.account().attempts_of(&task), *runs, "{step:?}: each attempt at most once\n{told}");
        let counts = fleet.account().counts();
        // A result that was lost with the process is no success to anybody: the work is done once more.
        let reruns = usize::from(*step == Step::Ended);
        let reruns = u64::try_from(reruns).unwrap();
        assert_eq!(
            (counts.double_runs, counts.overlapping_runs, counts.reruns_after_success),
            (0, 0, reruns),
            "{step:?}\n{told}"
        );
        let failed: Vec<&str> = events.iter().filter(|e| e.is("attempt.failed", &task)).map(|e| e.code()).collect();
        assert_eq!(failed, if *lost { vec!["LOST"] } else { Vec::new() }, "{step:?}\n{told}");
        let record = stack.hq.task(&task).await;
        let tries = u32::from(*lost);
        assert_eq!(
            (record.status, record.attempt, record.retry_count),
            (TaskState::Succeeded, 1 + tries, tries),
            "{step:?}\n{told}"
        );
        let succeeded = events.iter().filter(|e| e.is("attempt.succeeded", &task)).count();
        assert_eq!(succeeded, 1, "{step:?}: one result in the log\n{told}");
    }
    stack.hq.assert_true("steps").await;
}

fn limit_file_size(process: &Proc, bytes: Option<u64>) {
    let pid = i32::try_from(process.pid()).ok().and_then(Pid::from_raw);
    prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
}

/// A store's agent that outlives SIGXFSZ, so that a limit on the size of its files acts on it as a full disk does.
fn agent(stack: &Stack, name: &str, more: &[&str]) -> Proc {
    let root = stack.folder().join("shop");
    std::fs::create_dir_all(root.join("logs")).unwrap();
    let (url, root, beat) = (stack.nats.url(), root.to_str().unwrap().to_owned(), BEAT_MS.to_string());
    let run = ["terminal", "run", "--id", "S_001", "--root", &root, "--beat-ms", &beat, "--nats", &url];
    let args = [&["-c", "trap '' XFSZ; exec \"$@\"", "sh", stack.program()], &run[..], more].concat();
    Proc::start(name, "sh", &args, stack.folder(), &[])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_new_work_keeps_what_runs_and_heals_by_itself() {
    let stack = Stack::together(BIN).await;
    let agent = agent(&stack, "agent", &[]);
    stack.hq.online(1).await;
    stack.hq.submit(&noop("before", &ids(1, 1))).await;
    stack.hq.summary("before", SummaryKind::Final, SOON).await;
    // Nothing can be written any more, not even its log.
    limit_file_size(&agent, Some(0));
    let full = with(noop("full", &ids(1, 1)), json!({ "retry": { "maxAttempts": 3, "backoffMs": [100] } }));
    stack.hq.submit(&full).await;
    let refused = stack.hq.event("full", "it refuses", |e| e.name == "attempt.rejected").await;
    assert_eq!(refused.code(), "JOURNAL_UNAVAILABLE", "{}", agent.stderr());
    until("HQ knows why", SOON, async || stack.hq.terminal("S_001").await.filter(|t| t.journal_unavailable)).await;
    stack.cli().run(&["terminal", "ls"]).await.exits(0).shows(&["S_001", "online", "journal can't be written"]);
    stack.cli().run(&["task", "ls", "full"]).await.exits(0).shows(&["pending", "its journal can't be written"]);
    // Many times the back-off: were it handed out again and again, its tries would be used up by now.
    let other = stack.fleet("other", &ids(2, 2)).work_ms(2_000, 2_000).start().await;
    stack.hq.online(2).await;
    stack.hq.submit(&noop("meanwhile", &ids(2, 2))).await;
    stack.hq.summary("meanwhile", SummaryKind::Final, SOON).await;
    let record = stack.hq.task("full.S_001.main").await;
    let told = stack.hq.told("full").await;
    assert_eq!((record.status, record.set), (TaskState::Pending, TaskSet::Pending), "{told}");
    assert!(record.retry_count < 3, "a disk that is full for a while uses up no tries: {told}");
    assert_eq!(account_of(&[&other]).seen(Moment::Done), 1);

    limit_file_size(&agent, None);
    let last = stack.hq.summary("full", SummaryKind::Final, SOON).await;
    assert_eq!(last.counts.succeeded, 1, "{}", stack.hq.told("full").await);
    until("HQ knows that it is well", SOON, async || stack.hq.terminal("S_001").await.filter(|t| !t.journal_unavailable)).await;
    stack.hq.assert_true("full").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_when_the_disk_fills_up_is_reported_all_the_same() {
    let stack = Stack::together(BIN).await;
    let mut east = stack.fleet("east", &ids(1, 1)).work_ms(1_500, 1_500).outliving_limits().start().await;
    stack.hq.online(1).await;
    stack.hq.submit(&noop("running", &ids(1, 1))).await;
    until("it runs", SOON, async || (east.account().seen(Moment::Begin) == 1).then_some(())).await;
    // The account of executions stays below this; the journal lies above.
    limit_file_size(east.process(), Some(16 * 1024));
    let last = stack.hq.summary("running", SummaryKind::Final, SOON).await;
    assert_eq!(last.counts.succeeded, 1);
    assert_eq!(east.account().attempts_of("running.S_001.main"), [1]);
    let [.., unanswered] = east.stats().await;
    assert_eq!(unanswered, 0);
    stack.hq.assert_true("running").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_journal_is_said_and_moved_aside_when_asked() {
    let stack = Stack::together(BIN).await;
    let mut first = agent(&stack, "agent", &[]);
    stack.hq.online(1).await;
    stack.hq.submit(&noop("whole", &ids(1, 1))).await;
    stack.hq.summary("whole", SummaryKind::Final, SOON).await;
    let before = stack.hq.terminal("S_001").await.unwrap().journal;
    first.signal(Signal::TERM);
    assert_eq!(first.exited(SOON).await.code(), Some(0), "{}", first.stderr());
    let journal = stack.folder().join("shop/.fanfold-journal.redb");
    let sound = std::fs::read(&journal).unwrap();
    let damages: [Damage<'_>; 3] = [
        ("cut off", Box::new(|| std::fs::File::options().write(true).open(&journal).unwrap().set_len(5_000).unwrap())),
        ("another file", Box::new(|| std::fs::write(&journal, DATE.repeat(10_000)).unwrap())),
        (
            "flipped bytes",
            Box::new(|| {
                std::fs::write(&journal, &sound).unwrap();
                let file = std::fs::File::options().write(true).open(&journal).unwrap();
                // Everything behind the first page: whichever page holds rows, it is among them.
                let noise: Vec<u8> = sound[4_096..].iter().map(|b| b ^ 0x5a).collect();
                file.write_all_at(&noise, 4_096).unwrap();
            }),
        ),
    ];
    let root = stack.folder().join("shop").to_string_lossy().into_owned();
    for (what, damage) in &damages {
        damage();
        let said = stack.cli().run(&["terminal", "run", "--id", "S_001", "--root", &root, "--json"]).await.exits(3);
        assert_eq!(said.error_code(), "JOURNAL_DAMAGED", "{what}");
        assert!(said.stdout.contains("--move-damaged-journal"), "{what}: the way out is named: {}", said.stdout);
    }
    let second = agent(&stack, "agent-again", &["--move-damaged-journal"]);
    stack.hq.submit(&noop("again", &ids(1, 1))).await;
    let last = stack.hq.summary("again", SummaryKind::Final, SOON).await;
    assert_eq!(last.counts.succeeded, 1, "{}", second.stderr());
    let aside: Vec<String> = std::fs::read_dir(stack.folder().join("shop"))
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(".fanfold-journal.redb.damaged-"))
        .collect();
    assert_eq!(aside.len(), 1, "the damaged one is kept: {aside:?}");
    // The registry is written in runs, a moment behind the beats.
    until("HQ knows the empty journal for another one", SOON, async || {
        stack.hq.terminal("S_001").await.filter(|t| t.journal != before)
    })
    .await;
    stack.hq.assert_true("again").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cloned_till_is_noticed_said_and_ended_by_a_replace() {
    let mut stack = Stack::together(BIN).await;
    let mut one = stack.fleet("one", &ids(1, 1)).start().await;
    stack.hq.online(1).await;
    stack.hq.submit(&noop("before", &ids(1, 1))).await;
    stack.hq.summary("before", SummaryKind::Final, SOON).await;
    // A till is cloned with everything on its disk, while it is off, and both are switched on.
    one.kill();
    let mut clone = stack.fleet("clone", &ids(1, 1)).with_a_copy_of(&one).start().await;
    one.restart().await;
    until("HQ sees two, within a few beats", Duration::from_millis(20 * BEAT_MS), async || {
        stack.hq.terminal("S_001").await.filter(|t| t.id_in_use)
    })
    .await;
    stack.cli().run(&["terminal", "ls"]).await.exits(0).shows(&["two processes use this id", "a copy of the same journal"]);
    let doctor = stack.cli().run(&["doctor", "--wait", "2s"]).await;
    assert!(doctor.stdout.contains("TERMINAL_ID_IN_USE") && doctor.stdout.contains("S_001"), "{}", doctor.stdout);
    assert!(stack.service("all").stderr().contains("TERMINAL_ID_IN_USE"));
    // Nothing is handed out to it, for longer than three beats, and that is not because it is offline.
    stack.hq.submit(&with(noop("doubled", &ids(1, 1)), json!({ "deadlineMs": 8 * BEAT_MS }))).await;
    let partial = stack.hq.summary("doubled", SummaryKind::Partial, SOON).await;
    assert_eq!((partial.counts.offline, partial.counts.pending), (0, 1), "{}", stack.hq.told("doubled").await);
    stack.cli().run(&["task", "ls", "doubled"]).await.exits(0).shows(&["S_001", "id in use by two processes"]);
    stack.cli().run(&["task", "show", "doubled.S_001.main"]).await.exits(0).shows(&["id in use by two processes"]);
    let said = stack.service("all").stderr().matches("TERMINAL_ID_IN_USE").count();
    assert!(said <= 3, "said once in a while, not at every beat: {said} times");

    // Replaced while both go on it is a twin again: the same journal can't tell them apart.
    clone.kill();
    stack.cli().run(&["terminal", "replace", "S_001"]).await.exits(0);
    let last = stack.hq.summary("doubled", SummaryKind::Final, SOON).await;
    assert_eq!(last.counts.succeeded, 1);

    // A second machine with a journal of its own takes the id over; HQ restarts before it is heard.
    one.kill();
    stack.cli().run(&["terminal", "replace", "S_001"]).await.exits(0);
    stack.kill("all");
    stack.serve("all", &fanfold_tests::stack::ROLES).await;
    assert!(stack.hq.terminal("S_001").await.unwrap().replace_with_next);
    let fresh = stack.fleet("fresh", &ids(1, 1)).start().await;
    let let_in = until("the new one is let in", SOON, async || {
        stack.hq.terminal("S_001").await.filter(|t| t.online && t.allowed_journal.as_ref() == Some(&t.journal))
    })
    .await;
    one.restart().await;
    let refused = until("the old one is turned away, by name", SOON, async || {
        stack.hq.terminal("S_001").await.filter(|t| t.rival_journal.is_some())
    })
    .await;
    assert!(!refused.id_in_use && refused.journal == let_in.journal);
    stack.hq.submit(&noop("fresh", &ids(1, 1))).await;
    stack.hq.summary("fresh", SummaryKind::Final, SOON).await;
    assert_eq!(fresh.account().attempts_of("fresh.S_001.main"), [1]);
    // And back again, by name.
    let old = refused.rival_journal.unwrap();
    stack.cli().run(&["terminal", "replace", "S_001", "--journal", &old]).await.exits(0);
    stack.hq.submit(&noop("back", &ids(1, 1))).await;
    stack.hq.summary("back", SummaryKind::Final, SOON).await;
    assert_eq!(one.account().attempts_of("back.S_001.main"), [1]);
    account_of(&[&one, &clone, &fresh]).assert_nothing_twice();
}
