//! `checkpoint` of the state bucket: up to where it is written, and what it must look like there.

use std::collections::BTreeMap;

use fanfold_domain::ids::PlanId;
use serde::{Deserialize, Serialize};

/// What the projector has put right in its bucket, and what it has met, since the checkpoint was begun.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Healed {
    /// Records that were missing, unreadable or wrong and were written anew.
    pub rewritten: u64,
    /// Records that should not have been there.
    pub removed: u64,
    /// Key of the last one put right.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_key: String,
    /// Times the whole bucket was compared with the log.
    pub audits: u64,
    /// Times the log was found shorter than, or another one than, what had been folded from it.
    pub log_went_back: u64,
}

/// What the bucket looked like after the checkpoint's own write: anything else means that somebody wrote, or that something is lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Trail {
    /// Which bucket it is: when it was made. A bucket that was deleted and made again is another one.
    pub bucket: String,
    /// The revision of this checkpoint: the last of the bucket.
    pub revision: u64,
    /// Messages of the bucket, this checkpoint and deletion marks among them.
    pub records: u64,
}

/// `checkpoint` of the state bucket: up to where records are written, and which plans were open there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// Every record is written up to this sequence.
    pub seq: u64,
    /// Plans open there, with the sequence of their `plan.submitted`.
    pub open: BTreeMap<PlanId, u64>,
    /// Mark of the log's event at `seq`: an event of another mark there means another log. Empty: not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub event: String,
    /// How many sequences up to `seq` the log was known to lack: what it has lost since may have been a plan's end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing: u64,
    /// What the bucket looked like; absent while it has not been compared with the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trail: Option<Trail>,
    /// What was put right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healed: Option<Healed>,
    /// SHA-256 over all of it, to notice damage.
    pub sha256: String,
}

impl Checkpoint {
    /// A checkpoint with its checksum and nothing known about the bucket.
    pub fn new(seq: u64, open: BTreeMap<PlanId, u64>) -> Self {
        Self { seq, open, event: String::new(), missing: 0, trail: None, healed: None, sha256: String::new() }.sealed()
    }

    /// Itself with what else is known, and the checksum over all of it.
    #[must_use]
    pub fn with(mut self, event: String, missing: u64, trail: Option<Trail>, healed: Healed) -> Self {
        self.event = event;
        self.missing = missing;
        self.trail = trail;
        self.healed = Some(healed).filter(|h| *h != Healed::default());
        self.sealed()
    }

    fn sealed(mut self) -> Self {
        self.sha256 = self.digest();
        self
    }

    /// Without the newer fields it is what it was before there were any.
    fn digest(&self) -> String {
        let lines: String = self.open.iter().map(|(plan, at)| format!("{plan} {at}\n")).collect();
        let mut text = format!("{}\n{lines}", self.seq);
        if !self.event.is_empty() || self.missing > 0 || self.trail.is_some() || self.healed.is_some() {
            text.push_str(&format!("{} {} {:?} {:?}\n", self.event, self.missing, self.trail, self.healed));
        }
        crate::digest::sha256_hex(text.as_bytes())
    }

    /// Reads a checkpoint; `None` when it is damaged.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let checkpoint: Self = serde_json::from_slice(bytes).ok()?;
        (checkpoint.sha256 == checkpoint.digest()).then_some(checkpoint)
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
