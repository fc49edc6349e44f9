//! The log carried away and brought back: a folder with a snapshot of each stream, and a manifest that says what must be in it.
//!
//! ```text
//! DIR/FANFOLD.snapshot  FANFOLD_TYPES.snapshot  OBJ_fanfold-artifacts.snapshot  KV_fanfold-terminals.snapshot
//! DIR/manifest.json     versions, and for each stream: size, sha256, sequences, counts, configuration
//! DIR/SHA256SUMS        digests of all of these, for `sha256sum -c`
//! ```
//!
//! What is deliberately absent: `fanfold-state`, which is folded from the log anew; code that deletes a stream; and a backup or a
//! restored data folder that looks whole before it is.

mod backup;
mod lacks;
mod manifest;
mod restore;

use std::path::Path;

use fanfold_ledger::jetstream::CarryError;

pub use backup::backup;
pub use lacks::Lacks;
pub use manifest::{Manifest, StreamFile, check};
pub use restore::{Fewer, Restored, Untrue, refuse_existing, restore};

use crate::error::CliError;

/// Code of a folder that is not empty where an empty one is needed.
pub const NOT_EMPTY: &str = "DIR_NOT_EMPTY";

/// Refuses a folder that holds anything; one that is not there is fine.
///
/// # Errors
/// `DIR_NOT_EMPTY`; `FILE_UNREADABLE` when it can't be looked into.
pub fn refuse_used(dir: &Path) -> Result<(), CliError> {
    match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(CliError::file(dir, error)),
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => {
                let message = format!("{} is not empty (name a new folder; nothing was changed)", dir.display());
                Err(CliError::input(NOT_EMPTY, message))
            }
        },
    }
}

/// A folder beside `dir`, on the same disk, that is removed unless [`settle`]d: what is made in it appears at once or not at all.
///
/// # Errors
/// `FILE_UNREADABLE` when it can't be made.
pub fn beside(dir: &Path) -> Result<tempfile::TempDir, CliError> {
    let parent = dir.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).map_err(|e| CliError::file(parent, e))?;
    let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let made = tempfile::Builder::new().prefix(&format!(".{name}.unfinished-")).tempdir_in(parent);
    made.map_err(|e| CliError::file(parent, e))
}

/// Gives a finished folder its name; `dir` is empty or not there.
///
/// # Errors
/// `FILE_UNREADABLE`; the unfinished folder is removed then.
pub fn settle(made: tempfile::TempDir, dir: &Path) -> Result<(), CliError> {
    std::fs::rename(made.path(), dir).map_err(|e| CliError::file(dir, e))?;
    // It has another name now; there is nothing left to remove.
    let _ = made.keep();
    let parent = dir.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(parent).and_then(|folder| folder.sync_all()).map_err(|e| CliError::file(parent, e))
}

fn carry_error(path: &Path, error: CarryError) -> CliError {
    match error {
        CarryError::Ledger(error) => CliError::Ledger(error),
        CarryError::Io(source) => CliError::file(path, source),
    }
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} bytes"),
        10_000..=9_999_999 => format!("{} kB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

#[cfg(test)]
mod tests;
