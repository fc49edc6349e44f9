//! The whole bucket against the log: every record compared with the fold, what differs written anew, what should not be there removed.
//!
//! The projector runs it where its bucket is not what it left behind, and slowly from time to time; `fanfold rebuild` runs the same in a
//! process of its own. Each write expects the revision that was compared, and is made from a fold that holds every event of the plan
//! there was when the records were read: so nothing older goes over anything newer, whoever else writes meanwhile.
//!
//! Bounded: a step lists, folds or compares so much and no more, and plans are folded in groups. Records that agree are told by one sum
//! a plan, made in one pass over the bucket; only a plan whose sum differs is looked at record by record.

mod compare;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use fanfold_domain::ids::{PlanId, TaskId};
use fanfold_domain::view::PlanView;
use fanfold_ledger::open::{fold_plans, plan_sizes};
use fanfold_ledger::port::{BoxStream, Entry, Ledger, LedgerError};
use futures::StreamExt;
use serde::Serialize;

use compare::Sum;

/// Records listed in a step.
const LISTED_PER_STEP: usize = 50_000;
/// Plans, and targets of them, folded at a time.
const PLANS_PER_STEP: usize = 100;
const TARGETS_PER_STEP: u32 = 100_000;
/// Keys that are nobody's remembered in one audit; the next one finds the rest.
const STRANGE_MAX: usize = 10_000;
/// Times a plan that goes on meanwhile is looked at again before it is left to the projector.
const BUSY_TRIES: u32 = 5;
/// Differences told one by one.
pub const DIFFERENCES_MAX: usize = 20;

/// A record that was not what the log says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Its key.
    pub key: String,
    /// Where in it, as a JSON pointer; empty: all of it.
    pub field: String,
    /// What stood there, cut to 200 characters.
    pub found: String,
    /// What the log says, cut to 200 characters.
    pub expected: String,
}

/// What an audit found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditReport {
    /// Plans compared.
    pub plans: u64,
    /// Records that were as the log says.
    pub right: u64,
    /// Records that were missing, unreadable or wrong, and are written anew.
    pub rewritten: u64,
    /// Records that the log knows nothing of, removed.
    pub removed: u64,
    /// Records that the log knows nothing of, left alone because the log itself has lost events.
    pub kept: u64,
    /// Plans that went on all the time and were left to the projector.
    pub busy: u64,
    /// The first differences, at most [`DIFFERENCES_MAX`].
    pub differences: Vec<Difference>,
}

impl AuditReport {
    /// Whether the bucket was what the log says.
    pub fn is_clean(&self) -> bool {
        self.rewritten == 0 && self.removed == 0 && self.kept == 0
    }

    fn tell(&mut self, difference: Difference) {
        if self.differences.len() < DIFFERENCES_MAX {
            tracing::warn!(
                key = %difference.key, field = %difference.field, found = %difference.found, expected = %difference.expected,
                "a state record was not what the log says"
            );
            self.differences.push(difference);
        }
    }
}

/// How far an audit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Records listed so far.
    pub listed: u64,
    /// Plans compared so far.
    pub plans: u64,
    /// Plans there are; 0 while records are listed.
    pub of_plans: u64,
}

enum Phase {
    /// The lock only makes it shareable; it is never waited for.
    List(Mutex<BoxStream<Result<Entry, LedgerError>>>),
    Plans,
    Unknown(Vec<PlanId>),
    Done,
}

/// One comparison of the bucket, or of one plan's records, with the log.
pub struct Audit {
    phase: Phase,
    only: Option<PlanId>,
    sums: BTreeMap<PlanId, Sum>,
    strange: Vec<Entry>,
    plans: VecDeque<(PlanId, u32)>,
    of_plans: u64,
    listed: u64,
    tries: BTreeMap<PlanId, u32>,
    damaged_log: bool,
    report: AuditReport,
}

