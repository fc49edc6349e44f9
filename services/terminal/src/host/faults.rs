//! What can be wrong with a store, on purpose.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fanfold_sdk::wire::domain::ids::TerminalId;
use fanfold_sdk::{Handler, HandlerError, RunContext};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::crash::{Step, in_handler};
use super::executions::{Executions, Moment};

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// Not there until it is brought back.
    Offline,
    /// Takes most of a second.
    Slow,
    /// Fails its first attempt with a code that may be retried.
    Flaky,
    /// Answers with other field names.
    Garbage,
    /// Never answers.
    Hang,
    /// Sends every report three times.
    Duplicate,
}

/// A handler with faults, which writes down every run.
pub(crate) struct Faulty {
    pub(crate) inner: Arc<dyn Handler>,
    pub(crate) terminal: TerminalId,
    pub(crate) faults: Vec<Fault>,
    pub(crate) executions: Arc<Executions>,
    pub(crate) work_ms: (u64, u64),
    pub(crate) die_after: Option<Step>,
}

#[async_trait]
impl Handler for Faulty {
    async fn run(&self, ctx: RunContext) -> Result<Box<RawValue>, HandlerError> {
        let run = self.executions.begin(ctx.task.to_string(), ctx.attempt, self.terminal.to_string());
        in_handler(self.die_after).await;
        let has = |fault| self.faults.contains(&fault);
        if has(Fault::Hang) {
            // Whether the watchdog or a stop drops this future, the run's end is written then.
            ctx.cancel.cancelled().await;
            run.end(Moment::Ended);
            return Err(HandlerError::new("CANCELLED", "stopped while hanging"));
        }
        let pause_ms = self.pause_ms(&ctx);
        if pause_ms > 0 {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(pause_ms)) => {}
                () = ctx.cancel.cancelled() => {
                    run.end(Moment::Ended);
                    return Err(HandlerError::new("CANCELLED", "stopped while working"));
                }
            }
        }
        if has(Fault::Flaky) && ctx.attempt == 1 {
            run.end(Moment::Ended);
            return Err(HandlerError::new("NETWORK", "the store's line dropped; a second try may do"));
        }
        if has(Fault::Garbage) {
            run.end(Moment::Ended);
            let other = serde_json::json!({ "day": "?", "logFiles": 3, "errorCount": "many" });
            return to_raw_value(&other).map_err(|e| HandlerError::new("INTERNAL", e.to_string()));
        }
        let result = self.inner.run(ctx).await;
        match &result {
            Ok(json) => run.done(json.get()),
            Err(_) => run.end(Moment::Ended),
        }
        result
    }

    fn check(&self, input: &RawValue) -> Result<(), String> {
        self.inner.check(input)
    }
}

impl Faulty {
    /// How long this run takes besides its work; the same however often it is asked.
    fn pause_ms(&self, ctx: &RunContext) -> u64 {
        let (from, to) = self.work_ms;
        let text = format!("{}/{}", ctx.task, ctx.attempt);
        let draw = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)) >> 16;
        let work = if to > from { from + draw % (to - from) } else { from };
        if self.faults.contains(&Fault::Slow) { work + 500 + draw % 400 } else { work }
    }
}
