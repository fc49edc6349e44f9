//! A handler that does what its input says, and lets the test see and steer it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use fanfold_sdk::{Handler, HandlerError, Registry, RunContext};
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::Semaphore;

use crate::hq::WAIT;

/// Handler of `work@1`.
pub(crate) struct Work {
    started: Semaphore,
    gate: Semaphore,
    /// Runs going on, and the most there have been.
    pub(crate) running: AtomicUsize,
    pub(crate) running_most: AtomicUsize,
    pub(crate) runs: Mutex<Vec<(String, u32)>>,
}

impl Work {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            started: Semaphore::new(0),
            gate: Semaphore::new(0),
            running: AtomicUsize::new(0),
            running_most: AtomicUsize::new(0),
            runs: Mutex::default(),
        })
    }

    pub(crate) fn registry(self: &Arc<Self>) -> Registry {
        Registry::new().with("work", 1, self.clone())
    }

    /// Waits until one more run has started.
    pub(crate) async fn started(&self) {
        tokio::time::timeout(WAIT, self.started.acquire()).await.expect("no run started").unwrap().forget();
    }

    /// Lets one waiting run go on.
    pub(crate) fn release(&self) {
        self.gate.add_permits(1);
    }

    pub(crate) fn count(&self) -> usize {
        self.runs.lock().unwrap().len()
    }
}

/// Counts a run as over however it ends.
struct Over<'a>(&'a Work);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Handler for Work {
    async fn run(&self, ctx: RunContext) -> Result<Box<RawValue>, HandlerError> {
        let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        let _over = Over(self);
        self.running_most.fetch_max(now, Ordering::SeqCst);
        self.runs.lock().unwrap().push((ctx.task.plan.to_string(), ctx.attempt));
        self.started.add_permits(1);
        let what: String = ctx.input_as()?;
        match what.as_str() {
            "wait" => self.gate.acquire().await.unwrap().forget(),
            "heed" => {
                ctx.cancel.cancelled().await;
                return Err(HandlerError::new("CANCELLED", "was told to"));
            }
            "finish when told to end" => ctx.cancel.cancelled().await,
            "hang" => std::future::pending().await,
            "panic" => panic!("on purpose"),
            "fail" => return Err(HandlerError::new("STOCK_LOCKED", "é".repeat(2000))),
            "big" => return Ok(to_raw_value(&"x".repeat(300 * 1024)).unwrap()),
            "steps" => {
                for k in 0..70 {
                    ctx.steps.progress("scan", k);
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            _ => {}
        }
        Ok(to_raw_value(&(what, ctx.attempt)).unwrap())
    }

    fn check(&self, input: &RawValue) -> Result<(), String> {
        match input.get() {
            "\"bad\"" => Err("not this".into()),
            "\"bad check\"" => panic!("in the check"),
            _ => Ok(()),
        }
    }
}
