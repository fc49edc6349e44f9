//! A process's journal: writes reach the disk or fail, notes wait for the next write and are lost with the process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fanfold_domain::ids::TerminalId;
use fanfold_sdk::journal::{Loaded, Op, Record};
use fanfold_sdk::{Chance, Journal, JournalError, MemoryJournal};

use super::process::{Process, Step};

/// What survives processes.
pub(super) struct Disk {
    pub(super) rows: MemoryJournal,
    full: AtomicBool,
    writes: AtomicU64,
    write_ms: (u64, u64),
}

impl Disk {
    /// An empty one whose journal id is drawn from the seed.
    pub(super) fn new(seed: u64, write_ms: (u64, u64)) -> Arc<Self> {
        Self::with(MemoryJournal::with_chance(Chance::seeded(seed)), write_ms)
    }

    fn with(rows: MemoryJournal, write_ms: (u64, u64)) -> Arc<Self> {
        Arc::new(Self { rows, full: AtomicBool::new(false), writes: AtomicU64::new(0), write_ms })
    }

    /// Another one with the same contents.
    pub(super) fn cloned(&self) -> Arc<Self> {
        Self::with(self.rows.cloned_disk(), self.write_ms)
    }

    /// Makes every write fail, or work again.
    pub(super) fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::SeqCst);
    }

    fn pause(&self) -> Duration {
        let (from, to) = self.write_ms;
        let n = self.writes.fetch_add(1, Ordering::SeqCst);
        Duration::from_millis(from + (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % (to - from + 1))
    }
}

/// See the module.
pub(super) struct SimJournal {
    disk: Arc<Disk>,
    process: Arc<Process>,
    /// Notes that no write has carried to the disk yet.
    notes: Mutex<Vec<Op>>,
}

impl SimJournal {
    pub(super) fn new(disk: Arc<Disk>, process: Arc<Process>) -> Self {
        Self { disk, process, notes: Mutex::default() }
    }

    fn take_notes(&self) -> Vec<Op> {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The process ends in order: its notes reach the disk.
    pub(super) fn flush(&self) {
        if self.process.is_on() {
            self.disk.rows.write_lazily(&self.process.terminal, self.take_notes());
        }
    }
}

/// Steps before and after such a write.
fn steps(ops: &[Op]) -> Option<(Step, Step)> {
    ops.iter().find_map(|op| match op {
        Op::Put { record: Record::Begun { .. }, .. } => Some((Step::Received, Step::Begun)),
        Op::Put { record: Record::Finished { .. }, .. } => Some((Step::Ended, Step::Finished)),
        _ => None,
    })
}

#[async_trait]
impl Journal for SimJournal {
    async fn load(&self, terminal: &TerminalId) -> Result<Loaded, JournalError> {
        self.process.alive().await;
        self.disk.rows.load(terminal).await
    }

    async fn write(&self, terminal: &TerminalId, ops: Vec<Op>) -> Result<(), JournalError> {
        let steps = steps(&ops);
        if let Some((before, _)) = steps {
            self.process.step(before).await;
        }
        let pause = self.disk.pause();
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        self.process.alive().await;
        let mut all = self.take_notes();
        if self.disk.full.load(Ordering::SeqCst) {
            // The notes it would have carried are gone with it.
            return Err(JournalError::Unavailable { reason: "the disk is full".into() });
        }
        all.extend(ops);
        self.disk.rows.write(terminal, all).await?;
        if let Some((_, after)) = steps {
            self.process.step(after).await;
        }
        Ok(())
    }

    fn write_lazily(&self, terminal: &TerminalId, ops: Vec<Op>) {
        let settles = ops.iter().any(|op| matches!(op, Op::Put { record: Record::Settled { .. }, .. }));
        let forgets = ops.iter().any(|op| matches!(op, Op::Reduce { .. } | Op::Forget { .. }));
        if settles && !self.process.step_now(Step::Answered) || forgets && !self.process.step_now(Step::Forgotten) {
            return;
        }
        if !self.process.is_on() {
            return;
        }
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).extend(ops);
        if settles {
            let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if !self.process.step_now(Step::Settled) {
                self.disk.rows.write_lazily(terminal, notes);
            }
        }
    }
}
