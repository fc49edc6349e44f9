//! One terminal that sends ten thousand messages a second, of every kind that can be wrong: it is held to its rate, seen, and nobody
//! else's plan waits for it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_nats::{Client, ConnectOptions};
use bytes::Bytes;
use fanfold_domain::event::TaskEvent;
use fanfold_domain::plan::SummaryKind;
use fanfold_tests::fleet::ids;
use fanfold_tests::hand::{Hand, succeeded};
use fanfold_tests::plans::noop;
use fanfold_tests::stack::Stack;
use fanfold_tests::wait::{SOON, until};
use serde_json::json;
use tokio::task::JoinHandle;

const BIN: &str = env!("CARGO_BIN_EXE_fanfold-under-test");
/// The one that floods.
const LOUD: &str = "LOUD_1";
/// Messages of a burst, a hundred bursts a second.
const BURST: u64 = 100;

/// A flood under way.
struct Flood {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    began: Instant,
    task: JoinHandle<()>,
}

/// Everything a terminal may say, wrong in every way: subject and body, in turns.
fn kinds(hand: &Hand, own: &fanfold_domain::ids::TaskId) -> Vec<(String, Bytes)> {
    let foreign = fanfold_domain::ids::TaskId::parse("others.S_001.main").unwrap();
    let step = TaskEvent::Progressed { attempt: 1, k: 3, step: "again".into(), ms: 1 };
    let report = format!("ff.report.{LOUD}");
    let array = r#"{"specversion":"1.0","type":"fanfold.attempt.succeeded.v1","subject":"own.LOUD_1.main","data":[1,{},null]}"#;
    vec![
        (report.clone(), Bytes::from_static(b"\x00\xff garbage")),
        (report.clone(), hand.encoded(&foreign, &succeeded(1, &json!({ "ok": true }))).into()),
        (report.clone(), hand.encoded(own, &step).into()),
        (report.clone(), hand.encoded(own, &TaskEvent::Started { attempt: 9 }).into()),
        (report, Bytes::from_static(array.as_bytes())),
        (format!("ff.beat.{LOUD}"), Bytes::from_static(b"[1,2,3]")),
        (format!("ff.beat.{LOUD}"), Bytes::from_static(br#"{"journal":"j","boot":"another"}"#)),
        (format!("ff.sync.{LOUD}"), Bytes::from_static(b"{")),
        (format!("ff.sync.{LOUD}"), Bytes::from_static(br#"{"journal":"j","boot":"another","holds":[]}"#)),
    ]
}

impl Flood {
    async fn begin(url: &str, hand: &Hand, own: &fanfold_domain::ids::TaskId) -> Self {
        let client: Client = ConnectOptions::new().connect(url).await.unwrap();
        let kinds = kinds(hand, own);
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ended, count) = (Arc::clone(&stop), Arc::clone(&sent));
        let task = tokio::spawn(async move {
            let large = Bytes::from(vec![b'x'; 400 * 1024]);
            let mut pace = tokio::time::interval(Duration::from_millis(10));
            let mut n: u64 = 0;
            while !ended.load(Ordering::Relaxed) {
                pace.tick().await;
                for _ in 0..BURST {
                    n += 1;
                    let (subject, body) = match n % 500 {
                        0 => (format!("ff.report.{LOUD}"), large.clone()),
                        // Plans and terminals that were never heard of, another one each time.
                        1..50 => (format!("ff.report.{LOUD}"), unknown(n)),
                        50..100 => (format!("ff.report.INVENTED_{n}"), unknown(n)),
                        _ => kinds[(n % kinds.len() as u64) as usize].clone(),
                    };
                    let reply = format!("_I.{}.flood", subject.rsplit('.').next().unwrap());
                    client.publish_with_reply(subject, reply, body).await.unwrap();
                }
                client.flush().await.unwrap();
                count.store(n, Ordering::Relaxed);
            }
        });
        Self { stop, sent, began: Instant::now(), task }
    }

    async fn end(self) -> (u64, f64) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
        (self.sent.load(Ordering::Relaxed), self.began.elapsed().as_secs_f64())
    }
}

fn unknown(n: u64) -> Bytes {
    Bytes::from(format!(
        r#"{{"specversion":"1.0","type":"fanfold.attempt.started.v1","subject":"nobody_{n}.{LOUD}.main","data":{{"attempt":1}}}}"#
    ))
}

/// A terminal with a task of its own, begun.
async fn loud(stack: &Stack, online: usize) -> (Hand, fanfold_domain::ids::TaskId) {
    let mut hand = stack.hand(LOUD).await;
    hand.come();
    stack.hq.online(online).await;
    stack.hq.submit(&noop("own", &[LOUD.to_owned()])).await;
    let (task, _) = hand.dispatched().await;
    hand.report(&task, &TaskEvent::Started { attempt: 1 }).await;
    (hand, task)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_terminal_that_floods_is_held_to_its_rate_and_seen() {
    const STORES: usize = 60;
    let stack = Stack::together(BIN).await;
    let east = stack.fleet("east", &ids(1, STORES)).work_ms(50, 200).start().await;
    let (hand, own) = loud(&stack, STORES + 1).await;
    let (memory_mib, log_bytes) = (stack.service("all").memory_mib(), stack.service("all").stderr().len());
    let flood = Flood::begin(&stack.nats.url(), &hand, &own).await;
    until("the flood is on", SOON, async || (flood.sent.load(Ordering::Relaxed) > 20_000).then_some(())).await;
    stack.hq.submit(&noop("others", &ids(1, STORES))).await;
    let last = stack.hq.summary("others", SummaryKind::Final, SOON * 3).await;
    assert_eq!(last.counts.succeeded as usize, STORES, "the others' plan is done meanwhile");
    let (sent, seconds) = flood.end().await;
    east.account().assert_nothing_twice();

    let record = until("the flood is counted", SOON, async || {
        let record = stack.hq.terminal(LOUD).await?;
        (record.reports.deferred.contains_key("RATE_LIMITED") && record.messages_limited > 0).then_some(record)
    })
    .await;
    let looked_at: u64 = record.reports.recorded + record.reports.duplicate + record.reports.refused.values().sum::<u64>();
    let grown_mib = stack.service("all").memory_mib().saturating_sub(memory_mib);
    let said = stack.service("all").stderr();
    eprintln!(
        "{sent} messages in {seconds:.1} s; of its reports {looked_at} were looked at; {grown_mib} MiB more memory; {record:?}"
    );
    let share = 1_000.0 + 100.0 * (seconds + 5.0);
    assert!((looked_at as f64) < share, "held to its rate: {looked_at} of at most {share}");
    let written = stack.hq.read(&[&format!("ff.task.*.*.*.by.{LOUD}")]).await;
    assert!(written.len() <= 3, "what it repeats is written once: {}", written.len());
    assert!(stack.hq.read(&["ff.task.others.*.*.by.*"]).await.iter().all(|e| !e.subject.ends_with(LOUD)));
    assert!(grown_mib < 300, "memory grew by {grown_mib} MiB");
    let log_grown = said.len() - log_bytes;
    assert!(log_grown < 200_000, "the service's own log grew by {log_grown} bytes");
    assert!(said.contains("RATE_LIMITED") && said.contains(LOUD), "it is named in the log:\n{said}");
    stack.cli().run(&["terminal", "ls"]).await.exits(0).shows(&[LOUD, "rate-limited", "reports refused", "unreadable"]);
    let doctor = stack.cli().run(&["doctor", "--wait", "2s"]).await;
    assert!(doctor.stdout.contains("RATE_LIMITED") && doctor.stdout.contains(LOUD), "{}", doctor.stdout);

    // It is not shut out: when it behaves it is heard again.
    until("its own report is taken", SOON, async || {
        (hand.report(&own, &succeeded(1, &json!({}))).await.valid == Some(true)).then_some(())
    })
    .await;
    stack.hq.summary("own", SummaryKind::Final, SOON).await;
    stack.hq.assert_true("others").await;
}

/// Not a test of anything: prints the time of a plan of 300 stores without and with the flood. The figures are in docs/limits.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; run it by name on a quiet machine"]
async fn measure_a_plan_of_300_stores_without_and_with_a_flood() {
    const STORES: usize = 300;
    let stack = Stack::together(BIN).await;
    let _east = stack.fleet("east", &ids(1, STORES)).start().await;
    let (hand, own) = loud(&stack, STORES + 1).await;
    let timed = async |plan: &str| {
        let began = Instant::now();
        stack.hq.submit(&noop(plan, &ids(1, STORES))).await;
        stack.hq.summary(plan, SummaryKind::Final, SOON * 5).await;
        eprintln!("{plan}: {:?}", began.elapsed());
        began.elapsed()
    };
    timed("warm").await;
    let calm = [timed("calm1").await, timed("calm2").await, timed("calm3").await];
    let flood = Flood::begin(&stack.nats.url(), &hand, &own).await;
    until("the flood is on", SOON * 3, async || (flood.sent.load(Ordering::Relaxed) > 20_000).then_some(())).await;
    let flooded = [timed("others").await, timed("flood2").await, timed("flood3").await];
    let (sent, seconds) = flood.end().await;
    let median = |mut times: [Duration; 3]| {
        times.sort();
        times[1].as_secs_f64()
    };
    eprintln!(
        "without {calm:?}, with {flooded:?}: {:.1} times; {:.0} messages/s",
        median(flooded) / median(calm),
        sent as f64 / seconds
    );
}
