//! Superseded attempts, late ends, bounds of the lists, and the bookkeeping of sequences.

use crate::event::TimeoutKind::Run;
use crate::fold::{Effect, fold};
use crate::task::TaskState::{Cancelled, Failed, Pending, Running, Succeeded};
use crate::task::{ATTEMPTS_KEPT, Outcome, STEPS_MAX};
use crate::testing::{SEALED_MS, Story, by, given, hq, target};

fn open(story: &Story) -> Vec<u32> {
    story.task(0).superseded_open().map(|a| a.number).collect()
}

#[test]
fn a_superseded_attempt_counts_until_it_ends() {
    let mut story = given(&[hq::dispatched(1), by::started(1), hq::dispatched(2)]);
    assert_eq!(open(&story), [2]);
    assert!(story.view.superseded.contains(0));
    story.say(0, &hq::stop(2));
    assert_eq!(open(&story), [2], "asked to stop is not stopped");
    let when = story.when(by::stopped(2));
    when.absorbed(Effect::Stale);
    assert_eq!(when.story.task(0).attempts[1].outcome, Some(Outcome::Stopped));
    assert!(open(&when.story).is_empty() && !when.story.view.superseded.contains(0));
}

#[test]
fn a_superseded_attempt_fails_without_moving_the_task() {
    let when = given(&[hq::dispatched(1), hq::dispatched(2)]).when(by::failed(2, "BIZ_1"));
    let task = when.absorbed(Effect::Stale);
    assert_eq!(task.attempts[1].error.as_ref().unwrap().code, "BIZ_1", "the failure chain is whole");
    when.story.when(by::failed(2, "BIZ_1")).absorbed(Effect::Duplicate);
}

#[test]
fn a_superseded_attempt_may_be_the_one_that_succeeds() {
    let when = given(&[hq::dispatched(1), by::started(1), hq::dispatched(2)]).when(by::succeeded(2));
    when.then(Succeeded);
    assert_eq!(open(&when.story), [1]);
}

#[test]
fn numbers_go_on_above_a_superseded_attempt() {
    let given = given(&[hq::dispatched(1), hq::dispatched(2), by::failed(1, "X")]);
    given.clone().when(hq::dispatched(2)).absorbed(Effect::Ignored);
    let when = given.when(hq::dispatched(3));
    assert_eq!(when.story.task(0).attempt, 3);
    assert_eq!(open(&when.story), [2]);
}

#[test]
fn an_attempt_left_open_by_expiry_or_cancel_ends_when_its_terminal_says_so() {
    for (last, state) in [(hq::expired(1), Failed), (hq::cancelled(), Cancelled)] {
        let mut story = given(&[hq::dispatched(1), by::started(1)]);
        if state == Cancelled {
            story.say(0, &hq::cancel(1));
        }
        story.say(0, &last);
        assert_eq!((story.task(0).state, open(&story)), (state, vec![1]));
        let when = story.when(by::stopped(1));
        when.absorbed(Effect::Late);
        assert!(open(&when.story).is_empty());
    }
}

#[test]
fn a_requeued_task_remembers_the_attempt_that_is_still_out() {
    let mut story = given(&[hq::dispatched(1), by::started(1), hq::expired(1), hq::requeued(9)]);
    assert_eq!((story.task(0).state, open(&story)), (Pending, vec![1]));
    story.say(0, &hq::dispatched(2));
    assert_eq!(open(&story), [1]);
    story.when(by::succeeded(1)).then(Succeeded);
}

#[test]
fn an_absorbed_success_does_not_rewrite_an_ended_attempt() {
    let when = given(&[hq::dispatched(1), by::failed(1, "BIZ_1")]).when(by::succeeded(1));
    assert_eq!(when.absorbed(Effect::Late).attempts[0].outcome, Some(Outcome::Failed));
}

#[test]
fn final_states_never_change() {
    for (history, state) in [(vec![hq::dispatched(1), by::succeeded(1)], Succeeded), (vec![hq::cancel(0)], Cancelled)] {
        let mut story = given(&history);
        let (row_seq, final_seq, result) = (story.task(0).row_seq, story.task(0).final_seq, story.task(0).result.clone());
        story.all(
            0,
            &[hq::dispatched(2), by::succeeded(1), by::failed(1, "BIZ_1"), hq::expired(0), hq::requeued(1), hq::cancel(0)],
        );
        let task = story.task(0);
        assert_eq!((task.state, task.row_seq, task.final_seq, &task.result), (state, row_seq, final_seq, &result));
    }
}

#[test]
fn attempts_are_bounded_to_the_first_and_the_last() {
    let mut story = Story::with(1, |spec| spec.retry.max_attempts = 1_000);
    for n in 1..=200 {
        story.all(0, &[hq::dispatched(n), by::failed(n, "X")]);
    }
    let task = story.task(0);
    let numbers: Vec<u32> = task.attempts.iter().map(|a| a.number).collect();
    let kept = ATTEMPTS_KEPT as u32;
    let expected: Vec<u32> = (1..=kept).chain(201 - kept..=200).collect();
    assert_eq!((numbers, task.attempts_dropped()), (expected, 200 - 2 * kept));
    // One that was dropped belongs to the target.
    story.clone().when((crate::testing::By::Other, by::succeeded(100).1)).absorbed(Effect::Foreign);
    story.when(by::succeeded(100)).then(Succeeded);
}

