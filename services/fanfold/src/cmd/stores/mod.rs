//! `fanfold stores`: what HQ knows of its stores. They are records `store.<id>` in `fanfold-terminals`.

pub mod parse;
mod separated;

use std::path::PathBuf;

use bytes::Bytes;
use clap::{Args, Subcommand};
use fanfold_wire::record::{StoreRecord, store_key};
use futures::StreamExt;
use serde_json::json;

use super::read_file;
use crate::error::CliError;
use crate::exit::Exit;
use crate::render::format::{number, one_line};
use crate::render::summary::Stores;
use crate::render::table::Table;
use crate::session::Session;

/// Records written in one go.
const WRITTEN_AT_ONCE: usize = 1_000;

/// Import and list stores
#[derive(Debug, Subcommand)]
pub enum StoresCommand {
    /// Take stores over from a CSV or JSON file: all of them, or none if anything is wrong
    Import(ImportArgs),
    /// List stores
    Ls(LsArgs),
}

/// Take stores over from a CSV or JSON file: all of them, or none if anything is wrong
#[derive(Debug, Args)]
#[command(after_help = "\
Columns: id (needed), name, region, labels (k=v;k=v), timeZone (IANA).
Headings may be written in any case. A store that is there already is changed;
none is removed.

Examples:
  fanfold stores import stores.csv
  fanfold stores import stores.json --dry-run

  id,name,region,labels,timeZone
  SH_0312,Xuhui,east,size=big;open=24h,Asia/Shanghai")]
pub struct ImportArgs {
    /// A .csv or .json file
    pub file: PathBuf,
    /// Only check it
    #[arg(long)]
    pub dry_run: bool,
}

/// List stores
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fanfold stores ls\n  fanfold stores ls --region east --json")]
pub struct LsArgs {
    /// Only those of this region
    #[arg(long)]
    pub region: Option<String>,
}

/// Carries out `stores import` and `stores ls`.
///
/// # Errors
/// See [`CliError`].
pub async fn execute(command: StoresCommand, session: &Session) -> Result<Exit, CliError> {
    match command {
        StoresCommand::Import(args) => import(&args, session).await,
        StoresCommand::Ls(args) => ls(&args, session).await,
    }
}

/// Every store there is.
///
/// # Errors
/// The ledger's.
pub async fn load(session: &Session) -> Result<Stores, CliError> {
    let mut entries = session.ledger.list_terminals("store.*").await?;
    let mut stores = Stores::new();
    while let Some(entry) = entries.next().await {
        let entry = entry?;
        match serde_json::from_slice::<StoreRecord>(&entry.value) {
            Ok(store) => drop(stores.insert(store.id.to_string(), store)),
            Err(e) => session.out.note(&format!("warning: the record {} can't be read and is left out: {e}", entry.key)),
        }
    }
    Ok(stores)
}

async fn import(args: &ImportArgs, session: &Session) -> Result<Exit, CliError> {
    let bytes = read_file(&args.file)?;
    let stores = parse::stores(&args.file, &bytes).map_err(CliError::problems)?;
    let known = load(session).await?;
    let changed: Vec<&StoreRecord> = stores.iter().filter(|s| known.get(s.id.as_str()) != Some(s)).collect();
    let new = changed.iter().filter(|s| !known.contains_key(s.id.as_str())).count();
    if !args.dry_run {
        for chunk in changed.chunks(WRITTEN_AT_ONCE) {
            let record = |s: &&StoreRecord| serde_json::to_vec(s).map(|v| (store_key(&s.id), Bytes::from(v)));
            let records: Result<Vec<_>, _> = chunk.iter().map(record).collect();
            let records = records.map_err(|e| CliError::Internal(format!("a store could not be written as JSON: {e}")))?;
            session.ledger.put_terminals(records).await?;
        }
    }
    let (updated, same) = (changed.len() - new, stores.len() - changed.len());
    if session.json {
        session
            .out
            .json(&json!({"stores": stores.len(), "new": new, "changed": updated, "same": same, "dryRun": args.dry_run}))?;
    } else {
        let [all, new, updated, same] = [stores.len(), new, updated, same].map(|n| number(n as u64));
        let done = if args.dry_run { "would be imported (nothing was written)" } else { "imported" };
        session.out.text(&format!("{all} stores {done}: {new} new, {updated} changed, {same} as they were"))?;
    }
    Ok(Exit::Ok)
}

async fn ls(args: &LsArgs, session: &Session) -> Result<Exit, CliError> {
    let mut stores = load(session).await?;
    stores.retain(|_, s| args.region.as_deref().is_none_or(|r| s.region.eq_ignore_ascii_case(r)));
    if session.json {
        session.out.json(&json!({"stores": stores.values().collect::<Vec<_>>()}))?;
    } else {
        session.out.text(&list_text(&stores))?;
    }
    Ok(Exit::Ok)
}

/// Stores, a line each.
pub fn list_text(stores: &Stores) -> String {
    if stores.is_empty() {
        return "no stores; `fanfold stores import FILE` takes them over\n".to_owned();
    }
    let mut table = Table::new(&["store", "name", "region", "time zone", "labels"]);
    for store in stores.values() {
        let labels: Vec<String> = store.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        table.row([
            store.id.to_string(),
            one_line(&store.name, 40),
            one_line(&store.region, 30),
            store.time_zone.clone(),
            one_line(&labels.join(" "), 80),
        ]);
    }
    format!("{}{} stores\n", table.text(), number(stores.len() as u64))
}
