//! The dispatcher's index over open plans: which tasks to look at when, which may be dispatched, which are being decided.
//!
//! Everything here can be thrown away and made anew from the views; it only saves looking at every task all the time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};

use fanfold_domain::bits::Bits;
use fanfold_domain::event::TaskEvent;
use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::{Limits, Plan};

/// A decision on its way into the log, or in it and not yet in view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deciding {
    /// Not answered yet.
    InFlight,
    /// Stored at this sequence: nothing is decided about the task before the view has it.
    Stored(u64),
}

/// What of a plan decides about its tasks, beside what was submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    sealed: bool,
    paused: bool,
    limits: Limits,
    cancel_seq: Option<u64>,
    close_seq: Option<u64>,
    closed_seq: Option<u64>,
    last_requeue_seq: Option<u64>,
}

impl Facts {
    pub(crate) fn of(plan: &Plan) -> Self {
        Self {
            sealed: plan.seal.is_some(),
            paused: plan.paused,
            limits: plan.limits,
            cancel_seq: plan.cancel.as_ref().map(|(_, seq)| *seq),
            close_seq: plan.close.as_ref().map(|(_, seq, _)| *seq),
            closed_seq: plan.closed_seq,
            last_requeue_seq: plan.requeues.last().map(|request| request.seq),
        }
    }
}

/// One plan's part of the index.
#[derive(Debug, Default)]
pub(crate) struct PlanWork {
    /// As they were when every task was looked at last.
    pub(crate) facts: Option<Facts>,
    /// Earliest wake-up set for a task, epoch ms; 0: none.
    pub(crate) wake_ms: Vec<i64>,
    /// Tasks that may be dispatched as soon as the caps allow, first come first served.
    pub(crate) ready: VecDeque<u32>,
    queued: Bits,
    /// Of those, the ones the account calls offline although their terminal is back.
    pub(crate) releasing: BTreeSet<u32>,
    /// Decisions under way.
    pub(crate) deciding: HashMap<u32, Deciding>,
    /// Of those, hand-outs: they count against the caps before they are in view.
    pub(crate) handing_out: Bits,
    /// `plan.cancelled` is under way.
    pub(crate) cancelling: bool,
}

impl PlanWork {
    pub(crate) fn queue(&mut self, task: u32) {
        if self.queued.set(task as usize, true) {
            self.ready.push_back(task);
        }
    }

    pub(crate) fn next_ready(&mut self) -> Option<u32> {
        let task = self.ready.pop_front()?;
        self.queued.set(task as usize, false);
        self.releasing.remove(&task);
        Some(task)
    }

    pub(crate) fn settle(&mut self, task: u32) {
        self.deciding.remove(&task);
        self.handing_out.set(task as usize, false);
    }
}

/// Timers of plans that are over, or overtaken by earlier ones of the same task, that may be left beside as many as there are tasks.
const STALE_TIMERS_MAX: usize = 1_024;

/// A decision to be appended.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) plan: PlanId,
    /// Index of the task; `None`: `plan.cancelled`.
    pub(crate) task: Option<u32>,
    pub(crate) event: Option<TaskEvent>,
}

/// The whole index.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) plans: BTreeMap<PlanId, PlanWork>,
    timers: BinaryHeap<Reverse<(i64, PlanId, u32)>>,
    /// Decisions made and not sent yet.
    pub(crate) outbox: VecDeque<Decision>,
    /// The plan after which the next round of dispatching begins.
    pub(crate) turn: Option<PlanId>,
    /// Plans whose `plan.cancelled` may be due.
    pub(crate) cancels: BTreeSet<PlanId>,
}

impl Work {
    /// Wakes a task at `at_ms`, if nothing earlier is set.
    pub(crate) fn wake_at(&mut self, plan: &PlanId, task: u32, at_ms: i64) {
        let Some(work) = self.plans.get_mut(plan) else { return };
        let index = task as usize;
        if index >= work.wake_ms.len() {
            work.wake_ms.resize(index + 1, 0);
        }
        let Some(slot) = work.wake_ms.get_mut(index) else { return };
        if *slot == 0 || at_ms < *slot {
            *slot = at_ms;
            self.timers.push(Reverse((at_ms, plan.clone(), task)));
        }
    }

    /// Forgets a plan that is over, and once in a while what is left of such plans: their timers may be days away.
    pub(crate) fn forget(&mut self, plan: &PlanId) {
        self.plans.remove(plan);
        let live: usize = self.plans.values().map(|work| work.wake_ms.len()).sum();
        if self.timers.len() > 2 * live + STALE_TIMERS_MAX {
            let plans = &self.plans;
            let is_set =
                |at_ms: i64, plan: &PlanId, task: u32| plans.get(plan).and_then(|w| w.wake_ms.get(task as usize)) == Some(&at_ms);
            self.timers.retain(|Reverse((at_ms, plan, task))| is_set(*at_ms, plan, *task));
            self.timers.shrink_to_fit();
        }
        if self.outbox.is_empty() {
            self.outbox.shrink_to_fit();
        }
    }

    /// Tasks whose time has come.
    pub(crate) fn due(&mut self, now_ms: i64) -> Vec<(PlanId, u32)> {
        let mut due = Vec::new();
        while let Some(Reverse((at_ms, _, _))) = self.timers.peek() {
            if *at_ms > now_ms {
                break;
            }
            let Some(Reverse((at_ms, plan, task))) = self.timers.pop() else { break };
            // A timer that was overtaken by an earlier one is not this task's any more.
            if let Some(slot) = self.plans.get_mut(&plan).and_then(|w| w.wake_ms.get_mut(task as usize)).filter(|s| **s == at_ms)
            {
                *slot = 0;
                due.push((plan, task));
            }
        }
        due
    }

    /// When the next timer fires, epoch ms.
    pub(crate) fn next_wake_ms(&self) -> Option<i64> {
        self.timers.peek().map(|Reverse((at_ms, _, _))| *at_ms)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_queued_once_and_woken_at_its_earliest() {
        let plan = PlanId::new("p").unwrap();
        let mut work = Work::default();
        work.plans.insert(plan.clone(), PlanWork::default());
        for at_ms in [50, 30, 40] {
            work.wake_at(&plan, 7, at_ms);
        }
        assert_eq!(work.next_wake_ms(), Some(30));
        assert!(work.due(29).is_empty());
        assert_eq!(work.due(60), [(plan.clone(), 7)], "later timers of the same task are stale");
        work.wake_at(&plan, 7, 70);
        assert_eq!(work.due(70).len(), 1);
        let plan_work = work.plans.get_mut(&plan).unwrap();
        plan_work.queue(3);
        plan_work.queue(3);
        assert_eq!((plan_work.next_ready(), plan_work.next_ready()), (Some(3), None));
    }

    #[test]
    fn timers_of_plans_that_are_over_do_not_stay() {
        let mut work = Work::default();
        let plan = |n: usize| PlanId::new(&format!("p{n}")).unwrap();
        for n in 0..100 {
            work.plans.insert(plan(n), PlanWork::default());
            (0..500).for_each(|task| work.wake_at(&plan(n), task, 1_000_000 + i64::from(task)));
            work.wake_at(&plan(n), 499, 7);
            if n >= 2 {
                work.forget(&plan(n - 2));
            }
            assert!(work.timers.len() <= 2 * 1_500 + STALE_TIMERS_MAX + 501, "{} timers after {n} plans", work.timers.len());
        }
        assert_eq!(work.due(2_000_000).len(), 1_000, "those of the two that are open are all there");
    }
}
