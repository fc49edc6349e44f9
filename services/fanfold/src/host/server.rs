//! The embedded server: found or installed, started, watched and brought back when it dies.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fanfold_ledger::jetstream::{ConnectOpts, JetStreamLedger, ProvisionOpts};
use fanfold_ledger::port::LedgerError;
use fanfold_process::embedded::{
    EmbeddedConfig, EmbeddedError, EmbeddedServer, EmbeddedServers, LocateOptions, RESERVE_BYTES, ServerBinary, free_bytes,
    locate,
};
use fanfold_process::shutdown::Shutdown;
use fanfold_process::tasks::Tasks;

use crate::error::CliError;

/// Times a server that dies is brought back before it is given up; the count starts anew after a minute of life.
const REVIVALS_MAX: u32 = 5;

impl From<EmbeddedError> for CliError {
    fn from(error: EmbeddedError) -> Self {
        CliError::Server { code: error.code(), message: error.to_string() }
    }
}

/// Finds or installs the server; `say` hears what takes time.
///
/// # Errors
/// `NATS_SERVER_UNAVAILABLE` with three ways out, `NATS_SERVER_UNUSABLE`.
pub async fn find(say: impl Fn(&str) + Send + 'static) -> Result<ServerBinary, CliError> {
    let located = tokio::task::spawn_blocking(move || locate(&LocateOptions::from_env(), &say)).await;
    Ok(located.map_err(|e| CliError::Internal(e.to_string()))??)
}

/// Starts the servers of a folder that keeps their log: as many as asked for, else as many as it was made for, else one.
///
/// # Errors
/// `DATA_DIR_LOCKED`, `REPLICAS_DIFFER` and the other codes of the embedded server.
pub async fn start(
    binary: ServerBinary,
    data_dir: PathBuf,
    port: Option<u16>,
    replicas: Option<u32>,
) -> Result<Arc<EmbeddedServers>, CliError> {
    let members = match replicas {
        Some(replicas) => replicas as usize,
        None => EmbeddedServers::members_of(&data_dir).unwrap_or(1),
    };
    let mut config = EmbeddedConfig::new(binary.path, data_dir);
    config.port = port;
    Ok(Arc::new(EmbeddedServers::start(config, members).await?))
}

/// What is to be said of servers that do not listen where they did when this folder was last used.
pub fn moved(servers: &EmbeddedServers) -> Vec<String> {
    let one = |server: &EmbeddedServer| {
        let before = server.moved_from()?;
        Some(format!(
            "127.0.0.1:{before}, the port of the last time, is not used: this is {}; start terminals and services anew that were \
             told the old one or found it by themselves",
            server.url()
        ))
    };
    servers.members().iter().filter_map(|server| one(server)).collect()
}

/// What the streams on these servers are made like: a copy on each.
pub fn provision_for(servers: &EmbeddedServers) -> ProvisionOpts {
    ProvisionOpts { replicas: u32::try_from(servers.members().len()).unwrap_or(1), ..ProvisionOpts::default() }
}

/// Watches each of the servers, as [`watch`] does one; about their disk, which is one, only the first speaks.
pub fn watch_all(
    servers: &EmbeddedServers,
    watched: &mut Tasks,
    shutdown: &Shutdown,
    say: impl Fn(&str) + Send + Sync + Clone + 'static,
) {
    const NAMES: [&str; 3] = ["nats-server", "nats-server-2", "nats-server-3"];
    for (index, (server, name)) in servers.members().iter().zip(NAMES).enumerate() {
        let say = say.clone();
        let speak = move |line: &str| {
            if index == 0 {
                say(line);
            }
        };
        watched.spawn(name, watch(Arc::clone(server), shutdown.clone(), speak));
    }
}

/// Brings the server back whenever it ends unasked, until shutdown. After a disk that was full has room again the server is started
/// anew: its own view of the disk is made at its start, and a write error stays with it until then; so is one that says for a minute and
/// more that it is not well. `say` hears what people must know.
///
/// # Errors
/// When it keeps dying.
pub async fn watch(server: Arc<EmbeddedServer>, shutdown: Shutdown, say: impl Fn(&str) + Send + Sync) -> Result<(), CliError> {
    let mut revivals = 0;
    let mut disk = Disk::default();
    let mut illness = Illness::default();
    let mut look = tokio::time::interval(DISK_LOOK);
    loop {
        let started = tokio::time::Instant::now();
        let exit = loop {
            tokio::select! {
                exit = server.exited() => break exit,
                () = shutdown.wait() => return Ok(()),
                _ = look.tick() => if look_at(&server, &mut disk, &mut illness, &say).await {
                    server.restart().await?;
                },
            }
        };
        if shutdown.is_triggered() {
            return Ok(());
        }
        if started.elapsed() > Duration::from_secs(60) {
            revivals = 0;
        }
        revivals += 1;
        tracing::error!(pid = exit.pid, code = ?exit.code, signal = ?exit.signal, revivals, "nats-server ended; it is started again on the same log");
        if revivals > REVIVALS_MAX {
            let message = format!("nats-server ended {revivals} times within a minute; its last words:\n{}", exit.log_tail);
            return Err(CliError::Server { code: "NATS_SERVER_FAILED", message });
        }
        tokio::time::sleep(Duration::from_millis(100 * u64::from(revivals))).await;
        server.restart().await?;
    }
}

