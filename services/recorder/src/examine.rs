//! Looking at one report: form, size, identity, plan, target and attempt. Pure but for the schema cache.

use bytes::Bytes;
use fanfold_domain::event::{LoggedTaskEvent, TaskEvent, Writer};
use fanfold_domain::fold::fold;
use fanfold_domain::ids::{TaskId, TerminalId};
use fanfold_domain::plan::Plan;
use fanfold_domain::planted::{self, Planted};
use fanfold_domain::task::{STEPS_MAX, Task};
use fanfold_domain::view::PlanView;
use fanfold_ledger::port::Append;
use fanfold_wire::event::{Envelope, Header, decode_task, encode, report_id, task_data};
use fanfold_wire::subjects;
use fanfold_wire::terminal::{RESULT_BYTES_MAX, clip_message, refusal};
use fanfold_wire::timestamp::from_rfc3339;

use crate::schemas::Judge;

/// Longest error code or step name, in characters.
const NAME_CHARS_MAX: usize = 64;
/// Reports of a task that changed nothing and were written all the same; beyond it those that would change nothing are answered as
/// known and not written, so that no terminal can make the log grow for ever by repeating itself.
const ABSORBED_MAX: u32 = 256;
/// Longest trace context, in bytes.
const TRACEPARENT_BYTES: usize = 55;

/// A report whose form is right.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) task: TaskId,
    pub(crate) event: TaskEvent,
    time_ms: Option<i64>,
    traceparent: Option<String>,
}

