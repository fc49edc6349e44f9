//! Connecting: clear errors at the start, endless reconnecting afterwards.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_nats::{ConnectErrorKind, ConnectOptions, Event};
use fanfold_wire::server_url::shown_url;
use tokio::time::Instant;

use super::known::Known;
use super::{Inner, JetStreamLedger, Policy, SERVER_NEEDED, jittered_ms};
use crate::port::LedgerError;
use crate::watch;

/// Pause between two lines about messages that found no room.
const SAID_PAUSE: Duration = Duration::from_secs(10);

/// How to reach the server.
#[derive(Debug, Clone)]
pub struct ConnectOpts {
    /// `nats://host:port`, several divided by commas.
    pub url: String,
    /// Path of a credentials file, if the server asks for one.
    pub creds_file: Option<String>,
    /// Name of this connection, shown by the server.
    pub name: String,
    /// Prefix of the inboxes, where the account's permissions ask for one of its own.
    pub inbox_prefix: Option<String>,
    /// How long the first connection may take, in milliseconds.
    pub connect_timeout_ms: u64,
    /// How hard the ledger tries.
    pub policy: Policy,
}

impl ConnectOpts {
    /// Options for a URL, everything else at its default.
    pub fn new(url: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            creds_file: None,
            name: name.into(),
            inbox_prefix: None,
            connect_timeout_ms: 5_000,
            policy: Policy::default(),
        }
    }
}

impl JetStreamLedger {
    /// Connects, and refuses a server that is too old.
    ///
    /// # Errors
    /// `Unavailable` when nothing answers at the URL, `Unauthorized` when the credentials are refused or unreadable,
    /// `ServerTooOld`.
    pub async fn connect(opts: ConnectOpts) -> Result<Self, LedgerError> {
        let started = Instant::now();
        let (count, connections) = watch::channel(1_u64);
        let options = client_options(&opts, count)?;
        let servers: Vec<&str> = opts.url.split(',').map(str::trim).collect();
        let client = options.connect(servers).await.map_err(|error| connect_error(&opts, &error, started))?;
        check_version(&client.server_info().version)?;
        let policy = opts.policy.clone();
        let inner = Inner {
            client,
            connections,
            known: Mutex::new(Known::new(policy.known_ids_max, Duration::from_millis(policy.known_ids_ms))),
            sending: tokio::sync::Mutex::new(()),
            policy,
            nonce: format!("{:016x}", rand::random::<u64>()),
            names: AtomicU64::new(1),
            fence_numbers: AtomicU64::new(1),
            alone: tokio::sync::OnceCell::new(),
            damage: std::sync::Mutex::default(),
            outside: tokio::sync::OnceCell::new(),
            opts,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The connection terminals are heard on, made when it is first needed. What they send never stands in the way of the log's own
    /// traffic: a flood fills this connection's buffers, and acknowledgements and the tail come through the other one.
    pub(super) async fn outside(&self) -> Result<&async_nats::Client, LedgerError> {
        let connect = || async {
            let opts = ConnectOpts { name: format!("{}-outside", self.inner.opts.name), ..self.inner.opts.clone() };
            let started = Instant::now();
            // Nobody counts its reconnects: the tail's tell when a view may be old.
            let (count, _) = watch::channel(1_u64);
            let servers: Vec<&str> = opts.url.split(',').map(str::trim).collect();
            client_options(&opts, count)?.connect(servers).await.map_err(|error| connect_error(&opts, &error, started))
        };
        self.inner.outside.get_or_try_init(connect).await
    }

    /// The version the server says it has.
    pub fn server_version(&self) -> String {
        self.inner.client.server_info().version
    }
}

fn client_options(opts: &ConnectOpts, count: watch::Sender<u64>) -> Result<ConnectOptions, LedgerError> {
    let seen = AtomicU64::new(0);
    let errors = Errors::default();
    let mut options = ConnectOptions::new()
        .name(&opts.name)
        .connection_timeout(Duration::from_millis(opts.connect_timeout_ms))
        // A frozen server or a dead line is noticed after three of these.
        .ping_interval(Duration::from_secs(5))
        .reconnect_delay_callback(|_| jittered_ms(25, 200))
        .event_callback(move |event| {
            note(&event, &seen, &errors, &count);
            async {}
        });
    if let Some(prefix) = &opts.inbox_prefix {
        options = options.custom_inbox_prefix(prefix);
    }
    if let Some(path) = &opts.creds_file {
        let refused = |error: std::io::Error| LedgerError::Unauthorized(format!("{path}: {error}"));
        let text = std::fs::read_to_string(path).map_err(refused)?;
        options = options.credentials(&text).map_err(refused)?;
    }
    Ok(options)
}

fn note(event: &Event, seen: &AtomicU64, errors: &Errors, count: &watch::Sender<u64>) {
    match event {
        Event::Connected => {
            let connections = seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
            tracing::info!(connections, "nats.connected");
            count.send_if_modified(|current| std::mem::replace(current, connections) != connections);
        }
        Event::Disconnected => tracing::warn!("nats.disconnected"),
        Event::Closed | Event::Draining | Event::LameDuckMode => tracing::info!(%event, "nats.event"),
        // A denied publish or request looks like a time-out to its caller; here is the reason.
        Event::ServerError(_) | Event::ClientError(_) => tracing::warn!(%event, "nats.error"),
        // One for each message that finds no room: a flood must not become one of log lines.
        Event::SlowConsumer(_) => {
            if let Some(since_said) = errors.may_say() {
                tracing::warn!(%event, since_said, "messages came faster than they were taken; those without room are lost and sent again");
            }
        }
    }
}

/// When something that comes in floods was last said, and how often it was held back since.
#[derive(Default)]
struct Errors(Mutex<(Option<Instant>, u64)>);

impl Errors {
    fn may_say(&self) -> Option<u64> {
        let mut said = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if said.0.is_some_and(|at| at.elapsed() < SAID_PAUSE) {
            said.1 += 1;
            return None;
        }
        said.0 = Some(Instant::now());
        Some(std::mem::take(&mut said.1))
    }
}

fn connect_error(opts: &ConnectOpts, error: &async_nats::ConnectError, started: Instant) -> LedgerError {
    match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            LedgerError::Unauthorized(format!("{} said {error}", shown_url(&opts.url)))
        }
        _ => {
            let waited_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            LedgerError::Unavailable { waited_ms, reason: format!("no server at {}: {error}", shown_url(&opts.url)) }
        }
    }
}

/// Whether a server of this version has what is needed.
pub(super) fn check_version(found: &str) -> Result<(), LedgerError> {
    let number = |version: &str| {
        let mut parts = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    };
    if number(found) < number(SERVER_NEEDED) {
        return Err(LedgerError::ServerTooOld { found: found.to_owned(), needed: SERVER_NEEDED.to_owned() });
    }
    Ok(())
}
