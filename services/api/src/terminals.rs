//! The registry, as the dispatcher keeps it.

use fanfold_wire::api::{ApiError, TerminalList};
use fanfold_wire::record::TerminalRecord;
use futures::StreamExt;

use crate::{Deps, ledger_error};

/// `terminal.list`
pub(crate) async fn list(deps: &Deps) -> Result<TerminalList, ApiError> {
    let mut stored = deps.ledger.list_terminals("terminal.*").await.map_err(|e| ledger_error(&e))?;
    let mut terminals: Vec<TerminalRecord> = Vec::new();
    while let Some(entry) = stored.next().await {
        let entry = entry.map_err(|e| ledger_error(&e))?;
        terminals.extend(serde_json::from_slice::<TerminalRecord>(&entry.value).ok());
    }
    terminals.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(TerminalList { terminals })
}
