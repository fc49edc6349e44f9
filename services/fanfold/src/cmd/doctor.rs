//! `fanfold doctor`: what is running, what is not, and what to do about it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use clap::Args;
use fanfold_ledger::port::LedgerError;
use fanfold_wire::api::{PlanList, PlanListRequest};
use fanfold_wire::record::Checkpoint;
use futures::StreamExt;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use crate::error::CliError;
use crate::exit::Exit;
use crate::render::format::{duration, number};
use crate::session::Session;
use crate::time::{now_ms, parse_duration_ms};

mod carry;

/// How long the write probe may take.
const WRITE_WITHIN: Duration = Duration::from_secs(5);
/// Roles that act one at a time and beat while they lead.
const LEADERS: [&str; 2] = ["dispatcher", "convergence"];
/// Sequences looked at for holes unless everything is asked for.
const HOLES_LOOKED_AT: u64 = 100_000;
/// Events the state bucket may be behind while things are going on.
const LAG_FINE: u64 = 20_000;
/// A clock may be off by so much, in milliseconds.
const SKEW_FINE_MS: i64 = 1_000;

/// Say what is running and what is not, and what to do about it
#[derive(Debug, Args)]
#[command(
    after_help = "Ends with 1 when something is bad.\n\nExamples:\n  fanfold doctor\n  fanfold doctor --wait 10s --deep --json"
)]
pub struct DoctorArgs {
    /// How long leaders are listened for
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_ms, default_value = "5s")]
    pub wait: i64,
    /// Look for holes in the whole log, not just its last 100,000 sequences
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
    let checks = examine(args, session).await;
    if session.json {
        session.out.json(&serde_json::json!({"checks": checks}))?;
    } else {
        session.out.text(&text(&checks))?;
    }
    Ok(if checks.iter().any(|c| c.health == Health::Bad) { Exit::No } else { Exit::Ok })
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
    let version = session.server_version.as_deref().unwrap_or("of unknown version");
    let mut checks = vec![ok("server", format!("nats-server {version} at {}", session.server_url))];
    let last = match session.ledger.last_seq().await {
        Ok(last) => {
            checks.push(ok("log", format!("last sequence #{}", number(last))));
            last
        }
        Err(error) => {
            let advice = "`fanfold up` or `fanfold serve` provisions the log; check that nats-server has JetStream and a leader";
            checks.push(bad("log", &error, advice));
            return checks;
        }
    };
    checks.push(carry::room(session).await);
    checks.push(carry::rules(session, last, args.deep).await);
    checks.push(writes(session).await);
    checks.extend(assets(session).await);
    checks.push(api(session).await);
    let before = checkpoint(session).await;
    checks.extend(leaders(session, Duration::from_millis(args.wait.max(0).unsigned_abs())).await);
    checks.push(lag(session, before).await);
    checks.push(holes(session, last, args.deep).await);
    checks.push(clock(session, last).await);
    checks
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
    let found: [(&'static str, Result<(), LedgerError>); 4] = [
        ("fanfold-state", ledger.get_checkpoint().await.map(drop)),
        ("terminals", ledger.get_terminal("store.doctor").await.map(drop)),
        ("types", ledger.list_types().await.map(drop)),
        ("artifacts", ledger.get_object("doctor").await.map(drop)),
    ];
    let one = |(what, result): (&'static str, Result<(), LedgerError>)| match result {
        Ok(()) => ok(what, "there"),
        Err(error) => bad(what, error, "`fanfold up` or `fanfold serve` provisions what is missing"),
    };
    found.into_iter().map(one).collect()
}

async fn api(session: &Session) -> Check {
    let asked = Instant::now();
    let request = PlanListRequest { limit: Some(1), after: None, open: false };
    match session.call::<PlanList>("plan", "list", &request).await {
        Ok(_) => ok("api", format!("answers in {}", duration(i64::try_from(asked.elapsed().as_millis()).unwrap_or(i64::MAX)))),
        Err(error) => bad("api", error, "start `fanfold up`, or `fanfold serve --role api`"),
    }
}

