//! A ledger in memory with a plan in it, and an API that answers what a test says.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use clap::Parser;
use fanfold::cli::Cli;
use fanfold::error::CliError;
use fanfold::exit::Exit;
use fanfold::out::{Captured, Out};
use fanfold::session::Session;
use fanfold::verify::fold_plan;
use fanfold_domain::event::TaskEvent;
use fanfold_domain::ids::{PlanId, TaskId, TerminalId};
use fanfold_domain::plan::{PlanEvent, PlanSpec, Seal, Summarised, SummaryKind, SummaryRef};
use fanfold_domain::summary::Summary;
use fanfold_domain::testing::{SEALED_MS, spec, target};
use fanfold_ledger::memory::MemoryLedger;
use fanfold_ledger::port::{Append, Buckets, Bus, Log, Objects};
use fanfold_wire::digest::sha256_hex;
use fanfold_wire::event::{Header, decision_id, encode, plan_data, plan_event_id, report_id, task_data};
use fanfold_wire::record::{Checkpoint, PlanRecord, TaskRecord, plan_key, task_key};
use fanfold_wire::subjects::{plan_event, task_decision, task_report};
use futures::StreamExt;
use serde_json::Value;

/// A ledger whose clock moves one second an event.
#[derive(Clone)]
pub struct World {
    pub ledger: MemoryLedger,
    clock: Arc<AtomicI64>,
}

impl World {
    pub fn new() -> Self {
        let clock = Arc::new(AtomicI64::new(SEALED_MS));
        let reader = clock.clone();
        let ledger = MemoryLedger::new(Arc::new(move || reader.load(Ordering::SeqCst)), 600_000);
        Self { ledger, clock }
    }

    pub fn plan(&self) -> PlanId {
        spec().plan_id
    }

    async fn append(&self, subject: String, id: String, payload: Vec<u8>) -> u64 {
        let event = Append { subject, id, payload: Bytes::from(payload), expect: None };
        let seq = self.ledger.append(vec![event]).await.unwrap()[0].stored_seq().unwrap();
        self.clock.fetch_add(1_000, Ordering::SeqCst);
        seq
    }

    async fn before(&self, filter: &str) -> u64 {
        self.ledger.last_under(filter).await.unwrap().map_or(0, |m| m.seq)
    }

    pub async fn plan_event(&self, event: PlanEvent) -> u64 {
        let (plan, data) = (self.plan(), plan_data(&event).unwrap());
        let before = self.before(&fanfold_wire::subjects::plan_filter(&plan)).await;
        let id = plan_event_id(&plan, &event, before, &data);
        let header = Header { id: &id, source: "/test", subject: plan.as_str(), time_ms: None, traceparent: None };
        let payload = encode(&format!("plan.{}", event.name()), &data, header).unwrap();
        self.append(plan_event(&plan, event.name()), id, payload).await
    }

    pub async fn task_event(&self, i: usize, event: TaskEvent) -> u64 {
        let task = TaskId::new(self.plan(), target(i), fanfold_domain::ids::StageId::main());
        let terminal: TerminalId = target(i).terminal();
        let (id, subject) = if event.is_decision() {
            let id = decision_id(&task, &event, self.before(&fanfold_wire::subjects::task_decision_filter(&task)).await);
            (id, task_decision(&task, Some(&terminal)))
        } else {
            (report_id(&task, &terminal, &event), task_report(&task, &terminal))
        };
        let about = task.to_string();
        let header = Header { id: &id, source: "/test", subject: &about, time_ms: None, traceparent: None };
        let payload = encode(event.name(), &task_data(&event).unwrap(), header).unwrap();
        self.append(subject, id, payload).await
    }

    /// Submits and seals a plan of so many targets.
    pub async fn submit(&self, spec: PlanSpec, targets: usize) {
        self.plan_event(PlanEvent::Submitted(Box::new(spec))).await;
        self.plan_event(PlanEvent::Targets { targets: (0..targets).map(target).collect() }).await;
        let names: Vec<_> = (0..targets).map(target).collect();
        let sha256 = fanfold_wire::digest::targets_sha256(names.iter().map(|t| t.as_str()));
        let seal = Seal { count: targets as u32, sha256, by: "ann".into() };
        self.plan_event(PlanEvent::Sealed(seal)).await;
    }

