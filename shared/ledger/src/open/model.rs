//! The fold's state: views of open plans, what is known of closed ones, and what could not be read.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use fanfold_domain::ids::PlanId;
use fanfold_domain::view::PlanView;
use fanfold_wire::event::{EventError, LogEvent, decode_linked};
use lru::LruCache;

use super::holes::{fold_plan_event, fold_task_event, mark_of, note_gaps};
use super::unsupported;
use crate::gaps;
use crate::port::Stored;

/// Plans that are over are remembered by name up to this number; older ones are looked up in the log.
const CLOSED_REMEMBERED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(65_535);
/// Plans that are over are kept readable for a slow projector up to this number.
const OVER_KEPT_MAX: usize = 256;
/// Holes remembered.
const HOLES_MAX: usize = 64;

/// What the fold knows of a plan id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// It is open.
    Open,
    /// Its final summary is in the log.
    Over,
    /// This build can't fold it: its rules are of this version (`None`: its submission can't be read). Another build can.
    Unsupported(Option<u32>),
    /// Not seen: ask the log's leader.
    Unknown,
}

/// Everything folded. Read through [`super::OpenPlans::read`].
#[derive(Debug)]
pub struct Model {
    plans: BTreeMap<PlanId, PlanView>,
    over: BTreeMap<u64, PlanId>,
    closed: LruCache<PlanId, u64>,
    pub(super) unsupported: unsupported::Plans,
    seq: u64,
    catch_up_seq: u64,
    unreadable: u64,
    after_close: u64,
    holes: Vec<(u64, u64)>,
    /// What the log lacks, first and last sequence, in order.
    gaps: Vec<(u64, u64)>,
    /// Mark of the event at `seq` where it was not folded here but read at the start.
    mark: Option<String>,
    last: Option<Stored>,
    went_back: Option<(u64, u64)>,
}

/// An event and the sequence its id names as the one before it.
pub(super) type Linked = (LogEvent, Option<u64>);

pub(super) fn decode_all(messages: &[Stored]) -> Vec<Result<Linked, EventError>> {
    messages.iter().map(|m| decode_linked(m.seq, m.time_ms, &m.subject, &m.payload)).collect()
}

impl Model {
    pub(super) fn new(seq: u64) -> Self {
        Self {
            plans: BTreeMap::new(),
            over: BTreeMap::new(),
            closed: LruCache::new(CLOSED_REMEMBERED),
            unsupported: unsupported::Plans::default(),
            seq,
            catch_up_seq: seq,
            unreadable: 0,
            after_close: 0,
            holes: Vec::new(),
            gaps: Vec::new(),
            mark: None,
            last: None,
            went_back: None,
        }
    }

    /// Last sequence folded.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Whether the end of the log as of the last (re)connect is reached.
    pub fn is_caught_up(&self) -> bool {
        self.seq >= self.catch_up_seq
    }

    /// Plans in memory, by id; those just over among them.
    pub fn plans(&self) -> impl Iterator<Item = &PlanView> {
        self.plans.values()
    }

    /// Plans that are not over, by id.
    pub fn open(&self) -> impl Iterator<Item = &PlanView> {
        self.plans.values().filter(|v| !v.is_over())
    }

    /// One plan in memory.
    pub fn plan(&self, id: &PlanId) -> Option<&PlanView> {
        self.plans.get(id)
    }

    /// What is known of an id.
    pub fn known(&self, id: &PlanId) -> Known {
        if let Some(plan) = self.unsupported_plan(id) {
            return Known::Unsupported(plan.rules);
        }
        match self.plans.get(id) {
            Some(view) if view.is_over() => Known::Over,
            Some(_) => Known::Open,
            None if self.closed.contains(id) => Known::Over,
            None => Known::Unknown,
        }
    }

    /// Plans whose final summary has a higher sequence, in no order, of those remembered by name (65,536 of them).
    pub fn ended_after(&self, seq: u64) -> impl Iterator<Item = &PlanId> {
        self.closed.iter().filter(move |(_, final_seq)| **final_seq > seq).map(|(id, _)| id)
    }

    /// Messages of the log that could not be read.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Events about tasks of plans that are over.
    pub fn after_close(&self) -> u64 {
        self.after_close
    }

    /// Missing ranges `[from, to)` of the log.
    pub fn holes(&self) -> &[(u64, u64)] {
        &self.holes
    }

    /// What the log lacks up to here, first and last sequence, in order.
    pub fn gaps(&self) -> &[(u64, u64)] {
        &self.gaps
    }

    /// What the last event folded is recognised by; empty: it is not known.
    pub fn mark(&self) -> String {
        self.last.as_ref().map(mark_of).or_else(|| self.mark.clone()).unwrap_or_default()
    }

