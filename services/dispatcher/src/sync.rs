//! Answering `ff.sync`: what is open for a terminal and not in its hands, and what in its hands must end. Only the leader answers.

use std::collections::HashSet;

use fanfold_domain::event::{Dispatched, PROTOCOL_VERSION, TaskEvent};
use fanfold_domain::ids::{TaskId, TerminalId};
use fanfold_domain::task::{Attempt, PendingSince, Task, TaskState};
use fanfold_domain::view::PlanView;
use fanfold_ledger::open::Model;
use fanfold_wire::event::{Header, decision_id, encode, task_data};
use fanfold_wire::terminal::{AttemptRef, HoldState, OpenCommand, SYNC_OPEN_MAX, SyncAnswer, SyncRequest, SyncStatus};
use serde_json::value::RawValue;

/// Most bytes of commands in one answer; the next sync gets the rest.
const OPEN_BYTES_MAX: usize = 512 * 1024;

/// The answer to a sync from the view at `model.seq()`.
pub(crate) fn answer(model: &Model, terminal: &TerminalId, request: &SyncRequest) -> SyncAnswer {
    let mut answer = SyncAnswer::bare(SyncStatus::Ok, model.seq(), None);
    let held: HashSet<&AttemptRef> = request.holds.iter().map(|h| &h.attempt).collect();
    let mut bytes = 0;
    for view in model.open() {
        let Some(index) = view.plan.index_of(terminal.as_str()) else { continue };
        let Some((task_id, attempt)) = to_hand_out(view, index, terminal, &request.identity.journal) else { continue };
        if held.contains(&AttemptRef { task_id: task_id.clone(), attempt: attempt.number }) {
            continue;
        }
        if answer.open.len() >= SYNC_OPEN_MAX || bytes >= OPEN_BYTES_MAX {
            answer.retry_after_ms = Some(1_000);
            break;
        }
        if let Some(command) = command(view, &task_id, attempt, &request.identity.boot) {
            bytes += command.get().len();
            answer.open.push(OpenCommand { task_id, seq: attempt.dispatched_seq, command });
        }
    }
    for hold in &request.holds {
        match (standing(model, terminal, &hold.attempt), hold.state) {
            (HoldStanding::Over, HoldState::Queued | HoldState::Running) => answer.stop.push(hold.attempt.clone()),
            (HoldStanding::Open, HoldState::Settled) => answer.keep.push(hold.attempt.clone()),
            _ => {}
        }
    }
    answer.closed_plans = request.closed_plans.iter().filter(|p| model.plan(p).is_none_or(PlanView::is_over)).cloned().collect();
    answer
}

/// The live attempt of a task that this journal may run and has not begun as far as the log knows.
fn to_hand_out<'v>(view: &'v PlanView, index: usize, terminal: &TerminalId, journal: &str) -> Option<(TaskId, &'v Attempt)> {
    let task = view.tasks.get(index).filter(|t| t.state == TaskState::Dispatched && !t.cancelling)?;
    let attempt = task.current().filter(|a| a.terminal == *terminal && a.journal == *journal && !a.stop_requested)?;
    Some((view.task_id(index)?, attempt))
}

fn command(view: &PlanView, task_id: &TaskId, attempt: &Attempt, boot: &str) -> Option<Box<RawValue>> {
    let spec = &view.plan.spec;
    let event = TaskEvent::Dispatched(Box::new(Dispatched {
        protocol_version: PROTOCOL_VERSION,
        attempt: attempt.number,
        terminal: attempt.terminal.clone(),
        journal: attempt.journal.to_string(),
        boot: boot.to_owned(),
        kind: spec.kind.name.clone(),
        version: spec.kind.version,
        input: spec.input.clone(),
        run_timeout_ms: spec.timeouts.run_ms,
    }));
    let id = decision_id(task_id, &event, attempt.dispatched_seq);
    let subject = task_id.to_string();
    let header = Header {
        id: &id,
        source: "/fanfold/dispatcher",
        subject: &subject,
        time_ms: None,
        traceparent: spec.traceparent.as_deref(),
    };
    let bytes = task_data(&event).and_then(|data| encode(event.name(), &data, header)).ok()?;
    RawValue::from_string(String::from_utf8(bytes).ok()?).ok()
}

enum HoldStanding {
    Open,
    Over,
}

/// Whether HQ still wants what a terminal holds.
fn standing(model: &Model, terminal: &TerminalId, held: &AttemptRef) -> HoldStanding {
    let view = model.plan(&held.task_id.plan).filter(|v| !v.is_over());
    let task = view.and_then(|v| v.plan.index_of(held.task_id.target.as_str()).and_then(|i| v.tasks.get(i)));
    match task {
        Some(task) if wanted(task, terminal, held.attempt) => HoldStanding::Open,
        _ => HoldStanding::Over,
    }
}

fn wanted(task: &Task, terminal: &TerminalId, number: u32) -> bool {
    let Some(attempt) = task.attempt_record(number).filter(|a| a.terminal == *terminal) else { return false };
    let current = number == task.attempt;
    let live = current && task.state.is_live() && !attempt.stop_requested;
    // It was only slow: nothing else has been decided, and it may still begin.
    let slow = current && task.state == TaskState::Pending && task.pending_since == PendingSince::DeliveryTimeout;
    live || slow
}

#[cfg(test)]
mod tests;