#[test]
fn the_live_attempt_and_those_to_be_stopped_are_not_dropped() {
    let mut story = Story::with(1, |spec| spec.retry.max_attempts = 1_000);
    for n in 1..=40 {
        story.all(0, &[hq::dispatched(n), by::failed(n, "X")]);
    }
    story.all(0, &[hq::dispatched(41), by::started(41)]);
    for n in 42..=400 {
        story.say(0, &hq::dispatched(n));
    }
    assert_eq!(story.task(0).current().map(|a| a.number), Some(41));
    assert_eq!(story.task(0).attempts.len(), 2 * ATTEMPTS_KEPT);
    story.when(by::succeeded(41)).then(Succeeded);
}

#[test]
fn steps_are_bounded_and_a_repeat_is_a_duplicate() {
    let mut story = given(&[hq::dispatched(1)]);
    for k in 0..200 {
        let effect = story.at(i64::from(k)).say(0, &by::progressed(1, k));
        assert_eq!(effect == Effect::Applied, (k as usize) < STEPS_MAX, "{k}");
    }
    assert_eq!(story.say(0, &by::progressed(1, 3)), Effect::Duplicate);
    let task = story.task(0);
    assert_eq!((task.state, task.current().unwrap().steps().len()), (Running, STEPS_MAX));
    assert_eq!(task.current().unwrap().progressed_ms(), Some(SEALED_MS + STEPS_MAX as i64 - 1));
    assert_eq!((task.absorbed().stale, task.absorbed().duplicate), (200 - STEPS_MAX as u32, 1));
}

#[test]
fn a_step_that_arrives_after_the_end_is_stale_unless_known() {
    let given = given(&[hq::dispatched(1), by::progressed(1, 0), hq::timed_out(1, Run)]);
    given.clone().when(by::progressed(1, 0)).absorbed(Effect::Duplicate);
    given.clone().when(by::progressed(1, 1)).absorbed(Effect::Stale);
    given.when(by::started(1)).absorbed(Effect::Duplicate);
}

#[test]
fn row_seq_moves_with_what_an_update_is_made_of() {
    let mut story = Story::new(1);
    let mut moved = |said| {
        let before = story.task(0).row_seq;
        story.say(0, &said);
        story.task(0).row_seq != before
    };
    assert!(moved(hq::deferred(None)), "offline");
    assert!(moved(hq::released()), "pending");
    assert!(moved(hq::dispatched(1)), "running");
    assert!(!moved(by::started(1)), "running still");
    assert!(!moved(by::progressed(1, 0)), "running still");
    assert!(!moved(hq::stop(1)), "running still");
    assert!(moved(by::failed(1, "NET_1")), "an error");
    assert!(!moved(by::failed(1, "NET_1")), "absorbed");
    assert!(moved(hq::expired(0)), "it has ended");
    assert!(moved(by::succeeded(1)), "a result");
    assert!(!moved(by::succeeded(1)), "absorbed");
}

#[test]
fn sequences_at_or_below_the_last_are_folded_already() {
    let mut story = given(&[hq::dispatched(1), by::started(1)]);
    let (plan, stage) = (story.view.plan.clone(), story.view.stage.clone());
    let log = story.log.clone();
    let before = story.task(0).clone();
    for (_, logged) in &log {
        assert_eq!(fold(&plan, &target(0), &stage, story.view.tasks.get_mut(0).unwrap(), logged), Effect::Repeated);
        assert!(story.view.apply_task(&target(0), logged).is_none());
    }
    assert_eq!(story.task(0), &before);
}

#[test]
fn decision_seq_counts_every_message_of_hq_and_no_report() {
    let mut story = given(&[hq::dispatched(1)]);
    let first = story.seq;
    story.say(0, &by::started(1));
    assert_eq!(story.task(0).decision_seq, first);
    story.say(0, &hq::requeued(1));
    assert_eq!((story.task(0).decision_seq, story.task(0).absorbed().ignored), (story.seq, 1), "ignored, but expected next");
}

#[test]
fn a_stop_by_a_cancel_is_said_to_be_one_where_the_rules_know_it() {
    let said = |rules: u32, cancel: bool| {
        let mut story = Story::with(1, |spec| spec.rules = rules);
        story.all(0, &[hq::dispatched(1), by::started(1)]);
        if cancel {
            story.say(0, &hq::cancel(1));
        }
        let when = story.when(by::stopped(1));
        let task = when.then(if cancel { Cancelled } else { Pending });
        let error = task.error.as_ref().unwrap();
        assert_eq!((error.code.as_str(), task.tries, task.last_outcome), ("STOPPED", 1, Some(Outcome::Stopped)));
        assert_eq!(task.current().unwrap().error, task.error);
        error.message.clone()
    };
    for rules in [1, 2] {
        assert_eq!(said(rules, false), "the attempt was stopped without a cancel", "rules {rules}");
    }
    assert_eq!(said(1, true), "the attempt was stopped without a cancel", "what version 1 said it says for ever");
    assert_eq!(said(2, true), "the attempt was stopped because the task was cancelled");
}
