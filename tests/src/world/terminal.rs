//! A store's terminal: the real terminal library on the ledger's bus, in virtual time, doing what its script says. It can lose its
//! power at any step, its journal, its line; its disk can fill up, its clock be wrong, and a second process take its name.

mod account;
mod acting;
mod journal;
mod network;
mod process;
mod transport;
mod wire;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fanfold_domain::ids::{TaskId, TerminalId};
use fanfold_ledger::memory::MemoryLedger;
use fanfold_ledger::port::Bus;
use fanfold_sdk::{Chance, Connects, Registry, Terminal, TerminalConfig, WallClock};
use fanfold_wire::subjects;
use fanfold_wire::terminal::ReportAnswer;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub use account::{Account, Execution, How};
pub use network::{Air, Leg, Passage, bad_air};
pub use process::{STEPS, Step};
pub use wire::Sent;

use acting::Acting;
use journal::{Disk, SimJournal};
use network::{Line, mix};
use process::{Process, Steps};
use transport::SimTransport;
use wire::Wire;

/// What it does with an attempt.
#[derive(Debug, Clone)]
pub enum Act {
    /// Says so, then succeeds.
    Succeed(u64),
    /// Succeeds without ever having said that it began.
    SucceedQuietly(u64),
    /// Reports two steps on the way, then succeeds.
    Steps(u64),
    Fail(u64, &'static str),
    /// Ends with a result that breaks the schema.
    Garbage(u64),
    /// Is rejected with a code, for no reason of the terminal's.
    Reject(&'static str),
    /// Begins, never ends, and does not listen when it is told to.
    Hang,
    /// The same without a word.
    HangQuietly,
    /// As if the command had been lost on the way.
    Miss,
}

type Script = Arc<dyn Fn(&TaskId, u32) -> Act + Send + Sync>;
/// How long the n-th message from this terminal is on its way, in ms, and whether it goes twice.
type Network = Arc<dyn Fn(u64) -> (u64, bool) + Send + Sync>;

#[derive(Clone)]
pub struct Options {
    pub beat_ms: u64,
    pub sync_ms: u64,
    pub slots: u32,
    pub script: Script,
    /// Of messages from the terminal only; not looked at where there is `air`.
    pub network: Network,
    /// Of messages in both directions.
    pub air: Option<Air>,
    /// Its ids, jitters and pauses are drawn from it, and from its name.
    pub seed: u64,
    /// The first sync after a connect comes within this time.
    pub sync_jitter_ms: u64,
    /// Whether it ends runs at their timeout itself.
    pub watchdog: bool,
    /// How long a write to its disk takes: from, to.
    pub disk_ms: (u64, u64),
    /// How far its clock is off.
    pub clock_off_ms: i64,
}

impl Options {
    pub fn new(script: impl Fn(&TaskId, u32) -> Act + Send + Sync + 'static) -> Self {
        Self {
            beat_ms: 1_000,
            sync_ms: 5_000,
            slots: 1,
            script: Arc::new(script),
            network: Arc::new(|_| (0, false)),
            air: None,
            seed: 0,
            sync_jitter_ms: 0,
            watchdog: false,
            disk_ms: (0, 0),
            clock_off_ms: 0,
        }
    }

    fn air(&self) -> Air {
        let network = Arc::clone(&self.network);
        self.air.clone().unwrap_or_else(|| {
            Arc::new(move |leg, n| match leg {
                Leg::Down => vec![0],
                Leg::Up => match network(n) {
                    (ms, false) => vec![ms],
                    (ms, true) => vec![ms, 4 * ms],
                },
            })
        })
    }
}

/// Whose disk a second process under the same id has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TwinDisk {
    /// One of its own.
    Own,
    /// A copy of the first one's, as it is now.
    Copied,
}

/// A process and the task it lives in.
struct Life {
    process: Arc<Process>,
    goodbye: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Life {
    fn end(&self) {
        self.process.cut();
        self.task.abort();
    }
}

/// The terminal from outside.
pub struct SimTerminal {
    pub id: TerminalId,
    ledger: MemoryLedger,
    options: Options,
    account: Account,
    line: Arc<Line>,
    steps: Arc<Steps>,
    wire: Wire,
    clock_off_ms: Arc<AtomicI64>,
    disk: Arc<Disk>,
    disks: u64,
    life: Option<Life>,
    twins: Vec<Life>,
}

impl SimTerminal {
    /// One that is off.
    pub fn new(ledger: &MemoryLedger, id: &str, options: Options, account: &Account) -> Self {
        let mut terminal = Self {
            id: TerminalId::new(id).unwrap(),
            ledger: ledger.clone(),
            account: account.clone(),
            line: Arc::new(Line::new(options.air())),
            steps: Arc::default(),
            wire: Wire::default(),
            clock_off_ms: Arc::new(AtomicI64::new(options.clock_off_ms)),
            disk: Disk::new(0, options.disk_ms),
            disks: 0,
            life: None,
            twins: Vec::new(),
            options,
        };
        terminal.lose_journal();
        terminal
    }

