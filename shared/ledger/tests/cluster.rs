//! The same suite on three replicated servers, and what a cluster adds: leaders that are deposed or die, a quorum that is lost, replicas
//! that are behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanfold_ledger::conformance;
use fanfold_ledger::jetstream::{AppendMode, ConnectOpts, JetStreamLedger, ProvisionOpts};
use fanfold_ledger::port::{Append, Appended, Buckets, Expect, Log, Objects, TailItem};
use fanfold_process::embedded::{EmbeddedConfig, EmbeddedServer, EmbeddedServers};
use futures::StreamExt;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::Instant;

use support::{decision, ids, report};

/// Clusters run one at a time: three servers and their elections are enough for a small machine.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// How long an election and what follows it may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

async fn cluster() -> (EmbeddedServers, TempDir) {
    support::log_to_stderr();
    let folder = tempfile::tempdir().unwrap();
    let mut config = EmbeddedConfig::new(support::server_binary().await, folder.path());
    // What is tested is the replication; three servers that sync to one disk only make it slow.
    config.sync_always = false;
    let servers = EmbeddedServers::start(config, 3).await.unwrap();
    (servers, folder)
}

async fn connect(servers: &EmbeddedServers, adjust: impl FnOnce(&mut ConnectOpts)) -> JetStreamLedger {
    let mut opts = ConnectOpts::new(servers.url(), "cluster-test");
    adjust(&mut opts);
    JetStreamLedger::connect(opts).await.unwrap()
}

/// Everything provisioned with three replicas, at the first try: that the cluster elects its leaders meanwhile is no error.
async fn ready(servers: &EmbeddedServers) -> JetStreamLedger {
    let ledger = connect(servers, |_| {}).await;
    ledger.provision(&ProvisionOpts { replicas: 3, ..ProvisionOpts::default() }).await.unwrap();
    ledger
}

async fn ask(servers: &EmbeddedServers, api: &str) -> Option<Value> {
    let client = async_nats::connect(servers.urls()).await.ok()?;
    let answer = tokio::time::timeout(Duration::from_secs(2), client.request(format!("$JS.API.{api}"), "".into())).await;
    serde_json::from_slice(&answer.ok()?.ok()?.payload).ok()
}

async fn leader(servers: &EmbeddedServers) -> Arc<EmbeddedServer> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let info = ask(servers, "STREAM.INFO.FANFOLD").await.unwrap_or_default();
        let name = info.pointer("/cluster/leader").and_then(Value::as_str).unwrap_or_default();
        if let Some(at) = ["n1", "n2", "n3"].iter().position(|n| *n == name) {
            return Arc::clone(&servers.members()[at]);
        }
        assert!(Instant::now() < deadline, "no leader: {info}");
    }
}

async fn step_down(servers: &EmbeddedServers) {
    let deadline = Instant::now() + PATIENCE;
    while ask(servers, "STREAM.LEADER.STEPDOWN.FANFOLD").await.is_none_or(|answer| answer["success"] != true) {
        assert!(Instant::now() < deadline, "nobody steps down");
    }
}

fn signal(server: &EmbeddedServer, name: &str) {
    let status = std::process::Command::new("kill").args([name, &server.pid().to_string()]).status().unwrap();
    assert!(status.success());
}

