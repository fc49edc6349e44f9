//! Where commands write: results on stdout, everything else on stderr. The one place that does.
//!
//! A reader that has gone (`fanfold events | head`) is no error: the command ends quietly.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::error::CliError;

type Sink = Box<dyn Write + Send>;

/// The two outputs of a command. Clones are the same outputs.
#[derive(Clone)]
pub struct Out {
    stdout: Arc<Mutex<Sink>>,
    stderr: Arc<Mutex<Sink>>,
    /// stdout is a terminal and colours are wanted.
    pub color: bool,
    /// stderr is a terminal: a progress bar may be drawn there.
    pub interactive: bool,
}

/// What was written to an [`Out::captured`].
#[derive(Clone, Default)]
pub struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    /// Everything so far, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&lock(&self.0)).into_owned()
    }

    /// Everything so far.
    pub fn bytes(&self) -> Vec<u8> {
        lock(&self.0).clone()
    }
}

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Out {
    /// The process's own outputs. `NO_COLOR` is respected.
    pub fn process() -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        Self {
            stdout: Arc::new(Mutex::new(Box::new(std::io::stdout()))),
            stderr: Arc::new(Mutex::new(Box::new(std::io::stderr()))),
            color: !no_color && !dumb && std::io::stdout().is_terminal(),
            interactive: !dumb && std::io::stderr().is_terminal(),
        }
    }

    /// Outputs that are kept in memory: stdout, stderr. For tests and for callers that embed commands.
    pub fn captured() -> (Self, Captured, Captured) {
        let (stdout, stderr) = (Captured::default(), Captured::default());
        let out = Self {
            stdout: Arc::new(Mutex::new(Box::new(stdout.clone()))),
            stderr: Arc::new(Mutex::new(Box::new(stderr.clone()))),
            color: false,
            interactive: false,
        };
        (out, stdout, stderr)
    }

    /// Writes bytes to stdout as they are.
    ///
    /// # Errors
    /// [`CliError::OutputClosed`] when the reader has gone, [`CliError::File`] when it can't be written (a full disk).
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), CliError> {
        let mut sink = lock(&self.stdout);
        sink.write_all(bytes).and_then(|()| sink.flush()).map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => CliError::OutputClosed,
            _ => CliError::File { path: "stdout".into(), source: error },
        })
    }

    /// Writes text to stdout and ends the line if the text doesn't.
    ///
    /// # Errors
    /// As [`Out::bytes`].
    pub fn text(&self, text: &str) -> Result<(), CliError> {
        let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        self.bytes(format!("{text}{end}").as_bytes())
    }

    /// Writes a value to stdout as one line of JSON.
    ///
    /// # Errors
    /// As [`Out::bytes`].
    pub fn json(&self, value: &impl Serialize) -> Result<(), CliError> {
        let text = serde_json::to_string(value)
            .map_err(|e| CliError::Internal(format!("an answer could not be written as JSON: {e}")))?;
        self.text(&text)
    }

    /// Writes a line to stderr. That it can't be written is nobody's concern.
    pub fn note(&self, text: &str) {
        let mut sink = lock(&self.stderr);
        let _ = sink.write_all(format!("{text}\n").as_bytes()).and_then(|()| sink.flush());
    }

    /// The error, for people or as JSON.
    pub fn error(&self, error: &CliError, as_json: bool) {
        if matches!(error, CliError::OutputClosed) {
            return;
        }
        if as_json {
            let _ = self.json(&error.to_json());
            return;
        }
        self.note(&format!("error {}: {}", error.code(), error.message()));
        if error.all_problems().len() > 1 {
            for problem in error.all_problems() {
                self.note(&format!("  - {problem}"));
            }
        }
        for hint in error.hints() {
            self.note(&format!("hint: {hint}"));
        }
    }
}
