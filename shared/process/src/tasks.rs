//! Named background tasks that cannot die unseen.
//!
//! A task that returns an error or panics is logged, remembered, and triggers the shutdown, so the
//! process ends as a whole instead of running on with a part missing.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio_util::task::AbortOnDropHandle;

use crate::Shutdown;

/// How a task ended badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// It returned an error.
    Error,
    /// It panicked.
    Panic,
    /// It was still running when the time to end was over, and was aborted.
    Stuck,
}

/// One task that ended badly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFailure {
    /// The name it was spawned with.
    pub name: String,
    /// How it ended.
    pub kind: FailureKind,
    /// The error's or panic's own message.
    pub message: String,
}

impl fmt::Display for TaskFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.kind {
            FailureKind::Error => "failed",
            FailureKind::Panic => "panicked",
            FailureKind::Stuck => "did not end",
        };
        write!(out, "{} {how}: {}", self.name, self.message)
    }
}

/// At least one task ended badly; in the order they did, so the first is the likely cause.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("TASK_FAILED: {}", list(.failures))]
pub struct TasksFailed {
    /// Every bad end, never empty.
    pub failures: Vec<TaskFailure>,
}

impl TasksFailed {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        "TASK_FAILED"
    }
}

fn list(failures: &[TaskFailure]) -> String {
    let lines: Vec<String> = failures.iter().map(ToString::to_string).collect();
    lines.join("; ")
}

type End = (String, Option<TaskFailure>);

/// A set of named tasks bound to one [`Shutdown`]. Dropping it aborts them all.
#[derive(Debug)]
pub struct Tasks {
    shutdown: Shutdown,
    running: JoinSet<End>,
    names: Vec<String>,
}

impl Tasks {
    /// An empty set. `shutdown` is triggered when one of its tasks dies.
    pub fn new(shutdown: Shutdown) -> Self {
        Self { shutdown, running: JoinSet::new(), names: Vec::new() }
    }

    /// The shutdown these tasks are bound to.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Starts a task. `Ok(())` is an orderly end, before the shutdown too; an error or a panic
    /// triggers the shutdown at once. Call it inside a tokio runtime.
    pub fn spawn<F, E>(&mut self, name: impl Into<String>, task: F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        let name = name.into();
        self.names.push(name.clone());
        let shutdown = self.shutdown.clone();
        // The inner task keeps a panic away from this one, which has to outlive it to report it.
        let inner = AbortOnDropHandle::new(tokio::spawn(task));
        self.running.spawn(async move {
            let failure = judge(&name, inner.await);
            match &failure {
                None => tracing::debug!(task = name, "task ended"),
                Some(failure) => {
                    tracing::error!(task = name, %failure, "a task died; shutting down");
                    shutdown.trigger();
                }
            }
            (name, failure)
        });
    }

    /// Waits until every task has ended. There is no limit while the shutdown is not triggered;
    /// from then on tasks have `timeout` to end and are aborted and reported as stuck after it.
    ///
    /// # Errors
    /// [`TasksFailed`] names every task that failed, panicked or did not end in time.
    pub async fn join(mut self, timeout: Duration) -> Result<(), TasksFailed> {
        let mut failures = Vec::new();
        let shutdown = self.shutdown.clone();
        tokio::select! {
            () = self.drain(&mut failures) => {}
            () = shutdown.wait() => {
                if tokio::time::timeout(timeout, self.drain(&mut failures)).await.is_err() {
                    self.give_up(timeout, &mut failures).await;
                }
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(TasksFailed { failures }) }
    }

    /// Collects ends until no task runs. Cancel-safe: an end is taken out and noted in one step.
    async fn drain(&mut self, failures: &mut Vec<TaskFailure>) {
        while let Some(end) = self.running.join_next().await {
            self.note(end, failures);
        }
    }

    fn note(&mut self, end: Result<End, JoinError>, failures: &mut Vec<TaskFailure>) {
        // The outer task neither panics nor is aborted before give_up, which reports by name.
        if let Ok((name, failure)) = end {
            if let Some(at) = self.names.iter().position(|known| *known == name) {
                self.names.swap_remove(at);
            }
            failures.extend(failure);
        }
    }

    async fn give_up(&mut self, timeout: Duration, failures: &mut Vec<TaskFailure>) {
        self.running.abort_all();
        self.drain(failures).await;
        self.names.sort();
        for name in self.names.drain(..) {
            let failure = TaskFailure {
                name,
                kind: FailureKind::Stuck,
                message: format!("aborted {} ms after the shutdown", timeout.as_millis()),
            };
            tracing::error!(%failure, "a task did not end");
            failures.push(failure);
        }
    }
}

fn judge<E: fmt::Display>(name: &str, end: Result<Result<(), E>, JoinError>) -> Option<TaskFailure> {
    let (kind, message) = match end {
        Ok(Ok(())) => return None,
        Ok(Err(error)) => (FailureKind::Error, error.to_string()),
        Err(error) if error.is_panic() => (FailureKind::Panic, panic_message(error.into_panic().as_ref())),
        Err(error) => (FailureKind::Stuck, error.to_string()),
    };
    Some(TaskFailure { name: name.to_owned(), kind, message })
}

fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "no message".to_owned()
    }
}

#[cfg(test)]
#[path = "tasks/tests.rs"]
mod tests;
