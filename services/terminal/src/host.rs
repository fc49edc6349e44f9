//! Many simulated terminals in one process, for demo, tests and benches: real terminals over one connection and one journal file, with
//! faults on purpose and an account of every execution that the system's own counts have no part in.

mod crash;
mod executions;
mod faults;
mod nonce;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fanfold_process::shutdown::Shutdown;
use fanfold_sdk::connection::{Connection, ConnectionOptions, connect};
use fanfold_sdk::wire::domain::ids::TerminalId;
use fanfold_sdk::{
    DiskJournal, DiskOptions, Handler, Journal, MemoryJournal, Registry, Terminal, TerminalConfig, TerminalHandle,
};
use serde::{Deserialize, Serialize};

pub use crash::Step;
pub use executions::{Execution, Executions, Moment, read_executions};
pub use faults::Fault;

use crate::agent::{AgentError, time_zone};
use crate::handlers::{CollectLog, Noop};

/// What a terminal of the host does with a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandlerKind {
    /// The real collection.
    CollectLog,
    /// Nothing, at once.
    Noop,
    /// Nothing, and its result holds a number drawn anew by every run: two runs can be told apart by what they returned.
    Nonce,
}

/// One terminal of a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostedTerminal {
    /// Its id.
    pub id: TerminalId,
    /// What is wrong with it.
    #[serde(default)]
    pub faults: Vec<Fault>,
}

/// What a host is told, as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostSpec {
    /// The server.
    pub url: String,
    /// Its terminals.
    pub terminals: Vec<HostedTerminal>,
    /// What they do.
    pub handler: HandlerKind,
    /// Folder of the stores' folders, by id.
    pub stores: PathBuf,
    /// Journal file; `None`: kept in memory.
    #[serde(default)]
    pub journal: Option<PathBuf>,
    /// File that executions are written to.
    pub executions: PathBuf,
    /// IANA time zone of the stores; `None`: this machine's.
    #[serde(default)]
    pub time_zone: Option<String>,
    /// Heartbeat interval, in milliseconds.
    pub beat_interval_ms: u64,
    /// How long the handler takes besides its work, in milliseconds: from, to; drawn from task and attempt.
    #[serde(default)]
    pub work_ms: (u64, u64),
    /// Tasks each terminal runs at once.
    #[serde(default = "one")]
    pub slots: u32,
    /// Connections its terminals are spread over; 0 counts as 1.
    #[serde(default)]
    pub connections: usize,
    /// A sync after a connect comes within this time, in milliseconds; `None`: the heartbeat interval.
    #[serde(default)]
    pub sync_jitter_ms: Option<u64>,
    /// The process dies after this step of an attempt.
    #[serde(default)]
    pub die_after: Option<Step>,
}

fn one() -> u32 {
    1
}

/// The running terminals of a process.
pub struct Host {
    spec: HostSpec,
    connections: Vec<Connection>,
    journal: Arc<dyn Journal>,
    executions: Arc<Executions>,
    running: Vec<TerminalHandle>,
    /// Syncs answered and not answered of each terminal at the last `mark`.
    marked: Vec<(u64, u64)>,
}

impl Host {
    /// Connects and starts every terminal that isn't [`Fault::Offline`].
    ///
    /// # Errors
    /// What keeps a terminal from starting.
    pub async fn start(spec: HostSpec) -> Result<Self, AgentError> {
        let journal: Arc<dyn Journal> = match &spec.journal {
            Some(path) => Arc::new(DiskJournal::open(DiskOptions { path: path.clone(), move_damaged_aside: false })?),
            None => Arc::new(MemoryJournal::new()),
        };
        let journal = match spec.die_after {
            Some(die_after) => Arc::new(crash::CrashingJournal { inner: journal, die_after }),
            None => journal,
        };
        let executions = Executions::open(&spec.executions).map_err(|_| AgentError::Root(spec.executions.clone()))?;
        let name = format!("fanfold-host-{}", std::process::id());
        let options = ConnectionOptions { url: spec.url.clone(), name, wait_for_server: true, ..ConnectionOptions::default() };
        let mut connections = Vec::new();
        for _ in 0..spec.connections.max(1) {
            connections.push(connect(options.clone()).await?);
        }
        let mut host =
            Self { connections, journal, executions: Arc::new(executions), running: Vec::new(), marked: Vec::new(), spec };
        host.start_some(|faults| !faults.contains(&Fault::Offline)).await?;
        Ok(host)
    }

    /// Starts the terminals that were offline.
    ///
    /// # Errors
    /// As [`Host::start`].
    pub async fn bring_back(&mut self) -> Result<(), AgentError> {
        self.start_some(|faults| faults.contains(&Fault::Offline)).await
    }

