//! Every service over one ledger in memory, in virtual time.

#![allow(missing_docs)]

mod checks;
mod faults;
pub mod handle;
pub mod terminal;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
pub use fanfold::host::Role;
use fanfold_domain::ids::{PlanId, TaskId};
use fanfold_domain::plan::{PlanEvent, SummaryKind};
use fanfold_domain::task::{Task, TaskState};
use fanfold_domain::view::PlanView;
use fanfold_ledger::memory::MemoryLedger;
use fanfold_ledger::open::{OpenPlans, fold_plan};
use fanfold_ledger::port::*;
use fanfold_process::clock::Clock;
use fanfold_process::shutdown::Shutdown;
use fanfold_recorder::Stats;
use fanfold_wire::api::{ApiAnswer, ApiError};
use fanfold_wire::digest::sha256_hex;
use fanfold_wire::event::{LogEvent, decode};
use fanfold_wire::types::TypeDocument;
use futures::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use handle::{Faults, Handle};
use terminal::{Account, Act, Options, SimTerminal};

pub const EPOCH_MS: i64 = 1_700_000_000_000;
pub const BEAT_MS: u64 = 1_000;

pub const ROLES: [Role; 5] = Role::ALL;

struct Running {
    faults: Arc<Faults>,
    end: Shutdown,
    task: JoinHandle<Result<(), LedgerError>>,
}

/// One process: a fold of its own and some services.
pub struct Process {
    ledger: MemoryLedger,
    clock: Clock,
    pub open: OpenPlans,
    /// Of the handle its fold follows the log by.
    pub tail: Arc<Faults>,
    running: BTreeMap<Role, Running>,
    pub stats: Arc<Stats>,
    pub in_flight: u32,
    /// Heartbeat interval the dispatcher assumes, in ms.
    pub beat_ms: u64,
    pub recorder: fanfold_recorder::RecorderConfig,
    pub audit_s: u64,
}

impl Process {
    pub async fn new(ledger: &MemoryLedger, clock: &Clock) -> Self {
        let handle = Handle::new(ledger);
        let tail = Arc::clone(&handle.faults);
        let open = OpenPlans::start(Arc::new(handle)).await.unwrap();
        let (ledger, clock) = (ledger.clone(), clock.clone());
        let recorder = fanfold_recorder::RecorderConfig::default();
        Self {
            ledger,
            clock,
            open,
            tail,
            running: BTreeMap::new(),
            stats: Arc::default(),
            in_flight: 1_000,
            beat_ms: BEAT_MS,
            recorder,
            audit_s: 3_600,
        }
    }

    pub fn start(&mut self, role: Role) {
        self.stop(role);
        let handle = Handle::new(&self.ledger);
        let faults = Arc::clone(&handle.faults);
        let (ledger, open, clock): (Arc<dyn Ledger>, _, _) = (Arc::new(handle), self.open.clone(), self.clock.clone());
        let shutdown = Shutdown::new();
        let end = shutdown.clone();
        let task = match role {
            Role::Api => tokio::spawn(fanfold_api::run(fanfold_api::Deps { ledger, open, clock }, end)),
            Role::Recorder => {
                let (config, stats) = (self.recorder.clone(), Arc::clone(&self.stats));
                tokio::spawn(fanfold_recorder::run(fanfold_recorder::Deps { ledger, open, clock, config, stats }, end))
            }
            Role::Dispatcher => {
                let config = fanfold_dispatcher::DispatcherConfig {
                    beat_ms: self.beat_ms,
                    cancel_grace_ms: 2_000,
                    lease_ms: 900,
                    in_flight: self.in_flight,
                    ..Default::default()
                };
                tokio::spawn(fanfold_dispatcher::run(fanfold_dispatcher::Deps { ledger, open, clock, config }, end))
            }
            Role::Projector => {
                let config =
                    fanfold_projector::ProjectorConfig { flush_ms: 25, hold_ms: 500, lease_ms: 900, audit_s: self.audit_s };
                tokio::spawn(fanfold_projector::run(fanfold_projector::Deps { ledger, open, config }, end))
            }
            Role::Convergence => {
                let config = fanfold_convergence::ConvergenceConfig { lease_ms: 900 };
                tokio::spawn(fanfold_convergence::run(fanfold_convergence::Deps { ledger, open, clock, config }, end))
            }
        };
        self.running.insert(role, Running { faults, end: shutdown, task });
    }

    /// Drops a service in the middle of whatever it does.
    pub fn stop(&mut self, role: Role) {
        if let Some(running) = self.running.remove(&role) {
            running.faults.die();
            running.task.abort();
        }
    }

