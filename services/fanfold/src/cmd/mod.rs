//! The commands, one file each.

pub mod backup;
pub mod bench;
pub mod demo;
pub mod doctor;
pub mod events;
pub mod plan;
pub mod rebuild;
pub mod replay;
pub mod restore;
pub mod serve;
pub mod stores;
pub mod summary;
pub mod task;
pub mod terminal;
pub mod types;
pub mod up;

use std::path::Path;

use fanfold_domain::ids::{PlanId, TaskId, TerminalId};

use crate::error::CliError;
use crate::out::Out;

/// Largest file a command reads, in bytes.
pub const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Reads a plan id of the command line.
pub(crate) fn plan_id(text: &str) -> Result<PlanId, String> {
    PlanId::new(text).map_err(|e| e.to_string())
}

/// Reads a task id of the command line.
pub(crate) fn task_id(text: &str) -> Result<TaskId, String> {
    TaskId::parse(text).map_err(|e| e.to_string())
}

/// Reads a terminal id of the command line.
pub(crate) fn terminal_id(text: &str) -> Result<TerminalId, String> {
    TerminalId::new(text).map_err(|e| e.to_string())
}

/// Reads `k=v` of the command line.
pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err(format!("`{text}` is not a label; write key=value")),
    }
}

/// Reads what a process of simulated terminals is to run.
pub(crate) fn read_spec<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, CliError> {
    serde_json::from_slice(&read_file(path)?).map_err(|e| CliError::input("BAD_SPEC", format!("{}: {e}", path.display())))
}

/// Says a line to whoever started this process. Nobody listening means that it is gone; stdin says so too.
pub(crate) fn tell_parent(out: &Out, line: &str) {
    let _ = out.text(line);
}

/// Reads a file, or stdin for `-`; bounded by [`FILE_BYTES_MAX`].
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, CliError> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let from: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(|e| CliError::file(path, e))?)
    };
    from.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| CliError::file(path, e))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(CliError::input("TOO_LARGE", format!("{} is larger than 256 MiB", path.display())));
    }
    Ok(bytes)
}
