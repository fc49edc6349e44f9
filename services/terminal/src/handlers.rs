//! The handlers a store's agent comes with.

use std::path::PathBuf;

use async_trait::async_trait;
use fanfold_sdk::{Handler, HandlerError, RunContext};
use jiff::tz::TimeZone;
use serde_json::value::{RawValue, to_raw_value};

use crate::collect_log::{CollectLogInput, collect_log};

/// `collect_log@1`: reads one day's logs and the configuration of a store.
#[derive(Debug)]
pub struct CollectLog {
    /// The store's folder.
    pub root: PathBuf,
    /// The store's time zone.
    pub zone: TimeZone,
}

#[async_trait]
impl Handler for CollectLog {
    async fn run(&self, ctx: RunContext) -> Result<Box<RawValue>, HandlerError> {
        let input: CollectLogInput = ctx.input_as()?;
        let (root, zone, cancel) = (self.root.clone(), self.zone.clone(), ctx.cancel.clone());
        // Awaited to its end even when cancelled: the files are let go before anything else runs.
        let collected = tokio::task::spawn_blocking(move || {
            collect_log(&root, &input, &zone, jiff::Timestamp::now(), &|| cancel.is_cancelled())
        });
        let collected = collected.await.map_err(|e| HandlerError::new("HANDLER_PANIC", e.to_string()))?;
        let output = collected.map_err(|e| HandlerError::new(e.code(), e.to_string()))?;
        to_raw_value(&output).map_err(|e| HandlerError::new("INTERNAL", e.to_string()))
    }

    fn check(&self, input: &RawValue) -> Result<(), String> {
        serde_json::from_str::<CollectLogInput>(input.get()).map(|_| ()).map_err(|e| e.to_string())
    }
}

/// `noop@1`: does nothing, at once. For measuring everything else.
#[derive(Debug)]
pub struct Noop;

#[async_trait]
impl Handler for Noop {
    async fn run(&self, ctx: RunContext) -> Result<Box<RawValue>, HandlerError> {
        to_raw_value(&serde_json::json!({ "target": ctx.task.target, "attempt": ctx.attempt, "ok": true }))
            .map_err(|e| HandlerError::new("INTERNAL", e.to_string()))
    }
}
