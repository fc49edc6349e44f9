//! `fanfold plan submit`: a plan from a file or from the command line.
//!
//! The id is known and told before anything is sent, so a submission whose answer was lost can be sent again under the same id and
//! is never a second plan.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;
use fanfold_domain::ids::PlanId;
use fanfold_ledger::port::RequestError;
use fanfold_wire::api::{SubmitRequest, Submitted};
use fanfold_wire::digest::sha256_hex;
use fanfold_wire::document::PlanDocument;
use fanfold_wire::strict::duplicate_key;
use fanfold_wire::timestamp::from_rfc3339;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{targets, watch};
use crate::client::SUBMIT_WAIT;
use crate::cmd::{plan_id, read_file};
use crate::error::CliError;
use crate::exit::Exit;
use crate::render::format::number;
use crate::session::Session;
use crate::time::parse_duration_ms;

/// How often a submission without an answer is sent again under its id.
const TRIES_MAX: u32 = 3;

/// Hand a plan out
#[derive(Debug, Default, Args)]
#[command(after_help = "\
A plan that is sent again under the same id is never a second plan: --plan-id
makes a submission repeatable. With --watch it ends as `fanfold plan watch`.

Examples:
  fanfold plan submit docs/examples/plan.json --watch
  fanfold plan submit --type collect_log --input '{\"date\":\"yesterday\"}' \\
      --targets stores.csv --deadline 120s
  fanfold plan submit --type collect_log@1 --input @input.json \\
      --targets @imported --deadline 2h --expires 1d \\
      --title 'Logs of Thursday' --plan-id logs-20260917")]
pub struct SubmitArgs {
    /// The plan document; - reads stdin
    #[arg(conflicts_with_all = ["task_type", "input", "targets", "deadline", "expires", "title", "in_flight"], required_unless_present = "task_type")]
    pub file: Option<PathBuf>,
    /// Task type, name or name@version
    #[arg(long = "type", value_name = "TYPE", requires_all = ["input", "targets"])]
    pub task_type: Option<String>,
    /// Input of every task: JSON, or @FILE
    #[arg(long, value_name = "JSON", requires = "task_type")]
    pub input: Option<String>,
    /// A .csv or .json store file, a file with one id a line, or @imported
    #[arg(long, value_name = "WHERE", requires = "task_type")]
    pub targets: Option<String>,
    /// When the first account is due: a duration after the seal (120s) or a moment (RFC 3339)
    #[arg(long, value_parser = when, requires = "task_type")]
    pub deadline: Option<When>,
    /// When what is missing is given up: a duration after the seal or a moment
    #[arg(long, value_parser = when, requires = "task_type")]
    pub expires: Option<When>,
    /// For people
    #[arg(long, requires = "task_type")]
    pub title: Option<String>,
    /// Most tasks of it handed out at once
    #[arg(long, value_name = "N", requires = "task_type", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub in_flight: Option<u32>,
    /// The plan's id; without it a new one is made
    #[arg(long, value_parser = plan_id)]
    pub plan_id: Option<PlanId>,
    /// Follow it until every task has ended or the plan is over, then show the summary
    #[arg(long)]
    pub watch: bool,
}

/// A moment relative to the seal or absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// Milliseconds after the seal.
    AfterMs(i64),
    /// RFC 3339.
    At(String),
}

/// Reads `120s` or an RFC 3339 moment.
fn when(text: &str) -> Result<When, String> {
    if from_rfc3339(text).is_some() {
        return Ok(When::At(text.to_owned()));
    }
    match parse_duration_ms(text) {
        Ok(ms) if ms > 0 => Ok(When::AfterMs(ms)),
        Ok(_) | Err(_) => Err(format!("`{text}` is neither a duration (120s, 1d) nor a moment (2026-09-17T20:00:00+02:00)")),
    }
}

