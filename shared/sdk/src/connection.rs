//! Connecting as a terminal does: endless reconnecting with jitter, a clear error when the first connection fails.

use std::path::PathBuf;
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event};
use fanfold_wire::server_url::shown_url;
use rand::Rng;
use tokio::sync::watch;

use crate::connects::Connects;
use crate::error::TerminalError;

/// Shortest and longest pause before a reconnect, in milliseconds; drawn anew each time, so that thousands don't come at once.
const RECONNECT_MS: std::ops::RangeInclusive<u64> = 100..=1_500;

/// How to reach the server.
#[derive(Debug, Clone, Default)]
pub struct ConnectionOptions {
    /// `nats://host:port`, several divided by commas.
    pub url: String,
    /// Credentials file.
    pub creds: Option<PathBuf>,
    /// Name shown by the server.
    pub name: String,
    /// Prefix of inboxes, where the account's permissions ask for one: `_I.<terminal>`.
    pub inbox_prefix: Option<String>,
    /// Wait for a server that is not there yet instead of failing.
    pub wait_for_server: bool,
}

/// A connection that terminals share.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The client.
    pub client: Client,
    /// Word of its (re)connects.
    pub connects: Connects,
    /// Whether it stands; false until the first connect.
    pub stands: watch::Receiver<bool>,
}

/// Connects.
///
/// # Errors
/// [`TerminalError::Connect`]: nobody answers there, or the credentials are refused.
pub async fn connect(options: ConnectionOptions) -> Result<Connection, TerminalError> {
    let failed = |reason: String| TerminalError::Connect { url: shown_url(&options.url), reason };
    let base = ConnectOptions::new()
        .name(&options.name)
        .ping_interval(Duration::from_secs(5))
        .reconnect_delay_callback(|_| Duration::from_millis(rand::rng().random_range(RECONNECT_MS)));
    let (standing, stands) = watch::channel(false);
    let (mut base, connects) = Connects::hook(base, move |event| {
        tracing::debug!(%event, "nats");
        match event {
            Event::Connected => drop(standing.send_replace(true)),
            Event::Disconnected | Event::Closed => drop(standing.send_replace(false)),
            _ => {}
        }
    });
    if let Some(prefix) = &options.inbox_prefix {
        base = base.custom_inbox_prefix(prefix);
    }
    if let Some(path) = &options.creds {
        let text = std::fs::read_to_string(path).map_err(|e| failed(format!("{}: {e}", path.display())))?;
        base = base.credentials(&text).map_err(|e| failed(format!("{}: {e}", path.display())))?;
    }
    if options.wait_for_server {
        base = base.retry_on_initial_connect();
    }
    let servers: Vec<&str> = options.url.split(',').map(str::trim).collect();
    let client = base.connect(servers).await.map_err(|e| failed(e.to_string()))?;
    if options.wait_for_server {
        tokio::spawn(say_if_waiting(client.clone(), options.url.clone()));
    }
    Ok(Connection { client, connects, stands })
}

/// How long a first connection may take before it is said that it is waited for.
const SAID_AFTER: Duration = Duration::from_secs(3);

/// Says once that nobody answers, so that a mistyped URL does not look like a quiet day.
async fn say_if_waiting(client: Client, url: String) {
    tokio::time::sleep(SAID_AFTER).await;
    if client.connection_state() != async_nats::connection::State::Connected {
        tracing::error!(url = shown_url(&url), "no connection yet; waiting for the server (does nats-server run there?)");
    }
}
