//! When the barrier fires, when updates are due, when a plan closes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::Convergence::{Close, DeadlineReached, Nothing, RequestClose, Summarise, WaitUntil};
use super::{Convergence, REVISIONS_MAX, next_step};
use crate::plan::SummaryKind::{Complete, Final, Partial, Update};
use crate::plan::{Moment, PlanEvent, RequeueSelector};
use crate::testing::{DEADLINE_MS, EXPIRES_MS, SEALED_MS, Said, Story, asked, by, hq};

fn next(story: &Story, ms: i64) -> Convergence {
    next_step(&story.view, SEALED_MS + ms)
}

fn wait(ms: i64) -> Convergence {
    WaitUntil(SEALED_MS + ms)
}

fn success() -> Vec<Said> {
    vec![hq::dispatched(1), by::succeeded(1)]
}

fn failure() -> Vec<Said> {
    vec![hq::dispatched(1), by::failed(1, "BIZ_1")]
}

/// Two tasks, one in, the partial summary written at the deadline.
fn partial() -> Story {
    let mut story = Story::new(2);
    story.all(0, &success()).at(DEADLINE_MS).plan(PlanEvent::DeadlineReached).summarised(1, Partial);
    story
}

fn is_close(step: Convergence) -> bool {
    matches!(step, RequestClose(_))
}

#[test]
fn an_unsealed_plan_has_no_barrier() {
    assert_eq!(next(&Story::unsealed(1, |_| {}), EXPIRES_MS), Nothing);
}

/// A plan of three of which the log has lost a chunk with one target.
fn short() -> Story {
    let mut story = Story::unsealed(2, |_| {});
    let seal = crate::plan::Seal { count: 3, sha256: "00".into(), by: "test".into() };
    story.plan(PlanEvent::Sealed(seal));
    story
}

#[test]
fn a_plan_that_has_lost_targets_is_never_summed_up_and_ends_when_it_is_closed_or_expires() {
    let mut story = short();
    assert_eq!(next(&story, 5), wait(EXPIRES_MS));
    story.all(0, &success()).all(1, &success());
    assert_eq!(next(&story, DEADLINE_MS + 1), wait(EXPIRES_MS), "not by itself, and without a summary");
    assert!(is_close(next(&story, EXPIRES_MS)));
    story.plan(PlanEvent::CloseRequested(asked()));
    assert_eq!(next(&story, 5), Close);
    story.plan(PlanEvent::Closed);
    assert_eq!(next(&story, EXPIRES_MS), Nothing);
    assert!(story.view.is_over());
    let mut out = short();
    out.all(0, &[hq::dispatched(1)]).plan(PlanEvent::CloseRequested(asked()));
    assert_eq!(next(&out, 5), Nothing, "a task of it is out");
    let mut unsealed = Story::unsealed(1, |_| {});
    unsealed.plan(PlanEvent::CloseRequested(asked()));
    assert_eq!(next(&unsealed, 5), Close, "nobody concludes its tasks");
}

#[test]
fn the_final_summary_of_a_plan_whose_list_was_lost_later_is_still_its_last() {
    let mut story = short();
    story.all(0, &success()).all(1, &success()).plan(PlanEvent::CloseRequested(asked())).plan(PlanEvent::Closed);
    let closed_seq = story.view.plan.closed_seq;
    assert_eq!(story.view.plan.final_seq, closed_seq);
    story.summarised(1, Update);
    assert!(story.view.plan.summary.is_none() && story.view.plan.ignored == 1, "only the last word may follow");
    story.summarised(4, Final);
    let revision = |story: &Story| story.view.plan.summary.as_ref().map(|(s, _, _)| s.this.revision);
    assert_eq!((revision(&story), story.view.plan.final_seq), (Some(4), Some(story.view.last_seq)));
    assert!(story.view.plan.final_seq > closed_seq);
    story.summarised(5, Final);
    assert_eq!(revision(&story), Some(4), "there is one");
}

#[test]
fn all_in_before_the_deadline_is_complete() {
    let mut story = Story::new(2);
    story.all(0, &success());
    assert_eq!(next(&story, 5), wait(DEADLINE_MS));
    story.at(5).all(1, &failure());
    assert_eq!(next(&story, 5), Summarise(Complete));
}

#[test]
fn complete_is_preferred_when_convergence_was_away_over_the_deadline() {
    let mut story = Story::new(1);
    story.at(DEADLINE_MS - 1).all(0, &success());
    assert_eq!(next(&story, DEADLINE_MS + 60_000), Summarise(Complete));
    // A marked attempt is no new end.
    story.at(DEADLINE_MS + 5).say(0, &hq::stop(1));
    assert_eq!(next(&story, DEADLINE_MS + 60_000), Summarise(Complete));
}

