//! `collect_log`: one store's account of one day's logs and of its configuration.
//!
//! ```text
//! <root>/logs/*.log, *.log.1, *.log.2.gz, *.log-20260917.gz ...   lines of the day, counted and hashed
//! <root>/config/*.json, *.toml, *.ini                             app version, hash of everything
//! ```
//!
//! The lines themselves stay in the store; HQ gets counts and a sha256 a file that anybody can work out
//! again with the same lines. A file is counted whole or not at all: what is corrupt, too large or
//! leads out of the folder is named in `unreadable`, and the rest still counts.
//!
//! Rules about which line is of a day are in `stamp`, about levels in `level`, about names in `names`.

mod config;
mod day;
mod level;
mod names;
mod scan;
mod source;
mod stamp;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use jiff::{Timestamp, civil::Date, tz::TimeZone};
use serde::{Deserialize, Serialize};

use day::Day;
use scan::{Budget, ScanError};

/// What `maxBytes` is when the input doesn't say: 64 MiB.
pub const MAX_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;
/// The largest `maxBytes` an input may ask for: 4 GiB.
pub const MAX_BYTES_LIMIT: u64 = 4 * 1024 * 1024 * 1024;
/// Log files read at most in one folder; those beyond it are named as one entry in `unreadable`.
pub const LOG_FILES_MAX: usize = 1_000;

/// What HQ asks a store for. Unknown fields are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct CollectLogInput {
    /// `YYYY-MM-DD`, or `yesterday` as the store's calendar has it.
    pub date: String,
    /// Bytes of log read at most, counted after decompression: 1 to [`MAX_BYTES_LIMIT`].
    #[serde(default = "max_bytes_default")]
    pub max_bytes: u64,
}

fn max_bytes_default() -> u64 {
    MAX_BYTES_DEFAULT
}

impl CollectLogInput {
    /// An input for `date` (`YYYY-MM-DD` or `yesterday`) with the default bound on bytes.
    #[must_use]
    pub fn for_date(date: impl Into<String>) -> Self {
        Self { date: date.into(), max_bytes: MAX_BYTES_DEFAULT }
    }
}

/// A store's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CollectLogOutput {
    /// The day looked for, `YYYY-MM-DD`; never `yesterday`.
    pub date: String,
    /// Files that have lines of the day, sorted by name.
    pub files: Vec<LogFile>,
    /// Those files' lines by level. They add up to the lines of all files.
    pub levels: Levels,
    /// The store's configuration.
    pub config: ConfigSummary,
    /// Earliest stamp of the day's lines, RFC 3339 with the store's offset.
    pub first_at: Option<String>,
    /// Latest stamp of the day's lines, RFC 3339 with the store's offset.
    pub last_at: Option<String>,
    /// What could not be read and so isn't in the counts, sorted by name.
    pub unreadable: Vec<Unreadable>,
}

/// The lines of the day in one log file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogFile {
    /// File name within `logs`.
    pub name: String,
    /// Bytes of these lines with their line ends, after decompression.
    pub bytes: u64,
    /// Number of these lines, those without a stamp of their own included.
    pub lines: u64,
    /// sha256 over the bytes of these lines, in file order, with their line ends as they are in the file.
    pub sha256: String,
}

/// Lines by level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Levels {
    /// ERROR, FATAL, CRITICAL, SEVERE.
    pub error: u64,
    /// WARN, WARNING.
    pub warn: u64,
    /// INFO, INFORMATION, NOTICE.
    pub info: u64,
    /// Everything else, and lines without a stamp (stack traces).
    pub other: u64,
}

/// What the configuration says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigSummary {
    /// Version of the store's application, if a file states it.
    pub app_version: Option<String>,
    /// sha256 over all readable files in name order: for each its name, a zero byte, its length in
    /// decimal, a zero byte, its bytes. Without any file the sha256 of nothing.
    pub sha256: String,
}

/// One file that was left out, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unreadable {
    /// File name within `logs`; for a configuration file with `config/` before it.
    pub name: String,
    /// Why, in words.
    pub reason: String,
}

impl Unreadable {
    fn new(name: impl Into<String>, reason: impl ToString) -> Self {
        Self { name: name.into(), reason: reason.to_string() }
    }
}

/// Why there is no answer at all.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// A field of the input isn't usable; trying again doesn't help.
    #[error("{field} is {value}: {problem}")]
    BadInput {
        /// The field as HQ writes it.
        field: &'static str,
        /// What it was.
        value: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// The log folder can't be read now or has no log file; it may be a disk that isn't mounted yet.
    #[error("log folder {path}: {problem}; check the terminal's store folder", path = path.display())]
    NoLogs {
        /// The folder looked for.
        path: PathBuf,
        /// What the system said, or that nothing is there.
        problem: String,
    },
    /// Logs are there but no file has a line of the day; trying again doesn't help.
    #[error("no line of {date} in {files} log files, {unreadable} more could not be read{first}")]
    NoSuchDate {
        /// The day looked for.
        date: Date,
        /// Log files read to their end.
        files: usize,
        /// Log files that could not be read.
        unreadable: usize,
        /// The first of those and its reason, ready to append; empty if all were read.
        first: String,
    },
    /// The caller asked to stop.
    #[error("collecting the logs was cancelled")]
    Cancelled,
}

