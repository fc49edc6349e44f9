//! Child processes of the same program: started, heard on stdout, ended by the end of their stdin.

use std::ffi::OsStr;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::error::CliError;

/// A running child. Dropping it kills it.
pub(crate) struct ChildProcess {
    what: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
}

fn internal(error: impl std::fmt::Display) -> CliError {
    CliError::Internal(error.to_string())
}

impl ChildProcess {
    /// Starts this program with other arguments; `what` names it in errors.
    pub(crate) fn start(what: &'static str, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Self, CliError> {
        let program = std::env::current_exe().map_err(internal)?;
        let mut child = Command::new(&program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A Ctrl-C is for the parent alone; it ends its children in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| CliError::file(&program, e))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or_else(|| CliError::Internal(format!("no stdout of {what}")))?;
        Ok(Self { what, child, stdin, stdout: BufReader::new(stdout).lines() })
    }

    /// Its process id, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for its next line, which must begin with `word`, and gives it.
    pub(crate) async fn hear(&mut self, word: &str, within: Duration) -> Result<String, CliError> {
        match tokio::time::timeout(within, self.stdout.next_line()).await {
            Ok(Ok(Some(line))) if line.starts_with(word) => Ok(line),
            other => Err(CliError::Internal(format!("{} did not say `{word}` but {other:?}", self.what))),
        }
    }

    /// Says a line to it.
    pub(crate) async fn tell(&mut self, line: &str) -> Result<(), CliError> {
        let Some(stdin) = &mut self.stdin else { return Ok(()) };
        stdin.write_all(format!("{line}\n").as_bytes()).await.map_err(internal)?;
        stdin.flush().await.map_err(internal)
    }

    /// Ends its stdin, which ends it.
    pub(crate) fn close(&mut self) {
        self.stdin = None;
    }

    /// Waits for its end after [`ChildProcess::close`].
    pub(crate) async fn ended(mut self, within: Duration) -> Result<(), CliError> {
        self.stdin = None;
        match tokio::time::timeout(within, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(CliError::Internal(format!("{} ended with {status}", self.what))),
            Ok(Err(error)) => Err(internal(error)),
            Err(_) => Err(CliError::Internal(format!("{} did not end", self.what))),
        }
    }
}