#[test]
fn what_ended_after_the_deadline_was_not_complete_though_nobody_looked() {
    let mut story = Story::new(2);
    story.all(0, &success()).at(DEADLINE_MS).all(1, &success());
    assert_eq!(next(&story, DEADLINE_MS + 60_000), DeadlineReached);
    story.plan(PlanEvent::DeadlineReached);
    assert_eq!(next(&story, DEADLINE_MS + 60_000), Summarise(Partial));
    story.summarised(1, Partial);
    assert!(is_close(next(&story, DEADLINE_MS + 60_000)));
}

#[test]
fn a_log_whose_clock_is_ahead_does_not_leave_a_plan_without_its_first_summary() {
    let mut story = Story::new(1);
    story.at(DEADLINE_MS + 3).all(0, &success());
    assert_eq!(next(&story, DEADLINE_MS - 1), Summarise(Complete));
}

#[test]
fn the_deadline_fires_and_then_the_partial_summary() {
    let mut story = Story::new(2);
    story.all(0, &success());
    assert_eq!(next(&story, DEADLINE_MS - 1), wait(DEADLINE_MS));
    assert_eq!(next(&story, DEADLINE_MS), DeadlineReached);
    assert_eq!(next(&story, EXPIRES_MS + 1), DeadlineReached, "also when it passed while nobody was there");
    story.plan(PlanEvent::DeadlineReached);
    assert_eq!(next(&story, DEADLINE_MS), Summarise(Partial));
    // Everything coming in between doesn't make it complete: the log's order decides.
    story.all(1, &success());
    assert_eq!(next(&story, DEADLINE_MS), Summarise(Partial));
}

#[test]
fn absolute_moments_count_as_they_stand() {
    let story = Story::with(1, |spec| {
        spec.deadline = Moment::AtMs(SEALED_MS + 7);
        spec.expires = Moment::AtMs(SEALED_MS + 5);
    });
    assert_eq!(next(&story, 0), wait(5));
    assert!(is_close(next(&story, 5)), "an expiry before the deadline closes first");
    assert_eq!(next(&story, 7), DeadlineReached);
    let passed = Story::with(1, |spec| spec.deadline = Moment::AtMs(SEALED_MS - 7));
    assert_eq!(next(&passed, 0), DeadlineReached, "an absolute deadline may be over at the seal");
}

#[test]
fn updates_come_only_when_a_row_changed() {
    let mut story = partial();
    assert_eq!(next(&story, DEADLINE_MS + 500_000), wait(EXPIRES_MS));
    story.at(DEADLINE_MS + 500_000).all(1, &[hq::dispatched(1)]);
    assert_eq!(next(&story, DEADLINE_MS + 500_000), Summarise(Update));
    story.summarised(2, Update).at(DEADLINE_MS + 900_000).all(1, &[by::started(1), by::progressed(1, 0), by::started(1)]);
    assert_eq!(next(&story, DEADLINE_MS + 900_000), wait(EXPIRES_MS), "absorbed reports and steps aren't in rows");
}

#[test]
fn updates_back_off_to_five_minutes() {
    let mut story = partial();
    let pauses_s = [2, 4, 8, 16, 32, 64, 128, 256, 300, 300];
    let mut now = DEADLINE_MS;
    for (k, pause_s) in (0..).zip(pauses_s) {
        let revision = k + 1;
        story.all(1, &[hq::deferred(Some(i64::from(revision))), hq::released()]);
        assert_eq!(next(&story, now), wait(now + pause_s * 1_000), "update {k}");
        assert_eq!(next(&story, now + pause_s * 1_000 - 1), wait(now + pause_s * 1_000));
        now += pause_s * 1_000;
        assert_eq!(next(&story, now), Summarise(Update));
        story.at(now).summarised(revision + 1, Update);
    }
}

#[test]
fn the_last_of_a_hundred_revisions_is_kept_for_closing() {
    let mut story = partial();
    let later = DEADLINE_MS + 1_000_000;
    story.summarised(REVISIONS_MAX - 2, Update).all(1, &[hq::deferred(None)]);
    assert_eq!(next(&story, later), Summarise(Update), "the 99th");
    story.summarised(REVISIONS_MAX - 1, Update).all(1, &[hq::released(), hq::expired(0)]);
    assert_eq!(next(&story, later), wait(EXPIRES_MS), "no update is the 100th");
    story.plan(PlanEvent::CloseRequested(asked())).plan(PlanEvent::Closed);
    assert_eq!(next(&story, later), Summarise(Final));
}