/// Looks at a server and its disk; whether it is to be started anew.
async fn look_at(server: &EmbeddedServer, disk: &mut Disk, illness: &mut Illness, say: &(impl Fn(&str) + Send + Sync)) -> bool {
    if illness.look(server.is_healthy().await, tokio::time::Instant::now()) {
        tracing::error!(pid = server.pid(), "nats-server has not been well for long; it is started anew on the same log");
        return true;
    }
    match disk.look(free_bytes(server.data_dir()).unwrap_or(u64::MAX)) {
        DiskNews::None => false,
        DiskNews::Full(free) => {
            say(&format!(
                "LOG_FULL: the disk of {} has {} MB left and the log takes nothing more; make room there, everything goes on by itself then",
                server.data_dir().display(),
                free >> 20
            ));
            false
        }
        DiskNews::RoomAgain => {
            say("the disk has room again; nats-server is started anew on the same log");
            true
        }
    }
}

/// A server that is not well for so long is started anew: an error of writing stays with it until then. After each time it is given
/// twice as long, up to an hour: it may only be catching up with the others.
const ILL_FOR: Duration = Duration::from_secs(60);
const ILL_FOR_MAX: Duration = Duration::from_secs(3_600);

/// Whether a server has been unwell for too long.
#[derive(Debug, Default)]
struct Illness {
    since: Option<tokio::time::Instant>,
    times: u32,
}

impl Illness {
    /// Takes a look's result; says when the server is to be started anew.
    fn look(&mut self, healthy: bool, now: tokio::time::Instant) -> bool {
        if healthy {
            *self = Self::default();
            return false;
        }
        let since = *self.since.get_or_insert(now);
        if now - since < (ILL_FOR * 2_u32.pow(self.times.min(6))).min(ILL_FOR_MAX) {
            return false;
        }
        self.times += 1;
        self.since = Some(now);
        true
    }
}

/// Between two looks at the disk and the server.
const DISK_LOOK: Duration = Duration::from_secs(2);
/// Less room than this is said, and remembered until there is [`DISK_ROOM_BYTES`] again.
const DISK_LOW_BYTES: u64 = RESERVE_BYTES + RESERVE_BYTES / 4;
const DISK_ROOM_BYTES: u64 = 2 * RESERVE_BYTES;

/// What changed about the disk.
#[derive(Debug, PartialEq, Eq)]
enum DiskNews {
    None,
    Full(u64),
    RoomAgain,
}

/// Whether the disk has been too full for the log.
#[derive(Debug, Default)]
struct Disk {
    was_full: bool,
}

impl Disk {
    fn look(&mut self, free: u64) -> DiskNews {
        match (self.was_full, free) {
            (false, free) if free < DISK_LOW_BYTES => {
                self.was_full = true;
                DiskNews::Full(free)
            }
            (true, free) if free >= DISK_ROOM_BYTES => {
                self.was_full = false;
                DiskNews::RoomAgain
            }
            _ => DiskNews::None,
        }
    }
}

/// How long a cluster may take to elect its leaders before its streams can be asked for.
const ELECTION_WITHIN: Duration = Duration::from_secs(60);

/// Connects and makes sure that every stream and bucket is as it should be; in a cluster, as soon as it has elected its leaders.
///
/// # Errors
/// Those of the ledger.
pub async fn connect(opts: ConnectOpts, provision: &ProvisionOpts) -> Result<JetStreamLedger, LedgerError> {
    let ledger = JetStreamLedger::connect(opts).await?;
    let deadline = tokio::time::Instant::now() + ELECTION_WITHIN;
    loop {
        match ledger.provision(provision).await {
            // Every try has used up a budget of its own, with its pauses.
            Err(error @ LedgerError::Unavailable { .. }) if provision.replicas > 1 && tokio::time::Instant::now() < deadline => {
                tracing::info!(%error, "the cluster has no leader yet");
            }
            provisioned => return provisioned.map(|()| ledger),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_stays_unwell_is_started_anew_less_and_less_often() {
        let mut illness = Illness::default();
        let begin = tokio::time::Instant::now();
        let mut restarts = Vec::new();
        for s in (0..20_000).step_by(10) {
            if illness.look(false, begin + Duration::from_secs(s)) {
                restarts.push(s);
            }
        }
        assert_eq!(restarts, [60, 180, 420, 900, 1_860, 3_780, 7_380, 10_980, 14_580, 18_180]);
        let later = begin + Duration::from_secs(20_000);
        assert!(!illness.look(true, later));
        assert!(!illness.look(false, later));
        assert!(illness.look(false, later + ILL_FOR), "well again, it begins anew");
    }

    #[test]
    fn a_full_disk_is_said_once_and_its_end_once() {
        let mut disk = Disk::default();
        let mb = 1 << 20;
        let seen: Vec<DiskNews> = [500 * mb, 50 * mb, 10 * mb, 70 * mb, 500 * mb, 500 * mb].map(|free| disk.look(free)).into();
        let expected =
            [DiskNews::None, DiskNews::Full(50 * mb), DiskNews::None, DiskNews::None, DiskNews::RoomAgain, DiskNews::None];
        assert_eq!(seen, expected);
    }
}
