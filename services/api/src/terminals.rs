//! The registry, as the dispatcher keeps it.

use std::collections::BTreeMap;

use fanfold_domain::ids::TerminalId;
use fanfold_wire::api::{ApiError, TerminalList, TerminalListRequest};
use fanfold_wire::record::TerminalRecord;
use futures::StreamExt;

use crate::{Deps, ledger_error};

const PAGE_MAX: u32 = 10_000;
const PAGE: u32 = 1_000;

/// `terminal.list`
pub(crate) async fn list(deps: &Deps, request: TerminalListRequest) -> Result<TerminalList, ApiError> {
    let mut stored = deps.ledger.list_terminals("terminal.*").await.map_err(|e| ledger_error(&e))?;
    let mut all: BTreeMap<TerminalId, TerminalRecord> = BTreeMap::new();
    while let Some(entry) = stored.next().await {
        let entry = entry.map_err(|e| ledger_error(&e))?;
        if let Ok(record) = serde_json::from_slice::<TerminalRecord>(&entry.value)
            && request.after.as_ref().is_none_or(|after| record.id > *after)
        {
            all.insert(record.id.clone(), record);
        }
    }
    let limit = request.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX) as usize;
    let mut terminals: Vec<TerminalRecord> = all.into_values().take(limit + 1).collect();
    let fits = crate::fitting(&terminals, deps.ledger.max_payload()).min(limit);
    let more = terminals.len() > fits;
    terminals.truncate(fits);
    let next = terminals.last().filter(|_| more).map(|r| r.id.clone());
    Ok(TerminalList { terminals, next })
}
