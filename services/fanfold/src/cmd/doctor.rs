//! `fanfold doctor`: what is running, what is not, and what to do about it.

mod log;
mod plans;
mod state;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::Duration;

use clap::Args;
use fanfold_ledger::port::LedgerError;
use fanfold_wire::api::{PlanList, PlanListRequest};
use futures::StreamExt;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use crate::error::CliError;
use crate::exit::Exit;
use crate::out::Out;
use crate::patience::{self, NO_ANSWER_MAX};
use crate::render::format::{duration, number};
use crate::session::Session;
use crate::time::{now_ms, parse_duration_ms};

mod carry;
pub mod terminals;

/// How long the write probe may take.
const WRITE_WITHIN: Duration = Duration::from_secs(5);
/// Roles of which one acts at a time and beats meanwhile.
const BEATING: [&str; 3] = ["dispatcher", "convergence", PROJECTOR];
const PROJECTOR: &str = "projector";
/// How long a recorder may take to answer.
const RECORDER_WITHIN: Duration = Duration::from_secs(5);
/// A clock may be off by so much, in milliseconds.
const SKEW_FINE_MS: i64 = 1_000;

/// Say what is running and what is not, and what to do about it
#[derive(Debug, Args)]
#[command(after_help = "\
Ends with 0 when nothing is bad, with 1 when something is, and with 4 when there
is no server to ask.

Examples:
  fanfold doctor
  fanfold doctor --wait 10s --deep --json")]
pub struct DoctorArgs {
    /// How long leaders are listened for
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_ms, default_value = "5s")]
    pub wait: i64,
    /// Look for holes in the whole log, not just its last 100,000 sequences, and at every summary's document
    #[arg(long)]
    pub deep: bool,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// As it should be.
    Ok,
    /// It works; somebody should look.
    Warn,
    /// It does not work.
    Bad,
}

/// One thing looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// How it is.
    pub health: Health,
    /// What was looked at.
    pub what: &'static str,
    /// What was found.
    pub found: String,
    /// What to do; empty where nothing is to be done.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub advice: &'static str,
}

fn ok(what: &'static str, found: impl Into<String>) -> Check {
    Check { health: Health::Ok, what, found: found.into(), advice: "" }
}

fn warn(what: &'static str, found: impl Into<String>, advice: &'static str) -> Check {
    Check { health: Health::Warn, what, found: found.into(), advice }
}

fn bad(what: &'static str, found: impl Display, advice: &'static str) -> Check {
    Check { health: Health::Bad, what, found: found.to_string(), advice }
}

/// Looks at everything.
///
/// # Errors
/// Only when the findings can't be printed: whatever does not work is a finding.
pub async fn execute(args: &DoctorArgs, session: &Session) -> Result<Exit, CliError> {
    let mut checks = Vec::new();
    let examined = async {
        examine_into(args, session, &mut checks).await;
        Ok(())
    };
    if let Err(error) = patience::bounded(&session.out, NO_ANSWER_MAX, examined).await {
        checks.push(bad("server", error, "what is listed above was answered; restart the server if it stays like this"));
    }
    print(&checks, session.json, &session.out)?;
    Ok(if checks.iter().any(|c| c.health == Health::Bad) { Exit::No } else { Exit::Ok })
}

/// There is no server to ask, or it lets nobody in: that is the one finding.
///
/// # Errors
/// Only when it can't be printed.
pub fn unreached(error: &CliError, as_json: bool, out: &Out) -> Result<Exit, CliError> {
    const ADVICE: &str =
        "start it with `fanfold up`, or name one with --nats / FANFOLD_NATS; terminals keep their results meanwhile";
    print(&[bad("server", format!("{}: {}", error.code(), error.message()), ADVICE)], as_json, out)?;
    Ok(error.exit())
}

fn print(checks: &[Check], as_json: bool, out: &Out) -> Result<(), CliError> {
    if as_json { out.json(&serde_json::json!({"checks": checks})) } else { out.text(&text(checks)) }
}

