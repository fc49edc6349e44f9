//! The projector: writes what changed of plans and tasks into `fanfold-state`, for readers.
//!
//! A view only: no service decides from it, and it can be thrown away. One record a key a flush, pipelined; then the checkpoint, after
//! every record's ack and expecting its own last write. Refused means that another projector writes: stand by, and when that one falls
//! silent take over by writing every open plan anew, and from the log whatever ended since its last checkpoint.
//!
//! Being the only writer it knows what its bucket must look like (`tally`). A bucket that looks otherwise (a lost tail, a record put or
//! deleted by somebody, a bucket made anew) is compared with the log record by record and put right ([`audit`]), without being asked.

pub mod audit;
mod flush;
mod hold;
mod keep;
mod tally;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanfold_domain::planted::{self, Planted};
use fanfold_ledger::open::{Changes, OpenPlans, missing_to, plans_since};
use fanfold_ledger::port::{Ledger, LedgerError};
use fanfold_process::shutdown::Shutdown;
use fanfold_wire::record::Checkpoint;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// Bounds and clocks of the projector.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProjectorConfig {
    /// From a change to its flush, in milliseconds: what changes twice meanwhile is written once.
    pub flush_ms: u64,
    /// While more than a thousand tasks change between two flushes, the record of one that has not ended waits at most so long, in
    /// milliseconds; 0: not at all.
    pub hold_ms: u64,
    /// After so long without a checkpoint of the other projector, while the log moved on, this one takes over, in milliseconds.
    pub lease_ms: u64,
    /// Between two comparisons of the whole bucket with the log where nothing looks wrong, in seconds; 0: never.
    pub audit_s: u64,
}

impl Default for ProjectorConfig {
    fn default() -> Self {
        Self { flush_ms: 100, hold_ms: 3_000, lease_ms: 3_000, audit_s: 3_600 }
    }
}

/// The pause before a flush, in times the last flush's own, and at most in times `flush_ms`.
const PAUSE_FOR_FLUSH: u32 = 3;
const PAUSE_MAX: u32 = 8;
/// Ended plans folded before the shutdown is looked at again.
const ENDED_PER_TURN: usize = 16;

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

impl Deps {
    fn lease(&self) -> Duration {
        Duration::from_millis(self.config.lease_ms.max(100))
    }
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
                    biased;
                    () = shutdown.wait() => return Ok(()),
                    () = tokio::time::sleep(Duration::from_millis(300)) => {}
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn write(deps: &Deps, shutdown: &Shutdown) -> Result<Ended, LedgerError> {
    let found = deps.ledger.get_checkpoint().await?;
    let changes = deps.open.subscribe(true);
    let position = deps.open.position();
    let reconnects = position.borrow().reconnects;
    let lost_since = |c: &Checkpoint| missing_to(deps.open.read().gaps(), c.seq) != c.missing;
    let parsed = found.as_ref().and_then(|e| Checkpoint::parse(&e.value));
    let healed = parsed.as_ref().and_then(|c| c.healed.clone()).unwrap_or_default();
    let checkpoint = parsed.filter(|c| !lost_since(c));
    let mut writer = Writer {
        deps,
        revision: found.as_ref().map_or(0, |e| e.revision),
        written_seq: 0,
        flush: flush::Flush::default(),
        hold: hold::Hold::default(),
        at: Instant::now(),
        took: Duration::ZERO,
        keep: keep::Keep::begin(deps, checkpoint.as_ref(), found.as_ref().map_or(0, |e| e.revision), healed).await?,
    };
    if !writer.heal(checkpoint, shutdown).await? {
        return Ok(Ended::Shutdown);
    }
    // An idle writer moves its checkpoint on, too: a standby must not take it for dead.
    let idle = deps.lease() / 3;
    loop {
        tokio::select! {
            biased;
            () = shutdown.wait() => {}
            () = changes.changed() => {}
            () = tokio::time::sleep(idle) => {}
            () = writer.keep.in_a_hurry() => {}
        }
        // A task that is handed out and done within this pause is written once.
        let ending = tokio::select! {
            biased;
            () = shutdown.wait() => true,
            () = tokio::time::sleep(writer.pause()) => false,
        };
        if position.borrow().reconnects != reconnects {
            return Ok(Ended::Reconnected);
        }
        // The sequence first: whatever is at or below it is among the changes taken after.
        let (seq, mark, missing) = {
            let model = deps.open.read();
            (model.seq(), model.mark(), missing_to(model.gaps(), model.seq()))
        };
        let taken = writer.pass(changes.take(), ending);
        if !taken.is_empty() || seq > writer.written_seq || writer.keep.wants_checkpoint() {
            if !writer.write(&taken, seq, (mark, missing)).await? {
                return Ok(Ended::Refused);
            }
            changes.release(seq);
        }
        if ending {
            return Ok(Ended::Shutdown);
        }
        writer.keep.look(deps, writer.written_seq).await?;
    }
}

/// A turn as the one who writes.
struct Writer<'d> {
    deps: &'d Deps,
    revision: u64,
    written_seq: u64,
    flush: flush::Flush,
    hold: hold::Hold,
    /// When the checkpoint was last known to be this writer's.
    at: Instant,
    /// How long the last flush took.
    took: Duration,
    /// Watches over what is written.
    keep: keep::Keep,
}

