//! A plan with its tasks: what is folded where, and what the indexes say.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::PlanView;
use crate::event::{LoggedTaskEvent, Writer};
use crate::plan::{LoggedPlanEvent, PlanEvent};
use crate::testing::{SEALED_MS, Story, by, hq, target, task_id};

#[test]
fn a_view_begins_with_its_submission_only() {
    for event in [PlanEvent::Paused, PlanEvent::Closed] {
        assert!(PlanView::begin(&LoggedPlanEvent { seq: 1, time_ms: 0, event }).is_none());
    }
    let story = Story::unsealed(0, |_| {});
    assert!(!story.view.all_final(), "a plan without a seal is never done");
}

#[test]
fn a_plan_of_unknown_rules_has_no_view() {
    for rules in [0, crate::RULES_VERSION + 1, u32::MAX] {
        let mut spec = crate::testing::spec();
        spec.rules = rules;
        let event = PlanEvent::Submitted(Box::new(spec));
        assert!(PlanView::begin(&LoggedPlanEvent { seq: 1, time_ms: 0, event }).is_none(), "rules {rules}");
    }
}

#[test]
fn tasks_are_named_in_target_order() {
    let story = Story::new(3);
    assert_eq!(
        (0..4).map(|i| story.view.task_id(i)).collect::<Vec<_>>(),
        [Some(task_id(0)), Some(task_id(1)), Some(task_id(2)), None]
    );
}

#[test]
fn events_of_other_targets_are_counted_as_foreign() {
    let mut story = Story::new(1);
    let logged = LoggedTaskEvent { seq: story.seq + 1, time_ms: SEALED_MS, writer: Writer::Hq, event: hq::deferred(None).1 };
    assert!(story.view.apply_task(&target(9), &logged).is_none());
    assert_eq!((story.view.unknown, story.view.absorbed().foreign, story.view.last_seq), (1, 1, logged.seq));
    assert_eq!(story.view.counts().total(), 1);
}

#[test]
fn the_indexes_follow_the_tasks() {
    let mut story = Story::new(3);
    story.all(0, &[hq::dispatched(1), by::succeeded(1)]);
    story.all(1, &[hq::dispatched(1), by::failed(1, "BIZ_1"), hq::dispatched(2)]);
    story.all(2, &[hq::dispatched(1)]);
    let view = &story.view;
    let indexes = |bits: &crate::bits::Bits| bits.iter().collect::<Vec<_>>();
    assert_eq!(indexes(&view.finals), [0, 1]);
    assert_eq!(indexes(&view.not_succeeded), [1]);
    assert_eq!(indexes(&view.live), [2]);
    assert_eq!(indexes(&view.superseded), [1]);
    assert!(!view.all_final());
    story.say(1, &hq::requeued(1));
    assert_eq!(indexes(&story.view.finals), [0]);
    assert!(story.view.not_succeeded.is_empty());
}

#[test]
fn absorbed_counts_are_summed() {
    let mut story = Story::new(2);
    story.all(0, &[hq::dispatched(1), by::succeeded(1), by::succeeded(1), by::failed(1, "X")]);
    story.all(1, &[by::started(1), hq::cancelled()]);
    let absorbed = story.view.absorbed();
    assert_eq!((absorbed.duplicate, absorbed.late, absorbed.foreign, absorbed.ignored, absorbed.stale), (1, 1, 1, 1, 0));
}

#[test]
fn repeated_plan_events_are_folded_once() {
    let mut story = Story::new(1);
    let logged = LoggedPlanEvent { seq: story.seq, time_ms: 0, event: PlanEvent::Paused };
    story.view.apply_plan(&logged);
    assert!(!story.view.plan.paused);
}
