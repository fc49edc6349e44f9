//! Bugs to be planted on purpose, so that the simulation can show that it finds them.
//!
//! Only with the feature `planted`, which nothing but the tests turns on, is there a switch; without it [`is`] is `false` when compiled
//! and leaves nothing behind. The switch is a thread's own: histories that run beside each other don't share it.

/// What can be planted: one line of the product each, wrong in a way that somebody might write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Planted {
    /// Fold: what ends an attempt that is over counts against the one that is live.
    StaleFailureTaken,
    /// Fold: a success after the task had been given up changes nothing.
    LateSuccessIgnored,
    /// Retry: what must not be tried again is.
    BusinessRetried,
    /// Dispatch policy: the pause before another try is not waited for.
    BackoffIgnored,
    /// Dispatch caps: what is out is not counted.
    CapIgnored,
    /// Dispatcher: `plan.cancelled` is written before every open task has its decision.
    CancelledTooSoon,
    /// Sync: answered from a view that is behind what the terminal knows, as if it were not.
    SyncFromOldView,
    /// Leadership: the last fence is not expected.
    FenceNotExpected,
    /// Convergence: the deadline is taken from a clock that is ahead.
    DeadlineEarly,
    /// Convergence: what changes after the deadline makes no update.
    UpdateForgotten,
    /// Summary: what changed is counted from the wrong position.
    ChangedSinceWrong,
    /// Projector: the checkpoint is written before the records.
    CheckpointFirst,
    /// Projector: records that change with their plan alone are not written again.
    FactsNotProjected,
    /// Open plans: the tail loses a message of a long batch.
    TailLosesOne,
    /// Open plans: what was submitted after the checkpoint is not looked for at the start.
    LoadTrustsCheckpoint,
    /// Recorder: reports are answered as recorded although the log did not take them.
    AnsweredUnwritten,
    /// Recorder: a report's id lacks the attempt.
    IdWithoutAttempt,
    /// Recorder: a terminal may speak for another one.
    ForeignTaken,
    /// Recorder: a result is not held against its schema.
    VerdictAlwaysValid,
    /// API: a person's request is confirmed although the log did not take it.
    NotedUnwritten,
    /// Terminal: a command that comes twice is run twice.
    DuplicateRun,
    /// Terminal: a settled attempt is forgotten at once, its number too.
    SettledForgotten,
    /// Terminal: what had begun before a restart is not remembered.
    BegunForgotten,
    /// Terminal: another attempt of a task runs although a success of it waits to be answered.
    AlreadyDoneMissing,
    /// Terminal: the next attempt doesn't wait for the end of the one before.
    TwoAtOnce,
    /// Terminal: a report whose request failed is not sent again.
    ReportSentOnce,
    /// Terminal: "send it again" is taken for an answer.
    RetryIsSettled,
}

impl Planted {
    /// All of them.
    pub const ALL: [Planted; 27] = [
        Planted::StaleFailureTaken,
        Planted::LateSuccessIgnored,
        Planted::BusinessRetried,
        Planted::BackoffIgnored,
        Planted::CapIgnored,
        Planted::CancelledTooSoon,
        Planted::SyncFromOldView,
        Planted::FenceNotExpected,
        Planted::DeadlineEarly,
        Planted::UpdateForgotten,
        Planted::ChangedSinceWrong,
        Planted::CheckpointFirst,
        Planted::FactsNotProjected,
        Planted::TailLosesOne,
        Planted::LoadTrustsCheckpoint,
        Planted::AnsweredUnwritten,
        Planted::IdWithoutAttempt,
        Planted::ForeignTaken,
        Planted::VerdictAlwaysValid,
        Planted::NotedUnwritten,
        Planted::DuplicateRun,
        Planted::SettledForgotten,
        Planted::BegunForgotten,
        Planted::AlreadyDoneMissing,
        Planted::TwoAtOnce,
        Planted::ReportSentOnce,
        Planted::RetryIsSettled,
    ];
}

#[cfg(feature = "planted")]
mod switch {
    use std::cell::Cell;

    use super::Planted;

    thread_local! {
        static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
    }

    /// Plants a bug for this thread, or none.
    pub fn plant(bug: Option<Planted>) {
        PLANTED.set(bug);
    }

    /// Whether this bug is planted.
    pub fn is(bug: Planted) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(feature = "planted")]
pub use switch::{is, plant};

/// Whether this bug is planted: never, without the feature.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is(_bug: Planted) -> bool {
    false
}