    /// What convergence does: computes the next summary, stores the object, then the event.
    pub async fn summarise(&self, kind: SummaryKind) -> Summarised {
        let last = self.ledger.last_seq().await.unwrap();
        let view = fold_plan(&self.ledger, &self.plan(), last).await.unwrap();
        let summary = Summary::compute(&view, kind).unwrap();
        let bytes = summary.to_bytes().unwrap();
        let this = SummaryRef { revision: summary.revision, as_of_seq: summary.as_of_seq, sha256: sha256_hex(&bytes) };
        let summarised =
            Summarised { this, kind, counts: summary.counts, previous: summary.previous.clone(), verdict: summary.verdict };
        self.ledger.put_object(&summarised.this.sha256, Bytes::from(bytes)).await.unwrap();
        self.plan_event(PlanEvent::Summarised(Box::new(summarised.clone()))).await;
        summarised
    }

    /// What the projector does: every record, then the checkpoint.
    pub async fn project(&self) {
        let last = self.ledger.last_seq().await.unwrap();
        let view = fold_plan(&self.ledger, &self.plan(), last).await.unwrap();
        let mut records = vec![(plan_key(&self.plan()), to_bytes(&PlanRecord::of(&view)))];
        for (i, task) in view.tasks.iter().enumerate().filter(|(_, t)| t.seq > 0) {
            assert!(task.seq > 0);
            records.push((task_key(&view.task_id(i).unwrap()), to_bytes(&TaskRecord::of(&view, i).unwrap())));
        }
        self.ledger.put_state(records).await.unwrap();
        let before = self.ledger.get_checkpoint().await.unwrap().map_or(0, |e| e.revision);
        let checkpoint = to_bytes(&Checkpoint::new(last, Default::default()));
        self.ledger.put_checkpoint(checkpoint, before).await.unwrap().unwrap();
    }

    /// An API that answers each request with what `answer(verb, request)` gives; what was asked is kept.
    pub async fn api(&self, answer: impl Fn(&str, &Value) -> Value + Send + 'static) -> Asked {
        let asked = Asked::default();
        let (ledger, keep) = (self.ledger.clone(), asked.clone());
        let mut requests = ledger.subscribe("ff.api.>", None).await.unwrap();
        tokio::spawn(async move {
            while let Some(request) = requests.next().await {
                let verb = request.subject.trim_start_matches("ff.api.").to_owned();
                let body: Value = serde_json::from_slice(&request.payload).unwrap();
                let reply = answer(&verb, &body);
                keep.0.lock().unwrap().push((verb, body));
                ledger.publish(&request.reply.unwrap(), to_bytes(&reply)).await.unwrap();
            }
        });
        asked
    }
}

/// What an API was asked.
#[derive(Clone, Default)]
pub struct Asked(pub Arc<Mutex<Vec<(String, Value)>>>);

impl Asked {
    pub fn all(&self) -> Vec<(String, Value)> {
        self.0.lock().unwrap().clone()
    }
}

pub fn to_bytes(value: &impl serde::Serialize) -> Bytes {
    Bytes::from(serde_json::to_vec(value).unwrap())
}

/// How a command ended and what it wrote.
pub struct Ran {
    pub result: Result<Exit, CliError>,
    pub stdout: Captured,
    pub stderr: Captured,
}

impl Ran {
    pub fn out(&self) -> String {
        self.stdout.text()
    }

    pub fn exit(&self) -> Exit {
        self.result.as_ref().map_or_else(CliError::exit, |e| *e)
    }

    pub fn code(&self) -> String {
        self.result.as_ref().err().map(|e| e.code().to_owned()).unwrap_or_default()
    }
}

/// Runs a command line over a ledger, `fanfold` left out.
pub async fn run(world: &World, args: &[&str]) -> Ran {
    let cli = Cli::try_parse_from(std::iter::once(&"fanfold").chain(args)).unwrap();
    let (out, stdout, stderr) = Out::captured();
    let mut session = Session::over(Arc::new(world.ledger.clone()), out.clone());
    session.json = cli.global.json;
    let result = fanfold::execute(cli.command, &session).await;
    if let Err(error) = &result {
        out.error(error, cli.global.json);
    }
    Ran { result, stdout, stderr }
}
