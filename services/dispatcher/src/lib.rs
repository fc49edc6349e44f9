//! The dispatcher: decides who may run now, hears the terminals' beats, answers their syncs, watches the attempts' clocks.
//!
//! What ought to happen to one task is `fanfold_domain::dispatch`; here are the caps between tasks, the presence of terminals, the
//! timers, and the one place that appends decisions. Every append is fenced: a dispatcher that was overtaken can append nothing.
//! Caps are counted from the tasks that are out, so they can't leak.

mod append;
mod leader;
mod ready;
mod registry;
mod sync;
mod terminals;
#[cfg(test)]
mod testing;
mod work;

use std::sync::Arc;
use std::time::Duration;

use fanfold_ledger::lead::{Candidate, lead_until};
use fanfold_ledger::open::OpenPlans;
use fanfold_ledger::port::{Ledger, LedgerError};
use fanfold_process::clock::Clock;
use fanfold_process::shutdown::Shutdown;
use serde::{Deserialize, Serialize};

/// Name of the role in fences and beats.
pub const ROLE: &str = "dispatcher";

/// Bounds and clocks of the dispatcher.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DispatcherConfig {
    /// Tasks out at once, over all plans.
    pub in_flight: u32,
    /// Heartbeat interval assumed of terminals that don't say theirs, in milliseconds.
    pub beat_ms: u64,
    /// How long a cancelled attempt may take to end, in milliseconds.
    pub cancel_grace_ms: u64,
    /// After so long without a sign of the leader a standby takes over, in milliseconds.
    pub lease_ms: u64,
    /// Terminals remembered; beyond it new ones are not heard (counted, said in the log).
    pub terminals_max: usize,
    /// Beats and syncs taken of a terminal a second, on average; further ones are not looked at (counted, said).
    pub messages_per_s: u32,
    /// Beats and syncs taken of it at once after a pause.
    pub burst_messages: u32,
}

impl Default for DispatcherConfig {
    fn default() -> Self {
        Self {
            in_flight: 10_000,
            beat_ms: 15_000,
            cancel_grace_ms: 10_000,
            lease_ms: 3_000,
            terminals_max: 1_000_000,
            messages_per_s: 50,
            burst_messages: 500,
        }
    }
}

/// What the dispatcher works with.
#[derive(Clone)]
pub struct Deps {
    /// Where the log is.
    pub ledger: Arc<dyn Ledger>,
    /// Open plans.
    pub open: OpenPlans,
    /// Time of day.
    pub clock: Clock,
    /// Bounds.
    pub config: DispatcherConfig,
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
