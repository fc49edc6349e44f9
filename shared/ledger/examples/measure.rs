//! Measures the ledger on a server of its own: appends, reads, tail, buckets. `cargo run --release --example measure`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)] // a tool for developers, not part of the product

use std::time::{Duration, Instant};

use bytes::Bytes;
use fanfold_ledger::jetstream::{AppendMode, ConnectOpts, JetStreamLedger, ProvisionOpts};
use fanfold_ledger::port::{Append, Buckets, Bus, Expect, Log, TailItem};
use fanfold_process::embedded::{EmbeddedServer, LocateOptions, locate};
use futures::StreamExt;

fn event(round: &str, n: usize, decision: bool) -> Append {
    let id = format!("{round}.t{n}.main/1/T{n}/succeeded");
    let filler = "x".repeat(250);
    let payload = format!(
        r#"{{"specversion":"1.0","id":"{id}","source":"measure","type":"x","subject":"p.t{n}.main","data":{{"x":"{filler}"}}}}"#
    );
    let side = if decision { "hq" } else { "by" };
    let filter = format!("ff.task.{round}.t{n}.main.hq.*");
    Append {
        subject: format!("ff.task.{round}.t{n}.main.{side}.T{n}"),
        id,
        payload: Bytes::from(payload),
        expect: decision.then_some(Expect { filter, last_seq: 0 }),
    }
}

fn report(what: &str, count: usize, started: Instant) {
    let elapsed = started.elapsed();
    println!("{what:<46} {count:>8} in {:>8.1} ms  {:>9.0}/s", elapsed.as_secs_f64() * 1e3, count as f64 / elapsed.as_secs_f64());
}

async fn appends(ledger: &JetStreamLedger, round: &str, count: usize, per_call: usize) {
    let events: Vec<_> = (0..count).map(|n| event(round, n, false)).collect();
    let started = Instant::now();
    for call in events.chunks(per_call) {
        ledger.append(call.to_vec()).await.unwrap();
    }
    report(&format!("append {round}, {per_call} a call"), count, started);
}

#[tokio::main]
async fn main() {
    let binary = locate(&LocateOptions::from_env(), &|_: &str| {}).unwrap().path;
    for sync_always in [true, false] {
        let server = EmbeddedServer::ephemeral_with(&binary, |config| config.sync_always = sync_always).await.unwrap();
        println!("sync_interval always: {sync_always}");
        let mut opts = ConnectOpts::new(server.url(), "measure");
        let ledger = JetStreamLedger::connect(opts.clone()).await.unwrap();
        ledger.provision(&ProvisionOpts::default()).await.unwrap();
        opts.policy.append_mode = AppendMode::Pipelined;
        let pipelined = JetStreamLedger::connect(opts).await.unwrap();
        appends(&ledger, "durable", 10_000, 10_000).await;
        appends(&ledger, "durable-100", 10_000, 100).await;
        appends(&pipelined, "pipelined", 10_000, 10_000).await;
        fenced(&ledger).await;
        appends(&ledger, "bulk", 200_000, 10_000).await;
        reading(&ledger).await;
        latency(&ledger).await;
        buckets(&ledger).await;
        server.stop().await;
    }
}

async fn fenced(ledger: &JetStreamLedger) {
    let mut fence = ledger.acquire_fence("dispatcher", "i").await.unwrap();
    let events: Vec<_> = (0..10_000).map(|n| event("fenced", n, true)).collect();
    let started = Instant::now();
    ledger.append_fenced(&mut fence, events).await.unwrap();
    report("append_fenced", 10_000, started);
    let started = Instant::now();
    for n in 0..100 {
        ledger.append_fenced(&mut fence, vec![event("fenced-single", n, true)]).await.unwrap();
    }
    report("append_fenced, 1 a call", 100, started);
}

async fn reading(ledger: &JetStreamLedger) {
    let last_seq = ledger.last_seq().await.unwrap();
    let started = Instant::now();
    let count = ledger.read(vec!["ff.task.bulk.>".into()], 1, last_seq).await.unwrap().count().await;
    report("read, one filter", count, started);
    let started = Instant::now();
    let mut tail = ledger.tail(1).await.unwrap();
    let mut count = 0;
    while count < last_seq as usize {
        if let TailItem::Messages(batch) = tail.next().await.unwrap() {
            count += batch.len();
        }
    }
    report("tail from the beginning", count, started);
}

async fn latency(ledger: &JetStreamLedger) {
    let mut tail = ledger.tail(ledger.last_seq().await.unwrap() + 1).await.unwrap();
    let mut waits = Vec::new();
    for n in 0..200 {
        ledger.append(vec![event("latency", n, false)]).await.unwrap();
        let acked = Instant::now();
        tail.next().await.unwrap();
        waits.push(acked.elapsed());
    }
    waits.sort();
    println!("tail behind the answer to an append: median {:?}, 99th {:?}", waits[100], waits[198]);
    let mut messages = ledger.subscribe("measure.x", None).await.unwrap();
    let started = Instant::now();
    ledger.publish("measure.x", Bytes::new()).await.unwrap();
    let _ = tokio::time::timeout(Duration::from_secs(5), messages.next()).await;
    report("bus round", 1, started);
}

async fn buckets(ledger: &JetStreamLedger) {
    let records: Vec<_> = (0..100_000).map(|n| (format!("task.p.t{n}.main"), Bytes::from(vec![b'x'; 600]))).collect();
    let started = Instant::now();
    for chunk in records.chunks(10_000) {
        ledger.put_state(chunk.to_vec()).await.unwrap();
    }
    report("put_state", 100_000, started);
    let started = Instant::now();
    let count = ledger.list_state("task.p.>").await.unwrap().count().await;
    report("list_state", count, started);
}
