//! What doctor says of the terminals: doubled ids, journals that can't be written, floods.

use fanfold_ledger::port::Ledger;
use fanfold_wire::record::TerminalRecord;

use super::{Check, Health, bad, ok, warn};
use crate::cmd::terminal;
use crate::render::format::number;

/// Terminals named in one finding.
const NAMED_MAX: usize = 10;

/// Looks at the registry.
pub(super) async fn check(ledger: &dyn Ledger) -> Vec<Check> {
    match terminal::all(ledger).await {
        Ok(list) => judge(&list.terminals),
        Err(error) => vec![bad("registry", error, "start `fanfold up`, or `fanfold serve` with the roles api and dispatcher")],
    }
}

fn named(terminals: &[&TerminalRecord]) -> String {
    let names: Vec<&str> = terminals.iter().take(NAMED_MAX).map(|t| t.id.as_str()).collect();
    let more = terminals.len().saturating_sub(NAMED_MAX);
    let rest = if more > 0 { format!(" and {} more", number(more as u64)) } else { String::new() };
    format!("{}{rest}", names.join(", "))
}

/// What is to be said of these terminals.
pub fn judge(terminals: &[TerminalRecord]) -> Vec<Check> {
    let of = |wanted: fn(&TerminalRecord) -> bool| -> Vec<&TerminalRecord> { terminals.iter().filter(|t| wanted(t)).collect() };
    let limited = |t: &TerminalRecord| t.messages_limited + t.reports.deferred.get("RATE_LIMITED").copied().unwrap_or(0) > 0;
    let mut checks = Vec::new();
    let mut say = |found: Vec<&TerminalRecord>, what: &'static str, words: &str, advice: &'static str| {
        if !found.is_empty() {
            checks.push(warn(what, format!("{words}: {}", named(&found)), advice));
        }
    };
    say(
        of(|t| t.id_in_use),
        "twins",
        "TERMINAL_ID_IN_USE, two processes under one id, which gets nothing",
        "stop one of the two, then `fanfold terminal replace ID`; `fanfold terminal ls` shows both journals",
    );
    say(
        of(|t| !t.id_in_use && t.rival_journal.is_some()),
        "strangers",
        "a process that was not let in uses the id",
        "stop it, or let it in with `fanfold terminal replace ID --journal JOURNAL`",
    );
    say(
        of(|t| t.online && t.journal_unavailable),
        "journals",
        "JOURNAL_UNAVAILABLE, they take no work until their journal can be written",
        "free disk space there; they go on by themselves",
    );
    say(
        terminals.iter().filter(|t| limited(t)).collect(),
        "floods",
        "RATE_LIMITED, they sent more than their share",
        "update or stop the software there; nothing else is delayed by it",
    );
    let online = terminals.iter().filter(|t| t.online).count();
    let found = format!("{} known, {} online", number(terminals.len() as u64), number(online as u64));
    let all_well = checks.iter().all(|c| c.health == Health::Ok);
    checks.insert(0, if all_well { ok("registry", found) } else { ok("registry", format!("{found}; see below")) });
    checks
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn record(text: &str) -> TerminalRecord {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_is_wrong_with_terminals_is_named_with_a_way_out() {
        let fine = record(r#"{"id":"S1","online":true,"reports":{"refused":{"PLAN_CLOSED":2}}}"#);
        let checks = judge(std::slice::from_ref(&fine));
        assert_eq!((checks.len(), checks[0].health, checks[0].found.as_str()), (1, Health::Ok, "1 known, 1 online"));
        let all = [
            fine,
            record(r#"{"id":"S2","online":true,"idInUse":true,"rivalJournal":"j"}"#),
            record(r#"{"id":"S3","rivalJournal":"j"}"#),
            record(r#"{"id":"S4","online":true,"journalUnavailable":true}"#),
            record(r#"{"id":"S5","messagesLimited":7}"#),
            record(r#"{"id":"S6","reports":{"deferred":{"RATE_LIMITED":1}}}"#),
        ];
        let said: Vec<(&str, String)> = judge(&all).into_iter().skip(1).map(|c| (c.what, c.found)).collect();
        let who = |what| said.iter().find(|(w, _)| *w == what).and_then(|(_, f)| f.rsplit(": ").next()).unwrap();
        assert_eq!(["twins", "strangers", "journals", "floods"].map(who), ["S2", "S3", "S4", "S5, S6"]);
        let many: Vec<TerminalRecord> = (0..30).map(|n| record(&format!(r#"{{"id":"S{n}","idInUse":true}}"#))).collect();
        assert!(judge(&many)[1].found.ends_with("S9 and 20 more"), "{:?}", judge(&many)[1]);
    }
}
