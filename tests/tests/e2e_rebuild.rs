//! How long it takes to make the state bucket anew. Nothing here runs in a normal run; the figures are in docs/limits.md.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::time::{Duration, Instant};

use bytes::Bytes;
use fanfold_domain::event::{Dispatched, PROTOCOL_VERSION, TaskEvent};
use fanfold_domain::ids::{TaskId, TerminalId};
use fanfold_ledger::port::{Append, Log};
use fanfold_tests::hand::succeeded;
use fanfold_tests::plans::noop;
use fanfold_tests::stack::Stack;
use fanfold_tests::wait::until;
use fanfold_wire::event::{Header, decision_id, encode, report_id, task_data};
use fanfold_wire::subjects;
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};

const BIN: &str = env!("CARGO_BIN_EXE_fanfold-under-test");
/// How long anything here may take before it is given up.
const LONG: Duration = Duration::from_secs(300);
/// Events of one append, and appends under way.
const EVENTS_AT_ONCE: usize = 1_000;
const APPENDS_AT_ONCE: usize = 4;

fn targets(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("S_{i:06}")).collect()
}

fn append(task: &TaskId, terminal: &TerminalId, event: &TaskEvent) -> Append {
    let (subject, id) = match event {
        TaskEvent::Dispatched(_) => (subjects::task_decision(task, Some(terminal)), decision_id(task, event, 0)),
        _ => (subjects::task_report(task, terminal), report_id(task, terminal, event)),
    };
    let about = task.to_string();
    let header = Header { id: &id, source: "/test", subject: &about, time_ms: None, traceparent: None };
    let payload = Bytes::from(encode(event.name(), &task_data(event).unwrap(), header).unwrap());
    Append { subject, id, payload, expect: None }
}

/// What the log says of a task that went well, as a dispatcher and a recorder would have written it.
fn story(plan: &str, target: &str) -> [Append; 2] {
    let task = TaskId::parse(&format!("{plan}.{target}.main")).unwrap();
    let terminal = TerminalId::new(target).unwrap();
    let dispatched = Dispatched {
        protocol_version: PROTOCOL_VERSION,
        attempt: 1,
        terminal: terminal.clone(),
        journal: "j".into(),
        boot: "b".into(),
        kind: "noop".into(),
        version: 1,
        input: serde_json::value::RawValue::from_string("{}".into()).unwrap().into(),
        run_timeout_ms: 60_000,
    };
    let done = succeeded(1, &json!({ "ok": true, "target": target }));
    [append(&task, &terminal, &TaskEvent::Dispatched(Box::new(dispatched))), append(&task, &terminal, &done)]
}

/// Writes the stories of all tasks of some plans straight into the log.
async fn write_stories(stack: &Stack, plans: &[String], targets: &[String]) {
    for step in [0, 1] {
        let events: Vec<Append> =
            plans.iter().flat_map(|p| targets.iter().map(|t| story(p, t)[step].clone()).collect::<Vec<_>>()).collect();
        let appends = events.chunks(EVENTS_AT_ONCE).map(|events| stack.hq.ledger.append(events.to_vec()));
        let answers: Vec<_> = stream::iter(appends).buffered(APPENDS_AT_ONCE).collect().await;
        for answer in answers.into_iter().flat_map(|a| a.expect("the log")) {
            assert!(answer.stored_seq().is_some(), "{answer:?}");
        }
    }
}

async fn purge(stack: &Stack, filter: &str) {
    let client = async_nats::connect(stack.nats.url()).await.unwrap();
    let request = json!({ "filter": filter }).to_string();
    let answer = client.request("$JS.API.STREAM.PURGE.KV_fanfold-state", request.into()).await.unwrap();
    let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
    assert_eq!(answer["success"], true, "{answer}");
}

/// Waits until the projector has written everything the log says.
async fn projected(stack: &Stack, records: u64) {
    until("the bucket holds everything", LONG, async || {
        let checkpoint = stack.hq.projected(LONG).await;
        let all = checkpoint.seq == stack.hq.ledger.last_seq().await.ok()?;
        (all && checkpoint.trail?.records == records + 1).then_some(())
    })
    .await;
}

async fn rebuild(stack: &Stack, what: &str) -> Value {
    let began = Instant::now();
    let report = stack.cli().run(&["rebuild", "--json"]).await.exits(0).json();
    eprintln!("rebuild, {what}: {:.1} s", began.elapsed().as_secs_f64());
    report
}

/// Makes `plans` closed plans of `tasks` tasks each, then takes the bucket away in several ways.
async fn measure(plans: usize, tasks: usize) {
    let mut stack = Stack::bare(BIN).await;
    stack.serve("makers", &["api", "convergence", "projector"]).await;
    let names: Vec<String> = (0..plans).map(|i| format!("plan_{i:04}")).collect();
    let targets = targets(tasks);
    let records = (plans * (tasks + 1)) as u64;
    let began = Instant::now();
    for name in &names {
        stack.hq.submit(&noop(name, &targets)).await;
    }
    write_stories(&stack, &names, &targets).await;
    until("all plans are over", LONG, async || {
        let summaries = stack.hq.read(&["ff.plan.*.summarised"]).await;
        (summaries.iter().filter(|e| e.data["kind"] == "final").count() == plans).then_some(())
    })
    .await;
    projected(&stack, records).await;
    let events = stack.hq.ledger.last_seq().await.unwrap();
    eprintln!("{plans} plans of {tasks} tasks: {events} events, made in {:.1} s", began.elapsed().as_secs_f64());
    stack.hq.assert_true(&names[plans - 1]).await;
    stack.kill("makers");

    let report = rebuild(&stack, "all is right").await;
    assert_eq!((report["right"].as_u64(), report["rewritten"].as_u64()), (Some(records), Some(0)), "{report}");
    purge(&stack, "$KV.fanfold-state.>").await;
    let report = rebuild(&stack, "the bucket is empty").await;
    assert_eq!((report["right"].as_u64(), report["rewritten"].as_u64()), (Some(0), Some(records)), "{report}");

    for (what, filter) in
        [("no checkpoint", "$KV.fanfold-state.checkpoint"), ("an empty bucket", "$KV.fanfold-state.>"), ("all as it was", "none")]
    {
        purge(&stack, filter).await;
        let began = Instant::now();
        stack.serve("projector", &["projector"]).await;
        projected(&stack, records).await;
        eprintln!("projector, {what}: {:.1} s; {} MiB", began.elapsed().as_secs_f64(), stack.service("projector").memory_mib());
        stack.kill("projector");
    }
    stack.hq.assert_true(&names[0]).await;
}

/// Not a test of anything but that all is made anew: prints the times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; run it by name on a quiet machine"]
async fn measure_rebuild_and_restart_with_1_000_closed_plans() {
    measure(1_000, 100).await;
}

/// Not a test of anything but that all is made anew: prints the times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; run it by name on a quiet machine"]
async fn measure_rebuild_and_restart_with_one_plan_of_100_000() {
    measure(1, 100_000).await;
}
