//! Budget, classes, and the ends that use no try.

use crate::event::TimeoutKind::{Delivery, Run};
use crate::task::TaskState::{Failed, Pending, Running};
use crate::task::{FailReason, NO_TRY_ENDS_ATTENTION};
use crate::testing::{BACKOFF_MS, SEALED_MS, Said, Story, by, given, hq};

fn wait_ms(story: &Story) -> i64 {
    story.task(0).not_before_ms - story.now_ms
}

#[test]
fn the_budget_is_max_attempts() {
    let mut story = Story::new(1);
    for n in 1..=2 {
        story.all(0, &[hq::dispatched(n), by::failed(n, "NET_1")]);
        assert_eq!((story.task(0).state, story.task(0).tries), (Pending, n));
    }
    story.all(0, &[hq::dispatched(3), by::failed(3, "NET_1")]);
    assert_eq!((story.task(0).state, story.task(0).failure), (Failed, Some(FailReason::Exhausted)));
    // A requeue gives the whole budget again; attempt numbers go on rising.
    story.all(0, &[hq::requeued(1), hq::dispatched(4), by::failed(4, "NET_1")]);
    assert_eq!((story.task(0).state, story.task(0).tries), (Pending, 1));
}

#[test]
fn business_wins_when_both_match_and_an_unlisted_code_is_retryable() {
    let failed = |code| given(&[hq::dispatched(1)]).when(by::failed(1, code)).story.task(0).state;
    assert_eq!(failed("BIZ_BUT_LISTED_TWICE"), Failed);
    assert_eq!(failed("UNHEARD_OF"), Pending);
    assert_eq!(failed(""), Pending);
}

#[test]
fn schema_invalid_may_be_business_like_any_code() {
    let mut story = Story::with(1, |spec| spec.retry.business.push("SCHEMA_INVALID".into()));
    story.all(0, &[hq::dispatched(1), by::invalid(1)]);
    assert_eq!((story.task(0).state, story.task(0).failure), (Failed, Some(FailReason::Business)));
}

#[test]
fn no_try_ends_double_their_wait_up_to_a_minute_and_then_ask_for_attention() {
    let mut story = Story::new(1);
    let ends: [fn(u32) -> Said; 3] =
        [|n| by::rejected(n, "BUSY"), |n| by::rejected(n, "ALREADY_DONE"), |n| hq::timed_out(n, Delivery)];
    let expected_s = [1, 2, 4, 8, 16, 32, 60, 60, 60];
    for n in 1..=200u32 {
        story.at(i64::from(n) * 100_000).all(0, &[hq::dispatched(n), ends[n as usize % 3](n)]);
        let expected_ms = 1_000 * expected_s.get(n as usize - 1).unwrap_or(&60);
        assert_eq!((story.task(0).state, story.task(0).tries, wait_ms(&story)), (Pending, 0, expected_ms), "{n}");
        assert_eq!(story.task(0).needs_attention(), n >= NO_TRY_ENDS_ATTENTION, "{n}");
    }
}

#[test]
fn the_wait_begins_anew_when_an_attempt_starts() {
    let busy = |n| [hq::dispatched(n), by::rejected(n, "BUSY")];
    let mut story = Story::new(1);
    story.all(0, &busy(1)).all(0, &busy(2)).all(0, &[hq::dispatched(3), by::started(3)]);
    assert_eq!(story.task(0).no_try_ends, 0);
    story.all(0, &[hq::timed_out(3, Run)]);
    assert_eq!(wait_ms(&story), BACKOFF_MS);
    story.all(0, &busy(4));
    assert_eq!(wait_ms(&story), 1_000);
}

#[test]
fn a_quick_failure_is_a_start_too() {
    // A terminal drops `started` when the end is already there.
    let mut story = Story::new(1);
    for n in 1..=19 {
        story.all(0, &[hq::dispatched(n), by::rejected(n, "BUSY")]);
    }
    story.all(0, &[hq::dispatched(20), by::failed(20, "NET_1"), hq::dispatched(21), by::rejected(21, "BUSY")]);
    assert_eq!((wait_ms(&story), story.task(0).needs_attention()), (1_000, false));
}

#[test]
fn attention_is_over_when_it_starts_or_succeeds() {
    let mut story = Story::new(1);
    for n in 1..=20 {
        story.all(0, &[hq::dispatched(n), hq::timed_out(n, Delivery)]);
    }
    assert!(story.task(0).needs_attention());
    let started = story.clone().when(by::started(20));
    assert!(!started.then(Running).needs_attention());
    story.say(0, &by::succeeded(7));
    assert!(!story.task(0).needs_attention());
}

#[test]
fn not_before_counts_from_the_events_time_and_uses_the_list() {
    let mut story = Story::with(1, |spec| spec.retry.backoff_ms = crate::retry::Backoff::List(vec![100, 900]));
    story.at(50).all(0, &[hq::dispatched(1), by::failed(1, "X")]);
    assert_eq!(story.task(0).not_before_ms, SEALED_MS + 50 + 100);
    story.at(5_000).all(0, &[hq::dispatched(2)]);
    assert_eq!(story.task(0).not_before_ms, 0);
    story.at(6_000).all(0, &[by::failed(2, "X")]);
    assert_eq!(story.task(0).not_before_ms, SEALED_MS + 6_000 + 900);
}
