//! How a terminal describes itself, and how much of that HQ keeps.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::protocol_version;

/// A terminal's own description, with every beat and sync.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// See [`PROTOCOL_VERSION`](fanfold_domain::event::PROTOCOL_VERSION).
    #[serde(default = "protocol_version")]
    pub protocol_version: u32,
    /// Version of the terminal's software.
    #[serde(default)]
    pub version: String,
    /// Random, made with the journal file.
    pub journal: String,
    /// Random, made at each start.
    pub boot: String,
    /// How many tasks it runs at once.
    #[serde(default = "one")]
    pub slots: u32,
    /// How often it beats, in milliseconds.
    #[serde(default)]
    pub beat_interval_ms: u64,
    /// Free labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Task types it can run, `name@version`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
}

/// Longest heartbeat interval HQ believes, in milliseconds.
pub const BEAT_INTERVAL_MS_MAX: u64 = 600_000;
/// Labels and types kept of one terminal.
const IDENTITY_ITEMS_MAX: usize = 32;
/// Characters kept of each of its texts.
const IDENTITY_CHARS_MAX: usize = 64;

impl Identity {
    /// What HQ keeps of it: every text and list cut to its bound, so that no terminal takes more room than another.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let cut =
            |text: String| if text.len() <= IDENTITY_CHARS_MAX { text } else { text.chars().take(IDENTITY_CHARS_MAX).collect() };
        self.version = cut(self.version);
        self.journal = cut(self.journal);
        self.boot = cut(self.boot);
        self.beat_interval_ms = self.beat_interval_ms.min(BEAT_INTERVAL_MS_MAX);
        self.labels = self.labels.into_iter().take(IDENTITY_ITEMS_MAX).map(|(k, v)| (cut(k), cut(v))).collect();
        self.types = self.types.into_iter().take(IDENTITY_ITEMS_MAX).map(cut).collect();
        self
    }
}

fn one() -> u32 {
    1
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_kept_within_its_bounds() {
        let huge = "x".repeat(1_000_000);
        let text = serde_json::json!({"journal": huge, "boot": "b", "version": huge, "beatIntervalMs": 1_u64 << 53, "types": vec!["t"; 500],
            "labels": (0..500).map(|i| (i.to_string(), huge.clone())).collect::<BTreeMap<_, _>>()});
        let identity: Identity = serde_json::from_value(text).unwrap();
        let kept = identity.bounded();
        assert!(serde_json::to_string(&kept).unwrap().len() < 8_000);
        assert_eq!((kept.beat_interval_ms, kept.types.len(), kept.labels.len()), (BEAT_INTERVAL_MS_MAX, 32, 32));
        assert_eq!(kept.clone().bounded(), kept);
    }
}
