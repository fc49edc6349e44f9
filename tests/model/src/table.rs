//! The task's state table as data: state and event, on which conditions, lead to what. Rows are tried in order.

use crate::message::{DECISIONS, END_REPORTS, REPORTS, What};

pub(crate) const PENDING: &str = "PENDING";
pub(crate) const DISPATCHED: &str = "DISPATCHED";
pub(crate) const RUNNING: &str = "RUNNING";
pub(crate) const SUCCEEDED: &str = "SUCCEEDED";
pub(crate) const FAILED: &str = "FAILED";
pub(crate) const CANCELLED: &str = "CANCELLED";

const ANY: &[&str] = &[PENDING, DISPATCHED, RUNNING, SUCCEEDED, FAILED, CANCELLED];
const LIVE: &[&str] = &[DISPATCHED, RUNNING];
const NOT_FINAL: &[&str] = &[PENDING, DISPATCHED, RUNNING];
const NOT_PENDING: &[&str] = &[DISPATCHED, RUNNING, SUCCEEDED, FAILED, CANCELLED];
const FINAL: &[&str] = &[SUCCEEDED, FAILED, CANCELLED];

/// A condition on the task, the plan and the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum If {
    /// The report's attempt was never handed out, or to another terminal.
    Foreign,
    /// About the current attempt.
    Current,
    /// The number after the last one handed out.
    Next,
    /// About an attempt that was handed out.
    Known,
    /// A step of the attempt that is not noted yet, and there is room for it.
    NewStep,
    /// A code that costs no try: BUSY, ALREADY_DONE.
    FreeCode,
    /// A code that the plan says must not be retried.
    Business,
    /// A cancel waits for the attempt's end.
    Cancelling,
    /// PENDING because the attempt was not delivered in time, and nothing was decided since but deferred or released.
    Undelivered,
    /// PENDING because the attempt timed out or was lost.
    ClockEnded,
    /// FAILED because its tries were used up or it expired.
    GivenUp,
    /// `plan.closed` is not in the log.
    PlanNotClosed,
    /// What the attempt's record says already: that it began, this step, this end.
    SaidBefore,
    /// No stop was asked for of that attempt.
    NotMarked,
    /// No cancel waits.
    NotCancelling,
}

/// What a row does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    HandOut,
    WaitOffline,
    WaitForTurn,
    Begin,
    NoteStep,
    Succeed,
    SucceedLate,
    /// Uses a try; business, exhausted, or again.
    Failure,
    /// Uses no try; again.
    FreeEnd,
    /// Uses a try, and CANCELLED.
    FailureThenCancelled,
    /// CANCELLED.
    Cancel,
    FailBusiness,
    AskToStopForCancel,
    Expire,
    MarkStop,
    Supersede,
    Requeue,
    /// Only counted, under this name.
    Count(&'static str),
}

/// One row.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) states: &'static [&'static str],
    pub(crate) on: &'static [What],
    pub(crate) conditions: &'static [If],
    pub(crate) then: Then,
}

const fn row(
    name: &'static str,
    states: &'static [&'static str],
    on: &'static [What],
    conditions: &'static [If],
    then: Then,
) -> Row {
    Row { name, states, on, conditions, then }
}

use If::{
    Business, Cancelling, ClockEnded, Current, Foreign, FreeCode, GivenUp, Known, NewStep, Next, NotCancelling, NotMarked,
    PlanNotClosed, SaidBefore, Undelivered,
};
use What::{
    CancelRequested, Cancelled, Deferred, Dispatched, Expired, Failed, Lost, Progressed, Rejected, Released, Requeued, Started,
    StopRequested, Stopped, SucceededInvalid, SucceededValid, TimedOutDelivery, TimedOutProgress, TimedOutRun,
};

