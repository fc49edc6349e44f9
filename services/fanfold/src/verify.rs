//! Is everything written about a plan true? The log is folded again and compared with what was published and what readers see.
//!
//! Two things are checked. Every `plan.summarised` is computed again from exactly the events up to its `asOfSeq`: the same bytes,
//! the same sha256, the same counts, and the stored object is these bytes. Every record of the state bucket is compared, value by
//! value, with the record the fold gives at the log's end; a task without events has no record. Then what the API tells readers is
//! compared with the same fold. A log that has lost events of the plan makes all of it untrue, however well the rest agrees.

pub mod account;
pub mod documents;
pub mod offline;

mod api;
mod state;

use std::time::Duration;

use fanfold_domain::holes::Holes;
use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::{LoggedPlanEvent, PlanEvent, Summarised};
use fanfold_domain::rules::{Rules, UnsupportedRules};
use fanfold_domain::summary::Summary;
use fanfold_domain::view::PlanView;
use fanfold_ledger::open::{fold_plan_event, fold_task_event, look_over, note_gaps};
use fanfold_ledger::port::{Ledger, LedgerError, Stored};
use fanfold_wire::digest::sha256_hex;
use fanfold_wire::event::{LogEvent, decode, decode_linked};
use fanfold_wire::subjects::{plan_event, plan_log_filter};
use futures::StreamExt;
use serde::Serialize;

use crate::error::CliError;
use crate::patience;

/// Differences told one by one.
pub const DIFFERENCES_MAX: usize = 100;
/// How long the state bucket may take to catch up with the log, in all.
pub const CATCH_UP: Duration = Duration::from_secs(15);

/// What a verification found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifyReport {
    /// The plan.
    pub plan: PlanId,
    /// Every record of the state bucket is what the log says.
    pub state_matches_replay: bool,
    /// Every summary computed again is the published one, byte for byte.
    pub summaries_reproduced: bool,
    /// The API tells readers the same; absent: nobody answers, or the state bucket is behind and it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_matches: Option<bool>,
    /// Events of the plan that the log has lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holes: Option<Holes>,
    /// What differs, at most [`DIFFERENCES_MAX`].
    pub differences: Vec<String>,
    /// Differences not listed.
    pub differences_left_out: u64,
    /// Events folded.
    pub events: u64,
    /// Sequence of the plan's last event.
    pub as_of_seq: u64,
    /// Summaries computed again.
    pub summaries: u64,
    /// Records compared.
    pub records: u64,
    /// Tasks the API told of.
    pub told: u64,
}

impl VerifyReport {
    fn new(plan: &PlanId) -> Self {
        Self {
            plan: plan.clone(),
            state_matches_replay: true,
            summaries_reproduced: true,
            api_matches: None,
            holes: None,
            differences: Vec::new(),
            differences_left_out: 0,
            events: 0,
            as_of_seq: 0,
            summaries: 0,
            records: 0,
            told: 0,
        }
    }

    /// Whether everything is true.
    pub fn is_true(&self) -> bool {
        self.state_matches_replay && self.summaries_reproduced && self.holes.is_none() && self.differences.is_empty()
    }

    fn differs(&mut self, what: String) {
        if self.differences.len() < DIFFERENCES_MAX {
            self.differences.push(what);
        } else {
            self.differences_left_out += 1;
        }
    }

    fn summary_differs(&mut self, what: String) {
        self.summaries_reproduced = false;
        self.differs(what);
    }

    fn state_differs(&mut self, what: String) {
        self.state_matches_replay = false;
        self.differs(what);
    }
}

/// Why a plan could not be verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The log has no submission of it.
    #[error("the log has no plan `{0}` (up to the sequence asked for)")]
    UnknownPlan(PlanId),
    /// The log has no submission of it, and has lost events.
    #[error("the log has no plan `{plan}`, and it has lost #{from} to #{to} and maybe more (`fanfold doctor`)")]
    Lost {
        /// The plan.
        plan: PlanId,
        /// First sequence missing.
        from: u64,
        /// Last sequence missing of the first gap.
        to: u64,
    },
    /// The log or a bucket did not answer.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// It must not be folded here.
    #[error("plan `{plan}`: {source}")]
    Unsupported {
        /// The plan.
        plan: PlanId,
        /// Its rules.
        source: UnsupportedRules,
    },
    /// The API can't be asked.
    #[error("the API could not be compared: {0}")]
    Api(String),
    /// A record could not be written as JSON.
    #[error("a record could not be written as JSON: {0}")]
    Unwritable(String),
}

