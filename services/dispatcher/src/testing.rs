//! For tests: a log in memory, its fold, and terminals that are there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanfold_domain::dispatch::Hq;
use fanfold_domain::event::{Dispatched, PROTOCOL_VERSION, TaskEvent};
use fanfold_domain::ids::{PlanId, TargetId, TaskId, TerminalId};
use fanfold_domain::plan::{Asked, Limits, PlanEvent, Seal};
use fanfold_domain::testing::{json, spec};
use fanfold_ledger::memory::MemoryLedger;
use fanfold_ledger::open::OpenPlans;
use fanfold_ledger::port::{Append, Log};
use fanfold_wire::event::{Header, encode, plan_data, task_data};
use fanfold_wire::subjects;
use fanfold_wire::terminal::{Beat, Identity};

use crate::terminals::Terminals;
use crate::work::{PlanWork, Work};

/// Log time of everything here, epoch ms.
pub(crate) const NOW_MS: i64 = 1_700_000_000_000;

pub(crate) struct Fixture {
    pub(crate) ledger: MemoryLedger,
    pub(crate) open: OpenPlans,
    pub(crate) terminals: Terminals,
    pub(crate) work: Work,
    number: u64,
}

pub(crate) fn hq() -> Hq {
    Hq { now_ms: NOW_MS, started_ms: 0, connected_ms: 0, caught_up: true, beat_ms: 15_000, cancel_grace_ms: 10_000 }
}

pub(crate) fn plan_id(name: &str) -> PlanId {
    PlanId::new(name).unwrap()
}

pub(crate) fn identity(journal: &str, boot: &str, slots: u32) -> Identity {
    Identity {
        protocol_version: PROTOCOL_VERSION,
        version: String::new(),
        journal: journal.into(),
        boot: boot.into(),
        slots,
        beat_interval_ms: 0,
        labels: Default::default(),
        types: Vec::new(),
    }
}

impl Fixture {
    /// An empty log.
    pub(crate) async fn new() -> Self {
        let ledger = MemoryLedger::new(Arc::new(|| NOW_MS), 600_000);
        let open = OpenPlans::start(Arc::new(ledger.clone())).await.unwrap();
        Self { ledger, open, terminals: Terminals::new(100_000), work: Work::default(), number: 0 }
    }

    async fn append(&mut self, subject: String, name: &str, data: &serde_json::value::RawValue) -> u64 {
        self.number += 1;
        let id = format!("test/{}", self.number);
        let header = Header { id: &id, source: "/test", subject: "test", time_ms: None, traceparent: None };
        let payload = Bytes::from(encode(name, data, header).unwrap());
        let seq = self.ledger.append(vec![Append { subject, id, payload, expect: None }]).await.unwrap()[0].stored_seq().unwrap();
        assert!(self.open.reached(seq, Duration::from_secs(5)).await);
        seq
    }

    pub(crate) async fn plan_event(&mut self, plan: &str, event: PlanEvent) -> u64 {
        let subject = subjects::plan_event(&plan_id(plan), event.name());
        self.append(subject, &format!("plan.{}", event.name()), &plan_data(&event).unwrap()).await
    }

    /// A sealed plan over these targets.
    pub(crate) async fn plan(&mut self, plan: &str, targets: &[String], in_flight: u32) {
        let mut spec = spec();
        spec.plan_id = plan_id(plan);
        spec.limits = Limits { in_flight };
        self.plan_event(plan, PlanEvent::Submitted(Box::new(spec))).await;
        let ids = targets.iter().map(|t| TargetId::new(t).unwrap()).collect();
        self.plan_event(plan, PlanEvent::Targets { targets: ids }).await;
        let seal = Seal { count: targets.len() as u32, sha256: "ab".repeat(32), by: "test".into() };
        self.plan_event(plan, PlanEvent::Sealed(seal)).await;
        self.work.plans.insert(plan_id(plan), PlanWork::default());
    }

    pub(crate) async fn close(&mut self, plan: &str) {
        self.plan_event(plan, PlanEvent::CloseRequested(Asked { by: "test".into(), reason: String::new() })).await;
        self.plan_event(plan, PlanEvent::Closed).await;
    }

    pub(crate) async fn decided(&mut self, plan: &str, target: &str, event: TaskEvent) -> u64 {
        let task = task_id(plan, target);
        let subject = subjects::task_decision(&task, None);
        self.append(subject, event.name(), &task_data(&event).unwrap()).await
    }

    pub(crate) async fn reported(&mut self, plan: &str, target: &str, event: TaskEvent) -> u64 {
        let task = task_id(plan, target);
        let subject = subjects::task_report(&task, &TerminalId::new(target).unwrap());
        self.append(subject, event.name(), &task_data(&event).unwrap()).await
    }

    pub(crate) async fn dispatched(&mut self, plan: &str, target: &str, attempt: u32, journal: &str) -> u64 {
        let dispatched = Dispatched {
            protocol_version: PROTOCOL_VERSION,
            attempt,
            terminal: TerminalId::new(target).unwrap(),
            journal: journal.into(),
            boot: "boot".into(),
            kind: "echo".into(),
            version: 1,
            input: json("{}"),
            run_timeout_ms: 1_000,
        };
        self.decided(plan, target, TaskEvent::Dispatched(Box::new(dispatched))).await
    }

    /// Terminals that beat, with so many slots each.
    pub(crate) fn online(&mut self, names: &[String], slots: u32) {
        for name in names {
            let beat =
                Beat { identity: identity("j", "boot", slots), holds: Vec::new(), goodbye: false, journal_unavailable: false };
            self.terminals.beat(&TerminalId::new(name).unwrap(), beat, NOW_MS, 15_000);
        }
    }

    /// Queues every task of a plan as ready.
    pub(crate) fn queue_all(&mut self, plan: &str) {
        let count = self.open.read().plan(&plan_id(plan)).unwrap().tasks.len();
        let work = self.work.plans.get_mut(&plan_id(plan)).unwrap();
        (0..count as u32).for_each(|i| work.queue(i));
    }

    /// Hands out; gives how many hand-outs of each plan are in the outbox, by plan name.
    pub(crate) fn hand_out(&mut self, in_flight_max: usize, hq: &Hq) -> std::collections::BTreeMap<String, usize> {
        crate::ready::hand_out(&self.open.read(), &mut self.work, &self.terminals, hq, in_flight_max);
        let mut counts = std::collections::BTreeMap::new();
        for decision in &self.work.outbox {
            if matches!(decision.event, Some(TaskEvent::Dispatched(_))) {
                *counts.entry(decision.plan.to_string()).or_default() += 1;
            }
        }
        counts
    }
}

pub(crate) fn task_id(plan: &str, target: &str) -> TaskId {
    TaskId::parse(&format!("{plan}.{target}.main")).unwrap()
}

/// `prefix0`, `prefix1` ...
pub(crate) fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}{i}")).collect()
}
