//! A small terminal that does what its script says and keeps an account of every execution, over all its lives.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fanfold_domain::event::PROTOCOL_VERSION;
use fanfold_domain::ids::{TaskId, TerminalId};
use fanfold_ledger::memory::MemoryLedger;
use fanfold_ledger::port::Bus;
use fanfold_wire::subjects;
use fanfold_wire::terminal::*;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::life::Life;

/// What it does with an attempt.
#[derive(Debug, Clone)]
pub enum Act {
    /// Says so at once, then succeeds.
    Succeed(u64),
    /// Succeeds without ever having said that it began.
    SucceedQuietly(u64),
    Fail(u64, &'static str),
    /// Ends with a result that breaks the schema.
    Garbage(u64),
    Reject(&'static str),
    /// Begins, and never ends.
    Hang,
    /// Takes it without a word, and never ends.
    HangQuietly,
    /// As if the command had been lost on the way.
    Miss,
}

type Script = Arc<dyn Fn(&TaskId, u32) -> Act + Send + Sync>;
/// How long the n-th message from this terminal is on its way, in ms, and whether it goes twice.
type Network = Arc<dyn Fn(u64) -> (u64, bool) + Send + Sync>;

/// Executions of every terminal: how often each attempt was begun.
pub type Account = Arc<Mutex<BTreeMap<(TaskId, u32), u32>>>;

#[derive(Clone)]
pub struct Options {
    pub beat_ms: u64,
    pub sync_ms: u64,
    pub slots: u32,
    pub script: Script,
    pub network: Network,
}

impl Options {
    pub fn new(script: impl Fn(&TaskId, u32) -> Act + Send + Sync + 'static) -> Self {
        Self { beat_ms: 1_000, sync_ms: 5_000, slots: 1, script: Arc::new(script), network: Arc::new(|_| (0, false)) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Running,
    Finished,
    Settled(u64),
}

#[derive(Debug, Clone)]
pub struct Report {
    pub task: TaskId,
    pub attempt: u32,
    pub name: &'static str,
    pub data: Value,
    pub ends: bool,
    pub sending: bool,
    pub not_before: Instant,
}

/// What survives a restart.
#[derive(Default)]
pub struct Journal {
    pub name: String,
    pub holds: BTreeMap<TaskId, (u32, State)>,
    /// Attempt and whether the answer called it valid, where there was one.
    pub successes: BTreeMap<TaskId, (u32, Option<bool>)>,
    pub outbox: BTreeMap<u64, Report>,
    pub known_seq: u64,
}

pub struct Shared {
    pub journal: Journal,
    pub journals: u32,
    pub boots: u32,
    pub sent: u64,
    pub reports: u64,
}

/// The terminal from outside.
pub struct FakeTerminal {
    pub id: TerminalId,
    ledger: MemoryLedger,
    options: Options,
    account: Account,
    shared: Arc<Mutex<Shared>>,
    life: Option<JoinHandle<()>>,
}

impl FakeTerminal {
    /// One that is off.
    pub fn new(ledger: &MemoryLedger, id: &str, options: Options, account: &Account) -> Self {
        let journal = Journal { name: format!("{id}-j1"), ..Journal::default() };
        let shared = Shared { journal, journals: 1, boots: 0, sent: 0, reports: 0 };
        Self {
            id: TerminalId::new(id).unwrap(),
            ledger: ledger.clone(),
            options,
            account: Arc::clone(account),
            shared: Arc::new(Mutex::new(shared)),
            life: None,
        }
    }

    pub fn is_on(&self) -> bool {
        self.life.is_some()
    }

    /// Starts a new process of it.
    pub fn start(&mut self) {
        self.kill();
        let boot = {
            let mut shared = self.shared.lock().unwrap();
            shared.boots += 1;
            format!("{}-b{}", self.id, shared.boots)
        };
        let life = Life {
            id: self.id.clone(),
            boot,
            ledger: self.ledger.clone(),
            options: self.options.clone(),
            account: Arc::clone(&self.account),
            shared: Arc::clone(&self.shared),
            runs: BTreeMap::new(),
        };
        self.life = Some(tokio::spawn(life.run()));
    }

    /// Ends it without a word.
    pub fn kill(&mut self) {
        if let Some(life) = self.life.take() {
            life.abort();
        }
    }

    /// Forgets everything, as after a new disk.
    pub fn lose_journal(&mut self) {
        let mut shared = self.shared.lock().unwrap();
        shared.journals += 1;
        shared.journal = Journal { name: format!("{}-j{}", self.id, shared.journals), ..Journal::default() };
    }

    /// Says goodbye and ends.
    pub async fn goodbye(&mut self) {
        let beat = {
            let shared = self.shared.lock().unwrap();
            let boot = format!("{}-b{}", self.id, shared.boots);
            Beat {
                identity: identity(&shared.journal.name, &boot, &self.options),
                holds: Vec::new(),
                goodbye: true,
                journal_unavailable: false,
            }
        };
        self.kill();
        self.ledger.publish(&subjects::beat(&self.id), Bytes::from(serde_json::to_vec(&beat).unwrap())).await.unwrap();
    }
}

impl Drop for FakeTerminal {
    fn drop(&mut self) {
        self.kill();
    }
}

pub fn identity(journal: &str, boot: &str, options: &Options) -> Identity {
    Identity {
        protocol_version: PROTOCOL_VERSION,
        version: "fake".into(),
        journal: journal.into(),
        boot: boot.into(),
        slots: options.slots,
        beat_interval_ms: options.beat_ms,
        labels: BTreeMap::new(),
        types: Vec::new(),
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
