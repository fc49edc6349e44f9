//! What a plan's account lacks: events that must have been in the log and are not there.
//!
//! Noted while folding, from the plan's own events and the log's gaps, so that the same log always gives the same holes. A plan with a
//! hole goes on; its record and its summaries say so, and its verdict is never `full`.

use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// The holes of one plan: how many were met, and where the first is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holes {
    /// How many were met.
    pub count: u32,
    /// First sequence of the log that may be missing in the first of them.
    pub from_seq: u64,
    /// Last sequence that may be missing in the first of them.
    pub to_seq: u64,
}

impl Plan {
    /// Notes that something between (and with) these sequences is missing. Once the plan is closed its account stands, whatever comes.
    pub fn note_hole(&mut self, from_seq: u64, to_seq: u64) {
        if self.closed_seq.is_some() {
            return;
        }
        match &mut self.holes {
            Some(holes) => holes.count = holes.count.saturating_add(1),
            None => self.holes = Some(Holes { count: 1, from_seq, to_seq }),
        }
    }
}
