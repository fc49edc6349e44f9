//! Queries and requests about tasks.

use fanfold_domain::dispatch::requeue_applies;
use fanfold_domain::ids::TaskId;
use fanfold_domain::plan::{PlanEvent, RequeueSelector};
use fanfold_domain::sets::{TaskSet, set_of};
use fanfold_domain::task::TaskState;
use fanfold_domain::view::PlanView;
use fanfold_wire::api::{
    ApiError, HistoryAnswer, HistoryEvent, Noted, Problem, RequeueRequest, TaskList, TaskListRequest, TaskRequest,
};
use fanfold_wire::record::{TaskRecord, task_key};
use fanfold_wire::subjects;
use futures::StreamExt;
use serde_json::value::RawValue;

use crate::events::{Judged, closed, note};
use crate::plans::{Source, from_log, source};
use crate::{Deps, Sources, ledger_error};

const PAGE_MAX: u32 = 1_000;
const PAGE: u32 = 100;
/// Tasks a request may name.
const NAMED_MAX: usize = 1_000;
/// Events of one task shown, the first ones, as far as one answer holds them.
const HISTORY_MAX: usize = 10_000;

fn unknown_task(id: &TaskId) -> ApiError {
    ApiError::new("UNKNOWN_TASK", format!("there is no task {id}; `fanfold task ls {}` shows those there are", id.plan))
}

/// A task of a plan that is at hand.
fn of_view(view: &PlanView, id: &TaskId) -> Result<TaskRecord, ApiError> {
    let index = view.plan.index_of(id.target.as_str()).filter(|_| id.stage == view.stage);
    index.and_then(|i| TaskRecord::of(view, i)).ok_or_else(|| unknown_task(id))
}

/// `task.get`
pub(crate) async fn get(deps: &Sources, request: TaskRequest) -> Result<TaskRecord, ApiError> {
    let id = &request.task_id;
    if let Some(view) = deps.open.read().plan(&id.plan) {
        return of_view(view, id);
    }
    if let Source::Log(view) = source(deps, &id.plan).await? {
        return of_view(&view, id);
    }
    let stored = deps.ledger.get_state(&task_key(id)).await.map_err(|e| ledger_error(&e))?;
    match stored.map(|entry| serde_json::from_slice(&entry.value)) {
        Some(Ok(record)) => Ok(record),
        // A record that was lost, or no such task: the log knows.
        Some(Err(_)) | None => {
            let view = from_log(deps, &id.plan).await?;
            of_view(&view, id)
        }
    }
}

/// `task.list`
pub(crate) async fn list(deps: &Sources, request: TaskListRequest) -> Result<TaskList, ApiError> {
    let limit = request.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX) as usize;
    {
        let model = deps.open.read();
        if let Some(view) = model.plan(&request.plan_id) {
            let (found, more) = page(view, &request, limit);
            drop(model);
            return Ok(fitted(found, more, deps.ledger.max_payload()));
        }
    }
    let view = match source(deps, &request.plan_id).await? {
        Source::Log(view) => view,
        Source::Records(record) => {
            let page = deps.closed.page(deps.ledger.as_ref(), &record, &request, limit).await.map_err(|e| ledger_error(&e))?;
            if let Some((found, more)) = page {
                return Ok(fitted(found, more, deps.ledger.max_payload()));
            }
            // Some were lost, or nothing ever happened to their tasks: the log knows.
            from_log(deps, &request.plan_id).await?
        }
    };
    let (found, more) = page(&view, &request, limit);
    Ok(fitted(found, more, deps.ledger.max_payload()))
}

/// Tasks with their places in the plan, and the place the next page begins with.
pub(crate) type Page = (Vec<(usize, TaskRecord)>, Option<usize>);

/// As many of the page as an answer holds; the next page begins with the first one left out.
fn fitted(found: Vec<(usize, TaskRecord)>, more: Option<usize>, max_payload: usize) -> TaskList {
    let (indexes, mut tasks): (Vec<usize>, Vec<TaskRecord>) = found.into_iter().unzip();
    let fits = crate::fitting(&tasks, max_payload);
    let next = indexes.get(fits).copied().or(more).and_then(|i| u32::try_from(i).ok());
    tasks.truncate(fits);
    TaskList { tasks, next }
}