impl From<VerifyError> for CliError {
    fn from(error: VerifyError) -> Self {
        match error {
            VerifyError::UnknownPlan(_) => CliError::NotFound { code: "UNKNOWN_PLAN", message: error.to_string() },
            VerifyError::Lost { .. } => CliError::No { code: "VERIFY_FAILED", message: error.to_string() },
            VerifyError::Ledger(error) => CliError::Ledger(error),
            VerifyError::Unsupported { .. } => CliError::No { code: "UNSUPPORTED_RULES", message: error.to_string() },
            VerifyError::Api(_) => CliError::Server { code: "UNAVAILABLE", message: error.to_string() },
            VerifyError::Unwritable(_) => CliError::Internal(error.to_string()),
        }
    }
}

/// A plan's events folded one after the other, with an eye for what is missing.
#[derive(Debug)]
struct Folder {
    view: Option<PlanView>,
    /// Why there is no view, where the plan's rules are not this build's.
    unsupported: Option<UnsupportedRules>,
    gaps: Vec<(u64, u64)>,
    events: u64,
}

impl Folder {
    /// For a plan's events up to a sequence: what is missing there is found first, as the services find it at their start.
    async fn new(ledger: &dyn Ledger, plan: &PlanId, to: u64) -> Result<Self, LedgerError> {
        let from = match ledger.last_under(&plan_event(plan, "submitted")).await? {
            Some(submitted) => Some(submitted.seq),
            // A plan of which there is anything had a beginning.
            None => ledger.last_under(&plan_log_filter(plan)).await?.map(|_| 1),
        };
        if let Some(from) = from {
            patience::step("everything since the plan's submission");
            look_over(ledger, from, to, patience::alive).await?;
        }
        Ok(Self::over(ledger.gaps().await?))
    }

    /// Of a log that is known to lack these ranges.
    fn over(gaps: Vec<(u64, u64)>) -> Self {
        Self { view: None, unsupported: None, gaps, events: 0 }
    }

    /// The view, or why there is none.
    fn into_view(mut self, plan: &PlanId) -> Result<PlanView, VerifyError> {
        match self.view.take() {
            Some(view) => Ok(view),
            None => Err(self.missing(plan)),
        }
    }

    /// Why there is no view.
    fn missing(&self, plan: &PlanId) -> VerifyError {
        match (&self.unsupported, self.gaps.first()) {
            (Some(source), _) => VerifyError::Unsupported { plan: plan.clone(), source: *source },
            (None, Some((from, to))) => VerifyError::Lost { plan: plan.clone(), from: *from, to: *to },
            (None, None) => VerifyError::UnknownPlan(plan.clone()),
        }
    }

    fn begin(&mut self, event: &LoggedPlanEvent) {
        if let PlanEvent::Submitted(spec) = &event.event {
            self.unsupported = Rules::of(spec.rules).err();
        }
        self.view = PlanView::begin(event);
    }

    /// Folds one message; what can't be read is passed over, as every service does.
    fn apply(&mut self, stored: &Stored) {
        self.events += 1;
        match (decode_linked(stored.seq, stored.time_ms, &stored.subject, &stored.payload), &mut self.view) {
            (Ok((LogEvent::Plan(_, event), _)), None) => self.begin(&event),
            (Ok((LogEvent::Plan(_, event), before)), Some(view)) => fold_plan_event(view, &self.gaps, &event, before),
            (Ok((LogEvent::Task(task, event), before)), Some(view)) => {
                fold_task_event(view, &self.gaps, &task.target, &event, before);
            }
            (Ok((LogEvent::Task(..) | LogEvent::Fence(_), _)), _) => {}
            (Err(error), _) => tracing::warn!(seq = stored.seq, %error, "verify.unreadable_event"),
        }
    }

    /// Notes what is missing up to a sequence: a summary there was made knowing it.
    fn look_to(&mut self, seq: u64) {
        if let Some(view) = &mut self.view {
            note_gaps(view, &self.gaps, seq);
        }
    }
}

fn filters(plan: &PlanId) -> Vec<String> {
    vec![plan_log_filter(plan)]
}

/// Folds a plan's events up to and including a sequence.
///
/// # Errors
/// [`VerifyError::UnknownPlan`] when there is no submission up to it; the ledger's.
pub async fn fold_plan(ledger: &dyn Ledger, plan: &PlanId, to: u64) -> Result<PlanView, VerifyError> {
    let mut folder = Folder::new(ledger, plan, to).await?;
    let mut events = ledger.read(filters(plan), 1, to).await?;
    while let Some(stored) = events.next().await {
        folder.apply(&stored?);
    }
    folder.look_to(to);
    folder.into_view(plan)
}

/// Every `plan.summarised` of a plan up to a sequence, with its own sequence.
///
/// # Errors
/// The ledger's.
pub async fn summaries(ledger: &dyn Ledger, plan: &PlanId, to: u64) -> Result<Vec<(u64, Summarised)>, VerifyError> {
    let mut found = Vec::new();
    let mut events = ledger.read(vec![plan_event(plan, "summarised")], 1, to).await?;
    while let Some(stored) = events.next().await {
        let stored = stored?;
        if let Ok(LogEvent::Plan(_, logged)) = decode(stored.seq, stored.time_ms, &stored.subject, &stored.payload)
            && let PlanEvent::Summarised(summarised) = logged.event
        {
            found.push((stored.seq, *summarised));
        }
    }
    Ok(found)
}

