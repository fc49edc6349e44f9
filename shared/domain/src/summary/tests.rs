//! The account: its bytes, what changed, its verdict, its rows, and that it refuses to be wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{Draft, NextStep, PIECE_BYTES, PlanVerdict, Summary, SummaryError, next, verdict};
use crate::aggregate::{AggregateOp, AggregateSpec};
use crate::event::TimeoutKind::{Delivery, Run};
use crate::plan::{Below, PlanEvent, Seal, SummaryKind};
use crate::sets::SetCounts;
use crate::testing::{SEALED_MS, Said, Story, asked, by, given, hq};

fn text(story: &Story, kind: SummaryKind) -> String {
    String::from_utf8(Summary::compute(&story.view, kind).unwrap().to_bytes().unwrap()).unwrap()
}

fn small() -> Story {
    let mut story = Story::with(4, |spec| {
        spec.title = Some("Count the files".into());
        let pointer = "/n".to_owned();
        spec.aggregates = vec![AggregateSpec { name: "n".into(), op: AggregateOp::Sum, pointer, k: None, p: None }];
    });
    story.all(0, &[hq::dispatched(1), by::succeeded(1)]);
    story.all(1, &[hq::deferred(Some(SEALED_MS))]);
    story.all(2, &[hq::dispatched(1), by::failed(1, "BIZ_1")]);
    story.all(3, &[hq::dispatched(1), by::started(1)]);
    story.plan(PlanEvent::DeadlineReached);
    story
}

#[test]
fn a_small_summary_reads_like_this() {
    let expected = concat!(
        r#"{"planId":"plan_1","title":"Count the files","type":"echo@1","revision":1,"kind":"partial","asOfSeq":11,"#,
        r#""verdict":"reserved","total":4,"#,
        r#""targetsSha256":"abababababababababababababababababababababababababababababababab","#,
        r#""counts":{"succeeded":1,"failed":1,"invalid":0,"timedOut":1,"offline":1,"running":0,"pending":0,"cancelled":0},"#,
        r#""aggregates":[{"name":"n","op":"sum","value":1,"results":1}],"changed":["T0","T1","T2","T3"],"rows":["#,
        r#"{"target":"T0","set":"succeeded","state":"SUCCEEDED","attempt":1,"result":{"n":1}},"#,
        r#"{"target":"T1","set":"offline","state":"PENDING","attempt":0,"lastSeenMs":1700000000000,"next":"whenOnline"},"#,
        r#"{"target":"T2","set":"failed","state":"FAILED","attempt":1,"failure":"business","error":{"code":"BIZ_1","#,
        r#""message":"m"},"next":"mayRequeue"},"#,
        r#"{"target":"T3","set":"timedOut","state":"RUNNING","attempt":1,"stillOut":true,"next":"awaitReport"}]}"#,
    );
    assert_eq!(text(&small(), SummaryKind::Partial), expected);
}

#[test]
fn the_same_view_gives_the_same_bytes() {
    let story = small();
    assert_eq!(text(&story, SummaryKind::Partial), text(&story.clone(), SummaryKind::Partial));
    assert_eq!(text(&story, SummaryKind::Partial), text(&small(), SummaryKind::Partial), "folded again");
}