/// Submits the plan.
///
/// # Errors
/// Everything that is wrong with the document, and what the API answers.
pub async fn execute(args: SubmitArgs, session: &Session) -> Result<Exit, CliError> {
    let mut document = match &args.file {
        Some(file) => of_file(file)?,
        None => of_flags(&args, session).await?,
    };
    let plan = identify(&mut document, args.plan_id)?;
    let bytes =
        serde_json::to_vec(&document).map_err(|e| CliError::Internal(format!("the plan could not be written as JSON: {e}")))?;
    drop(document);
    PlanDocument::parse(&bytes).map_err(CliError::problems)?;
    session.out.note(&format!("plan id {plan} (sent again with --plan-id {plan} it is never a second plan)"));
    let submitted = send(bytes, session).await?;
    if session.json {
        session.out.json(&submitted)?;
    } else {
        session.out.text(&answer_text(&submitted))?;
    }
    if args.watch {
        return watch::follow(session, &submitted.plan_id, &watch::Until::Complete, None).await;
    }
    Ok(Exit::Ok)
}

/// What is said of an accepted submission.
pub fn answer_text(submitted: &Submitted) -> String {
    let targets = number(u64::from(submitted.targets));
    if submitted.created {
        return format!("{} is sealed with {targets} targets at #{}", submitted.plan_id, submitted.sealed_seq);
    }
    format!("{} was there already, the same plan with {targets} targets, sealed at #{}", submitted.plan_id, submitted.sealed_seq)
}

fn of_file(file: &Path) -> Result<Map<String, Value>, CliError> {
    let bytes = read_file(file)?;
    if let Some(path) = duplicate_key(&bytes) {
        return Err(CliError::input(
            "DUPLICATE_KEY",
            format!("{}: `{path}` is written twice; leave one of them out", file.display()),
        ));
    }
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(CliError::input("NOT_JSON", format!("{}: a plan is one JSON object", file.display()))),
        Err(e) => Err(CliError::input("NOT_JSON", format!("{}: {e} (write the plan as one JSON object)", file.display()))),
    }
}

async fn of_flags(args: &SubmitArgs, session: &Session) -> Result<Map<String, Value>, CliError> {
    let (Some(task_type), Some(input), Some(named)) = (&args.task_type, &args.input, &args.targets) else {
        return Err(CliError::Usage("give a plan file, or --type, --input and --targets".to_owned()));
    };
    let (text, from) = match input.strip_prefix('@') {
        Some(file) => (String::from_utf8_lossy(&read_file(Path::new(file))?).into_owned(), file.to_owned()),
        None => (input.clone(), "--input".to_owned()),
    };
    if let Some(path) = duplicate_key(text.as_bytes()) {
        return Err(CliError::input("DUPLICATE_KEY", format!("{from}: `{path}` is written twice; leave one of them out")));
    }
    let input: Value = serde_json::from_str(&text).map_err(|e| CliError::input("NOT_JSON", format!("{from}: {e}")))?;
    let stores = targets::to_value(targets::resolve(named, session).await?);
    let mut document = Map::new();
    document.insert("type".into(), json!(task_type));
    document.insert("input".into(), input);
    document.insert("targets".into(), Value::Object(Map::from_iter([("stores".to_owned(), stores)])));
    for (name, moment) in [("deadline", &args.deadline), ("expires", &args.expires)] {
        match moment {
            Some(When::AfterMs(ms)) => drop(document.insert(format!("{name}Ms"), json!(ms))),
            Some(When::At(at)) => drop(document.insert(format!("{name}At"), json!(at))),
            None => {}
        }
    }
    if let Some(title) = &args.title {
        document.insert("title".into(), json!(title));
    }
    if let Some(in_flight) = args.in_flight {
        document.insert("limits".into(), json!({"inFlight": in_flight}));
    }
    Ok(document)
}

