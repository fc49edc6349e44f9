//! A terminal's numbers, for health pages and tests.

use crate::holds::Counts;

/// A snapshot; counts are since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TerminalStats {
    /// What the rules counted.
    pub counts: Counts,
    /// Attempts waiting for a slot.
    pub queued: usize,
    /// Runs going on.
    pub running: usize,
    /// Ended attempts whose reports are not answered.
    pub unanswered: usize,
    /// Answered attempts not yet forgotten.
    pub settled: usize,
    /// Tasks of which anything is known.
    pub tasks: usize,
    /// Highest log sequence known.
    pub known_seq: u64,
    /// The journal can't be written.
    pub journal_unavailable: bool,
    /// HQ said that another process uses this id.
    pub id_in_use: bool,
    /// Commands that could not be read.
    pub undecodable: u64,
    /// Beats sent.
    pub beats: u64,
    /// Syncs answered with lists that were acted on.
    pub syncs: u64,
    /// Syncs that got no answer.
    pub syncs_unanswered: u64,
    /// Requests with reports.
    pub report_requests: u64,
    /// Of them, without a usable answer.
    pub report_requests_failed: u64,
    /// Reports in those requests, repeats included.
    pub reports_sent: u64,
    /// Reports answered for good.
    pub reports_settled: u64,
    /// Reports that were to be sent again.
    pub reports_retried: u64,
    /// Progress reports dropped because too many were waiting.
    pub steps_dropped: u64,
}
