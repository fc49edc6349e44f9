//! A view folded from messages as they stand in the log, for measuring: what a task takes of memory and of instructions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code, unreachable_pub)]

use fanfold_domain::Json;
use fanfold_domain::aggregate::{AggregateOp, AggregateSpec};
use fanfold_domain::event::{Dispatched, PROTOCOL_VERSION, TaskEvent, Verdict};
use fanfold_domain::ids::{PlanId, StageId, TargetId, TaskId};
use fanfold_domain::plan::{Below, Converge, Limits, LoggedPlanEvent, Moment, PlanEvent, PlanSpec, Seal, Timeouts, TypeRef};
use fanfold_domain::retry::RetryPolicy;
use fanfold_domain::view::PlanView;
use fanfold_ledger::open::{fold_plan_event, fold_task_event};
use fanfold_wire::event::{Header, LogEvent, decision_id, decode_linked, encode, report_id, task_data};
use fanfold_wire::subjects;
use serde_json::value::RawValue;

/// Log time of the seal, epoch ms.
pub const SEALED_MS: i64 = 1_700_000_000_000;

/// A JSON text.
pub fn raw(text: String) -> Json {
    Json::from(RawValue::from_string(text).unwrap())
}

/// The `i`th result, of about 300 bytes.
pub fn result(i: usize) -> Json {
    raw(format!(
        r#"{{"store":"S{i:06}","appVersion":"4.18.0","lines":{},"errors":17,"warnings":240,"levels":{{"INFO":47954,"WARN":240,"ERROR":17}},"first":"2026-09-17T08:00:01+08:00","last":"2026-09-17T21:59:58+08:00","configSha256":"2f7a8896b386711189137684dc4338d13497e27abb1bde9c06db5919e231e7ad"}}"#,
        40_000 + i
    ))
}

fn spec() -> PlanSpec {
    PlanSpec {
        plan_id: PlanId::new("plan_1").unwrap(),
        title: None,
        business_key: None,
        kind: TypeRef { name: "noop".into(), version: 1 },
        input: raw("{}".into()),
        deadline: Moment::AfterSealMs(3_600_000),
        expires: Moment::AfterSealMs(86_400_000),
        limits: Limits { in_flight: 1_000_000 },
        converge: Converge { min_success: 0.5, below: Below::Reserved },
        retry: RetryPolicy::default(),
        timeouts: Timeouts { deliver_ms: 30_000, run_ms: 600_000, progress_ms: None },
        aggregates: Vec::new(),
        output_schema: raw("true".into()),
        rules: fanfold_domain::RULES_VERSION,
        content_sha256: "00".into(),
        traceparent: None,
    }
}

/// A message as it stands in the log.
pub struct Message {
    seq: u64,
    subject: String,
    payload: Vec<u8>,
}

/// A view that is folded from messages as they stand in the log.
pub struct Folded {
    pub view: PlanView,
    pub seq: u64,
    tasks: usize,
}

impl Folded {
    /// A sealed plan of so many tasks.
    pub fn sealed(tasks: usize, aggregates: Vec<AggregateSpec>) -> Self {
        let spec = PlanSpec { aggregates, ..spec() };
        let submitted = LoggedPlanEvent { seq: 1, time_ms: SEALED_MS, event: PlanEvent::Submitted(Box::new(spec)) };
        let mut folded = Self { view: PlanView::begin(&submitted).unwrap(), seq: 1, tasks };
        let targets: Vec<TargetId> = (0..tasks).map(target).collect();
        let sha256 = fanfold_wire::digest::targets_sha256(targets.iter().map(TargetId::as_str));
        for chunk in targets.chunks(9_000) {
            folded.plan(PlanEvent::Targets { targets: chunk.to_vec() });
        }
        folded.plan(PlanEvent::Sealed(Seal { count: tasks as u32, sha256, by: "test".into() }));
        folded
    }

    /// Folds an event of the plan itself.
    pub fn plan(&mut self, event: PlanEvent) {
        self.seq += 1;
        let logged = LoggedPlanEvent { seq: self.seq, time_ms: SEALED_MS, event };
        fold_plan_event(&mut self.view, &[], &logged, None);
    }

    /// The next message of the log.
    pub fn message(&mut self, i: usize, event: &TaskEvent) -> Message {
        let target = target(i);
        let (plan, terminal) = (self.view.plan.id().clone(), target.terminal());
        let task = TaskId::new(plan, target, StageId::main());
        let (subject, id) = if event.is_decision() {
            (subjects::task_decision(&task, Some(&terminal)), decision_id(&task, event, 0))
        } else {
            (subjects::task_report(&task, &terminal), report_id(&task, &terminal, event))
        };
        let about = task.to_string();
        let header = Header { id: &id, source: "/test", subject: &about, time_ms: Some(SEALED_MS), traceparent: None };
        let payload = encode(event.name(), &task_data(event).unwrap(), header).unwrap();
        self.seq += 1;
        Message { seq: self.seq, subject, payload }
    }

    /// Reads and folds a message.
    pub fn fold(&mut self, message: &Message) {
        let Message { seq, subject, payload } = message;
        let (event, before) = decode_linked(*seq, SEALED_MS + *seq as i64, subject, payload).unwrap();
        let LogEvent::Task(task, logged) = event else { panic!("{subject}") };
        fold_task_event(&mut self.view, &[], &task.target, &logged, before).unwrap();
    }

    /// Folds an event of every task.
    pub fn all(&mut self, event: impl Fn(usize) -> TaskEvent) {
        for i in 0..self.tasks {
            let message = self.message(i, &event(i));
            self.fold(&message);
        }
    }
}

/// The `i`th target.
pub fn target(i: usize) -> TargetId {
    TargetId::new(&format!("S{i:06}")).unwrap()
}

/// An aggregate of every kind.
pub fn aggregates() -> Vec<AggregateSpec> {
    let of = |name: &str, op, pointer: &str, k, p| AggregateSpec { name: name.into(), op, pointer: pointer.into(), k, p };
    vec![
        of("lines", AggregateOp::Sum, "/lines", None, None),
        of("errors", AggregateOp::Max, "/levels/ERROR", None, None),
        of("byVersion", AggregateOp::CountBy, "/appVersion", None, None),
        of("configs", AggregateOp::Distinct, "/configSha256", None, None),
        of("p99", AggregateOp::Percentile, "/warnings", None, Some(99.0)),
        of("topErrors", AggregateOp::TopK, "/errors", Some(5), None),
    ]
}

/// The `i`th task is handed out.
pub fn dispatched(i: usize) -> TaskEvent {
    TaskEvent::Dispatched(Box::new(Dispatched {
        protocol_version: PROTOCOL_VERSION,
        attempt: 1,
        terminal: target(i).terminal(),
        journal: format!("{:032x}", 0x9e37_79b9_7f4a_7c15_u128 * (i as u128 + 1)),
        boot: format!("{i:032x}"),
        kind: "noop".into(),
        version: 1,
        input: raw("{}".into()),
        run_timeout_ms: 600_000,
    }))
}

/// The `i`th task succeeds.
pub fn succeeded(i: usize) -> TaskEvent {
    let verdict = Verdict { valid: true, errors: Vec::new() };
    TaskEvent::Succeeded { attempt: 1, result: result(i), run_ms: Some(1), verdict }
}
