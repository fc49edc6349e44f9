//! What happens when the server dies, freezes, is full, is too old or is set up otherwise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use fanfold_ledger::jetstream::{JetStreamLedger, ProvisionOpts};
use fanfold_ledger::port::{Appended, Buckets, Bus, Fence, FencedError, LedgerError, Log, TailItem};
use fanfold_process::embedded::EmbeddedServer;
use futures::StreamExt;
use tokio::time::Instant;

use support::{decision, ids, report};

fn all_stored(answers: &[Appended]) -> bool {
    answers.iter().all(|answer| answer.stored_seq().is_some())
}

/// Every id once, and every answer's sequence where the log has it.
async fn assert_once(ledger: &JetStreamLedger, filter: &str, count: usize) {
    let stored = ids(ledger, filter).await;
    let distinct: BTreeSet<_> = stored.iter().map(|(_, id)| id).collect();
    assert_eq!((stored.len(), distinct.len()), (count, count), "stored, distinct");
}

/// Freezes the server for a while, as a machine does that swaps or is moved.
async fn freeze(server: &EmbeddedServer, for_ms: u64) {
    let signal = |name: &str| {
        let status = std::process::Command::new("kill").args([name, &server.pid().to_string()]).status().unwrap();
        assert!(status.success());
    };
    signal("-STOP");
    tokio::time::sleep(Duration::from_millis(for_ms)).await;
    signal("-CONT");
}

