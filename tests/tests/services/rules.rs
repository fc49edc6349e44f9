//! Plans whose rules this build does not have: never folded, never decided about, never forgotten, and said.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use fanfold::cmd::doctor::{DoctorArgs, Health, examine};
use fanfold::error::CliError;
use fanfold::out::Out;
use fanfold::session::Session;
use fanfold::verify::verify_plan;
use fanfold_domain::ids::{PlanId, TaskId, TerminalId};
use fanfold_domain::task::TaskState;
use fanfold_ledger::open::Known;
use fanfold_ledger::port::{Append, Buckets, Log};
use fanfold_wire::api::{Noted, Submitted};
use fanfold_wire::record::{Checkpoint, PlanRecord};
use fanfold_wire::terminal::ReportStatus;
use serde_json::{Value, json};

use fanfold_tests::world::terminal::{Act, event, send};
use fanfold_tests::world::{ROLES, World, document};

/// A version of the rules that this build does not have.
const NEWER: u32 = fanfold_domain::RULES_VERSION + 1;

fn id(plan: &str) -> PlanId {
    PlanId::new(plan).unwrap()
}

/// Writes a copy of plan `p`'s first three events under another id, its submission changed, as a newer HQ would.
async fn submitted_by_another_build(w: &World, plan: &str, change: impl Fn(&mut Value)) {
    let log = w.log().await;
    let of_p: Vec<_> = log.iter().filter(|m| m.subject.starts_with("ff.plan.p.")).take(3).collect();
    assert_eq!(of_p.len(), 3);
    let copy = |m: &&fanfold_ledger::port::Stored| {
        let mut event: Value = serde_json::from_slice(&m.payload).unwrap();
        event["id"] = json!(format!("{plan}/{}", m.seq));
        event["subject"] = json!(plan);
        if m.subject.ends_with(".submitted") {
            event["data"]["planId"] = json!(plan);
            change(&mut event["data"]);
        }
        let subject = m.subject.replacen("ff.plan.p.", &format!("ff.plan.{plan}."), 1);
        Append { subject, id: format!("{plan}/{}", m.seq), payload: Bytes::from(event.to_string()), expect: None }
    };
    w.ledger.append_atomic(of_p.iter().map(copy).collect()).await.unwrap();
}

/// A world with one plan of ours and two of others: one with newer rules, one that can't even be read.
async fn mixed() -> World {
    let mut w = World::new().await;
    w.terminal("S1", |_, _| Act::Succeed(100));
    w.submit("p", &["S1"], json!({})).await;
    submitted_by_another_build(&w, "newer", |data| data["rules"] = json!(NEWER)).await;
    submitted_by_another_build(&w, "stranger", |data| *data = json!({ "rules": 7, "everything": "else" })).await;
    w
}

fn unsupported(w: &World) -> BTreeMap<String, (Option<u32>, bool)> {
    let model = w.hq.open.read();
    model.unsupported().map(|(id, plan)| (id.to_string(), (plan.rules, plan.is_over))).collect()
}

async fn events_of(w: &World, plan: &str) -> usize {
    w.log().await.iter().filter(|m| m.subject.contains(&format!(".{plan}."))).count()
}

#[tokio::test(start_paused = true)]
async fn a_plan_of_unknown_rules_is_left_alone_and_told() {
    let w = mixed().await;
    w.until_over("p", 20_000).await;
    // Past every time-out, deadline and expiry of these plans.
    w.sleep(700_000).await;
    let expected = BTreeMap::from([("newer".to_owned(), (Some(NEWER), false)), ("stranger".to_owned(), (Some(7), false))]);
    assert_eq!(unsupported(&w), expected);
    for plan in ["newer", "stranger"] {
        assert_eq!(events_of(&w, plan).await, 3, "nothing was decided or summarised about {plan}");
        assert!(w.hq.open.read().plan(&id(plan)).is_none(), "there is no view of it");
        for asked in ["plan.get", "plan.cancel", "plan.close"] {
            let error = match asked {
                "plan.get" => w.ask::<PlanRecord>(asked, json!({ "planId": plan })).await.unwrap_err(),
                _ => w.ask::<Noted>(asked, json!({ "planId": plan })).await.unwrap_err(),
            };
            assert_eq!(error.code, "UNSUPPORTED_RULES", "{asked} {plan}: {error:?}");
        }
        let again = json!({ "plan": document(plan, &["S1", "S2"], json!({})) });
        let error = w.ask::<Submitted>("plan.submit", again).await.unwrap_err();
        assert!(["PLAN_EXISTS", "CORRUPT"].contains(&error.code.as_str()), "its id is taken: {error:?}");
    }
    let error = CliError::from(verify_plan(&w.ledger, &id("newer")).await.unwrap_err());
    assert_eq!(error.code(), "UNSUPPORTED_RULES", "{error}");
    let (out, _, _) = Out::captured();
    let session = Session::over(Arc::new(w.ledger.clone()), out);
    let checks = examine(&DoctorArgs { wait: 0, deep: true }, &session).await;
    let rules = checks.iter().find(|c| c.what == "rules").expect("the doctor looks at rules");
    assert_eq!(rules.health, Health::Bad);
    assert!(
        ["UNSUPPORTED_RULES", format!("newer ({NEWER})").as_str(), "stranger (7)"].iter().all(|part| rules.found.contains(part)),
        "{rules:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn reports_of_a_plan_of_unknown_rules_are_to_come_again() {
    let w = mixed().await;
    w.until_over("p", 20_000).await;
    let before = w.ledger.last_seq().await.unwrap();
    for plan in ["newer", "stranger"] {
        let task = TaskId::parse(&format!("{plan}.S1.main")).unwrap();
        let report = event(&task, "attempt.succeeded", &json!({ "attempt": 1, "result": { "n": 1 } }));
        let answer = send(&w.ledger, &TerminalId::new("S1").unwrap(), &[report]).await.unwrap();
        let told: Vec<_> = answer.answers.iter().map(|a| (a.status, a.code.as_deref())).collect();
        assert_eq!(told, [(ReportStatus::Retry, Some("UNSUPPORTED_RULES"))], "{plan}: it must not be forgotten");
    }
    assert_eq!(w.ledger.last_seq().await.unwrap(), before);
}

#[tokio::test(start_paused = true)]
async fn plans_of_unknown_rules_stay_in_the_checkpoint_for_a_build_that_knows_them() {
    let mut w = mixed().await;
    w.until_over("p", 20_000).await;
    w.sleep(5_000).await;
    let checkpoint = async |w: &World| {
        let entry = w.ledger.get_checkpoint().await.unwrap().expect("a checkpoint");
        Checkpoint::parse(&entry.value).unwrap().open.into_keys().map(|id| id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(checkpoint(&w).await, ["newer", "stranger"]);
    // Another process of this build starts from that checkpoint and knows them too; one of its plans goes on meanwhile.
    w.hq = w.process().await;
    assert_eq!(w.hq.open.read().known(&id("newer")), Known::Unsupported(Some(NEWER)));
    ROLES.iter().for_each(|role| w.hq.start(*role));
    w.sleep(3_000).await;
    w.submit("q", &["S1"], json!({})).await;
    w.until_state("q", "S1", TaskState::Succeeded, 20_000).await;
    w.sleep(3_000).await;
    let open = checkpoint(&w).await;
    assert!(open.contains(&"newer".to_owned()) && open.contains(&"stranger".to_owned()), "{open:?}");
    assert_eq!(unsupported(&w).len(), 2);
}
