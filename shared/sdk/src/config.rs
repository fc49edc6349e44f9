//! How a terminal behaves.

use std::collections::BTreeMap;
use std::time::Duration;

use fanfold_wire::domain::ids::TerminalId;
use fanfold_wire::terminal::BEAT_INTERVAL_MS_MAX;

use crate::chance::Chance;
use crate::clock::WallClock;
use crate::connects::Connects;
use crate::error::TerminalError;

/// Configuration of one terminal. Start from [`TerminalConfig::new`] and change what differs.
#[derive(Debug, Clone)]
pub struct TerminalConfig {
    /// Its id; for store plans, the target's.
    pub id: TerminalId,
    /// Tasks at once; lowered to [`crate::slots_ceiling`] when above.
    pub slots: u32,
    /// Free labels HQ can select by.
    pub labels: BTreeMap<String, String>,
    /// Version of the software around this library.
    pub version: String,
    /// Between two beats at most; each pause is 80 to 100 % of it.
    pub beat_interval_ms: u64,
    /// Between two syncs at most, jittered likewise.
    pub sync_interval_ms: u64,
    /// A sync after a (re)connect comes within this time, at random, so that thousands don't ask at once. 0: at once.
    pub sync_jitter_ms: u64,
    /// `attempt.started` waits this long and is dropped when the end is there by then.
    pub started_hold_ms: u64,
    /// How long a cancelled handler may take to end before its future is dropped.
    pub stop_grace_ms: u64,
    /// How long an orderly shutdown waits for runs before it stops them.
    pub shutdown_grace_ms: u64,
    /// How long an orderly shutdown waits for unanswered reports.
    pub shutdown_flush_ms: u64,
    /// First pause after a report was not taken; doubles.
    pub report_retry_ms: u64,
    /// Longest pause between two tries of a report.
    pub report_retry_max_ms: u64,
    /// How long a report or sync waits for its answer.
    pub request_timeout_ms: u64,
    /// Ends runs at their timeout. Off only to play a hung terminal.
    pub run_watchdog: bool,
    /// Never sends a report: plays a terminal whose reports don't get through.
    pub mute: bool,
    /// Sends every report again after these pauses: plays a network that repeats.
    pub duplicate_reports: Option<Vec<Duration>>,
    /// Tells of (re)connects. `None`: a NATS client's statistics are looked at once a second; of another transport nothing is told.
    pub connects: Option<Connects>,
    /// Boot id, jitters and pauses are drawn from it.
    pub chance: Chance,
    /// The time of day its reports claim.
    pub clock: WallClock,
}

impl TerminalConfig {
    /// Defaults for a terminal with one slot.
    pub fn new(id: TerminalId) -> Self {
        Self {
            id,
            slots: 1,
            labels: BTreeMap::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            beat_interval_ms: 15_000,
            sync_interval_ms: 60_000,
            sync_jitter_ms: 2_000,
            started_hold_ms: 50,
            stop_grace_ms: 5_000,
            shutdown_grace_ms: 10_000,
            shutdown_flush_ms: 5_000,
            report_retry_ms: 200,
            report_retry_max_ms: 10_000,
            request_timeout_ms: 5_000,
            run_watchdog: true,
            mute: false,
            duplicate_reports: None,
            connects: None,
            chance: Chance::system(),
            clock: WallClock::system(),
        }
    }

    /// Refuses what would make a terminal useless or a burden to HQ.
    pub(crate) fn check(&self) -> Result<(), TerminalError> {
        let bad = |field, value: u64, reason| Err(TerminalError::Config { field, value: value.to_string(), reason });
        if self.slots == 0 {
            return bad("slots", 0, "it must be at least 1");
        }
        if !(50..=BEAT_INTERVAL_MS_MAX).contains(&self.beat_interval_ms) {
            return bad("beat_interval_ms", self.beat_interval_ms, "it must be between 50 and 600000");
        }
        if !(50..=86_400_000).contains(&self.sync_interval_ms) {
            return bad("sync_interval_ms", self.sync_interval_ms, "it must be between 50 and 86400000");
        }
        if self.request_timeout_ms == 0 {
            return bad("request_timeout_ms", 0, "it must be at least 1");
        }
        if self.report_retry_ms == 0 || self.report_retry_ms > self.report_retry_max_ms {
            return bad("report_retry_ms", self.report_retry_ms, "it must be at least 1 and at most report_retry_max_ms");
        }
        if self.duplicate_reports.as_ref().is_some_and(|d| d.len() > 16) {
            return bad("duplicate_reports", 17, "at most 16 repeats");
        }
        Ok(())
    }
}
