//! What a backup says of itself, and whether that is so.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use fanfold_ledger::jetstream::CARRIED;
use fanfold_wire::digest::{Sha256Stream, sha256_hex};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Lacks;
use crate::error::CliError;

/// Names the format.
const FORMAT: &str = "fanfold.backup";
/// Version of the format.
const VERSION: u32 = 1;
/// The manifest's file.
pub(super) const MANIFEST: &str = "manifest.json";
/// The digests' file.
pub(super) const SUMS: &str = "SHA256SUMS";
/// A manifest or a list of digests is never this large.
const TEXT_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// A backup as a whole.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Always `fanfold.backup`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// When it was begun, RFC 3339.
    pub made_at: String,
    /// Who made it.
    pub made_by: String,
    /// Version of fanfold that made it.
    pub fanfold_version: String,
    /// Version of the server it comes from.
    pub server_version: String,
    /// Newest rules of that fanfold; its plans may have these or older ones.
    pub rules: u32,
    /// The streams, in the order in which they were copied.
    pub streams: Vec<StreamFile>,
    /// What the server lacked; nothing is said by a fanfold that did not look.
    #[serde(default, skip_serializing_if = "Lacks::is_nothing")]
    pub lacks: Lacks,
}

/// One stream of a backup.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamFile {
    /// Name of the stream.
    pub name: String,
    /// Its file in the folder.
    pub file: String,
    /// Size of the file, in bytes.
    pub bytes: u64,
    /// SHA-256 of the file, hex.
    pub sha256: String,
    /// Messages when its copy began; it may hold later ones, and a bucket lacks those whose place they took.
    pub messages: u64,
    /// First sequence.
    pub first_seq: u64,
    /// Last sequence when its copy began.
    pub last_seq: u64,
    /// Its configuration, as the server words it.
    pub config: Map<String, Value>,
    /// Its state, as the server words it.
    pub state: Value,
}

impl Manifest {
    /// A manifest without streams.
    pub(super) fn new(made_at: String, made_by: String, server_version: String) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            made_at,
            made_by,
            fanfold_version: env!("CARGO_PKG_VERSION").to_owned(),
            server_version,
            rules: fanfold_domain::RULES_VERSION,
            streams: Vec::new(),
            lacks: Lacks::default(),
        }
    }

    /// How long the log's server remembers message ids, in milliseconds.
    pub fn duplicate_window_ms(&self) -> u64 {
        let log = self.streams.first().and_then(|s| s.config.get("duplicate_window")).and_then(Value::as_u64);
        log.map_or(600_000, |nanos| nanos / 1_000_000)
    }

    /// Last sequence of the log when its copy began.
    pub fn last_seq(&self) -> u64 {
        self.streams.first().map_or(0, |s| s.last_seq)
    }

    /// One of its streams.
    pub fn stream(&self, name: &str) -> Option<&StreamFile> {
        self.streams.iter().find(|s| s.name == name)
    }
}

/// Name of a stream's file.
pub(super) fn file_of(stream: &str) -> String {
    format!("{stream}.snapshot")
}

fn damaged(dir: &Path, what: impl std::fmt::Display) -> CliError {
    let message = format!("{}: {what} (take another backup; nothing was changed)", dir.display());
    CliError::input("BACKUP_DAMAGED", message)
}

/// Whether a folder is a whole backup: every file there, none foreign, every size and digest as written down.
///
/// # Errors
/// `BACKUP_DAMAGED` with the first thing that is wrong; `BACKUP_UNSUPPORTED` for a format of a newer version; `FILE_UNREADABLE`.
pub fn check(dir: &Path) -> Result<Manifest, CliError> {
    let sums = read_sums(dir)?;
    let bytes = read_text(dir, MANIFEST)?;
    if sums.get(MANIFEST).map(String::as_str) != Some(sha256_hex(&bytes).as_str()) {
        return Err(damaged(dir, format!("{MANIFEST} is not the one {SUMS} was written for")));
    }
    let manifest: Manifest = serde_json::from_slice(&bytes).map_err(|e| damaged(dir, format!("{MANIFEST}: {e}")))?;
    if manifest.format != FORMAT {
        return Err(damaged(dir, format!("{MANIFEST} is of format `{}`, not {FORMAT}", manifest.format)));
    }
    if manifest.version != VERSION {
        let message =
            format!("{}: the backup's format has version {}, this fanfold reads {VERSION}", dir.display(), manifest.version);
        return Err(CliError::input("BACKUP_UNSUPPORTED", message));
    }
    check_names(dir, &manifest, &sums)?;
    for stream in &manifest.streams {
        check_file(dir, stream)?;
    }
    Ok(manifest)
}

