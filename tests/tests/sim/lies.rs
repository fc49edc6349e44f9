//! Terminals that lie, repeat themselves, and talk of what isn't theirs. What HQ answers is judged on the spot: none of it may be
//! taken for what it is not.

use fanfold_ledger::port::Stored;
use fanfold_tests::world::terminal::send;
use fanfold_wire::event::Envelope;
use fanfold_wire::terminal::{ReportAnswer, ReportStatus};
use serde_json::{Value, json};

use super::coverage::fault;
use super::history::Sim;
use super::trace;

/// How long the log knows an id, in ms; beyond it the fold absorbs a repeat.
const DUPLICATE_WINDOW_MS: i64 = 600_000;

/// One lie.
pub async fn tell(sim: &mut Sim) {
    match sim.chance.below(3) {
        0 => garbage(sim),
        1 => foreign(sim),
        _ => conflicting(sim).await,
    }
}

/// A report as it goes over the wire.
fn report(task: &str, name: &str, data: &Value) -> Value {
    json!({ "specversion": "1.0", "type": format!("fanfold.{name}.v1"), "subject": task, "data": data })
}

/// Sends a report; whatever is answered, it is not "recorded".
fn refused(sim: &Sim, what: &'static str, by: &str, event: Value) {
    fault(what);
    let ledger = sim.w.ledger.clone();
    let by = fanfold_domain::ids::TerminalId::new(by).unwrap();
    let broken = sim.broken.clone();
    tokio::spawn(async move {
        let answer: Option<ReportAnswer> = send(&ledger, &by, std::slice::from_ref(&event)).await;
        trace::say("liar", || format!("{by} {event} -> {answer:?}"));
        let taken = answer.into_iter().flat_map(|a| a.answers).any(|a| a.status == ReportStatus::Recorded);
        if taken {
            broken.lock().unwrap().push(format!("{what} was recorded: {event} by {by}"));
        }
    });
}

fn garbage(sim: &mut Sim) {
    let by = sim.chance.of_these(&sim.stores).clone();
    let plan = sim.plans.first().cloned().unwrap_or_default();
    let task = format!("{plan}.{by}.main");
    let event = match sim.chance.below(6) {
        0 => json!({ "what": "is this" }),
        1 => report(&task, "task.cancelled", &json!({})),
        2 => report(&task, "attempt.succeeded", &json!({ "attempt": 0, "result": { "n": 1 } })),
        3 => report(&task, "attempt.succeeded", &json!({ "attempt": 4_000_000, "result": { "n": 1 } })),
        4 => report("nothing.like.this", "attempt.started", &json!({ "attempt": 1 })),
        _ => report(&task, "attempt.failed", &json!({ "attempt": "one" })),
    };
    refused(sim, "report: garbage", &by, event);
}

fn foreign(sim: &mut Sim) {
    let Some(plan) = (!sim.plans.is_empty()).then(|| sim.chance.of_these(&sim.plans).clone()) else { return };
    let (by, of) = (sim.chance.of_these(&sim.stores).clone(), sim.chance.of_these(&sim.stores).clone());
    if by == of {
        return;
    }
    let event = report(&format!("{plan}.{of}.main"), "attempt.succeeded", &json!({ "attempt": 1, "result": { "n": 666 } }));
    refused(sim, "report: foreign", &by, event);
}

/// Another content under the id of a report that is in the log.
async fn conflicting(sim: &mut Sim) {
    let now_ms = sim.w.clock.now_ms();
    let known = |m: &Stored| m.subject.contains(".by.") && now_ms - m.time_ms < DUPLICATE_WINDOW_MS;
    let reports: Vec<Stored> = sim.log().await.into_iter().filter(known).collect();
    if reports.is_empty() {
        return;
    }
    let stored = sim.chance.of_these(&reports);
    let Ok(envelope) = Envelope::parse(&stored.payload) else { return };
    let data: Value = serde_json::from_str(envelope.data.get()).unwrap();
    let name = envelope.name().unwrap_or("").to_owned();
    let attempt = data["attempt"].clone();
    let forged = match name.as_str() {
        "attempt.succeeded" => json!({ "attempt": attempt, "result": { "n": 4_711 } }),
        "attempt.failed" | "attempt.rejected" => json!({ "attempt": attempt, "code": "FORGED", "message": "" }),
        _ => return,
    };
    let task = envelope.subject.as_deref().unwrap_or("").to_owned();
    let by = stored.subject.rsplit('.').next().unwrap_or("").to_owned();
    refused(sim, "report: conflicting", &by, report(&task, &name, &forged));
}
