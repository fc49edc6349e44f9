//! The handler that does what the script says, and writes down that it did.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fanfold_sdk::{Handler, HandlerError, RunContext};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::account::How;
use super::process::{Process, Step};
use super::{Act, Script};

pub(super) struct Acting {
    pub(super) process: Arc<Process>,
    pub(super) script: Script,
}

#[async_trait]
impl Handler for Acting {
    async fn run(&self, ctx: RunContext) -> Result<Box<RawValue>, HandlerError> {
        let process = &self.process;
        process.alive().await;
        let line = process.account.begin(ctx.task.clone(), ctx.attempt, process.terminal.clone(), process.number);
        process.step(Step::Started).await;
        let (ms, outcome) = match (self.script)(&ctx.task, ctx.attempt) {
            Act::Succeed(ms) | Act::SucceedQuietly(ms) => (ms, Ok(json!({ "n": ctx.attempt }))),
            Act::Steps(ms) => {
                ctx.steps.progress("first", ms);
                tokio::time::sleep(Duration::from_millis(ms)).await;
                ctx.steps.progress("second", ms);
                (ms, Ok(json!({ "n": ctx.attempt })))
            }
            Act::Garbage(ms) => (ms, Ok(json!({ "n": "x" }))),
            Act::Fail(ms, code) => (ms, Err(HandlerError::new(code, "m"))),
            // The last two don't get here: they are rejected before, or missed.
            Act::Hang | Act::HangQuietly | Act::Miss | Act::Reject(_) => pending().await,
        };
        let half = Duration::from_millis(ms / 2);
        let work = async {
            tokio::time::sleep(half).await;
            process.step(Step::Working).await;
            tokio::time::sleep(Duration::from_millis(ms) - half).await;
        };
        let stopped = tokio::select! {
            biased;
            () = ctx.cancel.cancelled() => true,
            () = work => false,
        };
        process.alive().await;
        if stopped {
            line.end(How::Stopped);
            return Err(HandlerError::new("CANCELLED", "told to end"));
        }
        line.end(if outcome.is_ok() { How::Done } else { How::Failed });
        outcome.map(|result| to_raw_value(&result).unwrap())
    }
}
