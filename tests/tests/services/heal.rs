//! The state bucket watched over, and a log that is not what it was, in virtual time.

use std::time::Duration;

use bytes::Bytes;
use fanfold::render::plan::show;
use fanfold::verify::verify_plan_within;
use fanfold_domain::ids::PlanId;
use fanfold_domain::summary::PlanVerdict;
use fanfold_ledger::port::{Buckets, Log};
use fanfold_wire::api::HistoryAnswer;
use fanfold_wire::record::{Checkpoint, PlanRecord, PlanStatus};
use serde_json::json;

use fanfold_tests::world::terminal::Act;
use fanfold_tests::world::{ROLES, Role, World};

async fn value(world: &World, key: &str) -> Option<Bytes> {
    world.ledger.get_state(key).await.unwrap().map(|e| e.value)
}

/// A world whose plan `p` over two stores has ended.
async fn ended() -> World {
    let mut world = World::new().await;
    for store in ["S1", "S2"] {
        world.terminal(store, |_, _| Act::Succeed(5));
    }
    world.submit("p", &["S1", "S2"], json!({})).await;
    world.until_over("p", 60_000).await;
    world.sleep(3_000).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_record_lost_without_a_revision_is_missed_by_its_number_and_written_again() {
    let world = ended().await;
    let honest = value(&world, "task.p.S1.main").await.unwrap();
    world.ledger.damage_state("task.p.S1.main", None);
    world.sleep(5_000).await;
    assert_eq!(value(&world, "task.p.S1.main").await, Some(honest));
}

#[tokio::test(start_paused = true)]
async fn silent_damage_is_found_in_time() {
    let mut world = ended().await;
    world.hq.audit_s = 120;
    world.hq.start(Role::Projector);
    world.sleep(3_000).await;
    let honest = value(&world, "task.p.S1.main").await.unwrap();
    let forged = String::from_utf8(honest.to_vec()).unwrap().replace("SUCCEEDED", "CANCELLED");
    world.ledger.damage_state("task.p.S1.main", Some(Bytes::from(forged)));
    world.sleep(60_000).await;
    assert_ne!(value(&world, "task.p.S1.main").await.as_ref(), Some(&honest), "nothing tells of it at once");
    world.sleep(70_000).await;
    assert_eq!(value(&world, "task.p.S1.main").await, Some(honest));
    let entry = world.ledger.get_checkpoint().await.unwrap().unwrap();
    let healed = Checkpoint::parse(&entry.value).unwrap().healed.unwrap();
    assert_eq!((healed.rewritten, healed.removed, healed.last_key.as_str()), (1, 0, "task.p.S1.main"), "{healed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_is_as_it_was_left_is_not_read_at_the_start() {
    let mut world = ended().await;
    let audits = async |world: &World| {
        let entry = world.ledger.get_checkpoint().await.unwrap().unwrap();
        Checkpoint::parse(&entry.value).unwrap().healed.map_or(0, |h| h.audits)
    };
    let before = audits(&world).await;
    for _ in 0..3 {
        world.hq = world.process().await;
        ROLES.iter().for_each(|role| world.hq.start(*role));
        world.sleep(10_000).await;
    }
    assert_eq!(audits(&world).await, before);
}

#[tokio::test(start_paused = true)]
async fn a_fold_of_what_the_log_no_longer_has_is_given_up() {
    let world = ended().await;
    let last = world.ledger.last_seq().await.unwrap();
    world.ledger.truncate(last - 3);
    world.sleep(5_000).await;
    let lost = world.hq.open.lost().expect("it is noticed");
    assert_eq!(lost.code(), "LOG_WENT_BACK", "{lost}");
    assert!(!world.hq.open.position().borrow().caught_up && !world.hq.open.is_following());
}

#[tokio::test(start_paused = true)]
async fn a_lost_decision_is_a_hole_in_its_plan_and_in_no_other() {
    let mut world = World::new().await;
    world.terminal("S1", |_, _| Act::Succeed(5));
    world.submit("before", &["S1"], json!({})).await;
    world.until_over("before", 60_000).await;
    world.submit("p", &["S1", "S2"], json!({})).await;
    world.until_state("p", "S1", fanfold_domain::task::TaskState::Succeeded, 60_000).await;
    let lost = world.log().await.iter().find(|m| m.subject == "ff.task.p.S1.main.hq.S1").map(|m| m.seq).unwrap();
    world.ledger.lose(lost, lost);
    world.sleep(5_000).await;
    assert_eq!(world.hq.open.lost().map(|e| e.code()), Some("LOG_DAMAGED"));

    world.hq = world.process().await;
    ROLES.iter().for_each(|role| world.hq.start(*role));
    world.terminal("S2", |_, _| Act::Succeed(5));
    let view = world.until_over("p", 900_000).await;
    let holes = view.plan.holes.expect("it is noted");
    assert_eq!((holes.from_seq, holes.to_seq), (lost, lost), "{holes:?}");
    world.sleep(5_000).await;
    let record: PlanRecord = world.ask("plan.get", json!({ "planId": "p" })).await.unwrap();
    assert_eq!(record.holes, Some(holes));
    assert_ne!(record.verdict, PlanVerdict::Full);
    let report = verify_plan_within(&world.ledger, &PlanId::new("p").unwrap(), Duration::from_secs(10)).await.unwrap();
    assert!(!report.is_true() && report.summaries_reproduced && report.state_matches_replay, "{report:#?}");
    assert!(report.differences[0].contains(&format!("#{lost}")), "{report:#?}");
    let other = verify_plan_within(&world.ledger, &PlanId::new("before").unwrap(), Duration::from_secs(10)).await.unwrap();
    assert!(other.is_true(), "{other:#?}");
    world.submit("after", &["S1"], json!({})).await;
    assert!(world.until_over("after", 60_000).await.plan.holes.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_has_lost_its_targets_or_its_seal_is_said_to_be_damaged_and_can_be_closed() {
    for event in ["targets", "sealed"] {
        let mut world = World::new().await;
        world.terminal("S1", |_, _| Act::Succeed(5));
        world.submit("p", &["S1", "S2"], json!({ "deadlineMs": 60_000, "expiresMs": 9_000_000 })).await;
        world.until_state("p", "S1", fanfold_domain::task::TaskState::Succeeded, 60_000).await;
        let subject = format!("ff.plan.p.{event}");
        let lost = world.log().await.iter().find(|m| m.subject == subject).map(|m| m.seq).unwrap();
        world.ledger.lose(lost, lost);
        world.sleep(5_000).await;
        world.hq = world.process().await;
        ROLES.iter().for_each(|role| world.hq.start(*role));
        // Far beyond its deadline, and with all that is known of it ended: it is neither summed up nor closed by itself.
        world.terminal("S2", |_, _| Act::Succeed(5));
        world.sleep(600_000).await;
        let record: PlanRecord = world.ask("plan.get", json!({ "planId": "p" })).await.unwrap();
        assert!(record.holes.is_some_and(|h| h.from_seq == lost), "{event}: {record:?}");
        assert_eq!((record.status, record.summary.is_some()), (PlanStatus::Open, false), "{event}: {record:?}");
        let text = show(&record, 0, &jiff::tz::TimeZone::UTC);
        assert!(text.contains("damaged   the log has lost") && text.contains("fanfold plan close p"), "{event}: {text}");
        let refused = world.ask::<serde_json::Value>("summary.get", json!({ "planId": "p" })).await.unwrap_err();
        assert_eq!(refused.code, "SUMMARY_LOST", "{event}: {refused:?}");

        world.ask::<serde_json::Value>("plan.close", json!({ "planId": "p", "by": "ops", "reason": "damaged" })).await.unwrap();
        world.until_over("p", 60_000).await;
        world.sleep(5_000).await;
        let record: PlanRecord = world.ask("plan.get", json!({ "planId": "p" })).await.unwrap();
        assert_eq!(record.status, PlanStatus::Closed, "{event}: {record:?}");
        assert_ne!(record.verdict, PlanVerdict::Full, "{event}");
        world.hq.assert_alive();
        // Nor does it come back.
        world.hq = world.process().await;
        ROLES.iter().for_each(|role| world.hq.start(*role));
        world.sleep(1_000).await;
        world.submit("after", &["S1"], json!({})).await;
        world.until_over("after", 60_000).await;
        assert!(
            world.log().await.iter().filter(|m| m.subject.starts_with("ff.plan.p.")).count() < 12,
            "{}",
            world.tail(30).await
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_history_longer_than_a_message_comes_in_pages() {
    let mut world = World::new().await;
    world.terminal("S1", |_, _| Act::Reject("BUSY"));
    world
        .submit("p", &["S1"], json!({ "input": { "pad": "x".repeat(60_000) }, "deadlineMs": 3_600_000, "expiresMs": 7_200_000 }))
        .await;
    world.until_task("p", "S1", 3_000_000, |t| t.attempt >= 20).await;
    let (mut pages, mut seqs, mut from) = (0, Vec::new(), None);
    loop {
        let page: HistoryAnswer = world.ask("task.history", json!({ "taskId": "p.S1.main", "from": from })).await.unwrap();
        pages += 1;
        seqs.extend(page.events.iter().map(|e| e.seq));
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    let story = world.log().await.iter().filter(|m| m.subject.starts_with("ff.task.p.S1.")).map(|m| m.seq).collect::<Vec<_>>();
    assert!(pages > 1 && story.starts_with(&seqs) && seqs.len() >= 40, "{pages} pages: {seqs:?}\n{story:?}");
}