    async fn start_some(&mut self, which: impl Fn(&[Fault]) -> bool) -> Result<(), AgentError> {
        let zone = time_zone(self.spec.time_zone.as_deref())?;
        for terminal in self.spec.terminals.clone().into_iter().filter(|t| which(&t.faults)) {
            let inner: Arc<dyn Handler> = match self.spec.handler {
                HandlerKind::CollectLog => {
                    Arc::new(CollectLog { root: self.spec.stores.join(terminal.id.as_str()), zone: zone.clone() })
                }
                HandlerKind::Noop => Arc::new(Noop),
                HandlerKind::Nonce => Arc::new(nonce::Nonce),
            };
            let handler = Arc::new(faults::Faulty {
                inner,
                terminal: terminal.id.clone(),
                faults: terminal.faults.clone(),
                executions: Arc::clone(&self.executions),
                work_ms: self.spec.work_ms,
                die_after: self.spec.die_after,
            });
            let registry = Registry::new().with("collect_log", 1, handler.clone()).with("noop", 1, handler);
            let Some(connection) = self.connections.get(self.running.len() % self.connections.len().max(1)) else {
                return Ok(());
            };
            let config = self.config(&terminal, connection);
            self.running.push(Terminal::start(connection.client.clone(), config, registry, Arc::clone(&self.journal)).await?);
        }
        Ok(())
    }

    fn config(&self, terminal: &HostedTerminal, connection: &Connection) -> TerminalConfig {
        let has = |fault| terminal.faults.contains(&fault);
        TerminalConfig {
            slots: self.spec.slots,
            beat_interval_ms: self.spec.beat_interval_ms,
            sync_jitter_ms: self.spec.sync_jitter_ms.unwrap_or(self.spec.beat_interval_ms),
            // A store that hangs says nothing, not even that its time is up.
            run_watchdog: !has(Fault::Hang),
            duplicate_reports: has(Fault::Duplicate).then(|| vec![Duration::from_millis(150), Duration::from_millis(3_000)]),
            stop_grace_ms: 200,
            shutdown_grace_ms: 200,
            shutdown_flush_ms: 1_000,
            connects: Some(connection.connects.clone()),
            ..TerminalConfig::new(terminal.id.clone())
        }
    }

    /// How many terminals run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Syncs answered and not answered, by terminal.
    fn syncs(&self) -> Vec<(u64, u64)> {
        let of = |t: &TerminalHandle| {
            let stats = t.stats();
            (stats.syncs, stats.syncs_unanswered)
        };
        self.running.iter().map(of).collect()
    }

    /// One line of numbers since the last `mark`: `stats`, the fewest syncs any terminal had answered, the most any asked, then over
    /// all terminals syncs answered, syncs not answered; and reports that wait for an answer now.
    fn stats(&self) -> String {
        let before = |i: usize| self.marked.get(i).copied().unwrap_or_default();
        let since = |(i, (answered, not)): (usize, (u64, u64))| (answered - before(i).0, not - before(i).1);
        let syncs: Vec<(u64, u64)> = self.syncs().into_iter().enumerate().map(since).collect();
        let least = syncs.iter().map(|s| s.0).min().unwrap_or(0);
        let most = syncs.iter().map(|s| s.0 + s.1).max().unwrap_or(0);
        let (answered, not): (u64, u64) = (syncs.iter().map(|s| s.0).sum(), syncs.iter().map(|s| s.1).sum());
        let waiting: usize = self.running.iter().map(|t| t.stats().unanswered).sum();
        format!("stats {least} {most} {answered} {not} {waiting}")
    }

    /// Ends all terminals, in order.
    pub async fn stop(self) {
        let ending: Vec<_> = self.running.into_iter().map(|t| tokio::spawn(t.shutdown())).collect();
        for terminal in ending {
            // A terminal that panicked while ending has nothing more to hand in.
            let _ = terminal.await;
        }
    }
}

/// Runs a host as a process of its own: started by a spec, told on stdin, ended by the end of stdin or a signal. Says `ready N` and
/// `back N` through `say`.
///
/// # Errors
/// As [`Host::start`].
pub async fn run_process(spec: HostSpec, shutdown: Shutdown, say: impl Fn(&str)) -> Result<(), AgentError> {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let mut host = Host::start(spec).await?;
    say(&format!("ready {}", host.running()));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line,
            () = shutdown.wait() => break,
        };
        match line {
            Ok(Some(line)) if line.trim() == "back" => {
                host.bring_back().await?;
                say(&format!("back {}", host.running()));
            }
            Ok(Some(line)) if line.trim() == "stats" => say(&host.stats()),
            Ok(Some(line)) if line.trim() == "mark" => {
                host.marked = host.syncs();
                say("marked");
            }
            Ok(Some(_)) => {}
            // Whoever started this process is gone.
            Ok(None) | Err(_) => break,
        }
    }
    host.stop().await;
    Ok(())
}
