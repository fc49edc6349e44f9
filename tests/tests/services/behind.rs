//! What readers are told while nobody writes the records: never that something is not there which is in the log.

use bytes::Bytes;
use fanfold::verify::verify_plan_within;
use fanfold_domain::ids::PlanId;
use fanfold_ledger::port::Log;
use fanfold_wire::api::{HistoryAnswer, PlanList, TaskList};
use fanfold_wire::record::{PlanRecord, PlanStatus, TaskRecord};
use serde_json::{Value, json};

use fanfold_tests::world::terminal::Act;
use fanfold_tests::world::{ROLES, Role, World};

async fn world() -> World {
    let mut w = World::new().await;
    for store in ["S1", "S2"] {
        w.terminal(store, |_, _| Act::Succeed(5));
    }
    w
}

/// Runs plans over both stores to their end.
async fn run(w: &World, plans: &[String]) {
    for plan in plans {
        w.submit(plan, &["S1", "S2"], json!({})).await;
    }
    for plan in plans {
        w.until_over(plan, 120_000).await;
    }
}

/// A plan that is over is forgotten with the next message once nobody needs it.
fn assert_forgotten(w: &World, plans: &[&str]) {
    for plan in plans {
        assert!(w.hq.open.read().plan(&PlanId::new(plan).unwrap()).is_none(), "{plan} is still in memory");
    }
}

async fn listed(w: &World, more: Value) -> PlanList {
    w.ask("plan.list", more).await.unwrap()
}

fn ids(list: &PlanList) -> Vec<String> {
    list.plans.iter().map(|p| p.plan_id.to_string()).collect()
}

/// Everything a reader can ask of a plan that has succeeded.
async fn assert_told(w: &World, plan: &str) {
    let record: PlanRecord = w.ask("plan.get", json!({ "planId": plan })).await.unwrap();
    assert_eq!((record.status, record.counts.succeeded, record.total), (PlanStatus::Closed, 2, 2), "{plan}");
    let list: TaskList = w.ask("task.list", json!({ "planId": plan })).await.unwrap();
    assert_eq!(
        list.tasks.iter().map(|t| t.task_id.to_string()).collect::<Vec<_>>(),
        [format!("{plan}.S1.main"), format!("{plan}.S2.main")]
    );
    let paged: TaskList = w.ask("task.list", json!({ "planId": plan, "limit": 1, "set": "succeeded" })).await.unwrap();
    assert_eq!((paged.tasks.len(), paged.next), (1, Some(1)));
    let task: TaskRecord = w.ask("task.get", json!({ "taskId": format!("{plan}.S2.main") })).await.unwrap();
    assert_eq!(task.result.unwrap().get(), list.tasks[1].result.as_ref().unwrap().get());
    let history: HistoryAnswer = w.ask("task.history", json!({ "taskId": format!("{plan}.S2.main") })).await.unwrap();
    assert!(history.events.len() >= 2);
    // And what is not there is still told from what is only not reached.
    let unknown = w.ask::<TaskRecord>("task.get", json!({ "taskId": format!("{plan}.S9.main") })).await.unwrap_err();
    assert_eq!(unknown.code, "UNKNOWN_TASK");
    let no_summary = w.ask::<Value>("summary.get", json!({ "planId": plan, "revision": 90 })).await.unwrap_err();
    assert_eq!(no_summary.code, "NO_SUMMARY");
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_in_the_log_is_never_denied_while_its_records_are_behind() {
    let mut w = world().await;
    run(&w, &["a".to_owned()]).await;
    w.sleep(2_000).await;
    assert_eq!(listed(&w, json!({})).await.behind, None);
    w.hq.stop(Role::Projector);
    run(&w, &["b".to_owned(), "c".to_owned()]).await;
    assert_forgotten(&w, &["a", "b", "c"]);
    for plan in ["a", "b", "c"] {
        assert_told(&w, plan).await;
        let id = PlanId::new(plan).unwrap();
        let report = verify_plan_within(&w.ledger, &id, std::time::Duration::ZERO).await.unwrap();
        // The API is compared where the records are; that it tells the truth before that was looked at above.
        let is_written = plan == "a";
        assert_eq!(
            (report.api_matches, report.state_matches_replay),
            (is_written.then_some(true), is_written),
            "{:?}",
            report.differences
        );
    }
    let list = listed(&w, json!({})).await;
    assert_eq!((ids(&list), list.behind), (vec!["a".to_owned(), "b".to_owned(), "c".to_owned()], None));
    for (endpoint, body, code) in [
        ("plan.get", json!({ "planId": "z" }), "UNKNOWN_PLAN"),
        ("task.list", json!({ "planId": "z" }), "UNKNOWN_PLAN"),
        ("task.get", json!({ "taskId": "z.S1.main" }), "UNKNOWN_PLAN"),
    ] {
        assert_eq!(w.ask::<Value>(endpoint, body).await.unwrap_err().code, code, "{endpoint}");
    }
    // A process that starts meanwhile finds what has ended since the checkpoint, and tells the same.
    w.hq = w.process().await;
    ROLES.iter().filter(|role| **role != Role::Projector).for_each(|role| w.hq.start(*role));
    w.sleep(10).await;
    for plan in ["a", "b", "c"] {
        assert_told(&w, plan).await;
    }
    w.hq.start(Role::Projector);
    w.sleep(5_000).await;
    assert_told(&w, "c").await;
    assert_eq!(ids(&listed(&w, json!({})).await), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_lacks_plans_names_them() {
    let mut w = world().await;
    w.sleep(1_000).await;
    w.hq.stop(Role::Projector);
    let plans: Vec<String> = (0..40).map(|n| format!("p{n:02}")).collect();
    run(&w, &plans).await;
    assert_forgotten(&w, &["p00", "p39"]);
    let list = listed(&w, json!({})).await;
    let behind = list.behind.clone().expect("it says so");
    let left: Vec<String> = behind.plans.iter().map(ToString::to_string).collect();
    assert_eq!([ids(&list), left].concat(), plans, "shown or named, each of them");
    assert!(behind.written_seq < behind.log_seq && behind.log_seq == w.ledger.last_seq().await.unwrap());
    for plan in &behind.plans {
        let _: PlanRecord = w.ask("plan.get", json!({ "planId": plan })).await.unwrap();
    }
    assert_eq!(listed(&w, json!({ "open": true })).await.behind, None, "open plans are in memory");
    w.hq.start(Role::Projector);
    w.sleep(5_000).await;
    let list = listed(&w, json!({})).await;
    assert_eq!((ids(&list), list.behind), (plans, None));
}

#[tokio::test(start_paused = true)]
async fn a_lost_record_of_a_plan_that_is_over_is_made_from_the_log() {
    let mut w = world().await;
    run(&w, &["a".to_owned()]).await;
    w.sleep(2_000).await;
    w.hq.stop(Role::Projector);
    run(&w, &["b".to_owned()]).await;
    assert_forgotten(&w, &["a"]);
    w.ledger.damage_state("task.a.S2.main", None);
    assert_told(&w, "a").await;
    w.ledger.damage_state("task.a.S1.main", Some(Bytes::from_static(b"no record")));
    assert_told(&w, "a").await;
    w.ledger.damage_state("plan.a", None);
    assert_told(&w, "a").await;
    // Without a checkpoint nobody knows what else is lacking.
    w.ledger.damage_state("checkpoint", None);
    assert_eq!(listed(&w, json!({})).await.behind.map(|b| b.written_seq), Some(0));
}