#[test]
fn absurd_revisions_in_the_log_break_nothing() {
    for revision in [0, 1, 64, 98, u32::MAX] {
        let mut story = partial();
        story.summarised(revision, Update).all(1, &[hq::deferred(None)]);
        assert!(matches!(next(&story, DEADLINE_MS), WaitUntil(_)), "{revision}");
    }
}

#[test]
fn a_plan_that_succeeded_closes_at_once() {
    let mut story = Story::new(2);
    story.all(0, &success()).all(1, &[hq::cancel(0)]).summarised(1, Complete);
    assert!(is_close(next(&story, 1)));
    story.plan(PlanEvent::CloseRequested(asked()));
    assert_eq!(next(&story, 1), Close);
    story.plan(PlanEvent::Closed);
    assert_eq!(next(&story, 1), Summarise(Final));
    story.summarised(2, Final);
    assert_eq!(next(&story, 1), Nothing);
    assert_eq!(next(&story, EXPIRES_MS), Nothing);
}

#[test]
fn failures_stay_open_for_requeue_until_expiry() {
    let mut story = Story::new(1);
    story.all(0, &failure()).summarised(1, Complete);
    assert_eq!(next(&story, 1), wait(DEADLINE_MS));
    assert_eq!(next(&story, DEADLINE_MS), DeadlineReached);
    story.plan(PlanEvent::DeadlineReached);
    assert_eq!(next(&story, EXPIRES_MS - 1), wait(EXPIRES_MS));
    assert!(is_close(next(&story, EXPIRES_MS)));
    story.plan(PlanEvent::CloseRequested(asked()));
    assert_eq!(next(&story, EXPIRES_MS), Close);
}

#[test]
fn a_close_waits_until_the_dispatcher_has_ended_every_task() {
    let mut story = partial();
    story.plan(PlanEvent::CloseRequested(asked()));
    assert_eq!(next(&story, EXPIRES_MS), Nothing);
    story.all(1, &[hq::expired(0)]);
    assert_eq!(next(&story, EXPIRES_MS), Close);
}

#[test]
fn a_close_that_is_under_way_at_the_deadline_still_has_its_first_summary() {
    let mut story = Story::new(2);
    story.all(0, &success()).plan(PlanEvent::CloseRequested(asked()));
    assert_eq!(next(&story, DEADLINE_MS - 1), Nothing, "the dispatcher has not ended the other one yet");
    let mut nobody_looked = story.clone();
    nobody_looked.at(DEADLINE_MS).all(1, &[hq::expired(0)]);
    assert_eq!(next(&nobody_looked, DEADLINE_MS), DeadlineReached, "not the final one as the first");
    assert_eq!(next(&story, DEADLINE_MS), DeadlineReached);
    story.at(DEADLINE_MS).plan(PlanEvent::DeadlineReached);
    assert_eq!(next(&story, DEADLINE_MS), Summarise(Partial));
    story.summarised(1, Partial);
    assert_eq!(next(&story, DEADLINE_MS), Nothing);
    story.all(1, &[hq::expired(0)]);
    assert_eq!(next(&story, DEADLINE_MS), Close);
}

#[test]
fn a_cancelled_plan_closes_once_everything_has_ended() {
    let mut story = Story::new(2);
    story.all(0, &failure()).all(1, &[hq::dispatched(1)]).plan(PlanEvent::CancelRequested(asked())).all(1, &[hq::cancel(1)]);
    story.plan(PlanEvent::Cancelled);
    assert_eq!(next(&story, 1), wait(DEADLINE_MS), "an attempt has its grace");
    story.all(1, &[hq::cancelled()]);
    assert_eq!(next(&story, 1), Summarise(Complete));
    story.summarised(1, Complete);
    assert!(is_close(next(&story, 1)), "with a FAILED task too");
}

#[test]
fn no_plan_completes_or_closes_while_a_requeue_is_due() {
    let mut story = Story::new(1);
    story.all(0, &failure()).plan(PlanEvent::RequeueRequested(RequeueSelector::Failed { codes: vec![] }));
    assert_eq!(next(&story, 1), wait(DEADLINE_MS), "not complete");
    story.summarised(1, Complete).plan(PlanEvent::CloseRequested(asked()));
    assert_eq!(next(&story, 1), Nothing, "not closed");
    story.say(0, &hq::requeued(3));
    assert_eq!(next(&story, 1), Nothing);
    story.say(0, &hq::expired(0));
    assert_eq!(next(&story, 1), Close);
}

#[test]
fn a_closed_plan_only_owes_its_final_summary() {
    let mut story = partial();
    story.all(1, &[hq::expired(0)]).plan(PlanEvent::CloseRequested(asked())).plan(PlanEvent::Closed);
    for ms in [0, DEADLINE_MS, EXPIRES_MS] {
        assert_eq!(next(&story, ms), Summarise(Final));
    }
}
