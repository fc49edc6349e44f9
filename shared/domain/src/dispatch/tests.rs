//! What HQ decides in which situation, one situation at a time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{Hq, Presence, Step, next_step, run_margin_ms};
use crate::event::TaskEvent;
use crate::plan::PlanEvent;
use crate::testing::{BACKOFF_MS, SEALED_MS, Story, asked, by, given, hq};

mod requeue;

/// Heartbeat interval of these terminals, in milliseconds.
const BEAT_MS: i64 = 15_000;
/// Three of them.
const SILENCE_MS: i64 = 3 * BEAT_MS;
/// Grace without a sync: three beats and half a one.
const DRAIN_MS: i64 = SILENCE_MS + BEAT_MS / 2;
const DELIVER_MS: i64 = 30_000;
const RUN_MS: i64 = 600_000 + 10_000;

/// A dispatcher that has been up and caught up for an hour.
fn settled(now: i64) -> Hq {
    Hq {
        now_ms: SEALED_MS + now,
        started_ms: SEALED_MS - 3_600_000,
        connected_ms: SEALED_MS - 3_600_000,
        caught_up: true,
        beat_ms: BEAT_MS,
        cancel_grace_ms: 20_000,
    }
}

/// One that has come up at the seal.
fn fresh(now: i64) -> Hq {
    Hq { started_ms: SEALED_MS, connected_ms: SEALED_MS, ..settled(now) }
}

/// A terminal that has just beaten, has synced, and holds nothing.
fn online(now: i64) -> Presence {
    Presence {
        last_seen_ms: Some(SEALED_MS + now),
        gone: false,
        beat_ms: BEAT_MS,
        usable: true,
        usable_at_ms: None,
        lists_attempt: false,
        same_journal: true,
        forgot_attempt: false,
        synced: true,
    }
}

fn listing(now: i64) -> Presence {
    Presence { lists_attempt: true, ..online(now) }
}

const UNSEEN: Presence = Presence {
    last_seen_ms: None,
    gone: false,
    beat_ms: 0,
    usable: false,
    usable_at_ms: None,
    lists_attempt: false,
    same_journal: false,
    forgot_attempt: false,
    synced: false,
};

/// The step in short; moments as milliseconds after the seal.
fn show(story: &Story, presence: &Presence, hq: &Hq) -> String {
    match next_step(&story.view, 0, presence, hq) {
        Step::Nothing => "nothing".into(),
        Step::WaitUntil(ms) => format!("wait {}", ms - SEALED_MS),
        Step::WaitPresence => "presence".into(),
        Step::Ready { release: false } => "ready".into(),
        Step::Ready { release: true } => "ready, else release".into(),
        Step::Decide(TaskEvent::Deferred { last_seen_ms }) => format!("defer {:?}", last_seen_ms.map(|ms| ms - SEALED_MS)),
        Step::Decide(TaskEvent::Released) => "release".into(),
        Step::Decide(TaskEvent::AttemptTimedOut { attempt, kind }) => format!("{attempt} timed out {kind:?}"),
        Step::Decide(TaskEvent::AttemptLost { attempt }) => format!("{attempt} lost"),
        Step::Decide(TaskEvent::StopRequested { attempt }) => format!("stop {attempt}"),
        Step::Decide(TaskEvent::CancelRequested { attempt }) => format!("cancel {attempt}"),
        Step::Decide(TaskEvent::Cancelled) => "cancelled".into(),
        Step::Decide(TaskEvent::Expired { reason, attempt }) => format!("expire {attempt} {reason:?}"),
        Step::Decide(TaskEvent::Requeued { request_seq }) => format!("requeue by {request_seq}"),
        Step::Decide(other) => format!("{}?", other.name()),
    }
}

#[test]
fn an_unsealed_plan_and_an_unknown_index_are_nothing() {
    let unsealed = Story::unsealed(1, |_| {});
    assert_eq!(show(&unsealed, &online(0), &settled(0)), "nothing");
    assert!(matches!(next_step(&given(&[]).view, 7, &online(0), &settled(0)), Step::Nothing));
}

#[test]
fn unknown_is_not_offline_before_three_beats() {
    let story = given(&[]);
    let gone = Presence { last_seen_ms: Some(SEALED_MS - 60_000), ..online(0) };
    for presence in [UNSEEN, gone] {
        assert_eq!(show(&story, &presence, &fresh(0)), format!("wait {SILENCE_MS}"));
        assert_eq!(show(&story, &presence, &fresh(SILENCE_MS - 1)), format!("wait {SILENCE_MS}"));
    }
    assert_eq!(show(&story, &UNSEEN, &fresh(SILENCE_MS)), "defer None");
    assert_eq!(show(&story, &gone, &fresh(SILENCE_MS)), "defer Some(-60000)");
    // A reconnection counts like a start.
    let back = Hq { connected_ms: SEALED_MS, ..settled(1_000) };
    assert_eq!(show(&story, &UNSEEN, &back), format!("wait {SILENCE_MS}"));
}

