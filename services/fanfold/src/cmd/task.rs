//! `fanfold task`: single tasks, their history, and requeuing.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Args, Subcommand};
use fanfold_domain::ids::{PlanId, StageId, TargetId, TaskId};
use fanfold_domain::plan::RequeueSelector;
use fanfold_domain::sets::TaskSet;
use fanfold_domain::task::TaskState;
use fanfold_wire::api::{HistoryAnswer, Noted, RequeueRequest, TaskList, TaskListRequest, TaskRequest};
use fanfold_wire::record::{TaskRecord, TerminalRecord};
use serde::Serialize;

use super::{plan_id, task_id, terminal};
use crate::error::CliError;
use crate::exit::Exit;
use crate::render;
use crate::render::format::number;
use crate::session::Session;

/// Tasks of one page of an answer.
const PAGE: u32 = 500;
/// Events of one task shown at most.
const HISTORY_MAX: usize = 100_000;
/// Most tasks one requeue may name.
const NAMED_MAX: usize = 1_000;

/// Look at tasks and requeue failed ones
#[derive(Debug, Subcommand)]
pub enum TaskCommand {
    /// Show one task with its attempts
    Show(ShowArgs),
    /// List a plan's tasks
    Ls(LsArgs),
    /// Everything that ever happened to a task
    History(HistoryArgs),
    /// Hand failed tasks out again, with fresh tries
    Requeue(RequeueArgs),
}

/// Show one task with its attempts
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fanfold task show plan_7788.SH_0312.main")]
pub struct ShowArgs {
    /// The task: plan.target.stage
    #[arg(value_parser = task_id, value_name = "TASK")]
    pub id: TaskId,
}

/// List a plan's tasks
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  fanfold task ls plan_7788 --set failed\n  fanfold task ls plan_7788 --set offline --limit 5000 --json"
)]
pub struct LsArgs {
    /// The plan
    #[arg(value_parser = plan_id, value_name = "PLAN")]
    pub plan: PlanId,
    /// Only this set: succeeded, failed, invalid, timedOut, offline, running, pending, cancelled
    #[arg(long, value_parser = task_set)]
    pub set: Option<TaskSet>,
    /// Most tasks shown
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub limit: u32,
}

/// Everything that ever happened to a task
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fanfold task history plan_7788.SH_0312.main")]
pub struct HistoryArgs {
    /// The task: plan.target.stage
    #[arg(value_parser = task_id, value_name = "TASK")]
    pub id: TaskId,
}

/// Hand failed tasks out again, with fresh tries
#[derive(Debug, Args)]
#[command(after_help = "\
Only FAILED tasks of a plan that is neither cancelled nor closed are handed out
again. It says how many that are; with none there is nothing to requeue, nothing
is written, and the exit code is 0.

Examples:
  fanfold task requeue plan_7788 --failed
  fanfold task requeue plan_7788 --code NETWORK --code TIMEOUT
  fanfold task requeue plan_7788 --task SH_0312 --task plan_7788.SH_0313.main")]
pub struct RequeueArgs {
    /// The plan
    #[arg(value_parser = plan_id, value_name = "PLAN")]
    pub plan: PlanId,
    /// A task, or just its target; may be repeated
    #[arg(long, value_name = "TASK", conflicts_with_all = ["failed", "code"])]
    pub task: Vec<String>,
    /// Every failed task
    #[arg(long, required_unless_present_any = ["task", "code"])]
    pub failed: bool,
    /// Every task that failed with this error code; may be repeated
    #[arg(long, value_name = "CODE")]
    pub code: Vec<String>,
}

/// Reads the name of a set, whatever its case: `timedOut`, `timed-out`.
fn task_set(text: &str) -> Result<TaskSet, String> {
    let plain: String = text.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).collect();
    let found = TaskSet::ALL.into_iter().find(|s| s.name().eq_ignore_ascii_case(&plain));
    found.ok_or_else(|| format!("`{text}` is no set; there are {}", TaskSet::ALL.map(TaskSet::name).join(", ")))
}

