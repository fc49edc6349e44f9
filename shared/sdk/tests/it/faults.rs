//! A journal that fails, and the faults a terminal can be told to play.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fanfold_sdk::connection::{self, ConnectionOptions};
use fanfold_sdk::wire::terminal::SyncStatus;
use fanfold_sdk::{MemoryJournal, Terminal, TerminalConfig};

use crate::hq::{Hq, config, connect};
use crate::work::Work;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_that_fails_is_told_and_comes_back() {
    let (mut hq, work, journal) = (Hq::start().await, Work::new(), MemoryJournal::new());
    let quick = TerminalConfig { beat_interval_ms: 50, ..config("S1") };
    let terminal = hq.terminal(quick, work.registry(), Arc::new(journal.clone())).await;
    journal.set_failing(true);
    hq.dispatch(&terminal, "p", 1, "\"echo\"").await;
    assert_eq!(hq.report("attempt.rejected", 1).await.code(), "JOURNAL_UNAVAILABLE");
    hq.beat(|b| b.journal_unavailable).await;
    hq.dispatch(&terminal, "p", 2, "\"echo\"").await;
    assert_eq!(hq.report("attempt.rejected", 2).await.code(), "JOURNAL_UNAVAILABLE");
    assert_eq!(work.count(), 0);
    journal.set_failing(false);
    hq.beat(|b| !b.journal_unavailable).await;
    hq.dispatch(&terminal, "p", 3, "\"echo\"").await;
    hq.report("attempt.succeeded", 3).await;
    terminal.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_terminal_says_busy() {
    let (mut hq, work) = (Hq::start().await, Work::new());
    let one = TerminalConfig { slots: 1, run_watchdog: false, ..config("S1") };
    let terminal = hq.terminal(one, work.registry(), Arc::new(MemoryJournal::new())).await;
    for n in 0..18 {
        hq.dispatch(&terminal, &format!("p{n}"), n + 1, "\"wait\"").await;
    }
    assert_eq!(hq.report("attempt.rejected", 18).await.code(), "BUSY", "one runs and 16 wait");
    let stats = terminal.stats();
    assert_eq!((stats.counts.rejected, terminal.slots()), (1, 1));
    terminal.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mute_terminal_works_and_says_nothing_and_repeats_are_repeats() {
    let (mut hq, work) = (Hq::start().await, Work::new());
    let mute = TerminalConfig { mute: true, ..config("S1") };
    let mute = hq.terminal(mute, work.registry(), Arc::new(MemoryJournal::new())).await;
    let repeating =
        TerminalConfig { duplicate_reports: Some(vec![Duration::from_millis(5), Duration::from_millis(10)]), ..config("S2") };
    let repeating = hq.terminal(repeating, work.registry(), Arc::new(MemoryJournal::new())).await;
    hq.dispatch(&mute, "p", 1, "\"echo\"").await;
    work.started().await;
    hq.dispatch(&repeating, "p", 2, "\"echo\"").await;
    for _ in 0..3 {
        hq.report("attempt.succeeded", 2).await;
    }
    assert!(hq.seen.iter().all(|r| r.attempt == 2 && r.raw == hq.seen[0].raw));
    assert_eq!(mute.shutdown().await.reports_sent, 0);
    assert_eq!(repeating.shutdown().await.unanswered, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_in_use_takes_nothing_until_hq_says_otherwise() {
    let (mut hq, work) = (Hq::start().await, Work::new());
    let quick = TerminalConfig { sync_interval_ms: 50, ..config("S1") };
    let terminal = hq.terminal(quick, work.registry(), Arc::new(MemoryJournal::new())).await;
    hq.answer_sync_next(|a| {
        a.status = SyncStatus::TerminalIdInUse;
        a.open = vec![hq.open(&terminal, "p", 1, "\"echo\"")];
    });
    while !terminal.stats().id_in_use {
        hq.sync().await;
    }
    hq.answer_sync_next(|a| a.open = vec![hq.open(&terminal, "p", 2, "\"echo\"")]);
    hq.report("attempt.succeeded", 2).await;
    assert_eq!(work.count(), 1);
    let stats = terminal.shutdown().await;
    assert!(!stats.id_in_use && stats.syncs > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_not_be_started_says_why() {
    let hq = Hq::start().await;
    let (client, _) = connect(&hq.server).await;
    let cases = [
        TerminalConfig { slots: 0, ..config("S1") },
        TerminalConfig { beat_interval_ms: 1, ..config("S1") },
        TerminalConfig { report_retry_ms: 500, ..config("S1") },
    ];
    for config in cases {
        let started = Terminal::start(client.clone(), config, Work::new().registry(), Arc::new(MemoryJournal::new())).await;
        assert_eq!(started.unwrap_err().code(), "TERMINAL_CONFIG_INVALID");
    }
    let failing = MemoryJournal::new();
    failing.set_failing(true);
    let started = Terminal::start(client, config("S1"), Work::new().registry(), Arc::new(failing)).await;
    assert_eq!(started.unwrap_err().code(), "JOURNAL_UNAVAILABLE");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_that_does_not_wait_for_its_first_connection_beats_as_soon_as_it_is_there() {
    let mut hq = Hq::start().await;
    // As `fanfold terminal run` connects: it goes on before there is a connection. The beats after the first come too late to count.
    let options = ConnectionOptions { url: hq.server.url(), wait_for_server: true, ..ConnectionOptions::default() };
    let connection = connection::connect(options).await.unwrap();
    let config = TerminalConfig { connects: Some(connection.connects), beat_interval_ms: 600_000, ..config("S1") };
    let terminal =
        Terminal::start(connection.client, config, Work::new().registry(), Arc::new(MemoryJournal::new())).await.unwrap();
    let begun = Instant::now();
    hq.beat(|beat| beat.identity.boot == terminal.boot_id()).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    terminal.shutdown().await;
}
