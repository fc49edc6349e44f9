//! Ten thousand terminals whose server dies and comes back: all are there again in bounded time and number, nothing is concluded.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::time::{Duration, Instant};

use fanfold_domain::plan::SummaryKind;
use fanfold_terminal::host::Moment;
use fanfold_tests::fleet::{Fleet, account_of};
use fanfold_tests::plans::{noop, with};
use fanfold_tests::stack::Stack;
use fanfold_tests::wait::until;
use serde_json::json;

const BIN: &str = env!("CARGO_BIN_EXE_fanfold-under-test");
const TERMINALS: usize = 10_000;
const PROCESSES: usize = 4;
/// Connections of each process.
const CONNECTIONS: usize = 10;
const HERD_BEAT_MS: u64 = 15_000;
const JITTER_MS: u64 = 5_000;
/// Terminals that work while the server dies.
const WORKING: usize = 400;
/// Generous: this runs beside other tests on small machines.
const LONG: Duration = Duration::from_secs(180);

fn names(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|i| format!("S_{i:05}")).collect()
}

/// Waits until every terminal has had a sync answered since the last mark; gives most asked by one, answered and unanswered of all.
async fn all_synced(fleets: &mut [Fleet]) -> (u64, u64, u64) {
    let (mut most, mut answered, mut unanswered) = (0, 0, 0);
    for fleet in fleets {
        let deadline = Instant::now() + LONG;
        let numbers = loop {
            let numbers = fleet.stats().await;
            if numbers[0] >= 1 {
                break numbers;
            }
            assert!(Instant::now() < deadline, "not all synced: {numbers:?}");
        };
        most = most.max(numbers[1]);
        answered += numbers[2];
        unanswered += numbers[3];
    }
    (most, answered, unanswered)
}

async fn works(stack: &Stack, plan: &str) {
    let last = stack.hq.summary(plan, SummaryKind::Final, LONG).await;
    assert_eq!(last.counts.succeeded as usize, WORKING, "{:?}", last.counts);
    let concluded: Vec<String> = stack.hq.events(plan).await.iter().map(|e| e.name.clone()).filter(|name| wrong(name)).collect();
    assert!(concluded.is_empty(), "concluded of terminals that were only cut off: {concluded:?}");
}

fn wrong(name: &str) -> bool {
    matches!(name, "task.attempt_lost" | "task.attempt_timed_out" | "task.deferred" | "task.stop_requested" | "attempt.failed")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_reconnect_and_nothing_is_taken_down_or_concluded() {
    let mut stack = Stack::bare_beating(BIN, HERD_BEAT_MS).await;
    stack.serve("rest", &["api", "recorder", "projector", "convergence"]).await;
    stack.serve("dispatcher", &["dispatcher"]).await;
    let share = TERMINALS / PROCESSES;
    let started = Instant::now();
    let mut fleets = Vec::new();
    for i in 0..PROCESSES {
        // The first ones of each process work.
        let fleet = stack.fleet(&format!("herd-{i}"), &names(i * share, (i + 1) * share)).work_ms(4_000, 9_000);
        fleets.push(fleet.in_memory(CONNECTIONS).beating(HERD_BEAT_MS, JITTER_MS).start().await);
    }
    all_synced(&mut fleets).await;
    eprintln!("{TERMINALS} terminals started and synced in {:?}", started.elapsed());
    let calm_mib = stack.service("dispatcher").memory_mib();

    let working: Vec<String> = (0..PROCESSES).flat_map(|i| names(i * share, i * share + WORKING / PROCESSES)).collect();
    stack.hq.submit(&with(noop("cut", &working), json!({ "deadlineMs": 300_000, "expiresMs": 600_000 }))).await;
    until("all of them work", LONG, async || {
        (fleets.iter().map(|f| f.account().seen(Moment::Begin)).sum::<usize>() == WORKING).then_some(())
    })
    .await;
    for fleet in &mut fleets {
        fleet.mark().await;
    }
    stack.nats.kill().await;
    stack.nats.restart().await.unwrap();
    let back = Instant::now();
    let (most, answered, unanswered) = all_synced(&mut fleets).await;
    let took = back.elapsed();
    let hq_mib = stack.service("dispatcher").memory_mib();
    eprintln!(
        "after the server came back: the last sync answered within {took:?} (jitter {JITTER_MS} ms); {answered} answered, \
         {unanswered} not, at most {most} asked by one; dispatcher {calm_mib} MiB before, {hq_mib} MiB after"
    );
    assert!(answered + unanswered <= 4 * TERMINALS as u64, "a storm: {answered} answered, {unanswered} not");
    assert!(most <= 12, "one terminal asked {most} times");
    assert!(hq_mib < calm_mib + 300, "{calm_mib} MiB before, {hq_mib} MiB after");
    works(&stack, "cut").await;
    account_of(&fleets.iter().collect::<Vec<_>>()).assert_nothing_twice();

    // A dispatcher that starts among ten thousand beats knows who is there, and hands out at once.
    stack.kill("dispatcher");
    stack.serve("dispatcher", &["dispatcher"]).await;
    let began = Instant::now();
    stack.hq.submit(&with(noop("anew", &working), json!({ "deadlineMs": 300_000, "expiresMs": 600_000 }))).await;
    works(&stack, "anew").await;
    eprintln!("a new dispatcher: {WORKING} tasks of 4 to 9 s done in {:?}", began.elapsed());
    account_of(&fleets.iter().collect::<Vec<_>>()).assert_nothing_twice();
}