/// Carries out a task command.
///
/// # Errors
/// See [`CliError`].
pub async fn execute(command: TaskCommand, session: &Session) -> Result<Exit, CliError> {
    match command {
        TaskCommand::Show(args) => {
            let task: TaskRecord = session.call("task", "get", &TaskRequest { task_id: args.id, from: None }).await?;
            let why = why_pending(std::slice::from_ref(&task), session).await?.into_values().next();
            if session.json {
                session.out.json(&task)
            } else {
                session.out.text(&render::task::show(&task, why.as_deref(), &session.zone))
            }?;
        }
        TaskCommand::History(args) => {
            let history = history(&args.id, session).await?;
            if session.json {
                session.out.json(&history)
            } else {
                session.out.text(&render::task::history(&history, &session.zone))
            }?;
        }
        TaskCommand::Ls(args) => ls(&args, session).await?,
        TaskCommand::Requeue(args) => requeue(args, session).await?,
    }
    Ok(Exit::Ok)
}

/// Everything that happened to a task, page by page.
async fn history(id: &TaskId, session: &Session) -> Result<HistoryAnswer, CliError> {
    let mut history = HistoryAnswer { events: Vec::new(), next: None };
    loop {
        let request = TaskRequest { task_id: id.clone(), from: history.next };
        let page: HistoryAnswer = session.call("task", "history", &request).await?;
        let last = page.events.last().map_or(0, |e| e.seq);
        history.events.extend(page.events);
        history.next = page.next;
        // A page that does not lead on would be asked for for ever.
        if page.next.is_none_or(|next| next <= last) || history.events.len() >= HISTORY_MAX {
            return Ok(history);
        }
    }
}

/// Why nothing is handed out for pending tasks, by target, where it is their terminal: what the registry says of it now.
async fn why_pending(tasks: &[TaskRecord], session: &Session) -> Result<BTreeMap<String, String>, CliError> {
    let pending = |t: &&TaskRecord| t.status == TaskState::Pending;
    why_now(tasks.iter().filter(pending).map(|t| t.task_id.target.to_string()).collect(), session).await
}

/// Why nothing is handed out to the terminals of these targets, by target: what the registry says of them now.
pub(crate) async fn why_now(targets: BTreeSet<String>, session: &Session) -> Result<BTreeMap<String, String>, CliError> {
    if targets.is_empty() {
        return Ok(BTreeMap::new());
    }
    let terminals = terminal::all(session.ledger.as_ref()).await?.terminals;
    let why = |t: TerminalRecord| terminal::gets_nothing(&t).map(|why| (t.id.to_string(), why.to_owned()));
    Ok(terminals.into_iter().filter(|t| targets.contains(t.id.as_str())).filter_map(why).collect())
}

/// The list, and why nothing is handed out for some of it.
#[derive(Serialize)]
struct Listed<'l> {
    #[serde(flatten)]
    list: &'l TaskList,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    why: BTreeMap<String, String>,
}

async fn ls(args: &LsArgs, session: &Session) -> Result<(), CliError> {
    let mut list = TaskList { tasks: Vec::new(), next: Some(0) };
    while let Some(offset) = list.next {
        let wanted = args.limit.saturating_sub(u32::try_from(list.tasks.len()).unwrap_or(u32::MAX)).min(PAGE);
        if wanted == 0 {
            break;
        }
        let request = TaskListRequest { plan_id: args.plan.clone(), set: args.set, limit: Some(wanted), offset };
        let page: TaskList = session.call("task", "list", &request).await?;
        list.tasks.extend(page.tasks);
        // A page that does not lead on would be asked for for ever.
        list.next = page.next.filter(|next| *next > offset);
    }
    let why = why_pending(&list.tasks, session).await?;
    if session.json {
        return session.out.json(&Listed { list: &list, why });
    }
    session.out.text(&render::task::list(&list.tasks, &why, &session.zone))?;
    if list.next.is_some() {
        session.out.note("there are more; raise --limit");
    }
    Ok(())
}

