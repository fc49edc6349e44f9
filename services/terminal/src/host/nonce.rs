//! A handler whose every run can be told from every other by its result.

use async_trait::async_trait;
use fanfold_sdk::{Handler, HandlerError, RunContext};
use serde_json::value::{RawValue, to_raw_value};

/// Does nothing; its result names target and attempt, and a number drawn by this very run.
pub(crate) struct Nonce;

#[async_trait]
impl Handler for Nonce {
    async fn run(&self, ctx: RunContext) -> Result<Box<RawValue>, HandlerError> {
        let nonce = format!("{:016x}", rand::random::<u64>());
        let result = serde_json::json!({ "target": ctx.task.target, "attempt": ctx.attempt, "nonce": nonce });
        to_raw_value(&result).map_err(|e| HandlerError::new("INTERNAL", e.to_string()))
    }
}