/// Verifies a plan; waits up to [`CATCH_UP`] for the state bucket to catch up with the log.
///
/// # Errors
/// [`VerifyError`] when it can't be verified; that it is false is a report, not an error.
pub async fn verify_plan(ledger: &dyn Ledger, plan: &PlanId) -> Result<VerifyReport, VerifyError> {
    verify_plan_within(ledger, plan, CATCH_UP).await
}

/// As [`verify_plan`], with a wait of one's own.
///
/// # Errors
/// As [`verify_plan`].
pub async fn verify_plan_within(ledger: &dyn Ledger, plan: &PlanId, catch_up: Duration) -> Result<VerifyReport, VerifyError> {
    let mut report = VerifyReport::new(plan);
    patience::step("the log's last sequence");
    let last = ledger.last_seq().await?;
    let mut folder = Folder::new(ledger, plan, last).await?;
    patience::step("the plan's events");
    let mut due = summaries(ledger, plan, last).await?.into_iter().peekable();
    let mut events = ledger.read(filters(plan), 1, last).await?;
    while let Some(stored) = events.next().await {
        let stored = stored?;
        patience::alive();
        while let Some((seq, summarised)) = due.next_if(|(_, s)| s.this.as_of_seq < stored.seq) {
            folder.look_to(seq);
            check_summary(ledger, folder.view.as_ref(), seq, &summarised, &mut report).await?;
        }
        folder.apply(&stored);
    }
    for (seq, summarised) in due {
        folder.look_to(seq);
        check_summary(ledger, folder.view.as_ref(), seq, &summarised, &mut report).await?;
    }
    folder.look_to(last);
    match &folder.view {
        Some(view) => report.holes = view.plan.holes,
        None => return Err(folder.missing(plan)),
    }
    if let Some(Holes { count, from_seq, to_seq }) = report.holes {
        // In front of everything else: whatever differs, this is why.
        report
            .differences
            .insert(0, format!("the log has lost events of this plan: {count} holes, the first #{from_seq} to #{to_seq}"));
    }
    state::check(ledger, plan, &mut folder, last, catch_up, &mut report).await?;
    Ok(report)
}

async fn check_summary(
    ledger: &dyn Ledger,
    view: Option<&PlanView>,
    seq: u64,
    published: &Summarised,
    report: &mut VerifyReport,
) -> Result<(), VerifyError> {
    report.summaries += 1;
    let this = &published.this;
    let name = format!("summary revision {} (#{seq}, as of #{})", this.revision, this.as_of_seq);
    let computed = view.map(|v| Summary::compute(v, published.kind).and_then(|s| s.to_bytes().map(|bytes| (s, bytes))));
    let (summary, bytes) = match computed {
        Some(Ok(computed)) => computed,
        Some(Err(e)) => {
            report.summary_differs(format!("{name}: it can't be computed from the log: {e}"));
            return Ok(());
        }
        None => {
            report.summary_differs(format!("{name}: the log has no submission before it"));
            return Ok(());
        }
    };
    if summary.counts != published.counts {
        report.summary_differs(format!("{name}: counts are {:?}, the log gives {:?}", published.counts, summary.counts));
    }
    if summary.revision != this.revision || summary.previous != published.previous || summary.as_of_seq != this.as_of_seq {
        let found = format!("revision {} as of #{}", summary.revision, summary.as_of_seq);
        report.summary_differs(format!("{name}: by its place in the log it is {found}, or follows another one"));
    }
    let sha256 = sha256_hex(&bytes);
    if sha256 != this.sha256 {
        report.summary_differs(format!("{name}: sha256 is {}, the log gives {sha256}", this.sha256));
    }
    patience::step(format!("the document of summary {}", this.revision));
    let stored = match ledger.get_object(&this.sha256).await {
        Err(LedgerError::Corrupt(_)) => {
            report.summary_differs(format!("{name}: the object {} is damaged (`fanfold rebuild` writes it anew)", this.sha256));
            return Ok(());
        }
        stored => stored?,
    };
    match stored {
        None => report.summary_differs(format!("{name}: the object {} is missing", this.sha256)),
        Some(stored) if sha256_hex(&stored) != this.sha256 => {
            report.summary_differs(format!("{name}: the object {} has other content than its name says", this.sha256));
        }
        Some(stored) if stored != bytes => {
            let at = stored.iter().zip(&bytes).take_while(|(a, b)| a == b).count();
            report.summary_differs(format!("{name}: the object {} differs from the log's from byte {at} on", this.sha256));
        }
        Some(_) => {}
    }
    Ok(())
}
