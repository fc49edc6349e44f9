//! Simulated terminals in a process of their own.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use fanfold_domain::ids::TerminalId;
use fanfold_process::clock::Clock;
use fanfold_terminal::fixture::{ExpectedStore, write_store};
use fanfold_terminal::host::{Fault, HandlerKind, HostSpec, HostedTerminal, Step};
use rustix::process::Signal;

use crate::account::Account;
use crate::plans::DATE;
use crate::process::Proc;
use crate::stack::BEAT_MS;
use crate::wait::{SOON, until};

/// A process of terminals, started or not.
pub struct Fleet {
    name: String,
    program: String,
    folder: PathBuf,
    spec: HostSpec,
    process: Option<Proc>,
    outlives_limits: bool,
    killed: Vec<(u32, i64)>,
    quiet: bool,
    /// What each store's files hold; empty unless they collect logs.
    pub expected: Vec<ExpectedStore>,
}

impl Fleet {
    /// Terminals that do nothing, at once, with a journal on disk.
    pub fn new(program: &str, folder: &Path, url: &str, name: &str, ids: &[String]) -> Self {
        let terminal = |id: &String| HostedTerminal { id: TerminalId::new(id).expect("a token"), faults: Vec::new() };
        let spec = HostSpec {
            url: url.to_owned(),
            terminals: ids.iter().map(terminal).collect(),
            handler: HandlerKind::Noop,
            stores: folder.join("stores"),
            journal: Some(folder.join(format!("{name}.redb"))),
            executions: folder.join(format!("{name}.jsonl")),
            time_zone: Some("Asia/Shanghai".into()),
            beat_interval_ms: BEAT_MS,
            work_ms: (0, 0),
            connections: 1,
            sync_jitter_ms: None,
            die_after: None,
            slots: 1,
        };
        let (name, program, folder) = (name.to_owned(), program.to_owned(), folder.to_owned());
        let quiet = false;
        Self {
            name,
            program,
            folder,
            spec,
            process: None,
            outlives_limits: false,
            killed: Vec::new(),
            quiet,
            expected: Vec::new(),
        }
    }

    /// They take so long, in milliseconds.
    pub fn work_ms(mut self, from: u64, to: u64) -> Self {
        self.spec.work_ms = (from, to);
        self
    }

    /// Their journal is kept in memory and they share so many connections.
    pub fn in_memory(mut self, connections: usize) -> Self {
        self.spec.journal = None;
        self.spec.connections = connections;
        self
    }

    /// They beat so often and sync within so long after a connect, in milliseconds.
    pub fn beating(mut self, beat_ms: u64, sync_jitter_ms: u64) -> Self {
        self.spec.beat_interval_ms = beat_ms;
        self.spec.sync_jitter_ms = Some(sync_jitter_ms);
        self
    }

    /// The process dies after this step of an attempt, once.
    pub fn dying_after(mut self, step: Step) -> Self {
        self.spec.die_after = Some(step);
        self
    }

    /// Waits until it has died as it was told to; the next start is an ordinary one.
    ///
    /// # Panics
    /// When it does not die.
    pub async fn died(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.exited(SOON).await;
        self.killed.push((process.pid(), Clock::system().now_ms() * 1_000));
        self.spec.die_after = None;
    }

    /// SIGXFSZ is ignored: a limit on the size of its files acts on it as a full disk does.
    pub fn outliving_limits(mut self) -> Self {
        self.outlives_limits = true;
        self
    }

    /// Its process.
    ///
    /// # Panics
    /// When it does not run.
    pub fn process(&self) -> &Proc {
        self.process.as_ref().expect("it runs")
    }

    /// It starts with a copy of another fleet's journal, as a cloned till does.
    pub fn with_a_copy_of(self, other: &Fleet) -> Self {
        std::fs::copy(other.journal(), self.journal()).expect("a journal");
        self
    }

    /// Numbers count from here on.
    ///
    /// # Panics
    /// When the process does not answer.
    pub async fn mark(&mut self) {
        let process = self.process.as_mut().expect("it runs");
        let count = |p: &Proc| p.lines().iter().filter(|l| *l == "marked").count();
        let before = count(process);
        process.tell("mark");
        until("it has marked its numbers", SOON * 2, async || (count(process) > before).then_some(())).await;
    }

    /// Numbers over its terminals now, see `Host::stats`: fewest syncs answered, most asked, answered, unanswered, reports waiting.
    ///
    /// # Panics
    /// When the process says something else.
    pub async fn stats(&mut self) -> [u64; 5] {
        let process = self.process.as_mut().expect("it runs");
        let before = process.lines().len();
        process.tell("stats");
        let line = until("it says its numbers", SOON * 2, async || {
            process.lines().get(before..).unwrap_or_default().iter().find(|l| l.starts_with("stats")).cloned()
        })
        .await;
        let numbers: Vec<u64> = line.split(' ').skip(1).map(|n| n.parse().expect("a number")).collect();
        numbers.try_into().expect("five numbers")
    }