/// The findings, a line each, with what to do below.
pub fn text(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        let health = match check.health {
            Health::Ok => "ok",
            Health::Warn => "warn",
            Health::Bad => "bad",
        };
        text.push_str(&format!("{health:<5} {:<14} {}\n", check.what, check.found));
        if !check.advice.is_empty() {
            text.push_str(&format!("      {:<14} -> {}\n", "", check.advice));
        }
    }
    text
}

/// Everything looked at, in the order of dependence.
pub async fn examine(args: &DoctorArgs, session: &Session) -> Vec<Check> {
    let mut checks = Vec::new();
    examine_into(args, session, &mut checks).await;
    checks
}

/// As [`examine`]; what was found so far stands in `checks` at any moment.
async fn examine_into(args: &DoctorArgs, session: &Session, checks: &mut Vec<Check>) {
    let version = session.server_version.as_deref().unwrap_or("of unknown version");
    checks.push(ok("server", format!("nats-server {version} at {}", session.server_url)));
    patience::step("the log's last sequence");
    let last = match session.ledger.last_seq().await {
        Ok(last) => {
            checks.push(ok("log", format!("last sequence #{}", number(last))));
            last
        }
        Err(error) => {
            let advice = "`fanfold up` or `fanfold serve` provisions the log; check that nats-server has JetStream and a leader";
            checks.push(bad("log", &error, advice));
            return;
        }
    };
    patience::step("the log's room and rules");
    checks.push(carry::room(session).await);
    checks.push(carry::rules(session, last, args.deep).await);
    patience::step("a small write");
    checks.push(writes(session).await);
    patience::step("the streams and buckets");
    checks.extend(assets(session).await);
    patience::step("the api");
    checks.push(api(session).await);
    patience::step("the terminals");
    checks.extend(terminals::check(session.ledger.as_ref()).await);
    let before = state::checkpoint(session).await.map(|c| c.map(|c| c.seq));
    patience::step("the leaders' beats");
    let wait = Duration::from_millis(args.wait.max(0).unsigned_abs());
    let heard = match hear(session, wait).await {
        Ok(heard) => heard,
        Err(error) => {
            checks.push(bad("leaders", error, "check the permissions of these credentials"));
            BTreeSet::new()
        }
    };
    checks.extend(leaders(&heard, wait));
    patience::step("a recorder");
    checks.push(recorder(session).await);
    patience::step("the state bucket");
    checks.push(state::lag(session, before, heard.contains(PROJECTOR), &shown(wait)).await);
    checks.extend(state::kept(session, last).await);
    patience::step("the log's events");
    checks.push(log::holes(session, last, args.deep).await);
    patience::step("the open plans");
    checks.extend(plans::damaged(session, args.deep).await);
    if args.deep {
        patience::step("the summaries' documents");
        checks.push(log::documents(session, last).await);
    }
    checks.push(clock(session, last).await);
}

/// Whether the server's disk takes anything: one small record, always the same.
async fn writes(session: &Session) -> Check {
    let record = vec![("doctor.probe".to_owned(), bytes::Bytes::from_static(b"{}"))];
    match tokio::time::timeout(WRITE_WITHIN, session.ledger.put_terminals(record)).await {
        Ok(Ok(())) => ok("writes", "a small record was written"),
        Ok(Err(error)) => {
            bad("writes", error, "free disk space at the server or raise its limits, then restart nats-server if this stays")
        }
        Err(_) => {
            bad("writes", "a small record was not written in time", "is the server's disk full, or has it lost its leader?")
        }
    }
}