#[test]
fn online_is_until_the_third_beat_is_missing() {
    let story = given(&[]);
    assert_eq!(show(&story, &online(0), &settled(SILENCE_MS - 1)), "ready");
    assert_eq!(show(&story, &online(0), &settled(SILENCE_MS)), "defer Some(0)");
    // Its own interval, where it has said one.
    let slow = Presence { beat_ms: 60_000, ..online(0) };
    assert_eq!(show(&story, &slow, &settled(179_999)), "ready");
    // One that claims an absurd interval breaks nothing.
    let absurd = Presence { beat_ms: i64::MAX, ..online(0) };
    assert_eq!(show(&story, &absurd, &settled(0)), "ready");
    show(&given(&[hq::dispatched(1)]), &Presence { synced: false, lists_attempt: true, ..absurd }, &settled(0));
}

#[test]
fn a_goodbye_is_offline_at_once() {
    let gone = Presence { gone: true, usable: false, ..online(0) };
    assert_eq!(show(&given(&[]), &gone, &fresh(0)), "defer Some(0)", "this is known, not unknown");
    assert_eq!(show(&given(&[hq::deferred(None)]), &gone, &fresh(0)), "presence");
    // What it listed before it went doesn't count any more.
    let out = given(&[hq::dispatched(1)]);
    assert_eq!(show(&out, &Presence { lists_attempt: true, ..gone }, &settled(DELIVER_MS)), "1 timed out Delivery");
}

#[test]
fn an_offline_episode_is_deferred_once_and_released() {
    let mut story = given(&[hq::deferred(Some(SEALED_MS))]);
    assert_eq!(show(&story, &online(0), &settled(SILENCE_MS + 1)), "presence");
    assert_eq!(show(&story, &online(90_000), &settled(90_000)), "ready, else release");
    let doubled = Presence { usable: false, ..online(90_000) };
    assert_eq!(show(&story, &doubled, &settled(90_000)), "release", "heard, and given nothing: offline is not why");
    story.say(0, &hq::released());
    assert_eq!(show(&story, &doubled, &settled(90_000)), "presence");
    assert_eq!(show(&story, &online(90_000), &settled(90_000)), "ready");
    assert_eq!(show(&story, &online(90_000), &settled(90_000 + SILENCE_MS)), "defer Some(90000)", "another episode");
}

#[test]
fn a_terminal_that_may_not_be_used_gets_nothing() {
    let story = given(&[]);
    let twin = Presence { usable: false, ..online(0) };
    assert_eq!(show(&story, &twin, &settled(0)), "presence");
    let booting = Presence { usable_at_ms: Some(SEALED_MS + 700), ..twin };
    assert_eq!(show(&story, &booting, &settled(0)), "wait 700");
}

#[test]
fn a_backoff_is_waited_for() {
    let mut story = given(&[hq::dispatched(1), by::failed(1, "NET_1")]);
    assert_eq!(show(&story, &online(0), &settled(0)), format!("wait {BACKOFF_MS}"));
    assert_eq!(show(&story, &online(0), &settled(BACKOFF_MS)), "ready");
    // Offline meanwhile, and back before the backoff is over: it isn't offline any more, and says so.
    story.say(0, &hq::deferred(None));
    assert_eq!(show(&story, &online(5), &settled(5)), "release");
    story.say(0, &hq::released());
    assert_eq!(show(&story, &online(5), &settled(5)), format!("wait {BACKOFF_MS}"));
}

#[test]
fn a_paused_plan_dispatches_nothing_but_stays_honest() {
    let mut story = given(&[]);
    story.plan(PlanEvent::Paused);
    assert_eq!(show(&story, &online(0), &settled(0)), "nothing");
    assert_eq!(show(&story, &UNSEEN, &settled(0)), "defer None");
    story.say(0, &hq::deferred(None));
    assert_eq!(show(&story, &online(0), &settled(0)), "release");
    story.plan(PlanEvent::Resumed);
    assert_eq!(show(&story, &online(0), &settled(0)), "ready, else release");
}

#[test]
fn a_paused_plan_still_watches_what_is_out() {
    let mut story = given(&[hq::dispatched(1)]);
    story.plan(PlanEvent::Paused);
    assert_eq!(show(&story, &online(DELIVER_MS), &settled(DELIVER_MS)), "1 timed out Delivery");
}

