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
        if let Some(terminal) = terminals.known.get_mut(&id) {
            terminal.reports = reports;
            terminals.dirty.insert(id);
        }
    }
}
