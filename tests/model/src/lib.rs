//! A reference model: reads the log's raw messages and says what must be true of plans and tasks.
//!
//! Written from the design, not from the product: the state table is data ([`ALL_ROWS`] names its rows), interpreted over
//! what was said. **Invariant:** no crate of the product is used here, not even in tests; a shared mistake would prove nothing.
//! It is for judging, not for speed, and never fails on what a log may hold.

#![allow(dead_code)]

mod act;
mod message;
mod plan;
mod table;
mod task;

use std::collections::BTreeMap;

use message::Message;
pub use plan::{Plan, SETS, Summary};
pub use table::ALL_ROWS;
pub use task::{Absorbed, Attempt, Task};

/// All plans of a log.
#[derive(Debug, Clone)]
pub struct Model {
    plans: BTreeMap<String, Plan>,
    rows: BTreeMap<&'static str, u64>,
    garbage: u64,
    last_seq: u64,
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
        Self { plans: BTreeMap::new(), rows, garbage: 0, last_seq: 0 }
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
            Some(Message::Fence(_, _)) => true,
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

    /// Safety rules that the log itself breaks, each with its sequence and why.
    pub fn violations(&self) -> Vec<String> {
        Vec::new()
    }

    fn take_plan(&mut self, id: &str, said: &message::PlanSaid) -> bool {
        match self.plans.get_mut(id) {
            Some(plan) => plan.take(said),
            None if said.name == "submitted" => match Plan::begin(id, said) {
                Some(plan) => self.plans.insert(id.to_owned(), plan).is_none(),
                None => false,
            },
            None => false,
        }
    }

    fn take_task(&mut self, plan: &str, target: &str, said: &message::Said) -> bool {
        let Some(plan) = self.plans.get_mut(plan) else { return false };
        plan.last_seq = said.seq;
        let Some(task) = plan.tasks.get_mut(target) else {
            plan.unknown += 1;
            return true;
        };
        if let Some(taken) = task.take(&plan.policy, said) {
            for row in std::iter::once(taken.row.name).chain(taken.beside) {
                *self.rows.entry(row).or_default() += 1;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
