//! One small plan, folded from a fixed log: its tasks end in every way there is, so that summaries and records have every field.

use fanfold_domain::event::{ExpiryReason, LoggedTaskEvent, TaskEvent, TimeoutKind, Verdict, Writer};
use fanfold_domain::plan::{Asked, LoggedPlanEvent, PlanEvent, PlanSpec, Seal, Summarised, SummaryKind, SummaryRef};
use fanfold_domain::summary::Summary;
use fanfold_domain::view::PlanView;
use fanfold_wire::digest::{sha256_hex, targets_sha256};
use fanfold_wire::event::{Header, decision_id, encode, plan_data, plan_event_id, report_id, task_data};
use fanfold_wire::subjects;

use crate::samples::{dispatched, json, plan_id, spec, succeeded, target, task_id, terminal};

/// Targets of the plan.
pub(crate) const TARGETS: [&str; 10] =
    ["SH_0001", "SH_0002", "SH_0003", "SH_0004", "SH_0005", "SH_0006", "SH_0007", "SH_0008", "SH_0009", "SH_0010"];
const START_MS: i64 = 1_789_000_000_000;

/// A log that is being written, and the plan folded from it.
pub(crate) struct History {
    /// The plan as it stands.
    pub(crate) view: PlanView,
    /// The messages as they would be stored: sequence, log time (epoch ms), subject, payload.
    pub(crate) messages: Vec<(u64, i64, String, Vec<u8>)>,
    seq: u64,
}

fn time_ms(seq: u64) -> i64 {
    START_MS + seq as i64 * 1_000
}

impl History {
    /// A sealed plan.
    pub(crate) fn begin(targets: &[&str], change: impl FnOnce(&mut PlanSpec)) -> Self {
        let mut spec = spec();
        change(&mut spec);
        let submitted = LoggedPlanEvent { seq: 11, time_ms: time_ms(11), event: PlanEvent::Submitted(Box::new(spec)) };
        let mut history = Self { view: PlanView::begin(&submitted).unwrap(), messages: Vec::new(), seq: 11 };
        history.store_plan(&submitted.event, 0);
        history.plan(PlanEvent::Targets { targets: targets.iter().map(|t| target(t)).collect() });
        let count = u32::try_from(targets.len()).unwrap();
        history.plan(PlanEvent::Sealed(Seal { count, sha256: targets_sha256(targets.iter().copied()), by: "ops".into() }));
        history
    }

    /// Writes a plan event.
    pub(crate) fn plan(&mut self, event: PlanEvent) {
        let plan_seq = self.view.plan.plan_seq;
        self.seq += 1;
        self.store_plan(&event, plan_seq);
        self.view.apply_plan(&LoggedPlanEvent { seq: self.seq, time_ms: time_ms(self.seq), event });
    }

    /// Writes an event about a target's task, by whom its kind says.
    pub(crate) fn task(&mut self, id: &str, event: TaskEvent) {
        self.seq += 1;
        let writer = if event.is_decision() { Writer::Hq } else { Writer::Terminal(terminal(id)) };
        self.store_task(id, &event);
        self.view.apply_task(&target(id), &LoggedTaskEvent { seq: self.seq, time_ms: time_ms(self.seq), writer, event });
    }

    fn store(&mut self, subject: String, name: &str, data: &serde_json::value::RawValue, id: &str, about: &str) {
        let header = Header { id, source: "/test", subject: about, time_ms: None, traceparent: None };
        self.messages.push((self.seq, time_ms(self.seq), subject, encode(name, data, header).unwrap()));
    }

    fn store_plan(&mut self, event: &PlanEvent, plan_seq: u64) {
        let (data, plan) = (plan_data(event).unwrap(), plan_id());
        let id = plan_event_id(&plan, event, plan_seq, &data);
        self.store(subjects::plan_event(&plan, event.name()), &format!("plan.{}", event.name()), &data, &id, plan.as_str());
    }

    fn store_task(&mut self, id: &str, event: &TaskEvent) {
        let (task, by) = (task_id(id), terminal(id));
        let decision_seq = self.view.tasks[self.view.plan.index_of(target(id).as_str()).unwrap()].decision_seq;
        let (subject, message_id) = if event.is_decision() {
            (subjects::task_decision(&task, Some(&by)), decision_id(&task, event, decision_seq))
        } else {
            (subjects::task_report(&task, &by), report_id(&task, &by, event))
        };
        self.store(subject, event.name(), &task_data(event).unwrap(), &message_id, &task.to_string());
    }