impl CollectError {
    /// The stable code: `BAD_INPUT`, `NO_LOGS`, `NO_SUCH_DATE` or `CANCELLED`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::BadInput { .. } => "BAD_INPUT",
            Self::NoLogs { .. } => "NO_LOGS",
            Self::NoSuchDate { .. } => "NO_SUCH_DATE",
            Self::Cancelled => "CANCELLED",
        }
    }
}

/// Counts and hashes the lines of one day in `root/logs` and sums up `root/config`.
///
/// Blocking: call it where blocking is allowed. `zone` is the store's; stamps without an offset are its
/// local time. `now` resolves `yesterday` and the year that syslog stamps lack. `cancelled` is asked at
/// each file and each 64 KiB.
///
/// # Errors
/// See [`CollectError`]. A single file that can't be read is no error: it is in `unreadable`.
pub fn collect_log(
    root: &Path,
    input: &CollectLogInput,
    zone: &TimeZone,
    now: Timestamp,
    cancelled: &dyn Fn() -> bool,
) -> Result<CollectLogOutput, CollectError> {
    let day = Day::new(wanted_date(input, zone, now)?, zone, now)?;
    let folder = root.join("logs");
    let no_logs = |problem: String| CollectError::NoLogs { path: folder.clone(), problem };
    let unreadable = |error: &dyn std::fmt::Display| no_logs(format!("it can't be read: {error}"));
    let root_real = root.canonicalize().map_err(|error| unreadable(&error))?;
    let logs = source::Folder::open(&root_real, "logs").map_err(|error| unreadable(&error))?;
    let mut names = logs.names(names::is_log).map_err(|error| unreadable(&error))?;
    if names.is_empty() {
        // An empty mount point looks like this, too: it says nothing about the day.
        return Err(no_logs("no log file is in it (*.log, and rotated ones like *.log.1.gz)".to_owned()));
    }
    names.sort_by_cached_key(|name| (names::reading_rank(name, day.date()), name.clone()));

    let mut totals = Totals::default();
    if names.len() > LOG_FILES_MAX {
        let more = names.len() - LOG_FILES_MAX;
        totals.unreadable.push(Unreadable::new(
            "*",
            format!("{more} more log files were not read: {LOG_FILES_MAX} is the most in one folder"),
        ));
        names.truncate(LOG_FILES_MAX);
    }
    let mut budget = Budget::new(input.max_bytes);
    for name in &names {
        let name_shown = name.to_string_lossy();
        match scan::scan_file(&logs, name, &day, &mut budget, cancelled) {
            Ok(scanned) => totals.add(&name_shown, scanned),
            Err(ScanError::Cancelled) => return Err(CollectError::Cancelled),
            Err(ScanError::Unreadable(reason)) => totals.unreadable.push(Unreadable::new(name_shown, reason)),
        }
    }
    if totals.files.is_empty() {
        return Err(totals.no_such_date(day.date()));
    }
    let config = config::summarise(&root_real, &mut totals.unreadable, cancelled)?;
    Ok(totals.into_output(&day, config))
}

/// The day the input means.
fn wanted_date(input: &CollectLogInput, zone: &TimeZone, now: Timestamp) -> Result<Date, CollectError> {
    if input.max_bytes == 0 || input.max_bytes > MAX_BYTES_LIMIT {
        return Err(CollectError::BadInput {
            field: "maxBytes",
            value: input.max_bytes.to_string(),
            problem: format!("use 1 to {MAX_BYTES_LIMIT}"),
        });
    }
    let wanted =
        if input.date == "yesterday" { zone.to_datetime(now).date().yesterday().ok() } else { stamp::parse_date(&input.date) };
    wanted.ok_or_else(|| bad_date(&input.date))
}

fn bad_date(date: &str) -> CollectError {
    CollectError::BadInput {
        field: "date",
        value: format!("{:?}", date.chars().take(40).collect::<String>()),
        problem: "use a day of the calendar as YYYY-MM-DD, or yesterday".to_owned(),
    }
}

/// What is gathered while the files are read.
#[derive(Default)]
struct Totals {
    files: Vec<LogFile>,
    levels: Levels,
    span: day::Span,
    unreadable: Vec<Unreadable>,
    files_without_lines: usize,
}

impl Totals {
    fn add(&mut self, name: &str, scanned: scan::Scanned) {
        if scanned.lines == 0 {
            self.files_without_lines += 1;
            return;
        }
        self.levels.add(scanned.levels);
        self.span.merge(scanned.span);
        self.files.push(LogFile { name: name.to_owned(), bytes: scanned.bytes, lines: scanned.lines, sha256: scanned.sha256 });
    }

    fn no_such_date(self, date: Date) -> CollectError {
        let first = self.unreadable.iter().min();
        CollectError::NoSuchDate {
            date,
            files: self.files_without_lines,
            unreadable: self.unreadable.len(),
            first: first.map(|entry| format!(" (first: {}: {})", entry.name, entry.reason)).unwrap_or_default(),
        }
    }

    fn into_output(mut self, day: &Day, config: ConfigSummary) -> CollectLogOutput {
        self.files.sort_by(|a, b| a.name.cmp(&b.name));
        self.unreadable.sort();
        let (first_at, last_at) = day.bounds(&self.span);
        CollectLogOutput {
            date: day.date().to_string(),
            files: self.files,
            levels: self.levels,
            config,
            first_at,
            last_at,
            unreadable: self.unreadable,
        }
    }
}

impl Levels {
    fn add(&mut self, more: Levels) {
        self.error += more.error;
        self.warn += more.warn;
        self.info += more.info;
        self.other += more.other;
    }
}
