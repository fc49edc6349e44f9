//! Syncs: what is handed out, stopped, kept and forgotten.

use super::*;

#[test]
fn a_sync_answer_older_than_what_is_known_is_discarded_whole() {
    let mut b = Bench::new(1);
    b.live("p", 1);
    let known = b.holds.known_seq();
    let (actions, next) = b.sync(|a| {
        a.as_of_seq = known - 1;
        a.stop = vec![at("p", 1)];
        a.open = vec![open("q", 1, 5, MINE)];
    });
    assert_eq!((actions.as_str(), next), ("", SyncNext::Soon));
    assert_eq!(b.holds.counts().syncs_discarded, 1);
    assert_eq!(b.sync(|a| a.stop = vec![at("p", 1), at("x", 1)]), ("stop p/1".into(), SyncNext::Normal));
}

#[test]
fn a_sync_hands_out_what_was_missed_to_this_journal_whatever_the_boot() {
    let mut b = Bench::new(2);
    let (actions, next) = b.sync(|a| {
        a.open = vec![open("p", 3, 90, ("journal-1", "old")), open("q", 1, 91, ("journal-0", "boot-1")), open("r", 1, 92, MINE)];
    });
    assert_eq!((actions.as_str(), next), ("run p/3, run r/1", SyncNext::Normal));
    assert_eq!(b.sync(|a| a.open = vec![open("p", 3, 90, MINE)]).0, "", "again is once");
    let (_, next) = Bench::new(1).sync(|a| a.open = (0..256).map(|i| open(&format!("p{i}"), 1, 90, MINE)).collect());
    assert_eq!(next, SyncNext::Soon, "a full list: there may be more");
    let (actions, next) = b.sync(|a| (a.open, a.retry_after_ms) = (vec![open("s", 1, 93, MINE)], Some(200)));
    assert_eq!((actions.as_str(), next), ("", SyncNext::Later(Some(200))), "and more is under way");
    assert_eq!(b.state("s", 1), Some(HoldState::Queued));
}

#[test]
fn other_sync_answers_take_and_change_nothing() {
    for (status, retry, expected) in [
        (SyncStatus::Later, Some(500), SyncNext::Later(Some(500))),
        (SyncStatus::Later, None, SyncNext::Later(None)),
        (SyncStatus::TerminalIdInUse, None, SyncNext::InUse),
        (SyncStatus::Unknown, None, SyncNext::Normal),
    ] {
        let mut b = Bench::new(2);
        b.live("p", 1);
        let got = b.sync(|a| {
            a.status = status;
            a.retry_after_ms = retry;
            a.stop = vec![at("p", 1)];
            a.open = vec![open("q", 1, 5, MINE)];
        });
        assert_eq!(got, (String::new(), expected), "{status:?}");
    }
}

#[test]
fn a_settled_attempt_stays_until_hq_counts_it_no_more() {
    let mut b = Bench::new(1);
    b.live("p", 1);
    b.ended("p", 1, EndKind::Failed);
    b.recorded("p", 1, EndKind::Failed);
    assert_eq!(b.sync(|a| a.keep = vec![at("p", 1)]).0, "", "HQ hasn't got the report yet");
    assert_eq!(b.state("p", 1), Some(HoldState::Settled));
    assert!(b.holds.plans_to_ask().is_empty(), "something is held of it");
    assert_eq!(b.sync(|_| ()).0, "reduce p/1");
    assert_eq!(b.state("p", 1), None);
    assert_eq!(b.holds.plans_to_ask(), [task("p").plan]);
    assert_eq!(b.sync(|a| a.open = vec![open("p", 1, 101, MINE)]).0, "", "a stale hand-out doesn't run");
    assert_eq!(b.sync(|a| a.closed_plans = vec![task("p").plan]).0, "forget p");
    assert_eq!((b.holds.tasks(), b.holds.plans_to_ask().len()), (0, 0));
}

#[test]
fn a_repeat_of_what_was_forgotten_with_its_plan_does_not_run() {
    let mut b = Bench::new(1);
    b.live("p", 1);
    let dispatch_seq = b.seq;
    b.ended("p", 1, EndKind::Succeeded);
    b.recorded("p", 1, EndKind::Succeeded);
    b.sync(|_| ());
    assert_eq!(b.sync(|a| a.closed_plans = vec![task("p").plan]).0, "forget p");
    let at_close = b.seq;
    b.seq = dispatch_seq - 1;
    assert_eq!(b.live("p", 1), "", "its command arrives once more");
    assert_eq!((b.holds.tasks(), b.holds.counts().left_to_sync, b.holds.wants_sync()), (0, 1, true));
    b.seq = at_close;
    assert_eq!(
        b.sync(|a| a.open = vec![open("q", 1, dispatch_seq, MINE)]).0,
        "run q/1",
        "one that is still open comes by a sync"
    );
    assert!(!b.holds.wants_sync());
    assert_eq!(b.live("r", 1), "", "and later ones come live");
    assert_eq!(b.ended("q", 1, EndKind::Failed), "send q/1 Failed, run r/1");
}

