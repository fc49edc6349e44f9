//! The registry `fanfold-terminals`: written on change, coalesced, never on each beat.

use std::collections::HashMap;

use bytes::Bytes;
use fanfold_domain::ids::TerminalId;
use fanfold_ledger::port::{Ledger, LedgerError};
use fanfold_wire::record::{ReportCounts, TerminalRecord, terminal_key};
use futures::StreamExt;

use crate::terminals::Terminals;

/// Records written in one go.
const RECORDS_MAX: usize = 2_000;

/// Terminals whose counts went up as usual are written over so many sweeps, at least so many in one.
const COUNTED_SWEEPS: usize = 300;
const COUNTED_MIN: usize = 50;

/// Loads what an earlier dispatcher wrote.
pub(crate) async fn load(ledger: &dyn Ledger, terminals: &mut Terminals, now_ms: i64) -> Result<(), LedgerError> {
    let mut records = ledger.list_terminals("terminal.*").await?;
    while let Some(entry) = records.next().await {
        match serde_json::from_slice::<TerminalRecord>(&entry?.value) {
            Ok(record) => terminals.restore(record, now_ms),
            Err(error) => {
                tracing::warn!(%error, "a record of the registry can't be read; it is made anew when the terminal is heard of")
            }
        }
    }
    Ok(())
}

/// Takes a bounded number of changed records, encoded.
pub(crate) fn take_changed(terminals: &mut Terminals) -> Vec<(String, Bytes)> {
    let taken: Vec<TerminalId> = std::iter::from_fn(|| terminals.dirty.pop_first()).take(RECORDS_MAX).collect();
    taken.iter().filter_map(|id| encoded(terminals, id)).collect()
}

/// One record, key and text.
pub(crate) fn encoded(terminals: &Terminals, id: &TerminalId) -> Option<(String, Bytes)> {
    Some((terminal_key(id), Bytes::from(serde_json::to_vec(&terminals.record(id)?).ok()?)))
}

/// Takes over the recorder's counts.
pub(crate) fn count(terminals: &mut Terminals, payload: &[u8]) {
    let Ok(counts) = serde_json::from_slice::<HashMap<TerminalId, ReportCounts>>(payload) else { return };
    for (id, reports) in counts {
        let Some(terminal) = terminals.known.get_mut(&id) else { continue };
        let before = std::mem::replace(&mut terminal.reports, reports);
        let usual = before.refused == terminal.reports.refused && before.deferred == terminal.reports.deferred;
        if usual {
            terminals.counted.insert(id)
        } else {
            terminals.dirty.insert(id)
        };
    }
}

/// Lets some of those whose counts went up as usual be written: a few at once, many over minutes, so that the registry costs a plan of
/// a hundred thousand terminals next to nothing while it runs.
pub(crate) fn take_counted(terminals: &mut Terminals) {
    let some = (terminals.counted.len() / COUNTED_SWEEPS).max(COUNTED_MIN);
    terminals.dirty.extend(std::iter::from_fn(|| terminals.counted.pop_first()).take(some));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::testing::identity;
    use fanfold_wire::terminal::Beat;

    fn known(n: usize) -> Terminals {
        let mut terminals = Terminals::new(10_000);
        for i in 0..n {
            let beat = Beat { identity: identity("j", "b", 1), holds: Vec::new(), goodbye: false, journal_unavailable: false };
            terminals.beat(&TerminalId::new(&format!("T{i:05}")).unwrap(), beat, 0, 15_000);
        }
        terminals.dirty.clear();
        terminals
    }

    fn counted(terminals: &mut Terminals, counts: &ReportCounts) {
        let all: HashMap<TerminalId, &ReportCounts> = terminals.known.keys().map(|id| (id.clone(), counts)).collect();
        count(terminals, &serde_json::to_vec(&all).unwrap());
    }

    #[test]
    fn usual_counts_are_written_little_by_little_and_odd_ones_at_once() {
        let mut terminals = known(6_000);
        counted(&mut terminals, &ReportCounts { recorded: 1, ..ReportCounts::default() });
        assert!(terminals.dirty.is_empty(), "a report that was taken is no news");
        take_counted(&mut terminals);
        assert_eq!(terminals.dirty.len(), COUNTED_MIN);
        let mut sweeps = 1;
        while !terminals.counted.is_empty() {
            take_counted(&mut terminals);
            sweeps += 1;
        }
        assert_eq!((terminals.dirty.len(), sweeps), (6_000, 6_000 / COUNTED_MIN), "all are written in the end");
        terminals.dirty.clear();
        counted(
            &mut terminals,
            &ReportCounts {
                recorded: 1,
                refused: BTreeMap::from([("MALFORMED".to_owned(), 1)]).into(),
                ..ReportCounts::default()
            },
        );
        assert_eq!(terminals.dirty.len(), 6_000, "a refusal is");
    }
}