/// A final refusal: code and text.
pub(crate) type Refusal = (&'static str, String);

/// Reads one report. Its id and source are not looked at: they are computed from where it came in.
pub(crate) fn read(text: &str) -> Result<Report, Refusal> {
    let malformed = |reason: String| (refusal::MALFORMED, reason);
    if text.len() > RESULT_BYTES_MAX + 64 * 1024 {
        return Err((refusal::TOO_LARGE, format!("the report has {} bytes; a result may have 256 KiB", text.len())));
    }
    let envelope = Envelope::parse(text.as_bytes()).map_err(|e| malformed(e.to_string()))?;
    let name = envelope.name().map_err(|e| malformed(e.to_string()))?;
    if !name.starts_with("attempt.") {
        return Err(malformed(format!("`{}` is not a report; terminals write fanfold.attempt.* only", clip_message(name))));
    }
    let mut event = decode_task(name, envelope.data).map_err(|e| malformed(e.to_string()))?;
    if event.attempt().is_none_or(|n| n == 0) {
        return Err(malformed("`data.attempt` is missing or 0; attempts are numbered from 1".to_owned()));
    }
    check_bounds(&mut event)?;
    let subject = envelope.subject.as_deref().ok_or_else(|| malformed("`subject` is missing: it names the task".to_owned()))?;
    let task = TaskId::parse(subject).map_err(|e| malformed(e.to_string()))?;
    let traceparent = envelope.traceparent.filter(|t| t.len() == TRACEPARENT_BYTES).map(|t| t.into_owned());
    Ok(Report { task, event, time_ms: envelope.time.as_deref().and_then(from_rfc3339), traceparent })
}

fn check_bounds(event: &mut TaskEvent) -> Result<(), Refusal> {
    let named = |what: &str, text: &str| {
        let fits = !text.is_empty() && text.chars().count() <= NAME_CHARS_MAX;
        if fits { Ok(()) } else { Err((refusal::MALFORMED, format!("`{what}` must have 1 to 64 characters"))) }
    };
    match event {
        TaskEvent::Succeeded { result, .. } if result.get().len() > RESULT_BYTES_MAX => {
            Err((refusal::TOO_LARGE, format!("the result has {} bytes; at most 256 KiB go into a report", result.get().len())))
        }
        TaskEvent::Failed { code, message, .. } | TaskEvent::Rejected { code, message, .. } => {
            if message.len() > clip_message(message).len() {
                *message = clip_message(message).to_owned();
            }
            named("code", code)
        }
        TaskEvent::Progressed { k, .. } if *k as usize >= STEPS_MAX => {
            Err((refusal::MALFORMED, format!("`k` is {k}; an attempt has at most {STEPS_MAX} steps, numbered from 0")))
        }
        TaskEvent::Progressed { step, .. } => named("step", step),
        _ => Ok(()),
    }
}

/// What a plan's view says about a report.
#[derive(Debug)]
pub(crate) enum Standing {
    /// It may be written.
    Admitted(Box<Append>, Option<bool>),
    /// Never.
    Refused(Refusal),
    /// It would change nothing, and the log has had enough of those: known at this sequence.
    Absorbed(u64, Option<bool>),
    /// It speaks of an attempt the view doesn't have (yet).
    AttemptUnknown,
}

/// Judges a report by its plan's view.
pub(crate) fn judge(report: &mut Report, by: &TerminalId, view: &PlanView, schemas: &mut Judge) -> Standing {
    let plan = &view.plan;
    if plan.closed_seq.is_some() {
        return Standing::Refused((refusal::PLAN_CLOSED, format!("plan {} is closed; nothing more is taken for it", plan.id())));
    }
    let Some(task) =
        plan.index_of(report.task.target.as_str()).and_then(|i| view.tasks.get(i)).filter(|_| report.task.stage == view.stage)
    else {
        return Standing::Refused((refusal::UNKNOWN_TASK, format!("plan {} has no task {}", plan.id(), report.task)));
    };
    let attempt = report.event.attempt().unwrap_or(0);
    let owner = task.attempt_record(attempt).map_or_else(|| report.task.target.terminal(), |a| a.terminal.clone());
    if owner != *by && !planted::is(Planted::ForeignTaken) {
        return Standing::Refused((refusal::NOT_YOURS, format!("task {} is not {by}'s", report.task)));
    }
    if attempt == 0 || attempt > task.last_attempt {
        return Standing::AttemptUnknown;
    }
    let valid = verdict(&mut report.event, plan, schemas);
    if let Some(seq) = absorbed_at(report, by, view, task) {
        return Standing::Absorbed(seq, valid);
    }
    match append(report, by) {
        Ok(append) => Standing::Admitted(Box::new(append), valid),
        Err(reason) => Standing::Refused((refusal::MALFORMED, reason)),
    }
}

/// Where the log already says all that this report could, if the task has had its share of reports that changed nothing.
fn absorbed_at(report: &Report, by: &TerminalId, view: &PlanView, task: &Task) -> Option<u64> {
    let absorbed = task.absorbed();
    if absorbed.duplicate.saturating_add(absorbed.stale).saturating_add(absorbed.late) < ABSORBED_MAX {
        return None;
    }
    let (seq, writer) = (task.seq.saturating_add(1), Writer::Terminal(by.clone()));
    let logged = LoggedTaskEvent { seq, time_ms: task.updated_ms, writer, event: report.event.clone() };
    let mut after = task.clone();
    fold(&view.plan, &report.task.target, &view.stage, &mut after, &logged);
    (*after.absorbed_mut(), after.seq) = (absorbed, task.seq);
    (after == *task).then_some(task.seq)
}

/// Writes the recorder's own verdict over whatever the terminal claims.
fn verdict(event: &mut TaskEvent, plan: &Plan, schemas: &mut Judge) -> Option<bool> {
    let TaskEvent::Succeeded { result, verdict, .. } = event else { return None };
    *verdict = schemas.judge(&plan.spec.output_schema, result.get());
    if planted::is(Planted::VerdictAlwaysValid) {
        verdict.valid = true;
    }
    Some(verdict.valid)
}

fn append(report: &Report, by: &TerminalId) -> Result<Append, String> {
    let id = if planted::is(Planted::IdWithoutAttempt) {
        format!("{}/{by}/{}", report.task, report.event.name())
    } else {
        report_id(&report.task, by, &report.event)
    };
    let subject = report.task.to_string();
    let data = task_data(&report.event).map_err(|e| e.to_string())?;
    let source = format!("/terminal/{by}");
    let header = Header {
        id: &id,
        source: &source,
        subject: &subject,
        time_ms: report.time_ms,
        traceparent: report.traceparent.as_deref(),
    };
    let payload = encode(report.event.name(), &data, header).map_err(|e| e.to_string())?;
    Ok(Append { subject: subjects::task_report(&report.task, by), id, payload: Bytes::from(payload), expect: None })
}