/// Exactly the files there must be, under exactly these names: a manifest can't point anywhere else.
fn check_names(dir: &Path, manifest: &Manifest, sums: &BTreeMap<String, String>) -> Result<(), CliError> {
    let named: Vec<&str> = manifest.streams.iter().map(|s| s.name.as_str()).collect();
    if named != CARRIED || manifest.streams.iter().any(|s| s.file != file_of(&s.name)) {
        return Err(damaged(dir, format!("{MANIFEST} names {}, not {}", named.join(", "), CARRIED.join(", "))));
    }
    if let Some(stream) = manifest.streams.iter().find(|s| sums.get(&s.file) != Some(&s.sha256)) {
        return Err(damaged(dir, format!("{MANIFEST} and {SUMS} disagree about {}", stream.file)));
    }
    let wanted: BTreeSet<String> =
        manifest.streams.iter().map(|s| s.file.clone()).chain([MANIFEST.to_owned(), SUMS.to_owned()]).collect();
    for entry in std::fs::read_dir(dir).map_err(|e| CliError::file(dir, e))? {
        let name = entry.map_err(|e| CliError::file(dir, e))?.file_name().to_string_lossy().into_owned();
        if !wanted.contains(&name) {
            return Err(damaged(dir, format!("{name} does not belong to the backup")));
        }
    }
    Ok(())
}

fn check_file(dir: &Path, stream: &StreamFile) -> Result<(), CliError> {
    let path = dir.join(&stream.file);
    let found = std::fs::symlink_metadata(&path).map_err(|_| damaged(dir, format!("{} is missing", stream.file)))?;
    if !found.is_file() {
        return Err(damaged(dir, format!("{} is not a plain file", stream.file)));
    }
    if found.len() != stream.bytes {
        return Err(damaged(dir, format!("{} has {} bytes, not {}", stream.file, found.len(), stream.bytes)));
    }
    let sha256 = digest(&path)?;
    if sha256 != stream.sha256 {
        return Err(damaged(dir, format!("{} has sha256 {sha256}, not {}", stream.file, stream.sha256)));
    }
    Ok(())
}

/// SHA-256 of a file, read again from the disk.
pub(super) fn digest(path: &Path) -> Result<String, CliError> {
    let mut file = File::open(path).map_err(|e| CliError::file(path, e))?;
    let mut sha = Sha256Stream::default();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer).map_err(|e| CliError::file(path, e))?;
        let Some(part) = buffer.get(..read).filter(|part| !part.is_empty()) else { return Ok(sha.finish()) };
        sha.update(part);
    }
}

fn read_text(dir: &Path, name: &str) -> Result<Vec<u8>, CliError> {
    let path = dir.join(name);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && dir.is_dir() => {
            return Err(damaged(dir, format!("{name} is missing: this is no backup, or only a part of one")));
        }
        Err(error) => return Err(CliError::file(&path, error)),
    };
    let mut bytes = Vec::new();
    file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| CliError::file(&path, e))?;
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        return Err(damaged(dir, format!("{name} is larger than {TEXT_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

/// `<sha256>  <name>` a line, as `sha256sum` writes it.
fn read_sums(dir: &Path) -> Result<BTreeMap<String, String>, CliError> {
    let bytes = read_text(dir, SUMS)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| damaged(dir, format!("{SUMS} is no text")))?;
    let line = |line: &str| line.split_once("  ").map(|(sha256, name)| (name.to_owned(), sha256.to_owned()));
    text.lines().map(line).collect::<Option<_>>().ok_or_else(|| damaged(dir, format!("{SUMS} can't be read")))
}