    /// A seed of its own for the k-th thing that draws one.
    fn seed(&self, k: u64) -> u64 {
        let name = self.id.as_str().bytes().fold(self.options.seed, |seed, byte| mix(seed ^ u64::from(byte)));
        mix(name ^ k)
    }

    fn new_disk(&mut self) -> Arc<Disk> {
        self.disks += 1;
        Disk::new(self.seed(1 << 32 | self.disks), self.options.disk_ms)
    }

    /// Whether it has power.
    pub fn is_on(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.process.is_on())
    }

    /// Starts a new process of it.
    pub fn start(&mut self) {
        self.kill();
        let process = Process::new(self.id.clone(), &self.account, Arc::clone(&self.steps));
        self.life = Some(self.live(process, Arc::clone(&self.disk), self.wire.clone()));
    }

    /// Starts another process under the same id, beside the first one.
    pub fn twin(&mut self, disk: TwinDisk) {
        let disk = match disk {
            TwinDisk::Own => self.new_disk(),
            TwinDisk::Copied => {
                self.account.copied(&self.id);
                self.disk.cloned()
            }
        };
        let process = Process::new(self.id.clone(), &self.account, Arc::default());
        let twin = self.live(process, disk, Wire::default());
        self.twins.push(twin);
    }

    /// Ends the other processes without a word.
    pub fn kill_twins(&mut self) {
        self.twins.drain(..).for_each(|twin| twin.end());
    }

    /// Ends it without a word: what is not on its disk is gone.
    pub fn kill(&mut self) {
        if let Some(life) = self.life.take() {
            life.end();
        }
    }

    /// Ends it without a word at the next passing of a step. [`Self::is_on`] tells when that has happened.
    pub fn crash_at(&self, step: Step) {
        self.steps.crash_at(step);
    }

    /// Holds it up for a time at the next passing of a step; not possible where nothing can wait (answered, settled, forgotten).
    pub fn pause_at(&self, step: Step, ms: u64) {
        self.steps.pause_at(step, ms);
    }

    /// Takes back what was to happen at steps.
    pub fn clear_steps(&self) {
        self.steps.clear();
    }

    /// How often a step was passed, over all its lives.
    pub fn passed(&self, step: Step) -> u64 {
        self.steps.passed(step)
    }

    /// Commands it was sent, at most the last 64, arrive once more.
    pub fn repeat_commands(&self) {
        self.wire.repeat();
    }

    /// Reports that left it and answers that reached it, in order, over all its lives; not those of twins.
    pub fn sent(&self) -> Vec<Sent> {
        self.wire.sent()
    }

    /// Forgets everything, as after a new disk. A running process keeps the old one.
    pub fn lose_journal(&mut self) {
        self.disk = self.new_disk();
    }

    /// Its disk takes no more, or does again.
    pub fn journal_full(&self, full: bool) {
        self.disk.set_full(full);
    }

    /// Its clock is off by so much from now on.
    pub fn clock_off_ms(&self, ms: i64) {
        self.clock_off_ms.store(ms, Ordering::SeqCst);
    }

    /// Cuts its line, or mends it. What it does goes on meanwhile.
    pub fn set_linked(&self, linked: bool) {
        let was = self.line.is_linked();
        self.line.set_linked(linked);
        if linked && !was {
            self.life.iter().chain(&self.twins).for_each(|life| life.process.connects.send_modify(|count| *count += 1));
        }
    }