/// The id of the document, the one named, or a new one; puts it into the document.
fn identify(document: &mut Map<String, Value>, named: Option<PlanId>) -> Result<PlanId, CliError> {
    let written = document.get("planId").and_then(Value::as_str);
    let plan = match (written, named) {
        (Some(text), Some(named)) if text != named.as_str() => {
            let message = format!("the document has the planId `{text}`, --plan-id says `{named}`; leave one of them out");
            return Err(CliError::input("PLAN_ID_DIFFERS", message));
        }
        (Some(text), _) => PlanId::new(text).map_err(|e| all_problems(document, e.to_string()))?,
        (None, _) if document.contains_key("planId") => {
            return Err(CliError::input("BAD_ID", "the planId of the document is not a text"));
        }
        (None, Some(named)) => named,
        (None, None) => {
            let text = format!("plan_{}", Uuid::now_v7().simple());
            PlanId::new(&text).map_err(|e| CliError::Internal(e.to_string()))?
        }
    };
    document.insert("planId".into(), json!(plan.as_str()));
    Ok(plan)
}

/// A bad id is one problem among others: all of them are told at once.
fn all_problems(document: &Map<String, Value>, bad_id: String) -> CliError {
    match serde_json::to_vec(document).map(|bytes| PlanDocument::parse(&bytes)) {
        Ok(Err(problems)) => CliError::problems(problems),
        Ok(Ok(_)) | Err(_) => CliError::input("BAD_ID", bad_id),
    }
}

/// A W3C trace context of its own, so that the plan's way to the terminals and back can be followed.
fn traceparent() -> String {
    let span: String = Uuid::new_v4().simple().to_string().chars().take(16).collect();
    format!("00-{}-{span}-01", Uuid::new_v4().simple())
}

async fn send(bytes: Vec<u8>, session: &Session) -> Result<Submitted, CliError> {
    let mut request = SubmitRequest { plan: None, object: None, by: session.by.clone(), traceparent: Some(traceparent()) };
    if bytes.len() > session.ledger.max_payload() / 2 {
        let name = sha256_hex(&bytes);
        session.ledger.put_object(&name, Bytes::from(bytes)).await?;
        request.object = Some(name);
    } else {
        let text = String::from_utf8(bytes).map_err(|e| CliError::Internal(e.to_string()))?;
        request.plan = Some(RawValue::from_string(text).map_err(|e| CliError::Internal(e.to_string()))?);
    }
    let body =
        serde_json::to_vec(&request).map_err(|e| CliError::Internal(format!("a request could not be written as JSON: {e}")))?;
    for _ in 1..TRIES_MAX {
        match session.call_raw("plan", "submit", body.clone(), SUBMIT_WAIT).await {
            Err(CliError::Request(RequestError::Timeout { .. })) => {
                session.out.note("no answer yet; the same plan is sent again")
            }
            other => return other,
        }
    }
    session.call_raw("plan", "submit", body, SUBMIT_WAIT).await
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_id_comes_from_the_document_the_flag_or_is_made() {
        let named = || Some(PlanId::new("p1").unwrap());
        let of = |value: Value| value.as_object().cloned().unwrap();
        assert_eq!(identify(&mut of(json!({"planId": "p2"})), None).unwrap().as_str(), "p2");
        assert_eq!(identify(&mut of(json!({})), named()).unwrap().as_str(), "p1");
        let differs = identify(&mut of(json!({"planId": "p2"})), named()).unwrap_err();
        assert_eq!(differs.code(), "PLAN_ID_DIFFERS");
        assert_eq!(identify(&mut of(json!({"planId": 7})), None).unwrap_err().code(), "BAD_ID");
        let mut made = of(json!({}));
        let plan = identify(&mut made, None).unwrap();
        assert!(plan.as_str().starts_with("plan_") && plan.as_str().len() == 37, "{plan}");
        assert_eq!(made.get("planId"), Some(&json!(plan.as_str())));
    }

    #[test]
    fn trace_contexts_have_the_w3c_form() {
        let lengths: Vec<usize> = traceparent().split('-').map(str::len).collect();
        assert_eq!(lengths, [2, 32, 16, 2]);
    }
}