impl Audit {
    /// Begins: of everything, or of one plan.
    ///
    /// # Errors
    /// Those of the ledger.
    pub async fn begin(ledger: &dyn Ledger, only: Option<PlanId>) -> Result<Self, LedgerError> {
        let phase = match only {
            None => Phase::List(Mutex::new(ledger.list_state(">").await?)),
            Some(_) => Phase::Plans,
        };
        let mut audit = Self {
            phase,
            only,
            sums: BTreeMap::new(),
            strange: Vec::new(),
            plans: VecDeque::new(),
            of_plans: 0,
            listed: 0,
            tries: BTreeMap::new(),
            damaged_log: !ledger.gaps().await?.is_empty(),
            report: AuditReport::default(),
        };
        if audit.only.is_some() {
            audit.find_plans(ledger).await?;
        }
        Ok(audit)
    }

    /// What was found so far.
    pub fn report(&self) -> &AuditReport {
        &self.report
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        Progress { listed: self.listed, plans: self.report.plans, of_plans: self.of_plans }
    }

    /// Does a bounded piece of work; `true`: that was the last. `written_seq` is how far the projector has written, where one does:
    /// a plan with later events is looked at again in a later step.
    ///
    /// # Errors
    /// Those of the ledger; the audit is to be begun anew then.
    pub async fn step(&mut self, ledger: &dyn Ledger, written_seq: Option<u64>) -> Result<bool, LedgerError> {
        match &mut self.phase {
            Phase::List(entries) => {
                let entries = entries.get_mut().unwrap_or_else(PoisonError::into_inner);
                let mut listed = 0;
                while listed < LISTED_PER_STEP {
                    let Some(entry) = entries.next().await.transpose()? else {
                        self.find_plans(ledger).await?;
                        return Ok(false);
                    };
                    listed += 1;
                    self.listed += 1;
                    match owner(&entry.key) {
                        Owner::Plan(plan) => self.sums.entry(plan).or_default().add(&entry.key, &entry.value),
                        Owner::Checkpoint => {}
                        Owner::Nobody if self.strange.len() < STRANGE_MAX => self.strange.push(entry),
                        Owner::Nobody => {}
                    }
                }
            }
            Phase::Plans => self.compare_group(ledger, written_seq).await?,
            Phase::Unknown(plans) => match plans.pop() {
                Some(plan) => self.remove_plan(ledger, &plan).await?,
                None => {
                    self.remove_strange(ledger).await?;
                    self.phase = Phase::Done;
                }
            },
            Phase::Done => return Ok(true),
        }
        Ok(matches!(self.phase, Phase::Done))
    }

    /// The plans the log knows; what the bucket holds of others is nobody's.
    async fn find_plans(&mut self, ledger: &dyn Ledger) -> Result<(), LedgerError> {
        let sizes = plan_sizes(ledger, ledger.last_seq().await?).await?;
        self.plans = match &self.only {
            None => sizes.into_iter().collect(),
            Some(plan) => sizes.get(plan).map(|size| (plan.clone(), *size)).into_iter().collect(),
        };
        self.of_plans = self.plans.len() as u64;
        self.phase = match &self.only {
            Some(plan) if self.plans.is_empty() => Phase::Unknown(vec![plan.clone()]),
            _ => Phase::Plans,
        };
        Ok(())
    }

