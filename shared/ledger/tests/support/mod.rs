//! A real nats-server for the tests, and ledgers on it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code, unreachable_pub)]

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use fanfold_ledger::jetstream::{ConnectOpts, JetStreamLedger, ProvisionOpts};
use fanfold_ledger::port::{Append, Expect, Ledger, Log};
use fanfold_process::embedded::{EmbeddedServer, LocateOptions, locate};

pub async fn server_binary() -> PathBuf {
    tokio::task::spawn_blocking(|| locate(&LocateOptions::from_env(), &|_: &str| {}).expect("a nats-server").path).await.unwrap()
}

pub async fn server() -> EmbeddedServer {
    EmbeddedServer::ephemeral(server_binary().await).await.expect("the server starts")
}

pub async fn connect(server: &EmbeddedServer) -> JetStreamLedger {
    connect_with(server, |_| {}).await
}

pub async fn connect_with(server: &EmbeddedServer, adjust: impl FnOnce(&mut ConnectOpts)) -> JetStreamLedger {
    let mut opts = ConnectOpts::new(server.url(), "ledger-test");
    adjust(&mut opts);
    JetStreamLedger::connect(opts).await.expect("it connects")
}

/// A server with everything provisioned, and one connection.
pub async fn ready() -> (EmbeddedServer, JetStreamLedger) {
    let server = server().await;
    let ledger = connect(&server).await;
    ledger.provision(&ProvisionOpts::default()).await.expect("it is provisioned");
    (server, ledger)
}

pub fn shared(ledger: &JetStreamLedger) -> Arc<dyn Ledger> {
    Arc::new(ledger.clone())
}

/// A report of `size` bytes or a little more.
pub fn report(n: usize, size: usize) -> Append {
    let id = format!("p.t{n}.main/1/T1/progressed");
    let filler = "x".repeat(size.saturating_sub(140));
    let payload = format!(
        r#"{{"specversion":"1.0","id":"{id}","source":"test","type":"attempt.progressed","subject":"p.t{n}.main","data":{{"x":"{filler}"}}}}"#
    );
    Append { subject: format!("ff.task.p.t{n}.main.by.T1"), id, payload: Bytes::from(payload), expect: None }
}

/// The first decision about target `n`.
pub fn decision(n: usize) -> Append {
    let mut event = report(n, 400);
    event.subject = format!("ff.task.p.t{n}.main.hq.T1");
    event.id = format!("p.t{n}.main/dispatched/0");
    event.payload = Bytes::from(String::from_utf8_lossy(&event.payload).replace("/1/T1/progressed", "/dispatched/0"));
    event.expect = Some(Expect { filter: format!("ff.task.p.t{n}.main.hq.*"), last_seq: 0 });
    event
}

/// Ids and sequences of everything in the log under a filter.
pub async fn ids(ledger: &JetStreamLedger, filter: &str) -> Vec<(u64, String)> {
    use futures::StreamExt;
    let messages = ledger.read(vec![filter.into()], 1, u64::MAX).await.expect("read");
    messages.map(|message| message.map(|stored| (stored.seq, stored.id)).expect("a message")).collect().await
}

pub fn log_to_stderr() {
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_test_writer()
        .try_init();
}
