//! Who fell silent, and whose wait is over: all terminals are looked through only when somebody may be due.

use fanfold_domain::dispatch::BEATS_MISSING_OFFLINE;
use fanfold_domain::ids::TerminalId;

use super::{Terminal, Terminals};

/// A moment before which nothing of its kind happens. It may be too early, never too late.
#[derive(Debug)]
pub(super) struct Bound(i64);

impl Default for Bound {
    fn default() -> Self {
        Self(i64::MAX)
    }
}

impl Bound {
    /// Something of the kind may happen at that moment.
    pub(super) fn not_after(&mut self, at_ms: i64) {
        self.0 = self.0.min(at_ms);
    }
}

impl Terminal {
    /// When it counts as offline if nothing more is heard of it.
    pub(super) fn silent_ms(&self, default_ms: i64) -> i64 {
        self.last_seen_ms.saturating_add(BEATS_MISSING_OFFLINE.saturating_mul(self.interval_ms(default_ms)))
    }
}

impl Terminals {
    /// Marks who fell silent; gives their names.
    pub(crate) fn sweep(&mut self, now_ms: i64, default_ms: i64) -> Vec<TerminalId> {
        let mut silent = Vec::new();
        if now_ms < self.silence.0 {
            return silent;
        }
        self.silence = Bound::default();
        for (id, terminal) in self.known.iter_mut().filter(|(_, terminal)| terminal.online) {
            let silent_ms = terminal.silent_ms(default_ms);
            if now_ms >= silent_ms {
                terminal.online = false;
                silent.push(id.clone());
            } else {
                self.silence.not_after(silent_ms);
            }
        }
        silent.sort_unstable();
        self.dirty.extend(silent.iter().cloned());
        silent
    }

    /// Terminals whose successor's wait is over.
    pub(crate) fn waiting(&mut self, now_ms: i64) -> Vec<TerminalId> {
        let mut waiting = Vec::new();
        if now_ms < self.waits.0 {
            return waiting;
        }
        self.waits = Bound::default();
        for (id, terminal) in &self.known {
            let Some(successor) = &terminal.successor else { continue };
            // Who is not let in now is looked at again.
            self.waits.not_after(successor.usable_at_ms);
            if now_ms >= successor.usable_at_ms {
                waiting.push(id.clone());
            }
        }
        waiting.sort_unstable();
        waiting
    }
}
