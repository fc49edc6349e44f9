//! What a reader is told against the fold: every task and the plan as the API answers them, and the last summary.

use fanfold_domain::ids::{PlanId, TaskId};
use fanfold_domain::view::PlanView;
use fanfold_ledger::port::{Ledger, RequestError};
use fanfold_wire::record::{PlanRecord, TaskRecord};
use serde_json::{Value, json};

use super::VerifyError;
use super::state::{difference, value_of};
use crate::client::{ANSWER_WAIT, call};
use crate::error::CliError;
use crate::patience;

/// Tasks asked for one by one, beside the list.
const ASKED_ALONE: usize = 8;
/// Tasks of a page.
const PAGE: u32 = 500;

/// What the API told.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// It answers.
    pub(super) asked: bool,
    /// Tasks it told of.
    pub(super) tasks: u64,
    /// Where it differs from the log.
    pub(super) differences: Vec<String>,
}

enum Answer {
    Is(Value),
    /// It says no, with this code.
    No(String),
    Nobody,
}

async fn ask(ledger: &dyn Ledger, noun: &str, verb: &str, request: Value) -> Result<Answer, VerifyError> {
    patience::step(format!("an answer of ff.api.{noun}.{verb}"));
    match call::<Value>(ledger, noun, verb, &request, ANSWER_WAIT).await {
        Ok(value) => Ok(Answer::Is(value)),
        Err(CliError::Api(error)) => Ok(Answer::No(error.code)),
        Err(CliError::Request(RequestError::NoResponders(_))) => Ok(Answer::Nobody),
        Err(error) => Err(VerifyError::Api(error.to_string())),
    }
}

/// Compares; nobody answering is no difference.
pub(super) async fn compare(ledger: &dyn Ledger, plan: &PlanId, view: &PlanView) -> Result<Told, VerifyError> {
    let mut told = Told::default();
    match ask(ledger, "plan", "get", json!({ "planId": plan })).await? {
        Answer::Nobody => return Ok(told),
        Answer::No(code) => told.differences.push(format!("plan.get {plan}: it says {code}, the log has the plan")),
        Answer::Is(found) => {
            told.differences.extend(differs(&format!("plan.get {plan}"), &found, &value_of(&PlanRecord::of(view))?));
        }
    }
    told.asked = true;
    listed(ledger, plan, view, &mut told).await?;
    for index in (0..view.tasks.len()).step_by((view.tasks.len() / ASKED_ALONE).max(1)).take(ASKED_ALONE) {
        let (Some(id), Some(record)) = (view.task_id(index), expected(view, index)) else { continue };
        let name = format!("task.get {id}");
        match ask(ledger, "task", "get", json!({ "taskId": id })).await? {
            Answer::Is(found) => told.differences.extend(differs(&name, &found, &value_of(&record)?)),
            Answer::No(code) => told.differences.push(format!("{name}: it says {code}, the log has events of it")),
            Answer::Nobody => {}
        }
    }
    summary(ledger, plan, view, &mut told).await?;
    Ok(told)
}

/// The record a reader must be told of: of a plan that is over, only of tasks that anything has happened to.
fn expected(view: &PlanView, index: usize) -> Option<TaskRecord> {
    let touched = view.tasks.get(index).is_some_and(|t| t.seq > 0);
    TaskRecord::of(view, index).filter(|_| touched || !view.is_over())
}

async fn listed(ledger: &dyn Ledger, plan: &PlanId, view: &PlanView, told: &mut Told) -> Result<(), VerifyError> {
    let mut seen = vec![false; view.tasks.len()];
    let mut offset = Some(0);
    while let Some(from) = offset {
        let answer = ask(ledger, "task", "list", json!({ "planId": plan, "limit": PAGE, "offset": from })).await?;
        let Answer::Is(page) = answer else {
            told.differences.push(format!("task.list {plan}: it does not answer from {from} on"));
            return Ok(());
        };
        for found in page.get("tasks").and_then(Value::as_array).into_iter().flatten() {
            let id = found.get("taskId").and_then(Value::as_str).unwrap_or_default();
            let index = TaskId::parse(id).ok().and_then(|t| view.plan.index_of(t.target.as_str()));
            let Some((index, record)) = index.and_then(|i| expected(view, i).map(|r| (i, r))) else {
                told.differences.push(format!("task.list {plan}: it tells of {id}, the log does not"));
                continue;
            };
            told.tasks += 1;
            if let Some(slot) = seen.get_mut(index) {
                *slot = true;
            }
            told.differences.extend(differs(&format!("task.list {id}"), found, &value_of(&record)?));
        }
        // A page that does not lead on would be asked for for ever.
        offset = page.get("next").and_then(Value::as_u64).filter(|next| *next > from);
    }
    for (index, _) in seen.iter().enumerate().filter(|(_, seen)| !**seen) {
        if expected(view, index).is_some()
            && let Some(id) = view.task_id(index)
        {
            told.differences.push(format!("task.list {plan}: it does not tell of {id}"));
        }
    }
    Ok(())
}

async fn summary(ledger: &dyn Ledger, plan: &PlanId, view: &PlanView, told: &mut Told) -> Result<(), VerifyError> {
    let expected = view.plan.summary.as_ref().map(|(summarised, _, _)| summarised);
    let name = format!("summary.get {plan}");
    match (ask(ledger, "summary", "get", json!({ "planId": plan })).await?, expected) {
        (Answer::Is(found), Some(expected)) => {
            let summary = found.get("summary").cloned().unwrap_or_default();
            told.differences.extend(differs(&name, &summary, &value_of(expected)?));
            let document = found.get("document").filter(|d| !d.is_null());
            let revision = document.and_then(|d| d.get("revision")).and_then(Value::as_u64);
            if document.is_some() && revision != Some(u64::from(expected.this.revision)) {
                let had = expected.this.revision;
                told.differences.push(format!("{name}: the document is revision {revision:?}, the log has {had}"));
            }
        }
        (Answer::Is(_), None) => told.differences.push(format!("{name}: it tells of a summary, the log has none")),
        (Answer::No(code), Some(_)) => told.differences.push(format!("{name}: it says {code}, the log has a summary")),
        (Answer::No(_), None) | (Answer::Nobody, _) => {}
    }
    Ok(())
}

fn differs(name: &str, found: &Value, expected: &Value) -> Option<String> {
    difference(name, found, expected).map(|what| format!("api {what}"))
}