    /// Ends a service in order.
    pub async fn end(&mut self, role: Role) {
        let running = self.running.remove(&role).unwrap();
        running.end.trigger();
        running.task.await.unwrap().unwrap();
    }

    /// Services that run.
    pub fn roles(&self) -> impl Iterator<Item = Role> {
        self.running.keys().copied()
    }

    /// Services that have met the crash planned for them; they do nothing any more.
    pub fn crashed(&self) -> Vec<Role> {
        self.running.iter().filter(|(_, running)| running.faults.has_crashed()).map(|(role, _)| *role).collect()
    }

    pub fn faults(&self, role: Role) -> &Faults {
        &self.running[&role].faults
    }

    pub fn assert_alive(&self) {
        for (role, running) in &self.running {
            assert!(!running.task.is_finished(), "{role:?} has ended");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        ROLES.iter().for_each(|role| self.stop(*role));
    }
}

pub struct World {
    pub ledger: MemoryLedger,
    pub clock: Clock,
    pub hq: Process,
    pub account: Account,
    pub terminals: BTreeMap<String, SimTerminal>,
}

impl World {
    /// All services running, a type `probe@1` registered.
    pub async fn new() -> Self {
        let mut world = Self::silent().await;
        ROLES.iter().for_each(|role| world.hq.start(*role));
        // Until they listen.
        world.sleep(10).await;
        world
    }

    /// No service running.
    pub async fn silent() -> Self {
        let clock = Clock::virtual_from(EPOCH_MS);
        let now = clock.clone();
        let ledger = MemoryLedger::new(Arc::new(move || now.now_ms()), 600_000);
        let schema = r#"{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}"#;
        let kind = json!({ "type": "probe", "version": 1, "aggregates": [] });
        let document = TypeDocument::assemble(&kind.to_string(), "true", schema).unwrap();
        fanfold_api::register_builtin(&ledger, &document).await.unwrap();
        let hq = Process::new(&ledger, &clock).await;
        Self { ledger, clock, hq, account: Account::default(), terminals: BTreeMap::new() }
    }

    pub async fn process(&self) -> Process {
        Process::new(&self.ledger, &self.clock).await
    }

    pub fn terminal_with(&mut self, id: &str, options: Options) -> &mut SimTerminal {
        let mut terminal = SimTerminal::new(&self.ledger, id, options, &self.account);
        terminal.start();
        self.terminals.insert(id.to_owned(), terminal);
        self.terminals.get_mut(id).unwrap()
    }

    /// A terminal that is on and does this.
    pub fn terminal(&mut self, id: &str, script: impl Fn(&TaskId, u32) -> Act + Send + Sync + 'static) -> &mut SimTerminal {
        self.terminal_with(id, Options::new(script))
    }

    pub async fn ask<T: DeserializeOwned>(&self, endpoint: &str, body: Value) -> Result<T, ApiError> {
        let subject = format!("ff.api.{endpoint}");
        let answer = self.ledger.request(&subject, Bytes::from(body.to_string()), Duration::from_secs(30)).await;
        let bytes = answer.map_err(|e| ApiError::new("NO_ANSWER", e.to_string()))?;
        match serde_json::from_slice::<ApiAnswer<T>>(&bytes).unwrap() {
            ApiAnswer::Ok(value) => Ok(value),
            ApiAnswer::Error(error) => Err(error),
        }
    }

    /// Submits a plan over these stores; `more` is put over the defaults of these tests.
    pub async fn submit(&self, plan: &str, stores: &[&str], more: Value) -> fanfold_wire::api::Submitted {
        self.ask("plan.submit", json!({ "plan": document(plan, stores, more), "by": "test" })).await.unwrap()
    }