    async fn compare_group(&mut self, ledger: &dyn Ledger, written_seq: Option<u64>) -> Result<(), LedgerError> {
        let (mut group, mut targets) = (Vec::new(), 0_u32);
        while let Some((plan, size)) = self.plans.front() {
            targets = targets.saturating_add(*size);
            if group.len() == PLANS_PER_STEP || (!group.is_empty() && targets > TARGETS_PER_STEP) {
                break;
            }
            group.push((plan.clone(), *size));
            self.plans.pop_front();
        }
        if group.is_empty() {
            // Whatever was listed and belongs to no plan of the log. A plan submitted since the listing is the projector's.
            let known = plan_sizes(ledger, ledger.last_seq().await?).await?;
            let unknown = std::mem::take(&mut self.sums).into_keys().filter(|plan| !known.contains_key(plan)).collect();
            self.phase = Phase::Unknown(unknown);
            return Ok(());
        }
        let ids: Vec<PlanId> = group.iter().map(|(plan, _)| plan.clone()).collect();
        for view in fold_plans(ledger, &ids, ledger.last_seq().await?).await? {
            let plan = view.plan.id().clone();
            let size = group.iter().find(|(p, _)| *p == plan).map_or(0, |(_, size)| *size);
            let expected = Sum::of_view(&view);
            if self.sums.get(&plan).is_some_and(|found| *found == expected) {
                self.report.right += expected.count();
                self.done(&plan);
                continue;
            }
            if written_seq.is_some_and(|written| view.last_seq > written) && self.is_tried_again(&plan) {
                self.plans.push_back((plan, size));
                continue;
            }
            self.compare_plan(ledger, view).await?;
            self.done(&plan);
        }
        Ok(())
    }

    fn done(&mut self, plan: &PlanId) {
        self.sums.remove(plan);
        self.tries.remove(plan);
        self.report.plans += 1;
    }

    fn is_tried_again(&mut self, plan: &PlanId) -> bool {
        let tries = self.tries.entry(plan.clone()).or_default();
        *tries += 1;
        *tries <= BUSY_TRIES
    }

    /// Whether a plan waits for the projector to catch up.
    pub fn is_waiting(&self) -> bool {
        self.plans.front().is_some_and(|(plan, _)| self.tries.contains_key(plan))
    }

    async fn compare_plan(&mut self, ledger: &dyn Ledger, mut view: PlanView) -> Result<(), LedgerError> {
        // Where the pass over the bucket has met no record of it there is none to be read: a write that expects none says otherwise.
        let mut entries = (self.only.is_none() && !self.sums.contains_key(view.plan.id())).then(BTreeMap::new);
        for _ in 0..BUSY_TRIES {
            let entries = match entries.take() {
                Some(none) => none,
                None => compare::entries_of(ledger, view.plan.id()).await?,
            };
            if !view.is_over() && compare::last_event_of(ledger, view.plan.id()).await? > view.last_seq {
                let last_seq = ledger.last_seq().await?;
                match fold_plans(ledger, std::slice::from_ref(view.plan.id()), last_seq).await?.pop() {
                    Some(newer) => view = newer,
                    None => return Ok(()),
                }
                continue;
            }
            return compare::settle(ledger, &view, entries, &mut self.report).await;
        }
        self.report.busy += 1;
        Ok(())
    }

    async fn remove_plan(&mut self, ledger: &dyn Ledger, plan: &PlanId) -> Result<(), LedgerError> {
        // Asked here: what the server can't read is only known once it has been read past.
        self.damaged_log |= !ledger.gaps().await?.is_empty();
        for entry in compare::entries_of(ledger, plan).await?.into_values() {
            compare::remove(ledger, entry, self.damaged_log, &mut self.report).await?;
        }
        Ok(())
    }

    async fn remove_strange(&mut self, ledger: &dyn Ledger) -> Result<(), LedgerError> {
        for entry in std::mem::take(&mut self.strange) {
            compare::remove(ledger, entry, false, &mut self.report).await?;
        }
        Ok(())
    }
}

enum Owner {
    Plan(PlanId),
    Checkpoint,
    Nobody,
}

fn owner(key: &str) -> Owner {
    if key == "checkpoint" {
        return Owner::Checkpoint;
    }
    let plan = key.strip_prefix("plan.").and_then(|id| PlanId::new(id).ok());
    let task = || key.strip_prefix("task.").and_then(|id| TaskId::parse(id).ok()).map(|task| task.plan);
    plan.or_else(task).map_or(Owner::Nobody, Owner::Plan)
}
