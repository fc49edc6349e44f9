//! The leader's loop: look at plans that changed or whose time has come, append what is due, look again when it is in view.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use fanfold_domain::barrier::{Convergence, next_step};
use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::{Asked, PlanEvent};
use fanfold_domain::view::PlanView;
use fanfold_ledger::lead::Keeper;
use fanfold_ledger::port::{Append, Fence, FencedError, LedgerError};
use fanfold_ledger::write::Writer;
use fanfold_process::shutdown::Shutdown;
use fanfold_wire::event::EventError;

use crate::document::{self, Wanted};
use crate::{Deps, ROLE};

const SOURCE: &str = "/fanfold/convergence";
/// Plans acted on in one batch.
const PLANS_PER_BATCH: usize = 500;
/// Longest sleep, in milliseconds.
const SLEEP_MS_MAX: i64 = 60_000;
/// Pause after a conflict or a summary that did not check, in milliseconds.
const AGAIN_MS: i64 = 50;
const BROKEN_AGAIN_MS: i64 = 30_000;

/// What a plan needs now: an event, or a summary that is still to be computed.
enum Due {
    Event(PlanId, Append),
    Summary(Box<Wanted>),
}

/// A plan and the event that is to be appended about it.
pub(crate) type Ready = (PlanId, Append);

#[derive(Default)]
pub(crate) struct Agenda {
    look: BTreeSet<PlanId>,
    wake_ms: BTreeMap<PlanId, i64>,
    /// Own appends that the view has to have before the plan is looked at again.
    unseen: HashMap<PlanId, u64>,
}

/// Leads until overtaken or shut down.
pub(crate) async fn lead(deps: &Deps, mut fence: Fence, mut keeper: Keeper, shutdown: &Shutdown) -> Result<(), LedgerError> {
    while !deps.open.reached(fence.last_seq, Duration::from_secs(1)).await {
        if shutdown.is_triggered() {
            return Ok(());
        }
    }
    let changes = deps.open.subscribe(false);
    let mut agenda = Agenda::default();
    loop {
        agenda.look.extend(changes.take().into_keys());
        let due = look(deps, &mut agenda);
        if !due.is_empty() {
            // A large summary takes a while: whoever waits for a sign of this leader hears it meanwhile.
            let ready = tokio::select! {
                biased;
                _ = keeper.keep() => {
                    tracing::warn!(role = ROLE, "overtaken: another convergence leads now");
                    return Ok(());
                }
                ready = prepare(deps, due, &mut agenda) => ready?,
            };
            if !ready.is_empty() && !append(deps, &mut fence, ready, &mut agenda).await? {
                tracing::warn!(role = ROLE, "overtaken: another convergence leads now");
                return Ok(());
            }
        }
        let now_ms = deps.clock.now_ms();
        let wait_ms = agenda.wake_ms.values().min().map_or(SLEEP_MS_MAX, |at_ms| (at_ms - now_ms).clamp(1, SLEEP_MS_MAX));
        // In order, so that equal histories give equal logs; every round looks at changes and clocks alike.
        tokio::select! {
            biased;
            () = shutdown.wait() => return Ok(()),
            _ = keeper.keep() => {
                tracing::warn!(role = ROLE, "overtaken: another convergence leads now");
                return Ok(());
            }
            () = changes.changed() => {}
            () = tokio::time::sleep(Duration::from_millis(wait_ms.unsigned_abs())) => {}
        }
    }
}

