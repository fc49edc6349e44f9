//! Hundreds of terminals in one process, on one connection and one journal file.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fanfold_sdk::{DiskJournal, DiskOptions, Terminal, TerminalConfig};

use crate::hq::{Hq, config, connect};
use crate::work::Work;

#[allow(clippy::print_stdout)] // the numbers are what somebody who runs it alone wants to see
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_terminals_share_a_process() {
    const TERMINALS: u32 = 500;
    let (mut hq, work, folder) = (Hq::start().await, Work::new(), tempfile::tempdir().unwrap());
    let journal =
        Arc::new(DiskJournal::open(DiskOptions { path: folder.path().join("j.redb"), move_damaged_aside: false }).unwrap());
    let (client, connects) = connect(&hq.server).await;
    let begun = Instant::now();
    let starts = (0..TERMINALS).map(|n| {
        let config = TerminalConfig { connects: Some(connects.clone()), request_timeout_ms: 10_000, ..config(&format!("S{n}")) };
        Terminal::start(client.clone(), config, work.registry(), journal.clone())
    });
    let terminals: Vec<_> = futures::future::join_all(starts).await.into_iter().map(Result::unwrap).collect();
    for _ in 0..TERMINALS {
        hq.sync().await;
    }
    let started = begun.elapsed();
    let begun = Instant::now();
    for (terminal, attempt) in terminals.iter().zip(1..) {
        hq.dispatch(terminal, "p", attempt, "\"echo\"").await;
    }
    while hq.count("attempt.succeeded") < TERMINALS as usize {
        let left = (1..=TERMINALS).find(|n| !hq.seen.iter().any(|r| r.attempt == *n && r.name == "attempt.succeeded")).unwrap();
        hq.report("attempt.succeeded", left).await;
    }
    let done = begun.elapsed();
    let begun = Instant::now();
    let ended = futures::future::join_all(terminals.into_iter().map(|t| t.shutdown())).await;
    println!("{TERMINALS} terminals: started in {started:?}, ran in {done:?}, ended in {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(4), "an end with nothing to wait for doesn't wait");
    assert_eq!(work.count(), TERMINALS as usize);
    assert!(ended.iter().all(|stats| stats.unanswered == 0 && stats.counts.runs == 1 && stats.reports_sent <= 3));
    assert!(done < Duration::from_secs(15), "{done:?}");
}