/// Follows the tail until it has seen `count` messages; how long it took to say anything after the last reconnect.
async fn follow(
    ledger: JetStreamLedger,
    count: usize,
    resumed: tokio::sync::watch::Receiver<Option<Instant>>,
) -> (u64, Option<Duration>) {
    let mut tail = ledger.tail(1).await.unwrap();
    let (mut seen, mut reconnects, mut silence) = (0, 0, None);
    while seen < count {
        match tail.next().await.expect("the tail never ends") {
            TailItem::Messages(batch) => {
                for message in batch {
                    seen += 1;
                    assert_eq!(message.seq, seen as u64, "in order, no gap, nothing twice");
                }
            }
            TailItem::Reconnected => {
                reconnects += 1;
                silence = resumed.borrow().map(|at: Instant| at.elapsed());
            }
            TailItem::Hole { from, to } => panic!("a hole {from}..{to}"),
        }
    }
    (reconnects, silence)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_loses_and_doubles_nothing() {
    support::log_to_stderr();
    let (server, ledger) = support::ready().await;
    let (resumed, watch) = tokio::sync::watch::channel(None);
    let tail = tokio::spawn(follow(ledger.clone(), 9_000, watch));
    let (progress, mut appended) = tokio::sync::watch::channel(0);
    let appender = tokio::spawn({
        let ledger = ledger.clone();
        async move {
            for call in 0..30 {
                let answers = ledger.append((0..300).map(|n| report(call * 300 + n, 400)).collect()).await.unwrap();
                assert!(all_stored(&answers), "{answers:?}");
                progress.send_replace(call);
            }
        }
    });
    for at in [5, 15] {
        appended.wait_for(|call| *call >= at).await.unwrap();
        server.kill().await;
        server.restart().await.unwrap();
        resumed.send_replace(Some(Instant::now()));
    }
    appender.await.unwrap();
    let (reconnects, silence) = tail.await.unwrap();
    assert_once(&ledger, "ff.task.p.>", 9_000).await;
    assert!(reconnects >= 2, "the tail says so: {reconnects}");
    assert!(silence.is_none_or(|silence| silence < Duration::from_secs(1)), "{silence:?} after the restart");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_loses_and_doubles_no_decision() {
    support::log_to_stderr();
    let (server, ledger) = support::ready().await;
    let (progress, mut appended) = tokio::sync::watch::channel(0);
    let appender = tokio::spawn({
        let ledger = ledger.clone();
        async move {
            let mut fence = ledger.acquire_fence("dispatcher", "i1").await.unwrap();
            for call in 0..30 {
                let answers =
                    ledger.append_fenced(&mut fence, (0..100).map(|n| decision(call * 100 + n)).collect()).await.unwrap();
                assert!(all_stored(&answers), "{answers:?}");
                progress.send_replace(call);
            }
            fence
        }
    });
    for at in [5, 15] {
        appended.wait_for(|call| *call >= at).await.unwrap();
        server.kill().await;
        server.restart().await.unwrap();
    }
    let fence = appender.await.unwrap();
    assert_once(&ledger, "ff.task.p.>", 3_000).await;
    assert_eq!(ids(&ledger, "ff.fence.*").await.last().unwrap().0, fence.last_seq);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_leaves_no_doubt() {
    support::log_to_stderr();
    let server = support::server().await;
    let ledger = support::connect_with(&server, |opts| opts.policy.ack_timeout_ms = 200).await;
    ledger.provision(&ProvisionOpts::default()).await.unwrap();
    let mut fence = ledger.acquire_fence("dispatcher", "i1").await.unwrap();
    // Several tries end without an answer, and every one of them is carried out when the server wakes up.
    let (reports, ()) = tokio::join!(ledger.append((0..500).map(|n| report(n, 400)).collect()), freeze(&server, 1_500));
    assert!(reports.unwrap().iter().all(|answer| matches!(answer, Appended::Stored { .. })));
    let (decisions, ()) = tokio::join!(ledger.append_fenced(&mut fence, (0..50).map(decision).collect()), freeze(&server, 1_500));
    assert!(decisions.unwrap().iter().all(|answer| matches!(answer, Appended::Stored { .. })));
    let (batch, ()) = tokio::join!(ledger.append_atomic((50..60).map(decision).collect()), freeze(&server, 1_500));
    assert!(matches!(batch.unwrap(), Appended::Stored { .. }));
    let (single, ()) = tokio::join!(ledger.append(vec![report(1_000, 400)]), freeze(&server, 1_500));
    assert!(matches!(single.unwrap().first(), Some(Appended::Stored { .. })));
    assert_once(&ledger, "ff.task.p.*.main.by.>", 501).await;
    assert_once(&ledger, "ff.task.p.*.main.hq.>", 60).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_of_an_earlier_call_that_was_given_up_is_recognised() {
    let (server, ledger) = support::ready().await;
    let mut fence = ledger.acquire_fence("dispatcher", "i1").await.unwrap();
    // As after a call that ended `Unavailable` although its batch was stored: the caller's fence is behind.
    let mut behind = Fence { role: fence.role.clone(), incarnation: fence.incarnation.clone(), ..fence };
    ledger.append_fenced(&mut fence, vec![decision(1)]).await.unwrap();
    let other = support::connect(&server).await;
    let stale = Fence { role: "dispatcher".into(), incarnation: "i2".into(), next: 0, last_seq: behind.last_seq };
    let answers = ledger.append_fenced(&mut behind, vec![decision(1), decision(2)]).await.unwrap();
    assert!(matches!(answers[..], [Appended::Duplicate { .. }, Appended::Stored { .. }]), "{answers:?}");
    let mut stale = stale;
    let outcome = other.append_fenced(&mut stale, vec![decision(3)]).await;
    assert!(matches!(outcome, Err(FencedError::Overtaken(role)) if role == "dispatcher"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_server_is_unavailable_in_time() {
    let server = support::server().await;
    let ledger = support::connect_with(&server, |opts| (opts.policy.budget_ms, opts.policy.ack_timeout_ms) = (600, 200)).await;
    ledger.provision(&ProvisionOpts::default()).await.unwrap();
    let mut fence = ledger.acquire_fence("dispatcher", "i1").await.unwrap();
    server.kill().await;
    let started = Instant::now();
    let error = ledger.append((0..10).map(|n| report(n, 400)).collect()).await.unwrap_err();
    assert_eq!(error.code(), "UNAVAILABLE");
    assert!(error.is_transient());
    let error = ledger.append_fenced(&mut fence, vec![decision(1)]).await.unwrap_err();
    assert!(matches!(error, FencedError::Ledger(LedgerError::Unavailable { waited_ms: 600.., .. })), "{error}");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    server.restart().await.unwrap();
    let mut connections = ledger.connections();
    connections.wait_for(|count| *count >= 2).await.unwrap();
    // What was given up may have been stored from the client's buffer meanwhile; sending it again is safe either way.
    assert!(all_stored(&ledger.append((0..10).map(|n| report(n, 400)).collect()).await.unwrap()));
    assert!(all_stored(&ledger.append_fenced(&mut fence, vec![decision(1)]).await.unwrap()));
    assert_once(&ledger, "ff.task.p.*.main.by.>", 10).await;
    assert_once(&ledger, "ff.task.p.*.main.hq.>", 1).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_log_says_so_and_loses_nothing() {
    support::log_to_stderr();
    let server = support::server().await;
    let ledger = support::connect(&server).await;
    ledger.provision(&ProvisionOpts { max_bytes: Some(200_000), ..ProvisionOpts::default() }).await.unwrap();
    let mut fence = ledger.acquire_fence("dispatcher", "i1").await.unwrap();
    let mut stored = 0;
    let error = loop {
        match ledger.append((stored..stored + 50).map(|n| report(n, 1_000)).collect()).await {
            Ok(answers) => {
                assert!(all_stored(&answers));
                stored += 50;
            }
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), "LOG_FULL", "{error}");
    assert!(stored >= 50);
    let filler: Vec<_> = (10_000..10_200).map(|n| report(n, 1_000)).collect();
    assert_eq!(ledger.append_atomic(filler.clone()).await.unwrap_err().code(), "LOG_FULL");
    let error = ledger.append_fenced(&mut fence, filler.clone()).await.unwrap_err();
    assert!(matches!(error, FencedError::Ledger(LedgerError::Full(_))), "{error}");
    let mut single = None;
    for event in filler {
        single = single.or(ledger.append(vec![event]).await.err());
    }
    assert_eq!(single.map(|error| error.code()), Some("LOG_FULL"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_differs_is_left_alone_and_named() {
    let server = support::server().await;
    let ledger = support::connect(&server).await;
    let other = ProvisionOpts { duplicate_window_ms: 700_000, ..ProvisionOpts::default() };
    ledger.provision(&other).await.unwrap();
    ledger.provision(&other).await.expect("the same again is fine");
    ledger.append(vec![report(1, 400)]).await.unwrap();
    let error = ledger.provision(&ProvisionOpts::default()).await.unwrap_err();
    assert!(
        matches!(&error, LedgerError::AssetMismatch { asset, field, found, .. }
            if asset == "FANFOLD" && field == "duplicate_window" && found == "700000000000"),
        "{error}"
    );
    let error = ledger.provision(&ProvisionOpts { max_bytes: Some(1), ..other.clone() }).await.unwrap_err();
    assert!(matches!(&error, LedgerError::AssetMismatch { field, .. } if field == "max_bytes"), "{error}");
    assert_once(&ledger, "ff.task.p.>", 1).await;
    let error = ledger.provision(&ProvisionOpts { duplicate_window_ms: 1_000, ..other }).await.unwrap_err();
    assert_eq!(error.code(), "LEDGER_ERROR", "{error}");
    server.stop().await;
}

/// Every record as it was last put.
async fn assert_records(ledger: &JetStreamLedger, count: usize, value: &str) {
    let records: Vec<_> = ledger.list_state("task.p.>").await.unwrap().collect().await;
    let keys: BTreeSet<String> = records.iter().map(|r| r.as_ref().unwrap().key.clone()).collect();
    assert_eq!(keys.len(), count);
    assert!(records.iter().all(|r| r.as_ref().unwrap().value == value), "each is the last one put");
}

fn records(count: usize, value: &str) -> Vec<(String, Bytes)> {
    (0..count).map(|n| (format!("task.p.t{n}.main"), Bytes::from(value.to_owned()))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_put_once_and_after_a_frozen_and_killed_server_all_are_as_they_were_put_last() {
    support::log_to_stderr();
    let (server, ledger) = support::ready().await;
    let before = ledger.state_extent().await.unwrap();
    ledger.put_state(records(2_600, "one")).await.unwrap();
    let after = ledger.state_extent().await.unwrap();
    assert_eq!(after.last_revision - before.last_revision, 2_600, "with acks for a few of them, each is sent once");
    assert_eq!(after.records - before.records, 2_600);
    let writer = tokio::spawn({
        let ledger = ledger.clone();
        async move {
            for round in 0..20 {
                ledger.put_state(records(2_600, &format!("round {round}"))).await.unwrap();
            }
        }
    });
    freeze(&server, 1_500).await;
    server.kill().await;
    server.restart().await.unwrap();
    writer.await.unwrap();
    // What was acknowledged before the kill may be gone, as in any bucket that is not synced; what is put afterwards is not.
    ledger.put_state(records(2_600, "last")).await.unwrap();
    assert_records(&ledger, 2_600, "last").await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_fits_no_message_is_refused_and_not_tried_for_ever() {
    let (server, ledger) = support::ready().await;
    let mut all = records(600, "small");
    all[300].1 = Bytes::from(vec![b'x'; ledger.max_payload() + 1]);
    let refused = tokio::time::timeout(Duration::from_secs(20), ledger.put_state(all)).await.expect("an answer");
    assert!(matches!(refused, Err(LedgerError::Other(_))), "{refused:?}");
    server.stop().await;
}
