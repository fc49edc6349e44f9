//! Leadership and cancelling at the size where they would be late: a hundred thousand tasks in one plan.

use fanfold_domain::event::{PROTOCOL_VERSION, TaskEvent};
use fanfold_domain::ids::TerminalId;
use fanfold_domain::plan::PlanEvent;
use fanfold_ledger::port::Bus;
use fanfold_tests::world::{Process, ROLES, Role, World};
use fanfold_wire::api::Noted;
use fanfold_wire::event::{LogEvent, decode};
use fanfold_wire::subjects;
use fanfold_wire::terminal::{Beat, Identity};
use serde_json::json;

/// Without optimisation a third of it says the same about the rules.
const TASKS: usize = if cfg!(debug_assertions) { 30_000 } else { 100_000 };
const CANCEL_AT: usize = TASKS * 4 / 10;
/// Hand-outs that may follow the request: one batch under way, one decided, and one more for a view that is a turn behind.
const DECIDED_AHEAD_MAX: usize = 3_000;
/// Longest that HQ believes: one round of beats lasts for the whole test.
const BEAT_MS: u64 = 600_000;

fn stores() -> Vec<String> {
    (0..TASKS).map(|n| format!("S{n:06}")).collect()
}

/// Terminals that say once that they are there, and then take whatever comes without a word.
async fn crowd(w: &World, stores: &[String]) {
    for store in stores {
        let identity = Identity {
            protocol_version: PROTOCOL_VERSION,
            version: "crowd".into(),
            journal: format!("{store}-j"),
            boot: format!("{store}-b"),
            slots: 1,
            beat_interval_ms: BEAT_MS,
            labels: std::collections::BTreeMap::new(),
            types: Vec::new(),
        };
        let beat = Beat { identity, holds: Vec::new(), goodbye: false, journal_unavailable: false };
        let subject = subjects::beat(&TerminalId::new(store).unwrap());
        w.ledger.publish(&subject, serde_json::to_vec(&beat).unwrap().into()).await.unwrap();
        // The bus is bounded: the dispatcher has its turn now and then.
        if store.ends_with("00") {
            tokio::task::yield_now().await;
        }
    }
}

fn wide(process: &mut Process) {
    process.in_flight = TASKS as u32;
}

/// A plan over the crowd whose hand-out has come to 40 %.
async fn handing_out() -> World {
    let mut w = World::silent().await;
    wide(&mut w.hq);
    ROLES.iter().for_each(|role| w.hq.start(*role));
    w.sleep(10).await;
    let stores = stores();
    crowd(&w, &stores).await;
    let names: Vec<&str> = stores.iter().map(String::as_str).collect();
    let more = json!({ "limits": { "inFlight": TASKS }, "timeouts": { "deliverMs": 600_000, "runMs": 600_000 } });
    w.submit("p", &names, more).await;
    let live = |w: &World| w.hq.open.read().open().map(|v| v.live.count()).sum::<usize>();
    w.until("40 % are handed out", 60_000, |w| live(w) >= CANCEL_AT).await;
    assert!(live(&w) < TASKS * 6 / 10, "{} are out: too late for this test", live(&w));
    w
}

/// What the log says about the cancel.
struct Told {
    cancel_decisions: usize,
    /// Hand-outs after the request.
    dispatched_since: usize,
    last_dispatched_seq: u64,
    last_cancel_decision_seq: u64,
    cancelled_seq: Vec<u64>,
}

async fn told(w: &World, asked_seq: u64) -> Told {
    let mut told = Told {
        cancel_decisions: 0,
        dispatched_since: 0,
        last_dispatched_seq: 0,
        last_cancel_decision_seq: 0,
        cancelled_seq: Vec::new(),
    };
    for m in w.log().await {
        match decode(m.seq, m.time_ms, &m.subject, &m.payload).unwrap() {
            LogEvent::Task(_, logged) => match logged.event {
                TaskEvent::Dispatched(_) => {
                    told.dispatched_since += usize::from(m.seq > asked_seq);
                    told.last_dispatched_seq = m.seq;
                }
                TaskEvent::CancelRequested { .. } => {
                    (told.cancel_decisions, told.last_cancel_decision_seq) = (told.cancel_decisions + 1, m.seq);
                }
                _ => {}
            },
            LogEvent::Plan(_, logged) if matches!(logged.event, PlanEvent::Cancelled) => told.cancelled_seq.push(m.seq),
            _ => {}
        }
    }
    told
}

async fn assert_cancelled(w: &World, asked: &Noted) {
    let view = w.until_over("p", 120_000).await;
    assert_eq!(u64::from(view.counts().cancelled), TASKS as u64, "{:?}", view.counts());
    let told = told(w, asked.seq).await;
    assert_eq!(told.cancel_decisions, TASKS, "a decision for every task, each once");
    let [cancelled_seq] = told.cancelled_seq[..] else { panic!("plan.cancelled at {:?}", told.cancelled_seq) };
    assert!(asked.seq < told.last_cancel_decision_seq && told.last_cancel_decision_seq < cancelled_seq);
    assert!(told.last_dispatched_seq < cancelled_seq);
    assert!(told.dispatched_since <= DECIDED_AHEAD_MAX, "{} were handed out after the request", told.dispatched_since);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_in_the_middle_of_a_large_hand_out_is_whole_and_the_last_word() {
    let w = handing_out().await;
    let asked: Noted = w.ask("plan.cancel", json!({ "planId": "p", "by": "ops" })).await.unwrap();
    assert_cancelled(&w, &asked).await;
    w.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_dispatcher_frozen_in_a_large_hand_out_adds_nothing_after_the_cancel() {
    let w = handing_out().await;
    w.hq.faults(Role::Dispatcher).freeze(true);
    let mut other = w.process().await;
    wide(&mut other);
    other.start(Role::Dispatcher);
    w.sleep(5_000).await;
    let asked: Noted = w.ask("plan.cancel", json!({ "planId": "p", "by": "ops" })).await.unwrap();
    w.until("the cancel is under way", 10_000, |w| w.hq.open.read().open().any(|v| v.tasks.iter().any(|t| t.cancelling))).await;
    // It still believes that it leads, and has hand-outs decided and not sent.
    w.hq.faults(Role::Dispatcher).freeze(false);
    assert_cancelled(&w, &asked).await;
    w.hq.assert_alive();
    other.assert_alive();
    w.check().await;
}
