//! A beat that says what the last one said: most are, and one of a hundred thousand idle terminals must cost next to nothing.

use std::hash::{DefaultHasher, Hasher};

use fanfold_process::rates::Rate;

use super::{Terminal, Terminals};

fn mark(payload: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(payload);
    hasher.finish()
}

impl Terminal {
    /// Whether its last beat, heard once more, changes nothing but when it was heard.
    fn says_nothing_new(&self) -> bool {
        self.online
            && self.heard
            && !self.gone
            && !self.id_in_use
            && !self.replace_with_next
            && !self.journal_unavailable
            && self.successor.is_none()
            && self.listed.is_empty()
            && self.allowed_journal.as_ref().is_none_or(|allowed| **allowed == self.identity.journal)
    }
}

impl Terminals {
    /// Takes a beat with the text of the last one, where that said nothing new. `false`: it is to be read.
    pub(crate) fn beat_again(&mut self, id: &str, payload: &[u8], rate: Rate, now_ms: i64) -> bool {
        let Some(terminal) = self.known.get_mut(id) else { return false };
        let Some(known) = terminal.beat_mark.filter(|_| terminal.says_nothing_new()) else { return false };
        // Who says too much is counted where it is read.
        if known != mark(payload) || terminal.said.take(rate, 1, now_ms) == 0 {
            return false;
        }
        terminal.last_seen_ms = now_ms;
        terminal.boot_seen_ms = now_ms;
        true
    }

    /// Remembers a beat that was read and said nothing new.
    pub(crate) fn remember_beat(&mut self, id: &str, payload: &[u8]) {
        if let Some(terminal) = self.known.get_mut(id).filter(|terminal| terminal.says_nothing_new()) {
            terminal.beat_mark = Some(mark(payload));
        }
    }

    /// Whether a known terminal may be heard now; `None`: it is not known.
    pub(crate) fn may_be_heard(&mut self, id: &str, rate: Rate, now_ms: i64) -> Option<bool> {
        Some(self.known.get_mut(id)?.said.take(rate, 1, now_ms) > 0)
    }
}
