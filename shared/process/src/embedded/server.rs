//! A started server: from a locked folder to a URL that answers, and back.

use std::fs::{self, File};
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::config::{EmbeddedConfig, Layout, Ports};
use super::error::EmbeddedError;
use super::health;
use super::health::Ready;
use super::lock::DataLock;
use super::log_tail::LogStart;
use super::process::{ServerExit, ServerProcess};

const READY_WAIT: Duration = Duration::from_secs(30);
/// As long where there are streams to be restored, which may be large. Of a block that can't be unpacked the server tries every record
/// that was written within the duplicate window, and each time the whole block: minutes. Once they are older it does not.
const RESTORE_WAIT: Duration = Duration::from_secs(900);
/// After so long that is said, and again after each further so long.
const RESTORE_SAID: Duration = Duration::from_secs(15);
const READY_POLL_INTERVAL: Duration = Duration::from_millis(10);
const STOP_WAIT: Duration = Duration::from_secs(5);
/// Less than this and the first streams would already fail.
const FREE_BYTES_MIN: u64 = 64 * 1024 * 1024;
/// Room on the disk that the log never takes.
pub const RESERVE_BYTES: u64 = 48 * 1024 * 1024;

/// A nats-server of ours, ready to answer. Dropping it kills it; [`stop`](Self::stop) is kinder.
#[derive(Debug)]
pub struct EmbeddedServer {
    config: EmbeddedConfig,
    layout: Layout,
    ports: Ports,
    moved_from: Option<u16>,
    /// Fields drop in this order: first the process, then its lock, then its folder.
    current: Mutex<Arc<ServerProcess>>,
    lock: Mutex<Option<DataLock>>,
    temporary: Mutex<Option<TempDir>>,
    /// One stop, kill or restart at a time.
    changing: tokio::sync::Mutex<()>,
}

impl EmbeddedServer {
    /// Locks the data folder, starts the server and waits, at most 30 s, until it has recovered its
    /// streams; a member of a cluster, until its JetStream is on (whether the cluster has a leader is
    /// known only to who asks it). Uses real time: do not call it with tokio's time paused.
    ///
    /// # Errors
    /// Any [`EmbeddedError`] but the two of [`locate`](super::locate()); nothing is left running.
    pub async fn start(mut config: EmbeddedConfig) -> Result<Self, EmbeddedError> {
        config.data_dir = prepare_data_dir(&config.data_dir)?;
        let layout = Layout::of(&config.data_dir);
        let mut lock = DataLock::acquire(&config.data_dir, &layout.lock_file).await?;
        check_room(&config.data_dir)?;
        let before = last_port(&layout);
        match config.port {
            Some(port) => check_port(port)?,
            // Whoever was told it looks for the server there.
            None => config.port = before.filter(|port| check_port(*port).is_ok()),
        }
        let (process, ports) = launch(&config, &layout, &mut lock, None).await?;
        if before != Some(ports.client) {
            fs::write(&layout.port_file, ports.client.to_string())
                .map_err(|error| EmbeddedError::data_dir(&layout.port_file, error))?;
        }
        Ok(Self {
            config,
            layout,
            moved_from: before.filter(|port| *port != ports.client),
            ports,
            current: Mutex::new(Arc::new(process)),
            lock: Mutex::new(Some(lock)),
            temporary: Mutex::new(None),
            changing: tokio::sync::Mutex::new(()),
        })
    }

