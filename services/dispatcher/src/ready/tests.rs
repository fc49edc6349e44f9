//! Caps and turns.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use fanfold_domain::event::TimeoutKind;

use super::*;
use crate::testing::{Fixture, NOW_MS, hq, names, plan_id};

#[tokio::test]
async fn the_cap_over_all_plans_holds_and_is_shared() {
    let mut f = Fixture::new().await;
    for plan in ["p1", "p2"] {
        f.plan(plan, &names(&format!("{plan}-"), 100), 1_000).await;
        f.online(&names(&format!("{plan}-"), 100), 1);
        f.queue_all(plan);
    }
    let handed = f.hand_out(10, &hq());
    assert_eq!((handed["p1"], handed["p2"]), (5, 5), "the first in the row does not take everything");
    assert_eq!(f.hand_out(10, &hq()).values().sum::<usize>(), 10, "hand-outs that are not in view yet count");
}

#[tokio::test]
async fn the_cap_of_a_plan_holds() {
    let mut f = Fixture::new().await;
    f.plan("p1", &names("S", 20), 3).await;
    f.online(&names("S", 20), 1);
    f.queue_all("p1");
    assert_eq!(f.hand_out(100, &hq())["p1"], 3);
    f.dispatched("p1", "S0", 1, "j").await;
    let open = f.open.clone();
    let model = open.read();
    let view = model.plan(&plan_id("p1")).unwrap();
    assert_eq!(out(view, &f.work, &hq()), 4, "in view and still on its way: counted twice rather than not at all");
    f.work.plans.get_mut(&plan_id("p1")).unwrap().deciding.insert(0, Deciding::Stored(view.tasks[0].decision_seq));
    step(view, &mut f.work, &f.terminals, 0, &hq());
    assert_eq!(out(view, &f.work, &hq()), 3);
}

#[tokio::test]
async fn a_hand_out_that_is_not_in_view_is_known_to_whoever_answers_its_terminal() {
    let mut f = Fixture::new().await;
    f.plan("p1", &names("S", 2), 10).await;
    f.online(&names("S", 2), 1);
    let terminals: Vec<TerminalId> = names("S", 2).iter().map(|n| TerminalId::new(n).unwrap()).collect();
    let to = |f: &Fixture| -> Vec<bool> {
        let (open, terminals) = (f.open.clone(), &terminals);
        terminals.iter().map(|t| handing_out_to(&open.read(), &f.work, t)).collect()
    };
    assert_eq!(to(&f), [false, false]);
    decide(&mut f.work, &plan_id("p1"), 1, TaskEvent::Released);
    assert_eq!(to(&f), [false, false], "another decision hands nothing out");
    f.work.plans.get_mut(&plan_id("p1")).unwrap().queue(0);
    assert_eq!(f.hand_out(100, &hq())["p1"], 1);
    assert_eq!(to(&f), [true, false], "not answered yet");
    f.work.plans.get_mut(&plan_id("p1")).unwrap().deciding.insert(0, Deciding::Stored(u64::MAX));
    assert_eq!(to(&f), [true, false], "stored, and not in view yet");
    let seq = f.dispatched("p1", "S0", 1, "j").await;
    f.work.plans.get_mut(&plan_id("p1")).unwrap().deciding.insert(0, Deciding::Stored(seq));
    assert_eq!(to(&f), [false, false], "the answer itself has it");
}

#[tokio::test]
async fn the_slots_of_a_terminal_hold_over_plans() {
    let mut f = Fixture::new().await;
    for n in 0..5 {
        f.plan(&format!("p{n}"), &names("S", 1), 100).await;
        f.queue_all(&format!("p{n}"));
    }
    f.online(&names("S", 1), 2);
    let handed = f.hand_out(100, &hq());
    assert_eq!(handed.values().sum::<usize>(), 2);
    assert_eq!(f.work.next_wake_ms(), Some(NOW_MS + FULL_AGAIN_MS), "the others are looked at again");
}

#[tokio::test]
async fn fifty_plans_take_turns() {
    let mut f = Fixture::new().await;
    let plans = names("plan", 50);
    for plan in &plans {
        let targets = names(&format!("{plan}-"), 30);
        f.plan(plan, &targets, 1_000).await;
        f.online(&targets, 1);
        f.queue_all(plan);
    }
    assert_eq!(f.hand_out(100, &hq()).values().copied().collect::<Vec<_>>(), [2; 50], "everybody gets the same at first");
    // One more at a time, as slots come free: fifty times, every plan once.
    for extra in 1..=50 {
        f.hand_out(100 + extra, &hq());
    }
    let handed = f.hand_out(150, &hq());
    assert_eq!(handed.values().copied().collect::<Vec<_>>(), [3; 50]);
}

#[tokio::test]
async fn a_superseded_attempt_counts_until_its_run_timeout() {
    let mut f = Fixture::new().await;
    f.plan("p1", &names("S", 3), 2).await;
    f.online(&names("S", 3), 1);
    f.dispatched("p1", "S0", 1, "j").await;
    f.decided("p1", "S0", TaskEvent::AttemptTimedOut { attempt: 1, kind: TimeoutKind::Delivery }).await;
    f.dispatched("p1", "S0", 2, "j").await;
    // The newer one is live; another one on top of it is superseded.
    f.dispatched("p1", "S0", 3, "j").await;
    let open = f.open.clone();
    let model = open.read();
    let view = model.plan(&plan_id("p1")).unwrap();
    assert_eq!(out(view, &f.work, &hq()), 2);
    f.queue_all("p1");
    assert!(!f.hand_out(100, &hq()).contains_key("p1"), "no room");
    let timeouts = &view.plan.spec.timeouts;
    let later_ms = (timeouts.deliver_ms + timeouts.run_ms) as i64 + run_margin_ms(timeouts.run_ms);
    let at = |ms: i64| Hq { now_ms: NOW_MS + ms, ..hq() };
    assert_eq!(out(view, &f.work, &at(later_ms - 1)), 2);
    assert_eq!(out(view, &f.work, &at(later_ms)), 1, "a lost stop must not hold a place for ever");
}

#[tokio::test]
async fn whoever_is_back_and_finds_no_room_is_released() {
    let mut f = Fixture::new().await;
    f.plan("p1", &names("S", 3), 1).await;
    for target in names("S", 3) {
        f.decided("p1", &target, TaskEvent::Deferred { last_seen_ms: None }).await;
    }
    f.online(&names("S", 3), 1);
    f.queue_all("p1");
    f.work.plans.get_mut(&plan_id("p1")).unwrap().releasing.extend([0, 1, 2]);
    assert_eq!(f.hand_out(100, &hq())["p1"], 1);
    let released = f.work.outbox.iter().filter(|d| matches!(d.event, Some(TaskEvent::Released))).count();
    assert_eq!(released, 2, "the account must not call them offline");
}

#[tokio::test]
async fn nothing_is_decided_about_a_task_before_its_last_decision_is_in_view() {
    let mut f = Fixture::new().await;
    f.plan("p1", &names("S", 1), 10).await;
    f.online(&names("S", 1), 1);
    let open = f.open.clone();
    let model = open.read();
    let view = model.plan(&plan_id("p1")).unwrap();
    decide(&mut f.work, &plan_id("p1"), 0, TaskEvent::Released);
    assert!(step(view, &mut f.work, &f.terminals, 0, &hq()).is_none());
    let work = f.work.plans.get_mut(&plan_id("p1")).unwrap();
    work.deciding.insert(0, Deciding::Stored(view.last_seq + 1));
    assert!(step(view, &mut f.work, &f.terminals, 0, &hq()).is_none());
}
