//! `fanfold restore`: a backup brought back, to an empty folder or to a server that has none of its streams.

use std::path::{Path, PathBuf};

use clap::Args;
use fanfold_ledger::jetstream::{ConnectOpts, JetStreamLedger};
use fanfold_process::shutdown::Shutdown;
use serde_json::json;

use super::backup;
use crate::carry::{self, Manifest, Restored};
use crate::cli::Global;
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::server;
use crate::out::Out;
use crate::render::format::number;

/// Bring a backup back, to an empty folder or a server without these streams
#[derive(Debug, Args)]
#[command(after_help = "\
The backup is checked before anything is touched. Afterwards the state records
are folded from the log anew and every plan is verified, as `fanfold replay
--verify` does; then open plans go on where the log ends.
What a backup lacks because its server had lost it is told, and so is a plan
that is not true; the exit code is 1, and all the rest is brought back. A
summary's document that was damaged is written anew from the log.

Terminals must not reach the old system and the restored one at the same time.

Examples:
  fanfold restore ./backups/monday --check  # is it whole?
  fanfold restore ./backups/monday --data ./restored
  fanfold up --data ./restored              # goes on from there
  fanfold restore ./backups/monday --nats nats://hq:4222 --replicas 3")]
pub struct RestoreArgs {
    /// Folder of the backup
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Restore into this folder, for `fanfold up`; it must be empty or absent
    #[arg(long, value_name = "NEWDIR", conflicts_with = "replicas")]
    pub data: Option<PathBuf>,
    /// Replicas of every stream, 1 to 5; without it as many as each had
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=5))]
    pub replicas: Option<u32>,
    /// Do not fold the state records and verify every plan; the projector writes the records at the next start
    #[arg(long)]
    pub no_verify: bool,
    /// Only say whether the backup is whole
    #[arg(long, conflicts_with_all = ["data", "replicas", "no_verify"])]
    pub check: bool,
}

/// Checks, restores, verifies.
///
/// # Errors
/// See [`carry::check`] and [`carry::restore`].
pub async fn run(args: &RestoreArgs, global: &Global, out: &Out) -> Result<Exit, CliError> {
    let shutdown = Shutdown::on_signals().map_err(|e| CliError::Internal(e.to_string()))?;
    tokio::select! {
        done = checked(args, global, out) => done,
        () = shutdown.wait() => Err(CliError::Interrupted),
    }
}

async fn checked(args: &RestoreArgs, global: &Global, out: &Out) -> Result<Exit, CliError> {
    let manifest = carry::check(&args.dir)?;
    if args.check {
        return whole(&manifest, args, global, out);
    }
    let restored = match (&args.data, &global.nats) {
        // A server named by the environment is no reason not to take the folder that was asked for.
        (Some(data), _) => into_folder(args, &manifest, data, out).await?,
        (None, Some(url)) => {
            let ledger = connect(url, global.creds.as_deref(), &manifest).await?;
            carry::restore(&ledger, &args.dir, &manifest, args.replicas, !args.no_verify, &|line| out.note(line)).await?
        }
        (None, None) => {
            let text = "say where to: --data NEWDIR for `fanfold up`, or --nats URL for a server of yours";
            return Err(CliError::Usage(text.to_owned()));
        }
    };
    told(&restored, args, global, out)
}

/// Every file is as it was written; whether that is everything, the manifest says.
fn whole(manifest: &Manifest, args: &RestoreArgs, global: &Global, out: &Out) -> Result<Exit, CliError> {
    let (dir, last_seq, complete) = (args.dir.display(), manifest.last_seq(), manifest.lacks.is_nothing());
    if global.json {
        let (made_at, lacks) = (&manifest.made_at, &manifest.lacks);
        out.json(&json!({ "dir": args.dir, "madeAt": made_at, "lastSeq": last_seq, "whole": true, "complete": complete, "lacks": lacks }))?;
    } else if complete {
        out.text(&format!("{dir} is whole: everything up to #{} of the log, of {}", number(last_seq), manifest.made_at))?;
    } else {
        out.text(&format!("{dir} is as it was written, of {}: it {}", manifest.made_at, backup::holds(manifest)))?;
    }
    Ok(if complete { Exit::Ok } else { Exit::No })
}

/// On a server of its own, in a folder that gets its name when everything is done.
async fn into_folder(args: &RestoreArgs, manifest: &Manifest, data: &Path, out: &Out) -> Result<Restored, CliError> {
    carry::refuse_used(data)?;
    let told = out.clone();
    let binary = server::find(move |line| told.note(line)).await?;
    // Declared before the server: dropped after it.
    let folder = carry::beside(data)?;
    let nats = server::start(binary, folder.path().to_owned(), None, Some(1)).await?;
    let ledger = connect(&nats.url(), None, manifest).await?;
    let restored = carry::restore(&ledger, &args.dir, manifest, Some(1), !args.no_verify, &|line| out.note(line)).await;
    drop(ledger);
    nats.stop().await;
    let restored = restored?;
    drop(nats);
    carry::settle(folder, data)?;
    Ok(restored)
}

async fn connect(url: &str, creds: Option<&Path>, manifest: &Manifest) -> Result<JetStreamLedger, CliError> {
    let mut opts = ConnectOpts::new(url, "fanfold-restore");
    opts.creds_file = creds.map(|p| p.display().to_string());
    let window_ms = manifest.duplicate_window_ms();
    opts.policy.known_ids_ms = opts.policy.known_ids_ms.min(window_ms);
    opts.policy.budget_ms = opts.policy.budget_ms.min(window_ms);
    Ok(JetStreamLedger::connect(opts).await?)
}

fn told(restored: &Restored, args: &RestoreArgs, global: &Global, out: &Out) -> Result<Exit, CliError> {
    let exit = if restored.is_whole() { Exit::Ok } else { Exit::No };
    if global.json {
        out.json(restored)?;
        return Ok(exit);
    }
    let truth = match (restored.verified, restored.untrue.len()) {
        (true, _) => "every plan is true".to_owned(),
        (false, 0) => "not verified".to_owned(),
        (false, untrue) => format!("{untrue} of them are not true"),
    };
    let mut text = format!("restored up to #{} of the log: {} plans, {truth}", number(restored.last_seq), number(restored.plans));
    if !restored.unsupported.is_empty() {
        let names: Vec<&str> = restored.unsupported.iter().map(|p| p.as_str()).collect();
        text.push_str(&format!("\nUNSUPPORTED_RULES: not folded here, a newer fanfold is needed: {}", names.join(", ")));
    }
    for (stream, carry::Fewer { came, had }) in &restored.fewer {
        let [came, had] = [*came, *had].map(number);
        text.push_str(&format!("\n{stream}: {came} messages came back, it had {had} when its copy began"));
    }
    if restored.mended > 0 {
        text.push_str(&format!("\n{} documents were missing or damaged and are written anew", number(restored.mended)));
    }
    for line in restored.lacks.lines() {
        text.push_str(&format!("\nthe server it is of lacked {line}"));
    }
    for carry::Untrue { plan, first } in &restored.untrue {
        text.push_str(&format!("\nVERIFY_FAILED: {plan}: {first}"));
    }
    if let Some(data) = &args.data {
        text.push_str(&format!("\ngo on: fanfold up --data {}", data.display()));
    }
    out.text(&text)?;
    Ok(exit)
}