#[test]
fn a_cancel_reaches_every_open_task() {
    let mut pending = given(&[hq::deferred(None)]);
    pending.plan(PlanEvent::CancelRequested(asked()));
    assert_eq!(show(&pending, &UNSEEN, &settled(0)), "cancel 0");

    let mut live = given(&[hq::dispatched(1), by::started(1)]);
    live.plan(PlanEvent::CancelRequested(asked()));
    assert_eq!(show(&live, &listing(0), &settled(0)), "cancel 1");
    live.at(500).say(0, &hq::cancel(1));
    assert_eq!(show(&live, &listing(500), &settled(500)), "wait 20500");
    assert_eq!(show(&live, &listing(20_500), &settled(20_500)), "cancelled");
    live.say(0, &hq::cancelled());
    assert_eq!(show(&live, &listing(20_500), &settled(20_500)), "nothing");
}

#[test]
fn a_close_expires_what_is_open_and_says_why() {
    let mut by_person = Story::new(1);
    by_person.at(1_000).plan(PlanEvent::CloseRequested(asked()));
    assert_eq!(show(&by_person, &online(1_000), &settled(1_000)), "expire 0 Closed");
    let mut by_clock = given(&[hq::dispatched(1)]);
    by_clock.at(crate::testing::EXPIRES_MS).plan(PlanEvent::CloseRequested(asked()));
    assert_eq!(show(&by_clock, &listing(0), &settled(0)), "expire 1 Expired");
    by_clock.say(0, &hq::expired(1));
    assert_eq!(show(&by_clock, &listing(0), &settled(0)), "nothing", "the expiry has marked the attempt");
    // A cancel that is under way ends by the close.
    let mut cancelling = given(&[hq::dispatched(1), hq::cancel(1)]);
    cancelling.plan(PlanEvent::CancelRequested(asked())).plan(PlanEvent::CloseRequested(asked()));
    assert_eq!(show(&cancelling, &listing(0), &settled(0)), "expire 1 Closed");
}

#[test]
fn an_attempt_nobody_took_is_undelivered() {
    let story = given(&[hq::dispatched(1)]);
    assert_eq!(show(&story, &online(0), &settled(0)), format!("wait {DELIVER_MS}"));
    let now = DELIVER_MS;
    assert_eq!(show(&story, &online(now), &settled(now)), "1 timed out Delivery");
    assert_eq!(show(&story, &UNSEEN, &settled(now)), "1 timed out Delivery", "the grace without a sync is long over");
}

#[test]
fn nothing_is_concluded_at_once_after_an_outage() {
    let story = given(&[hq::dispatched(1)]);
    let now = DELIVER_MS;
    let unsynced = Presence { synced: false, ..online(now) };
    assert_eq!(show(&story, &unsynced, &fresh(now)), format!("wait {DRAIN_MS}"));
    assert_eq!(show(&story, &unsynced, &fresh(DRAIN_MS - 1)), format!("wait {DRAIN_MS}"));
    assert_eq!(show(&story, &unsynced, &fresh(DRAIN_MS)), "1 timed out Delivery");
    assert_eq!(show(&story, &online(now), &fresh(now)), "1 timed out Delivery", "it has synced");
    let behind = Hq { caught_up: false, ..settled(now) };
    assert_eq!(show(&story, &online(now), &behind), format!("wait {}", now + BEAT_MS));
    let forgot = Presence { forgot_attempt: true, ..online(now) };
    assert_eq!(show(&story, &forgot, &behind), format!("wait {}", now + BEAT_MS));
    // The same for a run timeout.
    let running = given(&[hq::dispatched(1), by::started(1)]);
    assert_eq!(
        show(&running, &online(RUN_MS), &Hq { caught_up: false, ..settled(RUN_MS) }),
        format!("wait {}", RUN_MS + BEAT_MS)
    );
}

#[test]
fn what_the_terminal_lists_only_ends_by_its_run_timeout() {
    let story = given(&[hq::dispatched(1)]);
    let now = DELIVER_MS + 100_000;
    assert_eq!(show(&story, &listing(now), &settled(now)), format!("wait {}", now + SILENCE_MS));
    let late = DELIVER_MS + RUN_MS;
    assert_eq!(show(&story, &listing(late - 1), &settled(late - 1)), format!("wait {late}"));
    assert_eq!(show(&story, &listing(late), &settled(late)), "1 timed out Run");
    // Neither another journal nor a sync without it counts against a list that has it.
    let odd = Presence { forgot_attempt: true, same_journal: false, ..listing(now) };
    assert_eq!(show(&story, &odd, &settled(now)), format!("wait {}", now + SILENCE_MS));
    // A list that is too old is none.
    assert_eq!(show(&story, &listing(now - SILENCE_MS), &settled(now)), "1 timed out Delivery");
}

