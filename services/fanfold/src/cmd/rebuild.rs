//! `fanfold rebuild`: the state bucket against the log, record by record, and written anew where it differs.

use std::time::Duration;

use clap::Args;
use fanfold_domain::ids::PlanId;
use fanfold_ledger::port::Ledger;
use fanfold_projector::audit::{Audit, AuditReport, Difference};
use fanfold_wire::record::Checkpoint;
use serde::Serialize;

use super::plan_id;
use crate::error::CliError;
use crate::exit::Exit;
use crate::render::format::number;
use crate::session::Session;
use crate::verify::documents::{self, Documents};

/// Steps a projector that lags behind is waited for, and the pause before each.
const WAITS_MAX: u32 = 20;
const WAIT: Duration = Duration::from_millis(150);

/// Fold the log anew into the state bucket and the documents, while everything runs
#[derive(Debug, Args)]
#[command(after_help = "\
Compares every record of the state bucket with what the log gives, writes those
that differ, and removes those of plans and tasks that the log does not know.
Nothing older goes over anything newer, so services and readers need not stop,
and a projector need not run. Where all was right nothing is written. Progress
is told on stderr.

A summary's document that is missing or damaged is written anew if the log
still gives the very one that it names.
Where it does not, the exit code is 1.

Examples:
  fanfold rebuild
  fanfold rebuild --plan plan_7788
  fanfold rebuild --json")]
pub struct RebuildArgs {
    /// Only this plan
    #[arg(long, value_parser = plan_id, value_name = "PLAN")]
    pub plan: Option<PlanId>,
}

/// Rebuilds.
///
/// # Errors
/// `UNKNOWN_PLAN` when neither the log nor the bucket knows the plan; the ledger's.
pub async fn execute(args: &RebuildArgs, session: &Session) -> Result<Exit, CliError> {
    let report = rebuild(args.plan.clone(), session).await?;
    let documents = rebuilt_documents(args.plan.as_ref(), session).await?;
    if let (Some(plan), true) = (&args.plan, report == AuditReport::default()) {
        let message = format!("neither the log nor the state bucket knows a plan `{plan}`");
        return Err(CliError::NotFound { code: "UNKNOWN_PLAN", message });
    }
    if session.json {
        session.out.json(&Rebuilt { report: &report, documents: &documents })?
    } else {
        session.out.text(&format!("{}{}", text(&report), text_of_documents(&documents)))?
    }
    Ok(if documents.bad > 0 { Exit::No } else { Exit::Ok })
}

#[derive(Serialize)]
struct Rebuilt<'a> {
    #[serde(flatten)]
    report: &'a AuditReport,
    documents: &'a Documents,
}

async fn rebuilt_documents(plan: Option<&PlanId>, session: &Session) -> Result<Documents, CliError> {
    let last = session.ledger.last_seq().await?;
    session.out.note("reading the summaries' documents");
    Ok(documents::examine(session.ledger.as_ref(), plan, last, true).await?)
}

fn text_of_documents(found: &Documents) -> String {
    let mut text = format!("{} documents were right, {} rewritten\n", number(found.whole), number(found.mended));
    if found.bad > 0 {
        let names = found.names();
        text.push_str(&format!("{} documents are lost, the log gives no such bytes any more: {names}\n", number(found.bad)));
    }
    text
}

async fn rebuild(plan: Option<PlanId>, session: &Session) -> Result<AuditReport, CliError> {
    let ledger: &dyn Ledger = session.ledger.as_ref();
    let mut audit = Audit::begin(ledger, plan).await?;
    let mut waited = 0;
    let mut told = None;
    loop {
        // A projector that runs is given the time to write what it has; one that does not move is not waited for.
        let written = if waited < WAITS_MAX { written_seq(ledger).await? } else { None };
        if audit.step(ledger, written).await? {
            return Ok(audit.report().clone());
        }
        let progress = audit.progress();
        if told != Some(progress) {
            session.out.note(&match progress.of_plans {
                0 => format!("{} records listed", number(progress.listed)),
                of => format!("{} of {} plans compared", number(progress.plans), number(of)),
            });
            told = Some(progress);
        }
        if audit.is_waiting() {
            waited += 1;
            tokio::time::sleep(WAIT).await;
        }
    }
}

async fn written_seq(ledger: &dyn Ledger) -> Result<Option<u64>, CliError> {
    let entry = ledger.get_checkpoint().await?;
    Ok(entry.and_then(|e| Checkpoint::parse(&e.value)).map(|c| c.seq))
}

fn text(report: &AuditReport) -> String {
    let mut text = format!(
        "{} records of {} plans were right, {} rewritten, {} removed\n",
        number(report.right),
        number(report.plans),
        number(report.rewritten),
        number(report.removed)
    );
    if report.kept > 0 {
        let kept = number(report.kept);
        text.push_str(&format!(
            "{kept} records the log knows nothing of were left alone: the log has lost events (`fanfold doctor`)\n"
        ));
    }
    if report.busy > 0 {
        text.push_str(&format!("{} plans changed all the time and were left to the projector\n", number(report.busy)));
    }
    for Difference { key, field, found, expected } in &report.differences {
        text.push_str(&format!("  {key} {field}: was {found}, is {expected}\n"));
    }
    let listed = report.differences.len() as u64;
    let all = report.rewritten + report.removed + report.kept;
    if all > listed {
        text.push_str(&format!("  and {} more\n", number(all - listed)));
    }
    text
}
