//! What terminals do with their attempts, and how a history is paced: drawn from the seed before anything happens.

use fanfold_domain::ids::TaskId;
use fanfold_tests::world::document;
use fanfold_tests::world::terminal::Act;
use serde_json::json;

use super::chance::Chance;
use super::history::Sim;
use super::people;

/// What a terminal does with an attempt of a task.
pub fn act_of(seed: u64, task: &TaskId, attempt: u32) -> Act {
    let store = task.target.as_str().trim_start_matches('S').parse().unwrap_or(0);
    act(seed, store, task.plan.as_str(), attempt)
}

/// How a history is paced: terminals that beat every other second and plans of minutes, or tills as they are and plans of hours.
pub struct Pace {
    pub beat_ms: u64,
    pub chaos_ms: i64,
    pub pause_ms: u64,
    pub deadline_ms: u64,
    pub expires_ms: u64,
}

/// What a terminal does with an attempt: from the seed, its number, the plan and the attempt's number alone.
fn act(seed: u64, store: u64, plan: &str, attempt: u32) -> Act {
    let plan = plan.bytes().fold(0, |h, b| h * 31 + u64::from(b));
    let mut chance = Chance::of(seed ^ store << 32 ^ u64::from(attempt) << 48, plan);
    let ms = chance.below(3_000);
    if attempt > 5 {
        return Act::Succeed(ms / 4);
    }
    match chance.below(100) {
        0..36 => Act::Succeed(ms),
        36..44 => Act::Steps(ms / 2),
        44..52 => Act::SucceedQuietly(ms / 4),
        52..72 => Act::Fail(ms, "NET"),
        72..75 => Act::Fail(ms, "BIZ_NO"),
        75..80 => Act::Garbage(ms),
        80..86 => Act::Reject("BUSY"),
        86..89 => Act::Reject("BAD_INPUT"),
        89..93 => Act::Hang,
        93..95 => Act::HangQuietly,
        _ => Act::Miss,
    }
}

/// The pace of a history.
pub fn pace(chance: &mut Chance, slow: bool) -> Pace {
    if slow {
        let (deadline_ms, expires_ms) = (chance.between(600_000, 7_000_000), 9_000_000);
        return Pace { beat_ms: 15_000, chaos_ms: 4_500_000, pause_ms: 120_000, deadline_ms, expires_ms };
    }
    let deadline_ms = chance.between(1_000, 60_000);
    let expires_ms = if chance.percent(25) { chance.between(15_000, 60_000) } else { 260_000 };
    Pace { beat_ms: 2_000, chaos_ms: 30_000, pause_ms: 900, deadline_ms: deadline_ms.min(expires_ms - 1_000), expires_ms }
}

/// Somebody submits another plan.
pub fn submit(sim: &mut Sim, chance: &mut Chance, pace: &Pace) -> tokio::task::JoinHandle<()> {
    let plan = format!("p{}", sim.plans.len() + 1);
    let share = if sim.plans.is_empty() || sim.plans.len() > 3 { 100 } else { chance.between(30, 80) };
    let mut stores: Vec<&str> = sim.stores.iter().map(String::as_str).filter(|_| chance.percent(share)).collect();
    if stores.is_empty() {
        stores = vec!["S00"];
    }
    let timeouts = match chance.below(3) {
        0 => json!({ "deliverMs": 3_000, "runMs": 9_000, "progressMs": 5_000 }),
        _ => json!({ "deliverMs": 3_000, "runMs": 7_000 }),
    };
    let more = json!({
        "deadlineMs": pace.deadline_ms,
        "expiresMs": pace.expires_ms,
        "limits": { "inFlight": chance.between(2, 25) },
        "retry": { "maxAttempts": chance.between(2, 5), "backoffMs": [500, 2_000], "jitter": 0.2, "business": ["BIZ_*"] },
        "timeouts": timeouts,
    });
    let submitted = people::submits(&sim.w.ledger, document(&plan, &stores, more));
    sim.plans.push(plan);
    submitted
}
