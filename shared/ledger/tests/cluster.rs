//! The same suite on three replicated servers, and the loss of one of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::net::TcpListener;
use std::sync::Arc;

use fanfold_ledger::conformance;
use fanfold_ledger::jetstream::{ConnectOpts, JetStreamLedger, ProvisionOpts};
use fanfold_ledger::port::{LedgerError, Log};
use fanfold_process::embedded::{ClusterConfig, EmbeddedServer};

use support::report;

async fn cluster() -> Vec<EmbeddedServer> {
    let binary = support::server_binary().await;
    // All are held at once, so the three differ.
    let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<u16> = listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
    drop(listeners);
    let start = |n: usize| {
        let cluster = ClusterConfig { name: "c".into(), port: ports[n], route_ports: ports.clone() };
        EmbeddedServer::ephemeral_with(binary.clone(), move |config| {
            config.server_name = Some(format!("n{n}"));
            config.cluster = Some(cluster);
            config.sync_always = false;
        })
    };
    let (one, two, three) = tokio::join!(start(0), start(1), start(2));
    vec![one.unwrap(), two.unwrap(), three.unwrap()]
}

async fn connect(servers: &[&EmbeddedServer]) -> JetStreamLedger {
    let urls: Vec<String> = servers.iter().map(|server| server.url()).collect();
    JetStreamLedger::connect(ConnectOpts::new(urls.join(","), "cluster-test")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_a_ledger_and_survives_the_loss_of_a_server() {
    support::log_to_stderr();
    let servers = cluster().await;
    let one = connect(&[&servers[0], &servers[1]]).await;
    let opts = ProvisionOpts { replicas: 3, ..ProvisionOpts::default() };
    // The cluster elects its leaders first; every try is bounded by the budget.
    let mut provisioned = one.provision(&opts).await;
    for _ in 0..3 {
        match provisioned {
            Err(LedgerError::Unavailable { .. } | LedgerError::Other(_)) => provisioned = one.provision(&opts).await,
            _ => break,
        }
    }
    provisioned.unwrap();
    let other = connect(&[&servers[1], &servers[0]]).await;
    if let Err(failures) = conformance::run_all(Arc::new(one.clone()), Arc::new(other)).await {
        panic!("not a ledger:\n{failures}");
    }
    servers[2].kill().await;
    let answers = one.append((0..2_000).map(|n| report(n, 400)).collect()).await.unwrap();
    assert!(answers.iter().all(|answer| answer.stored_seq().is_some()));
    assert_eq!(support::ids(&one, "ff.task.p.>").await.len(), 2_000);
    assert!(one.last_seq().await.unwrap() >= 2_000);
    for server in &servers {
        server.stop().await;
    }
}
