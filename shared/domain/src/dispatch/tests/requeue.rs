//! When a request makes a requeue due, and when it doesn't.

use super::{UNSEEN, fresh, show};
use crate::dispatch::requeue_due;
use crate::event::TimeoutKind::{Delivery, Run};
use crate::plan::{PlanEvent, RequeueSelector};
use crate::testing::{Story, asked, by, given, hq, task_id};

fn requeue(selector: RequeueSelector) -> PlanEvent {
    PlanEvent::RequeueRequested(selector)
}

fn all_failed() -> PlanEvent {
    requeue(RequeueSelector::Failed { codes: vec![] })
}

#[test]
fn a_requeue_applies_to_what_failed_before_it() {
    let mut story = given(&[hq::dispatched(1), by::failed(1, "BIZ_1")]);
    assert_eq!(requeue_due(&story.view, 0), None);
    story.plan(all_failed());
    assert_eq!(show(&story, &UNSEEN, &fresh(0)), format!("requeue by {}", story.seq));
    let request_seq = story.seq;
    story.say(0, &hq::requeued(request_seq));
    assert_eq!(requeue_due(&story.view, 0), None, "done");
    story.all(0, &[hq::dispatched(2), by::failed(2, "BIZ_1")]);
    assert_eq!(requeue_due(&story.view, 0), None, "an old request moves nothing twice");
}

#[test]
fn a_requeue_does_not_apply_to_later_failures_nor_after_a_decision() {
    let mut later = given(&[hq::dispatched(1)]);
    later.plan(all_failed()).all(0, &[by::failed(1, "BIZ_1")]);
    assert_eq!(requeue_due(&later.view, 0), None, "it failed after the request");
    let mut decided = given(&[hq::dispatched(1), by::failed(1, "BIZ_1")]);
    decided.plan(all_failed()).all(0, &[hq::stop(1)]);
    assert_eq!(requeue_due(&decided.view, 0), None, "something was decided after the request");
    let mut reported = given(&[hq::dispatched(1), by::failed(1, "BIZ_1")]);
    reported.plan(all_failed()).all(0, &[by::failed(1, "BIZ_1")]);
    assert!(requeue_due(&reported.view, 0).is_some(), "a report is no decision");
    for history in [vec![], vec![hq::cancel(0)], vec![hq::dispatched(1), by::succeeded(1)]] {
        let mut other = given(&history);
        other.plan(all_failed());
        assert_eq!(requeue_due(&other.view, 0), None, "only FAILED tasks");
    }
}

#[test]
fn a_requeue_names_tasks_or_selects_by_code() {
    let due = |selector| {
        let mut story = Story::new(2);
        story.all(0, &[hq::dispatched(1), by::failed(1, "BIZ_1")]).all(1, &[hq::dispatched(1), by::failed(1, "BIZ_2")]);
        story.plan(requeue(selector));
        [0, 1].map(|i| requeue_due(&story.view, i).is_some())
    };
    assert_eq!(due(RequeueSelector::Tasks(vec![task_id(1)])), [false, true]);
    assert_eq!(due(RequeueSelector::Tasks(vec![])), [false, false]);
    assert_eq!(due(RequeueSelector::Failed { codes: vec![] }), [true, true]);
    assert_eq!(due(RequeueSelector::Failed { codes: vec!["BIZ_1".into()] }), [true, false]);
    assert_eq!(due(RequeueSelector::Failed { codes: vec!["BIZ".into()] }), [false, false]);
}

#[test]
fn a_requeue_is_refused_after_cancel_close_and_closed() {
    for stop in [PlanEvent::CancelRequested(asked()), PlanEvent::CloseRequested(asked()), PlanEvent::Closed] {
        let mut story = given(&[hq::dispatched(1), by::failed(1, "BIZ_1")]);
        story.plan(stop.clone()).plan(all_failed());
        assert_eq!(requeue_due(&story.view, 0), None, "{}", stop.name());
    }
}

#[test]
fn the_newest_due_request_is_named() {
    let mut story =
        given(&[hq::dispatched(1), hq::timed_out(1, Delivery), hq::dispatched(2), hq::timed_out(2, Run), hq::expired(0)]);
    story.plan(all_failed()).plan(requeue(RequeueSelector::Tasks(vec![])));
    assert_eq!(requeue_due(&story.view, 0), Some(story.seq - 1));
    story.plan(all_failed());
    assert_eq!(requeue_due(&story.view, 0), Some(story.seq));
}
