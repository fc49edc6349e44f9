//! The reference model against the product's fold, task by task and event by event: on the golden log and on random histories.
//!
//! The two share no code. Where they disagree one of them has the design wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "contract/history.rs"]
#[allow(dead_code, reason = "shared with the contract tests")]
mod history;
#[path = "model/random.rs"]
mod random;
#[path = "contract/samples.rs"]
#[allow(dead_code, reason = "shared with the contract tests")]
mod samples;

use std::collections::BTreeMap;

use fanfold_domain::ids::TargetId;
use fanfold_domain::sets::set_of;
use fanfold_domain::task::{Task, TaskState};
use fanfold_domain::view::PlanView;
use fanfold_model::Model;
use fanfold_wire::event::{LogEvent, decode};
use serde_json::Value;

/// A stored message: sequence, log time (epoch ms), subject, payload.
pub(crate) type Stored = (u64, i64, String, Vec<u8>);

/// The same messages through the product and through the model.
struct Both {
    view: Option<PlanView>,
    model: Model,
}

impl Both {
    fn new() -> Self {
        Self { view: None, model: Model::new() }
    }

    /// Feeds one; fails if the two disagree about the task or the plan.
    fn feed(&mut self, (seq, time_ms, subject, payload): &Stored) -> Result<(), String> {
        self.model.feed(*seq, *time_ms, subject, payload);
        let target = match decode(*seq, *time_ms, subject, payload) {
            Ok(LogEvent::Plan(_, logged)) => {
                match &mut self.view {
                    Some(view) => view.apply_plan(&logged),
                    None => self.view = PlanView::begin(&logged),
                }
                None
            }
            Ok(LogEvent::Task(task, logged)) => {
                self.view.as_mut().and_then(|v| v.apply_task(&task.target, &logged));
                Some(task.target.clone())
            }
            Ok(LogEvent::Fence(_)) | Err(_) => None,
        };
        let difference = match &target {
            Some(target) => self.task_difference(target),
            None => self.plan_difference(),
        };
        difference.map_or(Ok(()), |d| Err(format!("at {seq}, {subject} {}\n{d}", String::from_utf8_lossy(payload))))
    }

    fn task_difference(&self, target: &TargetId) -> Option<String> {
        let view = self.view.as_ref()?;
        let index = view.plan.index_of(target.as_str())?;
        let task = &view.tasks[index];
        let plan = self.model.plan(view.plan.id().as_str()).expect("the plan");
        let modelled = &plan.tasks[target.as_str()];
        let (product, model) = (product_says(view, task), model_says(modelled, plan.set_of(target.as_str()), task.not_before_ms));
        let fields = product.iter().filter(|(name, value)| model[*name] != **value);
        let said: Vec<String> =
            fields.map(|(name, value)| format!("{name}: the product says {value}, the model {}", model[name])).collect();
        (!said.is_empty()).then(|| format!("{target}: {}", said.join("; ")))
    }

    fn plan_difference(&self) -> Option<String> {
        let view = self.view.as_ref()?;
        let Some(plan) = self.model.plan(view.plan.id().as_str()) else { return Some("the model has no plan".into()) };
        let counts = serde_json::to_value(view.counts()).unwrap();
        let sets = serde_json::to_value(plan.sets()).unwrap();
        let targets: Vec<&str> = view.plan.targets.iter().map(TargetId::as_str).collect();
        let product = (counts, view.is_over(), view.last_seq, targets.join(","), absorbed(view));
        let model = (sets, plan.is_over(), plan.last_seq, plan.targets.join(","), plan.absorbed());
        (product != model).then(|| format!("the product says {product:?}\n      the model {model:?}"))
    }

    fn compare_all(&self) -> Result<(), String> {
        let targets = self.view.iter().flat_map(|v| v.plan.targets.iter());
        let tasks = targets.filter_map(|target| self.task_difference(target));
        self.plan_difference().into_iter().chain(tasks).next().map_or(Ok(()), Err)
    }
}

fn absorbed(view: &PlanView) -> [u32; 5] {
    let a = view.absorbed();
    [a.duplicate, a.stale, a.late, a.foreign, a.ignored]
}

type Says = BTreeMap<&'static str, Value>;

