//! Events of the log, one line each.

use fanfold_domain::event::{LoggedTaskEvent, TaskEvent, TimeoutKind};
use fanfold_domain::plan::{LoggedPlanEvent, PlanEvent, RequeueSelector};
use fanfold_ledger::port::Stored;
use fanfold_wire::event::{LogEvent, decode};
use fanfold_wire::subjects::LogSubject;
use jiff::tz::TimeZone;
use serde_json::value::RawValue;

use super::format::{duration, number, one_line, time_ms};
use super::summary::{counts_line, kind_words};

/// `#17  2026-09-17 20:00:01.123  plan_1.SH_1.main  attempt.failed  attempt 2 by SH_1: NETWORK unreachable`
pub fn line(stored: &Stored, zone: &TimeZone) -> String {
    let (about, what, details) = match decode(stored.seq, stored.time_ms, &stored.subject, &stored.payload) {
        Ok(LogEvent::Plan(plan, event)) => (plan.to_string(), format!("plan.{}", event.event.name()), plan_details(&event)),
        Ok(LogEvent::Task(task, event)) => {
            (task.to_string(), event.event.name().to_owned(), task_details(&event, &stored.subject))
        }
        Ok(LogEvent::Fence(role)) => (role, "fence".to_owned(), String::new()),
        Err(e) => (stored.subject.clone(), "unreadable".to_owned(), one_line(&e.to_string(), 200)),
    };
    let line = format!("#{:<8} {}  {about}  {what}  {details}", stored.seq, time_ms(stored.time_ms, zone));
    line.trim_end().to_owned()
}

/// What a task event says, besides its name. `subject` is where it is stored.
pub fn task_details(event: &LoggedTaskEvent, subject: &str) -> String {
    let terminal = match LogSubject::parse(subject) {
        Some(LogSubject::Task { terminal: Some(terminal), .. }) => terminal.to_string(),
        _ => String::new(),
    };
    let by = if terminal.is_empty() { String::new() } else { format!(" by {terminal}") };
    let ran = |ms: &Option<u64>| ms.map(|ms| format!(" in {}", duration(ms.cast_signed()))).unwrap_or_default();
    match &event.event {
        TaskEvent::Dispatched(d) => format!("attempt {} to {}", d.attempt, d.terminal),
        TaskEvent::Deferred { last_seen_ms: Some(seen) } => {
            format!("offline, last seen {} before", duration(event.time_ms.saturating_sub(*seen)))
        }
        TaskEvent::Deferred { last_seen_ms: None } => "offline, never seen".to_owned(),
        TaskEvent::Released | TaskEvent::Cancelled => String::new(),
        TaskEvent::AttemptTimedOut { attempt, kind } => format!("attempt {attempt}: {}", timeout_words(*kind)),
        TaskEvent::AttemptLost { attempt } | TaskEvent::StopRequested { attempt } => format!("attempt {attempt}"),
        TaskEvent::CancelRequested { attempt } => {
            if *attempt > 0 {
                format!("attempt {attempt}")
            } else {
                String::new()
            }
        }
        TaskEvent::Expired { reason, attempt } => {
            let live = if *attempt > 0 { format!(", attempt {attempt} was live") } else { String::new() };
            format!("{}{live}", format!("{reason:?}").to_lowercase())
        }
        TaskEvent::Requeued { request_seq } => format!("asked for at #{request_seq}"),
        TaskEvent::Started { attempt } | TaskEvent::Stopped { attempt } => format!("attempt {attempt}{by}"),
        TaskEvent::Progressed { attempt, step, ms, .. } => {
            format!("attempt {attempt}{by}: {} took {}", one_line(step, 60), duration(ms.cast_signed()))
        }
        TaskEvent::Succeeded { attempt, run_ms, verdict, .. } => {
            let invalid = verdict.errors.first().map(|e| one_line(e, 120)).unwrap_or_default();
            let judged = if verdict.valid { String::new() } else { format!(": SCHEMA_INVALID {invalid}") };
            format!("attempt {attempt}{by}{}{judged}", ran(run_ms))
        }
        TaskEvent::Failed { attempt, code, message, run_ms } => {
            format!("attempt {attempt}{by}{}: {} {}", ran(run_ms), one_line(code, 64), one_line(message, 120))
        }
        TaskEvent::Rejected { attempt, code, message } => {
            format!("attempt {attempt}{by}: {} {}", one_line(code, 64), one_line(message, 120))
        }
    }
}

fn timeout_words(kind: TimeoutKind) -> &'static str {
    match kind {
        TimeoutKind::Delivery => "not delivered in time",
        TimeoutKind::Run => "ran too long",
        TimeoutKind::Progress => "fell silent",
    }
}

fn plan_details(event: &LoggedPlanEvent) -> String {
    match &event.event {
        PlanEvent::Submitted(spec) => {
            let title = spec.title.as_deref().map(|t| format!(" {}", one_line(t, 80))).unwrap_or_default();
            format!("{}@{}{title}", spec.kind.name, spec.kind.version)
        }
        PlanEvent::Targets { targets } => format!("{} targets", number(targets.len() as u64)),
        PlanEvent::Sealed(seal) => format!("{} targets by {}", number(u64::from(seal.count)), one_line(&seal.by, 60)),
        PlanEvent::LimitsChanged(limits) => format!("in flight {}", limits.in_flight),
        PlanEvent::CancelRequested(asked) | PlanEvent::CloseRequested(asked) => {
            format!("by {} {}", one_line(&asked.by, 60), one_line(&asked.reason, 100))
        }
        PlanEvent::RequeueRequested(RequeueSelector::Tasks(tasks)) => format!("{} tasks", number(tasks.len() as u64)),
        PlanEvent::RequeueRequested(RequeueSelector::Failed { codes }) if codes.is_empty() => "every failed task".to_owned(),
        PlanEvent::RequeueRequested(RequeueSelector::Failed { codes }) => format!("failed with {}", codes.join(", ")),
        PlanEvent::Summarised(s) => {
            format!("revision {} {} as of #{}: {}", s.this.revision, kind_words(s.kind), s.this.as_of_seq, counts_line(&s.counts))
        }
        PlanEvent::Paused | PlanEvent::Resumed | PlanEvent::Cancelled | PlanEvent::DeadlineReached | PlanEvent::Closed => {
            String::new()
        }
    }
}

/// An event as `task.history` hands it over, as if it had been read from the log; `None` when it isn't an event of a task.
pub fn of_history(seq: u64, time_ms: i64, subject: &str, event: &RawValue) -> Option<LoggedTaskEvent> {
    match decode(seq, time_ms, subject, event.get().as_bytes()) {
        Ok(LogEvent::Task(_, logged)) => Some(logged),
        Ok(LogEvent::Plan(..) | LogEvent::Fence(_)) | Err(_) => None,
    }
}
