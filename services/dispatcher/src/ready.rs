//! Handing out: which of the tasks that may run do run now. Caps over everything, a plan and a terminal; plans take turns.

use std::collections::BTreeSet;

use fanfold_domain::dispatch::{Hq, Step, run_margin_ms};
use fanfold_domain::event::{Dispatched, PROTOCOL_VERSION, TaskEvent};
use fanfold_domain::ids::{PlanId, TerminalId};
use fanfold_domain::planted::{self, Planted};
use fanfold_domain::view::PlanView;
use fanfold_ledger::open::Model;

use crate::terminals::Terminals;
use crate::work::{Deciding, Decision, PlanWork, Work};

/// Most tasks of one plan handed out before the next plan has its turn.
const TURN_TASKS: usize = 64;
/// Most hand-outs that are not in view yet. Where the view lags, so would a cancel: what nobody can take back any more is bounded.
const UNSEEN_MAX: usize = 2_000;
/// How soon a task whose terminal is full is looked at again, in milliseconds; an event of that terminal comes sooner.
const FULL_AGAIN_MS: i64 = 1_000;

/// Tasks of a plan that are out: live ones, superseded ones until their run timeout passed, and hand-outs not yet in view.
pub(crate) fn out(view: &PlanView, work: &Work, hq: &Hq) -> usize {
    let superseded = view.superseded.iter().filter(|i| superseded_counts(view, *i, hq)).count();
    let handing_out = work.plans.get(view.plan.id()).map_or(0, |w| w.handing_out.count());
    if planted::is(Planted::CapIgnored) { 0 } else { view.live.count() + superseded + handing_out }
}

fn superseded_counts(view: &PlanView, index: usize, hq: &Hq) -> bool {
    let timeouts = &view.plan.spec.timeouts;
    let longest_ms = i64::try_from(timeouts.deliver_ms.saturating_add(timeouts.run_ms)).unwrap_or(i64::MAX / 4)
        + run_margin_ms(timeouts.run_ms);
    view.tasks.get(index).is_some_and(|t| t.superseded_open().any(|a| a.dispatched_ms.saturating_add(longest_ms) > hq.now_ms))
}

/// Tasks out at one terminal, over all plans.
fn out_at(model: &Model, work: &Work, terminal: &TerminalId, hq: &Hq) -> usize {
    let at_plan = |view: &PlanView| {
        let Some(index) = view.plan.index_of(terminal.as_str()) else { return 0 };
        let handing_out = work.plans.get(view.plan.id()).is_some_and(|w| w.handing_out.contains(index));
        let superseded = view.superseded.contains(index) && superseded_counts(view, index, hq);
        usize::from(view.live.contains(index)) + usize::from(superseded) + usize::from(handing_out)
    };
    model.open().map(at_plan).sum()
}

/// Whether a hand-out to a terminal is decided and not in view yet. It may name the boot before, or come before the terminal listens:
/// an answer to a sync that does not have it must not be the last word for a minute.
pub(crate) fn handing_out_to(model: &Model, work: &Work, terminal: &TerminalId) -> bool {
    let at_plan = |view: &PlanView| {
        let index = view.plan.index_of(terminal.as_str())?;
        let plan_work = work.plans.get(view.plan.id()).filter(|w| w.handing_out.contains(index))?;
        match plan_work.deciding.get(&u32::try_from(index).ok()?)? {
            Deciding::InFlight => Some(()),
            Deciding::Stored(seq) => view.tasks.get(index).filter(|t| t.decision_seq < *seq).map(drop),
        }
    };
    model.open().any(|view| at_plan(view).is_some())
}

/// Hands out what the caps allow: the decisions go to the outbox.
pub(crate) fn hand_out(model: &Model, work: &mut Work, terminals: &Terminals, hq: &Hq, in_flight_max: usize) {
    let mut total: usize = model.open().map(|v| out(v, work, hq)).sum();
    let unseen: usize = work.plans.values().map(|w| w.handing_out.count()).sum();
    if unseen >= UNSEEN_MAX {
        return;
    }
    let in_flight_max = in_flight_max.min(total + UNSEEN_MAX - unseen);
    let mut plans: Vec<PlanId> = work.plans.iter().filter(|(_, w)| !w.ready.is_empty()).map(|(id, _)| id.clone()).collect();
    if let Some(turn) = &work.turn {
        let begin = plans.partition_point(|p| p <= turn);
        plans.rotate_left(begin);
    }
    while total < in_flight_max && !plans.is_empty() {
        let mut still = Vec::with_capacity(plans.len());
        // What is free is shared by all that wait: the first in the row must not take everything.
        let turn_tasks = ((in_flight_max - total) / plans.len()).clamp(1, TURN_TASKS);
        for plan in plans {
            if total >= in_flight_max {
                break;
            }
            let Some(view) = model.plan(&plan) else { continue };
            let room = (view.plan.limits.in_flight as usize).saturating_sub(out(view, work, hq)).min(in_flight_max - total);
            let handed = hand_out_plan(model, view, work, terminals, hq, room.min(turn_tasks));
            total += handed;
            work.turn = Some(plan.clone());
            if handed == turn_tasks {
                still.push(plan);
            }
        }
        plans = still;
    }
    release_the_rest(model, work, terminals, hq);
}

