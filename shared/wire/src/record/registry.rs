//! Records of the registry `fanfold-terminals`: terminals as the dispatcher knows them, stores as HQ imported them.

use std::collections::BTreeMap;

use fanfold_domain::ids::TerminalId;
use serde::{Deserialize, Serialize};

/// Counts of what the recorder answered one terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportCounts {
    /// Written into the log.
    #[serde(default)]
    pub recorded: u64,
    /// Known already.
    #[serde(default)]
    pub duplicate: u64,
    /// Refused for good, by code.
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
    /// Told to come again, by code.
    #[serde(default)]
    pub deferred: BTreeMap<String, u64>,
}

/// `terminal.<id>` of `fanfold-terminals`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminalRecord {
    /// The terminal.
    pub id: TerminalId,
    /// Heard of within three beats.
    #[serde(default)]
    pub online: bool,
    /// Last heard of, epoch ms; on a change of `online`, not at each beat.
    #[serde(default)]
    pub last_seen_ms: Option<i64>,
    /// Its software's version.
    #[serde(default)]
    pub version: String,
    /// How many tasks it runs at once.
    #[serde(default)]
    pub slots: u32,
    /// How often it beats, in milliseconds.
    #[serde(default)]
    pub beat_interval_ms: u64,
    /// Its journal.
    #[serde(default)]
    pub journal: String,
    /// Its boot.
    #[serde(default)]
    pub boot: String,
    /// The only journal allowed under this id, after a `terminal replace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_journal: Option<String>,
    /// Two processes use this id: nothing is dispatched to it.
    #[serde(default)]
    pub id_in_use: bool,
    /// The next process heard under this id is let in and no other: a `terminal replace` that named no journal and isn't used up yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace_with_next: bool,
    /// Journal of the other process heard under this id: the twin, or one that is turned away after a `terminal replace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rival_journal: Option<String>,
    /// It says that it can't write its journal: nothing is dispatched to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub journal_unavailable: bool,
    /// Beats and syncs not taken because it sent too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub messages_limited: u64,
    /// Beats and syncs that could not be read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub messages_unreadable: u64,
    /// Labels it gives itself.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Task types it can run.
    #[serde(default)]
    pub types: Vec<String>,
    /// What its reports came to.
    #[serde(default)]
    pub reports: ReportCounts,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Key of a terminal's record.
pub fn terminal_key(terminal: &TerminalId) -> String {
    format!("terminal.{terminal}")
}

/// `store.<id>` of `fanfold-terminals`: what HQ knows of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoreRecord {
    /// The store.
    pub id: TerminalId,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its region.
    #[serde(default)]
    pub region: String,
    /// IANA time zone.
    #[serde(default)]
    pub time_zone: String,
    /// Labels HQ gives it.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// Key of a store's record.
pub fn store_key(store: &TerminalId) -> String {
    format!("store.{store}")
}