async fn assert_once(ledger: &JetStreamLedger, filter: &str, count: usize) {
    let stored = ids(ledger, filter).await;
    let distinct: BTreeSet<_> = stored.iter().map(|(_, id)| id).collect();
    assert_eq!((stored.len(), distinct.len()), (count, count), "stored, distinct under {filter}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_a_ledger_and_survives_the_loss_of_a_server() {
    let _alone = ALONE.lock().await;
    let (servers, _folder) = cluster().await;
    let one = ready(&servers).await;
    let other = connect(&servers, |_| {}).await;
    if let Err(failures) = conformance::run_all(Arc::new(one.clone()), Arc::new(other)).await {
        panic!("not a ledger:\n{failures}");
    }
    let before = one.last_seq().await.unwrap();
    servers.members()[2].kill().await;
    let answers = one.append((0..2_000).map(|n| report(n, 400)).collect()).await.unwrap();
    assert!(answers.iter().all(|answer| answer.stored_seq().is_some()));
    assert_once(&one, "ff.task.p.>", 2_000).await;
    assert!(one.last_seq().await.unwrap() >= before + 2_000);
    servers.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_replicated_definitions_differ_where_they_must() {
    let _alone = ALONE.lock().await;
    let (servers, _folder) = cluster().await;
    let ledger = ready(&servers).await;
    for stream in ["FANFOLD", "FANFOLD_TYPES", "KV_fanfold-state", "KV_fanfold-terminals", "OBJ_fanfold-artifacts"] {
        let info = ask(&servers, &format!("STREAM.INFO.{stream}")).await.unwrap();
        assert_eq!(info["config"]["num_replicas"], 3, "{stream}");
        assert_ne!(info["config"]["persist_mode"], "async", "{stream}");
        assert_ne!(info["config"]["compression"], "s2", "{stream}");
    }
    let error = ledger.provision(&ProvisionOpts::default()).await.unwrap_err();
    assert_eq!(error.code(), "ASSET_MISMATCH");
    assert!(error.to_string().contains("num_replicas"), "{error}");
    servers.stop().await;
}

/// Decision `k` about target `n` by `writer`: all of them expect the same.
fn claim(n: usize, writer: usize, last_seq: u64) -> Append {
    let mut event = decision(n);
    event.subject = format!("ff.task.p.t{n}.main.hq.W{writer}");
    event.id = format!("p.t{n}.main/claimed-by-{writer}/{last_seq}");
    event.payload = Bytes::from(
        String::from_utf8_lossy(&event.payload).replace("/dispatched/0", &format!("/claimed-by-{writer}/{last_seq}")),
    );
    event.expect = Some(Expect { filter: format!("ff.task.p.t{n}.main.hq.*"), last_seq });
    event
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_expect_the_same_exactly_one_wins() {
    let _alone = ALONE.lock().await;
    let (servers, _folder) = cluster().await;
    ready(&servers).await;
    let mut writers = Vec::new();
    for _ in 0..4 {
        writers.push(connect(&servers, |_| {}).await);
    }
    for round in 0..60 {
        let claims = writers.iter().enumerate().map(|(w, ledger)| ledger.append(vec![claim(round, w, 0)]));
        let depose = async {
            if round % 20 == 10 {
                step_down(&servers).await;
            }
        };
        let (answers, ()) = tokio::join!(futures::future::join_all(claims), depose);
        let answers: Vec<Appended> = answers.into_iter().flat_map(Result::unwrap).collect();
        let won = answers.iter().filter(|a| matches!(a, Appended::Stored { .. })).count();
        let lost = answers.iter().filter(|a| matches!(a, Appended::Conflict)).count();
        assert_eq!((won, lost), (1, 3), "round {round}: {answers:?}");
        assert_once(&writers[0], &format!("ff.task.p.t{round}.main.hq.*"), 1).await;
    }
    servers.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_again_after_a_leader_stepped_down_is_stored_once() {
    let _alone = ALONE.lock().await;
    let (servers, _folder) = cluster().await;
    let batches = ready(&servers).await;
    let singles = connect(&servers, |opts| opts.policy.append_mode = AppendMode::Pipelined).await;
    let (over, ended) = watch::channel(false);
    let append = async |ledger: &JetStreamLedger, from: usize| {
        let mut calls = 0;
        while !*ended.borrow() {
            let first = from + calls * 20;
            let answers = ledger.append((first..first + 20).map(|n| report(n, 200)).collect()).await.unwrap();
            assert!(answers.iter().all(|a| matches!(a, Appended::Stored { .. })), "{answers:?}");
            calls += 1;
        }
        calls * 20
    };
    let depose = async {
        for _ in 0..8 {
            step_down(&servers).await;
            // Somebody has to lead again before anybody can be deposed.
            leader(&servers).await;
        }
        over.send_replace(true);
    };
    let (one, two, ()) = tokio::join!(append(&batches, 0), append(&singles, 1_000_000), depose);
    assert!(one >= 100 && two >= 100, "{one} and {two} appended meanwhile");
    assert_once(&batches, "ff.task.p.>", one + two).await;
    servers.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_quorum_nothing_is_decided_and_afterwards_everything_once() {
    let _alone = ALONE.lock().await;
    let (servers, _folder) = cluster().await;
    let ledger = ready(&servers).await;
    let mut fence = ledger.acquire_fence("dispatcher", "i1").await.unwrap();
    let before = ledger.put_checkpoint(Bytes::from_static(b"one"), 0).await.unwrap().unwrap();
    let lead = leader(&servers).await;
    let others: Vec<_> = servers.members().iter().filter(|m| m.pid() != lead.pid()).collect();
    for other in &others {
        other.kill().await;
    }
    // Each of these is taken by the leader, which can't get it replicated: no answer, then "in process" for what is sent again.
    let outage = async {
        tokio::time::sleep(Duration::from_secs(6)).await;
        for other in &others {
            other.restart().await.unwrap();
        }
    };
    let (fenced, batch, single, atomic, checkpoint, ()) = tokio::join!(
        ledger.append_fenced(&mut fence, (0..30).map(decision).collect()),
        ledger.append((0..30).map(|n| report(n, 400)).collect()),
        ledger.append(vec![claim(100, 1, 0)]),
        ledger.append_atomic((200..210).map(decision).collect()),
        ledger.put_checkpoint(Bytes::from_static(b"two"), before),
        outage
    );
    let stored = |answers: &[Appended]| answers.iter().all(|a| matches!(a, Appended::Stored { .. }));
    let (fenced, batch, single, atomic) = (fenced.unwrap(), batch.unwrap(), single.unwrap(), atomic.unwrap());
    assert!(stored(&fenced), "{fenced:?}");
    assert!(stored(&batch), "{batch:?}");
    assert!(stored(&single), "{single:?}");
    assert!(matches!(atomic, Appended::Stored { .. }), "{atomic:?}");
    assert!(checkpoint.unwrap().is_some_and(|revision| revision > before));
    assert_once(&ledger, "ff.task.p.*.main.hq.*", 41).await;
    assert_once(&ledger, "ff.task.p.*.main.by.*", 30).await;
    assert_eq!(ids(&ledger, "ff.fence.*").await.last().unwrap().0, fence.last_seq);
    servers.stop().await;
}

/// Follows the tail until it has seen `count` messages in order; the longest silence.
async fn follow(ledger: JetStreamLedger, count: u64) -> (Duration, u64) {
    let mut tail = ledger.tail(1).await.unwrap();
    let (mut seen, mut silence, mut heard, mut lost) = (0, Duration::ZERO, Instant::now(), 0);
    while seen < count {
        let item = tokio::time::timeout(PATIENCE, tail.next()).await;
        match item.unwrap_or_else(|_| panic!("silent behind #{seen}")).expect("the tail never ends") {
            TailItem::Messages(batch) => {
                for message in batch {
                    seen += 1;
                    assert_eq!(message.seq, seen, "in order, no gap, nothing twice");
                }
                silence = silence.max(heard.elapsed());
                heard = Instant::now();
            }
            TailItem::Reconnected => lost += 1,
            TailItem::Hole { from, to } => panic!("a hole {from}..{to}"),
        }
    }
    (silence, lost)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tail_goes_on_when_leaders_are_deposed() {
    let _alone = ALONE.lock().await;
    let (servers, _folder) = cluster().await;
    let ledger = ready(&servers).await;
    let tail = tokio::spawn(follow(connect(&servers, |_| {}).await, 4_000));
    let append = async {
        for call in 0..80 {
            ledger.append((call * 50..call * 50 + 50).map(|n| report(n, 400)).collect()).await.unwrap();
        }
    };
    let depose = async {
        for _ in 0..4 {
            step_down(&servers).await;
            leader(&servers).await;
        }
    };
    tokio::join!(append, depose);
    let (silence, lost) = tokio::time::timeout(PATIENCE, tail).await.unwrap().unwrap();
    assert!(silence < Duration::from_secs(2), "{silence:?} without a word, {lost} times lost");
    assert!(lost <= 8, "lost {lost} times in four disturbances");
    servers.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tail_goes_on_where_nobody_can_make_a_consumer() {
    let _alone = ALONE.lock().await;
    let (servers, _folder) = cluster().await;
    let ledger = ready(&servers).await;
    let count = 40_000;
    let mut tail = ledger.tail(1).await.unwrap();
    for call in 0..40 {
        ledger.append((call * 1_000..call * 1_000 + 1_000).map(|n| report(n, 200)).collect()).await.unwrap();
    }
    // Two of three are gone: no leader of the cluster, no leader of the stream, one replica.
    let last = leader(&servers).await;
    for other in servers.members().iter().filter(|m| m.pid() != last.pid()) {
        other.kill().await;
    }
    let mut seen = 0;
    while seen < count {
        let item = tokio::time::timeout(PATIENCE, tail.next()).await;
        if let TailItem::Messages(batch) = item.unwrap_or_else(|_| panic!("silent behind #{seen}")).expect("it never ends") {
            for message in batch {
                seen += 1;
                assert_eq!(message.seq, seen);
            }
        }
    }
    servers.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_behind_makes_no_reader_believe_that_something_is_absent() {
    let _alone = ALONE.lock().await;
    let (servers, _folder) = cluster().await;
    let ledger = ready(&servers).await;
    let lead = leader(&servers).await;
    let behind = servers.members().iter().find(|m| m.pid() != lead.pid()).unwrap();
    let document = Bytes::from((0..400_000_u32).map(|n| (n % 251) as u8).collect::<Vec<_>>());
    for round in 0..6_usize {
        signal(behind, "-STOP");
        let records = (0..400).map(|n| (format!("store.r{round}-{n}"), Bytes::from_static(b"{}"))).collect();
        // Whoever is connected to the frozen server moves on when its pings stay unanswered.
        ledger.put_terminals(records).await.unwrap();
        let name = format!("object-{round}");
        ledger.put_object(&name, document.clone()).await.unwrap();
        ledger.append((round * 500..round * 500 + 500).map(|n| report(n, 400)).collect()).await.unwrap();
        signal(behind, "-CONT");
        let listed: Vec<_> = ledger.list_terminals("store.>").await.unwrap().collect().await;
        assert_eq!(listed.into_iter().map(Result::unwrap).count(), (round + 1) * 400, "round {round}");
        assert_eq!(ledger.get_object(&name).await.unwrap().as_ref(), Some(&document), "round {round}");
        assert_once(&ledger, "ff.task.p.>", (round + 1) * 500).await;
        assert!(ledger.get_terminal(&format!("store.r{round}-399")).await.unwrap().is_some(), "round {round}");
    }
    servers.stop().await;
}
