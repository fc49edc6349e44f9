//! The agent of one store: a connection, a journal, the handlers, until it is told to end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use fanfold_process::shutdown::Shutdown;
use fanfold_sdk::connection::{ConnectionOptions, connect};
use fanfold_sdk::wire::domain::ids::TerminalId;
use fanfold_sdk::{DiskJournal, DiskOptions, JournalError, Registry, Terminal, TerminalConfig, TerminalError};
use jiff::tz::TimeZone;
use tokio::sync::watch;

use crate::handlers::{CollectLog, Noop};

/// Name of the journal in the store's folder, where no other is given.
pub const JOURNAL_FILE: &str = ".fanfold-journal.redb";

/// What the agent is told.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// The server.
    pub url: String,
    /// Credentials file.
    pub creds: Option<PathBuf>,
    /// The terminal's id.
    pub id: TerminalId,
    /// The store's folder: `logs/` and `config/` in it.
    pub root: PathBuf,
    /// Tasks at once.
    pub slots: u32,
    /// Labels it gives itself.
    pub labels: BTreeMap<String, String>,
    /// Journal file; `None`: [`JOURNAL_FILE`] in `root`.
    pub journal: Option<PathBuf>,
    /// Move a damaged journal aside and begin an empty one.
    pub move_damaged_journal: bool,
    /// IANA time zone of the store; `None`: this machine's.
    pub time_zone: Option<String>,
    /// Heartbeat interval, in milliseconds.
    pub beat_interval_ms: u64,
}

/// Why the agent did not start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The store's folder is not there.
    #[error("{0} is not a folder; give the store's folder, with logs/ and config/ in it, as --root")]
    Root(PathBuf),
    /// The time zone is unknown.
    #[error("`{0}` is not an IANA time zone such as Asia/Shanghai")]
    TimeZone(String),
    /// The journal can't be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The connection or the configuration.
    #[error(transparent)]
    Terminal(#[from] TerminalError),
}

impl AgentError {
    /// Stable code.
    pub fn code(&self) -> &'static str {
        match self {
            AgentError::Root(_) => "BAD_ROOT",
            AgentError::TimeZone(_) => "BAD_TIME_ZONE",
            AgentError::Journal(error) => error.code(),
            AgentError::Terminal(error) => error.code(),
        }
    }
}

/// The store's time zone by name, or this machine's.
pub(crate) fn time_zone(name: Option<&str>) -> Result<TimeZone, AgentError> {
    match name {
        Some(name) => TimeZone::get(name).map_err(|_| AgentError::TimeZone(name.to_owned())),
        None => Ok(TimeZone::system()),
    }
}

/// What there is to say of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// It stands for the first time.
    Up,
    /// It is lost; what runs goes on, and results are kept.
    Lost,
    /// It stands again.
    Back,
}

/// Says each change of the connection, once; ends with it.
async fn tell(mut stands: watch::Receiver<bool>, say: impl Fn(Link)) {
    let (mut last, mut first) = (false, true);
    loop {
        let now = *stands.borrow_and_update();
        match (last, now) {
            (false, true) if first => say(Link::Up),
            (false, true) => say(Link::Back),
            (true, false) => say(Link::Lost),
            (true, true) | (false, false) => {}
        }
        first &= !now;
        last = now;
        if stands.changed().await.is_err() {
            return;
        }
    }
}

/// Runs until shutdown; `say` hears of the connection's comings and goings. Running work ends or is stopped, reports are handed in, a goodbye is said.
///
/// # Errors
/// What keeps it from starting. A server that goes away later is waited for.
pub async fn run(config: AgentConfig, shutdown: Shutdown, say: impl Fn(Link) + Send + 'static) -> Result<(), AgentError> {
    if !config.root.is_dir() {
        return Err(AgentError::Root(config.root));
    }
    let zone = time_zone(config.time_zone.as_deref())?;
    let path = config.journal.clone().unwrap_or_else(|| config.root.join(JOURNAL_FILE));
    let journal = Arc::new(DiskJournal::open(DiskOptions { path, move_damaged_aside: config.move_damaged_journal })?);
    let connection = connect(ConnectionOptions {
        url: config.url.clone(),
        creds: config.creds.clone(),
        name: format!("fanfold-terminal-{}", config.id),
        inbox_prefix: Some(format!("_I.{}", config.id)),
        wait_for_server: true,
    })
    .await?;
    let telling = tokio::spawn(tell(connection.stands, say));
    let registry = Registry::new().with("collect_log", 1, Arc::new(CollectLog { root: config.root.clone(), zone })).with(
        "noop",
        1,
        Arc::new(Noop),
    );
    let terminal = TerminalConfig {
        slots: config.slots,
        labels: config.labels.clone(),
        beat_interval_ms: config.beat_interval_ms,
        connects: Some(connection.connects),
        ..TerminalConfig::new(config.id.clone())
    };
    let handle = Terminal::start(connection.client, terminal, registry, journal).await?;
    tracing::info!(terminal = %config.id, journal = handle.journal_id(), boot = handle.boot_id(), slots = handle.slots(), "terminal started");
    shutdown.wait().await;
    // That the connection ends now is no news.
    telling.abort();
    let stats = handle.shutdown().await;
    tracing::info!(terminal = %config.id, ?stats, "terminal ended");
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_change_of_the_connection_is_said_once() {
        let (standing, stands) = watch::channel(false);
        let (sender, mut said) = tokio::sync::mpsc::unbounded_channel();
        let telling = tokio::spawn(tell(stands, move |link| sender.send(link).unwrap()));
        for (now, expected) in
            [(true, Link::Up), (false, Link::Lost), (true, Link::Back), (false, Link::Lost), (true, Link::Back)]
        {
            standing.send_replace(now);
            // Said again by the client, it is no news.
            standing.send_replace(now);
            assert_eq!(said.recv().await, Some(expected));
        }
        drop(standing);
        telling.await.unwrap();
        assert_eq!(said.recv().await, None);
    }

    #[tokio::test]
    async fn before_the_first_connection_nothing_is_said() {
        let (standing, stands) = watch::channel(false);
        let (sender, mut said) = tokio::sync::mpsc::unbounded_channel();
        let telling = tokio::spawn(tell(stands, move |link| sender.send(link).unwrap()));
        standing.send_replace(false);
        drop(standing);
        telling.await.unwrap();
        assert_eq!(said.recv().await, None);
    }
}
