//! The last lines of a server's log, for an error a person reads.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::config::Layout;

const TAIL_BYTES_MAX: u64 = 8 * 1024;
const TAIL_LINES_MAX: usize = 20;

/// The last lines of `path` that were written after offset `from_bytes`. A file that shrank was
/// rotated and counts from its start; one that cannot be read has no lines.
fn read(path: &Path, from_bytes: u64) -> Vec<String> {
    let bytes = read_tail(path, from_bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let skip = lines.len().saturating_sub(TAIL_LINES_MAX);
    lines.into_iter().skip(skip).map(str::to_owned).collect()
}

fn read_tail(path: &Path, from_bytes: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let from = if from_bytes > size { 0 } else { from_bytes };
    file.seek(SeekFrom::Start(from.max(size.saturating_sub(TAIL_BYTES_MAX))))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Where the logs stood when a server was started, so that only its own lines are shown.
#[derive(Clone, Debug)]
pub(super) struct LogStart {
    log_file: PathBuf,
    log_from_bytes: u64,
    stderr_file: PathBuf,
}

impl LogStart {
    /// As they are before the start.
    pub(super) fn now(layout: &Layout) -> Self {
        Self {
            log_file: layout.log_file.clone(),
            log_from_bytes: std::fs::metadata(&layout.log_file).map_or(0, |meta| meta.len()),
            stderr_file: layout.stderr_file.clone(),
        }
    }

    /// What was written since, for a person.
    pub(super) fn tail(&self) -> String {
        let mut lines = read(&self.log_file, self.log_from_bytes);
        lines.extend(read(&self.stderr_file, 0));
        if lines.is_empty() {
            return "(nothing)".to_owned();
        }
        lines.join("\n")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_the_new_and_only_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "old\nnew one\n\nnew two\n").unwrap();
        assert_eq!(read(&path, 4), ["new one", "new two"]);
        assert_eq!(read(&path, 1_000), ["old", "new one", "new two"]);
        std::fs::write(&path, "line\n".repeat(10_000)).unwrap();
        assert_eq!(read(&path, 0).len(), TAIL_LINES_MAX);
        assert!(read(&dir.path().join("none"), 0).is_empty());
    }
}