    /// Ends it in order: it waits for its runs a moment, hands in what it can, and says goodbye.
    pub async fn goodbye(&mut self) {
        let Some(mut life) = self.life.take() else { return };
        if let Some(goodbye) = life.goodbye.take() {
            // One that crashed has nobody to tell.
            let _ = goodbye.send(());
        }
        let _ = (&mut life.task).await;
        life.end();
    }

    fn config(&self, process: &Process) -> TerminalConfig {
        let (off, account) = (Arc::clone(&self.clock_off_ms), self.account.clone());
        TerminalConfig {
            slots: self.options.slots,
            version: "sim".into(),
            beat_interval_ms: self.options.beat_ms,
            sync_interval_ms: self.options.sync_ms,
            sync_jitter_ms: self.options.sync_jitter_ms,
            stop_grace_ms: 200,
            shutdown_grace_ms: 200,
            shutdown_flush_ms: 1_000,
            report_retry_max_ms: 2_000,
            request_timeout_ms: 3_000,
            run_watchdog: self.options.watchdog,
            connects: Some(Connects::counted_by(process.connects.subscribe())),
            chance: Chance::seeded(self.seed(2 << 32 | u64::from(process.number))),
            clock: WallClock::of(move || Some(super::EPOCH_MS + account.now_ms() as i64 + off.load(Ordering::SeqCst))),
            ..TerminalConfig::new(self.id.clone())
        }
    }

    fn live(&self, process: Arc<Process>, disk: Arc<Disk>, wire: Wire) -> Life {
        let transport = SimTransport {
            ledger: self.ledger.clone(),
            process: Arc::clone(&process),
            line: Arc::clone(&self.line),
            script: Arc::clone(&self.options.script),
            wire,
            presence_late_ms: self.options.beat_ms / 10,
            lies: Arc::new(Mutex::new(BTreeSet::new())),
        };
        let handler = Acting { process: Arc::clone(&process), script: Arc::clone(&self.options.script) };
        let handlers = Registry::new().with("probe", 1, Arc::new(handler));
        let journal = Arc::new(SimJournal::new(disk, Arc::clone(&process)));
        let config = self.config(&process);
        let (goodbye, told) = oneshot::channel();
        let task = tokio::spawn(live(Arc::clone(&process), Arc::new(transport), config, handlers, journal, told));
        Life { process, goodbye: Some(goodbye), task }
    }
}

impl Drop for SimTerminal {
    fn drop(&mut self) {
        self.kill();
        self.kill_twins();
    }
}

/// A process from its start to its end.
async fn live(
    process: Arc<Process>,
    transport: Arc<SimTransport>,
    config: TerminalConfig,
    handlers: Registry,
    journal: Arc<SimJournal>,
    mut goodbye: oneshot::Receiver<()>,
) {
    let mut connections = transport.ledger.connections();
    connections.mark_unchanged();
    let Ok(handle) = Terminal::start_on(transport, config, handlers, journal.clone()).await else { return process.cut() };
    loop {
        tokio::select! {
            biased;
            () = process.off() => return,
            told = &mut goodbye => {
                if told.is_ok() {
                    tokio::select! {
                        biased;
                        () = process.off() => {}
                        _ = handle.shutdown() => journal.flush(),
                    }
                }
                return;
            }
            Ok(()) = connections.changed() => process.connects.send_modify(|count| *count += 1),
        }
    }
}

/// A report as it goes over the wire.
pub fn event(task: &TaskId, name: &str, data: &Value) -> Value {
    json!({ "specversion": "1.0", "type": format!("fanfold.{name}.v1"), "subject": task.to_string(), "data": data })
}

/// Sends reports and gives the answer, if one came.
pub async fn send(ledger: &MemoryLedger, id: &TerminalId, events: &[Value]) -> Option<ReportAnswer> {
    let body = Bytes::from(serde_json::to_vec(events).unwrap());
    let answer = ledger.request(&subjects::report(id), body, Duration::from_secs(3)).await.ok()?;
    serde_json::from_slice(&answer).ok()
}
