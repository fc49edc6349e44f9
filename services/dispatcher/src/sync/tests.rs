//! What a sync is answered.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::{PlanEvent, Summarised, SummaryKind, SummaryRef};
use fanfold_domain::summary::PlanVerdict;
use fanfold_wire::terminal::{Command, Hold, Order};

use super::*;
use crate::testing::{Fixture, identity, names, plan_id, task_id};

fn request(journal: &str, holds: &[(&str, u32, HoldState)]) -> SyncRequest {
    let hold = |(plan, attempt, state): &(&str, u32, HoldState)| Hold { attempt: listing(plan, *attempt), state: *state };
    SyncRequest {
        identity: identity(journal, "b2", 1),
        holds: holds.iter().map(hold).collect(),
        known_seq: 0,
        closed_plans: Vec::new(),
    }
}

fn listing(plan: &str, attempt: u32) -> AttemptRef {
    AttemptRef { task_id: task_id(plan, "S0"), attempt }
}

fn answer_of(f: &Fixture, request: &SyncRequest) -> SyncAnswer {
    answer(&f.open.read(), &TerminalId::new("S0").unwrap(), request)
}

fn opened(answer: &SyncAnswer) -> Vec<String> {
    answer.open.iter().map(|o| o.task_id.to_string()).collect()
}

async fn dispatched() -> Fixture {
    let mut f = Fixture::new().await;
    f.plan("p1", &names("S", 2), 10).await;
    f.dispatched("p1", "S0", 1, "j").await;
    f
}

#[tokio::test]
async fn what_is_dispatched_and_not_held_is_handed_out_again_to_the_same_journal() {
    let f = dispatched().await;
    let answer = answer_of(&f, &request("j", &[]));
    assert_eq!((answer.status, opened(&answer)), (SyncStatus::Ok, vec!["p1.S0.main".to_owned()]));
    let open = &answer.open[0];
    let command = Command::decode(open.task_id.clone(), open.seq, open.command.get().as_bytes()).unwrap();
    let Order::Run(run) = command.order else { panic!("{command:?}") };
    assert_eq!((run.attempt, run.journal.as_str(), run.boot.as_str()), (1, "j", "b2"), "it is addressed to the boot that asks");
    assert_eq!(answer.as_of_seq, f.open.read().seq());
    assert!(answer_of(&f, &request("other", &[])).open.is_empty(), "another journal must not run it");
    for state in [HoldState::Queued, HoldState::Running, HoldState::Finished, HoldState::Settled] {
        assert!(answer_of(&f, &request("j", &[("p1", 1, state)])).open.is_empty(), "held: {state:?}");
    }
}

#[tokio::test]
async fn what_has_begun_or_is_to_end_is_not_handed_out() {
    let mut f = dispatched().await;
    f.decided("p1", "S0", TaskEvent::CancelRequested { attempt: 1 }).await;
    let answer = answer_of(&f, &request("j", &[]));
    assert!(answer.open.is_empty());
    let answer = answer_of(&f, &request("j", &[("p1", 1, HoldState::Running)]));
    assert_eq!(answer.stop, [listing("p1", 1)]);
    let mut f = dispatched().await;
    f.reported("p1", "S0", TaskEvent::Started { attempt: 1 }).await;
    assert!(answer_of(&f, &request("j", &[])).open.is_empty(), "RUNNING");
}

#[tokio::test]
async fn superseded_ended_and_closed_attempts_are_stopped() {
    let mut f = dispatched().await;
    f.reported("p1", "S0", TaskEvent::Failed { attempt: 1, code: "NET".into(), message: String::new(), run_ms: None }).await;
    f.dispatched("p1", "S0", 2, "j").await;
    let both = [("p1", 1, HoldState::Running), ("p1", 2, HoldState::Queued), ("p9", 1, HoldState::Running)];
    let answer = answer_of(&f, &request("j", &both));
    assert_eq!(answer.stop, [listing("p1", 1), listing("p9", 1)], "ended, and of a plan nobody knows; not the live one");
    let settled = [("p1", 1, HoldState::Settled), ("p1", 2, HoldState::Settled)];
    let answer = answer_of(&f, &request("j", &settled));
    assert!(answer.stop.is_empty());
    assert_eq!(answer.keep, [listing("p1", 2)], "HQ has not got its report into view yet");
    f.decided("p1", "S0", TaskEvent::Expired { reason: fanfold_domain::event::ExpiryReason::Closed, attempt: 2 }).await;
    f.close("p1").await;
    let answer = answer_of(&f, &request("j", &[("p1", 2, HoldState::Running)]));
    assert_eq!((answer.open.len(), answer.stop.as_slice()), (0, [listing("p1", 2)].as_slice()));
}

#[tokio::test]
async fn a_slow_one_may_go_on_until_something_is_decided() {
    let mut f = dispatched().await;
    f.decided("p1", "S0", TaskEvent::AttemptTimedOut { attempt: 1, kind: fanfold_domain::event::TimeoutKind::Delivery }).await;
    let held = request("j", &[("p1", 1, HoldState::Queued)]);
    assert!(answer_of(&f, &held).stop.is_empty());
    f.dispatched("p1", "S0", 2, "j").await;
    assert_eq!(answer_of(&f, &held).stop, [listing("p1", 1)]);
}

#[tokio::test]
async fn another_terminal_s_attempt_is_no_hold_of_this_one() {
    let mut f = dispatched().await;
    f.dispatched("p1", "S1", 1, "j").await;
    let mut asks = request("j", &[]);
    asks.holds.push(Hold { attempt: AttemptRef { task_id: task_id("p1", "S1"), attempt: 1 }, state: HoldState::Running });
    assert_eq!(answer_of(&f, &asks).stop.len(), 1);
    assert_eq!(opened(&answer_of(&f, &asks)), ["p1.S0.main"]);
}

#[tokio::test]
async fn closed_plans_are_told() {
    let mut f = dispatched().await;
    f.plan("p2", &names("S", 1), 10).await;
    f.close("p2").await;
    let asks = |plans: &[&str]| SyncRequest {
        closed_plans: plans.iter().map(|p| plan_id(p)).collect::<Vec<PlanId>>(),
        ..request("j", &[])
    };
    assert_eq!(
        answer_of(&f, &asks(&["p1", "p2", "p3"])).closed_plans,
        [plan_id("p3")],
        "closed is not over: the final summary is missing"
    );
    let this = SummaryRef { revision: 1, as_of_seq: 1, sha256: "ab".repeat(32) };
    let counts = f.open.read().plan(&plan_id("p2")).unwrap().counts();
    let last = Summarised { this, kind: SummaryKind::Final, counts, previous: None, verdict: PlanVerdict::Full };
    f.plan_event("p2", PlanEvent::Summarised(Box::new(last))).await;
    assert_eq!(answer_of(&f, &asks(&["p1", "p2"])).closed_plans, [plan_id("p2")]);
}

#[tokio::test]
async fn the_answer_is_bounded_and_asks_for_another() {
    let mut f = Fixture::new().await;
    for n in 0..SYNC_OPEN_MAX + 10 {
        let plan = format!("p{n}");
        f.plan(&plan, &names("S", 1), 10).await;
        f.dispatched(&plan, "S0", 1, "j").await;
    }
    let answer = answer_of(&f, &request("j", &[]));
    assert_eq!((answer.open.len(), answer.retry_after_ms), (SYNC_OPEN_MAX, Some(1_000)));
    assert!(serde_json::to_vec(&answer).unwrap().len() < 1 << 20);
}
