//! The handlers' own account: a line when a run begins and one when it ends, written by the handler, read by nobody but the judge.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Begin or end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Moment {
    /// The handler was entered.
    Begin,
    /// It returned a good result.
    Done,
    /// It returned something else, or was dropped.
    Ended,
}

/// A line of the account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Execution {
    /// The task.
    pub task: String,
    /// The attempt.
    pub attempt: u32,
    /// The terminal.
    pub terminal: String,
    /// Number of the run within its process.
    pub run: u64,
    /// Which process.
    pub process: u32,
    /// Begin or end.
    pub moment: Moment,
    /// Epoch microseconds.
    pub at_us: i64,
    /// What a good run returned, where it is short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

/// Longest result that is written down, in bytes.
const RESULT_BYTES_MAX: usize = 512;

/// The file.
pub struct Executions {
    file: Mutex<(File, u64)>,
}

/// A run under way; its end is written when it is dropped, if not before.
pub struct Run {
    executions: Arc<Executions>,
    line: Execution,
    ended: bool,
}

impl Executions {
    /// Opens the file to append to it.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        Ok(Self { file: Mutex::new((OpenOptions::new().create(true).append(true).open(path)?, 0)) })
    }

    fn write(&self, line: &Execution) {
        let Ok(mut text) = serde_json::to_vec(line) else { return };
        text.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.0.write_all(&text) {
            tracing::error!(%error, "the account of executions can't be written");
        }
    }

    /// Notes that a run begins.
    pub fn begin(self: &Arc<Self>, task: String, attempt: u32, terminal: String) -> Run {
        let run = {
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            file.1 += 1;
            file.1
        };
        let process = std::process::id();
        let line = Execution { task, attempt, terminal, run, process, moment: Moment::Begin, at_us: now_us(), result: None };
        self.write(&line);
        Run { executions: Arc::clone(self), line, ended: false }
    }
}

impl Run {
    /// Notes that it returned a good result.
    pub fn done(mut self, result: &str) {
        self.line.result = (result.len() <= RESULT_BYTES_MAX).then(|| result.to_owned());
        self.finish(Moment::Done);
    }

    /// Notes its end.
    pub fn end(mut self, moment: Moment) {
        self.finish(moment);
    }

    fn finish(&mut self, moment: Moment) {
        if !std::mem::replace(&mut self.ended, true) {
            self.line.moment = moment;
            self.line.at_us = now_us();
            self.executions.write(&self.line);
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.finish(Moment::Ended);
    }
}

#[expect(clippy::disallowed_methods, reason = "the account is kept apart from everything that is judged by it, its clock too")]
fn now_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX))
}

/// Reads an account; a last line cut off by a crash is passed over.
///
/// # Errors
/// Those of the file system.
pub fn read_executions(path: &Path) -> std::io::Result<Vec<Execution>> {
    let mut all = Vec::new();
    for line in BufReader::new(File::open(path)?).lines() {
        all.extend(serde_json::from_str(&line?).ok());
    }
    Ok(all)
}
