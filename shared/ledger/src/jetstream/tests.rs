//! Connecting to servers that are not there, too old, or refuse us.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use super::api::ApiError;
use super::connect::check_version;
use super::known::{Known, Seen};
use super::{ConnectOpts, JetStreamLedger};
use crate::port::LedgerError;

/// A server that says it has this version and answers everything with `answer`; its URL.
fn fake_server(version: &'static str, answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nats://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let info = format!(
            r#"INFO {{"server_id":"x","server_name":"x","version":"{version}","proto":1,"headers":true,"max_payload":1048576,"host":"127.0.0.1","port":4222}}"#
        );
        socket.write_all(format!("{info}\r\n").as_bytes()).unwrap();
        let mut buffer = [0; 4_096];
        while socket.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {
            if socket.write_all(answer.as_bytes()).is_err() {
                break;
            }
        }
    });
    url
}

async fn refusal(url: String) -> LedgerError {
    JetStreamLedger::connect(ConnectOpts::new(url, "test")).await.err().expect("it is refused")
}

#[tokio::test]
async fn an_old_server_is_refused_by_its_version() {
    let error = refusal(fake_server("2.11.9", "PONG\r\n")).await;
    assert!(matches!(&error, LedgerError::ServerTooOld { found, .. } if found == "2.11.9"), "{error}");
    assert_eq!(error.code(), "SERVER_TOO_OLD");
}

#[tokio::test]
async fn refused_credentials_are_no_outage() {
    let error = refusal(fake_server("2.15.1", "-ERR 'Authorization Violation'\r\n")).await;
    assert_eq!(error.code(), "UNAUTHORIZED", "{error}");
    assert!(!error.is_transient());
}

#[tokio::test]
async fn unreadable_credentials_are_named() {
    let mut opts = ConnectOpts::new("nats://127.0.0.1:1", "test");
    opts.creds_file = Some("no/such/file.creds".into());
    let error = JetStreamLedger::connect(opts).await.err().expect("it is refused");
    assert_eq!(error.code(), "UNAUTHORIZED");
    assert!(error.to_string().contains("no/such/file.creds"), "{error}");
}

#[tokio::test]
async fn no_server_is_said_with_the_url() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nats://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = refusal(url.clone()).await;
    assert_eq!(error.code(), "UNAVAILABLE");
    assert!(error.to_string().contains(&url), "{error}");
}

#[test]
fn versions_are_compared_by_number() {
    for fine in ["2.12.0", "2.15.1", "2.100.0", "3.0.0", "2.12.0-RC.1"] {
        check_version(fine).unwrap();
    }
    for old in ["2.9.25", "2.11.9", "1.4.1", "", "x"] {
        assert!(check_version(old).is_err(), "{old}");
    }
}

#[tokio::test(start_paused = true)]
async fn known_ids_are_bounded_in_number_and_time() {
    let mut known = Known::new(2, Duration::from_secs(60));
    known.note("a", 1, b"one");
    assert_eq!(known.seen("a", b"one"), Some(Seen::Same(1)));
    assert_eq!(known.seen("a", b"other"), Some(Seen::Other(1)));
    known.note("b", 2, b"");
    known.note("c", 3, b"");
    assert_eq!(known.seen("a", b"one"), None, "the oldest made room");
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(known.seen("c", b""), None, "the window is over");
}

#[test]
fn what_a_server_says_is_not_decided_is_no_answer() {
    let error = |text: &str| serde_json::from_str::<ApiError>(text).unwrap();
    // In a cluster: id in process, subject in process, no leader yet, no peers yet; and an error without a number.
    for undecided in ["10158", "10164", "10008", "10005", "10009", "10118"] {
        let error = error(&format!(r#"{{"code":503,"err_code":{undecided},"description":"x"}}"#));
        assert!(error.is_not_now() && !error.is_conflict() && !error.is_full(), "{undecided}");
    }
    assert!(error(r#"{"code":503,"description":"replication failed"}"#).is_not_now());
    let conflict = error(r#"{"code":400,"err_code":10071,"description":"wrong last sequence: 7"}"#);
    assert!(conflict.is_conflict() && !conflict.is_not_now());
    let full = error(r#"{"code":503,"err_code":10077,"description":"maximum bytes exceeded"}"#);
    assert!(full.is_full() && !full.is_not_now());
}