#[test]
fn changed_is_what_changed_since_the_one_before() {
    let changed = |story: &Story| {
        let summary = Summary::compute(&story.view, SummaryKind::Update).unwrap();
        summary.changed().map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let mut story = small();
    story.summarised(1, SummaryKind::Partial);
    assert!(changed(&story).is_empty());
    story.all(3, &[by::succeeded(1)]).all(0, &[by::succeeded(1), by::failed(1, "X")]);
    assert_eq!(changed(&story), ["T3"], "an absorbed report is no change");
    story.all(1, &[hq::released()]);
    assert_eq!(changed(&story), ["T1", "T3"], "in target order");
    let summary = Summary::compute(&story.view, SummaryKind::Update).unwrap();
    assert_eq!((summary.revision, summary.previous.as_ref().unwrap().as_of_seq), (2, 11));
    story.summarised(2, SummaryKind::Update);
    assert!(changed(&story).is_empty());
}

#[test]
fn what_a_deadline_makes_of_running_tasks_is_a_change() {
    let mut story = Story::new(2);
    story.all(0, &[hq::dispatched(1)]).summarised(1, SummaryKind::Complete).plan(PlanEvent::DeadlineReached);
    let summary = Summary::compute(&story.view, SummaryKind::Update).unwrap();
    assert_eq!(summary.changed().collect::<Vec<_>>(), ["T0"]);
}

#[test]
fn the_final_summary_stands_at_the_closing() {
    let mut story = Story::new(1);
    story.all(0, &[hq::dispatched(1), hq::expired(1)]).plan(PlanEvent::CloseRequested(asked()));
    let closed_seq = story.plan(PlanEvent::Closed).seq;
    let at_closing = text(&story, SummaryKind::Final);
    story.all(0, &[by::succeeded(1), by::stopped(1)]);
    assert_eq!(text(&story, SummaryKind::Final), at_closing, "what is absorbed as late changes nothing, whenever it is computed");
    assert_eq!(Summary::compute(&story.view, SummaryKind::Final).unwrap().as_of_seq, closed_seq);
}

#[test]
fn a_wrong_sum_is_refused() {
    let mut story = Story::unsealed(2, |_| {});
    assert_eq!(Summary::compute(&story.view, SummaryKind::Partial).unwrap_err(), SummaryError::NotSealed);
    story.plan(PlanEvent::Sealed(Seal { count: 3, sha256: String::new(), by: String::new() }));
    let error = Summary::compute(&story.view, SummaryKind::Partial).unwrap_err();
    assert_eq!(error, SummaryError::DoesNotAddUp { sum: 2, sealed: 3, rows: 2 });

    let story = small();
    let whole = || Summary::compute(&story.view, SummaryKind::Partial).unwrap();
    let recount = whole().counts;
    let mut one_more = whole();
    one_more.counts.failed += 1;
    assert!(one_more.check(&recount).is_err() && one_more.check(&one_more.counts).is_err());
    let mut other_list = whole();
    other_list.total = 3;
    assert!(other_list.check(&recount).is_err());
    let mut swapped = whole();
    swapped.counts.failed -= 1;
    swapped.counts.succeeded += 1;
    assert!(swapped.check(&recount).is_err(), "the right sum of the wrong sets");
    assert!(whole().check(&recount).is_ok());
}

#[test]
fn the_pieces_are_the_document_and_none_is_much_larger_than_the_others() {
    let mut story = Story::new(3_000);
    for i in 0..3_000 {
        story.all(i, &[hq::dispatched(1), by::succeeded(1)]);
    }
    let summary = Summary::compute(&story.view, SummaryKind::Partial).unwrap();
    let pieces: Vec<Vec<u8>> = summary.pieces().map(Result::unwrap).collect();
    assert!(pieces.len() > 2 && pieces.iter().all(|p| p.len() < PIECE_BYTES + 1_000));
    assert!(pieces.iter().rev().skip(1).all(|p| p.len() >= PIECE_BYTES));
    assert_eq!(pieces.concat(), summary.to_bytes().unwrap());
    let document: serde_json::Value = serde_json::from_slice(&pieces.concat()).unwrap();
    let lists = [&document["changed"], &document["rows"]].map(|list| list.as_array().unwrap().len());
    assert_eq!(lists, [3_000, 3_000]);
    // Computed some tasks at a time it is the same.
    let mut draft = Draft::begin(&story.view, SummaryKind::Partial);
    let turns = 1 + std::iter::from_fn(|| draft.advance(700).then_some(())).count();
    assert_eq!((turns, draft.finish().unwrap().to_bytes().unwrap()), (5, pieces.concat()));
}

#[test]
fn the_verdict_table() {
    let judge = |succeeded, failed, min_success, below| {
        let story = Story::with(1, |spec| spec.converge = crate::plan::Converge { min_success, below });
        verdict(&story.view.plan, &SetCounts { succeeded, failed, ..SetCounts::default() })
    };
    for below in [Below::Reserved, Below::Fail] {
        assert_eq!(judge(10, 0, 1.0, below), PlanVerdict::Full);
        assert_eq!(judge(9, 1, 0.9, below), PlanVerdict::Reserved);
        assert_eq!(judge(0, 10, 0.0, below), PlanVerdict::Reserved, "nothing was wanted");
    }
    assert_eq!(judge(8, 2, 0.9, Below::Reserved), PlanVerdict::Reserved);
    assert_eq!(judge(8, 2, 0.9, Below::Fail), PlanVerdict::Failed);
    assert_eq!(judge(0, 10, 0.1, Below::Fail), PlanVerdict::Failed);
    assert_eq!(judge(9, 1, f64::NAN, Below::Fail), PlanVerdict::Reserved, "not a number wants nothing");
}

fn row_json(story: &Story) -> serde_json::Value {
    let summary = Summary::compute(&story.view, SummaryKind::Update).unwrap();
    serde_json::to_value(summary.rows().next().unwrap()).unwrap()
}

#[test]
fn offline_rows_say_since_when() {
    let row = row_json(&given(&[hq::deferred(None)]));
    assert_eq!((row.get("lastSeenMs"), &row["set"]), (Some(&serde_json::Value::Null), &"offline".into()), "null is never");
    assert_eq!(row_json(&given(&[hq::deferred(Some(7)), hq::expired(0)]))["lastSeenMs"], 7);
    assert_eq!(row_json(&given(&[hq::deferred(Some(7)), hq::released()])).get("lastSeenMs"), None);
}

#[test]
fn late_rows_say_so() {
    let row = row_json(&given(&[hq::dispatched(1), hq::expired(1), by::succeeded(1)]));
    assert_eq!(
        (&row["late"], &row["set"], row.get("failure"), row.get("error")),
        (&true.into(), &"succeeded".into(), None, None)
    );
    assert_eq!(row_json(&given(&[hq::dispatched(1), by::succeeded(1)])).get("late"), None);
}

#[test]
fn still_out_is_only_said_after_the_deadline() {
    let mut story = given(&[hq::dispatched(1)]);
    assert_eq!(row_json(&story).get("stillOut"), None);
    story.plan(PlanEvent::DeadlineReached);
    assert_eq!(row_json(&story)["stillOut"], true);
    story.all(0, &[hq::timed_out(1, Run)]);
    let row = row_json(&story);
    assert_eq!((row.get("stillOut"), &row["set"]), (None, &"timedOut".into()), "timed out, but not out any more");
}

#[test]
fn rows_that_need_attention_say_so() {
    let mut story = Story::new(1);
    for n in 1..=20 {
        story.all(0, &[hq::dispatched(n), hq::timed_out(n, Delivery)]);
    }
    assert_eq!(row_json(&story)["needsAttention"], true);
}

#[test]
fn every_row_says_what_comes_next() {
    let table: [(&[Said], Option<NextStep>); 9] = [
        (&[], Some(NextStep::WhenItsTurn)),
        (&[hq::deferred(None)], Some(NextStep::WhenOnline)),
        (&[hq::dispatched(1), by::failed(1, "NET_1")], Some(NextStep::Retry)),
        (&[hq::dispatched(1), hq::timed_out(1, Delivery), hq::deferred(None)], Some(NextStep::WhenOnline)),
        (&[hq::dispatched(1)], Some(NextStep::AwaitReport)),
        (&[hq::dispatched(1), hq::cancel(1)], Some(NextStep::AwaitStop)),
        (&[hq::expired(0)], Some(NextStep::MayRequeue)),
        (&[hq::cancel(0)], None),
        (&[hq::dispatched(1), by::succeeded(1)], None),
    ];
    for (history, expected) in table {
        let story = given(history);
        assert_eq!(next(&story.view.plan, story.task(0)), expected, "{history:?}");
    }
    for stop in [PlanEvent::CancelRequested(asked()), PlanEvent::CloseRequested(asked()), PlanEvent::Closed] {
        let mut story = given(&[hq::expired(0)]);
        story.plan(stop);
        assert_eq!(next(&story.view.plan, story.task(0)), Some(NextStep::FollowUp));
    }
}