    /// Starts a server in a temporary folder that is removed by [`stop`](Self::stop) or a drop.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn ephemeral(binary: impl Into<PathBuf>) -> Result<Self, EmbeddedError> {
        Self::ephemeral_with(binary, |_| ()).await
    }

    /// As [`ephemeral`](Self::ephemeral), with the configuration changed by `adjust` (not its
    /// folder).
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn ephemeral_with(
        binary: impl Into<PathBuf>,
        adjust: impl FnOnce(&mut EmbeddedConfig),
    ) -> Result<Self, EmbeddedError> {
        let temporary =
            TempDir::with_prefix("fanfold-nats-").map_err(|error| EmbeddedError::data_dir(std::env::temp_dir(), error))?;
        let mut config = EmbeddedConfig::new(binary, temporary.path());
        adjust(&mut config);
        config.data_dir = temporary.path().to_owned();
        let server = Self::start(config).await?;
        *locked(&server.temporary) = Some(temporary);
        Ok(server)
    }

    /// `nats://127.0.0.1:PORT`; the same over a restart.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.ports.client)
    }

    /// `http://127.0.0.1:PORT`, the server's monitoring; the same over a restart.
    pub fn monitor_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.monitor)
    }

    /// The client port this folder's server had last, where it is another one now: it was taken, or another one was asked for.
    pub fn moved_from(&self) -> Option<u16> {
        self.moved_from
    }

    /// The client port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.ports.client
    }

    /// The server's process id; that of the last one if it has ended.
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// The folder everything lies in.
    pub fn data_dir(&self) -> &Path {
        &self.config.data_dir
    }

    /// The server's own log.
    pub fn log_file(&self) -> &Path {
        &self.layout.log_file
    }

    /// Whether the process runs.
    pub fn is_running(&self) -> bool {
        self.process().exit().is_none()
    }

    /// Whether the server says that all of it works: in a cluster, that it has a leader and this member's copies are up to date.
    pub async fn is_healthy(&self) -> bool {
        health::status(self.ports.monitor, Ready::Streams).await.is_ok_and(|status| status == 200)
    }

    /// Resolves when the process that runs now has ended, whoever ended it. Look at
    /// [`ServerExit::expected`]: false after a crash and after [`kill`](Self::kill).
    pub fn exited(&self) -> impl Future<Output = ServerExit> + Send + 'static + use<> {
        self.process().exited()
    }

    /// Ends the server: SIGTERM, and SIGKILL after 5 s. Releases the lock and removes a temporary
    /// folder. Doing it again changes nothing.
    pub async fn stop(&self) -> ServerExit {
        let _changing = self.changing.lock().await;
        let exit = end(&self.process()).await;
        locked(&self.lock).take();
        if let Some(temporary) = locked(&self.temporary).take()
            && let Err(error) = temporary.close()
        {
            tracing::warn!(%error, "could not remove the temporary data folder");
        }
        exit
    }

    /// Kills the server as a crash would, with SIGKILL; [`exited`](Self::exited) reports it as not
    /// expected. For tests. The lock is kept, [`restart`](Self::restart) brings it back.
    pub async fn kill(&self) -> ServerExit {
        let _changing = self.changing.lock().await;
        let process = self.process();
        process.kill();
        process.exited().await
    }

    /// Ends the server if it runs and starts it again on the same ports and data.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn restart(&self) -> Result<(), EmbeddedError> {
        let _changing = self.changing.lock().await;
        end(&self.process()).await;
        let taken = locked(&self.lock).take();
        let mut lock = match taken {
            Some(lock) => lock,
            None => DataLock::acquire(&self.config.data_dir, &self.layout.lock_file).await?,
        };
        let launched = launch(&self.config, &self.layout, &mut lock, Some(self.ports)).await;
        *locked(&self.lock) = Some(lock);
        let (process, _) = launched?;
        *locked(&self.current) = Arc::new(process);
        Ok(())
    }

    fn process(&self) -> Arc<ServerProcess> {
        Arc::clone(&locked(&self.current))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn end(process: &ServerProcess) -> ServerExit {
    process.expect_end();
    process.terminate();
    if let Ok(exit) = tokio::time::timeout(STOP_WAIT, process.exited()).await {
        return exit;
    }
    tracing::warn!(pid = process.pid(), "nats-server ignored SIGTERM; killing it");
    process.kill();
    process.exited().await
}

fn prepare_data_dir(data_dir: &Path) -> Result<PathBuf, EmbeddedError> {
    let absolute = std::path::absolute(data_dir).map_err(|error| EmbeddedError::data_dir(data_dir, error))?;
    let run_dir = Layout::of(&absolute).run_dir;
    fs::create_dir_all(&run_dir).map_err(|error| EmbeddedError::data_dir(&run_dir, error))?;
    Ok(absolute)
}

/// Bytes this user may still write where `path` is.
///
/// # Errors
/// The system's.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Bytes of the files below a folder; what can't be read counts nothing.
fn stored_bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => stored_bytes(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

/// What the log may grow to: what it has, and what the disk has room for, less a reserve for everybody else.
fn store_bytes_max(layout: &Layout, data_dir: &Path) -> u64 {
    let room = free_bytes(data_dir).unwrap_or(0).saturating_sub(RESERVE_BYTES);
    (stored_bytes(&layout.store_dir) + room).max(FREE_BYTES_MIN / 4)
}

fn check_room(data_dir: &Path) -> Result<(), EmbeddedError> {
    let free_bytes = free_bytes(data_dir).map_err(|error| EmbeddedError::data_dir(data_dir, error))?;
    if free_bytes < FREE_BYTES_MIN {
        return Err(EmbeddedError::Full { data_dir: data_dir.to_owned(), free_bytes, needed_bytes: FREE_BYTES_MIN });
    }
    Ok(())
}

/// The client port of the last start on this folder; `None` where there was none, or what is there is no port.
fn last_port(layout: &Layout) -> Option<u16> {
    fs::read_to_string(&layout.port_file).ok()?.trim().parse().ok().filter(|port| *port != 0)
}

/// Asks before the server would fail with a log line nobody can match on.
fn check_port(port: u16) -> Result<(), EmbeddedError> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(EmbeddedError::PortInUse { port }),
        Err(error) => {
            // The server will say it too, if it minds.
            tracing::debug!(port, %error, "could not try the port");
            Ok(())
        }
        Ok(_) => Ok(()),
    }
}

