//! What must hold of every history, whatever happened in it. None of it asks for progress.

use std::collections::BTreeMap;

use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::SummaryKind;
use fanfold_domain::sets::set_of;
use fanfold_ledger::port::{Objects, Stored};
use fanfold_model::Model;
use fanfold_wire::api::TaskList;
use fanfold_wire::digest::sha256_hex;
use fanfold_wire::event::Envelope;
use fanfold_wire::record::PlanRecord;
use fanfold_wire::terminal::{ReportStatus, split_batch};
use serde_json::{Value, json};

use super::coverage::Counts;
use super::history::Sim;
use super::weather::Answered;
use super::{executions, phase, rules};

/// No attempt was begun twice, and no two attempts of a task ran at once at one terminal: by the handlers' own account.
pub fn account(sim: &Sim) {
    let problems = sim.w.account.problems();
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Everything, at the end; gives the rows of the state table that were visited.
pub async fn everything(sim: &Sim) -> Counts {
    phase::enter("SAFETY");
    let log = sim.log().await;
    answers_are_true(&log, &sim.weather.lock().unwrap().answered);
    phase::enter("SAFETY (log)");
    let judged = rules::judge(&log, &sim.leavers);
    assert!(judged.broken.is_empty(), "{} rules broken, the first:\n{}", judged.broken.len(), judged.broken[0]);
    for (plan, event, seq) in sim.noted.lock().unwrap().iter() {
        let subject = format!("ff.plan.{plan}.{event}");
        let stored = log.get(*seq as usize - 1).map(|m| m.subject.as_str());
        assert_eq!(stored, Some(subject.as_str()), "HQ confirmed {event} of {plan} at {seq}");
    }
    sim.w.check().await;
    phase::enter("SAFETY (model)");
    for plan in &sim.plans {
        model_agrees(sim, &judged.model, plan).await;
    }
    phase::enter("SAFETY (executions)");
    executions::results_are_real(sim).await;
    executions::are_accounted_for(sim);
    phase::enter("SAFETY (state bucket)");
    sim.w.check_state().await;
    phase::enter("SAFETY (api, summary)");
    for plan in &sim.plans {
        api_agrees(sim, plan).await;
        summary_agrees(sim, plan).await;
        changes_are_told(sim, &log, plan).await;
    }
    judged.model.rows().iter().map(|(row, count)| ((*row).to_owned(), *count)).collect()
}

/// The reference model says of every task what the fold says.
async fn model_agrees(sim: &Sim, model: &Model, plan: &str) {
    let view = sim.w.view(plan).await;
    let modelled = model.plan(plan).unwrap_or_else(|| panic!("the model has no {plan}"));
    let names: Vec<&str> = view.plan.targets.iter().map(|t| t.as_str()).collect();
    assert_eq!(names, modelled.targets, "{plan}: the sealed list");
    assert_eq!(serde_json::to_value(view.counts()).unwrap(), serde_json::to_value(modelled.sets()).unwrap(), "{plan}: the sets");
    for (target, task) in view.plan.targets.iter().zip(&view.tasks) {
        let known = &modelled.tasks[target.as_str()];
        let result = task.result.as_ref().map(|r| r.0.get().to_owned());
        let folded = (json!(task.state), task.attempt, task.last_attempt, task.tries, set_of(&view.plan, task).name(), task.late);
        let said =
            (json!(known.state), known.attempt, known.last_attempt, known.tries, modelled.set_of(target.as_str()), known.late);
        assert_eq!(folded, said, "{plan}.{target}: fold and model differ");
        assert_eq!(result, known.result, "{plan}.{target}: fold and model differ about the result");
    }
}

/// Every report that was answered as recorded is in the log, as it was sent.
fn answers_are_true(log: &[Stored], answered: &[Answered]) {
    for Answered { terminal, request, answer, .. } in answered {
        let reports = split_batch(request).unwrap_or_default();
        for result in &answer.answers {
            if !matches!(result.status, ReportStatus::Recorded | ReportStatus::Duplicate) {
                continue;
            }
            let sent = reports[result.index as usize].get();
            let seq = result.seq.unwrap_or(0);
            let stored = usize::try_from(seq).ok().and_then(|seq| log.get(seq.checked_sub(1)?));
            let stored = stored.unwrap_or_else(|| panic!("an answered report is missing: {sent} at {seq}"));
            let (sent, found) = (Envelope::parse(sent.as_bytes()).unwrap(), Envelope::parse(&stored.payload).unwrap());
            let task = sent.subject.clone().unwrap_or_default();
            let subject = format!("ff.task.{task}.by.{terminal}");
            assert_eq!(stored.subject, subject, "an answered report is missing: {} at {seq}", sent.data.get());
            assert_eq!(sent.name().ok(), found.name().ok(), "an answered report is missing: {} at {seq}", sent.data.get());
            let data = |envelope: &Envelope<'_>| -> Value { serde_json::from_str(envelope.data.get()).unwrap() };
            let (sent, found) = (data(&sent), data(&found));
            for field in ["attempt", "result", "code", "k"] {
                assert_eq!(sent[field], found[field], "`{field}` of an answered report, {subject} at {seq}");
            }
        }
    }
}

/// The API says of a plan and its tasks what the log folds to.
async fn api_agrees(sim: &Sim, plan: &str) {
    let view = sim.w.view(plan).await;
    let record: PlanRecord = sim.w.ask("plan.get", json!({ "planId": plan })).await.unwrap();
    assert_eq!((record.counts, record.total as usize), (view.counts(), view.tasks.len()), "{plan}: the API and the log differ");
    let list: TaskList = sim.w.ask("task.list", json!({ "planId": plan, "limit": 1_000 })).await.unwrap();
    let said: BTreeMap<String, _> = list.tasks.into_iter().map(|t| (t.store_id.clone(), (t.status, t.set, t.attempt))).collect();
    for (target, task) in view.plan.targets.iter().zip(&view.tasks).filter(|(_, t)| t.seq > 0) {
        let folded = (task.state, set_of(&view.plan, task), task.attempt);
        assert_eq!(said.get(target.as_str()), Some(&folded), "{plan}.{target}: the API and the log differ");
    }
}

/// A summary names every target whose row is another one than in the summary before.
async fn changes_are_told(sim: &Sim, log: &[Stored], plan: &str) {
    let mut before: Option<Value> = None;
    let subject = format!("ff.plan.{plan}.summarised");
    for m in log.iter().filter(|m| m.subject == subject) {
        let event: Value = serde_json::from_slice(&m.payload).unwrap();
        let sha256 = event["data"]["sha256"].as_str().unwrap();
        let bytes = sim.w.ledger.get_object(sha256).await.unwrap().unwrap_or_else(|| panic!("{plan}: no document {sha256}"));
        let document: Value = serde_json::from_slice(&bytes).unwrap();
        let told: Vec<&Value> = document["changed"].as_array().unwrap().iter().collect();
        let rows = |document: &Value| document["rows"].as_array().cloned().unwrap_or_default();
        for (old, new) in before.iter().flat_map(rows).zip(rows(&document)) {
            let differs = ["set", "error", "result", "failure"].iter().any(|field| old[*field] != new[*field]);
            let target = &new["target"];
            assert!(!differs || told.contains(&target), "{plan}: revision {} is silent about {target}", document["revision"]);
        }
        before = Some(document);
    }
}

/// The last summary says of every task what the log folds to, and its sets add up to the sealed list.
async fn summary_agrees(sim: &Sim, plan: &str) {
    let view = sim.w.view(plan).await;
    let (last, _, _) = view.plan.summary.clone().unwrap_or_else(|| panic!("{plan} has no summary"));
    assert_eq!(last.kind, SummaryKind::Final, "{plan}: its last summary is not its final one");
    let bytes = sim.w.ledger.get_object(&last.this.sha256).await.unwrap().unwrap_or_else(|| panic!("{plan}: no document"));
    assert_eq!(sha256_hex(&bytes), last.this.sha256, "{plan}: the summary's document is another one");
    let document: Value = serde_json::from_slice(&bytes).unwrap();
    let rows = document["rows"].as_array().unwrap();
    let (seal, _, _) = view.plan.seal.as_ref().unwrap();
    assert_eq!((rows.len(), last.counts.total()), (seal.count as usize, u64::from(seal.count)), "{plan} does not add up");
    let at_end = fanfold_ledger::open::fold_plan(&sim.w.ledger, &PlanId::new(plan).unwrap(), last.this.as_of_seq).await;
    let at_end = at_end.unwrap().unwrap();
    for ((row, target), task) in rows.iter().zip(&at_end.plan.targets).zip(&at_end.tasks) {
        let folded = json!([target, serde_json::to_value(task.state).unwrap(), set_of(&at_end.plan, task).name(), task.attempt]);
        assert_eq!(json!([row["target"], row["state"], row["set"], row["attempt"]]), folded, "{plan}: summary and log differ");
    }
}
