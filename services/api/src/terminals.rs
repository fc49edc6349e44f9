//! The registry, as the dispatcher keeps it.

use fanfold_wire::api::{ApiError, TerminalList, TerminalListRequest};
use fanfold_wire::record::TerminalRecord;

use crate::{Sources, ledger_error};

const PAGE_MAX: u32 = 10_000;
const PAGE: u32 = 1_000;

/// `terminal.list`
pub(crate) async fn list(deps: &Sources, request: TerminalListRequest) -> Result<TerminalList, ApiError> {
    let limit = request.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX) as usize;
    let after = request.after.as_ref().map(|id| id.as_str());
    let found = deps.terminals.records(deps.ledger.as_ref(), after, limit + 1).await.map_err(|e| ledger_error(&e))?;
    let mut terminals: Vec<TerminalRecord> = found.into_iter().map(|(_, record)| record).collect();
    let fits = crate::fitting(&terminals, deps.ledger.max_payload()).min(limit);
    let more = terminals.len() > fits;
    terminals.truncate(fits);
    let next = terminals.last().filter(|_| more).map(|r| r.id.clone());
    Ok(TerminalList { terminals, next })
}
