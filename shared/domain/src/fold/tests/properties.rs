//! What holds after any history whatever, in any order and with any repetition.

use proptest::prelude::*;

use crate::dispatch::{Hq, Presence, Step, next_step};
use crate::event::TimeoutKind;
use crate::fold::Effect;
use crate::plan::{PlanEvent, RequeueSelector};
use crate::sets::{SetCounts, TaskSet, base_set, set_of};
use crate::task::{Absorbed, TaskState};
use crate::testing::{By, Said, Story, asked, assert_only_counted, by, hq};
use crate::view::PlanView;

const TARGETS: usize = 3;

/// An event of the log: about a task, or of the plan.
#[derive(Debug, Clone)]
enum Any {
    Task(usize, Said),
    /// Dispatches with the number the fold expects next, so that histories get somewhere.
    DispatchNext(usize),
    Plan(PlanEvent),
    Wait(i64),
}

fn attempt() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0u32..4, 1 => Just(u32::MAX)]
}

fn code() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["BUSY", "ALREADY_DONE", "BIZ_1", "NET_1", "TIMEOUT", "LOST", "SCHEMA_INVALID", ""])
}

fn kind() -> impl Strategy<Value = TimeoutKind> {
    prop::sample::select(vec![TimeoutKind::Delivery, TimeoutKind::Run, TimeoutKind::Progress])
}

fn decision() -> impl Strategy<Value = Said> {
    prop_oneof![
        attempt().prop_map(hq::dispatched),
        attempt().prop_map(|n| hq::dispatched_to(n, "other")),
        any::<bool>().prop_map(|seen| hq::deferred(seen.then_some(1))),
        Just(hq::released()),
        (attempt(), kind()).prop_map(|(n, k)| hq::timed_out(n, k)),
        attempt().prop_map(hq::lost),
        attempt().prop_map(hq::stop),
        attempt().prop_map(hq::cancel),
        Just(hq::cancelled()),
        attempt().prop_map(hq::expired),
        Just(hq::requeued(1)),
    ]
}

fn report() -> impl Strategy<Value = Said> {
    let said = prop_oneof![
        attempt().prop_map(by::started),
        (attempt(), 0u32..3).prop_map(|(n, k)| by::progressed(n, k)),
        attempt().prop_map(by::succeeded),
        attempt().prop_map(by::invalid),
        (attempt(), code()).prop_map(|(n, c)| by::failed(n, c)),
        (attempt(), code()).prop_map(|(n, c)| by::rejected(n, c)),
        attempt().prop_map(by::stopped),
    ];
    let who = prop_oneof![8 => Just(By::Own), 2 => Just(By::Other), 1 => Just(By::Hq)];
    (who, said).prop_map(|(who, (_, event))| (who, event))
}

fn plan_event() -> impl Strategy<Value = Any> {
    let events = vec![
        PlanEvent::DeadlineReached,
        PlanEvent::Closed,
        PlanEvent::Paused,
        PlanEvent::Cancelled,
        PlanEvent::CancelRequested(asked()),
        PlanEvent::CloseRequested(asked()),
        PlanEvent::RequeueRequested(RequeueSelector::Failed { codes: vec![] }),
        PlanEvent::RequeueRequested(RequeueSelector::Failed { codes: vec![] }),
    ];
    prop::sample::select(events).prop_map(Any::Plan)
}

fn history() -> impl Strategy<Value = Vec<Any>> {
    let any = prop_oneof![
        20 => (0..TARGETS, decision()).prop_map(|(i, s)| Any::Task(i, s)),
        20 => (0..TARGETS, report()).prop_map(|(i, s)| Any::Task(i, s)),
        14 => (0..TARGETS).prop_map(Any::DispatchNext),
        2 => plan_event(),
        4 => (-5_000i64..100_000).prop_map(Any::Wait),
    ];
    prop::collection::vec(any, 0..90)
}

fn begin() -> Story {
    Story::with(TARGETS, |spec| spec.retry.max_attempts = 2)
}

/// Appends one; the task it was about, what it did, and whether it was a report.
fn append(story: &mut Story, any: &Any) -> Option<(usize, Effect, Said)> {
    let (i, said) = match any {
        Any::Task(i, said) => (*i, said.clone()),
        Any::DispatchNext(i) => (*i, hq::dispatched(story.task(*i).last_attempt + 1)),
        Any::Plan(event) => {
            story.plan(event.clone());
            return None;
        }
        Any::Wait(ms) => {
            story.now_ms += ms;
            return None;
        }
    };
    let effect = story.say(i, &said);
    Some((i, effect, said))
}

fn presence() -> impl Strategy<Value = Presence> {
    let facts = prop::array::uniform6(any::<bool>());
    (prop::option::of(-100_000i64..10), facts).prop_map(|(seen, facts)| {
        let [gone, usable, lists_attempt, same_journal, forgot_attempt, synced] = facts;
        let last_seen_ms = seen.map(|ago| crate::testing::SEALED_MS + ago);
        Presence {
            last_seen_ms,
            gone,
            beat_ms: 0,
            usable,
            usable_at_ms: None,
            lists_attempt,
            same_journal,
            forgot_attempt,
            synced,
        }
    })
}

