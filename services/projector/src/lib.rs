//! The projector: writes what changed of plans and tasks into `fanfold-state`, for readers.
//!
//! A view only: no service decides from it, and it can be thrown away. One record a key a flush, pipelined; then the checkpoint, after
//! every record's ack and expecting its own last write. Refused means that another projector writes: stand by, and when that one falls
//! silent take over by writing every open plan anew.

mod flush;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanfold_ledger::open::OpenPlans;
use fanfold_ledger::port::{Ledger, LedgerError};
use fanfold_process::shutdown::Shutdown;
use fanfold_wire::record::Checkpoint;
use serde::{Deserialize, Serialize};

/// Bounds and clocks of the projector.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProjectorConfig {
    /// Pause between two flushes, in milliseconds: what changes twice meanwhile is written once.
    pub flush_ms: u64,
    /// After so long without a checkpoint of the other projector, while the log moved on, this one takes over, in milliseconds.
    pub lease_ms: u64,
}

impl Default for ProjectorConfig {
    fn default() -> Self {
        Self { flush_ms: 25, lease_ms: 3_000 }
    }
}

/// What the projector works with.
#[derive(Clone)]
pub struct Deps {
    /// Where the bucket is.
    pub ledger: Arc<dyn Ledger>,
    /// Open plans.
    pub open: OpenPlans,
    /// Clocks.
    pub config: ProjectorConfig,
}

/// Why a turn as the writer ended.
enum Ended {
    Shutdown,
    /// Somebody else wrote the checkpoint.
    Refused,
    /// The tail was made anew: what the bucket holds is no longer known.
    Reconnected,
}

/// Runs until shutdown.
///
/// # Errors
/// None but those of the ledger that don't pass by themselves.
pub async fn run(deps: Deps, shutdown: Shutdown) -> Result<(), LedgerError> {
    while !shutdown.is_triggered() {
        match write(&deps, &shutdown).await {
            Ok(Ended::Shutdown) => return Ok(()),
            Ok(Ended::Reconnected) => tracing::info!("reconnected: every open plan's records are written anew"),
            Ok(Ended::Refused) => {
                tracing::info!("another projector writes the checkpoint; standing by");
                stand_by(&deps, &shutdown).await;
            }
            Err(error) if error.is_transient() => {
                tracing::warn!(code = error.code(), %error, "state could not be written; tried again");
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(300)) => {}
                    () = shutdown.wait() => return Ok(()),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn write(deps: &Deps, shutdown: &Shutdown) -> Result<Ended, LedgerError> {
    let mut revision = deps.ledger.get_checkpoint().await?.map_or(0, |e| e.revision);
    let mut written_seq = 0;
    let changes = deps.open.subscribe(true);
    let position = deps.open.position();
    let reconnects = position.borrow().reconnects;
    let mut flush = flush::Flush::default();
    let mut ending = false;
    loop {
        tokio::select! {
            () = changes.changed() => {}
            () = shutdown.wait() => ending = true,
        }
        if position.borrow().reconnects != reconnects {
            return Ok(Ended::Reconnected);
        }
        // The sequence first: whatever is at or below it is among the changes taken after.
        let seq = deps.open.read().seq();
        let taken = changes.take();
        if !taken.is_empty() || seq > written_seq {
            flush.write(deps, &taken).await?;
            let checkpoint = Checkpoint::new(seq, flush::open_plans(deps));
            let text = serde_json::to_vec(&checkpoint).map_err(|e| LedgerError::Other(e.to_string()))?;
            match deps.ledger.put_checkpoint(Bytes::from(text), revision).await? {
                Some(new) => revision = new,
                None => return Ok(Ended::Refused),
            }
            written_seq = seq;
            changes.release(seq);
        }
        if ending {
            return Ok(Ended::Shutdown);
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(deps.config.flush_ms)) => {}
            () = shutdown.wait() => {}
        }
    }
}

/// Waits until the other projector has let a lease pass without a checkpoint although the log moved on.
async fn stand_by(deps: &Deps, shutdown: &Shutdown) {
    let lease = Duration::from_millis(deps.config.lease_ms.max(100));
    let mut seen = None;
    loop {
        tokio::select! {
            () = tokio::time::sleep(lease) => {}
            () = shutdown.wait() => return,
        }
        let Ok(entry) = deps.ledger.get_checkpoint().await else { continue };
        let revision = entry.as_ref().map(|e| e.revision);
        let behind = entry.and_then(|e| Checkpoint::parse(&e.value)).is_none_or(|c| c.seq < deps.open.read().seq());
        if seen == Some(revision) && behind {
            tracing::info!("the other projector fell silent; taking over");
            return;
        }
        seen = Some(revision);
    }
}