/// The table.
pub(crate) const TABLE: &[Row] = &[
    row("foreign report", ANY, REPORTS, &[Foreign], Then::Count("foreign")),
    row("pending: dispatched", &[PENDING], &[Dispatched], &[Next], Then::HandOut),
    row("pending: deferred", &[PENDING], &[Deferred], &[], Then::WaitOffline),
    row("pending: released", &[PENDING], &[Released], &[], Then::WaitForTurn),
    row("dispatched: started", &[DISPATCHED], &[Started], &[Current], Then::Begin),
    row("dispatched: progressed", &[DISPATCHED], &[Progressed], &[Current], Then::Begin),
    row("running: new step", &[RUNNING], &[Progressed], &[Current, NewStep], Then::NoteStep),
    row("dispatched: valid success", &[DISPATCHED], &[SucceededValid], &[Current], Then::Succeed),
    row("running: valid success", &[RUNNING], &[SucceededValid], &[Current], Then::Succeed),
    // Cancelling: any end but a valid success, or the grace is over.
    row(
        "cancelling: failure",
        LIVE,
        &[SucceededInvalid, Failed, Stopped, TimedOutRun, TimedOutProgress, Lost],
        &[Current, Cancelling],
        Then::FailureThenCancelled,
    ),
    row("cancelling: free rejection", &[DISPATCHED], &[Rejected], &[Current, Cancelling, FreeCode], Then::Cancel),
    row("cancelling: other rejection", &[DISPATCHED], &[Rejected], &[Current, Cancelling], Then::FailureThenCancelled),
    row("cancelling: timed out delivery", &[DISPATCHED], &[TimedOutDelivery], &[Current, Cancelling], Then::Cancel),
    row("cancelling: cancelled", LIVE, &[Cancelled], &[Cancelling], Then::Cancel),
    row("live: invalid success", LIVE, &[SucceededInvalid], &[Current], Then::Failure),
    row("live: failed", LIVE, &[Failed], &[Current], Then::Failure),
    row("live: timed out run", LIVE, &[TimedOutRun], &[Current], Then::Failure),
    row("live: timed out progress", LIVE, &[TimedOutProgress], &[Current], Then::Failure),
    row("live: lost", LIVE, &[Lost], &[Current], Then::Failure),
    row("live: stopped", LIVE, &[Stopped], &[Current], Then::Failure),
    row("dispatched: free rejection", &[DISPATCHED], &[Rejected], &[Current, FreeCode], Then::FreeEnd),
    row("dispatched: timed out delivery", &[DISPATCHED], &[TimedOutDelivery], &[Current], Then::FreeEnd),
    row("undelivered: started after all", &[PENDING], &[Started, Progressed], &[Current, Undelivered], Then::Begin),
    row("dispatched: other rejection", &[DISPATCHED], &[Rejected], &[Current], Then::Failure),
    row("clock ended: business failure", &[PENDING], &[Failed], &[Current, ClockEnded, Business], Then::FailBusiness),
    row("not ended: valid success of any attempt", NOT_FINAL, &[SucceededValid], &[], Then::Succeed),
    row("given up: late success", &[FAILED], &[SucceededValid], &[GivenUp, PlanNotClosed], Then::SucceedLate),
    row("pending: cancel requested", &[PENDING], &[CancelRequested], &[], Then::Cancel),
    row("live: cancel requested", LIVE, &[CancelRequested], &[NotCancelling], Then::AskToStopForCancel),
    row("pending: expired", &[PENDING], &[Expired], &[], Then::Expire),
    row("live: expired", LIVE, &[Expired], &[], Then::Expire),
    row("any: stop requested", ANY, &[StopRequested], &[Known, NotMarked], Then::MarkStop),
    row("not pending: dispatched", NOT_PENDING, &[Dispatched], &[Next], Then::Supersede),
    row("failed: requeued", &[FAILED], &[Requeued], &[PlanNotClosed], Then::Requeue),
    row("any: said before", ANY, REPORTS, &[SaidBefore], Then::Count("duplicate")),
    row("ended: other report", FINAL, REPORTS, &[], Then::Count("late")),
    row("not ended: other report", NOT_FINAL, REPORTS, &[], Then::Count("stale")),
    row("any: other decision", ANY, DECISIONS, &[], Then::Count("ignored")),
];

/// Names of what [`Then::Failure`] comes to, counted beside the row.
pub(crate) const FAILURE_BUSINESS: &str = "failure: business";
pub(crate) const FAILURE_EXHAUSTED: &str = "failure: exhausted";
pub(crate) const FAILURE_AGAIN: &str = "failure: again";
/// An absorbed report ended an attempt that was still open.
pub(crate) const ENDED_BESIDE: &str = "absorbed: ended an attempt";

/// Every row's name, and what a failure comes to.
pub const ALL_ROWS: &[&str] = &[
    "foreign report",
    "pending: dispatched",
    "pending: deferred",
    "pending: released",
    "dispatched: started",
    "dispatched: progressed",
    "running: new step",
    "dispatched: valid success",
    "running: valid success",
    "cancelling: failure",
    "cancelling: free rejection",
    "cancelling: other rejection",
    "cancelling: timed out delivery",
    "cancelling: cancelled",
    "live: invalid success",
    "live: failed",
    "live: timed out run",
    "live: timed out progress",
    "live: lost",
    "live: stopped",
    "dispatched: free rejection",
    "dispatched: timed out delivery",
    "undelivered: started after all",
    "dispatched: other rejection",
    "clock ended: business failure",
    "not ended: valid success of any attempt",
    "given up: late success",
    "pending: cancel requested",
    "live: cancel requested",
    "pending: expired",
    "live: expired",
    "any: stop requested",
    "not pending: dispatched",
    "failed: requeued",
    "any: said before",
    "ended: other report",
    "not ended: other report",
    "any: other decision",
    FAILURE_BUSINESS,
    FAILURE_EXHAUSTED,
    FAILURE_AGAIN,
    ENDED_BESIDE,
];

/// Whether a report of this kind ends its attempt.
pub(crate) fn is_end_report(what: What) -> bool {
    END_REPORTS.contains(&what)
}
