//! A stream's files in a server's store, for tests that damage them.

use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

/// Blocks of a stream under a server's data folder, the oldest first.
///
/// # Errors
/// A folder that can't be read.
pub fn blocks(folder: &Path, stream: &str) -> Result<Vec<PathBuf>> {
    let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "blk") && path.components().any(|c| c.as_os_str() == stream) {
                found.push(path);
            }
        }
    }
    found.sort_by_key(|p| p.file_stem().and_then(|s| s.to_str()).and_then(|s| s.parse::<u64>().ok()));
    Ok(found)
}

/// Flips a bit in the middle of the last place where a stream's blocks hold these bytes. Blocks that are packed don't show theirs.
///
/// # Errors
/// No block has them; a file that can't be read or written.
pub fn flip(folder: &Path, stream: &str, part: &[u8]) -> Result<()> {
    for path in blocks(folder, stream)?.into_iter().rev() {
        let mut bytes = std::fs::read(&path)?;
        let at = bytes.windows(part.len().max(1)).rposition(|window| window == part);
        if let Some(byte) = at.and_then(|at| bytes.get_mut(at + part.len() / 2)) {
            *byte ^= 1;
            return std::fs::write(path, bytes);
        }
    }
    Err(Error::new(ErrorKind::NotFound, format!("no block of {stream} has {}", String::from_utf8_lossy(part))))
}