#[test]
fn another_journal_or_a_sync_without_it_is_a_loss() {
    let new_journal = |now| Presence { same_journal: false, ..online(now) };
    let forgot = |now| Presence { forgot_attempt: true, ..online(now) };
    for story in [given(&[hq::dispatched(1)]), given(&[hq::dispatched(1), by::started(1)])] {
        for presence in [new_journal(0), forgot(0)] {
            assert_eq!(show(&story, &presence, &settled(0)), "1 lost");
            let unsynced = Presence { synced: false, ..presence };
            assert_eq!(show(&story, &unsynced, &fresh(0)), format!("wait {DRAIN_MS}"), "looked at when the grace is over");
            let twin = Presence { usable: false, ..presence };
            assert_ne!(show(&story, &twin, &settled(0)), "1 lost", "which of the two has it is unknown");
        }
        let silent = Presence { last_seen_ms: Some(SEALED_MS - SILENCE_MS), ..new_journal(0) };
        assert_ne!(show(&story, &silent, &settled(0)), "1 lost", "silence is not a loss");
    }
}

#[test]
fn a_run_has_a_timeout_with_a_margin() {
    let mut story = given(&[hq::dispatched(1)]);
    story.at(5_000).say(0, &by::started(1));
    let due = 5_000 + RUN_MS;
    assert_eq!(show(&story, &online(0), &settled(6_000)), format!("wait {due}"));
    for presence in [online(due), listing(due), UNSEEN] {
        assert_eq!(show(&story, &presence, &settled(due)), "1 timed out Run");
    }
    assert_eq!([0, 10_000, u64::MAX].map(run_margin_ms), [250, 1_000, 10_000]);
}

#[test]
fn a_run_that_falls_silent_times_out_by_progress() {
    let mut story = Story::with(1, |spec| spec.timeouts.progress_ms = Some(60_000));
    story.all(0, &[hq::dispatched(1)]);
    assert_eq!(show(&story, &listing(70_000), &settled(70_000)), format!("wait {}", 70_000 + SILENCE_MS), "not before it runs");
    story.at(80_000).say(0, &by::started(1));
    story.at(100_000).say(0, &by::progressed(1, 0));
    assert_eq!(show(&story, &online(159_999), &settled(159_999)), "wait 160000");
    assert_eq!(show(&story, &online(160_000), &settled(160_000)), "1 timed out Progress");
    // The run's own clock comes first where it ends earlier.
    for k in 1..10 {
        story.at(100_000 + i64::from(k) * 60_000).say(0, &by::progressed(1, k));
    }
    let due = 80_000 + RUN_MS;
    assert_eq!(show(&story, &online(due), &settled(due)), "1 timed out Run");
}

#[test]
fn absurd_timeouts_do_not_overflow() {
    let mut story = Story::with(1, |spec| {
        spec.timeouts.run_ms = u64::MAX;
        spec.timeouts.deliver_ms = u64::MAX;
        spec.timeouts.progress_ms = Some(u64::MAX);
    });
    story.all(0, &[hq::dispatched(1)]);
    assert!(show(&story, &online(0), &settled(0)).starts_with("wait "));
    story.say(0, &by::started(1));
    assert!(show(&story, &listing(0), &settled(0)).starts_with("wait "));
}

#[test]
fn a_superseded_attempt_is_stopped_once() {
    let mut story = given(&[hq::dispatched(1), hq::lost(1), hq::dispatched(2), by::succeeded(1)]);
    assert_eq!(show(&story, &online(0), &settled(0)), "stop 2");
    story.say(0, &hq::stop(2));
    assert_eq!(show(&story, &online(0), &settled(0)), "nothing");
    let mut running = given(&[hq::dispatched(1), by::started(1), hq::dispatched(2)]);
    assert_eq!(show(&running, &listing(0), &settled(0)), "stop 2");
    running.say(0, &by::stopped(2));
    assert!(show(&running, &listing(0), &settled(0)).starts_with("wait "), "it has ended by itself");
}

#[test]
fn a_run_is_not_judged_before_what_waited_during_an_outage_could_come_in() {
    let story = given(&[hq::dispatched(1), by::started(1)]);
    let now = RUN_MS + 1_000_000;
    // It has synced since: what it holds is known, not what it has finished and could not say.
    for presence in [online(now), listing(now)] {
        let back = Hq { connected_ms: SEALED_MS + now, ..settled(now) };
        assert!(show(&story, &presence, &back).starts_with("wait "), "{presence:?}");
        let drained = Hq { connected_ms: SEALED_MS + now - DRAIN_MS, ..settled(now) };
        assert_eq!(show(&story, &presence, &drained), "1 timed out Run");
    }
}
