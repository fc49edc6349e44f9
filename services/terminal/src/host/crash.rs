//! Dying on purpose between two steps of an attempt, as a power cut would, for tests of what a terminal remembers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fanfold_sdk::journal::{Loaded, Op, Record};
use fanfold_sdk::wire::domain::ids::TerminalId;
use fanfold_sdk::{Journal, JournalError};
use serde::{Deserialize, Serialize};

/// How long a handler has begun before the process dies in it: `attempt.started` has been told by then.
const INTO_THE_RUN: Duration = Duration::from_millis(300);

/// After which step of its first attempt a host dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// The command arrived; nothing is written.
    Received,
    /// The begin is in the journal; the handler has not been entered.
    Begun,
    /// The handler runs.
    Started,
    /// The handler returned; its result is not in the journal.
    Ended,
    /// The result is in the journal; it was not sent.
    Finished,
    /// The result was sent and HQ has it; the answer is not in the journal.
    Reported,
    /// The answer is in the journal.
    Answered,
}

/// Ends the process: nothing is flushed, nothing is said.
fn die(step: Step) -> ! {
    tracing::warn!(?step, "dying on purpose");
    std::process::abort()
}

/// Dies in a handler, if that is the step.
pub(crate) async fn in_handler(die_after: Option<Step>) {
    if die_after == Some(Step::Started) {
        tokio::time::sleep(INTO_THE_RUN).await;
        die(Step::Started);
    }
}

/// A journal whose process dies at a step.
pub(crate) struct CrashingJournal {
    pub(crate) inner: Arc<dyn Journal>,
    pub(crate) die_after: Step,
}

impl CrashingJournal {
    fn is(&self, step: Step) -> bool {
        self.die_after == step
    }
}

fn has(ops: &[Op], wanted: fn(&Record) -> bool) -> bool {
    ops.iter().any(|op| matches!(op, Op::Put { record, .. } if wanted(record)))
}

#[async_trait]
impl Journal for CrashingJournal {
    async fn load(&self, terminal: &TerminalId) -> Result<Loaded, JournalError> {
        self.inner.load(terminal).await
    }

    async fn write(&self, terminal: &TerminalId, ops: Vec<Op>) -> Result<(), JournalError> {
        let begun = has(&ops, |r| matches!(r, Record::Begun { .. }));
        let finished = has(&ops, |r| matches!(r, Record::Finished { .. }));
        for (now, step) in [(begun, Step::Received), (finished, Step::Ended)] {
            if now && self.is(step) {
                die(step);
            }
        }
        self.inner.write(terminal, ops).await?;
        for (now, step) in [(begun, Step::Begun), (finished, Step::Finished)] {
            if now && self.is(step) {
                die(step);
            }
        }
        Ok(())
    }

    fn write_lazily(&self, terminal: &TerminalId, ops: Vec<Op>) {
        let settled = has(&ops, |r| matches!(r, Record::Settled { .. }));
        if settled && self.is(Step::Reported) {
            die(Step::Reported);
        }
        self.inner.write_lazily(terminal, ops);
        if settled && self.is(Step::Answered) {
            let (inner, terminal) = (Arc::clone(&self.inner), terminal.clone());
            tokio::spawn(async move {
                // What was written lazily goes with the next durable write.
                if inner.write(&terminal, Vec::new()).await.is_ok() {
                    die(Step::Answered);
                }
            });
        }
    }
}
