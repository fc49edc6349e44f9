//! Taking a backup while the system runs.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use fanfold_ledger::jetstream::{CARRIED, JetStreamLedger, StreamHead, TYPES_STREAM};
use fanfold_wire::digest::{Sha256Stream, sha256_hex};
use fanfold_wire::timestamp::to_rfc3339;
use serde_json::Value;

use super::lacks::look;
use super::manifest::{MANIFEST, SUMS, digest, file_of};
use super::{Manifest, StreamFile, beside, carry_error, refuse_used, settle, size};
use crate::error::CliError;
use crate::render::format::number;
use crate::time::now_ms;

/// Copies every carried stream into `dir`, which must be empty or absent; `say` hears what is being done. The folder appears under
/// its name when it is whole, and after every file was read again from the disk and found as it was sent. What the server has lost of its
/// own is no error: the copy is made, and the manifest says what it lacks.
///
/// # Errors
/// `DIR_NOT_EMPTY`, `STREAM_MISSING`, `BACKUP_DAMAGED` when the disk gives back something else than was written, and the ledger's.
pub async fn backup(ledger: &JetStreamLedger, dir: &Path, by: &str, say: &(dyn Fn(&str) + Sync)) -> Result<Manifest, CliError> {
    refuse_used(dir)?;
    for stream in CARRIED {
        if ledger.stream_state(stream).await?.is_none() {
            let message = format!("this server has no stream {stream} (is it the right one? `fanfold serve` makes the streams)");
            return Err(CliError::input("STREAM_MISSING", message));
        }
    }
    let folder = beside(dir)?;
    let mut manifest = Manifest::new(to_rfc3339(now_ms()), by.to_owned(), ledger.server_version());
    // In this order: see `CARRIED`.
    for stream in CARRIED {
        say(&format!("{stream} ..."));
        let copied = copy(ledger, folder.path(), stream).await?;
        say(&format!("{stream}: {} messages, {}", number(copied.messages), size(copied.bytes)));
        manifest.streams.push(copied);
    }
    say("reading the log and its documents ...");
    let types = manifest.stream(TYPES_STREAM).map_or(0, |s| s.messages);
    manifest.lacks = look(ledger, manifest.last_seq(), types).await?;
    write_texts(folder.path(), &manifest)?;
    super::check(folder.path())?;
    settle(folder, dir)?;
    Ok(manifest)
}

async fn copy(ledger: &JetStreamLedger, folder: &Path, stream: &str) -> Result<StreamFile, CliError> {
    let path = folder.join(file_of(stream));
    let mut file = File::create_new(&path).map_err(|e| CliError::file(&path, e))?;
    let (mut sha, mut bytes) = (Sha256Stream::default(), 0_u64);
    let mut sink = |chunk: &[u8]| {
        sha.update(chunk);
        bytes += chunk.len() as u64;
        file.write_all(chunk)
    };
    let head = ledger.snapshot_stream(stream, &mut sink).await.map_err(|e| carry_error(&path, e))?;
    file.sync_all().map_err(|e| CliError::file(&path, e))?;
    let sha256 = sha.finish();
    let found = digest(&path)?;
    if found != sha256 {
        let message = format!("{}: the disk gave back sha256 {found}, {sha256} was written (is it broken?)", path.display());
        return Err(CliError::input("BACKUP_DAMAGED", message));
    }
    let StreamHead { config, state, summary } = head;
    let Value::Object(config) = config else {
        return Err(CliError::Internal(format!("the configuration of {stream} is no object")));
    };
    Ok(StreamFile {
        name: stream.to_owned(),
        file: file_of(stream),
        bytes,
        sha256,
        messages: summary.messages,
        first_seq: summary.first_seq,
        last_seq: summary.last_seq,
        config,
        state,
    })
}

/// The manifest and the digests, last: without them a folder is no backup.
fn write_texts(folder: &Path, manifest: &Manifest) -> Result<(), CliError> {
    let text = serde_json::to_vec_pretty(manifest).map_err(|e| CliError::Internal(e.to_string()))?;
    write(&folder.join(MANIFEST), &text)?;
    let mut sums: String = manifest.streams.iter().map(|s| format!("{}  {}\n", s.sha256, s.file)).collect();
    sums.push_str(&format!("{}  {MANIFEST}\n", sha256_hex(&text)));
    write(&folder.join(SUMS), sums.as_bytes())?;
    File::open(folder).and_then(|f| f.sync_all()).map_err(|e| CliError::file(folder, e))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let written = File::create_new(path).and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    written.map_err(|e| CliError::file(path, e))
}
