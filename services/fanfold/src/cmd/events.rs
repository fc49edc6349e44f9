//! `fanfold events`: the log, a line an event.

use clap::Args;
use fanfold_domain::ids::PlanId;
use fanfold_ledger::port::{Stored, TailItem};
use fanfold_wire::subjects::{plan_log_filter, plan_of};
use futures::StreamExt;

use super::plan_id;
use crate::error::CliError;
use crate::exit::Exit;
use crate::render::event;
use crate::session::Session;
use crate::time::{now_ms, parse_moment};
use crate::verify::offline;

/// Events shown where neither a plan nor a time is given.
const LAST_SHOWN: u64 = 1_000;
/// Sequences one probe of the search by time looks at.
const PROBE: u64 = 256;

/// Read the log
#[derive(Debug, Args)]
#[command(after_help = "\
Without --plan and --since the last 1,000 events.

Examples:
  fanfold events --plan plan_7788
  fanfold events --since 10m --follow
  fanfold events --since '2026-09-17 20:00' --json | jq .subject
  fanfold events --plan plan_7788 --json > plan_7788.jsonl  # for replay --log")]
pub struct EventsArgs {
    /// Only events of this plan and its tasks
    #[arg(long, value_parser = plan_id)]
    pub plan: Option<PlanId>,
    /// From this moment on, or so long ago
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Go on as events come in, until interrupted
    #[arg(long, short)]
    pub follow: bool,
}

/// Prints the events.
///
/// # Errors
/// `BAD_TIME`, and the ledger's.
pub async fn execute(args: &EventsArgs, session: &Session) -> Result<Exit, CliError> {
    let last = session.ledger.last_seq().await?;
    let since_ms = match &args.since {
        Some(text) => Some(parse_moment(text, now_ms(), &session.zone).map_err(|e| CliError::input("BAD_TIME", e))?),
        None => None,
    };
    let from = match (since_ms, &args.plan) {
        (Some(ms), _) => first_since(session, ms, last).await?,
        (None, Some(_)) => 1,
        (None, None) => last.saturating_sub(LAST_SHOWN - 1).max(1),
    };
    let filters = match &args.plan {
        Some(plan) => vec![plan_log_filter(plan)],
        None => vec!["ff.>".to_owned()],
    };
    if from <= last {
        let mut events = session.ledger.read(filters, from, last).await?;
        while let Some(stored) = events.next().await {
            let stored = stored?;
            if since_ms.is_none_or(|ms| stored.time_ms >= ms) {
                print(&stored, session)?;
            }
        }
    }
    if args.follow {
        follow(args.plan.as_ref(), last + 1, session).await?;
    }
    Ok(Exit::Ok)
}

fn print(stored: &Stored, session: &Session) -> Result<(), CliError> {
    if session.json {
        let line =
            offline::line(stored).ok_or_else(|| CliError::Internal(format!("#{} can't be written as JSON", stored.seq)))?;
        session.out.text(&line)
    } else {
        session.out.text(&event::line(stored, &session.zone))
    }
}

fn is_of(stored: &Stored, wanted: Option<&PlanId>) -> bool {
    wanted.is_none_or(|wanted| plan_of(&stored.subject) == Some(wanted.as_str()))
}

/// Ends with the process, or when the reader has gone.
async fn follow(plan: Option<&PlanId>, from: u64, session: &Session) -> Result<(), CliError> {
    let mut tail = session.ledger.tail(from).await?;
    while let Some(item) = tail.next().await {
        match item {
            TailItem::Messages(messages) => {
                for stored in messages.iter().filter(|m| is_of(m, plan)) {
                    print(stored, session)?;
                }
            }
            TailItem::Reconnected => session.out.note("the server was lost and found again; nothing is left out"),
            TailItem::Hole { from, to } => {
                session.out.note(&format!("warning: the log has a hole: #{from} to #{} are missing", to - 1))
            }
        }
    }
    Ok(())
}

/// The sequence to read from to get everything logged at `since_ms` or later: found by halving, as log times rise with sequences.
async fn first_since(session: &Session, since_ms: i64, last: u64) -> Result<u64, CliError> {
    let (mut low, mut high) = (1, last + 1);
    // Everything below `low` is older; each round halves the rest.
    while high - low > PROBE {
        let middle = low + (high - low) / 2;
        let mut probe = session.ledger.read(vec!["ff.>".to_owned()], middle, (middle + PROBE - 1).min(last)).await?;
        match probe.next().await {
            Some(Ok(stored)) if stored.time_ms < since_ms => low = middle,
            Some(Ok(_)) => high = middle,
            Some(Err(error)) => return Err(error.into()),
            // A hole: nothing to judge by, so the rest is read.
            None => break,
        }
    }
    Ok(low)
}