    /// Something is wrong with one of them.
    pub fn fault(mut self, id: &str, fault: Fault) -> Self {
        let terminal = self.spec.terminals.iter_mut().find(|t| t.id.as_str() == id).expect("one of the fleet");
        terminal.faults.push(fault);
        self
    }

    /// They read real logs from real files, which are written now.
    pub fn collecting_logs(mut self) -> Self {
        self.spec.handler = HandlerKind::CollectLog;
        let date = DATE.parse().expect("a date");
        let store = |t: &HostedTerminal| {
            write_store(&self.spec.stores.join(t.id.as_str()), t.id.as_str(), 7, date, 3).expect("room on disk")
        };
        self.expected = self.spec.terminals.iter().map(store).collect();
        self
    }

    /// Every run's result holds a number of its own.
    pub fn with_nonces(mut self) -> Self {
        self.spec.handler = HandlerKind::Nonce;
        self
    }

    /// Each runs so many tasks at once.
    pub fn slots(mut self, slots: u32) -> Self {
        self.spec.slots = slots;
        self
    }

    /// They beat so often, in milliseconds.
    pub fn beat_ms(mut self, beat_ms: u64) -> Self {
        self.spec.beat_interval_ms = beat_ms;
        self
    }

    /// Its process says nothing when a test fails.
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Starts the process; returns when its terminals run.
    pub async fn start(mut self) -> Self {
        self.restart().await;
        self
    }

    /// Starts it again, with the journal it has; returns when its terminals run.
    pub async fn restart(&mut self) {
        self.launch();
        self.ready().await;
    }

    /// Starts its process, and does not wait for it.
    pub fn launch(&mut self) {
        let spec = self.folder.join(format!("{}.json", self.name));
        std::fs::write(&spec, serde_json::to_vec(&self.spec).expect("JSON")).expect("room on disk");
        let spec = spec.to_string_lossy().into_owned();
        let run = ["terminal-host", "--spec", &spec];
        let shell = ["-c", "trap '' XFSZ; exec \"$@\"", "sh", &self.program];
        let process = if self.outlives_limits {
            Proc::start(&self.name, "sh", &[&shell[..], &run[..]].concat(), &self.folder, &[])
        } else {
            Proc::start(&self.name, &self.program, &run, &self.folder, &[])
        };
        self.process = Some(if self.quiet { process.quiet() } else { process });
    }

    /// Waits until its terminals run.
    pub async fn ready(&mut self) {
        self.process.as_mut().expect("it was launched").hear("ready").await;
    }

    /// Sends its process a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.as_ref().expect("it runs").signal(signal);
    }

    /// How its process ended, if it has one and that has ended by itself.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.process.as_mut().and_then(Proc::has_ended)
    }

    /// Whether it has a process.
    pub fn runs(&self) -> bool {
        self.process.is_some()
    }

    /// From the next start on they talk to another server.
    pub fn moves_to(&mut self, url: &str) {
        self.spec.url = url.to_owned();
    }

    /// Brings the offline ones back.
    pub async fn back(&mut self) {
        let process = self.process.as_mut().expect("it runs");
        process.tell("back");
        process.hear("back").await;
    }

    /// Stops it with SIGSTOP, and returns when it has stopped.
    pub fn freeze(&self) {
        self.process.as_ref().expect("it runs").freeze();
    }

    /// Ends it in order; returns when it has ended.
    pub async fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.close_stdin();
            process.exited(SOON * 2).await;
        }
    }

    /// Ends it with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
            self.killed.push((process.pid(), Clock::system().now_ms() * 1_000));
        }
    }

    /// Whether a handler of its process runs right now, by its own account.
    pub fn at_work(&self) -> bool {
        self.process.as_ref().is_some_and(|p| self.account().is_open(p.pid()))
    }

    /// Processes that were killed, and when (epoch microseconds).
    pub fn killed(&self) -> &[(u32, i64)] {
        &self.killed
    }

    /// Their account so far.
    pub fn account(&self) -> Account {
        let mut account = Account::default();
        account.add(&self.spec.executions, &self.killed);
        account
    }

    /// Their journal.
    pub fn journal(&self) -> &Path {
        self.spec.journal.as_deref().expect("on disk")
    }
}

/// The account of several processes together.
pub fn account_of(fleets: &[&Fleet]) -> Account {
    let mut account = Account::default();
    for fleet in fleets {
        account.add(&fleet.spec.executions, &fleet.killed);
    }
    account
}

/// `S_001`, `S_002` ... up to `last`.
pub fn ids(first: usize, last: usize) -> Vec<String> {
    (first..=last).map(|i| format!("S_{i:03}")).collect()
}
