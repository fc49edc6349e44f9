//! `fanfold plan`: submit, list, show, follow, cancel, close.

pub mod submit;
pub mod targets;
pub mod watch;

use clap::{Args, Subcommand};
use fanfold_domain::ids::PlanId;
use fanfold_wire::api::{Behind, Noted, PlanList, PlanListRequest, PlanRequest};
use fanfold_wire::record::PlanRecord;

use super::plan_id;
use crate::error::CliError;
use crate::exit::Exit;
use crate::render;
use crate::render::format::number;
use crate::session::Session;
use crate::time::now_ms;

/// Plans of one page of an answer.
const PAGE: u32 = 500;

/// Submit, follow, cancel and close plans
#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Hand a plan out
    Submit(Box<submit::SubmitArgs>),
    /// List plans
    Ls(LsArgs),
    /// Show one plan: how far it is, when its deadline is
    Show(ShowArgs),
    /// Follow a plan until every task has ended or the plan is over
    Watch(watch::WatchArgs),
    /// Hand nothing more out and stop what runs
    Cancel(CancelArgs),
    /// Give up what is still missing and write the final summary
    Close(CloseArgs),
}

/// List plans
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fanfold plan ls\n  fanfold plan ls --open --json")]
pub struct LsArgs {
    /// Only those that aren't over
    #[arg(long)]
    pub open: bool,
    /// Most plans shown
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
}

/// Show one plan: how far it is, when its deadline is
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fanfold plan show plan_7788\n  fanfold plan show plan_7788 --json")]
pub struct ShowArgs {
    /// The plan
    #[arg(value_parser = plan_id, value_name = "PLAN")]
    pub id: PlanId,
}

/// Hand nothing more out and stop what runs
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fanfold plan cancel plan_7788 --reason 'wrong date'")]
pub struct CancelArgs {
    /// The plan
    #[arg(value_parser = plan_id, value_name = "PLAN")]
    pub id: PlanId,
    /// Why, for the log
    #[arg(long, default_value = "")]
    pub reason: String,
}

/// Give up what is still missing and write the final summary
#[derive(Debug, Args)]
#[command(after_help = "\
What is still out or offline is given up; the plan can't be opened again, a
follow-up plan can be submitted.

Example:
  fanfold plan close plan_7788 --reason 'stores are shut'")]
pub struct CloseArgs {
    /// The plan
    #[arg(value_parser = plan_id, value_name = "PLAN")]
    pub id: PlanId,
    /// Why, for the log
    #[arg(long, default_value = "")]
    pub reason: String,
}

/// Carries out a plan command.
///
/// # Errors
/// See [`CliError`].
pub async fn execute(command: PlanCommand, session: &Session) -> Result<Exit, CliError> {
    match command {
        PlanCommand::Submit(args) => submit::execute(*args, session).await,
        PlanCommand::Ls(args) => ls(&args, session).await,
        PlanCommand::Show(args) => show(&args, session).await,
        PlanCommand::Watch(args) => watch::execute(&args, session).await,
        PlanCommand::Cancel(args) => ask("cancel", args.id, args.reason, session).await,
        PlanCommand::Close(args) => ask("close", args.id, args.reason, session).await,
    }
}

/// The record of a plan.
pub(crate) async fn get(session: &Session, plan: &PlanId) -> Result<PlanRecord, CliError> {
    let request = PlanRequest { plan_id: plan.clone(), by: session.by.clone(), reason: String::new() };
    session.call("plan", "get", &request).await
}

async fn ls(args: &LsArgs, session: &Session) -> Result<Exit, CliError> {
    let mut list = PlanList { plans: Vec::new(), next: None, behind: None };
    // Bounded: every page but the last brings at least one plan.
    loop {
        let wanted = args.limit.saturating_sub(u32::try_from(list.plans.len()).unwrap_or(u32::MAX)).min(PAGE);
        let request = PlanListRequest { limit: Some(wanted), after: list.next.take(), open: args.open };
        let page: PlanList = session.call("plan", "list", &request).await?;
        let empty = page.plans.is_empty();
        list.plans.extend(page.plans);
        list.next = page.next;
        list.behind = merged(list.behind, page.behind);
        if empty || list.next.is_none() || list.plans.len() >= args.limit as usize {
            break;
        }
    }
    if session.json {
        session.out.json(&list)?;
    } else {
        session.out.text(&render::plan::list(&list.plans, &session.zone))?;
        if list.next.is_some() {
            session.out.note("there are more; raise --limit");
        }
    }
    if let Some(behind) = &list.behind {
        session.out.note(&behind_words(behind));
    }
    Ok(Exit::Ok)
}

/// What the pages so far lack, and this one.
fn merged(before: Option<Behind>, page: Option<Behind>) -> Option<Behind> {
    match (before, page) {
        (Some(mut before), Some(page)) => {
            before.plans.extend(page.plans);
            Some(Behind { plans: before.plans, ..page })
        }
        (before, page) => page.or(before),
    }
}

fn behind_words(behind: &Behind) -> String {
    let log = number(behind.log_seq);
    let lacks = match behind.plans.as_slice() {
        [] => "there is no checkpoint, plans that are over may be missing".to_owned(),
        [first, ..] => format!(
            "they are at #{}, {} plans that are over are missing, {first} the first (`fanfold plan show` knows each)",
            behind.written_seq,
            number(behind.plans.len() as u64)
        ),
    };
    format!("the records are behind the log, which is at #{log}: {lacks}; is the projector running? (`fanfold doctor`)")
}

async fn show(args: &ShowArgs, session: &Session) -> Result<Exit, CliError> {
    let plan = get(session, &args.id).await?;
    if session.json {
        session.out.json(&plan)?;
    } else {
        session.out.text(&render::plan::show(&plan, now_ms(), &session.zone))?;
    }
    Ok(Exit::Ok)
}

async fn ask(verb: &str, plan: PlanId, reason: String, session: &Session) -> Result<Exit, CliError> {
    let request = PlanRequest { plan_id: plan, by: session.by.clone(), reason };
    let noted: Noted = session.call("plan", verb, &request).await?;
    if session.json {
        session.out.json(&noted)?;
    } else {
        let how = if noted.created { "asked for" } else { "had been asked for" };
        session.out.text(&format!("{}: {verb} {how} at #{}; `fanfold plan watch {0}` follows it", noted.plan_id, noted.seq))?;
    }
    Ok(Exit::Ok)
}
