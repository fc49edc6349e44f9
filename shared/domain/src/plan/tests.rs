//! What a plan makes of its events, in and out of place.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{Limits, Moment, PlanEvent, REQUEUE_REQUESTS_MAX, RequeueSelector, Seal, SummaryKind};
use crate::testing::{DEADLINE_MS, EXPIRES_MS, SEALED_MS, Story, asked, target};

fn seal(count: u32) -> PlanEvent {
    PlanEvent::Sealed(Seal { count, sha256: "00".into(), by: "x".into() })
}

fn all_failed() -> PlanEvent {
    PlanEvent::RequeueRequested(RequeueSelector::Failed { codes: vec![] })
}

#[test]
fn targets_keep_their_first_place() {
    let mut story = Story::unsealed(2, |_| {});
    story.plan(PlanEvent::Targets { targets: vec![target(0), target(7), target(1), target(8)] });
    let plan = &story.view.plan;
    assert_eq!(plan.targets[..], [0, 1, 7, 8].map(target));
    assert_eq!(plan.ignored, 2);
    for (i, target) in plan.targets.iter().enumerate() {
        assert_eq!(plan.index_of(target.as_str()), Some(i), "{target} points at its own task");
    }
    assert_eq!(story.view.tasks.len(), 4);
}

#[test]
fn a_seal_is_for_ever() {
    let mut story = Story::new(1);
    story.at(50).plan(seal(9)).plan(PlanEvent::Targets { targets: vec![target(5)] });
    let plan = &story.view.plan;
    assert_eq!((plan.seal.as_ref().unwrap().0.count, plan.targets.len(), plan.ignored), (1, 1, 2));
    assert_eq!(plan.sealed_ms(), Some(SEALED_MS));
    assert_eq!(plan.deadline_ms(), Some(SEALED_MS + DEADLINE_MS));
    assert_eq!(plan.expires_ms(), Some(SEALED_MS + EXPIRES_MS));
    assert_eq!(Moment::AfterSealMs(i64::MAX).resolve(SEALED_MS), i64::MAX);
}

#[test]
fn dispatch_needs_a_seal_and_no_stop() {
    assert!(!Story::unsealed(1, |_| {}).view.plan.may_dispatch());
    assert!(Story::new(1).view.plan.may_dispatch());
    for stop in [PlanEvent::Paused, PlanEvent::CancelRequested(asked()), PlanEvent::CloseRequested(asked()), PlanEvent::Closed] {
        let mut story = Story::new(1);
        story.plan(stop.clone());
        assert!(!story.view.plan.may_dispatch(), "{}", stop.name());
        story.plan(PlanEvent::Resumed);
        assert_eq!(story.view.plan.may_dispatch(), matches!(stop, PlanEvent::Paused));
    }
}

#[test]
fn limits_change_but_the_spec_does_not() {
    let mut story = Story::new(1);
    story.plan(PlanEvent::LimitsChanged(Limits { in_flight: 7 }));
    assert_eq!((story.view.plan.limits.in_flight, story.view.plan.spec.limits.in_flight), (7, 100));
}

#[test]
fn what_happens_once_keeps_its_first_sequence() {
    let mut story = Story::new(1);
    let once = [PlanEvent::Cancelled, PlanEvent::DeadlineReached, PlanEvent::Closed];
    once.iter().cloned().for_each(|event| _ = story.plan(event));
    let seqs = |story: &Story| {
        let plan = &story.view.plan;
        (plan.cancelled_seq, plan.deadline_seq, plan.closed_seq)
    };
    let first = seqs(&story);
    once.into_iter().for_each(|event| _ = story.plan(event));
    assert_eq!((seqs(&story), story.view.plan.ignored), (first, 3));
    assert_eq!(story.view.plan.plan_seq, story.seq, "ignored events count for the next one's expectation");
}

#[test]
fn closed_before_is_about_the_logs_order() {
    let mut story = Story::new(1);
    assert!(!story.view.plan.closed_before(u64::MAX));
    let closed = story.plan(PlanEvent::Closed).seq;
    let plan = &story.view.plan;
    assert_eq!([closed - 1, closed, closed + 1].map(|seq| plan.closed_before(seq)), [false, false, true]);
}

#[test]
fn requeue_requests_are_bounded_and_refused_after_cancel_or_close() {
    let mut story = Story::new(1);
    for _ in 0..REQUEUE_REQUESTS_MAX + 10 {
        story.plan(all_failed());
    }
    let requeues = &story.view.plan.requeues;
    assert_eq!((requeues.len(), requeues.last().unwrap().seq), (REQUEUE_REQUESTS_MAX, story.seq));
    for stop in [PlanEvent::CancelRequested(asked()), PlanEvent::CloseRequested(asked())] {
        let mut story = Story::new(1);
        story.plan(stop).plan(all_failed());
        assert_eq!((story.view.plan.requeues.len(), story.view.plan.ignored), (0, 1));
    }
}

#[test]
fn a_cancel_after_a_close_and_a_second_request_are_ignored() {
    let mut story = Story::new(1);
    story.plan(PlanEvent::CloseRequested(asked())).plan(PlanEvent::CancelRequested(asked()));
    story.plan(PlanEvent::CloseRequested(asked()));
    let plan = &story.view.plan;
    assert_eq!((plan.cancel.is_none(), plan.close.as_ref().unwrap().1, plan.ignored), (true, story.seq - 2, 2));
}

#[test]
fn nothing_is_summarised_after_the_final() {
    let mut story = Story::new(1);
    story.plan(PlanEvent::Closed).summarised(1, SummaryKind::Final);
    assert!(story.view.is_over());
    story.summarised(2, SummaryKind::Update);
    assert_eq!((story.view.plan.summary.as_ref().unwrap().0.this.revision, story.view.plan.ignored), (1, 1));
}

#[test]
fn plan_data_reads_what_it_writes() {
    let spec = crate::testing::spec();
    let text = serde_json::to_string(&spec).unwrap();
    let back: super::PlanSpec = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
    assert_eq!((back.deadline, &back.retry, back.timeouts), (spec.deadline, &spec.retry, spec.timeouts));
    for selector in
        [RequeueSelector::Failed { codes: vec!["A".into()] }, RequeueSelector::Tasks(vec![crate::testing::task_id(3)])]
    {
        let text = serde_json::to_string(&selector).unwrap();
        assert_eq!(serde_json::from_str::<RequeueSelector>(&text).unwrap(), selector, "{text}");
    }
}