fn selector(args: &RequeueArgs) -> Result<RequeueSelector, CliError> {
    if args.task.is_empty() {
        return Ok(RequeueSelector::Failed { codes: args.code.clone() });
    }
    if args.task.len() > NAMED_MAX {
        return Err(CliError::input("LIMIT_OUT_OF_RANGE", format!("{} tasks: one request may name 1,000", args.task.len())));
    }
    let mut tasks = Vec::with_capacity(args.task.len());
    for text in &args.task {
        let bad = |e: fanfold_domain::ids::IdError| CliError::input("BAD_ID", e.to_string());
        let task = if text.contains('.') {
            TaskId::parse(text).map_err(bad)?
        } else {
            TaskId::new(args.plan.clone(), TargetId::new(text).map_err(bad)?, StageId::main())
        };
        if task.plan != args.plan {
            return Err(CliError::input("NOT_OF_THIS_PLAN", format!("`{text}` is not a task of {}", args.plan)));
        }
        tasks.push(task);
    }
    Ok(RequeueSelector::Tasks(tasks))
}

async fn requeue(args: RequeueArgs, session: &Session) -> Result<(), CliError> {
    let selector = selector(&args)?;
    let request = RequeueRequest { plan_id: args.plan.clone(), selector, by: session.by.clone() };
    let noted: Noted = session.call("task", "requeue", &request).await?;
    if session.json {
        return session.out.json(&noted);
    }
    session.out.text(&requeued_text(&args, &noted))
}

/// What is said of a requeue: how many tasks it means, or plainly that there are none.
fn requeued_text(args: &RequeueArgs, noted: &Noted) -> String {
    let plan = &noted.plan_id;
    match noted.tasks {
        Some(0) if args.code.is_empty() => format!("{plan}: nothing to requeue, no task has failed"),
        Some(0) => format!("{plan}: nothing to requeue, no task has failed with {}", args.code.join(" or ")),
        tasks => {
            let of =
                tasks.map(|n| format!(" of {} task{}", number(u64::from(n)), if n == 1 { "" } else { "s" })).unwrap_or_default();
            let how = if noted.created { "asked for" } else { "had been asked for" };
            format!("{plan}: requeue{of} {how} at #{}", noted.seq)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_found_however_they_are_written() {
        assert_eq!(task_set("timed-out"), Ok(TaskSet::TimedOut));
        assert_eq!(task_set("FAILED"), Ok(TaskSet::Failed));
        assert!(task_set("lost").unwrap_err().contains("timedOut"));
    }

    #[test]
    fn a_requeue_says_how_many_it_means() {
        let args = |code: &[&str]| RequeueArgs {
            plan: PlanId::new("p1").unwrap(),
            task: Vec::new(),
            failed: code.is_empty(),
            code: code.iter().map(|c| (*c).to_owned()).collect(),
        };
        let noted = |tasks: Option<u32>| Noted { plan_id: PlanId::new("p1").unwrap(), seq: 17, created: tasks != Some(0), tasks };
        let said = |code: &[&str], tasks| requeued_text(&args(code), &noted(tasks));
        assert_eq!(said(&["NET", "TIMEOUT"], Some(0)), "p1: nothing to requeue, no task has failed with NET or TIMEOUT");
        assert_eq!(said(&[], Some(0)), "p1: nothing to requeue, no task has failed");
        assert_eq!(said(&["NET"], Some(1)), "p1: requeue of 1 task asked for at #17");
        assert_eq!(said(&[], Some(1_200)), "p1: requeue of 1,200 tasks asked for at #17");
        assert_eq!(said(&[], None), "p1: requeue asked for at #17", "an API that does not count");
    }

    #[test]
    fn tasks_may_be_named_by_their_target() {
        let args = |task: &[&str]| RequeueArgs {
            plan: PlanId::new("p1").unwrap(),
            task: task.iter().map(|t| (*t).to_owned()).collect(),
            failed: false,
            code: Vec::new(),
        };
        let RequeueSelector::Tasks(tasks) = selector(&args(&["SH_1", "p1.SH_2.main"])).unwrap() else { unreachable!() };
        assert_eq!(tasks.iter().map(ToString::to_string).collect::<Vec<_>>(), ["p1.SH_1.main", "p1.SH_2.main"]);
        assert_eq!(selector(&args(&["p2.SH_2.main"])).unwrap_err().code(), "NOT_OF_THIS_PLAN");
        assert_eq!(selector(&args(&["*"])).unwrap_err().code(), "BAD_ID");
    }
}