    /// The sequence the checkpoint stood at and the log's last one, where the log turned out to be shorter or another one at the start.
    pub fn went_back(&self) -> Option<(u64, u64)> {
        self.went_back
    }

    pub(super) fn begin(&mut self, gaps: Vec<(u64, u64)>, mark: Option<String>, went_back: Option<(u64, u64)>) {
        self.holes = gaps.iter().take(HOLES_MAX).map(|(from, to)| (*from, *to + 1)).collect();
        self.gaps = gaps;
        self.mark = mark;
        self.went_back = went_back;
    }

    pub(super) fn note_hole(&mut self, from: u64, to: u64) {
        if self.holes.len() < HOLES_MAX {
            self.holes.push((from, to));
        }
        gaps::insert(&mut self.gaps, from, to.saturating_sub(1));
        self.note_gaps_to(to);
    }

    /// As [`Model::note_hole`], of what the tail did not bring: it is folded up to there, though there was nothing. Gives the plans
    /// it may have been about.
    pub(super) fn pass_hole(&mut self, from: u64, to: u64) -> Vec<PlanId> {
        self.note_hole(from, to);
        if to > self.seq + 1 {
            // Nothing stands at this sequence that could be recognised.
            (self.seq, self.mark, self.last) = (to - 1, None, None);
        }
        self.open().filter(|view| view.plan.gap_seq >= from).map(|view| view.plan.id().clone()).collect()
    }

    /// Whatever is missing below `seq` is noted with every plan that is open there.
    pub(super) fn note_gaps_to(&mut self, seq: u64) {
        for view in self.plans.values_mut() {
            note_gaps(view, &self.gaps, seq);
        }
    }

    /// Nobody knows where the log ends: not caught up until [`Model::catch_up_to`].
    pub(super) fn lose_end(&mut self) {
        self.catch_up_seq = u64::MAX;
    }

    pub(super) fn catch_up_to(&mut self, seq: u64) {
        self.catch_up_seq = seq;
    }

    /// Folds one message; says which plan changed, and which of its tasks.
    pub(super) fn apply(&mut self, message: &Stored, event: Result<Linked, EventError>) -> Option<(PlanId, Option<u32>)> {
        if message.seq <= self.seq {
            return None;
        }
        self.seq = message.seq;
        self.fold(message, event)
    }

    /// Remembers the end of a batch that was applied, for its mark.
    pub(super) fn note_last(&mut self, messages: &[Stored]) {
        if let Some(last) = messages.last().filter(|last| last.seq == self.seq) {
            self.last = Some(last.clone());
        }
    }

    /// Folds one message of a filtered read, where sequences of other plans are mixed in any order.
    pub(super) fn fold(&mut self, message: &Stored, event: Result<Linked, EventError>) -> Option<(PlanId, Option<u32>)> {
        if self.passes_over(message, &event) {
            return None;
        }
        let (event, before_seq) = match event {
            Ok(linked) => linked,
            Err(error) => {
                self.unreadable += 1;
                tracing::warn!(seq = message.seq, subject = %message.subject, %error, "an event of the log can't be read; it is counted and passed over");
                return None;
            }
        };
        match event {
            LogEvent::Fence(_) => None,
            LogEvent::Plan(id, logged) => {
                match self.plans.get_mut(&id) {
                    Some(view) => fold_plan_event(view, &self.gaps, &logged, before_seq),
                    None => {
                        let view = PlanView::begin(&logged)?;
                        self.plans.insert(id.clone(), view);
                    }
                }
                if let Some(final_seq) = self.plans.get(&id).and_then(|v| v.plan.final_seq) {
                    self.over.insert(final_seq, id.clone());
                    self.closed.put(id.clone(), final_seq);
                }
                Some((id, None))
            }
            LogEvent::Task(task, logged) => match self.plans.get_mut(&task.plan) {
                Some(view) => {
                    let index = fold_task_event(view, &self.gaps, &task.target, &logged, before_seq)?;
                    Some((task.plan, u32::try_from(index).ok()))
                }
                None => {
                    self.after_close += 1;
                    None
                }
            },
        }
    }

    /// Takes everything out.
    pub(super) fn into_views(self) -> Vec<PlanView> {
        self.plans.into_values().collect()
    }

    /// Forgets plans that are over, up to `released` where somebody still reads them, and never more than a bounded number.
    pub(super) fn prune(&mut self, released: Option<u64>) {
        while let Some((&final_seq, _)) = self.over.first_key_value() {
            let needed = released.is_some_and(|seq| final_seq > seq);
            if needed && self.over.len() <= OVER_KEPT_MAX {
                break;
            }
            if let Some(id) = self.over.remove(&final_seq) {
                self.plans.remove(&id);
            }
        }
    }
}
