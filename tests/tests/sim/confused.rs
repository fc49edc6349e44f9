//! Writers that get past HQ's own checks: a dispatcher that is confused about a task, a recorder of another age. The fold has a row for
//! what they write, and must stand it.

use bytes::Bytes;
use fanfold_domain::event::{Dispatched, PROTOCOL_VERSION, TaskEvent, TimeoutKind};
use fanfold_domain::ids::{TaskId, TerminalId};
use fanfold_domain::task::{Task, TaskState};
use fanfold_ledger::port::{Append, Expect, Log};
use fanfold_wire::event::{Header, decision_id, encode, report_id, task_data};
use fanfold_wire::subjects;

use super::coverage::fault;
use super::history::Sim;

/// Source of what a confused dispatcher writes.
pub const CONFUSED: &str = "/sim/confused";

/// One of them writes something.
pub async fn writes(sim: &mut Sim) {
    if sim.chance.percent(30) { a_foreign_report(sim).await } else { a_confused_decision(sim).await }
}

fn payload(id: &str, source: &str, task: &TaskId, event: &TaskEvent) -> Bytes {
    let header = Header { id, source, subject: &task.to_string(), time_ms: None, traceparent: None };
    Bytes::from(encode(event.name(), &task_data(event).unwrap(), header).unwrap())
}

/// Tasks that are out, those being cancelled first.
fn live(sim: &Sim) -> Vec<(TaskId, Task)> {
    let model = sim.w.hq.open.read();
    let tasks = model.open().flat_map(|v| v.tasks.iter().enumerate().map(move |(i, t)| (v.task_id(i).unwrap(), t.clone())));
    // One that is being cancelled can only be timed out: after `plan.cancelled` not even the confused hand out.
    let may = |t: &Task| t.state == TaskState::Dispatched || (t.state == TaskState::Running && !t.cancelling);
    let mut live: Vec<(TaskId, Task)> = tasks.filter(|(_, t)| may(t)).collect();
    live.sort_by_key(|(_, t)| !(t.cancelling && t.state == TaskState::Dispatched));
    live
}

/// A decision that makes no sense where it stands, but expects what is there.
async fn a_confused_decision(sim: &mut Sim) {
    let live = live(sim);
    let Some((id, task)) = live
        .first()
        .filter(|(_, t)| t.cancelling && t.state == TaskState::Dispatched)
        .or_else(|| (!live.is_empty()).then(|| sim.chance.of_these(&live)))
    else {
        return;
    };
    let terminal = id.target.terminal();
    let event = if task.cancelling && task.state == TaskState::Dispatched {
        TaskEvent::AttemptTimedOut { attempt: task.attempt, kind: TimeoutKind::Delivery }
    } else {
        let journal = task.current().map_or_else(String::new, |a| a.journal.to_string());
        TaskEvent::Dispatched(Box::new(Dispatched {
            protocol_version: PROTOCOL_VERSION,
            attempt: task.last_attempt + 1,
            terminal: terminal.clone(),
            journal,
            boot: "nobody".into(),
            kind: "probe".into(),
            version: 1,
            input: fanfold_domain::Json::from(serde_json::value::RawValue::from_string("{}".into()).unwrap()),
            run_timeout_ms: 7_000,
        }))
    };
    let event_id = decision_id(id, &event, task.decision_seq);
    let append = Append {
        subject: subjects::task_decision(id, Some(&terminal)),
        payload: payload(&event_id, CONFUSED, id, &event),
        id: event_id,
        expect: Some(Expect { filter: subjects::task_decision_filter(id), last_seq: task.decision_seq }),
    };
    fault("hq: a confused writer");
    // It may be refused: then the dispatcher was quicker.
    let _ = sim.w.ledger.append(vec![append]).await;
}

/// A terminal's word on another one's attempt, let through by a recorder that doesn't look.
async fn a_foreign_report(sim: &mut Sim) {
    let live = live(sim);
    if live.is_empty() {
        return;
    }
    let (id, task) = sim.chance.of_these(&live).clone();
    let by = TerminalId::new(sim.chance.of_these(&sim.stores).as_str()).unwrap();
    if by == id.target.terminal() {
        return;
    }
    let event = TaskEvent::Failed { attempt: task.attempt, code: "NET".into(), message: String::new(), run_ms: None };
    let event_id = report_id(&id, &by, &event);
    let append = Append {
        subject: subjects::task_report(&id, &by),
        payload: payload(&event_id, &format!("/terminal/{by}"), &id, &event),
        id: event_id,
        expect: None,
    };
    fault("report: foreign, written past the recorder");
    let _ = sim.w.ledger.append(vec![append]).await;
}
