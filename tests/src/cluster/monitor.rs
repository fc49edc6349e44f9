//! What servers say of themselves on their monitoring ports.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::NAMES;

/// A replica that was heard within this is there: servers of a group hear of each other every second.
const IN_TOUCH: Duration = Duration::from_millis(2_500);

/// Who says of itself that it leads the log and is in touch with another replica: one that has lost its quorum goes on calling itself
/// leader for a while.
pub(super) async fn leader_of_log(monitors: &[u16]) -> Option<usize> {
    for (index, port) in monitors.iter().enumerate() {
        let jsz = monitor(*port, "/jsz?accounts=true&streams=true").await.unwrap_or_default();
        let Some(log) = streams(&jsz).into_iter().find(|s| s["name"] == "FANFOLD") else { continue };
        let replicas = log.pointer("/cluster/replicas").and_then(Value::as_array).cloned().unwrap_or_default();
        let in_touch =
            |r: &Value| r["offline"] != true && r["active"].as_u64().is_some_and(|ns| u128::from(ns) < IN_TOUCH.as_nanos());
        if log.pointer("/cluster/leader").and_then(Value::as_str) == NAMES.get(index).copied() && replicas.iter().any(in_touch) {
            return Some(index);
        }
    }
    None
}

pub(super) fn streams(jsz: &Value) -> Vec<Value> {
    let accounts = jsz.get("account_details").and_then(Value::as_array).cloned().unwrap_or_default();
    accounts.iter().filter_map(|a| a.get("stream_detail").and_then(Value::as_array)).flatten().cloned().collect()
}

/// What a server's monitoring says; `None` when it doesn't answer.
pub(super) async fn monitor(port: u16, path: &str) -> Option<Value> {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    };
    tokio::time::timeout(Duration::from_secs(2), ask).await.ok()?
}
