//! The embedded server against a real nats-server; the first run on a machine fetches it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use fanfold_process::embedded::{
    ClusterConfig, EmbeddedConfig, EmbeddedServer, EmbeddedServers, LocateOptions, MIN_VERSION, locate,
};

/// Tests that need a port to be free once its listener is closed hold this alone: a child being
/// forked by another test keeps a copy of the listener for a moment.
static FORKING: tokio::sync::RwLock<()> = tokio::sync::RwLock::const_new(());

fn binary() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    let find = || {
        let found = locate(&LocateOptions::from_env(), &|note| {
            let _ = writeln!(std::io::stderr(), "{note}");
        });
        let found = found.unwrap_or_else(|error| panic!("{error}"));
        assert!(found.version.at_least(&MIN_VERSION), "{}", found.version);
        found.path
    };
    BINARY.get_or_init(find).clone()
}

/// Talks to the server as a client does: its greeting, then PING and PONG.
fn answers(url: &str) {
    let address = url.strip_prefix("nats://").unwrap();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let info = lines.next().unwrap().unwrap();
    assert!(info.starts_with("INFO {"), "{info}");
    assert!(info.contains("\"max_payload\":8388608"), "{info}");
    assert!(info.contains("\"jetstream\":true"), "{info}");
    (&stream).write_all(b"CONNECT {\"verbose\":false}\r\nPING\r\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "PONG");
}

fn monitor(url: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn exists(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn starts_answers_and_stops() {
    let _forking = FORKING.read().await;
    let started = Instant::now();
    let server = EmbeddedServer::ephemeral(binary()).await.unwrap();
    let ready_ms = started.elapsed().as_millis();
    answers(&server.url());
    let varz = monitor(&server.monitor_url(), "/varz");
    assert!(varz.contains("\"host\": \"127.0.0.1\""), "{varz}");
    assert!(varz.contains("\"sync_always\": true"), "{varz}");
    let (pid, data_dir) = (server.pid(), server.data_dir().to_owned());
    assert!(exists(pid) && data_dir.exists() && server.is_running());
    assert!(std::fs::metadata(server.log_file()).unwrap().len() > 0);

    let exit = server.stop().await;
    assert!(exit.expected, "{exit:?}");
    assert_eq!((exit.pid, exit.code), (pid, Some(0)));
    assert!(!exists(pid) && !data_dir.exists() && !server.is_running());
    assert_eq!(server.stop().await, exit);
    assert!(ready_ms < 30_000, "{ready_ms}");
}

#[tokio::test]
async fn a_drop_leaves_neither_process_nor_folder() {
    let _forking = FORKING.read().await;
    let server = EmbeddedServer::ephemeral(binary()).await.unwrap();
    let (pid, data_dir) = (server.pid(), server.data_dir().to_owned());
    let exited = server.exited();
    drop(server);
    assert!(!exists(pid) && !data_dir.exists());
    assert!(exited.await.expected);
}

#[tokio::test]
async fn a_second_server_on_the_same_folder_is_refused() {
    let _forking = FORKING.read().await;
    let dir = tempfile::tempdir().unwrap();
    let config = EmbeddedConfig::new(binary(), dir.path().join("data"));
    let first = EmbeddedServer::start(config.clone()).await.unwrap();
    let error = EmbeddedServer::start(config.clone()).await.unwrap_err();
    assert_eq!(error.code(), "DATA_DIR_LOCKED");
    let text = error.to_string();
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    assert!(text.contains(&first.pid().to_string()), "{text}");
    answers(&first.url());
    first.stop().await;
    // Stopped is free again, also while the handle is still there.
    let second = EmbeddedServer::start(config).await.unwrap();
    answers(&second.url());
}

#[tokio::test]
async fn a_crash_is_told_and_a_restart_keeps_ports_and_data() {
    let _forking = FORKING.read().await;
    let dir = tempfile::tempdir().unwrap();
    let config = EmbeddedConfig::new(binary(), dir.path());
    let server = EmbeddedServer::start(config).await.unwrap();
    let before = (server.url(), server.monitor_url(), server.pid());
    let marker = server.data_dir().join("store").join("marker");
    std::fs::write(&marker, "kept").unwrap();

    let exited = server.exited();
    server.kill().await;
    let exit = exited.await;
    assert!(!exit.expected);
    assert_eq!((exit.pid, exit.signal), (before.2, Some(9)));
    assert!(exit.log_tail.contains("Server is ready"), "{}", exit.log_tail);

    for _ in 0..2 {
        server.restart().await.unwrap();
        assert_eq!((server.url(), server.monitor_url()), (before.0.clone(), before.1.clone()));
        assert_ne!(server.pid(), before.2);
        answers(&server.url());
        assert_eq!(std::fs::read_to_string(&marker).unwrap(), "kept");
    }
    let config = EmbeddedConfig::new(binary(), dir.path());
    let error = EmbeddedServer::start(config).await.unwrap_err();
    assert_eq!(error.code(), "DATA_DIR_LOCKED", "a restart keeps the lock");
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let _forking = FORKING.write().await;
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let result = EmbeddedServer::ephemeral_with(binary(), |config| config.port = Some(port)).await;
    let error = result.unwrap_err();
    assert_eq!(error.code(), "NATS_PORT_IN_USE");
    assert!(error.to_string().contains(&port.to_string()), "{error}");
    drop(taken);
    let server = EmbeddedServer::ephemeral_with(binary(), |config| config.port = Some(port));
    assert_eq!(server.await.unwrap().port(), port);
}

#[tokio::test]
async fn a_server_that_ends_at_once_shows_its_last_lines() {
    let _forking = FORKING.read().await;
    // More than the server would buffer for a client: it refuses to start.
    let result = EmbeddedServer::ephemeral_with(binary(), |config| {
        config.max_payload_bytes = u32::MAX;
    });
    let error = result.await.unwrap_err();
    assert_eq!(error.code(), "NATS_SERVER_FAILED");
    let text = error.to_string();
    assert!(text.contains("exit code 1") && text.contains("max_payload"), "{text}");
}

#[tokio::test]
async fn unusable_folders_and_binaries_are_named() {
    let _forking = FORKING.read().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let config = EmbeddedConfig::new(binary(), file.join("data"));
    let error = EmbeddedServer::start(config).await.unwrap_err();
    assert_eq!(error.code(), "DATA_DIR_UNUSABLE");
    assert!(error.to_string().contains("file/data"), "{error}");

    let config = EmbeddedConfig::new(dir.path().join("no-binary"), dir.path().join("data"));
    let error = EmbeddedServer::start(config.clone()).await.unwrap_err();
    assert_eq!(error.code(), "NATS_SERVER_SPAWN");
    let error = EmbeddedServer::start(config).await.unwrap_err();
    assert_eq!(error.code(), "NATS_SERVER_SPAWN", "a failed start releases the lock");
}

#[tokio::test]
async fn three_members_make_a_cluster() {
    let _forking = FORKING.write().await;
    let dir = tempfile::tempdir().unwrap();
    let ports: Vec<u16> = (0..3).map(|_| free_port()).collect();
    let member = |index: usize| {
        let mut config = EmbeddedConfig::new(binary(), dir.path().join(format!("n{index}")));
        config.server_name = Some(format!("n{index}"));
        config.sync_always = false;
        config.cluster = Some(ClusterConfig { name: "hq".to_owned(), port: ports[index], route_ports: ports.clone() });
        EmbeddedServer::start(config)
    };
    // One alone is ready: that the others are away must not undo its start.
    let a = member(0).await.unwrap();
    answers(&a.url());
    let (b, c) = tokio::try_join!(member(1), member(2)).unwrap();
    for server in [&a, &b, &c] {
        answers(&server.url());
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let jsz = monitor(&server.monitor_url(), "/jsz");
            if jsz.contains("\"cluster_size\": 3") && jsz.contains("\"leader\": \"n") {
                break;
            }
            assert!(Instant::now() < deadline, "no cluster: {jsz}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test]
async fn a_cluster_comes_back_on_its_folder_and_ports() {
    let _forking = FORKING.write().await;
    let dir = tempfile::tempdir().unwrap();
    let config = EmbeddedConfig::new(binary(), dir.path());
    let first = EmbeddedServers::start(config.clone(), 3).await.unwrap();
    let shape = std::fs::read_to_string(dir.path().join("cluster.json")).unwrap();
    assert_eq!(first.urls().len(), 3);
    first.urls().iter().for_each(|url| answers(url));
    let locked = EmbeddedServers::start(config.clone(), 3).await.unwrap_err();
    assert_eq!(locked.code(), "DATA_DIR_LOCKED", "{locked}");
    let pids = first.pids();
    first.stop().await;
    assert!(!pids.iter().any(|pid| exists(*pid)), "{pids:?}");
    assert_eq!(EmbeddedServers::start(config.clone(), 1).await.unwrap_err().code(), "REPLICAS_DIFFER");
    let second = EmbeddedServers::start(config, 3).await.unwrap();
    second.urls().iter().for_each(|url| answers(url));
    assert_eq!(std::fs::read_to_string(dir.path().join("cluster.json")).unwrap(), shape, "the same name and route ports");
    second.stop().await;
}