fn page(view: &PlanView, request: &TaskListRequest, limit: usize) -> Page {
    let wanted = |set: TaskSet| request.set.is_none_or(|s| s == set);
    let mut tasks = Vec::new();
    let mut next = None;
    for (index, task) in view.tasks.iter().enumerate().skip(request.offset as usize) {
        // Of a plan that is over there are only tasks that anything has happened to, here as in the bucket.
        if !wanted(set_of(&view.plan, task)) || (view.is_over() && task.seq == 0) {
            continue;
        }
        if tasks.len() == limit {
            next = Some(index);
            break;
        }
        tasks.extend(TaskRecord::of(view, index).map(|r| (index, r)));
    }
    (tasks, next)
}

/// `task.history`
pub(crate) async fn history(deps: &Sources, request: TaskRequest) -> Result<HistoryAnswer, ApiError> {
    let id = &request.task_id;
    let last_seq = deps.ledger.last_seq().await.map_err(|e| ledger_error(&e))?;
    let mut stored = deps
        .ledger
        .read(vec![subjects::task_filter(id)], request.from.unwrap_or(1), last_seq)
        .await
        .map_err(|e| ledger_error(&e))?;
    let (mut events, mut next) = (Vec::new(), None);
    let mut room = deps.ledger.max_payload().saturating_sub(crate::AROUND_BYTES);
    while let Some(message) = stored.next().await {
        let message = message.map_err(|e| ledger_error(&e))?;
        let size = message.payload.len() + message.subject.len() + 100;
        // A single one larger than the room is sent all the same: the answer says so if it can't be.
        if events.len() == HISTORY_MAX || (size > room && !events.is_empty()) {
            next = Some(message.seq);
            break;
        }
        room = room.saturating_sub(size);
        let text = String::from_utf8(message.payload.to_vec()).ok().and_then(|t| RawValue::from_string(t).ok());
        events.extend(text.map(|event| HistoryEvent {
            seq: message.seq,
            time_ms: message.time_ms,
            subject: message.subject,
            event,
        }));
    }
    if events.is_empty() && request.from.is_none() {
        // Nothing has happened to it yet, or there is no such task.
        get(deps, request).await?;
    }
    Ok(HistoryAnswer { events, next })
}

/// `task.requeue`
pub(crate) async fn requeue(deps: &Deps, request: RequeueRequest) -> Result<Noted, ApiError> {
    if let RequeueSelector::Tasks(ids) = &request.selector {
        check_named(deps, &request, ids)?;
    }
    note(deps, &request.plan_id, |view| {
        let plan = &view.plan;
        if plan.cancel.is_some() {
            return Err(ApiError::new(
                "PLAN_CANCELLED",
                format!("plan {} is cancelled; submit a follow-up plan instead", plan.id()),
            ));
        }
        if plan.close.is_some() {
            return Err(closed(plan.id()));
        }
        match (0..view.tasks.len()).filter(|i| requeue_applies(view, *i, &request.selector)).count() {
            0 => Ok(Judged::Nothing),
            tasks => Ok(Judged::WriteAbout(PlanEvent::RequeueRequested(request.selector.clone()), tasks as u32)),
        }
    })
    .await
}

/// Every named task must be one of the plan's and FAILED; all that are not are listed.
fn check_named(deps: &Deps, request: &RequeueRequest, ids: &[TaskId]) -> Result<(), ApiError> {
    if ids.is_empty() || ids.len() > NAMED_MAX {
        let message = format!("name 1 to {NAMED_MAX} tasks, or requeue all that failed");
        return Err(ApiError::of_problems(vec![Problem::new(
            "LIMIT_OUT_OF_RANGE",
            "/selector/tasks",
            &ids.len().to_string(),
            &message,
        )]));
    }
    let model = deps.open.read();
    let Some(view) = model.plan(&request.plan_id) else { return Ok(()) };
    let problem = |id: &TaskId| {
        let index = view.plan.index_of(id.target.as_str()).filter(|_| id.plan == request.plan_id && id.stage == view.stage);
        match index.and_then(|i| view.tasks.get(i)) {
            None => Some(Problem::new("UNKNOWN_TASK", "/selector/tasks", &id.to_string(), "it is not a task of this plan")),
            Some(task) if task.state != TaskState::Failed => {
                Some(Problem::new("NOT_FAILED", "/selector/tasks", &id.to_string(), "only a FAILED task can be requeued"))
            }
            Some(_) => None,
        }
    };
    let problems: Vec<Problem> = ids.iter().filter_map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(ApiError::of_problems(problems)) }
}
