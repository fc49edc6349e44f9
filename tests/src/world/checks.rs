//! What must hold of every history, whatever happened in it.

use std::collections::BTreeMap;

use fanfold_domain::event::TaskEvent;
use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::PlanEvent;
use fanfold_domain::sets::set_of;
use fanfold_domain::summary::Summary;
use fanfold_ledger::open::{fold_plan, plans_since};
use fanfold_ledger::port::{Buckets, Log, Objects, Stored};
use fanfold_model::Model;
use fanfold_wire::digest::sha256_hex;
use fanfold_wire::event::{LogEvent, decode};
use fanfold_wire::record::{PlanRecord, TaskRecord, plan_key, task_key};
use futures::StreamExt;
use serde_json::{Value, json};

use super::World;

impl World {
    /// What must hold of every history: summaries reproducible and adding up, cancels clean, no attempt begun twice, state as folded.
    pub async fn check(&self) {
        self.hq.assert_alive();
        let problems = self.account.problems();
        assert!(problems.is_empty(), "{problems:#?}");
        let last = self.ledger.last_seq().await.unwrap();
        for plan in plans_since(&self.ledger, None, last).await.unwrap() {
            self.check_log(&plan).await;
        }
        self.check_model().await;
    }

    /// The reference model finds no rule broken in the log, and its tasks are those of the fold.
    pub async fn check_model(&self) {
        let mut model = Model::new();
        let log = self.log().await;
        for m in &log {
            model.feed(m.seq, m.time_ms, &m.subject, &m.payload);
        }
        // What the simulation writes on purpose to break the rules breaks them; it signs with this source.
        let meant = |m: &&Stored| String::from_utf8_lossy(&m.payload).contains(r#""source":"/sim/"#);
        let meant: Vec<String> = log.iter().filter(meant).map(|m| format!("seq {}:", m.seq)).collect();
        let mut violations = model.violations();
        violations.retain(|v| !meant.iter().any(|m| v.starts_with(m)));
        if !violations.is_empty() {
            panic!("the log breaks rules:\n{}\n{}", violations.join("\n"), self.tail(400).await);
        }
        for plan in model.plans() {
            let view = self.view(&plan.id).await;
            for (target, task) in view.plan.targets.iter().zip(&view.tasks) {
                let modelled = &plan.tasks[target.as_str()];
                let folded = (json!(task.state), task.attempt, task.tries, json!(set_of(&view.plan, task)));
                let model = (json!(modelled.state), modelled.attempt, modelled.tries, json!(plan.set_of(target.as_str())));
                assert_eq!(folded, model, "{} {target}: the fold and the model", plan.id);
            }
        }
    }

    async fn check_log(&self, id: &PlanId) {
        let mut cancelled_seq = None;
        for m in self.log().await {
            match decode(m.seq, m.time_ms, &m.subject, &m.payload).unwrap() {
                LogEvent::Plan(plan, logged) if plan == *id => match logged.event {
                    PlanEvent::Summarised(s) => {
                        let view = fold_plan(&self.ledger, id, s.this.as_of_seq).await.unwrap().unwrap();
                        let summary = Summary::compute(&view, s.kind).unwrap();
                        let bytes = summary.to_bytes().unwrap();
                        assert_eq!(sha256_hex(&bytes), s.this.sha256, "summary {} of {id} is not reproducible", s.this.revision);
                        assert_eq!(self.ledger.get_object(&s.this.sha256).await.unwrap().as_deref(), Some(bytes.as_slice()));
                        assert_eq!(s.counts.total(), view.tasks.len() as u64);
                        assert_eq!((summary.counts, summary.previous.clone()), (s.counts, s.previous.clone()));
                    }
                    PlanEvent::Cancelled => {
                        assert!(cancelled_seq.is_none(), "{id} cancelled twice");
                        cancelled_seq = Some(m.seq);
                        let view = fold_plan(&self.ledger, id, m.seq).await.unwrap().unwrap();
                        assert!(
                            view.tasks.iter().all(|t| t.state.is_final() || t.cancelling),
                            "an open task of {id} without a cancel decision"
                        );
                    }
                    _ => {}
                },
                LogEvent::Task(task, logged) if task.plan == *id && matches!(logged.event, TaskEvent::Dispatched(_)) => {
                    assert_eq!(cancelled_seq, None, "{task} dispatched at {} after plan.cancelled", m.seq);
                }
                _ => {}
            }
        }
    }

    /// The state bucket holds exactly what the log folds to, once the projector has had a moment.
    pub async fn check_state(&self) {
        self.sleep(2_000).await;
        let last = self.ledger.last_seq().await.unwrap();
        let mut expected: BTreeMap<String, Value> = BTreeMap::new();
        for plan in plans_since(&self.ledger, None, last).await.unwrap() {
            let view = fold_plan(&self.ledger, &plan, last).await.unwrap().unwrap();
            expected.insert(plan_key(&plan), serde_json::to_value(PlanRecord::of(&view)).unwrap());
            for i in (0..view.tasks.len()).filter(|i| view.tasks[*i].seq > 0) {
                let record = TaskRecord::of(&view, i).unwrap();
                expected.insert(task_key(&record.task_id), serde_json::to_value(&record).unwrap());
            }
        }
        let mut found: BTreeMap<String, Value> = BTreeMap::new();
        let mut entries = self.ledger.list_state(">").await.unwrap();
        while let Some(entry) = entries.next().await {
            let entry = entry.unwrap();
            found.insert(entry.key.clone(), serde_json::from_slice(&entry.value).unwrap());
        }
        found.remove("checkpoint");
        for (key, value) in &expected {
            assert_eq!(found.get(key), Some(value), "{key}");
        }
        assert_eq!(found.len(), expected.len());
    }
}
