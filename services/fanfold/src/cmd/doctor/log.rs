//! The log: whether anything is missing from it, or from the documents it names.

use futures::StreamExt;

use super::{Check, bad, ok};
use crate::patience;
use crate::render::format::number;
use crate::session::Session;
use crate::verify::documents::examine;

/// Sequences looked at one by one unless everything is asked for.
pub(super) const LOOKED_AT: u64 = 100_000;

/// Every document that a summary names.
pub(super) async fn documents(session: &Session, last: u64) -> Check {
    const ADVICE: &str = "`fanfold rebuild` writes them anew from the log; then look after the server's disk";
    match examine(session.ledger.as_ref(), None, last, false).await {
        Ok(found) if found.bad == 0 => ok("documents", format!("{} of summaries, all whole", number(found.whole))),
        Ok(found) => bad(
            "documents",
            format!("{} of {} are not what the log says: {}", number(found.bad), number(found.bad + found.whole), found.names()),
            ADVICE,
        ),
        Err(error) => bad("documents", error, ADVICE),
    }
}

/// Sequences the server says are missing, and those that do not come although it says they are there.
pub(super) async fn holes(session: &Session, last: u64, deep: bool) -> Check {
    const ADVICE: &str =
        "a damaged store: restore the stream from a backup or a replica; the accounts of plans that ran there say `holes`";
    if last == 0 {
        return ok("holes", "the log is empty");
    }
    let from = if deep { 1 } else { last.saturating_sub(LOOKED_AT - 1).max(1) };
    let mut events = match session.ledger.read(vec!["ff.>".to_owned()], from, last).await {
        Ok(events) => events,
        Err(error) => return bad("holes", error, ADVICE),
    };
    let mut came = 0;
    while let Some(stored) = events.next().await {
        patience::alive();
        match stored {
            Ok(_) => came += 1,
            Err(error) => return bad("holes", error, ADVICE),
        }
    }
    // What did not come is among them from here on.
    let gaps = match session.ledger.gaps().await {
        Ok(gaps) => gaps,
        Err(error) => return bad("holes", error, ADVICE),
    };
    if let Some((first, to)) = gaps.first() {
        let more = if gaps.len() > 1 { format!(", and {} more ranges", number(gaps.len() as u64 - 1)) } else { String::new() };
        return bad("holes", format!("#{first} to #{to} are missing{more}"), ADVICE);
    }
    if came != last + 1 - from {
        return bad(
            "holes",
            format!("{} of #{from} to #{last} did not come", number((last + 1 - from).saturating_sub(came))),
            ADVICE,
        );
    }
    ok("holes", format!("none: {} events from #{from} to #{last}", number(came)))
}
