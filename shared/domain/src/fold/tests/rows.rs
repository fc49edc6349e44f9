//! Every row of the table as a test of its own, each with its neighbours: one condition off, another row.

use crate::event::TimeoutKind::{Delivery, Progress, Run};
use crate::fold::Effect;
use crate::plan::PlanEvent;
use crate::task::TaskState::{Cancelled, Dispatched, Failed, Pending, Running, Succeeded};
use crate::task::{FailReason, Outcome, PendingSince, Waiting};
use crate::testing::{BACKOFF_MS, By, SEALED_MS, Story, by, given, hq};

#[test]
fn a_pending_task_is_dispatched() {
    let when = given(&[hq::deferred(None), hq::released()]).when(hq::dispatched(1));
    let task = when.then(Dispatched);
    assert_eq!((task.attempt, task.last_attempt, task.tries, task.waiting), (1, 1, 0, None));
    assert_eq!(task.current().unwrap().dispatched_ms, SEALED_MS);
}

#[test]
fn only_the_next_number_is_dispatched() {
    for number in [0, 2, u32::MAX] {
        given(&[]).when(hq::dispatched(number)).absorbed(Effect::Ignored);
    }
    given(&[hq::dispatched(1), by::failed(1, "X")]).when(hq::dispatched(1)).absorbed(Effect::Ignored);
}

#[test]
fn a_pending_task_waits_offline_and_then_for_its_turn() {
    let when = given(&[]).when(hq::deferred(Some(5)));
    assert_eq!(when.then(Pending).waiting, Some(Waiting::Offline(Some(5))));
    let when = when.story.when(hq::released());
    assert_eq!(when.then(Pending).waiting, Some(Waiting::Turn));
    for said in [hq::deferred(None), hq::released()] {
        given(&[hq::dispatched(1)]).when(said.clone()).absorbed(Effect::Ignored);
        given(&[hq::dispatched(1), by::started(1)]).when(said.clone()).absorbed(Effect::Ignored);
        given(&[hq::expired(0)]).when(said).absorbed(Effect::Ignored);
    }
}

#[test]
fn a_dispatched_attempt_starts_or_progresses_and_runs() {
    let when = given(&[hq::dispatched(1)]).when(by::started(1));
    assert_eq!(when.then(Running).current().unwrap().started_ms(), Some(SEALED_MS));
    let when = given(&[hq::dispatched(1)]).when(by::progressed(1, 0));
    let attempt = when.then(Running).current().unwrap();
    assert_eq!((attempt.started_ms(), attempt.steps().len()), (Some(SEALED_MS), 1));
}

#[test]
fn a_start_of_an_older_attempt_is_stale() {
    let given = given(&[hq::dispatched(1), hq::timed_out(1, Delivery), hq::dispatched(2)]);
    given.when(by::started(1)).absorbed(Effect::Stale);
}

