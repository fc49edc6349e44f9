//! `fanfold summary`: the account of a plan.

use clap::{Args, ValueEnum};
use fanfold_domain::ids::PlanId;
use fanfold_domain::task::TaskState;
use fanfold_ledger::port::LedgerError;
use fanfold_wire::api::{SummaryAnswer, SummaryRequest};
use fanfold_wire::digest::sha256_hex;

use super::{plan_id, stores, task};
use crate::error::CliError;
use crate::exit::Exit;
use crate::render;
use crate::render::format::time_with_offset;
use crate::render::summary::SummaryDoc;
use crate::session::Session;

/// Show the account of a plan: who is in, who is missing, why
#[derive(Debug, Args)]
#[command(after_help = "\
json is the document byte for byte: its sha256 is the one in the log.

Examples:
  fanfold summary plan_7788
  fanfold summary plan_7788 --revision 1 --format json | sha256sum
  fanfold summary plan_7788 --format csv > plan_7788.csv
  fanfold summary plan_7788 --format report > plan_7788.md")]
pub struct SummaryArgs {
    /// The plan
    #[arg(value_parser = plan_id, value_name = "PLAN")]
    pub plan: PlanId,
    /// Which; without it the last
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub revision: Option<u32>,
    /// How it is shown; --json is --format json
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// How a summary is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Counts, totals, and the rows that have not succeeded first.
    Table,
    /// The document's bytes.
    Json,
    /// A file for spreadsheets, a row a target.
    Csv,
    /// A page for people, Markdown.
    Report,
}

/// Shows a summary.
///
/// # Errors
/// What the API says; `SUMMARY_DAMAGED` when the document isn't the one the log names.
pub async fn execute(args: &SummaryArgs, session: &Session) -> Result<Exit, CliError> {
    let (answer, bytes) = fetch(session, &args.plan, args.revision).await?;
    let format = if session.json { Format::Json } else { args.format };
    if format == Format::Json {
        session.out.bytes(&bytes)?;
        return Ok(Exit::Ok);
    }
    let mut doc = read(&bytes)?;
    let stores = stores::load(session).await?;
    if format == Format::Table {
        say_why_now(&mut doc, session).await;
    }
    let text = match format {
        Format::Table | Format::Json => render::summary::table(&doc, &stores, &session.zone),
        Format::Csv => render::csv::summary(&doc, &stores),
        Format::Report => {
            let published = time_with_offset(answer.emitted_ms, &session.zone);
            render::report::page(&doc, &published, &stores, &session.zone)
        }
    };
    session.out.text(&text)?;
    Ok(Exit::Ok)
}

/// Shows the last summary as a table.
pub(crate) async fn print_table(session: &Session, plan: &PlanId) -> Result<(), CliError> {
    let (_, bytes) = fetch(session, plan, None).await?;
    let stores = stores::load(session).await?;
    let mut doc = read(&bytes)?;
    say_why_now(&mut doc, session).await;
    session.out.text(&render::summary::table(&doc, &stores, &session.zone))
}

/// The document says that a task waits for its turn; that its terminal is given nothing is the registry's to say, as it stands now. A
/// registry that can't be asked keeps nobody from the account.
async fn say_why_now(doc: &mut SummaryDoc, session: &Session) {
    let pending = doc.rows.iter().filter(|row| row.state == TaskState::Pending).map(|row| row.target.clone()).collect();
    let mut why = task::why_now(pending, session).await.unwrap_or_default();
    for row in doc.rows.iter_mut().filter(|row| row.state == TaskState::Pending) {
        row.now = why.remove(&row.target);
    }
}

/// A summary's document, read.
pub(crate) fn read(bytes: &[u8]) -> Result<SummaryDoc, CliError> {
    serde_json::from_slice(bytes).map_err(|e| CliError::Answer { subject: "the summary".to_owned(), reason: e.to_string() })
}

/// A damaged document is an answer, and not a server that fails.
fn whole<T>(read: Result<T, LedgerError>, plan: &PlanId) -> Result<T, CliError> {
    read.map_err(|error| match error {
        LedgerError::Corrupt(what) => {
            let message = format!("{what}; `fanfold rebuild --plan {plan}` writes it anew from the log");
            CliError::No { code: "SUMMARY_DAMAGED", message }
        }
        error => error.into(),
    })
}

/// A summary and its document, whose digest is the one the log names.
async fn fetch(session: &Session, plan: &PlanId, revision: Option<u32>) -> Result<(SummaryAnswer, Vec<u8>), CliError> {
    let request = SummaryRequest { plan_id: plan.clone(), revision };
    let answer: SummaryAnswer = session.call("summary", "get", &request).await?;
    let again = format!("`fanfold replay --plan {plan} --until {} --json` computes it again", answer.summary.this.as_of_seq);
    let bytes = match &answer.document {
        Some(document) => document.get().as_bytes().to_vec(),
        None => match whole(session.ledger.get_object(&answer.object).await, plan)? {
            Some(bytes) => bytes.to_vec(),
            None => {
                let message = format!("the document {} of {plan} is not in the object store; {again}", answer.object);
                return Err(CliError::NotFound { code: "SUMMARY_DOCUMENT_MISSING", message });
            }
        },
    };
    let (found, wanted) = (sha256_hex(&bytes), &answer.summary.this.sha256);
    if found != *wanted {
        let message = format!("the document of {plan} has the sha256 {found}, the log says {wanted}; {again}");
        return Err(CliError::No { code: "SUMMARY_DAMAGED", message });
    }
    Ok((answer, bytes))
}