    pub async fn sleep(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// Waits until the fold satisfies `done`; fails with what it looked like after `within_ms` of virtual time.
    pub async fn until(&self, what: &str, within_ms: u64, done: impl Fn(&World) -> bool) {
        let mut position = self.hq.open.position();
        let wait = async {
            while !done(self) {
                tokio::select! {
                    biased;
                    changed = position.changed() => changed.unwrap(),
                    () = tokio::time::sleep(Duration::from_millis(100)) => {}
                }
            }
        };
        if tokio::time::timeout(Duration::from_millis(within_ms), wait).await.is_err() {
            let plans: Vec<String> = self
                .hq
                .open
                .read()
                .plans()
                .map(|v| {
                    format!("{:?} {:?}", v.plan.id(), v.tasks.iter().filter(|t| !t.state.is_final()).take(3).collect::<Vec<_>>())
                })
                .collect();
            panic!("not within {within_ms} ms: {what}\n{}\n{}", plans.join("\n"), self.tail(40).await);
        }
    }

    /// The end of the log, for people.
    pub async fn tail(&self, count: usize) -> String {
        let log = self.log().await;
        let lines: Vec<String> = log
            .iter()
            .skip(log.len().saturating_sub(count))
            .map(|m| {
                format!(
                    "{} {} {} {}",
                    m.seq,
                    m.time_ms - EPOCH_MS,
                    m.subject,
                    String::from_utf8_lossy(&m.payload)
                        .split("\"data\":")
                        .nth(1)
                        .unwrap_or("")
                        .chars()
                        .take(150)
                        .collect::<String>()
                )
            })
            .collect();
        lines.join("\n")
    }

    pub fn task(&self, plan: &str, store: &str) -> Option<Task> {
        let model = self.hq.open.read();
        let view = model.plan(&PlanId::new(plan).unwrap())?;
        let index = view.plan.index_of(store)?;
        Some(view.tasks[index].clone())
    }

    pub async fn until_task(&self, plan: &str, store: &str, within_ms: u64, done: impl Fn(&Task) -> bool) -> Task {
        self.until(&format!("{plan}.{store}"), within_ms, |w| w.task(plan, store).is_some_and(|t| done(&t))).await;
        self.task(plan, store).unwrap()
    }

    pub async fn until_state(&self, plan: &str, store: &str, state: TaskState, within_ms: u64) -> Task {
        self.until_task(plan, store, within_ms, |t| t.state == state).await
    }

    /// Waits for the final summary.
    pub async fn until_over(&self, plan: &str, within_ms: u64) -> PlanView {
        let id = PlanId::new(plan).unwrap();
        self.until(&format!("{plan} is over"), within_ms, |w| w.hq.open.read().known(&id) == fanfold_ledger::open::Known::Over)
            .await;
        self.view(plan).await
    }

    pub async fn view(&self, plan: &str) -> PlanView {
        let last = self.ledger.last_seq().await.unwrap();
        fold_plan(&self.ledger, &PlanId::new(plan).unwrap(), last).await.unwrap().unwrap()
    }

    pub async fn log(&self) -> Vec<Stored> {
        let last = self.ledger.last_seq().await.unwrap();
        self.ledger.read(vec![">".into()], 1, last).await.unwrap().map(|m| m.unwrap()).collect().await
    }

    /// Names of a task's events in the log, in order.
    pub async fn story(&self, plan: &str, store: &str) -> Vec<String> {
        let events = self.log().await;
        let told = events.iter().filter_map(|m| match decode(m.seq, m.time_ms, &m.subject, &m.payload).unwrap() {
            LogEvent::Task(task, logged) if task.plan.as_str() == plan && task.target.as_str() == store => {
                Some(logged.event.name().to_owned())
            }
            _ => None,
        });
        told.collect()
    }

    pub async fn kinds(&self, plan: &str) -> Vec<SummaryKind> {
        let events = self.log().await;
        let told = events.iter().filter_map(|m| match decode(m.seq, m.time_ms, &m.subject, &m.payload).unwrap() {
            LogEvent::Plan(id, logged) if id.as_str() == plan => match logged.event {
                PlanEvent::Summarised(s) => Some(s.kind),
                _ => None,
            },
            _ => None,
        });
        told.collect()
    }

    /// A digest of the whole log. The incarnations of the fences are random by design: they count by their order.
    pub async fn log_hash(&self) -> String {
        let mut incarnations: Vec<String> = Vec::new();
        let mut text = String::new();
        for m in self.log().await {
            let mut payload = String::from_utf8_lossy(&m.payload).into_owned();
            if m.subject.starts_with("ff.fence.") {
                let incarnation = m.id.split('/').nth(1).unwrap_or("").to_owned();
                let number = incarnations.iter().position(|known| *known == incarnation).unwrap_or_else(|| {
                    incarnations.push(incarnation.clone());
                    incarnations.len() - 1
                });
                payload = payload.replace(&incarnation, &number.to_string());
            }
            text.push_str(&format!("{} {} {} {payload}\n", m.seq, m.time_ms, m.subject));
        }
        sha256_hex(text.as_bytes())
    }
}

/// A plan document.
pub fn document(plan: &str, stores: &[&str], more: Value) -> Value {
    let mut document = json!({
        "planId": plan,
        "type": "probe@1",
        "input": {},
        "targets": { "stores": stores },
        "deadlineMs": 60_000,
        "expiresMs": 600_000,
        "retry": { "maxAttempts": 3, "backoffMs": [2_000], "jitter": 0.0, "business": ["BIZ_*"] },
        "timeouts": { "deliverMs": 3_000, "runMs": 20_000 },
    });
    for (key, value) in more.as_object().unwrap() {
        document[key] = value.clone();
    }
    document
}
