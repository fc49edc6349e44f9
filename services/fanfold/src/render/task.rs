//! Tasks: a list, one at a time, and everything that ever happened to one.

use std::collections::BTreeMap;

use fanfold_domain::event::TaskEvent;
use fanfold_domain::task::Waiting;
use fanfold_wire::api::HistoryAnswer;
use fanfold_wire::record::{AttemptRecord, TaskRecord};
use fanfold_wire::subjects::LogSubject;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::event::{of_history, task_details};
use super::format::{bytes, duration, number, one_line, time, time_ms};
use super::summary::{next_words, set_words};
use super::table::Table;

/// The name a value has in JSON.
fn name_of(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(ToOwned::to_owned)).unwrap_or_default()
}

fn waiting_words(waiting: Waiting, zone: &TimeZone) -> String {
    match waiting {
        Waiting::Offline(Some(seen)) => format!("terminal offline, last seen {}", time(seen, zone)),
        Waiting::Offline(None) => "terminal offline, never seen".to_owned(),
        Waiting::Turn => "for its turn".to_owned(),
    }
}

/// Tasks, a line each. `why`, by target: what keeps its terminal from being given anything now.
pub fn list(tasks: &[TaskRecord], why: &BTreeMap<String, String>, zone: &TimeZone) -> String {
    if tasks.is_empty() {
        return "no tasks\n".to_owned();
    }
    let mut table = Table::new(&["task", "set", "status", ">attempt", ">tries", "changed", "error", "next", "why"]);
    for task in tasks {
        let error = task.error.as_ref().map(|e| one_line(format!("{} {}", e.code, e.message).trim_end(), 80));
        table.row([
            task.task_id.to_string(),
            set_words(task.set).to_owned(),
            name_of(&task.status),
            task.attempt.to_string(),
            format!("{}/{}", task.retry_count, task.max_retries),
            if task.updated_at > 0 { time(task.updated_at, zone) } else { String::new() },
            error.unwrap_or_default(),
            task.next.map(next_words).unwrap_or_default().to_owned(),
            why.get(task.task_id.target.as_str()).cloned().unwrap_or_default(),
        ]);
    }
    table.text()
}

/// One task with its attempts.
pub fn show(task: &TaskRecord, why: Option<&str>, zone: &TimeZone) -> String {
    let mut text = format!("task      {}\n", task.task_id);
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            text.push_str(&format!("{name:<9} {value}\n"));
        }
    };
    add("type", Some(task.kind.clone()));
    add("status", Some(format!("{} ({})", name_of(&task.status), set_words(task.set))));
    add("terminal", task.terminal.as_ref().map(ToString::to_string));
    add("tries", Some(format!("{} of {}, attempt {}", task.retry_count, task.max_retries, task.attempt)));
    add("waiting", task.waiting.map(|w| waiting_words(w, zone)));
    add("why", why.map(ToOwned::to_owned));
    add("not before", task.next_trigger_time.map(|ms| time(ms, zone)));
    add("failure", task.failure.as_ref().map(name_of));
    add("error", task.error.as_ref().map(|e| one_line(format!("{} {}", e.code, e.message).trim_end(), 1_000)));
    for path in task.error.iter().flat_map(|e| &e.paths) {
        add("", Some(one_line(path, 200)));
    }
    add("next", task.next.map(|n| next_words(n).to_owned()));
    add("late", task.late.then(|| "it came in after it had been given up".to_owned()));
    add("attention", task.needs_attention.then(|| "it keeps being handed out and nothing begins".to_owned()));
    add("changed", (task.updated_at > 0).then(|| time(task.updated_at, zone)));
    add("result", task.result.as_ref().map(|r| format!("{} {}", bytes(r.get().len() as u64), one_line(r.get(), 400))));
    if task.attempts.is_empty() {
        return text;
    }
    let mut table = Table::new(&[">attempt", "terminal", "dispatched", "took", "outcome", "error", "steps"]);
    for attempt in &task.attempts {
        table.row(attempt_row(attempt, zone));
    }
    text.push('\n');
    text.push_str(&table.text());
    if task.attempts_dropped > 0 {
        text.push_str(&format!("{} attempts in the middle are not kept\n", number(u64::from(task.attempts_dropped))));
    }
    text
}

