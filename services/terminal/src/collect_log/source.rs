//! Files of a store folder, opened so that nothing outside the folder is ever read.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::names;

/// Bytes taken from a file at once; also how often a reader is asked whether to go on.
pub(super) const CHUNK_BYTES: usize = 64 * 1024;

/// Why a file or folder isn't read.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error("a link out of the store folder is not followed")]
    LeavesRoot,
    #[error("not a regular file")]
    NotAFile,
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A folder inside a store's root.
pub(super) struct Folder {
    root: PathBuf,
    path: PathBuf,
}

impl Folder {
    /// `root` must already be canonical: links are judged against it.
    pub(super) fn open(root: &Path, name: &str) -> Result<Self, SourceError> {
        let path = root.join(name).canonicalize()?;
        if !path.starts_with(root) {
            return Err(SourceError::LeavesRoot);
        }
        Ok(Self { root: root.to_owned(), path })
    }

    /// Names of the entries that `wanted` accepts, in name order.
    pub(super) fn names(&self, wanted: fn(&OsStr) -> bool) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            if wanted(&name) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Opens a file of this folder and tells its size now.
    pub(super) fn open_file(&self, name: &OsStr) -> Result<(File, u64), SourceError> {
        let mut path = self.path.join(name);
        let mut meta = fs::symlink_metadata(&path)?;
        if meta.is_symlink() {
            path = path.canonicalize()?;
            if !path.starts_with(&self.root) {
                return Err(SourceError::LeavesRoot);
            }
            meta = fs::symlink_metadata(&path)?;
        }
        // Asked before opening: opening a pipe would wait for its writer.
        if !meta.is_file() {
            return Err(SourceError::NotAFile);
        }
        let file = File::open(&path)?;
        let len_bytes = file.metadata()?.len();
        Ok((file, len_bytes))
    }

    /// Opens a log for reading from start to end, decompressed if its name says so.
    ///
    /// What is appended after opening is not read, so a busy log has an end too. The second value is
    /// the number of bytes that will be read, where that is known beforehand.
    pub(super) fn open_log(&self, name: &OsStr) -> Result<(Box<dyn BufRead>, Option<u64>), SourceError> {
        let (file, len_bytes) = self.open_file(name)?;
        let as_of_now = BufReader::with_capacity(CHUNK_BYTES, file.take(len_bytes));
        if names::is_gzip(name) {
            let plain = MultiGzDecoder::new(as_of_now);
            Ok((Box::new(BufReader::with_capacity(CHUNK_BYTES, plain)), None))
        } else {
            Ok((Box::new(as_of_now), Some(len_bytes)))
        }
    }
}
