//! One suite, every ledger: in memory, and on a real nats-server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use fanfold_ledger::conformance;
use fanfold_ledger::jetstream::{AppendMode, ProvisionOpts};
use fanfold_ledger::memory::MemoryLedger;
use fanfold_ledger::port::Ledger;
use tokio::time::Instant;

async fn run(one: Arc<dyn Ledger>, other: Arc<dyn Ledger>) {
    support::log_to_stderr();
    if let Err(failures) = conformance::run_all(one, other).await {
        panic!("not a ledger:\n{failures}");
    }
}

#[tokio::test]
async fn memory_is_a_ledger() {
    let clock = AtomicI64::new(1_767_225_600_000);
    let ledger = MemoryLedger::new(Arc::new(move || clock.fetch_add(1, Ordering::Relaxed)), 600_000);
    run(Arc::new(ledger.clone()), Arc::new(ledger)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jetstream_is_a_ledger() {
    let (server, one) = support::ready().await;
    let other = support::connect(&server).await;
    let started = Instant::now();
    run(Arc::new(one), Arc::new(other)).await;
    tracing::info!(elapsed_ms = started.elapsed().as_millis(), "conformance on jetstream");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jetstream_is_a_ledger_when_pipelining() {
    let server = support::server().await;
    let pipelined = |opts: &mut fanfold_ledger::jetstream::ConnectOpts| opts.policy.append_mode = AppendMode::Pipelined;
    let one = support::connect_with(&server, pipelined).await;
    one.provision(&ProvisionOpts::default()).await.unwrap();
    let other = support::connect_with(&server, pipelined).await;
    run(Arc::new(one), Arc::new(other)).await;
    server.stop().await;
}
