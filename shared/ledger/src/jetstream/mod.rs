//! The ledger on NATS JetStream.
//!
//! The only place (with the terminal library) that names async-nats. Streams are driven through the plain JSON API and
//! message headers, because atomic batches, filtered expectations and reads from the leader have no client API.

mod api;
mod append;
mod atomic;
mod buckets;
mod bus;
mod connect;
mod damage;
mod fenced;
mod floor;
mod known;
mod log;
mod objects;
mod pages;
mod position;
mod provision;
mod read;
mod reader;
mod send;
mod snapshot;
mod tail;
mod types;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

pub use self::connect::ConnectOpts;
pub use self::floor::{FloorMode, FloorSizes, Measured, StreamSize};
use self::known::Known;
pub use self::provision::{ProvisionOpts, compression_of};
pub use self::snapshot::{CARRIED, CarryError, LOG_STREAM, STATE_STREAM, StreamHead, StreamState, TYPES_STREAM};
use crate::port::LedgerError;
use crate::watch;

/// Name of the log.
pub(crate) const LOG: &str = "FANFOLD";
/// Oldest server that has what is needed (atomic batches).
pub const SERVER_NEEDED: &str = "2.12";

/// How events that stand alone are appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendMode {
    /// Many in one atomic batch: one sync to disk for all of them. Fast with `sync_interval: always`.
    Durable,
    /// One by one, pipelined: fast where the server does not sync each write.
    Pipelined,
}

/// How hard the ledger tries.
#[derive(Debug, Clone)]
pub struct Policy {
    /// How events that stand alone are appended.
    pub append_mode: AppendMode,
    /// How long one operation is tried before it is `Unavailable`, in milliseconds; less than the duplicate window.
    pub budget_ms: u64,
    /// How long one answer is waited for before it counts as unknown, in milliseconds.
    pub ack_timeout_ms: u64,
    /// Most unanswered single publishes at a time.
    pub in_flight_max: usize,
    /// Most ids remembered for the duplicate check.
    pub known_ids_max: usize,
    /// How long ids are remembered, in milliseconds; at most the stream's duplicate window.
    pub known_ids_ms: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            append_mode: AppendMode::Durable,
            budget_ms: 30_000,
            ack_timeout_ms: 1_000,
            in_flight_max: 512,
            known_ids_max: 65_536,
            known_ids_ms: 600_000,
        }
    }
}

/// A ledger on JetStream. Clones are handles to the same connection.
#[derive(Clone)]
pub struct JetStreamLedger {
    inner: Arc<Inner>,
}

struct Inner {
    client: async_nats::Client,
    connections: watch::Receiver<u64>,
    policy: Policy,
    known: Mutex<Known>,
    damage: Mutex<damage::Damage>,
    /// Whose turn it is to send an atomic batch.
    sending: tokio::sync::Mutex<()>,
    /// Makes the names of this process's batches and consumers its own.
    nonce: String,
    names: AtomicU64,
    fence_numbers: AtomicU64,
    /// Whether there is only one copy of each bucket.
    alone: tokio::sync::OnceCell<bool>,
    /// See [`JetStreamLedger::outside`].
    outside: tokio::sync::OnceCell<async_nats::Client>,
    opts: ConnectOpts,
}

impl JetStreamLedger {
    fn unique_name(&self) -> String {
        format!("{}-{}", self.inner.nonce, self.inner.names.fetch_add(1, Ordering::Relaxed))
    }

    fn known<T>(&self, act: impl FnOnce(&mut Known) -> T) -> T {
        act(&mut self.inner.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn budget(&self) -> Budget {
        Budget { started: Instant::now(), limit: Duration::from_millis(self.inner.policy.budget_ms) }
    }
}

/// How long an operation has been tried, and how long it may be.
#[derive(Debug, Clone, Copy)]
struct Budget {
    started: Instant,
    limit: Duration,
}

impl Budget {
    /// Says when the time is used up.
    fn allows(&self, reason: &str) -> Result<(), LedgerError> {
        let waited = self.started.elapsed();
        if waited >= self.limit {
            let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            return Err(LedgerError::Unavailable { waited_ms, reason: reason.to_owned() });
        }
        Ok(())
    }

    /// Waits a moment before the next try, or says that the time is used up.
    async fn pause(&self, reason: &str) -> Result<(), LedgerError> {
        self.allows(reason)?;
        tracing::debug!(reason, "ledger.retry");
        tokio::time::sleep(jittered_ms(50, 200)).await;
        Ok(())
    }
}

/// A duration between two bounds, so that many clients do not come back in step.
fn jittered_ms(least: u64, most: u64) -> Duration {
    Duration::from_millis(rand::random_range(least..=most))
}
