//! The eight sets: which task is where, first match wins, and they always add up.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{SetCounts, TaskSet, base_set, row_changed_seq, set_of};
use crate::event::TimeoutKind::{Delivery, Progress, Run};
use crate::plan::PlanEvent;
use crate::testing::{Said, Story, by, given, hq};

fn set(history: &[Said]) -> TaskSet {
    base_set(given(history).task(0))
}

fn exhausted(end: Said) -> TaskSet {
    let mut story = Story::with(1, |spec| spec.retry.max_attempts = 1);
    base_set(story.all(0, &[hq::dispatched(1), end]).task(0))
}

#[test]
fn every_set_has_its_tasks() {
    let table = [
        (vec![], TaskSet::Pending),
        (vec![hq::deferred(None), hq::released()], TaskSet::Pending),
        (vec![hq::dispatched(1), by::failed(1, "NET_1")], TaskSet::Pending),
        (vec![hq::dispatched(1), by::rejected(1, "BUSY")], TaskSet::Pending),
        (vec![hq::dispatched(1), by::invalid(1)], TaskSet::Pending),
        (vec![hq::dispatched(1)], TaskSet::Running),
        (vec![hq::dispatched(1), by::started(1)], TaskSet::Running),
        (vec![hq::dispatched(1), hq::cancel(1)], TaskSet::Running),
        (vec![hq::dispatched(1), by::succeeded(1)], TaskSet::Succeeded),
        (vec![hq::cancel(0)], TaskSet::Cancelled),
        (vec![hq::dispatched(1), hq::timed_out(1, Run), hq::cancel(0)], TaskSet::Cancelled),
        (vec![hq::deferred(None)], TaskSet::Offline),
        (vec![hq::deferred(None), hq::expired(0)], TaskSet::Offline),
        (vec![hq::dispatched(1), hq::timed_out(1, Delivery)], TaskSet::TimedOut),
        (vec![hq::dispatched(1), hq::timed_out(1, Progress)], TaskSet::TimedOut),
        (vec![hq::dispatched(1), hq::lost(1)], TaskSet::TimedOut),
        (vec![hq::dispatched(1), by::failed(1, "LOST")], TaskSet::TimedOut),
        (vec![hq::dispatched(1), hq::lost(1), hq::dispatched(2)], TaskSet::Running),
        (vec![hq::dispatched(1), hq::lost(1), hq::expired(0)], TaskSet::TimedOut),
        (vec![hq::dispatched(1), by::failed(1, "BIZ_1")], TaskSet::Failed),
        (vec![hq::expired(0)], TaskSet::Failed),
        (vec![hq::deferred(None), hq::released(), hq::expired(0)], TaskSet::Failed),
        (vec![hq::dispatched(1), hq::expired(1)], TaskSet::Failed),
        (vec![hq::dispatched(1), by::invalid(1), hq::expired(0)], TaskSet::Invalid),
        (vec![hq::dispatched(1), by::failed(1, "BIZ_1"), hq::requeued(1)], TaskSet::Pending),
        (vec![hq::dispatched(1), hq::lost(1), hq::expired(0), hq::requeued(1)], TaskSet::Pending),
    ];
    for (history, expected) in table {
        assert_eq!(set(&history), expected, "{history:?}");
    }
    assert_eq!(exhausted(by::invalid(1)), TaskSet::Invalid);
    assert_eq!(exhausted(hq::timed_out(1, Run)), TaskSet::TimedOut);
    assert_eq!(exhausted(hq::lost(1)), TaskSet::TimedOut);
    assert_eq!(exhausted(by::failed(1, "NET_1")), TaskSet::Failed);
    assert_eq!(exhausted(by::rejected(1, "BAD_INPUT")), TaskSet::Failed);
}

#[test]
fn the_first_match_wins() {
    // Timed out and offline: offline. Invalid, then expired while offline: invalid.
    assert_eq!(set(&[hq::dispatched(1), hq::timed_out(1, Delivery), hq::deferred(None)]), TaskSet::Offline);
    assert_eq!(set(&[hq::dispatched(1), hq::lost(1), hq::deferred(None), hq::expired(0)]), TaskSet::Offline);
    assert_eq!(set(&[hq::dispatched(1), by::invalid(1), hq::deferred(None)]), TaskSet::Offline);
    assert_eq!(set(&[hq::dispatched(1), by::invalid(1), hq::deferred(None), hq::expired(0)]), TaskSet::Invalid);
}

#[test]
fn what_is_still_out_after_the_deadline_has_timed_out() {
    let mut story = Story::new(3);
    story.all(0, &[hq::dispatched(1), by::started(1)]).all(1, &[hq::dispatched(1), by::succeeded(1)]);
    let sets = |story: &Story| [0, 1, 2].map(|i| set_of(&story.view.plan, story.task(i)));
    assert_eq!(sets(&story), [TaskSet::Running, TaskSet::Succeeded, TaskSet::Pending]);
    let changed = |story: &Story| [0, 1, 2].map(|i| row_changed_seq(&story.view.plan, story.task(i)));
    let before = changed(&story);
    story.plan(PlanEvent::DeadlineReached);
    assert_eq!(sets(&story), [TaskSet::TimedOut, TaskSet::Succeeded, TaskSet::Pending]);
    assert_eq!(changed(&story), [story.seq, before[1], before[2]]);
    story.say(0, &by::succeeded(1));
    assert_eq!(sets(&story)[0], TaskSet::Succeeded);
    assert_eq!(changed(&story)[0], story.seq);
}

#[test]
fn counts_name_every_set_once() {
    let mut counts = SetCounts::default();
    for (n, set) in TaskSet::ALL.into_iter().enumerate() {
        (0..=n).for_each(|_| counts.count(set));
        assert_eq!(counts.get(set) as usize, n + 1);
        let json = serde_json::to_value(counts).unwrap();
        assert_eq!(json[set.name()], n + 1);
    }
    assert_eq!(counts.total(), 36);
}
