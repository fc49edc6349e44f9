//! `fanfold terminal`: the agent of a store, and what HQ knows of terminals.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use fanfold_domain::ids::TerminalId;
use fanfold_ledger::port::Ledger;
use fanfold_process::shutdown::Shutdown;
use fanfold_terminal::agent::{self, AgentConfig, Link};
use fanfold_wire::api::{ReplaceRequest, Replaced, TerminalList, TerminalListRequest};
use fanfold_wire::record::TerminalRecord;
use fanfold_wire::server_url::shown_url;
use jiff::tz::TimeZone;

use super::{label, stores, terminal_id};
use crate::cli::Global;
use crate::client::{self, ANSWER_WAIT, server_url};
use crate::error::CliError;
use crate::exit::Exit;
use crate::out::Out;
use crate::render::format::{number, one_line, time};
use crate::render::summary::Stores;
use crate::render::table::Table;
use crate::session::Session;

/// Run a store's terminal, list terminals, replace one
#[derive(Debug, Subcommand)]
pub enum TerminalCommand {
    /// Be a store's terminal: take tasks, run them, report
    Run(RunArgs),
    /// List terminals: who is online, what they run
    Ls(LsArgs),
    /// Let another machine act under a terminal's id
    Replace(ReplaceArgs),
}

/// Be a store's terminal: take tasks, run them, report
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fanfold terminal run --id SH_0312 --root /srv/store --nats nats://hq:4222
  fanfold terminal run --id SH_0312 --root ./store --slots 2 \\
      --label region=east --time-zone Asia/Shanghai

The journal keeps what was done and not yet answered: a terminal without its
journal is another terminal to HQ (`fanfold terminal replace` lets it in).
A server that goes away is waited for, and is said on stderr.")]
pub struct RunArgs {
    /// The terminal's id; for store plans the store's
    #[arg(long, value_parser = terminal_id)]
    pub id: TerminalId,
    /// The folder with the store's logs and configuration
    #[arg(long, value_name = "DIR")]
    pub root: PathBuf,
    /// Tasks it runs at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub slots: u32,
    /// A label it gives itself, key=value; may be repeated
    #[arg(long, value_parser = label, value_name = "KEY=VALUE")]
    pub label: Vec<(String, String)>,
    /// The journal file; without it one in the root folder
    #[arg(long, value_name = "PATH")]
    pub journal: Option<PathBuf>,
    /// Time between two heartbeats, in milliseconds
    #[arg(long, default_value_t = 15_000, value_parser = clap::value_parser!(u64).range(50..=600_000))]
    pub beat_ms: u64,
    /// Move a damaged journal aside and begin an empty one: HQ concludes what it held as lost
    #[arg(long)]
    pub move_damaged_journal: bool,
    /// The store's IANA time zone; without it this machine's
    #[arg(long, value_name = "ZONE")]
    pub time_zone: Option<String>,
}

/// List terminals: who is online, what they run
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fanfold terminal ls\n  fanfold terminal ls --offline --region east")]
pub struct LsArgs {
    /// Only those that aren't online
    #[arg(long)]
    pub offline: bool,
    /// Only those of stores of this region
    #[arg(long)]
    pub region: Option<String>,
}

/// Let another machine act under a terminal's id
#[derive(Debug, Args)]
#[command(after_help = "\
`fanfold terminal ls --json` lists the journals heard of under an id
(`journal`, `rivalJournal`).

Examples:
  fanfold terminal replace SH_0312                  # whoever is heard next
  fanfold terminal replace SH_0312 --journal 5f2c81 # only that one")]
pub struct ReplaceArgs {
    /// The terminal
    #[arg(value_parser = terminal_id)]
    pub id: TerminalId,
    /// Let in only the process with this journal: its id, or at least its first 4 characters; without it the one heard next
    #[arg(long, value_name = "ID")]
    pub journal: Option<String>,
    /// Let a journal in by its whole id that was never heard of under this terminal's id
    #[arg(long, requires = "journal")]
    pub force: bool,
}

