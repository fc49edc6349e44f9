//! The real terminal library loses its power at every step of an attempt, is started again on the same journal, and must keep what
//! it promised.

use std::collections::{BTreeMap, BTreeSet};

use fanfold_domain::event::TaskEvent;
use fanfold_domain::ids::TaskId;
use fanfold_domain::task::{Task, TaskState};
use fanfold_tests::world::World;
use fanfold_tests::world::terminal::{Act, Execution, How, Options, STEPS, Sent, Step};
use fanfold_wire::api::Noted;
use fanfold_wire::event::{LogEvent, decode};
use fanfold_wire::terminal::ReportStatus;
use serde_json::json;

/// What the attempt comes to when nothing goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    Success,
    Failure,
    /// The plan is cancelled while it runs.
    Stop,
    /// It succeeds, and the commands arrive again before and after the crash.
    Duplicate,
}

const COURSES: [Course; 4] = [Course::Success, Course::Failure, Course::Stop, Course::Duplicate];
const RUN_MS: u64 = 1_000;

pub(crate) fn task() -> TaskId {
    TaskId::parse("p.S1.main").unwrap()
}

/// What the log says of tasks, with the times, in ms of the world.
pub(crate) async fn told(w: &World) -> Vec<(u64, TaskId, TaskEvent)> {
    let epoch = fanfold_tests::world::EPOCH_MS;
    let events = w.log().await;
    let told = events.iter().filter_map(|m| match decode(m.seq, m.time_ms, &m.subject, &m.payload).unwrap() {
        LogEvent::Task(of, logged) => Some(((m.time_ms - epoch) as u64, of, logged.event)),
        _ => None,
    });
    told.collect()
}

fn is_end(name: &str) -> bool {
    matches!(name, "attempt.succeeded" | "attempt.failed" | "attempt.stopped" | "attempt.rejected")
}

/// What holds of terminals whatever happened to their power, as long as they keep their journals and have no twins.
pub(crate) async fn promises(w: &World, what: &str) {
    w.check().await;
    let sent: Vec<Sent> = w.terminals.values().flat_map(|t| t.sent()).filter(|s| is_end(&s.name)).collect();
    let mut bytes: BTreeMap<(&TaskId, u32, &str), BTreeSet<&str>> = BTreeMap::new();
    for report in &sent {
        bytes.entry((&report.task, report.attempt, &report.name)).or_default().insert(&report.raw);
    }
    for (report, raws) in &bytes {
        assert_eq!(raws.len(), 1, "{what}: {report:?} was not the same each time: {raws:?}");
    }
    let told = told(w).await;
    let settled = |s: &&Sent| matches!(s.answer, Some((ReportStatus::Recorded | ReportStatus::Duplicate, _)));
    for answered in sent.iter().filter(settled) {
        let is_it = |(_, task, e): &(u64, TaskId, TaskEvent)| {
            *task == answered.task && e.name() == answered.name && e.attempt() == Some(answered.attempt)
        };
        assert!(told.iter().any(is_it), "{what}: answered and not in the log: {answered:?}");
    }
    for execution in &w.account.executions() {
        ended_as_told(execution, &told, &sent, what);
    }
}

/// Whatever was begun is told, as it ended or as lost, and not before it ended.
fn ended_as_told(execution: &Execution, told: &[(u64, TaskId, TaskEvent)], sent: &[Sent], what: &str) {
    let is_its = |task: &TaskId, attempt: u32| *task == execution.task && attempt == execution.attempt;
    let ends: Vec<_> =
        told.iter().filter(|(_, task, e)| e.attempt().is_some_and(|n| is_its(task, n)) && is_end(e.name())).collect();
    // What is told after the plan was closed is refused for good.
    let refused = sent.iter().any(|s| is_its(&s.task, s.attempt) && matches!(s.answer, Some((ReportStatus::Refused, _))));
    let (ended_ms, how) = execution.ended.unwrap_or_else(|| panic!("{what}: still running: {execution:?}"));
    assert!(refused || !ends.is_empty(), "{what}: no end in the log of {execution:?}: {told:?}");
    for (at_ms, _, end) in ends {
        assert!(ended_ms <= *at_ms, "{what}: reported at {at_ms} and still running: {execution:?}");
        if how == How::Cut {
            assert!(matches!(end, TaskEvent::Failed { code, .. } if code == "LOST"), "{what}: {execution:?} was told as {end:?}");
        }
    }
}

