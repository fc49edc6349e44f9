//! Syncs that wait for their answer: one a terminal, the newest, so that a herd that asks again and again is answered once each.

use std::collections::{HashMap, VecDeque};

use fanfold_domain::ids::TerminalId;
use fanfold_ledger::port::BusMessage;

/// Terminals whose sync may wait.
pub(super) const TERMINALS_MAX: usize = 65_536;
/// Bytes of the syncs that may wait.
pub(super) const BYTES_MAX: usize = 64 << 20;

/// See the module. First come, first served; whoever asks again keeps its place and is answered where it asked last.
#[derive(Default)]
pub(super) struct Waiting {
    order: VecDeque<TerminalId>,
    newest: HashMap<TerminalId, BusMessage>,
    bytes: usize,
}

impl Waiting {
    /// Takes a sync; `false`: there is no room, the terminal will ask again.
    pub(super) fn add(&mut self, id: TerminalId, message: BusMessage) -> bool {
        let size = message.payload.len();
        let replaced = self.newest.get(&id).map(|older| older.payload.len());
        if self.bytes - replaced.unwrap_or(0) + size > BYTES_MAX || (replaced.is_none() && self.newest.len() >= TERMINALS_MAX) {
            return false;
        }
        self.bytes = self.bytes - replaced.unwrap_or(0) + size;
        if replaced.is_none() {
            self.order.push_back(id.clone());
        }
        self.newest.insert(id, message);
        true
    }

    /// The next one to be answered.
    pub(super) fn next(&mut self) -> Option<(TerminalId, BusMessage)> {
        let id = self.order.pop_front()?;
        let message = self.newest.remove(&id)?;
        self.bytes -= message.payload.len();
        Some((id, message))
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn sync(text: &str) -> BusMessage {
        BusMessage { subject: String::new(), reply: Some(text.to_owned()), payload: Bytes::from(text.to_owned()), seq: None }
    }

    fn id(n: usize) -> TerminalId {
        TerminalId::new(&format!("S{n}")).unwrap()
    }

    #[test]
    fn whoever_asks_again_is_answered_once_where_it_asked_last() {
        let mut waiting = Waiting::default();
        for round in 0..100 {
            for terminal in 0..3 {
                assert!(waiting.add(id(terminal), sync(&format!("{terminal}/{round}"))));
            }
        }
        let answered: Vec<_> = std::iter::from_fn(|| waiting.next()).map(|(_, m)| m.reply.unwrap()).collect();
        assert_eq!(answered, ["0/99", "1/99", "2/99"]);
        assert!(waiting.is_empty() && waiting.bytes == 0);
    }

    #[test]
    fn the_number_and_the_bytes_are_bounded() {
        let mut waiting = Waiting::default();
        let taken = (0..TERMINALS_MAX + 10).filter(|n| waiting.add(id(*n), sync("x"))).count();
        assert_eq!(taken, TERMINALS_MAX);
        assert!(waiting.add(id(0), sync("y")), "one that waits may ask again");
        let mut waiting = Waiting::default();
        let large = BusMessage { payload: Bytes::from(vec![0; BYTES_MAX / 2]), ..sync("") };
        assert!(waiting.add(id(0), large.clone()) && waiting.add(id(1), large.clone()) && !waiting.add(id(2), large.clone()));
        assert!(waiting.add(id(0), large), "in place of its own");
    }
}
