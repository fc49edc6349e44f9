//! The log, the object store and the state bucket of a real server are full in the middle of a plan.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use fanfold_domain::plan::SummaryKind;
use fanfold_ledger::port::Log;
use fanfold_terminal::host::Moment;
use fanfold_tests::fleet::ids;
use fanfold_tests::plans::{noop, with};
use fanfold_tests::stack::Stack;
use fanfold_tests::wait::{SOON, until};
use serde_json::{Value, json};

const BIN: &str = env!("CARGO_BIN_EXE_fanfold-under-test");
/// How long it stays full.
const FULL_FOR: Duration = Duration::from_secs(4);
/// Share of one processor that services may take while there is nothing to do but wait, in percent.
const BUSY_PERCENT_MAX: u64 = 50;

async fn api(client: &async_nats::Client, verb: &str, request: &Value) -> Value {
    let answer = client.request(format!("$JS.API.{verb}"), request.to_string().into()).await.expect("the server answers");
    let answer: Value = serde_json::from_slice(&answer.payload).expect("JSON");
    assert!(answer.get("error").is_none(), "{verb}: {answer}");
    answer
}

/// Bytes a stream has taken.
async fn bytes(client: &async_nats::Client, stream: &str) -> i64 {
    let info = api(client, &format!("STREAM.INFO.{stream}"), &json!({})).await;
    info.pointer("/state/bytes").and_then(Value::as_i64).expect("bytes")
}

/// Limits a stream, as an operator does; -1: no limit.
async fn limit(client: &async_nats::Client, stream: &str, max_bytes: i64) {
    let info = api(client, &format!("STREAM.INFO.{stream}"), &json!({})).await;
    let mut config = info.get("config").cloned().expect("a configuration");
    config["max_bytes"] = json!(max_bytes);
    api(client, &format!("STREAM.UPDATE.{stream}"), &config).await;
}

/// Processor time of a process so far, in hundredths of a second.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    [11, 12].iter().map(|i| fields.get(*i).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0)).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_full_in_the_middle_of_a_plan_only_delays_it() {
    let stack = Stack::together(BIN).await;
    let client = async_nats::connect(stack.nats.url()).await.unwrap();
    let east = stack.fleet("east", &ids(1, 30)).work_ms(100, 200).start().await;
    stack.hq.online(30).await;
    stack.hq.submit(&with(noop("p", &ids(1, 30)), json!({ "limits": { "inFlight": 4 } }))).await;
    until("it is under way", SOON, async || (stack.hq.succeeded("p").await >= 4).then_some(())).await;
    limit(&client, "FANFOLD", bytes(&client, "FANFOLD").await + 1_500).await;
    // Whatever was begun ends, and its result waits in the journal.
    let waiting = async || east.account().seen(Moment::Done) > stack.hq.plan("p").await.counts.succeeded as usize;
    until("a result waits in its journal", SOON, async || waiting().await.then_some(())).await;
    let mut end = 0;
    until("the log has come to rest", SOON, async || {
        let last = stack.hq.ledger.last_seq().await.ok()?;
        (std::mem::replace(&mut end, last) == last).then_some(())
    })
    .await;
    let (ticks, counts) = (cpu_ticks(stack.service("all").pid()), stack.hq.plan("p").await.counts);
    let until_then = tokio::time::Instant::now() + FULL_FOR;
    let error = until("the API says so", SOON, async || stack.hq.try_submit(&noop("q", &ids(1, 500))).await.err()).await;
    assert_eq!(error.code(), "LOG_FULL", "{error}");
    let said = stack.cli().run(&["doctor", "--wait", "500ms"]).await.exits(1);
    assert!(said.stdout.contains("LOG_FULL"), "{}", said.stdout);
    tokio::time::sleep_until(until_then).await;
    assert!(waiting().await, "and waits still");
    let busy = cpu_ticks(stack.service("all").pid()) - ticks;
    assert!(busy * 100 < BUSY_PERCENT_MAX * FULL_FOR.as_secs() * 100 * 2, "services ran hot: {busy} ticks in {FULL_FOR:?}");
    let while_full = stack.hq.events("p").await;
    let concluded = ["task.attempt_timed_out", "task.attempt_lost", "task.deferred", "plan.summarised", "plan.closed"];
    assert!(!while_full.iter().any(|e| concluded.contains(&e.name.as_str())), "{}", stack.hq.told("p").await);
    assert!(counts.succeeded < 30, "it was full before the end: {counts:?}");
    until("serve says so", SOON, async || stack.service("all").stderr().contains("LOG_FULL: the log has taken").then_some(()))
        .await;

    limit(&client, "FANFOLD", -1).await;
    let last = stack.hq.summary("p", SummaryKind::Final, SOON * 3).await;
    let refused: Vec<_> = stack.hq.terminals().await.into_iter().filter(|t| !t.reports.refused.is_empty()).collect();
    assert!(refused.is_empty(), "nothing was refused for good: {refused:?}");
    assert_eq!((last.counts.succeeded, last.counts.total()), (30, 30), "{}", stack.hq.told("p").await);
    east.account().assert_nothing_twice();
    let counts = east.account().counts();
    let attempts: usize = ids(1, 30).iter().map(|s| east.account().attempts_of(&format!("p.{s}.main")).len()).sum();
    assert_eq!(attempts, 30, "nobody was given up for a full log: {counts:?}");
    assert!(east.account().seen(Moment::Done) >= 30);
    stack.hq.assert_true("p").await;
    stack.hq.submit(&noop("q", &ids(1, 30))).await;
    stack.hq.summary("q", SummaryKind::Final, SOON * 3).await;
    until("and says that there is room", SOON, async || stack.service("all").stderr().contains("has room again").then_some(()))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_and_state_that_are_full_delay_summaries_and_records_and_lose_nothing() {
    let stack = Stack::together(BIN).await;
    let client = async_nats::connect(stack.nats.url()).await.unwrap();
    let east = stack.fleet("east", &ids(1, 5)).start().await;
    stack.hq.online(5).await;
    stack.hq.submit(&noop("first", &ids(1, 5))).await;
    stack.hq.summary("first", SummaryKind::Final, SOON * 2).await;
    stack.hq.assert_true("first").await;
    for stream in ["OBJ_fanfold-artifacts", "KV_fanfold-state"] {
        limit(&client, stream, bytes(&client, stream).await + 1).await;
    }
    stack.hq.submit(&noop("second", &ids(1, 5))).await;
    until("the work is done all the same", SOON, async || (stack.hq.succeeded("second").await == 5).then_some(())).await;
    until("both are said", SOON, async || {
        let said = stack.service("all").stderr();
        (said.contains("state could not be written") && said.contains("convergence")).then_some(())
    })
    .await;
    assert!(stack.hq.summaries("second").await.is_empty(), "no summary is announced that is not stored");
    for stream in ["OBJ_fanfold-artifacts", "KV_fanfold-state"] {
        limit(&client, stream, -1).await;
    }
    let last = stack.hq.summary("second", SummaryKind::Final, SOON * 3).await;
    assert_eq!(last.counts.succeeded, 5);
    stack.hq.assert_true("second").await;
    east.account().assert_nothing_twice();
}
