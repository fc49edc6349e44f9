//! `fanfold plan watch`: follow a plan until its account is there.
//!
//! On a terminal a progress bar, elsewhere a line whenever something has changed. It never waits for ever: by itself until the plan
//! has expired and its final summary should be there.

use std::time::Duration;

use clap::{Args, ValueEnum};
use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::SummaryKind;
use fanfold_domain::summary::PlanVerdict;
use fanfold_wire::record::PlanRecord;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::{Instant, sleep};

use super::get;
use crate::cmd::{plan_id, summary};
use crate::error::CliError;
use crate::exit::Exit;
use crate::render::format::duration;
use crate::render::plan::{progress, without_account};
use crate::render::summary::counts_line;
use crate::session::Session;
use crate::time::{now_ms, parse_duration_ms};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(300);
/// How long the services may be away before the watch gives up.
const AWAY_MAX: Duration = Duration::from_secs(60);
/// How long after its expiry a plan's final summary is waited for, in milliseconds.
const AFTER_EXPIRY_MS: i64 = 300_000;

/// Follow a plan until every task has ended or the plan is over
#[derive(Debug, Args)]
#[command(after_help = "\
By itself it ends when every task has ended, succeeded or not, or the plan is
over, and then shows the summary there is. Tasks may be requeued after that
while the plan is open. Interrupting it changes nothing about the plan.

It ends with 0 when the verdict is full or with reservations: not every target
need be in. It ends with 1 when the verdict is failed, which it can only be in a
plan whose document says `\"converge\": {\"below\": \"fail\"}`, with 1 when the time
is over (WATCH_TIMEOUT), and with 1 when the log has lost so much of the plan
that the summary never comes (NO_ACCOUNT). Who needs every target asks for the
counts: `fanfold plan show PLAN --json`.

Examples:
  fanfold plan watch plan_7788
  fanfold plan watch plan_7788 --until partial --timeout 10m")]
pub struct WatchArgs {
    /// The plan
    #[arg(value_parser = plan_id, value_name = "PLAN")]
    pub id: PlanId,
    /// What ends it: partial (any summary: the deadline has passed or every task has ended), complete (every task has ended, or
    /// the plan is over)
    #[arg(long, value_enum, default_value_t = Until::Complete)]
    pub until: Until,
    /// Longest wait; without it until the plan has expired
    #[arg(long, value_parser = parse_duration_ms, value_name = "DURATION")]
    pub timeout: Option<i64>,
}

/// Which summary ends a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Until {
    /// Any summary: the deadline has passed, or every task has ended
    Partial,
    /// The complete or the final one: every task has ended, or the plan is over
    Complete,
}

impl Until {
    /// Whether the plan is as far as that.
    pub fn is_reached(self, plan: &PlanRecord) -> bool {
        match self {
            Until::Partial => plan.summary.is_some(),
            Until::Complete => matches!(plan.summary_kind, Some(SummaryKind::Complete | SummaryKind::Final)),
        }
    }
}

/// Follows a plan as asked.
///
/// # Errors
/// See [`follow`].
pub async fn execute(args: &WatchArgs, session: &Session) -> Result<Exit, CliError> {
    follow(session, &args.id, &args.until, args.timeout).await
}

/// Follows a plan, then shows its summary.
///
/// # Errors
/// What the API says, `NO_SERVICE` and the like once the services have been away for a minute, `WATCH_TIMEOUT`; `NO_ACCOUNT` where the
/// log has lost so much of the plan that the summary never comes.
pub async fn follow(session: &Session, plan: &PlanId, until: &Until, timeout_ms: Option<i64>) -> Result<Exit, CliError> {
    let mut view = Progress::new(session);
    let record = wait(session, plan, *until, timeout_ms, &mut view).await;
    view.end();
    let record = record?;
    if !session.json {
        session.out.text("")?;
        summary::print_table(session, plan).await?;
    }
    match record.verdict {
        PlanVerdict::Failed => Ok(Exit::No),
        PlanVerdict::Full | PlanVerdict::Reserved => Ok(Exit::Ok),
    }
}

async fn wait(
    session: &Session,
    plan: &PlanId,
    until: Until,
    timeout_ms: Option<i64>,
    view: &mut Progress,
) -> Result<PlanRecord, CliError> {
    let started_ms = now_ms();
    let mut heard = Instant::now();
    loop {
        let mut over_ms = timeout_ms.map(|ms| started_ms.saturating_add(ms));
        match get(session, plan).await {
            Ok(record) => {
                heard = Instant::now();
                view.show(session, &record)?;
                if until.is_reached(&record) {
                    return Ok(record);
                }
                if let Some(why) = without_account(&record) {
                    return Err(no_account(&record, &why));
                }
                over_ms = over_ms.or(record.expires.map(|ms| ms.saturating_add(AFTER_EXPIRY_MS)));
            }
            // Just submitted, the plan may not be known to every reader yet; and services may be restarted under a watch.
            Err(error @ (CliError::Request(_) | CliError::Api(_))) if !is_passing(&error) || heard.elapsed() > AWAY_MAX => {
                return Err(error);
            }
            Err(CliError::Request(_) | CliError::Api(_)) => {}
            Err(error) => return Err(error),
        }
        if let Some(over) = over_ms.filter(|over| now_ms() > *over) {
            let waited = duration(now_ms().saturating_sub(started_ms));
            let message =
                format!("{plan}: no such summary after {waited} (the wait was over at {over}); the plan itself goes on");
            return Err(CliError::No { code: "WATCH_TIMEOUT", message });
        }
        sleep(PAUSE).await;
    }
}

/// The summary that is waited for never comes.
fn no_account(plan: &PlanRecord, why: &str) -> CliError {
    let id = &plan.plan_id;
    let there = match &plan.summary {
        Some(last) => format!("summary {} is the last there is (`fanfold summary {id}`)", last.revision),
        None => "it never had one".to_owned(),
    };
    CliError::No { code: "NO_ACCOUNT", message: format!("{id}: {why}; {there}") }
}

/// Whether asking again may help.
fn is_passing(error: &CliError) -> bool {
    matches!(error, CliError::Request(_)) || matches!(error.code(), "UNAVAILABLE" | "LATER" | "BUSY")
}

/// What is shown meanwhile.
struct Progress {
    bar: Option<ProgressBar>,
    last: String,
}

impl Progress {
    fn new(session: &Session) -> Self {
        let bar = (session.out.interactive && !session.json).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let template = if session.out.color { "{bar:30.green} {pos}/{len} {msg}" } else { "{bar:30} {pos}/{len} {msg}" };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, last: String::new() }
    }

    fn show(&mut self, session: &Session, plan: &PlanRecord) -> Result<(), CliError> {
        if let Some(bar) = &self.bar {
            bar.set_length(u64::from(plan.total));
            bar.set_position(u64::from(plan.counts.succeeded));
            let left = plan.deadline.map(|ms| ms.saturating_sub(now_ms())).filter(|ms| *ms > 0);
            let left = left.map(|ms| format!("; deadline in {}", duration(ms))).unwrap_or_default();
            bar.set_message(format!("{}{left}", counts_line(&plan.counts)));
            return Ok(());
        }
        let line = progress(plan);
        if line != self.last {
            if session.json {
                session.out.json(plan)?;
            } else {
                session.out.text(&line)?;
            }
            self.last = line;
        }
        Ok(())
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
    }
}
