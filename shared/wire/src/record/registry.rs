//! Records of the registry `fanfold-terminals`: terminals as the dispatcher knows them, stores as HQ imported them.

use std::collections::BTreeMap;
use std::ops::Deref;

use fanfold_domain::ids::TerminalId;
use serde::{Deserialize, Serialize};

/// Numbers by code; read as a map. None, as of most terminals, take no more than a pointer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "BTreeMap<String, u64>")]
#[expect(clippy::box_collection, reason = "an empty map is three words, and there are two of these a terminal")]
pub struct CodeCounts(Option<Box<BTreeMap<String, u64>>>);

static NO_CODES: BTreeMap<String, u64> = BTreeMap::new();

impl CodeCounts {
    /// Counts one more of a code.
    pub fn count(&mut self, code: &str) {
        let counts = self.0.get_or_insert_default();
        match counts.get_mut(code) {
            Some(count) => *count += 1,
            None => drop(counts.insert(code.to_owned(), 1)),
        }
    }
}

impl Deref for CodeCounts {
    type Target = BTreeMap<String, u64>;

    fn deref(&self) -> &Self::Target {
        self.0.as_deref().unwrap_or(&NO_CODES)
    }
}

impl Serialize for CodeCounts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl From<BTreeMap<String, u64>> for CodeCounts {
    fn from(counts: BTreeMap<String, u64>) -> Self {
        Self((!counts.is_empty()).then(|| Box::new(counts)))
    }
}

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
    pub refused: CodeCounts,
    /// Told to come again, by code.
    #[serde(default)]
    pub deferred: CodeCounts,
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_code_are_written_and_read_as_a_map() {
        let mut counts = ReportCounts { recorded: 2, ..ReportCounts::default() };
        let none = r#"{"recorded":2,"duplicate":0,"refused":{},"deferred":{}}"#;
        assert_eq!(serde_json::to_string(&counts).unwrap(), none);
        assert_eq!(serde_json::from_str::<ReportCounts>(none).unwrap(), counts);
        ["B", "A", "B"].into_iter().for_each(|code| counts.refused.count(code));
        let some = r#"{"recorded":2,"duplicate":0,"refused":{"A":1,"B":2},"deferred":{}}"#;
        assert_eq!(serde_json::to_string(&counts).unwrap(), some);
        assert_eq!(serde_json::from_str::<ReportCounts>(some).unwrap(), counts);
        assert_eq!((counts.refused["B"], counts.deferred.is_empty()), (2, true));
    }
}