#[test]
fn a_valid_success_of_the_current_attempt_succeeds() {
    for start in [vec![], vec![by::started(1)]] {
        let mut story = given(&[hq::dispatched(1)]);
        let when = story.all(0, &start).clone().when(by::succeeded(1));
        let task = when.then(Succeeded);
        assert_eq!(task.result.as_ref().unwrap().0.get(), r#"{"n":1}"#);
        assert_eq!((task.late, task.final_seq, task.current().unwrap().outcome), (false, task.seq, Some(Outcome::Succeeded)));
    }
}

#[test]
fn an_invalid_success_counts_as_failed_with_the_paths() {
    let when = given(&[hq::dispatched(1), by::started(1)]).when(by::invalid(1));
    let task = when.then(Pending);
    let error = task.error.as_ref().unwrap();
    assert_eq!((error.code.as_str(), error.paths.as_slice()), ("SCHEMA_INVALID", &["/n: is missing".to_owned()][..]));
    assert_eq!((task.tries, task.last_outcome, &task.result), (1, Some(Outcome::Invalid), &None));
    let attempt = task.current().unwrap();
    assert_eq!((attempt.outcome, &attempt.error), (Some(Outcome::Invalid), &task.error));
}

#[test]
fn an_invalid_success_after_the_end_changes_nothing() {
    given(&[hq::dispatched(1), hq::timed_out(1, Run)]).when(by::invalid(1)).absorbed(Effect::Stale);
    given(&[hq::dispatched(1), by::failed(1, "BIZ_1")]).when(by::invalid(1)).absorbed(Effect::Late);
}

#[test]
fn retryable_ends_go_back_to_pending_and_use_a_try() {
    let ends = [
        (by::failed(1, "NET_1"), Outcome::Failed, "NET_1", PendingSince::Other),
        (hq::timed_out(1, Run), Outcome::TimedOutRun, "TIMEOUT", PendingSince::TimedOutOrLost),
        (hq::timed_out(1, Progress), Outcome::TimedOutProgress, "TIMEOUT", PendingSince::TimedOutOrLost),
        (hq::lost(1), Outcome::Lost, "LOST", PendingSince::TimedOutOrLost),
        (by::stopped(1), Outcome::Stopped, "STOPPED", PendingSince::Other),
        (by::invalid(1), Outcome::Invalid, "SCHEMA_INVALID", PendingSince::Other),
    ];
    for (end, outcome, code, since) in ends {
        for start in [vec![], vec![by::started(1)]] {
            let mut story = given(&[hq::dispatched(1)]);
            let when = story.all(0, &start).at(500).clone().when(end.clone());
            let task = when.then(Pending);
            assert_eq!((task.tries, task.last_outcome, task.pending_since), (1, Some(outcome), since), "{end:?}");
            assert_eq!(task.not_before_ms, SEALED_MS + 500 + BACKOFF_MS);
            assert_eq!(task.error.as_ref().unwrap().code, code);
            let attempt = task.current().unwrap();
            assert_eq!((attempt.outcome, attempt.ended_ms()), (Some(outcome), Some(SEALED_MS + 500)));
        }
    }
}

#[test]
fn a_business_code_fails_at_once() {
    let when = given(&[hq::dispatched(1)]).when(by::failed(1, "BIZ_1"));
    assert_eq!(when.then(Failed).failure, Some(FailReason::Business));
    let when = given(&[hq::dispatched(1)]).when(by::rejected(1, "BIZ_INPUT"));
    assert_eq!(when.then(Failed).failure, Some(FailReason::Business));
}

#[test]
fn the_last_try_fails_as_exhausted() {
    let mut story = Story::with(1, |spec| spec.retry.max_attempts = 1);
    let when = story.all(0, &[hq::dispatched(1)]).clone().when(hq::lost(1));
    let task = when.then(Failed);
    assert_eq!((task.failure, task.tries, task.not_before_ms), (Some(FailReason::Exhausted), 1, 0));
}

#[test]
fn timeouts_and_losses_of_another_attempt_are_ignored() {
    let given = given(&[hq::dispatched(1), hq::lost(1), hq::dispatched(2)]);
    for said in [hq::timed_out(1, Run), hq::timed_out(1, Delivery), hq::lost(1), hq::lost(3), hq::lost(0)] {
        given.clone().when(said).absorbed(Effect::Ignored);
    }
}

#[test]
fn busy_already_done_and_undelivered_use_no_try() {
    for end in [by::rejected(1, "BUSY"), by::rejected(1, "ALREADY_DONE"), hq::timed_out(1, Delivery)] {
        let when = given(&[hq::dispatched(1)]).when(end);
        let task = when.then(Pending);
        assert_eq!((task.tries, task.no_try_ends, task.not_before_ms), (0, 1, SEALED_MS + 1_000));
    }
}

#[test]
fn once_running_it_is_neither_undelivered_nor_rejected() {
    let given = given(&[hq::dispatched(1), by::started(1)]);
    given.clone().when(hq::timed_out(1, Delivery)).absorbed(Effect::Ignored);
    for code in ["BUSY", "ALREADY_DONE", "BAD_INPUT", "BIZ_1"] {
        let when = given.clone().when(by::rejected(1, code));
        assert!(when.absorbed(Effect::Stale).current().unwrap().is_open());
        // The run goes on: its own end still counts and is recorded.
        let when = when.story.when(by::failed(1, "NET_1"));
        assert_eq!(when.then(Pending).current().unwrap().outcome, Some(Outcome::Failed));
    }
}

#[test]
fn an_undelivered_attempt_that_starts_was_only_slow() {
    let between = [vec![], vec![hq::deferred(None)], vec![hq::deferred(None), hq::released()]];
    for events in between {
        for sign in [by::started(1), by::progressed(1, 0)] {
            let mut story = given(&[hq::dispatched(1), hq::timed_out(1, Delivery)]);
            let when = story.all(0, &events).clone().when(sign);
            let task = when.then(Running);
            assert_eq!((task.attempt, task.no_try_ends, task.not_before_ms, task.waiting), (1, 0, 0, None));
            assert_eq!((&task.error, task.last_outcome), (&None, None));
            let attempt = task.current().unwrap();
            assert!(attempt.is_open() && attempt.ended_ms().is_none() && attempt.error.is_none());
            let when = when.story.when(by::succeeded(1));
            assert_eq!(when.then(Succeeded).current().unwrap().outcome, Some(Outcome::Succeeded));
        }
    }
}

#[test]
fn other_pending_tasks_do_not_start_by_themselves() {
    let ends = [hq::timed_out(1, Run), hq::timed_out(1, Progress), hq::lost(1), by::rejected(1, "BUSY"), by::failed(1, "X")];
    for end in ends {
        given(&[hq::dispatched(1), end]).when(by::started(1)).absorbed(Effect::Stale);
    }
    let decided = given(&[hq::dispatched(1), hq::timed_out(1, Delivery), hq::expired(0), hq::requeued(9)]);
    decided.when(by::started(1)).absorbed(Effect::Stale);
}

#[test]
fn other_rejections_count_as_failed_with_that_code() {
    let when = given(&[hq::dispatched(1)]).when(by::rejected(1, "JOURNAL_UNAVAILABLE"));
    let task = when.then(Pending);
    assert_eq!((task.tries, task.no_try_ends, task.last_outcome), (1, 0, Some(Outcome::Rejected)));
    assert_eq!(task.error.as_ref().unwrap().code, "JOURNAL_UNAVAILABLE");
}

#[test]
fn a_business_failure_is_believed_over_the_clock() {
    for end in [hq::timed_out(1, Run), hq::timed_out(1, Progress), hq::timed_out(1, Delivery), hq::lost(1)] {
        let when = given(&[hq::dispatched(1), end]).when(by::failed(1, "BIZ_1"));
        let task = when.then(Failed);
        assert_eq!((task.failure, task.last_outcome), (Some(FailReason::Business), Some(Outcome::Failed)));
        assert_eq!(task.current().unwrap().error.as_ref().unwrap().code, "BIZ_1");
    }
}

#[test]
fn a_retryable_or_older_failure_is_not() {
    given(&[hq::dispatched(1), hq::timed_out(1, Run)]).when(by::failed(1, "NET_1")).absorbed(Effect::Stale);
    let rejected = given(&[hq::dispatched(1), by::rejected(1, "BUSY")]);
    rejected.when(by::failed(1, "BIZ_1")).absorbed(Effect::Stale);
    let second = [hq::dispatched(1), hq::timed_out(1, Run), hq::dispatched(2)];
    given(&second).when(by::failed(1, "BIZ_1")).absorbed(Effect::Stale);
    let mut story = given(&second);
    story.say(0, &hq::timed_out(2, Run));
    story.when(by::failed(1, "BIZ_1")).absorbed(Effect::Stale);
}

#[test]
fn a_valid_success_of_any_attempt_succeeds() {
    let pending = given(&[hq::dispatched(1), by::failed(1, "NET_1")]);
    let when = pending.when(by::succeeded(1));
    let attempt = when.then(Succeeded).current().unwrap();
    assert_eq!((attempt.outcome, &attempt.error, attempt.class), (Some(Outcome::Succeeded), &None, None));
    let newer = given(&[hq::dispatched(1), hq::lost(1), hq::dispatched(2), by::started(2)]);
    let when = newer.when(by::succeeded(1));
    let task = when.then(Succeeded);
    assert_eq!(task.superseded_open().map(|a| a.number).collect::<Vec<_>>(), [2], "the newer one is asked to stop");
}

#[test]
fn a_late_success_is_late_not_wrong() {
    let exhausted = || {
        let mut story = Story::with(1, |spec| spec.retry.max_attempts = 1);
        story.all(0, &[hq::dispatched(1), hq::timed_out(1, Run)]).clone()
    };
    let when = exhausted().when(by::succeeded(1));
    let task = when.then(Succeeded);
    assert!(task.late && task.failure.is_none() && task.error.is_none());
    assert!(given(&[hq::dispatched(1), hq::expired(1)]).when(by::succeeded(1)).then(Succeeded).late);

    given(&[hq::dispatched(1), by::failed(1, "BIZ_1")]).when(by::succeeded(1)).absorbed(Effect::Late);
    exhausted().plan(PlanEvent::Closed).clone().when(by::succeeded(1)).absorbed(Effect::Late);
}

#[test]
fn a_pending_task_is_cancelled_at_once() {
    given(&[]).when(hq::cancel(0)).then(Cancelled);
    given(&[hq::dispatched(1), hq::lost(1)]).when(hq::cancel(0)).then(Cancelled);
    given(&[]).when(hq::cancelled()).absorbed(Effect::Ignored);
}

#[test]
fn a_live_task_is_cancelling_first() {
    for start in [vec![], vec![by::started(1)]] {
        let mut story = given(&[hq::dispatched(1)]);
        story.all(0, &start).at(5);
        let state = story.task(0).state;
        let when = story.when(hq::cancel(1));
        let task = when.then(state);
        assert!(task.cancelling && task.current().unwrap().stop_requested && task.current().unwrap().is_open());
        assert_eq!(task.cancel_ms(), SEALED_MS + 5);
        let when = when.story.when(hq::cancel(1));
        when.absorbed(Effect::Ignored);
        assert!(!when.story.when(hq::cancelled()).then(Cancelled).cancelling);
    }
    given(&[hq::dispatched(1)]).when(hq::cancelled()).absorbed(Effect::Ignored);
}

#[test]
fn a_cancel_counts_though_the_attempt_was_marked_before() {
    let when = given(&[hq::dispatched(1), hq::stop(1)]).when(hq::cancel(1));
    assert!(when.then(Dispatched).cancelling);
}

#[test]
fn a_cancelling_task_ends_cancelled_unless_it_succeeds() {
    let ends = [
        by::failed(1, "NET_1"),
        by::failed(1, "BIZ_1"),
        by::invalid(1),
        by::stopped(1),
        by::rejected(1, "BUSY"),
        by::rejected(1, "OTHER"),
        hq::timed_out(1, Delivery),
        hq::timed_out(1, Run),
        hq::timed_out(1, Progress),
        hq::lost(1),
        hq::cancelled(),
    ];
    for end in ends {
        given(&[hq::dispatched(1), hq::cancel(1)]).when(end).then(Cancelled);
    }
    given(&[hq::dispatched(1), hq::cancel(1)]).when(by::succeeded(1)).then(Succeeded);
    given(&[hq::dispatched(1), hq::cancel(1)]).when(by::started(1)).then(Running);
}

#[test]
fn expiry_fails_whatever_is_not_final() {
    let when = given(&[hq::deferred(Some(3))]).when(hq::expired(0));
    let task = when.then(Failed);
    assert_eq!((task.failure, task.waiting), (Some(FailReason::Expired), Some(Waiting::Offline(Some(3)))));
    assert_eq!(task.error.as_ref().unwrap().code, "EXPIRED");
    let when = given(&[hq::dispatched(1), by::started(1)]).when(hq::expired(1));
    let attempt = when.then(Failed).current().unwrap();
    assert!(attempt.stop_requested && attempt.is_open());
    // What went wrong before is worth more than that time ran out.
    let when = given(&[hq::dispatched(1), by::failed(1, "NET_1")]).when(hq::expired(0));
    assert_eq!(when.then(Failed).error.as_ref().unwrap().code, "NET_1");
    given(&[hq::expired(0)]).when(hq::expired(0)).absorbed(Effect::Ignored);
    given(&[hq::cancel(0)]).when(hq::expired(0)).absorbed(Effect::Ignored);
}

#[test]
fn a_stop_request_marks_its_attempt_in_any_state() {
    let histories =
        [vec![], vec![by::started(1)], vec![by::failed(1, "X")], vec![by::failed(1, "BIZ_1")], vec![by::succeeded(1)]];
    for history in histories {
        let mut story = given(&[hq::dispatched(1)]);
        let state = story.all(0, &history).task(0).state;
        let when = story.when(hq::stop(1));
        assert!(when.then(state).attempts[0].stop_requested);
        when.story.when(hq::stop(1)).absorbed(Effect::Ignored);
    }
    given(&[hq::dispatched(1)]).when(hq::stop(2)).absorbed(Effect::Ignored);
}

#[test]
fn a_dispatch_of_a_task_that_is_not_pending_is_superseded() {
    let histories = [
        vec![],
        vec![by::started(1)],
        vec![by::failed(1, "BIZ_1")],
        vec![by::succeeded(1)],
        vec![hq::cancel(1), hq::cancelled()],
    ];
    for history in histories {
        let mut story = given(&[hq::dispatched(1)]);
        let state = story.all(0, &history).task(0).state;
        let when = story.when(hq::dispatched(2));
        let task = when.then(state);
        assert_eq!((task.attempt, task.last_attempt, task.attempts[1].superseded), (1, 2, true));
        assert!(task.superseded_open().any(|a| a.number == 2));
    }
}

#[test]
fn a_failed_task_is_requeued_with_no_tries_used() {
    let when = given(&[hq::dispatched(1), by::failed(1, "BIZ_1")]).when(hq::requeued(7));
    let task = when.then(Pending);
    assert_eq!((task.tries, task.attempt, task.not_before_ms, task.final_seq), (0, 1, 0, 0));
    assert_eq!((&task.error, task.failure, task.last_outcome), (&None, None, None));
    when.story.when(hq::dispatched(2)).then(Dispatched);
}

#[test]
fn nothing_else_is_requeued() {
    for history in [vec![], vec![hq::dispatched(1)], vec![hq::cancel(0)], vec![hq::dispatched(1), by::succeeded(1)]] {
        given(&history).when(hq::requeued(7)).absorbed(Effect::Ignored);
    }
    let mut story = given(&[hq::expired(0)]);
    story.plan(PlanEvent::Closed).clone().when(hq::requeued(7)).absorbed(Effect::Ignored);
}

#[test]
fn foreign_reports_are_counted_and_nothing_else() {
    let given = given(&[hq::dispatched(1), by::started(1)]);
    for attempt in [0, 2, u32::MAX] {
        given.clone().when(by::succeeded(attempt)).absorbed(Effect::Foreign);
    }
    for (_, event) in [by::succeeded(1), by::failed(1, "X"), by::stopped(1), by::started(1), by::progressed(1, 0)] {
        given.clone().when((By::Other, event)).absorbed(Effect::Foreign);
    }
}

#[test]
fn an_attempt_belongs_to_the_terminal_it_was_handed_to() {
    let other = given(&[hq::dispatched_to(1, "other")]);
    other.clone().when(by::succeeded(1)).absorbed(Effect::Foreign);
    other.when((By::Other, by::succeeded(1).1)).then(Succeeded);
}

#[test]
fn nobody_speaks_in_the_others_place() {
    let given = given(&[hq::dispatched(1)]);
    given.clone().when((By::Own, hq::expired(1).1)).absorbed(Effect::Foreign);
    given.when((By::Hq, by::succeeded(1).1)).absorbed(Effect::Ignored);
}