fn product_says(view: &PlanView, task: &Task) -> Says {
    let a = task.absorbed();
    let result = task.result.as_ref().map(|r| r.0.get().to_owned());
    let open: Vec<u32> = task.superseded_open().map(|a| a.number).collect();
    let to_stop: Vec<u32> = task.attempts.iter().filter(|a| a.stop_requested).map(|a| a.number).collect();
    let pending = task.state == TaskState::Pending;
    BTreeMap::from([
        ("state", serde_json::to_value(task.state).unwrap()),
        ("attempt", task.attempt.into()),
        ("lastAttempt", task.last_attempt.into()),
        ("tries", task.tries.into()),
        ("set", serde_json::to_value(set_of(&view.plan, task)).unwrap()),
        ("absorbed", vec![a.duplicate, a.stale, a.late, a.foreign, a.ignored].into()),
        ("late", task.late.into()),
        ("failure", serde_json::to_value(task.failure).unwrap()),
        ("errorCode", task.error.as_ref().map(|e| e.code.clone()).into()),
        ("result", result.into()),
        ("cancelling", (task.cancelling && task.state.is_live()).into()),
        ("waitsOffline", (pending && task.is_offline()).into()),
        ("notBefore", if pending { task.not_before_ms.into() } else { Value::Null }),
        ("freeEnds", if pending { task.no_try_ends.into() } else { Value::Null }),
        ("decisionSeq", task.decision_seq.into()),
        ("open", open.into()),
        ("toStop", to_stop.into()),
    ])
}

/// `not_before_ms` is the product's: the model only knows between which moments the plan's jitter leads.
fn model_says(task: &fanfold_model::Task, set: &str, not_before_ms: i64) -> Says {
    let a = &task.absorbed;
    let open: Vec<u32> = task.open_beside().map(|a| a.number).collect();
    let to_stop: Vec<u32> = task.attempts.iter().filter(|a| a.stop_requested).map(|a| a.number).collect();
    let pending = task.state == "PENDING";
    let (least, most) = (task.not_before_ms.0.max(0), task.not_before_ms.1.max(0));
    BTreeMap::from([
        ("state", task.state.into()),
        ("attempt", task.attempt.into()),
        ("lastAttempt", task.last_attempt.into()),
        ("tries", task.tries.into()),
        ("set", set.into()),
        ("absorbed", vec![a.duplicate, a.stale, a.late, a.foreign, a.ignored].into()),
        ("late", task.late.into()),
        ("failure", task.failure.into()),
        ("errorCode", task.error_code.clone().into()),
        ("result", task.result.clone().into()),
        ("cancelling", (task.cancelling && task.is_live()).into()),
        ("waitsOffline", (pending && task.waiting == Some("offline")).into()),
        ("notBefore", if pending { not_before_ms.clamp(least, most).into() } else { Value::Null }),
        ("freeEnds", if pending { task.free_ends.into() } else { Value::Null }),
        ("decisionSeq", task.decision_seq.into()),
        ("open", open.into()),
        ("toStop", to_stop.into()),
    ])
}

/// Random histories; more where the build is fast.
const HISTORIES: u64 = if cfg!(debug_assertions) { 400 } else { 4_000 };

#[test]
fn the_model_and_the_fold_agree_on_the_golden_log() {
    let mut log = history::until_deadline();
    let summaries = history::until_closed(&mut log);
    let mut both = Both::new();
    for stored in &log.messages {
        both.feed(stored).unwrap_or_else(|difference| panic!("{difference}"));
        both.compare_all().unwrap_or_else(|difference| panic!("after {}: {difference}", stored.0));
    }
    let plan = both.model.plan("plan_7788").unwrap();
    assert_eq!(both.model.garbage(), 0);
    assert_eq!(plan.targets, history::TARGETS);
    assert!(plan.is_over());
    let digests: Vec<&str> = plan.summaries.iter().map(|s| s.sha256.as_str()).collect();
    assert_eq!(digests, summaries.map(|bytes| fanfold_wire::digest::sha256_hex(&bytes)));
    for summary in &plan.summaries {
        assert_eq!(summary.counts.values().sum::<u64>(), history::TARGETS.len() as u64);
    }
}

#[test]
fn the_model_and_the_fold_agree_on_random_histories() {
    let mut rows: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..HISTORIES {
        let mut both = Both::new();
        for stored in random::history(seed) {
            both.feed(&stored).unwrap_or_else(|difference| panic!("seed {seed} {difference}"));
        }
        both.compare_all().unwrap_or_else(|difference| panic!("seed {seed} at the end: {difference}"));
        for (row, times) in both.model.rows() {
            *rows.entry(row).or_default() += times;
        }
    }
    let unvisited: Vec<&&str> = rows.iter().filter(|(_, times)| **times == 0).map(|(row, _)| row).collect();
    assert!(unvisited.is_empty(), "no history took {unvisited:?}");
    assert_eq!(rows.len(), fanfold_model::ALL_ROWS.len());
}
