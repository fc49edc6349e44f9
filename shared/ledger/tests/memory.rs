//! What a task costs in memory: live bytes of a view folded from stored messages, and what a snapshot and a summary take beside it.
//!
//! Counted at the allocator, so the figures are the same on every machine. One test: nothing else may allocate meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use fanfold_domain::Json;
use fanfold_domain::event::{Dispatched, LoggedTaskEvent, PROTOCOL_VERSION, TaskEvent, Verdict, Writer};
use fanfold_domain::ids::{PlanId, StageId, TargetId, TaskId};
use fanfold_domain::plan::{Below, Converge, Limits, LoggedPlanEvent, Moment, PlanEvent, PlanSpec, Seal, Timeouts, TypeRef};
use fanfold_domain::retry::RetryPolicy;
use fanfold_domain::view::PlanView;
use fanfold_ledger::open::{fold_plan_event, fold_task_event};
use fanfold_wire::event::{Header, LogEvent, decision_id, decode_linked, encode, report_id, task_data};
use fanfold_wire::subjects;
use peak_alloc::PeakAlloc;
use serde_json::value::RawValue;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const TASKS: usize = 20_000;
const SEALED_MS: i64 = 1_700_000_000_000;

fn raw(text: String) -> Json {
    Json::from(RawValue::from_string(text).unwrap())
}

fn result(i: usize) -> Json {
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

/// A view that is folded from messages as they stand in the log.
struct Folded {
    view: PlanView,
    seq: u64,
}

impl Folded {
    fn sealed() -> Self {
        let submitted = LoggedPlanEvent { seq: 1, time_ms: SEALED_MS, event: PlanEvent::Submitted(Box::new(spec())) };
        let mut folded = Self { view: PlanView::begin(&submitted).unwrap(), seq: 1 };
        let targets: Vec<TargetId> = (0..TASKS).map(|i| TargetId::new(&format!("S{i:06}")).unwrap()).collect();
        let sha256 = fanfold_wire::digest::targets_sha256(targets.iter().map(TargetId::as_str));
        for chunk in targets.chunks(9_000) {
            folded.plan(PlanEvent::Targets { targets: chunk.to_vec() });
        }
        folded.plan(PlanEvent::Sealed(Seal { count: TASKS as u32, sha256, by: "test".into() }));
        folded
    }

    fn plan(&mut self, event: PlanEvent) {
        self.seq += 1;
        let logged = LoggedPlanEvent { seq: self.seq, time_ms: SEALED_MS, event };
        fold_plan_event(&mut self.view, &[], &logged, None);
    }

    fn task(&mut self, i: usize, event: &TaskEvent) {
        let target = TargetId::new(&format!("S{i:06}")).unwrap();
        let (plan, terminal) = (self.view.plan.id().clone(), target.terminal());
        let task = TaskId::new(plan, target, StageId::main());
        let decision = event.is_decision();
        let (subject, id) = if decision {
            (subjects::task_decision(&task, Some(&terminal)), decision_id(&task, event, 0))
        } else {
            (subjects::task_report(&task, &terminal), report_id(&task, &terminal, event))
        };
        let about = task.to_string();
        let header = Header { id: &id, source: "/test", subject: &about, time_ms: Some(SEALED_MS), traceparent: None };
        let payload = encode(event.name(), &task_data(event).unwrap(), header).unwrap();
        self.seq += 1;
        let (event, before) = decode_linked(self.seq, SEALED_MS + self.seq as i64, &subject, &payload).unwrap();
        let LogEvent::Task(task, logged) = event else { panic!("{subject}") };
        let LoggedTaskEvent { ref writer, .. } = logged;
        assert_eq!(*writer == Writer::Hq, decision);
        assert_eq!(fold_task_event(&mut self.view, &[], &task.target, &logged, before), Some(i));
    }

    fn all(&mut self, event: impl Fn(usize) -> TaskEvent) {
        (0..TASKS).for_each(|i| self.task(i, &event(i)));
    }
}

fn dispatched(i: usize) -> TaskEvent {
    TaskEvent::Dispatched(Box::new(Dispatched {
        protocol_version: PROTOCOL_VERSION,
        attempt: 1,
        terminal: TargetId::new(&format!("S{i:06}")).unwrap().terminal(),
        journal: format!("{:032x}", 0x9e37_79b9_7f4a_7c15_u128 * (i as u128 + 1)),
        boot: format!("{i:032x}"),
        kind: "noop".into(),
        version: 1,
        input: raw("{}".into()),
        run_timeout_ms: 600_000,
    }))
}

fn succeeded(i: usize) -> TaskEvent {
    let verdict = Verdict { valid: true, errors: Vec::new() };
    TaskEvent::Succeeded { attempt: 1, result: result(i), run_ms: Some(1), verdict }
}

/// Live bytes a task beyond those before.
fn per_task(before: usize) -> usize {
    HEAP.current_usage().saturating_sub(before) / TASKS
}

#[test]
fn a_task_costs_what_is_kept_of_it() {
    let before = HEAP.current_usage();
    let mut folded = Folded::sealed();
    let sealed = per_task(before);
    folded.all(|_| TaskEvent::Deferred { last_seen_ms: None });
    let offline = per_task(before);
    folded.all(dispatched);
    let out = per_task(before);
    folded.all(succeeded);
    let done = per_task(before);
    let result = result(0).get().len();
    eprintln!("bytes a task: sealed {sealed}, offline {offline}, out {out}, done {done}, of which result {result}");
}
