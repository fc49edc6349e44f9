//! Streams carried away and brought back by the server's own snapshots: onto one server, onto a cluster, and back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use fanfold_ledger::jetstream::{CARRIED, CarryError, ConnectOpts, JetStreamLedger, ProvisionOpts, StreamHead, compression_of};
use fanfold_ledger::port::{LedgerError, Log, Objects, Stored, Types};
use fanfold_process::embedded::{ClusterConfig, EmbeddedServer};
use futures::StreamExt;
use serde_json::{Map, Value, json};

use support::{decision, report};

/// A stream in memory: how it began, and its bytes.
struct Copy {
    head: StreamHead,
    bytes: Vec<u8>,
}

async fn copied(ledger: &JetStreamLedger, stream: &str) -> Copy {
    let mut bytes = Vec::new();
    let mut sink = |chunk: &[u8]| {
        bytes.extend_from_slice(chunk);
        Ok(())
    };
    let head = ledger.snapshot_stream(stream, &mut sink).await.unwrap_or_else(|e| panic!("{stream}: {e}"));
    Copy { head, bytes }
}

async fn brought_back(ledger: &JetStreamLedger, copy: &Copy, replicas: u32) -> Result<(), CarryError> {
    let mut config: Map<String, Value> = copy.head.config.as_object().unwrap().clone();
    let name = config["name"].as_str().unwrap().to_owned();
    config.insert("num_replicas".into(), json!(replicas));
    config.insert("compression".into(), json!(compression_of(&name, replicas)));
    let mut rest = copy.bytes.as_slice();
    let mut source = |chunk: &mut Vec<u8>| {
        let (now, later) = rest.split_at(rest.len().min(100_000));
        chunk.extend_from_slice(now);
        rest = later;
        Ok(())
    };
    let state = ledger.restore_stream(&config, &copy.head.state, &mut source).await?;
    assert!(state.last_seq >= copy.head.summary.last_seq && state.messages >= copy.head.summary.messages, "{state:?}");
    Ok(())
}

async fn everything(ledger: &JetStreamLedger) -> Vec<(u64, i64, String, String, Bytes)> {
    let last = ledger.last_seq().await.unwrap();
    let read = ledger.read(vec!["ff.>".into()], 1, last).await.unwrap();
    let facts = |m: Stored| (m.seq, m.time_ms, m.subject, m.id, m.payload);
    read.map(|m| facts(m.unwrap())).collect().await
}

async fn cluster() -> Vec<EmbeddedServer> {
    let binary = support::server_binary().await;
    let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<u16> = listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
    drop(listeners);
    let start = |n: usize| {
        let cluster = ClusterConfig { name: "snap".into(), port: ports[n], route_ports: ports.clone() };
        EmbeddedServer::ephemeral_with(binary.clone(), move |config| {
            config.server_name = Some(format!("s{n}"));
            config.cluster = Some(cluster);
            config.sync_always = false;
        })
    };
    let (one, two, three) = tokio::join!(start(0), start(1), start(2));
    vec![one.unwrap(), two.unwrap(), three.unwrap()]
}

/// Waits, within a bound of tries that each have their own, until a cluster has elected its leaders.
async fn elected(ledger: &JetStreamLedger) {
    for _ in 0..60 {
        if ledger.stream_state("NO_SUCH_STREAM").await.is_ok_and(|found| found.is_none()) {
            return;
        }
    }
    panic!("the cluster has no leader");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_come_back_message_by_message_on_one_server_on_three_and_back() {
    let (_one, ledger) = support::ready().await;
    ledger.append((0..3_000).map(|n| report(n, 600)).collect()).await.unwrap();
    ledger.append((0..50).map(decision).collect()).await.unwrap();
    ledger.create_type("probe", 1, Bytes::from_static(b"{}")).await.unwrap();
    let large = Bytes::from(vec![7; 3 << 20]);
    ledger.put_object("large", large.clone()).await.unwrap();
    let before = everything(&ledger).await;

    let mut copies = Vec::new();
    for stream in CARRIED {
        copies.push(copied(&ledger, stream).await);
    }
    let servers = cluster().await;
    let urls: Vec<String> = servers.iter().map(EmbeddedServer::url).collect();
    let three = JetStreamLedger::connect(ConnectOpts::new(urls.join(","), "snapshot-test")).await.unwrap();
    elected(&three).await;
    for copy in copies.iter().rev() {
        brought_back(&three, copy, 3).await.unwrap_or_else(|e| panic!("onto three servers: {e}"));
    }
    three.provision(&ProvisionOpts { replicas: 3, ..ProvisionOpts::default() }).await.expect("what came back is as defined");
    assert_eq!(everything(&three).await, before, "sequences, times, subjects, ids and bytes");
    assert_eq!(three.get_object("large").await.unwrap(), Some(large.clone()));
    // Expectations hold: a decision said again is recognised. Message ids the server may have forgotten (it had, on three servers):
    // a report said again may be stored again, and the fold absorbs it.
    let again = three.append(vec![decision(7)]).await.unwrap();
    assert!(again.iter().all(|a| matches!(a, fanfold_ledger::port::Appended::Duplicate { .. })), "{again:?}");

    let mut back = Vec::new();
    for stream in CARRIED {
        back.push(copied(&three, stream).await);
    }
    let server = support::server().await;
    let single = support::connect(&server).await;
    for copy in back.iter().rev() {
        brought_back(&single, copy, 1).await.unwrap_or_else(|e| panic!("back onto one server: {e}"));
    }
    single.provision(&ProvisionOpts::default()).await.expect("what came back is as defined");
    assert_eq!(everything(&single).await, before);
    assert_eq!(single.get_object("large").await.unwrap(), Some(large));
    assert_eq!(single.get_type("probe", 1).await.unwrap(), Some(Bytes::from_static(b"{}")));

    let error = brought_back(&single, &back[0], 1).await.expect_err("there is such a stream");
    assert!(matches!(error, CarryError::Ledger(LedgerError::Other(_))), "{error}");
    let other = support::server().await;
    let other = (support::connect(&other).await, other);
    let error = brought_back(&other.0, &back[0], 3).await.expect_err("one server has no three replicas");
    assert!(matches!(error, CarryError::Ledger(LedgerError::Other(_))), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_taken_while_messages_come_in_is_a_beginning_of_the_log() {
    let (_server, ledger) = support::ready().await;
    ledger.append((0..500).map(|n| report(n, 600)).collect()).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (writer, stopped) = (ledger.clone(), Arc::clone(&stop));
    let writing = tokio::spawn(async move {
        let mut n = 500;
        while !stopped.load(Ordering::Relaxed) && n < 200_000 {
            writer.append((n..n + 50).map(|n| report(n, 600)).collect()).await.unwrap();
            n += 50;
        }
    });
    let mut copies = Vec::new();
    for _ in 0..5 {
        copies.push(copied(&ledger, "FANFOLD").await);
    }
    stop.store(true, Ordering::Relaxed);
    writing.await.unwrap();
    let all = everything(&ledger).await;
    for copy in &copies {
        let server = support::server().await;
        let there = support::connect(&server).await;
        brought_back(&there, copy, 1).await.unwrap();
        let came = everything(&there).await;
        assert!(came.len() as u64 >= copy.head.summary.messages && came.len() >= 500);
        assert_eq!(came.as_slice(), &all[..came.len()], "from #1 on, without a gap");
    }
    assert!(copies[4].head.summary.last_seq > copies[0].head.summary.last_seq, "messages came in between");
}
