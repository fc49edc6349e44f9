//! What a terminal author writes: the work itself.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use fanfold_wire::domain::Json;
use fanfold_wire::domain::ids::TaskId;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

/// Most steps reported of one attempt; further ones are dropped.
pub const STEPS_MAX: u32 = 64;

/// Executes tasks of one type.
///
/// A run may be cut off at any point by a crash, and the task handed out again as another attempt: what a handler does must be
/// repeatable. It must not block its thread; long computation belongs on `tokio::task::spawn_blocking`, which a cancel can't end.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Does the work and returns the result as JSON, at most 256 KiB. When `ctx.cancel` fires it should end soon: after a grace its
    /// future is dropped. A panic is reported as `HANDLER_PANIC`.
    async fn run(&self, ctx: RunContext) -> Result<Box<RawValue>, HandlerError>;

    /// Looks at an input before the attempt is begun; an error is reported as `attempt.rejected` `BAD_INPUT`. Must be quick.
    fn check(&self, input: &RawValue) -> Result<(), String> {
        let _ = input;
        Ok(())
    }
}

/// Why a run failed, as HQ will read it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct HandlerError {
    /// SCREAMING_SNAKE; the plan's retry policy matches it. Cut to 64 bytes.
    pub code: String,
    /// For people. Cut to 1 kB.
    pub message: String,
}

impl HandlerError {
    /// From a code and a message.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}

/// What a run is about.
#[derive(Debug, Clone)]
pub struct RunContext {
    /// The task.
    pub task: TaskId,
    /// Number of the attempt.
    pub attempt: u32,
    /// Task type.
    pub kind: String,
    /// Version of the task type.
    pub version: u32,
    /// The plan's input, as submitted.
    pub input: Json,
    /// Time from the start after which the run is cancelled.
    pub run_timeout: Duration,
    /// W3C trace context to hand on.
    pub traceparent: Option<String>,
    /// Fires when the run is to end: HQ asked, the time is up, or the terminal stops.
    pub cancel: CancellationToken,
    /// Where to report steps.
    pub steps: StepReporter,
}

impl RunContext {
    /// Reads the input.
    pub fn input_as<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, HandlerError> {
        serde_json::from_str(self.input.get())
            .map_err(|e| HandlerError::new("BAD_INPUT", format!("the input can't be read: {e}")))
    }
}

/// Takes a step's number, name and duration in milliseconds.
type SendStep = dyn Fn(u32, &str, u64) + Send + Sync;

/// Reports the steps of one attempt.
#[derive(Clone)]
pub struct StepReporter {
    next: Arc<AtomicU32>,
    send: Arc<SendStep>,
}

impl fmt::Debug for StepReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepReporter").field("next", &self.next).finish_non_exhaustive()
    }
}

impl StepReporter {
    /// `send` gets the step's number, name and duration.
    pub(crate) fn new(send: impl Fn(u32, &str, u64) + Send + Sync + 'static) -> Self {
        Self { next: Arc::new(AtomicU32::new(0)), send: Arc::new(send) }
    }

    /// For handlers' own tests: reports go nowhere.
    pub fn silent() -> Self {
        Self::new(|_, _, _| {})
    }

    /// A step ended after `ms` milliseconds. Returns at once; false if it was one too many.
    pub fn progress(&self, step: &str, ms: u64) -> bool {
        let taken = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |k| (k < STEPS_MAX).then_some(k + 1));
        match taken {
            Ok(k) => {
                (self.send)(k, step, ms);
                true
            }
            Err(_) => false,
        }
    }
}

/// Handlers by type and version.
#[derive(Clone, Default)]
pub struct Registry {
    handlers: BTreeMap<(String, u32), Arc<dyn Handler>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.types()).finish()
    }
}

impl Registry {
    /// Without handlers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a handler; one of the same type and version is replaced.
    #[must_use]
    pub fn with(mut self, kind: impl Into<String>, version: u32, handler: Arc<dyn Handler>) -> Self {
        self.handlers.insert((kind.into(), version), handler);
        self
    }

    /// The handler of a type and version.
    pub fn get(&self, kind: &str, version: u32) -> Option<&Arc<dyn Handler>> {
        self.handlers.get(&(kind.to_owned(), version))
    }

    /// What is there, as `name@version`.
    pub fn types(&self) -> Vec<String> {
        self.handlers.keys().map(|(kind, version)| format!("{kind}@{version}")).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn steps_are_numbered_from_0_and_bounded() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let steps = StepReporter::new(move |k, step, ms| sink.lock().unwrap().push((k, step.to_owned(), ms)));
        let taken = (0..70).filter(|i| steps.clone().progress("scan", *i)).count();
        let seen = seen.lock().unwrap();
        assert_eq!((taken, seen.len()), (64, 64));
        assert_eq!((seen[0].0, seen[63].0, seen[63].2), (0, 63, 63));
    }
}
