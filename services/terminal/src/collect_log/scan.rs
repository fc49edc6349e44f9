//! One log file, read once from start to end in bounded memory.

use std::ffi::OsStr;

use sha2::{Digest, Sha256};

use super::Levels;
use super::day::{Day, Span};
use super::level::{Level, level_of};
use super::source::{Folder, SourceError};
use super::stamp::parse_stamp;

/// As much of a line as stamp and level are looked for in; the rest is only hashed.
const HEAD_BYTES: usize = 256;

/// Bytes that may still be read, over all files.
pub(super) struct Budget {
    max_bytes: u64,
    left_bytes: u64,
}

impl Budget {
    pub(super) fn new(max_bytes: u64) -> Self {
        Self { max_bytes, left_bytes: max_bytes }
    }

    fn check(&self, needed_bytes: u64) -> Result<(), ScanError> {
        if needed_bytes <= self.left_bytes {
            return Ok(());
        }
        Err(ScanError::Unreadable(format!(
            "would go past maxBytes {} ({} left for this file); ask again with more",
            self.max_bytes, self.left_bytes
        )))
    }
}

/// What one file has of the day.
pub(super) struct Scanned {
    pub(super) bytes: u64,
    pub(super) lines: u64,
    pub(super) sha256: String,
    pub(super) levels: Levels,
    pub(super) span: Span,
}

/// Why a file has no account.
pub(super) enum ScanError {
    Cancelled,
    Unreadable(String),
}

impl From<SourceError> for ScanError {
    fn from(error: SourceError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// Reads one file. On an error nothing of it counts, however much was read by then; the bytes read are
/// gone from the budget all the same.
pub(super) fn scan_file(
    folder: &Folder,
    name: &OsStr,
    day: &Day,
    budget: &mut Budget,
    cancelled: &dyn Fn() -> bool,
) -> Result<Scanned, ScanError> {
    if cancelled() {
        return Err(ScanError::Cancelled);
    }
    let (mut reader, len_bytes) = folder.open_log(name)?;
    budget.check(len_bytes.unwrap_or(0))?;
    let mut lines = Lines::new(day);
    loop {
        let chunk = reader.fill_buf().map_err(SourceError::Io)?;
        if chunk.is_empty() {
            break;
        }
        let chunk_bytes = chunk.len();
        if let Err(error) = budget.check(chunk_bytes as u64) {
            budget.left_bytes = 0;
            return Err(error);
        }
        budget.left_bytes -= chunk_bytes as u64;
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            lines.push(piece);
        }
        reader.consume(chunk_bytes);
        if cancelled() {
            return Err(ScanError::Cancelled);
        }
    }
    Ok(lines.finish())
}

/// The lines of one file as they come, in pieces that end at a line's end or at a chunk's.
struct Lines<'a> {
    day: &'a Day,
    /// The line's beginning while it isn't long enough to judge; at most a head and a chunk.
    head: Vec<u8>,
    /// The line has been judged and its remaining pieces follow that judgement.
    judged: bool,
    /// The latest line that has a stamp is of the day; lines without one follow it.
    inside: bool,
    hasher: Sha256,
    bytes: u64,
    lines: u64,
    levels: Levels,
    span: Span,
}

impl<'a> Lines<'a> {
    fn new(day: &'a Day) -> Self {
        Self {
            day,
            head: Vec::new(),
            judged: false,
            inside: false,
            hasher: Sha256::new(),
            bytes: 0,
            lines: 0,
            levels: Levels::default(),
            span: Span::default(),
        }
    }

    fn push(&mut self, piece: &[u8]) {
        let ended = piece.last() == Some(&b'\n');
        if self.judged {
            self.absorb(piece);
        } else if self.head.is_empty() && (ended || piece.len() >= HEAD_BYTES) {
            self.judge(piece);
            self.absorb(piece);
        } else {
            self.head.extend_from_slice(piece);
            if ended || self.head.len() >= HEAD_BYTES {
                self.judge_head();
            }
        }
        if ended {
            self.judged = false;
        }
    }

    fn judge_head(&mut self) {
        let mut line = std::mem::take(&mut self.head);
        self.judge(&line);
        self.absorb(&line);
        line.clear();
        self.head = line;
    }

    /// Decides whether the line that begins so is of the day, and counts it if it is.
    fn judge(&mut self, line: &[u8]) {
        self.judged = true;
        let head = &line[..line.len().min(HEAD_BYTES)];
        let stamp = parse_stamp(head);
        if let Some((stamp, _)) = &stamp {
            self.inside = self.day.takes(stamp, &mut self.span);
        }
        if !self.inside {
            return;
        }
        self.lines += 1;
        let level = stamp.map_or(Level::Other, |(_, len)| level_of(&head[len..]));
        match level {
            Level::Error => self.levels.error += 1,
            Level::Warn => self.levels.warn += 1,
            Level::Info => self.levels.info += 1,
            Level::Other => self.levels.other += 1,
        }
    }

    fn absorb(&mut self, piece: &[u8]) {
        if self.inside {
            self.hasher.update(piece);
            self.bytes += piece.len() as u64;
        }
    }

    fn finish(mut self) -> Scanned {
        if !self.head.is_empty() {
            self.judge_head();
        }
        Scanned {
            bytes: self.bytes,
            lines: self.lines,
            sha256: hex::encode(self.hasher.finalize()),
            levels: self.levels,
            span: self.span,
        }
    }
}