/// Looks at what changed and at whose time has come; gives what is to be appended.
fn look(deps: &Deps, agenda: &mut Agenda) -> Vec<Due> {
    let now_ms = deps.clock.now_ms();
    let woken: Vec<PlanId> = agenda.wake_ms.iter().filter(|(_, at_ms)| **at_ms <= now_ms).map(|(id, _)| id.clone()).collect();
    agenda.look.extend(woken);
    let model = deps.open.read();
    let mut due = Vec::new();
    while due.len() < PLANS_PER_BATCH {
        let Some(plan) = agenda.look.pop_first() else { break };
        agenda.wake_ms.remove(&plan);
        let Some(view) = model.plan(&plan).filter(|v| !v.is_over()) else {
            agenda.unseen.remove(&plan);
            continue;
        };
        if agenda.unseen.get(&plan).is_some_and(|seq| view.plan.plan_seq < *seq) {
            continue;
        }
        agenda.unseen.remove(&plan);
        let prepared = match next_step(view, now_ms) {
            Convergence::Nothing => continue,
            Convergence::WaitUntil(at_ms) => {
                agenda.wake_ms.insert(plan, at_ms);
                continue;
            }
            Convergence::DeadlineReached => event(view, &PlanEvent::DeadlineReached, now_ms),
            Convergence::RequestClose(reason) => {
                let asked = Asked { by: ROLE.to_owned(), reason: reason.to_owned() };
                event(view, &PlanEvent::CloseRequested(asked), now_ms)
            }
            Convergence::Close => event(view, &PlanEvent::Closed, now_ms),
            Convergence::Summarise(kind) => {
                due.push(Due::Summary(Box::new(Wanted { view: view.clone(), kind })));
                continue;
            }
        };
        match prepared {
            Ok(event) => due.push(Due::Event(plan, event)),
            Err(error) => agenda.is_broken(&plan, &error, now_ms),
        }
    }
    due
}

impl Agenda {
    fn is_broken(&mut self, plan: &PlanId, error: &EventError, now_ms: i64) {
        tracing::error!(%plan, %error, "a summary or plan event could not be made; nothing wrong is published, it is tried again");
        self.wake_ms.insert(plan.clone(), now_ms + BROKEN_AGAIN_MS);
    }
}

/// Computes the summaries and stores their documents, while the fold goes on. Safe to drop: nothing names a document yet.
async fn prepare(deps: &Deps, due: Vec<Due>, agenda: &mut Agenda) -> Result<Vec<Ready>, LedgerError> {
    let mut ready = Vec::with_capacity(due.len());
    for due in due {
        let wanted = match due {
            Due::Event(plan, event) => {
                ready.push((plan, event));
                continue;
            }
            Due::Summary(wanted) => wanted,
        };
        let (plan, now_ms) = (wanted.view.plan.id().clone(), deps.clock.now_ms());
        let summarised = match document::store(deps.ledger.as_ref(), &wanted).await {
            Ok(summarised) => event(&wanted.view, &PlanEvent::Summarised(Box::new(summarised)), now_ms),
            Err(document::StoreError::Ledger(error)) => return Err(error),
            Err(document::StoreError::Summary(error)) => Err(EventError::Unwritable(error.to_string())),
        };
        match summarised {
            Ok(event) => ready.push((plan, event)),
            Err(error) => agenda.is_broken(&plan, &error, now_ms),
        }
    }
    Ok(ready)
}

fn event(view: &PlanView, event: &PlanEvent, now_ms: i64) -> Result<Append, EventError> {
    Writer { source: SOURCE, now_ms }.next_plan_event(&view.plan, event)
}

/// Appends what is ready. `false`: the lead is lost.
async fn append(deps: &Deps, fence: &mut Fence, ready: Vec<Ready>, agenda: &mut Agenda) -> Result<bool, LedgerError> {
    let (plans, events): (Vec<PlanId>, Vec<Append>) = ready.into_iter().unzip();
    let answers = match deps.ledger.append_fenced(fence, events).await {
        Ok(answers) => answers,
        Err(FencedError::Overtaken(_)) => return Ok(false),
        Err(FencedError::Ledger(error)) => return Err(error),
    };
    let now_ms = deps.clock.now_ms();
    for (plan, answer) in plans.into_iter().zip(answers) {
        match answer.stored_seq() {
            Some(seq) => {
                // The view may have it already, then nothing else wakes this plan.
                agenda.look.insert(plan.clone());
                agenda.wake_ms.insert(plan.clone(), now_ms + AGAIN_MS);
                agenda.unseen.insert(plan, seq);
            }
            None => {
                tracing::debug!(%plan, ?answer, "somebody else wrote about the plan first; looked at again");
                agenda.wake_ms.insert(plan, now_ms + AGAIN_MS);
            }
        }
    }
    Ok(true)
}
