//! Watches over the bucket: compares it with what this writer left there, and has it audited where it differs.

use std::time::Duration;

use bytes::Bytes;
use fanfold_ledger::port::LedgerError;
use fanfold_wire::record::{Checkpoint, Healed, Trail};
use fanfold_wire::subjects;
use tokio::time::Instant;

use crate::Deps;
use crate::audit::Audit;
use crate::flush::Puts;
use crate::tally::{Tally, is_as_left};

/// From the end of an audit to the next where the bucket looks wrong again; doubled up to the second while they find nothing.
const AGAIN: Duration = Duration::from_secs(2);
const AGAIN_MAX: Duration = Duration::from_secs(600);

/// An audit under way.
struct Running {
    audit: Audit,
    /// Nothing looks wrong: it may take its time.
    slow: bool,
    /// The bucket's last revision at its beginning, and this writer's own puts since: anything beyond was written by somebody else.
    began_at: u64,
    own: u64,
}

impl Running {
    async fn begin(deps: &Deps, slow: bool) -> Result<Self, LedgerError> {
        let began_at = deps.ledger.state_extent().await?.last_revision;
        Ok(Self { audit: Audit::begin(deps.ledger.as_ref(), None).await?, slow, began_at, own: 0 })
    }
}

pub(crate) struct Keep {
    /// `None`: nobody knows what the bucket must look like until an audit has ended.
    tally: Option<Tally>,
    running: Option<Running>,
    /// Why an audit is due, and not before when.
    due: Option<(String, Instant)>,
    again: Duration,
    not_before: Instant,
    rolling_at: Option<Instant>,
    looked_at: Instant,
    /// When it was last said that this one writes.
    beaten_at: Option<Instant>,
    healed: Healed,
    wants_checkpoint: bool,
}

impl Keep {
    /// Begins with the bucket as it is found.
    pub(crate) async fn begin(
        deps: &Deps,
        checkpoint: Option<&Checkpoint>,
        revision: u64,
        mut healed: Healed,
    ) -> Result<Self, LedgerError> {
        let extent = deps.ledger.state_extent().await?;
        let went_back = deps.open.read().went_back();
        if went_back.is_some_and(|(folded, _)| checkpoint.is_some_and(|c| c.seq == folded)) {
            healed.log_went_back += 1;
        }
        let as_left = went_back.is_none() && is_as_left(checkpoint.and_then(|c| c.trail.as_ref()), revision, &extent);
        let why = match checkpoint {
            None => "it has no checkpoint that can be read, or the log has lost events since",
            Some(c) if c.trail.is_none() => "it has not been compared with the log to the end",
            Some(_) => "it is not as its checkpoint left it",
        };
        let now = Instant::now();
        let rolling = Duration::from_secs(deps.config.audit_s);
        Ok(Self {
            tally: as_left.then(|| Tally::adopt(extent, false)),
            running: None,
            due: (!as_left).then(|| (why.to_owned(), now)),
            again: AGAIN,
            not_before: now,
            rolling_at: (deps.config.audit_s > 0).then(|| now + rolling),
            looked_at: now,
            beaten_at: None,
            healed,
            wants_checkpoint: false,
        })
    }

    /// Resolves at once while an audit is wanted that repairs something; else never.
    pub(crate) async fn in_a_hurry(&self) {
        let hurry = self.running.as_ref().is_some_and(|r| !r.slow && !r.audit.is_waiting());
        let due = self.running.is_none() && self.due.as_ref().is_some_and(|(_, at)| *at <= Instant::now());
        if !hurry && !due {
            std::future::pending::<()>().await;
        }
    }

    /// Whether an audit runs or begins with the next look: every record must be as the fold has it.
    pub(crate) fn compares(&self) -> bool {
        self.running.is_some() || self.due.is_some() || self.rolling_at.is_some_and(|at| at <= Instant::now())
    }