/// Runs the agent until it is told to end.
///
/// # Errors
/// `BAD_TIME_ZONE`, and the agent's own.
pub async fn run(args: &RunArgs, global: &Global, out: &Out) -> Result<Exit, CliError> {
    if let Some(zone) = &args.time_zone {
        TimeZone::get(zone)
            .map_err(|_| CliError::input("BAD_TIME_ZONE", format!("`{zone}` is not an IANA time zone such as Asia/Shanghai")))?;
    }
    run_agent(args, &server_url(global.nats.as_deref()), global, out).await
}

async fn run_agent(args: &RunArgs, url: &str, global: &Global, out: &Out) -> Result<Exit, CliError> {
    let shutdown = Shutdown::on_signals().map_err(|e| CliError::Internal(e.to_string()))?;
    let config = AgentConfig {
        url: url.to_owned(),
        creds: global.creds.clone(),
        id: args.id.clone(),
        root: args.root.clone(),
        slots: args.slots,
        labels: args.label.iter().cloned().collect(),
        journal: args.journal.clone(),
        move_damaged_journal: args.move_damaged_journal,
        time_zone: args.time_zone.clone(),
        beat_interval_ms: args.beat_ms,
    };
    let (told, id, server) = (out.clone(), args.id.clone(), shown_url(url));
    let say = move |link: Link| {
        told.note(&match link {
            Link::Up => format!("terminal {id} on {server}; Ctrl-C ends it"),
            Link::Lost => {
                format!("terminal {id} has lost {server}; what runs goes on, results are kept, the server is waited for")
            }
            Link::Back => format!("terminal {id} on {server} again"),
        });
    };
    agent::run(config, shutdown, say).await.map_err(|e| CliError::input(e.code(), e.to_string()))?;
    Ok(Exit::Ok)
}

/// Carries out `terminal ls` and `terminal replace`.
///
/// # Errors
/// See [`CliError`].
pub async fn execute(command: TerminalCommand, session: &Session) -> Result<Exit, CliError> {
    match command {
        TerminalCommand::Run(args) => Err(CliError::Usage(format!(
            "`terminal run --id {}` makes its own connection and can't be run in another's",
            args.id
        ))),
        TerminalCommand::Ls(args) => ls(&args, session).await,
        TerminalCommand::Replace(args) => replace(args, session).await,
    }
}

/// Every terminal the registry knows, page by page.
///
/// # Errors
/// Those of the API.
pub async fn all(ledger: &dyn Ledger) -> Result<TerminalList, CliError> {
    let mut all = TerminalList { terminals: Vec::new(), next: None };
    let mut request = TerminalListRequest::default();
    loop {
        let page: TerminalList = client::call(ledger, "terminal", "list", &request, ANSWER_WAIT).await?;
        all.terminals.extend(page.terminals);
        // An id only rises from page to page, so this ends.
        match page.next.filter(|next| request.after.as_ref().is_none_or(|after| next > after)) {
            Some(next) => request.after = Some(next),
            None => return Ok(all),
        }
    }
}

async fn ls(args: &LsArgs, session: &Session) -> Result<Exit, CliError> {
    let mut list = all(session.ledger.as_ref()).await?;
    let stores = stores::load(session).await?;
    let region = |t: &TerminalRecord| stores.get(t.id.as_str()).map(|s| s.region.as_str()).unwrap_or_default();
    list.terminals
        .retain(|t| !(args.offline && t.online) && args.region.as_deref().is_none_or(|r| region(t).eq_ignore_ascii_case(r)));
    if session.json {
        session.out.json(&list)?;
    } else {
        session.out.text(&list_text(&list.terminals, &stores, &session.zone))?;
    }
    Ok(Exit::Ok)
}