/// Whatever the view keeps beside its tasks is what counting the tasks gives.
fn assert_indexes(view: &PlanView) {
    let (mut counts, mut absorbed) = (SetCounts::default(), Absorbed::default());
    for (i, task) in view.tasks.iter().enumerate() {
        counts.count(set_of(&view.plan, task));
        absorbed.add(&task.absorbed());
        let sets: Vec<TaskSet> = TaskSet::ALL.into_iter().filter(|set| view.members.of(*set).contains(i)).collect();
        assert_eq!(sets, [base_set(task)], "task {i} is in exactly one set");
        let open = task.superseded_open().next().is_some();
        let failed = matches!(task.state, TaskState::Failed | TaskState::Cancelled);
        assert_eq!(
            [&view.finals, &view.live, &view.not_succeeded, &view.cancelling, &view.superseded].map(|bits| bits.contains(i)),
            [task.state.is_final(), task.state.is_live(), failed, task.cancelling, open],
            "task {i}: {task:?}"
        );
    }
    absorbed.foreign += view.unknown;
    assert_eq!((view.counts(), view.absorbed()), (counts, absorbed));
    assert_eq!(view.row_seq, view.tasks.iter().map(|t| t.row_seq).max().unwrap_or(0));
    assert!(TaskSet::ALL.into_iter().all(|set| view.members.of(set).iter().all(|i| i < view.tasks.len())));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_keeps_the_promises(history in history()) {
        let mut story = begin();
        for any in &history {
            let before = story.view.clone();
            let Some((i, effect, said)) = append(&mut story, any) else {
                prop_assert_eq!(&before.tasks, &story.view.tasks);
                prop_assert_eq!(story.view.counts().total(), TARGETS as u64);
                continue;
            };
            let (old, new) = (&before.tasks[i], &story.view.tasks[i]);
            // SUCCEEDED and CANCELLED never change, nor what the account says of them.
            if matches!(old.state, TaskState::Succeeded | TaskState::Cancelled) {
                prop_assert_eq!((new.state, new.row_seq, new.final_seq), (old.state, old.row_seq, old.final_seq));
                prop_assert_eq!((&new.result, &new.error), (&old.result, &old.error));
            }
            // What isn't applied only counts.
            if effect != Effect::Applied {
                assert_only_counted(old, new, effect);
            }
            // A terminal that isn't the attempt's changes nothing, ever.
            if said.0 == By::Other && effect == Effect::Applied {
                let attempt = said.1.attempt().unwrap();
                prop_assert_eq!(old.attempt_record(attempt).unwrap().terminal.as_str(), "other");
            }
            // One live attempt at most: the current one, and only in a live state is it live.
            if new.state.is_live() {
                let current = new.current().unwrap();
                prop_assert!(current.is_open() && !current.superseded);
            } else {
                prop_assert!(!new.cancelling);
            }
            prop_assert_eq!(new.state.is_final(), new.final_seq > 0);
            prop_assert_eq!(new.state == TaskState::Succeeded, new.result.is_some());
            prop_assert_eq!(new.state == TaskState::Failed, new.failure.is_some());
            prop_assert!(new.row_seq >= old.row_seq && new.decision_seq >= old.decision_seq && new.row_seq <= new.seq);
            prop_assert!(new.attempt >= old.attempt && new.last_attempt >= old.last_attempt && new.attempt <= new.last_attempt);
            prop_assert!(new.tries <= 2);
            // The other tasks don't move, and the sets are whole.
            for other in (0..TARGETS).filter(|other| *other != i) {
                prop_assert_eq!(&before.tasks[other], &story.view.tasks[other]);
            }
            prop_assert_eq!(story.view.counts().total(), TARGETS as u64);
            assert_indexes(&story.view);
        }
    }

    #[test]
    fn folding_again_or_in_two_parts_gives_the_same(history in history(), cut in 0usize..90, again in any::<bool>()) {
        let fold_all = |story: &mut Story, part: &[Any]| part.iter().for_each(|any| { append(story, any); });
        let mut whole = begin();
        fold_all(&mut whole, &history);
        let mut parts = begin();
        let (first, second) = history.split_at(cut.min(history.len()));
        fold_all(&mut parts, first);
        if again {
            // A tail that begins too early repeats what is known.
            for (i, logged) in parts.log.clone() {
                prop_assert!(parts.view.apply_task(&crate::testing::target(i), &logged).is_none());
            }
        }
        let mut second_half = Story { view: parts.view.clone(), ..parts.clone() };
        fold_all(&mut second_half, second);
        prop_assert_eq!(&whole.view.tasks, &second_half.view.tasks);
        prop_assert_eq!(whole.view.last_seq, second_half.view.last_seq);
    }

    #[test]
    fn a_repeated_report_is_absorbed(history in history(), i in 0..TARGETS, said in report()) {
        let mut story = begin();
        for any in &history {
            append(&mut story, any);
        }
        story.say(i, &said);
        let before = story.task(i).clone();
        // A repeated end or start can't apply twice unless HQ decided something in between.
        let effect = story.say(i, &said);
        prop_assert!(effect != Effect::Applied, "{said:?} applied twice");
        assert_only_counted(&before, story.task(i), effect);
    }
    #[test]
    fn what_dispatch_decides_applies_and_comes_to_rest(history in history(), presence in presence(), caught_up in any::<bool>()) {
        let mut story = begin();
        for any in &history {
            append(&mut story, any);
        }
        let now_ms = story.now_ms;
        let hq = Hq { now_ms, started_ms: 0, connected_ms: 0, caught_up, beat_ms: 15_000, cancel_grace_ms: 20_000 };
        for i in 0..TARGETS {
            let mut left = 100;
            while let Step::Decide(event) = next_step(&story.view, i, &presence, &hq) {
                prop_assert!(left > 0, "no end of decisions, the last {event:?}");
                left -= 1;
                let effect = story.say(i, &(By::Hq, event.clone()));
                prop_assert_eq!(effect, Effect::Applied, "{:?} on {:?}", event, story.task(i));
            }
        }
    }
}
