//! Power cuts, restarts, and orderly ends.

use std::path::Path;
use std::sync::Arc;

use fanfold_sdk::wire::domain::event::TaskEvent;
use fanfold_sdk::{DiskJournal, DiskOptions, MemoryJournal, TerminalConfig};

use crate::hq::{Hq, config};
use crate::work::Work;

fn disk(path: &Path) -> Arc<DiskJournal> {
    Arc::new(DiskJournal::open(DiskOptions { path: path.to_owned(), move_damaged_aside: false }).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_begun_at_a_power_cut_is_lost_and_never_runs_again() {
    let (mut hq, work, folder) = (Hq::start().await, Work::new(), tempfile::tempdir().unwrap());
    let path = folder.path().join("journal.redb");
    let terminal = hq.terminal(config("S1"), work.registry(), disk(&path)).await;
    let journal_id = terminal.journal_id().to_owned();
    hq.dispatch(&terminal, "p", 1, "\"wait\"").await;
    work.started().await;
    terminal.kill().await;
    let terminal = hq.terminal(config("S1"), work.registry(), disk(&path)).await;
    assert_eq!(terminal.journal_id(), journal_id);
    assert_eq!(hq.report("attempt.failed", 1).await.code(), "LOST");
    hq.dispatch(&terminal, "p", 1, "\"echo\"").await;
    hq.dispatch(&terminal, "p", 2, "\"echo\"").await;
    hq.report("attempt.succeeded", 2).await;
    assert_eq!(*work.runs.lock().unwrap(), [("p".to_owned(), 1), ("p".to_owned(), 2)]);
    terminal.shutdown().await;
    // Both are answered: a third start has nothing to say.
    let terminal = hq.terminal(config("S1"), work.registry(), disk(&path)).await;
    let stats = terminal.shutdown().await;
    assert_eq!((stats.counts.lost, stats.unanswered, stats.reports_sent), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_finished_and_not_answered_is_sent_again_after_a_restart() {
    let (mut hq, work, folder) = (Hq::start().await, Work::new(), tempfile::tempdir().unwrap());
    let path = folder.path().join("journal.redb");
    let terminal = hq.terminal(config("S1"), work.registry(), disk(&path)).await;
    hq.answer_next([None, None, None]);
    hq.dispatch(&terminal, "p", 1, "\"echo\"").await;
    let first = hq.report("attempt.succeeded", 1).await;
    terminal.kill().await;
    let terminal = hq.terminal(config("S1"), work.registry(), disk(&path)).await;
    assert_eq!(hq.report("attempt.succeeded", 1).await.raw, first.raw);
    hq.dispatch(&terminal, "p", 2, "\"echo\"").await;
    assert_eq!(hq.report("attempt.rejected", 2).await.code(), "ALREADY_DONE");
    assert_eq!(work.count(), 1);
    terminal.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_only_queued_is_handed_out_again_by_the_sync() {
    let (mut hq, work) = (Hq::start().await, Work::new());
    let (journal, one) = (Arc::new(MemoryJournal::new()), TerminalConfig { slots: 1, ..config("S1") });
    let terminal = hq.terminal(one.clone(), work.registry(), journal.clone()).await;
    hq.dispatch(&terminal, "p", 1, "\"wait\"").await;
    work.started().await;
    hq.dispatch(&terminal, "q", 7, "\"echo\"").await;
    while terminal.stats().queued == 0 {
        tokio::task::yield_now().await;
    }
    hq.answer_sync_next(|a| a.open = vec![hq.open(&terminal, "q", 7, "\"echo\"")]);
    terminal.kill().await;
    let terminal = hq.terminal(one, work.registry(), journal).await;
    hq.report("attempt.succeeded", 7).await;
    assert_eq!(terminal.shutdown().await.counts.lost, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orderly_end_waits_for_runs_then_stops_them() {
    let (mut hq, work) = (Hq::start().await, Work::new());
    let patient = TerminalConfig { shutdown_grace_ms: 20_000, ..config("S1") };
    let terminal = hq.terminal(patient, work.registry(), Arc::new(MemoryJournal::new())).await;
    hq.dispatch(&terminal, "p", 1, "\"wait\"").await;
    work.started().await;
    let ending = tokio::spawn(terminal.shutdown());
    work.release();
    hq.report("attempt.succeeded", 1).await;
    assert_eq!(ending.await.unwrap().unanswered, 0);
    hq.beat(|b| b.goodbye).await;

    let hasty = TerminalConfig { shutdown_grace_ms: 0, run_watchdog: false, ..config("S2") };
    let terminal = hq.terminal(hasty, work.registry(), Arc::new(MemoryJournal::new())).await;
    hq.dispatch(&terminal, "p", 2, "\"hang\"").await;
    work.started().await;
    let stats = terminal.shutdown().await;
    assert_eq!((stats.counts.stopped, stats.running, stats.unanswered), (1, 0, 0));
    let stopped = hq.report("attempt.stopped", 2).await;
    assert!(matches!(stopped.event, TaskEvent::Stopped { attempt: 2 }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_is_told_what_happened_meanwhile() {
    let (mut hq, work) = (Hq::start().await, Work::new());
    let patient = TerminalConfig { request_timeout_ms: 30_000, run_watchdog: false, ..config("S1") };
    let terminal = hq.terminal(patient, work.registry(), Arc::new(MemoryJournal::new())).await;
    hq.dispatch(&terminal, "p", 1, "\"wait\"").await;
    hq.report("attempt.started", 1).await;
    // The answer to this one is cut off by the restart, long before its time-out.
    hq.answer_next([None]);
    work.release();
    let first = hq.report("attempt.succeeded", 1).await;
    hq.server.restart().await.unwrap();
    assert_eq!(hq.report("attempt.succeeded", 1).await.raw, first.raw);
    hq.sync().await;
    assert_eq!(terminal.shutdown().await.unanswered, 0);
}
