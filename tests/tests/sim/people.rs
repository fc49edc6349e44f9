//! What people ask of HQ while things go wrong: plans, cancels, closes, requeues.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanfold_ledger::memory::MemoryLedger;
use fanfold_ledger::port::Bus;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::coverage::fault;
use super::history::Sim;
use super::trace;

/// Sends a request; the answer, if one came.
pub async fn request(ledger: &MemoryLedger, endpoint: &str, body: &Value) -> Option<Value> {
    let subject = format!("ff.api.{endpoint}");
    let answer = ledger.request(&subject, Bytes::from(body.to_string()), Duration::from_secs(5)).await.ok()?;
    serde_json::from_slice(&answer).ok()
}

/// A person asks for something at some time. It may be refused, and may not be answered: nobody waits for it.
pub fn asks(sim: &mut Sim) {
    let Some(plan) = (!sim.plans.is_empty()).then(|| sim.chance.of_these(&sim.plans).clone()) else { return };
    let (name, endpoint, body) = match sim.chance.below(40) {
        0..6 => ("person: cancel", "plan.cancel", json!({ "planId": plan })),
        6..8 => ("person: close", "plan.close", json!({ "planId": plan })),
        8..28 => ("person: requeue", "task.requeue", json!({ "planId": plan, "selector": { "failed": {} } })),
        _ => {
            let store = sim.chance.of_these(&sim.stores);
            let tasks = json!([format!("{plan}.{store}.main")]);
            ("person: requeue", "task.requeue", json!({ "planId": plan, "selector": { "tasks": tasks } }))
        }
    };
    fault(name);
    let (ledger, noted) = (sim.w.ledger.clone(), Arc::clone(&sim.noted));
    tokio::spawn(async move {
        let answer = request(&ledger, endpoint, &body).await;
        // Where no task is meant nothing is written, and the answer says so.
        let written = answer.as_ref().filter(|a| a["ok"]["tasks"] != 0);
        if let Some(seq) = written.and_then(|a| a["ok"]["seq"].as_u64()) {
            let event = match endpoint {
                "plan.cancel" => "cancel_requested",
                "plan.close" => "close_requested",
                _ => "requeue_requested",
            };
            noted.lock().unwrap().push((plan, event, seq));
        }
        trace::say("person", || format!("{endpoint} {body} -> {}", answer.map_or("no answer".into(), |a| a.to_string())));
    });
}

/// A person says that whoever is heard next under this id is the terminal.
pub fn replaces(sim: &Sim, store: &str) {
    let (ledger, body) = (sim.w.ledger.clone(), json!({ "terminal": store, "by": "sim" }));
    tokio::spawn(async move {
        let answer = request(&ledger, "terminal.replace", &body).await;
        trace::say("person", || format!("terminal.replace {body} -> {answer:?}"));
        if answer.is_some_and(|a| a.get("ok").is_some()) {
            fault("terminal: replaced by a person");
        }
    });
}

/// Looks after the terminals HQ says are used twice, one after another.
pub async fn looks_after_twins(sim: &Sim) {
    let Some(answer) = request(&sim.w.ledger, "terminal.list", &json!({})).await else { return };
    for terminal in answer["ok"]["terminals"].as_array().into_iter().flatten() {
        if terminal["idInUse"] == true || terminal["allowedJournal"].is_string() {
            replaces(sim, terminal["id"].as_str().unwrap_or(""));
        }
    }
}

/// A person closes a plan when everything is well.
pub async fn closes(sim: &Sim, plan: &str) {
    let answer = request(&sim.w.ledger, "plan.close", &json!({ "planId": plan })).await;
    let answer = answer.unwrap_or_else(|| panic!("everything is well, and {plan} can't be closed: no answer"));
    let over = answer["error"]["code"] == "PLAN_CLOSED";
    assert!(over || answer.get("ok").is_some(), "everything is well, and {plan} can't be closed: {answer}");
}

/// Submits a plan again and again until HQ says it is sealed.
pub fn submits(ledger: &MemoryLedger, document: Value) -> JoinHandle<()> {
    let ledger = ledger.clone();
    tokio::spawn(async move {
        loop {
            let answer = request(&ledger, "plan.submit", &json!({ "plan": document, "by": "sim" })).await;
            trace::say("person", || format!("submits {}: {answer:?}", document["planId"]));
            match answer {
                Some(answer) if answer.get("ok").is_some() => return,
                _ => tokio::time::sleep(Duration::from_millis(500)).await,
            }
        }
    })
}