    /// Whether the checkpoint is to be written although the log has not moved.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.wants_checkpoint
    }

    /// This writer has put records.
    pub(crate) async fn wrote(&mut self, deps: &Deps, puts: Puts) -> Result<(), LedgerError> {
        if let Some(running) = &mut self.running {
            running.own += puts.all;
        }
        let Some(tally) = &mut self.tally else { return Ok(()) };
        tally.add(puts);
        if tally.trail(false).is_none() {
            // The first flush: how many of its keys were new is seen now.
            let found = deps.ledger.state_extent().await?;
            if let Some(what) = tally.compare(&found) {
                self.doubt(what);
            }
        }
        Ok(())
    }

    /// What the next checkpoint says of the bucket, and of what was put right.
    pub(crate) fn told(&self, is_first: bool) -> (Option<Trail>, Healed) {
        (self.tally.as_ref().and_then(|t| t.trail(is_first)), self.healed.clone())
    }

    /// The checkpoint was written.
    pub(crate) fn wrote_checkpoint(&mut self, is_first: bool) {
        if let Some(running) = &mut self.running {
            running.own += 1;
        }
        if let Some(tally) = &mut self.tally {
            tally.add(Puts { all: 1, new: u64::from(is_first) });
        }
        self.wants_checkpoint = false;
    }

    fn doubt(&mut self, what: String) {
        tracing::warn!(what, "the state bucket is not as this projector left it; it is compared with the log");
        self.tally = None;
        self.due = Some((what, self.not_before.max(Instant::now())));
    }

    /// Looks whether the bucket is as it was left; does a piece of an audit where one is due. Call it with nothing else under way.
    pub(crate) async fn look(&mut self, deps: &Deps, written_seq: u64) -> Result<(), LedgerError> {
        self.beat(deps).await;
        if self.running.is_some() {
            return self.go_on(deps, written_seq).await;
        }
        let now = Instant::now();
        if let Some((why, at)) = self.due.take() {
            if at > now {
                self.due = Some((why, at));
                return Ok(());
            }
            tracing::info!(why, "the state bucket is compared with the log");
            self.running = Some(Running::begin(deps, false).await?);
            return Ok(());
        }
        if now.duration_since(self.looked_at) >= deps.lease() / 3 {
            self.looked_at = now;
            let found = deps.ledger.state_extent().await?;
            if let Some(what) = self.tally.as_mut().and_then(|tally| tally.compare(&found)) {
                self.doubt(what);
                return Ok(());
            }
        }
        if self.rolling_at.is_some_and(|at| at <= now) {
            tracing::debug!("the state bucket is compared with the log, as it is from time to time");
            self.running = Some(Running::begin(deps, true).await?);
        }
        Ok(())
    }

    /// Says that somebody writes: while the log stands still nothing else shows it. What gets lost is said again.
    async fn beat(&mut self, deps: &Deps) {
        if self.beaten_at.is_none_or(|at| at.elapsed() >= deps.lease() / 3) {
            self.beaten_at = Some(Instant::now());
            let _ = deps.ledger.publish(&subjects::lead("projector"), Bytes::new()).await;
        }
    }

    async fn go_on(&mut self, deps: &Deps, written_seq: u64) -> Result<(), LedgerError> {
        let Some(running) = &mut self.running else { return Ok(()) };
        match running.audit.step(deps.ledger.as_ref(), Some(written_seq)).await {
            Ok(false) => return Ok(()),
            Ok(true) => {}
            Err(error) => {
                // What it had found is not lost on anybody: it is found again.
                self.running = None;
                self.due = Some((error.to_string(), Instant::now() + AGAIN));
                return Err(error);
            }
        }
        let report = running.audit.report().clone();
        let (slow, expected) = (running.slow, running.began_at + running.own + report.rewritten + report.removed);
        self.running = None;
        let extent = deps.ledger.state_extent().await?;
        let disturbed = extent.last_revision != expected;
        self.tally = (!disturbed).then(|| Tally::adopt(extent, true));
        self.healed.audits += 1;
        self.healed.rewritten += report.rewritten;
        self.healed.removed += report.removed;
        if let Some(last) = report.differences.last() {
            self.healed.last_key.clone_from(&last.key);
        }
        let now = Instant::now();
        self.rolling_at = (deps.config.audit_s > 0).then(|| now + Duration::from_secs(deps.config.audit_s));
        self.again = if slow || !report.is_clean() { AGAIN } else { (self.again * 2).min(AGAIN_MAX) };
        self.not_before = now + self.again;
        if disturbed {
            self.due = Some(("somebody wrote into it while it was compared".to_owned(), self.not_before));
        }
        self.wants_checkpoint = true;
        let (plans, right, rewritten, removed) = (report.plans, report.right, report.rewritten, report.removed);
        if report.is_clean() {
            tracing::info!(plans, right, "the state bucket is what the log says");
        } else {
            let kept = report.kept;
            tracing::warn!(
                plans,
                right,
                rewritten,
                removed,
                kept,
                "the state bucket was not what the log says; it was put right"
            );
        }
        Ok(())
    }
}
