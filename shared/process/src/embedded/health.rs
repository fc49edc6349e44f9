//! Asking a server on this machine whether it is ready.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::config::Ports;

const ANSWER_WAIT: Duration = Duration::from_secs(2);
const ANSWER_BYTES_MAX: u64 = 4 * 1024;

#[derive(Deserialize)]
struct PortsFile {
    nats: Vec<String>,
    monitoring: Vec<String>,
}

/// The ports in a server's ports file; `None` while it is absent or half written.
pub(super) fn read_ports(path: &Path) -> Option<Ports> {
    let bytes = std::fs::read(path).ok()?;
    let file: PortsFile = serde_json::from_slice(&bytes).ok()?;
    Some(Ports { client: port_of(file.nats.first()?)?, monitor: port_of(file.monitoring.first()?)? })
}

fn port_of(url: &str) -> Option<u16> {
    url.rsplit_once(':')?.1.parse().ok()
}

/// What a server must have to count as ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    /// A single server: its streams are recovered.
    Streams,
    /// A member of a cluster: its JetStream is on. More than that takes a majority of the members, and this one's start must not
    /// fail, or be undone, because the others are away.
    Member,
}

/// The HTTP status of `/healthz`: 200 once the server is ready.
pub(super) async fn status(monitor_port: u16, ready: Ready) -> io::Result<u16> {
    let path = match ready {
        Ready::Streams => "/healthz",
        Ready::Member => "/healthz?js-enabled-only=true",
    };
    match tokio::time::timeout(ANSWER_WAIT, get(monitor_port, path)).await {
        Ok(status) => status,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn get(port: u16, path: &str) -> io::Result<u16> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
    parse_status(&answer).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn parse_status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split(' ');
    words.next().filter(|word| word.starts_with("HTTP/"))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn status_lines() {
        assert_eq!(parse_status(b"HTTP/1.0 200 OK\r\n\r\n{}"), Some(200));
        assert_eq!(parse_status(b"HTTP/1.1 503 Service Unavailable\r\n"), Some(503));
        assert_eq!(parse_status(b"INFO {\"server_id\"}\r\n"), None);
        assert_eq!(parse_status(b""), None);
    }

    #[test]
    fn ports_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.ports");
        assert_eq!(read_ports(&path), None);
        std::fs::write(&path, r#"{"nats":["nats://127.0.0.1:41"#).unwrap();
        assert_eq!(read_ports(&path), None);
        let whole = r#"{"nats":["nats://127.0.0.1:4111"],"monitoring":["http://127.0.0.1:4222"]}"#;
        std::fs::write(&path, whole).unwrap();
        let ports = read_ports(&path).unwrap();
        assert_eq!((ports.client, ports.monitor), (4111, 4222));
    }
}