/// Why nothing is handed out to a terminal that is heard, if that is so.
pub fn gets_nothing(terminal: &TerminalRecord) -> Option<&'static str> {
    match terminal {
        TerminalRecord { id_in_use: true, .. } => Some("id in use by two processes"),
        TerminalRecord { replace_with_next: true, .. } => Some("replaced, the next one is not heard yet"),
        TerminalRecord { allowed_journal: Some(allowed), journal, rival_journal, .. } if allowed != journal => {
            Some(if rival_journal.is_some() {
                "replaced: the process heard is turned away, the journal let in is not heard yet"
            } else {
                "replaced, the journal let in is not heard yet"
            })
        }
        TerminalRecord { online: true, journal_unavailable: true, .. } => Some("its journal can't be written"),
        _ => None,
    }
}

/// What somebody should look at, in words; nothing where all is well.
pub fn attention(terminal: &TerminalRecord) -> Vec<String> {
    let mut words = Vec::new();
    let rival = terminal.rival_journal.as_deref().map(|j| one_line(j, 64));
    if terminal.id_in_use {
        let journals = match &rival {
            Some(rival) if *rival == terminal.journal => ", with a copy of the same journal".to_owned(),
            Some(rival) => format!(" (journals {} and {rival})", one_line(&terminal.journal, 64)),
            None => String::new(),
        };
        let advice = "stop one of them, then `fanfold terminal replace`";
        words.push(format!("two processes use this id{journals}: nothing is handed out to it; {advice}"));
    } else if let Some(rival) = rival {
        words.push(format!("a process with journal {rival} is turned away; `fanfold terminal replace --journal` lets it in"));
    }
    if terminal.replace_with_next {
        words.push("replaced: whoever is heard next is let in".to_owned());
    }
    if terminal.journal_unavailable {
        words.push("its journal can't be written (disk full?): nothing is handed out to it".to_owned());
    }
    let limited = terminal.reports.deferred.get("RATE_LIMITED").copied().unwrap_or(0);
    let refused: u64 = terminal.reports.refused.values().sum();
    for (count, what) in [
        (refused, "reports refused"),
        (limited, "requests rate-limited"),
        (terminal.messages_limited, "beats and syncs rate-limited"),
        (terminal.messages_unreadable, "beats and syncs unreadable"),
    ] {
        if count > 0 {
            words.push(format!("{} {what}", number(count)));
        }
    }
    words
}

/// Terminals, a line each, and a line of totals.
pub fn list_text(terminals: &[TerminalRecord], stores: &Stores, zone: &TimeZone) -> String {
    let mut table =
        Table::new(&["terminal", "name", "region", "state", "last seen", ">slots", "version", "types", "labels", "attention"]);
    for terminal in terminals {
        let store = stores.get(terminal.id.as_str());
        let labels: Vec<String> = terminal.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let attention = attention(terminal);
        table.row([
            terminal.id.to_string(),
            store.map(|s| one_line(&s.name, 30)).unwrap_or_default(),
            store.map(|s| one_line(&s.region, 20)).unwrap_or_default(),
            if terminal.online { "online" } else { "offline" }.to_owned(),
            terminal.last_seen_ms.map_or_else(|| "never".to_owned(), |ms| time(ms, zone)),
            terminal.slots.to_string(),
            one_line(&terminal.version, 20),
            one_line(&terminal.types.join(" "), 60),
            one_line(&labels.join(" "), 60),
            attention.join("; "),
        ]);
    }
    let online = terminals.iter().filter(|t| t.online).count();
    let (online, offline) = (number(online as u64), number((terminals.len() - online) as u64));
    if table.is_empty() {
        return "no terminals\n".to_owned();
    }
    format!("{}{online} online, {offline} offline\n", table.text())
}

async fn replace(args: ReplaceArgs, session: &Session) -> Result<Exit, CliError> {
    let request = ReplaceRequest { terminal: args.id, journal: args.journal, force: args.force, by: session.by.clone() };
    let replaced: Replaced = session.call("terminal", "replace", &request).await?;
    if session.json {
        session.out.json(&replaced)?;
    } else {
        let who = replaced.journal.map_or_else(|| "the process heard next".to_owned(), |j| format!("journal {j}"));
        session.out.text(&format!("{}: from now on {who} acts under this id", replaced.terminal))?;
    }
    Ok(Exit::Ok)
}