/// Whoever is back and found no room is told apart from the offline ones while it waits.
fn release_the_rest(model: &Model, work: &mut Work, terminals: &Terminals, hq: &Hq) {
    let left =
        |(id, w): (&PlanId, &mut PlanWork)| (!w.releasing.is_empty()).then(|| (id.clone(), std::mem::take(&mut w.releasing)));
    let left: Vec<(PlanId, BTreeSet<u32>)> = work.plans.iter_mut().filter_map(left).collect();
    for (plan, tasks) in left {
        let Some(view) = model.plan(&plan) else { continue };
        for index in tasks {
            match step(view, work, terminals, index, hq) {
                Some(Step::Ready { release: true }) => decide(work, &plan, index, TaskEvent::Released),
                Some(Step::Decide(event)) => decide(work, &plan, index, event),
                Some(Step::WaitUntil(at_ms)) => work.wake_at(&plan, index, at_ms.max(hq.now_ms + 1)),
                Some(Step::Ready { .. } | Step::Nothing | Step::WaitPresence) | None => {}
            }
        }
    }
}

/// Hands out at most `room` tasks of one plan; says how many. What can't go is told apart: full plan stays queued, full terminal waits.
fn hand_out_plan(model: &Model, view: &PlanView, work: &mut Work, terminals: &Terminals, hq: &Hq, room: usize) -> usize {
    let id = view.plan.id();
    let mut handed = 0;
    let mut looked = work.plans.get(id).map_or(0, |w| w.ready.len());
    while handed < room && looked > 0 {
        looked -= 1;
        let Some(index) = work.plans.get_mut(id).and_then(PlanWork::next_ready) else { break };
        let Some(step) = step(view, work, terminals, index, hq) else { continue };
        match step {
            Step::Ready { release } => {
                let Some(dispatched) = dispatched(view, terminals, index) else { continue };
                let slots = terminals.known.get(&dispatched.terminal).map_or(1, |t| t.identity.slots.max(1) as usize);
                if out_at(model, work, &dispatched.terminal, hq) >= slots {
                    if release {
                        // It is online and busy: the account must not say offline while the task waits for a slot.
                        decide(work, id, index, TaskEvent::Released);
                    } else {
                        work.wake_at(id, index, hq.now_ms + FULL_AGAIN_MS);
                    }
                    continue;
                }
                decide(work, id, index, TaskEvent::Dispatched(Box::new(dispatched)));
                handed += 1;
            }
            Step::Decide(event) => decide(work, id, index, event),
            Step::WaitUntil(at_ms) => work.wake_at(id, index, at_ms.max(hq.now_ms + 1)),
            Step::Nothing | Step::WaitPresence => {}
        }
    }
    handed
}

/// Puts a decision into the outbox and marks the task as being decided.
pub(crate) fn decide(work: &mut Work, plan: &PlanId, index: u32, event: TaskEvent) {
    if let Some(plan_work) = work.plans.get_mut(plan) {
        plan_work.deciding.insert(index, Deciding::InFlight);
        plan_work.handing_out.set(index as usize, matches!(event, TaskEvent::Dispatched(_)));
    }
    work.outbox.push_back(Decision { plan: plan.clone(), task: Some(index), event: Some(event) });
}

/// The policy's word on a task, unless a decision about it is under way or not in view yet.
pub(crate) fn step(view: &PlanView, work: &mut Work, terminals: &Terminals, index: u32, hq: &Hq) -> Option<Step> {
    let task = view.tasks.get(index as usize)?;
    let plan_work = work.plans.get_mut(view.plan.id())?;
    match plan_work.deciding.get(&index) {
        Some(Deciding::InFlight) => return None,
        Some(Deciding::Stored(seq)) if task.decision_seq < *seq => return None,
        Some(Deciding::Stored(_)) => plan_work.settle(index),
        None => {}
    }
    let task_id = view.task_id(index as usize)?;
    let attempt = task.current().filter(|_| task.state.is_live());
    let terminal = attempt.map_or_else(|| task_id.target.terminal(), |a| a.terminal.clone());
    let presence = terminals.presence(&terminal, &task_id, attempt, hq);
    Some(fanfold_domain::dispatch::next_step(view, index as usize, &presence, hq))
}

fn dispatched(view: &PlanView, terminals: &Terminals, index: u32) -> Option<Dispatched> {
    let task = view.tasks.get(index as usize)?;
    let terminal = view.plan.targets.get(index as usize)?.terminal();
    let identity = &terminals.known.get(&terminal)?.identity;
    Some(Dispatched {
        protocol_version: PROTOCOL_VERSION,
        attempt: task.last_attempt + 1,
        journal: identity.journal.to_string(),
        boot: identity.boot.to_string(),
        kind: view.plan.spec.kind.name.clone(),
        version: view.plan.spec.kind.version,
        input: view.plan.spec.input.clone(),
        run_timeout_ms: view.plan.spec.timeouts.run_ms,
        terminal,
    })
}

#[cfg(test)]
mod tests;
