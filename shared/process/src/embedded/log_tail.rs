//! The last lines of a server's log, for an error a person reads.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

const TAIL_BYTES_MAX: u64 = 8 * 1024;
const TAIL_LINES_MAX: usize = 20;

/// The last lines of `path` that were written after offset `from_bytes`. A file that shrank was
/// rotated and counts from its start; one that cannot be read has no lines.
pub(super) fn read(path: &Path, from_bytes: u64) -> Vec<String> {
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
