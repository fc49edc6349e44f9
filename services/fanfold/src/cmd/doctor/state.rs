//! The state bucket: how far it is, whether it is what its projector left, what was put right.

use fanfold_ledger::open::mark_at;
use fanfold_ledger::port::LedgerError;
use fanfold_wire::record::Checkpoint;

use super::{Check, bad, ok, warn};
use crate::render::format::number;
use crate::session::Session;

/// Events the state bucket may be behind while things are going on.
const LAG_FINE: u64 = 20_000;

/// The checkpoint, if there is one.
pub(super) async fn checkpoint(session: &Session) -> Result<Option<Checkpoint>, LedgerError> {
    let Some(entry) = session.ledger.get_checkpoint().await? else { return Ok(None) };
    let damaged = || LedgerError::Corrupt("the checkpoint's checksum is wrong".to_owned());
    Checkpoint::parse(&entry.value).ok_or_else(damaged).map(Some)
}

/// Sequence of the last event that changes a record: fences change none.
async fn last_foldable(session: &Session) -> Result<u64, LedgerError> {
    let plan = session.ledger.last_under("ff.plan.>").await?;
    let task = session.ledger.last_under("ff.task.>").await?;
    Ok(plan.into_iter().chain(task).map(|stored| stored.seq).max().unwrap_or(0))
}

/// How far behind the log it is, and whether that changes. While the log stands still only the projector's beat says that there is one.
pub(super) async fn lag(session: &Session, before: Result<Option<u64>, LedgerError>, is_heard: bool, waited: &str) -> Check {
    const ADVICE: &str =
        "start `fanfold up`, or `fanfold serve --role projector`; nothing is lost, records are written again from the log";
    let last = match last_foldable(session).await {
        Ok(last) => last,
        Err(error) => return bad("projector", error, ADVICE),
    };
    match (before, checkpoint(session).await.map(|c| c.map(|c| c.seq))) {
        (_, Err(error)) => bad("projector", error, ADVICE),
        (_, Ok(None)) if last == 0 && is_heard => ok("projector", "nothing to write yet"),
        (_, Ok(None)) if last == 0 => bad("projector", format!("none heard within {waited}, and it has never run here"), ADVICE),
        (_, Ok(None)) => bad("projector", "there is no checkpoint: it has never run here", ADVICE),
        (before, Ok(Some(now))) => {
            let behind = last.saturating_sub(now);
            let before = before.ok().flatten();
            // Where it was not known a moment ago it was made meanwhile.
            let moves = before.is_none_or(|b| now > b);
            let found = format!("checkpoint #{}, {} behind", number(now), number(behind));
            match (behind, moves) {
                (0, false) if !is_heard => bad("projector", format!("{found}, but none is heard within {waited}"), ADVICE),
                (0, _) => ok("projector", found),
                (_, false) => bad("projector", format!("{found}, and it does not move"), ADVICE),
                (1..=LAG_FINE, true) => ok("projector", found),
                (_, true) => warn("projector", found, "it catches up; what readers see is old until then"),
            }
        }
    }
}

/// Whether the checkpoint was made from this log, and what the projector has had to put right.
pub(super) async fn kept(session: &Session, last: u64) -> Vec<Check> {
    const BACK: &str = "the log lost its tail or is another one: restore a backup or a replica, or go on with what is there; \
        services fold it anew by themselves, and what HQ had decided after that point is forgotten";
    let Ok(Some(checkpoint)) = checkpoint(session).await else { return Vec::new() };
    let seq = checkpoint.seq;
    let mut checks = Vec::new();
    if seq > last && session.ledger.last_seq().await.is_ok_and(|last| seq > last) {
        checks.push(bad("log", format!("LOG_WENT_BACK: it ends at #{last}, the checkpoint says #{seq}"), BACK));
    } else if !checkpoint.event.is_empty()
        && let Ok(Some(mark)) = mark_at(session.ledger.as_ref(), seq).await
        && mark != checkpoint.event
    {
        checks.push(bad("log", format!("LOG_WENT_BACK: #{seq} is not the event the checkpoint was made from"), BACK));
    }
    let healed = checkpoint.healed.unwrap_or_default();
    if healed.log_went_back > 0 {
        checks.push(warn("log", format!("it has gone back {} times", number(healed.log_went_back)), BACK));
    }
    let repaired = healed.rewritten + healed.removed;
    checks.push(match (repaired, &checkpoint.trail) {
        (0, Some(_)) => ok("records", format!("compared with the log {} times, nothing was wrong", number(healed.audits))),
        (0, None) => warn("records", "not yet compared with the log to the end", "wait, or run `fanfold rebuild`"),
        _ => warn(
            "records",
            format!("{} were not what the log says and were put right; the last: {}", number(repaired), healed.last_key),
            "who else writes into fanfold-state? or the server lost the bucket's tail in a crash; `fanfold rebuild` compares again",
        ),
    });
    checks
}
