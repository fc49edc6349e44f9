//! A reference model: reads the log's raw messages and says what must be true of plans and tasks.
//!
//! Written from the design, not from the product: the state table is data ([`ALL_ROWS`] names its rows), interpreted over
//! what was said. **Invariant:** no crate of the product is used here, not even in tests; a shared mistake would prove nothing.
//! It is for judging, not for speed, and never fails on what a log may hold.

mod act;
mod fences;
mod message;
mod plan;
mod plan_rules;
mod rules;
mod table;
mod task;

use std::collections::BTreeMap;

use fences::Fences;
use message::{Message, What};
pub use plan::{Plan, SETS, Summary};
pub use table::ALL_ROWS;
pub use task::{Absorbed, Attempt, Task};

/// Most violations that are told; further ones are only counted.
const VIOLATIONS_MAX: usize = 1_000;

/// All plans of a log.
#[derive(Debug, Clone)]
pub struct Model {
    plans: BTreeMap<String, Plan>,
    rows: BTreeMap<&'static str, u64>,
    garbage: u64,
    last_seq: u64,
    clocks_apart_ms: i64,
    fences: Fences,
    violations: Vec<String>,
    untold: u64,
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// Of an empty log.
    pub fn new() -> Self {
        let rows = ALL_ROWS.iter().map(|row| (*row, 0)).collect();
        Self {
            plans: BTreeMap::new(),
            rows,
            garbage: 0,
            last_seq: 0,
            clocks_apart_ms: 0,
            fences: Fences::default(),
            violations: Vec::new(),
            untold: 0,
        }
    }

    /// Lets writers' clocks be so far from the log's, in milliseconds, before a moment counts as wrong; 0 at first.
    pub fn clocks_apart_ms(mut self, ms: i64) -> Self {
        self.clocks_apart_ms = ms.max(0);
        self
    }

    /// Takes the next message of the log; one that was taken before (by its sequence) is passed over.
    pub fn feed(&mut self, seq: u64, time_ms: i64, subject: &str, payload: &[u8]) {
        if seq <= self.last_seq {
            return;
        }
        self.last_seq = seq;
        let taken = match message::read(seq, time_ms, subject, payload) {
            Some(Message::Plan(id, said)) => self.take_plan(&id, &said),
            Some(Message::Task([plan, target, _], said)) => self.take_task(&plan, &target, &said),
            Some(Message::Fence(role, id)) => {
                let broken = self.fences.take(seq, &role, &id);
                self.tell(seq, "leadership", broken);
                true
            }
            None => false,
        };
        self.garbage += u64::from(!taken);
    }

    /// A plan by id.
    pub fn plan(&self, plan: &str) -> Option<&Plan> {
        self.plans.get(plan)
    }

    /// Every plan, by id.
    pub fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.plans.values()
    }

    /// Every row of the state table and how often it was taken.
    pub fn rows(&self) -> &BTreeMap<&'static str, u64> {
        &self.rows
    }

    /// Messages that could not be read, or were about a plan whose beginning is not in the log.
    pub fn garbage(&self) -> u64 {
        self.garbage
    }

    /// Safety rules that the log itself breaks, in its order, each with its sequence and why; at most 1,000 are told.
    pub fn violations(&self) -> Vec<String> {
        let untold = (self.untold > 0).then(|| format!("{} more", self.untold));
        self.violations.iter().cloned().chain(untold).collect()
    }

    fn tell(&mut self, seq: u64, about: &str, broken: impl IntoIterator<Item = String>) {
        for why in broken {
            if self.violations.len() < VIOLATIONS_MAX {
                self.violations.push(format!("seq {seq}: {about}: {why}"));
            } else {
                self.untold += 1;
            }
        }
    }

    fn take_plan(&mut self, id: &str, said: &message::PlanSaid) -> bool {
        let mut broken = plan_rules::broken_by_plan_event(id, self.plans.get(id), said);
        let summary = (said.name == "summarised").then(|| Summary::read(said)).flatten();
        if let (Some(plan), Some(summary)) = (self.plans.get(id), &summary) {
            broken.extend(plan_rules::broken_by_summary(plan, summary));
        }
        let taken = match self.plans.get_mut(id) {
            Some(plan) => plan.take(said),
            None if said.name == "submitted" => match Plan::begin(id, said, self.clocks_apart_ms) {
                Some(plan) => self.plans.insert(id.to_owned(), plan).is_none(),
                None => false,
            },
            None => false,
        };
        self.tell(said.seq, &format!("plan {id}"), broken);
        taken
    }

    fn take_task(&mut self, plan_id: &str, target: &str, said: &message::Said) -> bool {
        let leads_since = self.fences.leads_since("dispatcher");
        let Some(plan) = self.plans.get_mut(plan_id) else { return false };
        plan.last_seq = said.seq;
        plan.event_seqs.push(said.seq);
        let mut broken = rules::broken_by_task_event(plan, target, said, leads_since);
        let after_deadline = plan.deadline_seq.is_some();
        if let Some(task) = plan.tasks.get_mut(target) {
            let before = (task.set(after_deadline), task.is_final());
            let taken = task.take(&plan.policy, said);
            let after = (task.set(after_deadline), task.is_final());
            plan.note_change(said.seq, before, after);
            plan.note_out(target);
            for row in taken.iter().flat_map(|t| std::iter::once(t.row.name).chain(t.beside)) {
                *self.rows.entry(row).or_default() += 1;
            }
            if said.what == What::Dispatched {
                broken.extend(rules::broken_by_caps(plan, said.time_ms));
            }
        } else {
            plan.unknown += 1;
        }
        self.tell(said.seq, &format!("task {plan_id}.{target}.main"), broken);
        true
    }
}

#[cfg(test)]
mod tests;
