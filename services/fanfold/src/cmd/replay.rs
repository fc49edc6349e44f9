//! `fanfold replay`: the account of a plan computed again from the log, and the check that everything written is true.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use fanfold_domain::ids::PlanId;
use fanfold_domain::summary::{Summary, SummaryError};
use jiff::tz::TimeZone;

use super::{plan_id, stores, summary};
use crate::error::CliError;
use crate::exit::Exit;
use crate::out::Out;
use crate::patience::{self, NO_ANSWER_MAX};
use crate::render;
use crate::render::format::number;
use crate::session::Session;
use crate::verify::account::{self, Account};
use crate::verify::offline::LogFileError;
use crate::verify::{self, VerifyReport};

/// Compute a plan's account again from the log, or check that everything written is true
#[derive(Debug, Args)]
#[command(after_help = "\
--verify computes every summary of the plan again at its position of the log and
compares bytes, compares every record of the state bucket with the log, and what
the API tells readers, and looks for events the log has lost; the first
difference is told and the exit code is 1 (VERIFY_FAILED).
Where a published summary still is the plan's last word it is that summary, to
the byte.

Examples:
  fanfold replay --plan plan_7788
  fanfold replay --plan plan_7788 --until 1234 --json | sha256sum
  fanfold replay --plan plan_7788 --verify
  fanfold events --plan plan_7788 --json > log.jsonl
  fanfold replay --plan plan_7788 --log log.jsonl --verify")]
pub struct ReplayArgs {
    /// The plan
    #[arg(long, value_parser = plan_id)]
    pub plan: PlanId,
    /// Only events up to this sequence of the log
    #[arg(long, value_name = "SEQ", conflicts_with = "verify")]
    pub until: Option<u64>,
    /// Compare what is written with what the log says
    #[arg(long)]
    pub verify: bool,
    /// Replay from this file of `fanfold events --json` instead of a server; --verify then compares summaries only
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
}

/// Replays or verifies.
///
/// # Errors
/// `UNKNOWN_PLAN`, `NOT_SEALED`, `VERIFY_FAILED`, and the ledger's.
pub async fn execute(args: &ReplayArgs, session: &Session) -> Result<Exit, CliError> {
    if args.verify {
        let verified = async { Ok(verify::verify_plan(session.ledger.as_ref(), &args.plan).await?) };
        let report = patience::bounded(&session.out, NO_ANSWER_MAX, verified).await?;
        return told(&report, session);
    }
    let last = session.ledger.last_seq().await?;
    let to = args.until.unwrap_or(last).min(last);
    let bytes = computed(&account::at(session.ledger.as_ref(), &args.plan, to).await?, to)?;
    if session.json {
        session.out.bytes(&bytes)?;
    } else {
        let stores = stores::load(session).await?;
        session.out.text(&render::summary::table(&summary::read(&bytes)?, &stores, &session.zone))?;
    }
    Ok(Exit::Ok)
}

/// Replays or verifies from a file, without a server.
///
/// # Errors
/// `BAD_LOG_FILE`, `UNKNOWN_PLAN`, `UNSUPPORTED_RULES`, `NOT_SEALED`, `VERIFY_FAILED`.
pub fn offline(args: &ReplayArgs, file: &Path, as_json: bool, out: &Out) -> Result<Exit, CliError> {
    let bytes = super::read_file(file)?;
    let bad = |e: LogFileError| CliError::input("BAD_LOG_FILE", format!("{}: {e}", file.display()));
    let log = verify::offline::read(&bytes).map_err(bad)?;
    let to = args.until.unwrap_or(u64::MAX);
    if args.verify {
        let replayed = verify::offline::replay(&log, &args.plan, to)?;
        if let Some(difference) = replayed.first_difference() {
            return Err(CliError::No { code: "VERIFY_FAILED", message: format!("{}: {difference}", args.plan) });
        }
        let [events, summaries] = [replayed.events, replayed.summaries.len() as u64].map(number);
        let (plan, last) = (&args.plan, replayed.view.last_seq);
        out.text(&format!("{plan}: {events} events up to #{last} give the same {summaries} summaries, byte for byte"))?;
        return Ok(Exit::Ok);
    }
    let account = account::at_in(&log, &args.plan, to)?;
    let bytes = computed(&account, account.view.last_seq)?;
    if as_json {
        out.bytes(&bytes)?;
    } else {
        let stores = BTreeMap::new();
        out.text(&render::summary::table(&summary::read(&bytes)?, &stores, &TimeZone::system()))?;
    }
    Ok(Exit::Ok)
}

fn computed(account: &Account, to: u64) -> Result<Vec<u8>, CliError> {
    let view = &account.view;
    Summary::compute(view, account.kind).and_then(|s| s.to_bytes()).map_err(|e| match e {
        SummaryError::NotSealed => CliError::input("NOT_SEALED", format!("{} is not sealed at sequence {to}", view.plan.id())),
        SummaryError::DoesNotAddUp { .. } | SummaryError::Unwritable(_) => CliError::Internal(e.to_string()),
    })
}

fn told(report: &VerifyReport, session: &Session) -> Result<Exit, CliError> {
    if session.json {
        session.out.json(report)?;
        return Ok(if report.is_true() { Exit::Ok } else { Exit::No });
    }
    let [events, summaries, records] = [report.events, report.summaries, report.records].map(number);
    let Some(first) = report.differences.first() else {
        session.out.text(&format!(
            "{} is true: {events} events up to #{} give the same {summaries} summaries, byte for byte, and the same {records} records{}",
            report.plan,
            report.as_of_seq,
            if report.api_matches.is_some() { "; the API tells the same" } else { "" }
        ))?;
        return Ok(Exit::Ok);
    };
    let more = report.differences.len() as u64 + report.differences_left_out - 1;
    let rest = if more > 0 { format!(" (and {} more differences; --json lists them)", number(more)) } else { String::new() };
    Err(CliError::No { code: "VERIFY_FAILED", message: format!("{}: {first}{rest}", report.plan) })
}