async fn world(course: Course) -> World {
    let mut w = World::new().await;
    let script = move |_: &TaskId, attempt: u32| match course {
        Course::Failure if attempt == 1 => Act::Fail(RUN_MS, "NET"),
        Course::Stop => Act::Succeed(3 * RUN_MS),
        _ => Act::Succeed(RUN_MS),
    };
    w.terminal_with("S1", Options { disk_ms: (3, 3), sync_ms: 2_000, ..Options::new(script) });
    w
}

/// One life with a crash in it; gives the task at its end.
async fn through(course: Course, step: Step, away_ms: u64) -> Task {
    let what = format!("{course:?}, crash at {step:?}, away {away_ms} ms");
    let mut w = world(course).await;
    w.sleep(500).await;
    w.terminals["S1"].crash_at(step);
    w.submit("p", &["S1"], json!({})).await;
    let (mut cancelled, mut crashed_ms, begun_ms) = (false, None, w.account.now_ms());
    let over = |w: &World| w.hq.open.read().open().next().is_none();
    while w.account.now_ms() < begun_ms + 40_000 && !(over(&w) && w.terminals["S1"].is_on() && crashed_ms.is_some()) {
        w.sleep(100).await;
        let terminal = w.terminals.get_mut("S1").unwrap();
        if course == Course::Duplicate {
            terminal.repeat_commands();
        }
        match crashed_ms {
            None if !terminal.is_on() => crashed_ms = Some(w.account.now_ms()),
            Some(at) if !terminal.is_on() && w.account.now_ms() >= at + away_ms => terminal.start(),
            _ => {}
        }
        if course == Course::Stop && !cancelled && w.account.now_ms() > begun_ms + 2_000 {
            cancelled = true;
            let _: Noted = w.ask("plan.cancel", json!({ "planId": "p" })).await.unwrap();
        }
    }
    assert!(crashed_ms.is_some(), "{what}: it never got there: {}", w.tail(20).await);
    assert!(w.terminals["S1"].is_on(), "{what}");
    w.until_over("p", 60_000).await;
    // What is left is handed in and answered.
    w.sleep(8_000).await;
    promises(&w, &what).await;
    let task = w.view("p").await.tasks[0].clone();
    let story = w.story("p", "S1").await;
    assert!(task.state.is_final(), "{what}: {story:?}");
    task
}

/// What the first attempt came to, as its terminal told it.
fn first(task: &Task) -> Option<String> {
    task.attempts.first().and_then(|a| a.error.as_ref()).map(|e| e.code.clone())
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_step_loses_nothing_and_runs_nothing_twice() {
    for course in COURSES {
        for step in STEPS {
            for away_ms in [0, 2_500, 8_000] {
                let task = through(course, step, away_ms).await;
                let what = format!("{course:?} {step:?} {away_ms}: {task:?}");
                // What had begun and has no end on the disk is lost; what has one is told as it was.
                let lost = (Step::Begun..=Step::Ended).contains(&step);
                let code = first(&task);
                // Away for longer than a hand-out may take, and nothing was heard of it before.
                let late = away_ms >= 2_500 && step <= Step::Started && code.as_deref() == Some("TIMEOUT");
                match course {
                    Course::Success | Course::Duplicate => {
                        assert_eq!(task.state, TaskState::Succeeded, "{what}");
                        assert!(late || code.as_deref() == lost.then_some("LOST"), "{what}");
                    }
                    Course::Failure => {
                        assert_eq!(task.state, TaskState::Succeeded, "{what}");
                        assert!(late || code.as_deref() == Some(if lost { "LOST" } else { "NET" }), "{what}");
                    }
                    Course::Stop => assert_eq!(task.state, TaskState::Cancelled, "{what}"),
                }
            }
        }
    }
}
