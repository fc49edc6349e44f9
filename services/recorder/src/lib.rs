//! The recorder: takes terminals' reports, checks them, writes them into the log by group commit and answers each after the commit.
//!
//! It never decides what a report *means*; the fold does. It keeps out what no fold should see: garbage, what is too large, what
//! speaks for another terminal, for an unknown task or attempt, or for a plan that is closed. Everything kept out is answered with a
//! code and counted. Several recorders may run at once: they share a queue group and nothing else.

mod answers;
mod commit;
mod examine;
mod intake;
mod schemas;
pub mod stats;

use std::sync::Arc;

use fanfold_ledger::open::OpenPlans;
use fanfold_ledger::port::{Ledger, LedgerError};
use fanfold_process::clock::Clock;
use fanfold_process::shutdown::Shutdown;
use fanfold_wire::subjects;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

pub use stats::Stats;

/// Bounds of the recorder.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RecorderConfig {
    /// Reports a terminal may send a second, on average.
    pub reports_per_s: u32,
    /// Reports it may send at once after a pause.
    pub burst_reports: u32,
    /// Bytes it may send a second, on average.
    pub bytes_per_s: u32,
    /// Bytes it may send at once after a pause.
    pub burst_bytes: u32,
    /// Requests waiting for a commit.
    pub queue_requests_max: usize,
    /// Bytes waiting for a commit.
    pub queue_bytes_max: usize,
    /// How long a report of an attempt not yet in view is kept for the view to catch up, in milliseconds.
    pub park_ms: u64,
}

impl Default for RecorderConfig {
    fn default() -> Self {
        Self {
            reports_per_s: 100,
            burst_reports: 1_000,
            bytes_per_s: 8 << 20,
            burst_bytes: 32 << 20,
            queue_requests_max: 8_192,
            queue_bytes_max: 64 << 20,
            park_ms: 1_000,
        }
    }
}

/// What the recorder works with.
#[derive(Clone)]
pub struct Deps {
    /// Where the log is.
    pub ledger: Arc<dyn Ledger>,
    /// Sealed plans and how far their tasks are.
    pub open: OpenPlans,
    /// Time of day, for rate limits.
    pub clock: Clock,
    /// Bounds.
    pub config: RecorderConfig,
    /// What it counts.
    pub stats: Arc<Stats>,
}

/// Runs until shutdown; what has been taken by then is committed and answered.
///
/// # Errors
/// Those of the ledger at the start; later ones are answered to the terminals and tried again.
pub async fn run(deps: Deps, shutdown: Shutdown) -> Result<(), LedgerError> {
    let requests = deps.ledger.subscribe(subjects::REPORTS, Some("recorder")).await?;
    let (queue, waiting) = mpsc::channel(deps.config.queue_requests_max.max(1));
    let committer = commit::run(deps.clone(), waiting);
    let counts = stats::publish(deps.clone(), shutdown.clone());
    let intake = intake::Intake::new(deps, queue).run(requests, shutdown);
    // The queue's sender goes with the intake: the committer ends when everything taken is answered.
    tokio::join!(intake, committer, counts);
    Ok(())
}
