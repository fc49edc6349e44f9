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

/// Flips a bit of the subject of the last record with headers that stands under it, which counts under another one from then on. Blocks
/// that are packed don't show theirs.
///
/// # Errors
/// As [`flip`].
pub fn flip_subject(folder: &Path, stream: &str, subject: &str) -> Result<()> {
    // The length of the headers stands between: four bytes, the lower two in use.
    let headers = b"\0\0NATS/1.0";
    flip_at(folder, stream, subject.as_bytes(), |behind| behind.get(2..).is_some_and(|behind| behind.starts_with(headers)))
}

/// Flips a bit in the middle of the last place where a stream's blocks hold these bytes. Blocks that are packed don't show theirs.
///
/// # Errors
/// No block has them; a file that can't be read or written.
pub fn flip(folder: &Path, stream: &str, part: &[u8]) -> Result<()> {
    flip_at(folder, stream, part, |_| true)
}

fn flip_at(folder: &Path, stream: &str, part: &[u8], fits: impl Fn(&[u8]) -> bool) -> Result<()> {
    for path in blocks(folder, stream)?.into_iter().rev() {
        let mut bytes = std::fs::read(&path)?;
        let is_here = |at: &usize| bytes.get(*at..).and_then(|here| here.strip_prefix(part)).is_some_and(&fits);
        let at = (0..bytes.len()).rev().find(is_here);
        if let Some(byte) = at.and_then(|at| bytes.get_mut(at + part.len() / 2)) {
            *byte ^= 1;
            return std::fs::write(path, bytes);
        }
    }
    Err(Error::new(ErrorKind::NotFound, format!("no block of {stream} has {}", String::from_utf8_lossy(part))))
}
