//! What is special about the ledger in memory: its clock and its faults.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use futures::StreamExt;

use super::MemoryLedger;
use crate::port::{Append, Appended, Bus, Log, TailItem};

fn ledger() -> (MemoryLedger, Arc<AtomicI64>) {
    let clock = Arc::new(AtomicI64::new(1_000));
    let now = clock.clone();
    (MemoryLedger::new(Arc::new(move || now.load(Ordering::Relaxed)), 500), clock)
}

fn event(id: &str) -> Append {
    Append { subject: "ff.task.p.t.main.by.T".into(), id: id.into(), payload: Bytes::from_static(b"{}"), expect: None }
}

async fn append(ledger: &MemoryLedger, id: &str) -> Appended {
    ledger.append(vec![event(id)]).await.unwrap().remove(0)
}

#[tokio::test]
async fn the_duplicate_window_ends_by_the_clock() {
    let (ledger, clock) = ledger();
    assert_eq!(append(&ledger, "a").await, Appended::Stored { seq: 1 });
    clock.store(1_499, Ordering::Relaxed);
    assert_eq!(append(&ledger, "a").await, Appended::Duplicate { seq: 1 });
    clock.store(1_500, Ordering::Relaxed);
    assert_eq!(append(&ledger, "a").await, Appended::Stored { seq: 2 });
}

#[tokio::test]
async fn the_log_is_stamped_by_the_clock_and_never_backwards() {
    let (ledger, clock) = ledger();
    append(&ledger, "a").await;
    clock.store(900, Ordering::Relaxed);
    append(&ledger, "b").await;
    clock.store(2_000, Ordering::Relaxed);
    append(&ledger, "c").await;
    let messages: Vec<_> = ledger.read(vec![">".into()], 1, 9).await.unwrap().collect().await;
    let times: Vec<i64> = messages.into_iter().map(|message| message.unwrap().time_ms).collect();
    assert_eq!(times, [1_000, 1_000, 2_000]);
}

#[tokio::test]
async fn it_can_be_down_full_and_back() {
    let (ledger, _) = ledger();
    let mut tail = ledger.tail(1).await.unwrap();
    ledger.set_full(true);
    assert_eq!(ledger.append(vec![event("a")]).await.unwrap_err().code(), "LOG_FULL");
    ledger.set_full(false);
    ledger.set_down(true);
    assert_eq!(ledger.append(vec![event("a")]).await.unwrap_err().code(), "UNAVAILABLE");
    assert_eq!(ledger.last_seq().await.unwrap_err().code(), "UNAVAILABLE");
    ledger.set_down(false);
    assert_eq!(*ledger.connections().borrow(), 2);
    assert_eq!(append(&ledger, "a").await, Appended::Stored { seq: 1 });
    assert!(matches!(tail.next().await, Some(TailItem::Reconnected)));
    assert!(matches!(tail.next().await, Some(TailItem::Messages(batch)) if batch.len() == 1));
}

#[tokio::test(start_paused = true)]
async fn a_network_delays_repeats_reorders_and_loses() {
    let (ledger, _) = ledger();
    let mut heard = ledger.subscribe("a.*", None).await.unwrap();
    ledger.set_network(Some(Arc::new(|m| match m.subject.as_str() {
        "a.late" => vec![50],
        "a.twice" => vec![0, 30],
        "a.lost" => Vec::new(),
        _ => vec![0],
    })));
    for subject in ["a.late", "a.lost", "a.twice", "a.plain"] {
        ledger.publish(subject, Bytes::new()).await.unwrap();
    }
    ledger.set_network(None);
    let mut order = Vec::new();
    for _ in 0..4 {
        let message = tokio::time::timeout(std::time::Duration::from_secs(1), heard.next()).await;
        order.push(message.expect("in a second").unwrap().subject);
    }
    assert_eq!(order, ["a.twice", "a.plain", "a.twice", "a.late"]);
}