/// Writes the configuration, starts the process and waits until it is ready. On an error the
/// process is dropped and with that gone.
async fn launch(
    config: &EmbeddedConfig,
    layout: &Layout,
    lock: &mut DataLock,
    keep: Option<Ports>,
) -> Result<(ServerProcess, Ports), EmbeddedError> {
    // Members of a cluster are filled from the others: one that does not come is not waited for.
    let restores = config.cluster.is_none() && fs::read_dir(&layout.store_dir).is_ok_and(|mut entries| entries.next().is_some());
    let text = config.render(layout, keep, store_bytes_max(layout, &config.data_dir))?;
    fs::write(&layout.config_file, text).map_err(|error| EmbeddedError::data_dir(&layout.config_file, error))?;
    remove_stale_ports_files(&layout.run_dir);
    let log = LogStart::now(layout);
    let command = server_command(config, layout, lock)?;
    let tail = log.clone();
    let process = ServerProcess::spawn(command, move || tail.tail())
        .await
        .map_err(|error| EmbeddedError::Spawn { binary: config.binary.clone(), reason: error.to_string() })?;
    lock.record_server(Some(process.pid()))?;
    let wanted = if config.cluster.is_some() { Ready::Member } else { Ready::Streams };
    let ports = wait_until_ready(&process, layout, &log, wanted, if restores { RESTORE_WAIT } else { READY_WAIT }).await?;
    tracing::debug!(pid = process.pid(), port = ports.client, "nats-server is ready");
    Ok((process, ports))
}

fn server_command(config: &EmbeddedConfig, layout: &Layout, lock: &DataLock) -> Result<Command, EmbeddedError> {
    let stderr = File::create(&layout.stderr_file).map_err(|error| EmbeddedError::data_dir(&layout.stderr_file, error))?;
    let stdin = lock.share().map_err(|error| EmbeddedError::data_dir(&layout.lock_file, error))?;
    let mut command = Command::new(&config.binary);
    command
        .arg("--config")
        .arg(&layout.config_file)
        .current_dir(&config.data_dir)
        .stdin(stdin)
        .stdout(Stdio::null())
        .stderr(stderr);
    Ok(command)
}

/// A server that was killed leaves its ports file, and a pid may come again.
fn remove_stale_ports_files(run_dir: &Path) {
    let Ok(entries) = fs::read_dir(run_dir) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "ports")
            && let Err(error) = fs::remove_file(&path)
        {
            tracing::warn!(path = %path.display(), %error, "could not remove an old ports file");
        }
    }
}

async fn wait_until_ready(
    process: &ServerProcess,
    layout: &Layout,
    log: &LogStart,
    wanted: Ready,
    wait: Duration,
) -> Result<Ports, EmbeddedError> {
    let ports_file = layout.run_dir.join(format!("nats-server_{}.ports", process.pid()));
    let started = Instant::now();
    let mut last_health = "none, no ports file yet".to_owned();
    let mut say_at = RESTORE_SAID;
    while started.elapsed() < wait {
        if let Some(exit) = process.exit() {
            return Err(EmbeddedError::Failed { status: exit.to_string(), log_tail: log.tail() });
        }
        if let Some(ports) = health::read_ports(&ports_file) {
            match health::status(ports.monitor, wanted).await {
                Ok(200) => return Ok(ports),
                Ok(status) => last_health = format!("HTTP {status}"),
                Err(error) => last_health = error.to_string(),
            }
        }
        if started.elapsed() >= say_at {
            say_at += RESTORE_SAID;
            let (waited_s, tail) = (started.elapsed().as_secs(), log.tail());
            let last_line = tail.lines().last().unwrap_or_default();
            tracing::warn!(
                waited_s,
                last_line,
                "nats-server is not ready yet. A large log takes a while to be restored; a damaged one takes minutes, but not when it is \
                 started ten minutes after its last event"
            );
        }
        tokio::time::sleep(READY_POLL_INTERVAL).await;
    }
    Err(EmbeddedError::NotReady {
        waited_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
        health: last_health,
        log_tail: log.tail(),
    })
}
