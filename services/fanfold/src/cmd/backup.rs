//! `fanfold backup`: everything that is kept, copied into a folder while the system runs.

use std::path::PathBuf;

use clap::Args;
use fanfold_process::shutdown::Shutdown;
use serde_json::json;

use crate::carry::Manifest;
use crate::cli::Global;
use crate::error::CliError;
use crate::exit::Exit;
use crate::out::Out;
use crate::render::format::number;
use crate::{carry, client};

/// Carry the log away: a copy of everything that is kept, while the system runs
#[derive(Debug, Args)]
#[command(after_help = "\
The folder must be empty or absent. It appears under its name when it is whole
and was read again from the disk: a backup that was interrupted leaves nothing.
`sha256sum -c SHA256SUMS` in it checks it once more, and so does
`fanfold restore DIR --check`.

It also reads the whole log and every document it names. What the server has
lost is told, stands in the manifest, and the exit code is 1: the backup is
there and as good as its server, which needs looking after (`fanfold doctor`).

Examples:
  fanfold backup ./backups/monday
  fanfold backup ./backups/monday --nats nats://hq:4222 --creds hq.creds --json")]
pub struct BackupArgs {
    /// Folder to copy into
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Copies, or leaves nothing.
///
/// # Errors
/// See [`carry::backup`].
pub async fn run(args: &BackupArgs, global: &Global, out: &Out) -> Result<Exit, CliError> {
    let shutdown = Shutdown::on_signals().map_err(|e| CliError::Internal(e.to_string()))?;
    tokio::select! {
        done = back_up(args, global, out) => done,
        () = shutdown.wait() => Err(CliError::Interrupted),
    }
}

async fn back_up(args: &BackupArgs, global: &Global, out: &Out) -> Result<Exit, CliError> {
    carry::refuse_used(&args.dir)?;
    let ledger = client::connect(&client::server_url(global.nats.as_deref()), global.creds.as_deref()).await?;
    let manifest = carry::backup(&ledger, &args.dir, &global.who(), &|line| out.note(line)).await?;
    if global.json {
        let streams: Vec<_> = manifest
            .streams
            .iter()
            .map(|s| json!({ "name": s.name, "file": s.file, "bytes": s.bytes, "sha256": s.sha256, "messages": s.messages, "lastSeq": s.last_seq }))
            .collect();
        out.json(
            &json!({ "dir": args.dir, "madeAt": manifest.made_at, "serverVersion": manifest.server_version, "streams": streams, "complete": manifest.lacks.is_nothing(), "lacks": manifest.lacks }),
        )?;
    } else {
        let dir = args.dir.display();
        let back = format!("bring it back: fanfold restore {dir} --data NEWDIR");
        out.text(&format!("{dir} {}\n{back}", holds(&manifest)))?;
    }
    Ok(if manifest.lacks.is_nothing() { Exit::Ok } else { Exit::No })
}

/// What a backup holds, and what not.
pub(super) fn holds(manifest: &Manifest) -> String {
    let last_seq = number(manifest.last_seq());
    if manifest.lacks.is_nothing() {
        return format!("holds everything up to #{last_seq} of the log, checked");
    }
    let lines = manifest.lacks.lines().join("\n  ");
    format!("holds what the server had up to #{last_seq} of the log, and that is not everything:\n  {lines}")
}
