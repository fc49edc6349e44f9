//! Work for the whole run: whenever too little of it is left, another plan is submitted, until told to end. Asking again when an answer
//! is lost is what people do; the plan's id makes it harmless. Now and then the plan before is cancelled.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fanfold_wire::api::{Noted, Submitted};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::chaos::draw::Draw;
use crate::hq::Hq;
use crate::plans::{noop, with};

/// Fewer unended tasks than this ask for another plan.
const ENOUGH: usize = 220;
/// Most plans of a run.
const PLANS_MAX: usize = 500;
/// One plan in so many is cancelled while the next one is under way.
const CANCELLED_OF: usize = 5;
/// How long an answer is waited for; the api may be frozen.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Pause before asking again.
const PAUSE: Duration = Duration::from_millis(50);

/// What the feeder and the run tell each other.
#[derive(Debug, Default)]
pub struct Shared {
    /// Unended tasks, as the log says.
    pub outstanding: AtomicUsize,
    /// No more plans.
    pub stop: AtomicBool,
    /// Plans that were taken, and whether each was cancelled.
    plans: Mutex<Vec<(String, bool)>>,
    /// Why the last request failed.
    last_error: Mutex<String>,
}

impl Shared {
    /// Plans that were taken, and whether each was cancelled.
    pub fn plans(&self) -> Vec<(String, bool)> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why the last request failed.
    pub fn last_error(&self) -> String {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn failed(&self, error: &impl ToString) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = error.to_string();
    }
}

/// Feeds until it is told to end.
pub fn start(hq: Hq, seed: u64, targets: Vec<String>, shared: Arc<Shared>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut draw = Draw::new(seed, 2);
        for n in 1..=PLANS_MAX {
            while shared.outstanding.load(Ordering::Relaxed) >= ENOUGH && !shared.is_over() {
                tokio::time::sleep(PAUSE).await;
            }
            let plan = plan(&format!("chaos_{n:03}"), &targets, &mut draw);
            if !submit(&hq, &plan, &shared).await {
                return;
            }
            let id = plan["planId"].as_str().unwrap_or_default().to_owned();
            shared.plans.lock().unwrap_or_else(PoisonError::into_inner).push((id, false));
            shared.outstanding.fetch_add(targets.len(), Ordering::Relaxed);
            if n % CANCELLED_OF == 0 {
                cancel(&hq, n - 1, &shared).await;
            }
        }
    })
}

/// Plans differ in deadline and cap: some are summed up while they are under way, some when all is in.
fn plan(id: &str, targets: &[String], draw: &mut Draw) -> Value {
    with(
        noop(id, targets),
        json!({
            "deadlineMs": draw.between(2_000, 30_000),
            "expiresMs": 3_600_000,
            "retry": { "maxAttempts": 50, "backoffMs": [50, 100, 200], "transient": ["NETWORK", "TIMEOUT", "LOST"], "business": [] },
            "timeouts": { "deliverMs": draw.between(1_500, 4_000), "runMs": draw.between(1_500, 4_000) },
            "limits": { "inFlight": draw.between(8, 21) },
        }),
    )
}

/// Until it is taken; `false`: the run ended before.
async fn submit(hq: &Hq, plan: &Value, shared: &Shared) -> bool {
    loop {
        if shared.is_over() {
            // It may have been taken all the same, its answer lost: the judge reads the log.
            return false;
        }
        match hq.ask_within::<Submitted>("plan.submit", &json!({ "plan": plan, "by": "chaos" }), ANSWER_WITHIN).await {
            Ok(_) => return true,
            Err(error) => shared.failed(&error),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn cancel(hq: &Hq, index: usize, shared: &Shared) {
    let Some((id, _)) = index.checked_sub(1).and_then(|i| shared.plans().get(i).cloned()) else { return };
    loop {
        let request = json!({ "planId": id, "by": "chaos", "reason": "drawn" });
        match hq.ask_within::<Noted>("plan.cancel", &request, ANSWER_WITHIN).await {
            Ok(_) => {
                if let Some(plan) = shared.plans.lock().unwrap_or_else(PoisonError::into_inner).get_mut(index - 1) {
                    plan.1 = true;
                }
                return;
            }
            // It has ended meanwhile: nothing left to cancel.
            Err(error) if !is_away(&error) => return shared.failed(&error),
            Err(error) => shared.failed(&error),
        }
        if shared.is_over() {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether nobody answered, as opposed to a refusal.
fn is_away(error: &fanfold::error::CliError) -> bool {
    use fanfold::exit::Exit;
    matches!(error.exit(), Exit::Unreachable)
}