#[test]
fn after_a_restore_of_hq_what_it_forgot_counts_as_not_done_and_no_attempt_runs_twice() {
    let mut b = Bench::new(3);
    for plan in ["done", "open", "early"] {
        b.live(plan, 1);
    }
    b.ended("early", 1, EndKind::Succeeded);
    b.recorded("early", 1, EndKind::Succeeded);
    let early = b.holds.known_seq();
    b.ended("done", 1, EndKind::Succeeded);
    b.recorded("done", 1, EndKind::Succeeded);
    let known = b.holds.known_seq();
    assert!(early < known);
    let restored = |a: &mut SyncAnswer, end| {
        a.status = SyncStatus::Later;
        a.retry_after_ms = Some(200);
        a.as_of_seq = end;
        a.log_end_seq = Some(end);
    };
    assert_eq!(b.sync(|a| restored(a, known)).0, "", "HQ knows as much: nothing was forgotten");
    assert_eq!(b.sync(|a| restored(a, early)), ("reduce done/1".into(), SyncNext::Later(Some(200))));
    assert_eq!((b.holds.known_seq(), b.holds.counts().restores_seen), (early, 1));
    assert_eq!((b.state("early", 1), b.state("open", 1)), (Some(HoldState::Settled), Some(HoldState::Running)));
    let again = |a: &mut SyncAnswer| {
        a.as_of_seq = early;
        a.open = vec![open("done", 1, early, MINE), open("open", 1, early, MINE)];
    };
    assert_eq!(b.sync(again), ("reduce early/1".into(), SyncNext::Normal), "these attempts were begun once");
    let next = |a: &mut SyncAnswer| {
        a.as_of_seq = early + 1;
        a.open = vec![open("done", 2, early + 1, MINE)];
    };
    assert_eq!(b.sync(next).0, "run done/2", "HQ has no result, so the work is done again, as another attempt");
}

#[test]
fn a_valid_success_that_hq_still_counts_as_open_from_a_later_view_was_lost_by_hq() {
    for (end, valid, expected) in [
        (EndKind::Succeeded, Some(true), ("reduce p/1", SyncNext::Soon)),
        (EndKind::Succeeded, Some(false), ("", SyncNext::Normal)),
        (EndKind::Failed, Some(true), ("", SyncNext::Normal)),
    ] {
        let mut b = Bench::new(1);
        b.live("p", 1);
        b.ended("p", 1, end);
        b.answered("p", 1, end, ReportStatus::Recorded, valid, None);
        let known = b.holds.known_seq();
        let keep = |a: &mut SyncAnswer| {
            a.as_of_seq = known;
            a.keep = vec![at("p", 1)];
        };
        let (actions, next) = b.sync(keep);
        assert_eq!((actions.as_str(), next), expected, "{end:?} {valid:?}");
    }
}

#[test]
fn a_closed_plan_with_something_unanswered_is_kept() {
    let mut b = Bench::new(1);
    b.live("p", 1);
    b.ended("p", 1, EndKind::Failed);
    assert_eq!(b.sync(|a| a.closed_plans = vec![task("p").plan]).0, "");
    assert_eq!(b.holds.tasks(), 1);
}

#[test]
fn plans_are_asked_about_in_turns() {
    let rows = (0..300).map(|i| row(&format!("p{i:03}"), 1, None)).collect();
    let (mut b, _) = Bench::with(1, rows);
    let (first, second) = (b.holds.plans_to_ask(), b.holds.plans_to_ask());
    assert_eq!((first.len(), first[0].as_str(), second[0].as_str()), (256, "p000", "p256"));
    let both: std::collections::BTreeSet<_> = first.into_iter().chain(second).collect();
    assert_eq!(both.len(), 300);
}

#[test]
fn what_was_given_up_is_not_handed_out_again_from_an_older_view_also_after_a_restart() {
    // Ended, answered, reduced and forgotten with its plan; the end that carries no sequence is the hardest.
    for (status, code) in [(ReportStatus::Recorded, None), (ReportStatus::Refused, Some("PLAN_CLOSED"))] {
        for forgotten in [false, true] {
            let mut b = Bench::new(1);
            b.live("p", 1);
            let dispatch_seq = b.seq;
            b.ended("p", 1, EndKind::Succeeded);
            b.answered("p", 1, EndKind::Succeeded, status, Some(true), code);
            b.seq += 10;
            assert_eq!(b.sync(|_| ()).0, "reduce p/1");
            if forgotten {
                b.seq += 10;
                assert_eq!(b.sync(|a| a.closed_plans = vec![task("p").plan]).0, "forget p");
            }
            assert_eq!(b.known_seq, b.seq, "the journal is told with it how much the view included");
            let rows = if forgotten { Vec::new() } else { vec![row("p", 1, None)] };
            let (restarted, _) = Bench::restarted(1, rows, b.known_seq);
            for (when, mut b) in [("at once", b), ("after a restart", restarted)] {
                let stale = |a: &mut SyncAnswer| {
                    a.as_of_seq = dispatch_seq + 1;
                    a.closed_plans = vec![task("p").plan];
                    a.open = vec![open("p", 1, dispatch_seq, MINE), open("p", 2, dispatch_seq + 1, MINE)];
                };
                let said = format!("{status:?} {forgotten} {when}");
                assert_eq!(b.sync(stale), (String::new(), SyncNext::Soon), "{said}: neither again, nor after its success");
                let known = b.known_seq;
                assert_eq!(b.sync(|a| a.open = vec![open("q", 1, known, MINE)]).0, "run q/1", "{said}");
            }
        }
    }
}

#[test]
fn a_restore_of_hq_lowers_what_the_journal_knows() {
    let (mut b, _) = Bench::restarted(1, vec![row("p", 1, None)], 500);
    assert_eq!(b.holds.known_seq(), 500, "so that HQ can see that it knows less");
    let restored = |a: &mut SyncAnswer| {
        a.status = SyncStatus::Later;
        a.log_end_seq = Some(300);
    };
    assert_eq!(b.sync(restored).0, "");
    assert_eq!((b.holds.known_seq(), b.known_seq), (300, 300), "or every later answer would be taken for a stale one");
    assert_eq!(b.sync(|a| (a.as_of_seq, a.open) = (310, vec![open("p", 2, 305, MINE)])).0, "run p/2");
}