fn attempt_row(attempt: &AttemptRecord, zone: &TimeZone) -> [String; 7] {
    let began = attempt.started_at.unwrap_or(attempt.dispatched_at);
    let outcome = match attempt.outcome {
        Some(outcome) => name_of(&outcome),
        None if attempt.stop_requested => "stop asked for".to_owned(),
        None if attempt.started_at.is_some() => "running".to_owned(),
        None => "dispatched".to_owned(),
    };
    let class = attempt.class.as_ref().map(|c| format!(" ({})", name_of(c))).unwrap_or_default();
    let steps: Vec<String> =
        attempt.steps.iter().map(|s| format!("{} {}", one_line(&s.step, 30), duration(s.ms.cast_signed()))).collect();
    [
        attempt.number.to_string(),
        attempt.terminal.to_string(),
        time(attempt.dispatched_at, zone),
        attempt.ended_at.map(|end| duration(end.saturating_sub(began))).unwrap_or_default(),
        if attempt.superseded { format!("{outcome}, superseded") } else { outcome },
        attempt
            .error
            .as_ref()
            .map(|e| format!("{}{class} {}", e.code, one_line(&e.message, 80)).trim_end().to_owned())
            .unwrap_or_default(),
        steps.join(", "),
    ]
}

/// Everything that happened to a task, a line an event: when, what, which terminal, code, how long it took.
pub fn history(answer: &HistoryAnswer, zone: &TimeZone) -> String {
    if answer.events.is_empty() {
        return "nothing has happened to it yet\n".to_owned();
    }
    let mut table = Table::new(&[">seq", "time", "what", "terminal", "code", ">took", ">since before", "details"]);
    let mut before: Option<i64> = None;
    for event in &answer.events {
        let logged = of_history(event.seq, event.time_ms, &event.subject, &event.event);
        let terminal = match LogSubject::parse(&event.subject) {
            Some(LogSubject::Task { terminal: Some(terminal), .. }) => terminal.to_string(),
            _ => String::new(),
        };
        let (what, code, took, details) = match &logged {
            Some(logged) => {
                let (code, took_ms) = code_and_run(&logged.event);
                (logged.event.name().to_owned(), code, took_ms, task_details(logged, &event.subject))
            }
            None => ("unreadable".to_owned(), String::new(), None, String::new()),
        };
        table.row([
            event.seq.to_string(),
            time_ms(event.time_ms, zone),
            what,
            terminal,
            code,
            took.map(|ms| duration(ms.cast_signed())).unwrap_or_default(),
            before.map(|b| format!("+{}", duration(event.time_ms.saturating_sub(b)))).unwrap_or_default(),
            details,
        ]);
        before = Some(event.time_ms);
    }
    table.text()
}

fn code_and_run(event: &TaskEvent) -> (String, Option<u64>) {
    match event {
        TaskEvent::Succeeded { run_ms, verdict, .. } => {
            let code = if verdict.valid { "" } else { "SCHEMA_INVALID" };
            (code.to_owned(), *run_ms)
        }
        TaskEvent::Failed { code, run_ms, .. } => (one_line(code, 64), *run_ms),
        TaskEvent::Rejected { code, .. } => (one_line(code, 64), None),
        TaskEvent::Progressed { ms, .. } => (String::new(), Some(*ms)),
        TaskEvent::Dispatched(_)
        | TaskEvent::Deferred { .. }
        | TaskEvent::Released
        | TaskEvent::AttemptTimedOut { .. }
        | TaskEvent::AttemptLost { .. }
        | TaskEvent::StopRequested { .. }
        | TaskEvent::CancelRequested { .. }
        | TaskEvent::Cancelled
        | TaskEvent::Expired { .. }
        | TaskEvent::Requeued { .. }
        | TaskEvent::Started { .. }
        | TaskEvent::Stopped { .. } => (String::new(), None),
    }
}