async fn leaders(session: &Session, wait: Duration) -> Vec<Check> {
    let until = Instant::now() + wait;
    let mut beats = match session.ledger.subscribe("ff.lead.*", None).await {
        Ok(beats) => beats,
        Err(error) => return vec![bad("leaders", error, "check the permissions of these credentials")],
    };
    let mut heard: BTreeMap<String, u32> = BTreeMap::new();
    while LEADERS.iter().any(|role| !heard.contains_key(*role)) {
        match timeout_at(until, beats.next()).await {
            Ok(Some(beat)) => *heard.entry(beat.subject.rsplit('.').next().unwrap_or_default().to_owned()).or_default() += 1,
            Ok(None) | Err(_) => break,
        }
    }
    let wait = duration(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
    let one = |role: &'static str| {
        if heard.contains_key(role) {
            ok(role, "leads")
        } else {
            bad(
                role,
                format!("no leader heard within {wait}"),
                "start `fanfold up`, or `fanfold serve` with this role; a standby takes over by itself in seconds",
            )
        }
    };
    LEADERS.map(one).into()
}

async fn checkpoint(session: &Session) -> Result<Option<u64>, LedgerError> {
    let entry = session.ledger.get_checkpoint().await?;
    match entry {
        None => Ok(None),
        Some(entry) => match Checkpoint::parse(&entry.value) {
            Some(checkpoint) => Ok(Some(checkpoint.seq)),
            None => Err(LedgerError::Corrupt("the checkpoint's checksum is wrong".to_owned())),
        },
    }
}

/// Sequence of the last event that changes a record: fences change none.
async fn last_foldable(session: &Session) -> Result<u64, LedgerError> {
    let plan = session.ledger.last_under("ff.plan.>").await?;
    let task = session.ledger.last_under("ff.task.>").await?;
    Ok(plan.into_iter().chain(task).map(|stored| stored.seq).max().unwrap_or(0))
}

async fn lag(session: &Session, before: Result<Option<u64>, LedgerError>) -> Check {
    const ADVICE: &str =
        "start `fanfold up`, or `fanfold serve --role projector`; nothing is lost, records are written again from the log";
    let last = match last_foldable(session).await {
        Ok(last) => last,
        Err(error) => return bad("projector", error, ADVICE),
    };
    match (before, checkpoint(session).await) {
        (_, Err(error)) => bad("projector", error, ADVICE),
        (_, Ok(None)) if last == 0 => ok("projector", "nothing to write yet"),
        (_, Ok(None)) => bad("projector", "there is no checkpoint: it has never run here", ADVICE),
        (before, Ok(Some(now))) => {
            let behind = last.saturating_sub(now);
            let moves = before.ok().flatten().is_none_or(|b| now > b);
            let found = format!("checkpoint #{}, {} behind", number(now), number(behind));
            match (behind, moves) {
                (0, _) => ok("projector", found),
                (_, false) => bad("projector", format!("{found}, and it does not move"), ADVICE),
                (1..=LAG_FINE, true) => ok("projector", found),
                (_, true) => warn("projector", found, "it catches up; what readers see is old until then"),
            }
        }
    }
}

async fn holes(session: &Session, last: u64, deep: bool) -> Check {
    const ADVICE: &str =
        "a damaged store: restore the stream from a backup or a replica; plans with events there can't be trusted";
    if last == 0 {
        return ok("holes", "the log is empty");
    }
    let from = if deep { 1 } else { last.saturating_sub(HOLES_LOOKED_AT - 1).max(1) };
    let mut events = match session.ledger.read(vec!["ff.>".to_owned()], from, last).await {
        Ok(events) => events,
        Err(error) => return bad("holes", error, ADVICE),
    };
    let (mut count, mut first, mut hole, mut next) = (0_u64, None, None, None);
    while let Some(stored) = events.next().await {
        let seq = match stored {
            Ok(stored) => stored.seq,
            Err(error) => return bad("holes", error, ADVICE),
        };
        first = first.or(Some(seq));
        hole = hole.or(next.filter(|n| *n != seq).map(|n| (n, seq)));
        next = Some(seq + 1);
        count += 1;
    }
    let begin = first.unwrap_or(from);
    match hole {
        Some((a, b)) => bad("holes", format!("#{a} to #{} are missing", b - 1), ADVICE),
        None if next != Some(last + 1) => bad("holes", format!("the end is missing: the log ends at #{last}"), ADVICE),
        None if !deep && begin > from => bad("holes", format!("#{from} to #{} are missing", begin - 1), ADVICE),
        None => ok("holes", format!("none: {} events from #{begin} to #{last}", number(count))),
    }
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