impl Writer<'_> {
    /// From a change to its flush. Where a flush takes long, because much changes or the server is busy, the next one waits longer and
    /// finds more to write once: a view never takes more than a part of what the work itself needs.
    fn pause(&self) -> Duration {
        let flush = Duration::from_millis(self.deps.config.flush_ms);
        (self.took * PAUSE_FOR_FLUSH).clamp(flush, flush * PAUSE_MAX)
    }

    /// What is to be written of what changed; nothing waits while the bucket is compared with the log, or at the end.
    fn pass(&mut self, taken: Changes, ending: bool) -> Changes {
        let most = if ending || self.keep.compares() { 0 } else { self.deps.config.hold_ms };
        let model = self.deps.open.read();
        self.hold.pass(taken, Duration::from_millis(most), Instant::now(), |plan| {
            model.plan(plan).map(|view| (view.is_over(), &view.finals))
        })
    }

    /// Writes what the fold has no more: plans that ended since the checkpoint. Where there is none the audit writes what is missing.
    /// `false`: interrupted by the shutdown.
    async fn heal(&mut self, checkpoint: Option<Checkpoint>, shutdown: &Shutdown) -> Result<bool, LedgerError> {
        let seq = self.deps.open.read().seq();
        if checkpoint.as_ref().is_none_or(|c| c.seq > seq) || self.deps.open.read().went_back().is_some() {
            return Ok(true);
        }
        let mut plans = plans_since(self.deps.ledger.as_ref(), checkpoint, seq).await?;
        plans.retain(|plan| self.deps.open.read().plan(plan).is_none());
        for group in plans.chunks(ENDED_PER_TURN) {
            if shutdown.is_triggered() {
                return Ok(false);
            }
            self.flush.write_ended(self.deps, group, seq).await?;
        }
        Ok(true)
    }

    /// One flush and its checkpoint; `false`: somebody else wrote the checkpoint.
    async fn write(&mut self, taken: &Changes, seq: u64, (mark, missing): (String, u64)) -> Result<bool, LedgerError> {
        // After a long pause (a frozen process) somebody else may have taken over: nothing old may go over what they wrote.
        if self.at.elapsed() > self.deps.lease() / 2 && !self.still_mine().await? {
            return Ok(false);
        }
        let begun = Instant::now();
        let records_first = !planted::is(Planted::CheckpointFirst);
        if records_first {
            self.flush.write(self.deps, taken).await?;
            self.keep.wrote(self.deps, std::mem::take(&mut self.flush.puts)).await?;
        }
        let (trail, healed) = self.keep.told(self.revision == 0);
        let checkpoint = Checkpoint::new(seq, flush::open_plans(self.deps)).with(mark, missing, trail, healed);
        let text = serde_json::to_vec(&checkpoint).map_err(|e| LedgerError::Other(e.to_string()))?;
        match self.deps.ledger.put_checkpoint(Bytes::from(text), self.revision).await? {
            Some(new) => {
                self.keep.wrote_checkpoint(self.revision == 0);
                self.revision = new;
            }
            None => {
                self.repair(taken).await?;
                return Ok(false);
            }
        }
        if !records_first {
            self.flush.write(self.deps, taken).await?;
            self.keep.wrote(self.deps, std::mem::take(&mut self.flush.puts)).await?;
        }
        self.written_seq = seq;
        self.at = Instant::now();
        self.took = self.at - begun;
        Ok(true)
    }

    async fn still_mine(&self) -> Result<bool, LedgerError> {
        Ok(self.deps.ledger.get_checkpoint().await?.map_or(0, |e| e.revision) == self.revision)
    }

    /// Overtaken in the middle of a flush: what was written may have gone over newer records, so it is written again as new as theirs.
    async fn repair(&mut self, taken: &Changes) -> Result<(), LedgerError> {
        let theirs = self.deps.ledger.get_checkpoint().await?.and_then(|e| Checkpoint::parse(&e.value)).map_or(0, |c| c.seq);
        if self.deps.open.reached(theirs, self.deps.lease()).await {
            self.flush.write(self.deps, taken).await?;
        }
        Ok(())
    }
}

/// Waits until the other projector has let a lease pass without a checkpoint although the log moved on.
async fn stand_by(deps: &Deps, shutdown: &Shutdown) {
    let lease = deps.lease();
    let mut seen = None;
    loop {
        tokio::select! {
            biased;
            () = shutdown.wait() => return,
            () = tokio::time::sleep(lease) => {}
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