async fn assets(session: &Session) -> Vec<Check> {
    let ledger = &session.ledger;
    let found: [(&'static str, Result<(), LedgerError>); 3] = [
        ("fanfold-state", ledger.get_checkpoint().await.map(drop)),
        ("terminals", ledger.get_terminal("store.doctor").await.map(drop)),
        ("artifacts", ledger.get_object("doctor").await.map(drop)),
    ];
    let one = |(what, result): (&'static str, Result<(), LedgerError>)| match result {
        Ok(()) => ok(what, "there"),
        Err(error) => bad(what, error, "`fanfold up` or `fanfold serve` provisions what is missing"),
    };
    let mut checks: Vec<Check> = found.into_iter().map(one).collect();
    checks.push(types(session).await);
    checks
}

/// Whether every registered task type can be read.
async fn types(session: &Session) -> Check {
    const ADVICE: &str =
        "register the same documents again (`fanfold type register PATH`); submitted plans have a copy of their own";
    match session.ledger.lost_types().await {
        Ok(lost) if lost.is_empty() => ok("types", "there"),
        Ok(lost) => {
            let names: Vec<String> = lost.iter().map(|(name, version)| format!("{name}@{version}")).collect();
            bad("types", format!("{} can't be read any more", names.join(", ")), ADVICE)
        }
        Err(error) => bad("types", error, "`fanfold up` or `fanfold serve` provisions what is missing"),
    }
}

async fn api(session: &Session) -> Check {
    let asked = Instant::now();
    let request = PlanListRequest { limit: Some(1), after: None, open: false };
    match session.call::<PlanList>("plan", "list", &request).await {
        Ok(_) => ok("api", format!("answers in {}", duration(i64::try_from(asked.elapsed().as_millis()).unwrap_or(i64::MAX)))),
        Err(error) => bad("api", error, "start `fanfold up`, or `fanfold serve --role api`"),
    }
}

/// Whether somebody takes reports: an empty batch is answered by whoever does, and nothing is written or counted.
async fn recorder(session: &Session) -> Check {
    const ADVICE: &str = "start `fanfold up`, or `fanfold serve --role recorder`; terminals keep their reports until then";
    let asked = Instant::now();
    let probe = bytes::Bytes::from_static(b"[]");
    match session.ledger.request("ff.report.doctor-probe", probe, RECORDER_WITHIN).await {
        Ok(_) => {
            ok("recorder", format!("answers in {}", duration(i64::try_from(asked.elapsed().as_millis()).unwrap_or(i64::MAX))))
        }
        Err(error) => bad("recorder", error, ADVICE),
    }
}

/// Roles whose beat is heard: until all are, for `wait` at most.
async fn hear(session: &Session, wait: Duration) -> Result<BTreeSet<String>, LedgerError> {
    let until = Instant::now() + wait;
    let mut beats = session.ledger.subscribe("ff.lead.*", None).await?;
    let mut heard = BTreeSet::new();
    while BEATING.iter().any(|role| !heard.contains(*role)) {
        match timeout_at(until, beats.next()).await {
            Ok(Some(beat)) => drop(heard.insert(beat.subject.rsplit('.').next().unwrap_or_default().to_owned())),
            Ok(None) | Err(_) => break,
        }
    }
    Ok(heard)
}

fn shown(wait: Duration) -> String {
    duration(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX))
}

/// The two that decide. The projector is judged with its bucket.
fn leaders(heard: &BTreeSet<String>, wait: Duration) -> Vec<Check> {
    let one = |(role, advice): (&'static str, &'static str)| {
        if heard.contains(role) {
            ok(role, "leads")
        } else {
            bad(role, format!("no leader heard within {}", shown(wait)), advice)
        }
    };
    [
        ("dispatcher", "start `fanfold up`, or `fanfold serve --role dispatcher`; a standby takes over by itself in seconds"),
        ("convergence", "start `fanfold up`, or `fanfold serve --role convergence`; a standby takes over by itself in seconds"),
    ]
    .map(one)
    .into()
}

async fn clock(session: &Session, last: u64) -> Check {
    if last == 0 {
        return ok("clock", "nothing to compare with yet");
    }
    let newest = match session.ledger.last_under("ff.>").await {
        Ok(Some(stored)) => stored.time_ms,
        Ok(None) => return ok("clock", "nothing to compare with yet"),
        Err(error) => return bad("clock", error, "see `log` above"),
    };
    let ahead = newest.saturating_sub(now_ms());
    if ahead > SKEW_FINE_MS {
        let found = format!("the log's newest event lies {} in this machine's future", duration(ahead));
        return warn("clock", found, "set the clocks by NTP: deadlines go by the server's, what you see by this machine's");
    }
    ok("clock", format!("newest event {} ago", duration(-ahead)))
}
