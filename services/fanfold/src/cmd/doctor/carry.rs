//! Whether the log has room, and whether this build can fold what is in it.

use fanfold_domain::RULES_VERSION;
use fanfold_domain::rules::Rules;
use fanfold_wire::event::rules_of_submission;
use fanfold_wire::subjects::{LogSubject, SUBMISSIONS};
use futures::StreamExt;

use super::log::LOOKED_AT;
use super::{Check, bad, ok, warn};
use crate::host::room::{Fullness, used};
use crate::session::Session;

/// Plans named one by one.
const NAMED_MAX: usize = 5;

pub(super) async fn room(session: &Session) -> Check {
    const ADVICE: &str = "raise max_bytes of the stream FANFOLD, or move to a larger disk; nothing is lost meanwhile";
    let room = match session.ledger.room().await {
        Ok(Some(room)) => room,
        Ok(None) => return ok("room", "the log has no limit but the disk"),
        Err(error) => return bad("room", error, "see `log` above"),
    };
    match Fullness::of(Some(room)) {
        Fullness::Fine => ok("room", used(room)),
        Fullness::Nearly => warn("room", used(room), ADVICE),
        Fullness::Full => bad("room", format!("LOG_FULL: {}", used(room)), ADVICE),
    }
}

/// Looks at the plans submitted in the sequences the doctor looks at.
pub(super) async fn rules(session: &Session, last: u64, deep: bool) -> Check {
    const ADVICE: &str = "run services of the version of fanfold that submitted them, or a newer one; this one leaves them alone";
    let from = if deep { 1 } else { last.saturating_sub(LOOKED_AT - 1).max(1) };
    if last == 0 {
        return ok("rules", "no plans yet");
    }
    let mut submissions = match session.ledger.read(vec![SUBMISSIONS.to_owned()], from, last).await {
        Ok(submissions) => submissions,
        Err(error) => return bad("rules", error, "see `log` above"),
    };
    let (mut plans, mut unknown, mut named) = (0_u64, 0_u64, Vec::new());
    while let Some(stored) = submissions.next().await {
        let stored = match stored {
            Ok(stored) => stored,
            Err(error) => return bad("rules", error, "see `log` above"),
        };
        plans += 1;
        let rules = rules_of_submission(&stored.payload);
        if rules.is_some_and(|version| Rules::of(version).is_ok()) {
            continue;
        }
        unknown += 1;
        if let (true, Some(LogSubject::Plan { plan, .. })) = (named.len() < NAMED_MAX, LogSubject::parse(&stored.subject)) {
            named.push(format!("{plan} ({})", rules.map_or("unreadable".to_owned(), |version| version.to_string())));
        }
    }
    if unknown == 0 {
        return ok("rules", format!("{plans} plans looked at, all of rules up to {RULES_VERSION}"));
    }
    let found = format!("UNSUPPORTED_RULES: {unknown} of {plans} plans are not folded here: {}", named.join(", "));
    bad("rules", found, ADVICE)
}
