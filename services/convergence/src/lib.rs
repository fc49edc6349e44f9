//! Convergence: fires barriers, writes summaries, closes plans.
//!
//! What is due is `fanfold_domain::barrier`; a summary is `fanfold_domain::summary`. Here is the clock for deadlines and expiries, and
//! the one place that appends what they ask for, fenced. A summary's document is stored under its sha256 before the event that names it.

mod document;
mod leader;

use std::sync::Arc;
use std::time::Duration;

use fanfold_ledger::lead::{Candidate, lead_until};
use fanfold_ledger::open::OpenPlans;
use fanfold_ledger::port::{Ledger, LedgerError};
use fanfold_process::clock::Clock;
use fanfold_process::shutdown::Shutdown;
use serde::{Deserialize, Serialize};

/// Name of the role in fences and beats.
pub const ROLE: &str = "convergence";

/// Clocks of convergence.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConvergenceConfig {
    /// After so long without a sign of the leader a standby takes over, in milliseconds.
    pub lease_ms: u64,
}

impl Default for ConvergenceConfig {
    fn default() -> Self {
        Self { lease_ms: 3_000 }
    }
}

/// What convergence works with.
#[derive(Clone)]
pub struct Deps {
    /// Where the log is.
    pub ledger: Arc<dyn Ledger>,
    /// Open plans.
    pub open: OpenPlans,
    /// Time of day.
    pub clock: Clock,
    /// Clocks.
    pub config: ConvergenceConfig,
}

/// Runs until shutdown: as standby, as leader, and as standby again when overtaken.
///
/// # Errors
/// None but those of the ledger that don't pass by themselves.
pub async fn run(deps: Deps, shutdown: Shutdown) -> Result<(), LedgerError> {
    let lease = Duration::from_millis(deps.config.lease_ms.max(100));
    let candidate = Candidate::new(Arc::clone(&deps.ledger), ROLE, lease);
    let (deps, shutdown) = (&deps, &shutdown);
    lead_until(&candidate, || shutdown.wait(), |fence, keeper| leader::lead(deps, fence, keeper, shutdown)).await
}