    /// Computes the next summary, writes its event, and gives its bytes.
    pub(crate) fn summarise(&mut self, kind: SummaryKind) -> Vec<u8> {
        let summary = Summary::compute(&self.view, kind).unwrap();
        let bytes = summary.to_bytes().unwrap();
        let this = SummaryRef { revision: summary.revision, as_of_seq: summary.as_of_seq, sha256: sha256_hex(&bytes) };
        let (counts, verdict) = (summary.counts, summary.verdict);
        let previous = summary.previous.clone();
        self.plan(PlanEvent::Summarised(Box::new(Summarised { this, kind, counts, previous, verdict })));
        bytes
    }
}

fn invalid(attempt: u32) -> TaskEvent {
    let verdict = Verdict { valid: false, errors: vec!["/lines: -1 is less than the minimum of 0".into()] };
    TaskEvent::Succeeded { attempt, result: json(r#"{"lines":-1}"#), run_ms: None, verdict }
}

fn failed(attempt: u32, code: &str) -> TaskEvent {
    TaskEvent::Failed { attempt, code: code.into(), message: "it did not work".into(), run_ms: Some(30) }
}

/// Up to the deadline.
pub(crate) fn until_deadline() -> History {
    let mut log = History::begin(&TARGETS, |spec| spec.retry.max_attempts = 2);
    for id in ["SH_0001", "SH_0002", "SH_0003", "SH_0006", "SH_0009", "SH_0010"] {
        log.task(id, dispatched(id, 1));
    }
    log.task("SH_0001", TaskEvent::Started { attempt: 1 });
    log.task("SH_0001", TaskEvent::Progressed { attempt: 1, k: 0, step: "scan".into(), ms: 12 });
    log.task("SH_0001", TaskEvent::Progressed { attempt: 1, k: 0, step: "scan".into(), ms: 12 });
    log.task("SH_0001", failed(1, "NETWORK"));
    log.task("SH_0001", dispatched("SH_0001", 2));
    log.task("SH_0001", succeeded(2, r#"{"lines":7,"version":"4.2.1","z":[1, 2]}"#));
    log.task("SH_0002", failed(1, "NO_SUCH_DATE"));
    log.task("SH_0003", invalid(1));
    log.task("SH_0003", dispatched("SH_0003", 2));
    log.task("SH_0003", invalid(2));
    log.task("SH_0004", TaskEvent::Deferred { last_seen_ms: Some(START_MS) });
    log.task("SH_0005", TaskEvent::Deferred { last_seen_ms: None });
    log.task("SH_0006", TaskEvent::Started { attempt: 1 });
    log.task("SH_0008", TaskEvent::CancelRequested { attempt: 0 });
    log.task("SH_0009", TaskEvent::Started { attempt: 1 });
    log.task("SH_0009", TaskEvent::AttemptTimedOut { attempt: 1, kind: TimeoutKind::Run });
    log.task("SH_0010", TaskEvent::Rejected { attempt: 1, code: "BUSY".into(), message: "no slot".into() });
    for attempt in 2..22 {
        log.task("SH_0010", dispatched("SH_0010", attempt));
        log.task("SH_0010", TaskEvent::Rejected { attempt, code: "BUSY".into(), message: "no slot".into() });
    }
    log.plan(PlanEvent::DeadlineReached);
    log
}

/// From the first summary to the last: one came back, one was late, the rest was given up.
pub(crate) fn until_closed(log: &mut History) -> [Vec<u8>; 3] {
    let partial = log.summarise(SummaryKind::Partial);
    log.task("SH_0004", TaskEvent::Released);
    log.task("SH_0004", dispatched("SH_0004", 1));
    log.task("SH_0004", succeeded(1, r#"{"lines":3,"version":"4.2.0"}"#));
    log.task("SH_0009", dispatched("SH_0009", 2));
    log.task("SH_0009", TaskEvent::AttemptLost { attempt: 2 });
    log.task("SH_0009", succeeded(2, r#"{"lines":1,"version":"4.2.1"}"#));
    let update = log.summarise(SummaryKind::Update);
    log.plan(PlanEvent::CloseRequested(Asked { by: "ops".into(), reason: "enough".into() }));
    for (id, attempt) in [("SH_0005", 0), ("SH_0006", 1), ("SH_0007", 0), ("SH_0010", 0)] {
        log.task(id, TaskEvent::Expired { reason: ExpiryReason::Closed, attempt });
    }
    log.plan(PlanEvent::Closed);
    [partial, update, log.summarise(SummaryKind::Final)]
}
