//! What runs, how often, and what is said about it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fanfold_sdk::MemoryJournal;
use fanfold_sdk::wire::domain::event::TaskEvent;
use fanfold_sdk::wire::terminal::{HoldState, ReportStatus};

use crate::hq::{Hq, RECORDED, at, config, task};
use crate::work::Work;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_runs_once_however_often_it_comes() {
    let (mut hq, work) = (Hq::start().await, Work::new());
    let terminal = hq.terminal(config("S1"), work.registry(), Arc::new(MemoryJournal::new())).await;
    let beat = hq.beat(|_| true).await;
    assert_eq!((beat.identity.boot.as_str(), beat.identity.types.as_slice()), (terminal.boot_id(), &["work@1".to_owned()][..]));
    for _ in 0..3 {
        hq.dispatch(&terminal, "p", 1, "\"echo\"").await;
    }
    let done = hq.report("attempt.succeeded", 1).await;
    let TaskEvent::Succeeded { result, run_ms, .. } = &done.event else { panic!("{done:?}") };
    assert_eq!((result.get(), run_ms.is_some()), ("[\"echo\",1]", true));
    // Another task's end comes after whatever the repeats might have caused.
    hq.dispatch(&terminal, "p", 1, "\"echo\"").await;
    hq.dispatch(&terminal, "q", 2, "\"echo\"").await;
    hq.report("attempt.succeeded", 2).await;
    assert_eq!(
        (work.count(), hq.count("attempt.succeeded"), hq.count("attempt.started")),
        (2, 2, 0),
        "quick runs don't say that they started"
    );
    let stats = terminal.shutdown().await;
    assert_eq!((stats.counts.runs, stats.counts.duplicates, stats.unanswered), (2, 3, 0));
    assert!(hq.beat(|b| b.goodbye).await.holds.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_longer_run_says_that_it_started_and_is_listed() {
    let (mut hq, work) = (Hq::start().await, Work::new());
    let config = fanfold_sdk::TerminalConfig { beat_interval_ms: 50, sync_interval_ms: 50, ..config("S1") };
    let terminal = hq.terminal(config, work.registry(), Arc::new(MemoryJournal::new())).await;
    hq.dispatch(&terminal, "p", 1, "\"wait\"").await;
    hq.report("attempt.started", 1).await;
    hq.beat(|b| b.holds == [at("p", "S1", 1)]).await;
    while hq.sync().await.holds.iter().all(|h| h.state != HoldState::Running) {}
    work.release();
    hq.report("attempt.succeeded", 1).await;
    // Settled, then known by its number only, then asked about.
    while hq.sync().await.closed_plans != [task("p", "S1").plan] {}
    hq.answer_sync_next(|a| a.closed_plans = vec![task("p", "S1").plan]);
    let left = loop {
        let sync = hq.sync().await;
        if sync.closed_plans.is_empty() {
            break sync;
        }
    };
    assert!(left.holds.is_empty() && left.known_seq > 100);
    assert_eq!(terminal.shutdown().await.tasks, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_is_sent_until_it_is_answered_and_never_changes() {
    let (mut hq, work) = (Hq::start().await, Work::new());
    let terminal = hq.terminal(config("S1"), work.registry(), Arc::new(MemoryJournal::new())).await;
    let retry = Some((ReportStatus::Retry, None, Some("LOG_FULL")));
    let new = Some((ReportStatus::Refused, None, Some("A_NEWER_CODE")));
    hq.answer_next([None, retry, None, new, RECORDED]);
    hq.dispatch(&terminal, "p", 1, "\"echo\"").await;
    let first = hq.report("attempt.succeeded", 1).await;
    for _ in 0..4 {
        assert_eq!(hq.report("attempt.succeeded", 1).await.raw, first.raw);
    }
    hq.dispatch(&terminal, "q", 2, "\"echo\"").await;
    hq.report("attempt.succeeded", 2).await;
    assert_eq!((hq.count("attempt.succeeded"), work.count()), (6, 2));
    let stats = terminal.shutdown().await;
    assert_eq!((stats.report_requests_failed, stats.reports_retried, stats.reports_settled), (2, 2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_attempt_runs_only_when_the_one_before_has_ended() {
    let (mut hq, work) = (Hq::start().await, Work::new());
    let terminal = hq.terminal(config("S1"), work.registry(), Arc::new(MemoryJournal::new())).await;
    for (name, input) in [("p", "\"heed\""), ("q", "\"hang\"")] {
        hq.dispatch(&terminal, name, 1, input).await;
        work.started().await;
        hq.dispatch(&terminal, name, 2, "\"echo\"").await;
        hq.report("attempt.succeeded", 2).await;
        work.started().await;
    }
    assert_eq!((hq.count("attempt.stopped"), work.running_most.load(Ordering::SeqCst)), (2, 1));
    let ends: Vec<&str> = hq.seen.iter().map(|r| r.name.as_str()).filter(|n| *n != "attempt.started").collect();
    assert_eq!(ends, ["attempt.stopped", "attempt.succeeded", "attempt.stopped", "attempt.succeeded"]);
    terminal.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_success_that_beats_its_stop_goes_before_already_done() {
    let (mut hq, work) = (Hq::start().await, Work::new());
    let terminal = hq.terminal(config("S1"), work.registry(), Arc::new(MemoryJournal::new())).await;
    hq.dispatch(&terminal, "p", 1, "\"finish when told to end\"").await;
    hq.report("attempt.started", 1).await;
    hq.dispatch(&terminal, "p", 2, "\"echo\"").await;
    let rejected = hq.report("attempt.rejected", 2).await;
    assert_eq!((rejected.code(), rejected.index), ("ALREADY_DONE", 1), "in the same batch");
    assert_eq!((hq.count("attempt.succeeded"), work.count()), (1, 1));
    terminal.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_hands_out_and_stops() {
    let (mut hq, work) = (Hq::start().await, Work::new());
    let config = fanfold_sdk::TerminalConfig { sync_interval_ms: 50, ..config("S1") };
    let terminal = hq.terminal(config, work.registry(), Arc::new(MemoryJournal::new())).await;
    hq.answer_sync_next(|a| a.open = vec![hq.open(&terminal, "p", 3, "\"heed\"")]);
    work.started().await;
    hq.report("attempt.started", 3).await;
    hq.answer_sync_next(|a| {
        a.open = vec![hq.open(&terminal, "p", 3, "\"heed\"")];
        a.stop = vec![at("p", "S1", 3)];
    });
    hq.report("attempt.stopped", 3).await;
    assert_eq!(work.count(), 1);
    terminal.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_bad_end_has_its_code_and_the_terminal_lives_on() {
    let (mut hq, work) = (Hq::start().await, Work::new());
    let terminal = hq.terminal(config("S1"), work.registry(), Arc::new(MemoryJournal::new())).await;
    let cases = [
        ("\"panic\"", "attempt.failed", "HANDLER_PANIC"),
        ("\"fail\"", "attempt.failed", "STOCK_LOCKED"),
        ("\"big\"", "attempt.failed", "RESULT_TOO_LARGE"),
        ("\"hang\"", "attempt.failed", "TIMEOUT"),
        ("\"heed\"", "attempt.failed", "TIMEOUT"),
        ("\"bad\"", "attempt.rejected", "BAD_INPUT"),
        ("\"bad check\"", "attempt.rejected", "BAD_INPUT"),
        ("7", "attempt.failed", "BAD_INPUT"),
    ];
    for (attempt, (input, name, code)) in (1_u32..).zip(cases) {
        hq.dispatch(&terminal, "p", attempt, input).await;
        let report = hq.report(name, attempt).await;
        assert_eq!(report.code(), code, "{input}");
        assert!(report.raw.len() < 2000, "messages are cut");
    }
    hq.dispatch(&terminal, "p", 50, "\"steps\"").await;
    hq.report("attempt.succeeded", 50).await;
    let steps: Vec<u32> =
        hq.seen.iter().filter_map(|r| if let TaskEvent::Progressed { k, .. } = r.event { Some(k) } else { None }).collect();
    assert_eq!(steps, (0..64).collect::<Vec<_>>());
    terminal.shutdown().await;
}
