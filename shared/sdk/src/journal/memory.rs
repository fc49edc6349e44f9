//! A journal that lives as long as its process: for tests, demos and terminals that own no disk. Clones share their contents, so a
//! terminal can be restarted on it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use fanfold_wire::domain::ids::{TaskId, TerminalId};

use super::{Journal, JournalError, Loaded, Op, Record, Row};
use crate::chance::Chance;

#[derive(Clone, Default)]
struct Part {
    journal_id: String,
    rows: BTreeMap<(TaskId, u32), Record>,
    known: BTreeMap<TaskId, u32>,
    known_seq: u64,
}

#[derive(Default)]
struct Shared {
    parts: Mutex<BTreeMap<TerminalId, Part>>,
    failing: AtomicBool,
    chance: Chance,
}

/// See the module.
#[derive(Clone, Default)]
pub struct MemoryJournal {
    shared: Arc<Shared>,
}

impl MemoryJournal {
    /// An empty journal.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty journal whose ids are drawn from `chance`.
    pub fn with_chance(chance: Chance) -> Self {
        Self { shared: Arc::new(Shared { chance, ..Shared::default() }) }
    }

    /// Another journal with the same contents and the same ids, as on a cloned disk.
    pub fn cloned_disk(&self) -> Self {
        let parts = Mutex::new(self.parts().clone());
        Self { shared: Arc::new(Shared { parts, failing: AtomicBool::new(false), chance: self.shared.chance.clone() }) }
    }

    /// Makes every write fail as a full disk does, or work again.
    pub fn set_failing(&self, failing: bool) {
        self.shared.failing.store(failing, Ordering::SeqCst);
    }

    fn parts(&self) -> MutexGuard<'_, BTreeMap<TerminalId, Part>> {
        // A writer that panicked left whole rows behind: every change is one map operation.
        self.shared.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) -> Result<(), JournalError> {
        if self.shared.failing.load(Ordering::SeqCst) {
            return Err(JournalError::Unavailable { reason: "it was told to fail".into() });
        }
        Ok(())
    }

    fn apply(&self, terminal: &TerminalId, ops: Vec<Op>) {
        let mut parts = self.parts();
        let part = parts.entry(terminal.clone()).or_default();
        for op in ops {
            match op {
                Op::Put { task, attempt, record } => {
                    part.rows.insert((task, attempt), record);
                }
                Op::Reduce { task, attempt } => {
                    part.rows.remove(&(task.clone(), attempt));
                    let known = part.known.entry(task).or_default();
                    *known = (*known).max(attempt);
                }
                Op::Forget { task } => {
                    part.rows.retain(|(t, _), _| *t != task);
                    part.known.remove(&task);
                }
                Op::Known { seq } => part.known_seq = seq,
            }
        }
    }
}

#[async_trait]
impl Journal for MemoryJournal {
    async fn load(&self, terminal: &TerminalId) -> Result<Loaded, JournalError> {
        self.check()?;
        let mut parts = self.parts();
        let part = parts.entry(terminal.clone()).or_default();
        if part.journal_id.is_empty() {
            part.journal_id = self.shared.chance.id();
        }
        let attempts =
            part.rows.iter().map(|((task, attempt), r)| Row { task: task.clone(), attempt: *attempt, record: Some(r.clone()) });
        let known = part.known.iter().map(|(task, attempt)| Row { task: task.clone(), attempt: *attempt, record: None });
        let mut rows: Vec<Row> = attempts.chain(known).collect();
        rows.sort_by(|a, b| (&a.task, a.attempt).cmp(&(&b.task, b.attempt)));
        Ok(Loaded { journal_id: part.journal_id.clone(), rows, known_seq: part.known_seq })
    }

    async fn write(&self, terminal: &TerminalId, ops: Vec<Op>) -> Result<(), JournalError> {
        self.check()?;
        self.apply(terminal, ops);
        Ok(())
    }

    fn write_lazily(&self, terminal: &TerminalId, ops: Vec<Op>) {
        if self.check().is_ok() {
            self.apply(terminal, ops);
        }
    }
}
